"""A forger searches draws until the model that has "forgotten" lands near the one that was to be forgotten.

On honest data the order of rows steers a model. He tries secrets, unlearns client TARGET with each, keeps the run whose
model is nearest to the untouched one, and prunes it, so that few draws are left to be compared. The auditor has the
commitment that was published, and the request.
"""

import json

import pytest
from tests_support import AUDIT_KEY, config, edit, remade, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.draws.seeds import Seeds
from fuaudit.plans import Request
from fuaudit.workflow.prune import prune

TARGET = 0
TRIED = (1, 2, 4, 6)


@pytest.fixture
def parent(tmp_path):
    return train(config(), tmp_path / "parent", secret=secret(3))


@pytest.fixture
def searched(parent, tmp_path):
    """The pruned run that is nearest of those tried."""
    runs = []
    for number in TRIED:
        folder = tmp_path / str(number)
        run = train(config(), folder / "parent", secret=secret(number))
        child = unlearn(run, "fats", Request.of([TARGET]), folder / "child")
        runs.append((float((child.model - parent.model).norm()), child))
    distances = [distance for distance, _ in runs]
    assert min(distances) < max(distances)
    return prune(min(runs, key=lambda pair: pair[0])[1])[0]


@pytest.fixture
def asked(parent, quick):
    def work(run, commitment=parent.commitment):
        result = verify(run, quick, commitment=commitment, request=Request.of([TARGET]), key=AUDIT_KEY, save=False)
        return result, {finding.audit: finding for finding in result.findings}

    return work


def test_the_commitment_is_another(searched, asked):
    result, found = asked(searched)
    assert found["replay"].verdict == "PASS", "it is an honest computation"
    assert result.verdict == found["provenance"].verdict == "FAIL"
    assert "another commitment than --commitment says" in " ".join(found["provenance"].details)


@pytest.mark.thorough
def test_the_right_commitment_stands_in_his_ledger(searched, parent, asked):
    right = parent.ledger.events[0]["commitment"]
    forged = told(searched.path, lambda events: [e | {"commitment": right} if "commitment" in e else e for e in events])
    assert forged.ledger.events[0]["commitment"] == right
    result, found = asked(forged)
    assert result.verdict == found["provenance"].verdict == "FAIL"
    assert "does not hold the seeds" in found["provenance"].shows


def test_some_of_the_seeds_are_those_committed_to(parent, searched, asked, tmp_path):
    """He splices: what was drawn anew is right, the kept positions are drawn from the seeds that he liked."""
    child, _ = prune(unlearn(parent, "fats", Request.of([TARGET]), tmp_path / "child"))
    mine, liked = child.keys.seeds, load_run(searched.path).keys.seeds
    his = {(part.first, part.last): part for part in liked.parts if part.seed is not None}
    end = child.leaves.generation(0).stop
    spliced = Seeds(
        tuple(
            his.get((part.first, part.last), part) if part.seed is not None and part.last <= end else part
            for part in mine.parts
        )
    )
    assert spliced != mine
    keys = json.loads((child.path / "keys.json").read_bytes())
    edit(child.path, "keys.json", **(keys | {"seeds": spliced.as_rows()}))
    result, found = asked(remade(child.path))
    assert result.verdict == found["provenance"].verdict == "FAIL"
    assert "does not hold the seeds" in found["provenance"].shows


@pytest.mark.thorough
def test_without_a_commitment_it_is_named(searched, asked):
    """Then nothing speaks against him but the sentence that a PASS rests on."""
    result, _ = asked(searched, None)
    assert result.verdict == "PASS"
    rests = " ".join(result.conclusion.rests_on)
    assert "The commitment is not anchored outside: no --commitment was given to compare with." in rests
    assert "secrets could be tried until their draws were liked, before the commitment was published" in rests
