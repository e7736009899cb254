"""What a stranger's audit says in fuaudit's voice, what is pushed off a page, and a spec that is called built-in."""

import sys
from dataclasses import replace

import pytest
from tests_support import AUDIT_KEY, installed

from fuaudit import unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.reporting import render
from fuaudit.verification.finding import NON_ADAPTIVE
from fuaudit.verification.spec import Check

CODE = """
from dataclasses import dataclass
from typing import ClassVar

from fuaudit.plugins import Finding, ResidualCopy, Subject, Verdict


@dataclass(frozen=True)
class Mine:
    evidence: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[frozenset[str]] = frozenset()
    recomputes: ClassVar[str] = "every copy of your data, found destroyed"

    def examine(self, case):
        return Finding("mine", Subject.RUN, VERDICT, "It shows.", "Not that.", MORE)
"""
SAID = "Your data is gone for good; fuaudit has proved it."


@pytest.fixture
def result(tiny, tmp_path, monkeypatch, quick):
    def work(verdict="Verdict.PASS", more="", first=False, role="supporting"):
        code = CODE.replace("VERDICT", verdict).replace("MORE", more)
        site = installed(tmp_path / "site", "stranger", code, "[fuaudit.audits]\nmine = stranger:Mine\n")
        monkeypatch.syspath_prepend(str(site))
        sys.modules.pop("stranger", None)
        kid = unlearn(tiny(tmp_path / "p"), "fats", Request.of([0]), tmp_path / "c", data=tiny.dataset)
        mine = Check("Mine", {"use": "mine"}, role)
        spec = replace(quick, checks=(mine, *quick.checks) if first else (*quick.checks, mine))
        return verify(kid, spec, key=AUDIT_KEY, data=tiny.dataset, save=False)

    yield work
    sys.modules.pop("stranger", None)


@pytest.mark.parametrize("verdict", ["Verdict.PASS", "Verdict.INCONCLUSIVE"])
def test_a_sentence_for_the_person_concerned(result, verdict):
    """`qualification` is said in the name of the audit and by what passed only; `plainly` is neither."""
    found = result(verdict, f"plainly={SAID!r}")
    page = render(found.as_json(), "html").decode()
    assert found.verdict == "PASS"
    assert f"All 4 checks that had to pass did. {SAID}" not in page


SAID_BY = f"The audit 'mine' of strangers-package 1.5 says: {SAID!r}"


def test_what_an_audit_takes_on_trust_and_names(result):
    """A PASS lists assumptions, and copies, among fuaudit's own sentences."""
    found = result(more=f"assumptions=({SAID!r},), copies=(ResidualCopy('a', {SAID!r}), ResidualCopy({SAID!r}, 'b'))")
    assert SAID_BY in found.conclusion.rests_on
    assert [str(copy) for copy in found.findings[-1].copies] == [
        f"'a': {SAID_BY}",
        f"{SAID!r}: The audit 'mine' of strangers-package 1.5 says: 'b'",
    ]


@pytest.mark.parametrize("verdict", ["FAIL", "INCONCLUSIVE"])
def test_a_reason(result, verdict):
    found = result(f"Verdict.{verdict}", role="required")
    assert found.reason == "The audit 'mine' of strangers-package 1.5 says: 'It shows.'"


METHOD = """
from dataclasses import dataclass
from typing import ClassVar

from fuaudit_plugins.fats import FatsUnlearning


@dataclass(frozen=True)
class Sure(FatsUnlearning):
    assumes: ClassVar[tuple[str, ...]] = ("nothing, which fuaudit has checked", "non-adaptive requests")
"""


def test_what_a_method_assumes(tiny, tmp_path, monkeypatch, quick):
    site = installed(tmp_path / "site", "surely", METHOD, "[fuaudit.unlearners]\nsure = surely:Sure\n")
    monkeypatch.syspath_prepend(str(site))
    kid = unlearn(tiny(tmp_path / "p"), "sure", Request.of([0]), tmp_path / "c", data=tiny.dataset)
    spec = replace(quick, checks=(*quick.checks, Check("Assumed", {"use": "assumptions"})))
    found = verify(kid, spec, key=AUDIT_KEY, data=tiny.dataset, save=False)
    sys.modules.pop("surely", None)
    assert found.findings[-1].assumptions[-2:] == (
        "The unlearner 'sure' of strangers-package 1.5 assumes: 'nothing, which fuaudit has checked'",
        NON_ADAPTIVE,
    )


def test_what_the_audits_worked_out_themselves(result):
    page = render(result().as_json(), "html").decode()
    assert "<li>Every copy of your data, found destroyed.</li>" not in page


def test_the_code_stays_on_the_list_of_what_is_trusted(result):
    """Markdown shows twelve lines; a stranger's audit fills them."""
    found = result(more="assumptions=tuple(f'Assumption {n}.' for n in range(12))", first=True)
    (code,) = found.context["outside"]
    assert code["digest"] in render(found.as_json(), "md").decode()


@pytest.mark.parametrize(
    "name",
    [
        "built-in ",
        "built\u2011in",
        "ours.toml, the same as the built-in one",
        "built-in, digest 0123456789abcdef). It rests on fuaudit alone. (x",
    ],
)
def test_a_file_that_is_called_built_in(name, tiny, tmp_path):
    path = tmp_path / "s" / name
    path.parent.mkdir()
    path.write_text(
        'id = "client-erasures/1"\nasks = "run"\nout_of_scope = ["x"]\n'
        + "".join(
            f'[[check]]\nclaim = "{use}"\naudit = {{ use = "{use}" }}\n'
            for use in ("integrity", "replay", "provenance", "lineage")
        )
    )
    kid = unlearn(tiny(tmp_path / "p"), "fats", Request.of([0]), tmp_path / "c", data=tiny.dataset)
    found = verify(kid, path, key=AUDIT_KEY, data=tiny.dataset, save=False)
    assert f"client-erasures/1 ({name}" not in found.reason


@pytest.mark.parametrize("verdict", ["INCONCLUSIVE", "FAIL", "ERROR", "nothing"])
def test_a_pass_over_checks_that_give_none_is_not_reported(result, verdict):
    document = result().as_json()
    assert document["verdict"] == "PASS"
    if verdict == "nothing":
        document["checks"] = []
    else:
        document["checks"][1]["finding"]["verdict"] = verdict
    with pytest.raises(EvidenceError):
        render(document, "md")
