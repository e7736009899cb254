"""A forger writes an old model into what a run says of the machine that made it, and of where its plugins come from.

Names of systems and processors had 200 characters of any alphabet, and each plugin a distribution and a version of its
own. On a machine that gets the same bits nothing of it was compared: some 14,000 bits. Names are short and plain now,
a distribution has one version, and a PASS names distributions that plugins are not of here.
"""

import shutil

import pytest
from tests_support import AUDIT_KEY, config, edit, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.runs import platforms
from fuaudit.text import plain


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    root = tmp_path_factory.mktemp("machines")
    parent = train(config(), root / "parent", secret=secret(7))
    return unlearn(parent, "retrain", Request.of([0]), root / "child")


@pytest.fixture
def child(honest, tmp_path):
    """A copy, free to be edited, beside its parent."""
    shutil.copytree(honest.path.parent, tmp_path / "copy")
    return load_run(tmp_path / "copy" / "child")


def made_by(run, **changes):
    """The run with other words of the machine that made it, in ``run.json`` and in the ledger."""
    edit(run.path, "run.json", **changes)
    return told(run.path, lambda events: [e | (changes if e["event"] == "platform" else {}) for e in events])


@pytest.mark.parametrize("word", ["platform", "processor"])
@pytest.mark.parametrize("name", ["漢" * 40, "a" * 101, ""], ids=["another alphabet", "long", "empty"])
def test_names_are_short_and_plain(word, name, child):
    with pytest.raises(EvidenceError, match=rf"versions\.{word}|no event that a run can have"):
        made_by(child, versions=child.info["versions"] | {word: name})


def test_a_distribution_has_one_version(child):
    rows = [row | {"version": f"1.{place}"} for place, row in enumerate(child.info["plugins"])]
    with pytest.raises(EvidenceError, match=r"'plugins'|no event that a run can have"):
        made_by(child, plugins=rows)


def test_a_pass_names_distributions_that_plugins_are_not_of_here(child, quick):
    rows = [row | {"distribution": f"x{place}" * 8} for place, row in enumerate(child.info["plugins"])]
    result = verify(made_by(child, plugins=rows), quick, key=AUDIT_KEY, save=False, commitment=child.commitment)
    assert result.verdict == "PASS"
    names = ", ".join(sorted(row["distribution"] for row in rows))
    assert f"Plugins are of other distributions here than the run names: {names}." in result.conclusion.rests_on


def test_honest_names_are_made_plain(monkeypatch):
    monkeypatch.setattr(platforms.platform, "machine", lambda: "Процессор" + 200 * "x")
    found = platforms.versions()["platform"]
    assert len(found) == 100
    assert "?????????xxx" in found
    assert plain(found) == found
