"""A forger hands over a commitment that he made after the request.

Client TARGET asks to be forgotten. The forger unlearns nothing he trained before: he trains anew with secrets until he
likes the result, or signs the child, and gives the auditor the commitment of that. There is one commitment for a
lineage, its training's, and ``--commitment`` takes no other. Whether it was received before training, no run can show.
"""

import pytest
from tests_support import AUDIT_KEY, config, secret, told

from fuaudit import train, unlearn, verify
from fuaudit.audits.provenance.trusted import BEFORE_TRAINING
from fuaudit.plans import Request

TARGET = 0


@pytest.fixture
def child(tmp_path):
    parent = train(config(), tmp_path / "parent", secret=secret(3))
    return unlearn(parent, "fats", Request.of([TARGET]), tmp_path / "child")


@pytest.fixture
def asked(quick):
    def work(run, commitment):
        result = verify(run, quick, commitment=commitment, request=Request.of([TARGET]), key=AUDIT_KEY, save=False)
        return result, {finding.audit: finding for finding in result.findings}

    return work


def test_a_child_has_no_commitment_of_its_own(child, asked):
    """Whatever the child could be known by is not what training committed to."""
    last = child.ledger.events[-1]
    for name, late in {"digest": child.digest, "seal": last["previous"], "model": last["digest"]}.items():
        result, found = asked(child, late)
        assert result.verdict == found["provenance"].verdict == "FAIL", name
        assert found["provenance"].shows == "The lineage has another commitment than --commitment says."


def test_nor_can_it_name_one(child, asked):
    """The child's ledger begins with a commitment that was made after the request: nothing in it has that root."""
    forged = told(
        child.path, lambda events: [e | {"commitment": "5a" * 32} if "commitment" in e else e for e in events]
    )
    for given in ("5a" * 32, child.commitment):
        result, found = asked(forged, given)
        assert result.verdict == found["provenance"].verdict == "FAIL"


def test_a_whole_training_of_later_is_named(child, tmp_path, asked):
    """All is honest but the day. The auditor who received the commitment then is told what that shows."""
    later = train(config(), tmp_path / "later" / "parent", secret=secret(6))
    forged = unlearn(later, "fats", Request.of([TARGET]), tmp_path / "later" / "child")
    result, _ = asked(forged, later.commitment)
    assert result.verdict == "PASS"
    assert BEFORE_TRAINING in result.conclusion.rests_on
    assert "received after the request" in BEFORE_TRAINING
    assert asked(forged, child.commitment)[0].verdict == "FAIL", "who has the first one is not deceived"
