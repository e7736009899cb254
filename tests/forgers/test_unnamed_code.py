"""Outside code that runs in a verification, and that no PASS names.

`outside_code` looks at the tables of a config that train (TABLES, server) and at the unlearners of runs. It forgets the
table [unlearner] of the config, which opening the run builds, and the unlearners of tombstones, which the audit
`provenance` builds and asks. docs/guarantees.md: "Findings and every PASS name each distribution but fuaudit that
config, lineage or spec use".
"""

import sys
from dataclasses import replace

import pytest
from tests_support import AUDIT_KEY, config, drawn_client, installed, secret

import fuaudit.verification.verify as verifying
from fuaudit import load_run, train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.workflow.prune import prune

QUIET = '''
from dataclasses import dataclass

from fuaudit_plugins.fats import FatsUnlearning


@dataclass(frozen=True)
class Evil(FatsUnlearning):
    """Evil."""
'''
LOUD = (
    QUIET
    + """
import sys
from dataclasses import replace

import fuaudit.verification.examine as examining
from fuaudit.verification.finding import Verdict

inner = examining.examine


def examine(check, case):
    found, code = inner(check, case)
    return replace(found, verdict=Verdict.PASS, shows="All is well."), code


sys.modules["fuaudit.verification.verify"].examine = examine
"""
)
ENTRY = "[fuaudit.unlearners]\nevil = stranger:Evil\n"


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    monkeypatch.setattr(verifying, "examine", verifying.examine)  # put back afterwards

    def install(code):
        monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "stranger", code, ENTRY)))
        sys.modules.pop("stranger", None)

    yield install
    sys.modules.pop("stranger", None)


def named(result):
    return [code["name"] for code in result.context["outside"]]


def test_the_unlearner_that_a_config_names(stranger, quick, tmp_path):
    stranger(QUIET)
    run = train(config(unlearner={"use": "evil"}), tmp_path / "run", secret=secret(3))
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child")
    sys.modules.pop("stranger")
    result = verify(child.path, quick, key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS"
    assert "stranger" in sys.modules
    assert named(result) == ["strangers-package"]


def test_with_it_a_model_that_forgot_nothing_passes_by_its_name_alone(stranger, quick, tmp_path):
    stranger(LOUD)
    run = train(config(unlearner={"use": "evil"}), tmp_path / "run", secret=secret(3))
    child = unlearn(run, "noop", Request.of([drawn_client(run)]), tmp_path / "child")
    result = verify(child.path, quick, key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS"
    assert named(result) == ["strangers-package"]


def test_a_spec_that_trusts_nobody_and_a_run_that_was_opened_before(stranger, quick, tmp_path):
    stranger(QUIET)
    run = train(config(unlearner={"use": "evil"}), tmp_path / "run", secret=secret(3))
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child")
    nobody = replace(quick, trusts=())
    with pytest.raises(EvidenceError, match="trust"):
        verify(child.path, nobody, key=AUDIT_KEY, save=False)  # refused, as it must be
    with pytest.raises(EvidenceError, match="trust"):  # "imported already or not"
        verify(load_run(child.path), nobody, key=AUDIT_KEY, save=False)


@pytest.mark.thorough
@pytest.mark.parametrize("last", ["evil", "fats"])
def test_the_unlearner_of_a_pruned_ancestor(stranger, quick, tmp_path, last):
    stranger(QUIET)
    run = train(config(), tmp_path / "run", secret=secret(3))
    first = unlearn(run, "evil", Request.of([drawn_client(run)]), tmp_path / "first")
    second = unlearn(first, last, Request.of([drawn_client(first)]), tmp_path / "second")
    pruned, _ = prune(second)
    sys.modules.pop("stranger")
    result = verify(pruned.path, quick, key=AUDIT_KEY, save=False)
    assert "stranger" in sys.modules
    assert result.verdict == "PASS"
    assert named(result) == ["strangers-package"]


@pytest.mark.thorough
def test_a_pass_of_exact_erasure_that_names_nobody(stranger, tmp_path, lean_file):
    stranger(QUIET)
    run = train(config(unlearner={"use": "evil"}), tmp_path / "run", secret=secret(3))
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child")
    result = verify(child.path, lean_file, key=AUDIT_KEY, save=False, budget=0)
    assert result.verdict == "PASS", result.reason
    assert named(result) == ["strangers-package"], result.reason


def test_a_pruned_ancestor_of_a_method_that_is_not_trusted(stranger, quick, tmp_path):
    """Refused, as it must be."""
    stranger(QUIET)
    run = train(config(), tmp_path / "run", secret=secret(3))
    first = unlearn(run, "evil", Request.of([drawn_client(run)]), tmp_path / "first")
    second = unlearn(first, "fats", Request.of([drawn_client(first)]), tmp_path / "second")
    pruned, _ = prune(second)
    with pytest.raises(EvidenceError, match="trust"):
        verify(pruned.path, replace(quick, trusts=()), key=AUDIT_KEY, save=False)
