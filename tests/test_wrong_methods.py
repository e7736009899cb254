"""Methods that are wrong for some ids, numbers, rounds, sizes, repetitions, histories or one run.

Small federations refute them wherever they reach; beyond that a method that draws otherwise than a proved one gets no
bound, and a PASS that rests on its code. The whole table is made by benchmarks/wrong_methods.py.
"""

import sys
from pathlib import Path

import pytest

from fuaudit.audits.enumeration import Enumeration
from fuaudit.audits.plan_law.audit import PlanLaw
from fuaudit.audits.plan_law.simulate import Step, Trial
from fuaudit.draws import Keyed
from fuaudit.plans import Request, UniformLaw
from fuaudit.proofs import exactness
from fuaudit.proofs.toys import Shape, federation
from fuaudit.runs.ancestors import parent_of
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.finding import Verdict
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

sys.path.append(str(Path(__file__).parent / "mutants"))
import fuaudit_mutants as mutants

KEY = bytes(range(32))
LAW, MEMBERS = UniformLaw(6, 3, 5, 4), federation((15,) * 12)
CLIENT, SAMPLE = Shape(1, ()), Shape(0, (1,))


def enumerated(method, *shapes, **options):
    return Enumeration(**options).judged(LAW, MEMBERS, [(method, shape) for shape in shapes], ["it"] * len(shapes))


def at_full_size(method, name, request, **options):
    trial = Trial(LAW, MEMBERS, (Step(method, name, request),))
    return PlanLaw(**{"plans": 2000, "most": 4000, "effect": 0.05} | options).judged(trial, KEY)


@pytest.mark.parametrize(
    ("method", "shape"),
    [
        (mutants.PrintedIfTwice(), SAMPLE),
        (mutants.PrintedInLast(), SAMPLE),
        (mutants.PrintedSecond(), SAMPLE),
        (mutants.PrintedForLargest(), SAMPLE),
        (mutants.KeepsOneMore(), CLIENT),
        (mutants.EarlierIf(), CLIENT),
        (mutants.SortsCohorts(), CLIENT),
        (mutants.AvoidsNeighbour(), CLIENT),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, Shape) else str(value),
)
def test_small_federations_refute_what_they_reach(method, shape):
    found = enumerated(method, shape)
    assert found.verdict is Verdict.FAIL, found.shows


BEYOND = {
    "mutant-printed-from-hundred": (mutants.PrintedFromHundred(), SAMPLE, Request.of(samples=[120])),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_they_do_not_reach_gets_no_bound_and_is_named(name):
    method, shape, request = BEYOND[name]
    assert enumerated(method, shape, leaves=3000).verdict is not Verdict.FAIL, "it is right in small federations"
    found = at_full_size(method, name, request)
    assert "differs_below" not in found.values
    assert any(line.startswith("no bound: plan ") for line in found.details)
    assert found.verdict is not Verdict.PASS or f"the code of '{name}' (fuaudit-mutants 0.1)" in found.qualification


@pytest.mark.thorough
def test_it_keeps_the_owner_s_batches_and_is_exact():
    method = mutants.KeepsTheOwners()
    for law, sizes, requests in (
        (UniformLaw(2, 1, 2, 1), (3, 2), [Request.of(samples=[0])]),
        (UniformLaw(1, 2, 2, 2), (3, 2), [Request.of(samples=[0])]),
        (UniformLaw(2, 1, 1, 1), (3, 2), [Request.of(samples=[0]), Request.of(samples=[1])]),
    ):
        proved = exactness(method, law, federation(sizes), requests)
        assert proved.exact, proved.witness
    found = at_full_size(method, "stranger-keeps-the-owners", Request.of(samples=[120]))
    assert found.verdict is not Verdict.FAIL, found.shows
    assert "differs_below" not in found.values, "it draws otherwise than the reference"
    assert at_full_size(method, "fats", Request.of(clients=[3])).verdict is Verdict.PASS


def test_wrong_for_one_run_alone_fails_on_it(small_config, tmp_path):
    """It goes back one round more than it must, on this plan only; nothing erased is left."""
    parent = train(small_config(rounds=12), tmp_path / "parent", secret=KEY)
    rounds = parent.plan.index.clients
    request = Request.of(clients=[max(rounds, key=rounds.__getitem__)])
    known = [client for round_number in range(1, 7) for client in parent.plan.cohort(round_number)]
    child = unlearn(parent, "mutant-earlier-once", request, tmp_path / "child", {"known": known})
    assert child.info["first_change"] == [rounds[request.clients[0]] - 1, 0]
    found = PlanLaw(plans=3000, effect=0.01).examine(Case(Evidence(child, parent_of(child), None), Keyed(KEY)))
    assert found.verdict is Verdict.FAIL, found.shows
    assert "in all 3,000 plans, but not in this run" in found.shows
