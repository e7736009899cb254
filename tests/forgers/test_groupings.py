"""A forger carries one wish out in several requests, or two wishes in one, as he likes the draws that follow.

The draws of a request follow from what it names and from all requests before it. What was asked for is forgotten in
each grouping, so each passes, with the same commitment and the same --client and --sample. No run can show how people
asked. A PASS said that the order of requests is as told, and nothing where one request names all.
"""

from itertools import combinations

import pytest
from tests_support import AUDIT_KEY, config, secret

from fuaudit import train, unlearn, verify
from fuaudit.plans import Request


@pytest.fixture
def parent(tmp_path):
    return train(config(), tmp_path / "parent", secret=secret(3))


def groupings(things):
    """All ways to name things in requests, one after another."""
    if not things:
        yield ()
    for size in range(1, len(things) + 1):
        for first in combinations(things, size):
            yield from ((first, *more) for more in groupings([one for one in things if one not in first]))


def carried_out(parent, grouping, ask):
    run = parent
    for number, group in enumerate(grouping):
        run = unlearn(run, "fats", ask(group), parent.path.parent / f"{grouping}-{number}".replace(" ", ""))
    return run


def samples(ids):
    return Request.of(samples=ids)


def said(parent, run, quick, asked):
    """What a PASS says of how things were grouped."""
    result = verify(run, quick, key=AUDIT_KEY, save=False, commitment=parent.commitment, request=asked)
    assert result.verdict == "PASS", result.reason
    return [line for line in result.conclusion.rests_on if "were asked for as they were carried out" in line]


def words(what, how):
    return [
        f"The {what} that were asked for were asked for as they were carried out: {how}. Another grouping or order "
        "gives other draws, so whoever could choose it could choose among them."
    ]


@pytest.mark.thorough
def test_one_wish_in_thirteen_ways(parent, quick):
    wanted = sorted(parent.plan.index.samples)[:3]
    found = {way: carried_out(parent, way, samples) for way in groupings(wanted)}
    assert len(found) == 13
    assert len({run.model.numpy().tobytes() for run in found.values()}) > 6, "there was something to choose"
    ways = {
        (tuple(wanted),): "in one request",
        tuple((one,) for one in reversed(wanted)): "in requests 1, 2 and 3 of 3, in this order",
        (tuple(wanted[1:]), tuple(wanted[:1])): "in requests 1 and 2 of 2, in this order",
    }
    for way, how in ways.items():
        assert said(parent, found[way], quick, samples(wanted)) == words("3 samples", how)


def test_two_wishes_in_one(parent, quick):
    both = Request.of([0, 5])
    child = unlearn(parent, "fats", both, parent.path.parent / "child")
    assert said(parent, child, quick, both) == words("2 clients", "in one request")


def test_beside_a_request_that_nobody_compared(parent, quick):
    row = parent.original.samples[9][0]
    first = unlearn(parent, "fats", Request.of([7]), parent.path.parent / "first")
    child = unlearn(first, "fats", Request.of([0], [row]), parent.path.parent / "child")
    asked = Request.of([0], [row])
    assert said(parent, child, quick, asked) == words("1 client and 1 sample", "in one request")


def test_who_asked_for_one_thing_had_no_grouping(parent, quick):
    child = unlearn(parent, "fats", Request.of([0]), parent.path.parent / "child")
    assert said(parent, child, quick, Request.of([0])) == []
    joined = unlearn(parent, "fats", Request.of([0, 5]), parent.path.parent / "joined")
    assert said(parent, joined, quick, Request.of([0])) == []  # what it names besides is named
