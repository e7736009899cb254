"""A forger makes requests up, one before the real one, until he likes the draws that follow.

The draws of a request follow from the commitment and all requests up to it. Whoever can invent an earlier one, say to
forget a row of his own, has a new choice of draws each time, in private. No run can show who asked. Findings name the
earlier requests as taken on trust; who knows the order in which requests came compares it.
"""

import pytest
from tests_support import AUDIT_KEY, config, edit, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.plans import Request

TARGET, DISLIKED = 0, 2


@pytest.fixture
def parent(tmp_path):
    return train(config(), tmp_path / "parent", secret=secret(3))


@pytest.fixture
def asked(parent, quick):
    def work(run):
        expected = {"commitment": parent.commitment, "request": Request.of([TARGET])}
        result = verify(run, quick, key=AUDIT_KEY, save=False, **expected)
        return result, {finding.audit: finding for finding in result.findings}

    return work


@pytest.fixture
def steered(parent):
    """The child, of several decoys, in which a client takes part least often."""
    folder, children = parent.path.parent, []
    for row in parent.plan.retained.samples[9][:4]:
        first = unlearn(parent, "fats", Request.of(samples=[row]), folder / f"decoy-{row}")
        child = unlearn(first, "fats", Request.of([TARGET]), folder / f"child-{row}")
        rounds = sum(DISLIKED in child.plan.cohort(round_number) for round_number in range(1, 9))
        children.append((rounds, child))
    assert len({rounds for rounds, _ in children}) > 1, "there was something to choose"
    return min(children, key=lambda pair: pair[0])[1]


def test_it_passes_and_is_named(steered, asked):
    result, found = asked(steered)
    assert result.verdict == found["provenance"].verdict == "PASS"
    words = (
        "The 1 other request was really made: each gives other draws to all that follow, so whoever could invent "
        "some could choose among them, and write up to 2 bytes by which ones they name."
    )
    assert words in result.conclusion.rests_on
    assert len(result.as_json()["lineage"]) == 3


def test_the_decoy_cannot_be_left_unsaid(parent, steered, asked):
    """He names the training run as the parent: the draws are not those of a first request."""
    above = {"name": "parent", "digest": parent.digest}
    edit(steered.path, "run.json", parent=load_run(steered.path).info["parent"] | above)
    forged = told(
        steered.path,
        lambda events: [e | {"parent": parent.digest} if e["event"] == "request" else e for e in events],
    )
    result, found = asked(forged)
    assert result.verdict == found["provenance"].verdict == "FAIL"
