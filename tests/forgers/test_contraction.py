"""A forger leaves a whole client in the model, whom later rounds nearly forgot; one drawn late answers for both.

Steps towards one optimum forget where they started. What a client did who was last drawn many rounds ago is then below
the tolerance, all of it. Asked for alone she moves the last model too little, and no tolerance could tell. A client of
the same request who was drawn in the last rounds moves it far. By herself, in the rounds that drew her, the early one
moved models far too, though the last one no longer shows it.
"""

import pytest
import torch
from tests_support import AUDIT_KEY, holding, made_elsewhere, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request
from fuaudit.plans.stacked import LazySchedule
from fuaudit.verification.case import Case
from fuaudit.verification.counterfactual import Leg
from fuaudit.verification.evidence import Evidence

EPS = 256 * torch.finfo(torch.float32).eps
CLIENTS, ROWS, FEATURES, ROUNDS = 30, 8, 4, 50
EARLY, LATE = 19, 1
"""Under this secret the first is last drawn in round 35, the second in rounds 49 and 50."""


def tables(rounds):
    learner = {"rounds": rounds, "cohort": 2, "steps": 4, "batch": 4, "step_size": 1.0}
    return {
        "data": {"use": "tensors", "classes": 2},
        "partition": {"use": "by-owner"},
        "model": {"use": "linear"},
        "learner": {"use": "fats"} | learner,
        "run": {"checkpoint_every": rounds, "engine": "reference", "device": "cpu"},
    }


def federation():
    """Rows and classes that have nothing to do with each other: the optimum is one, and near."""
    generator, count = torch.Generator().manual_seed(0), CLIENTS * ROWS
    inputs = torch.randn(count, FEATURES, generator=generator)
    targets = torch.randint(0, 2, (count,), generator=generator)
    owners, names = torch.arange(count) // ROWS, tuple(f"client {number}" for number in range(CLIENTS))
    return Dataset(inputs, targets, inputs[::4].clone(), targets[::4].clone(), 2, owners=owners, owner_names=names)


def left(parent, child, data):
    """What the early client did to the parent's last model ``(d,)``, and what later rounds made of it."""
    rerun, before, rounds = Case(Evidence(child, parent, data), None).rerun, parent.plan.retained, child.rounds_executed
    drawn = LazySchedule([parent.plan], parent.rounds_executed)
    then = [Leg(child.plan, child.plan.retained, LazySchedule([child.plan], rounds))]
    kept = child.plan.retained.owner
    counts = {*kept, *before.samples[EARLY]}, {*kept}
    legs = ([Leg(parent.plan, before, drawn, [c]), *then[parent.rounds_executed == rounds :]] for c in counts)
    with_her, without = (rerun.models(leg)[rounds][0] for leg in legs)
    return with_her - without


@pytest.mark.thorough
@pytest.mark.parametrize("more", [0, 2], ids=["to the end", "stopped for the request"])
def test_who_was_nearly_forgotten_is_asked_alone(more, tmp_path, quick):
    data, rounds = federation(), ROUNDS + more
    parent = train(tables(rounds), tmp_path / "parent", secret=secret(2), data=data, stop_after=ROUNDS)
    assert [n for n in range(1, ROUNDS + 1) if EARLY in parent.plan.cohort(n)] == [22, 35]
    method = "retrain" if more else "fats"
    child = unlearn(parent, method, Request.of([EARLY, LATE]), tmp_path / "child", data=data)
    honest, did = {n: child.checkpoint(n) for n in child.checkpoints}, left(parent, child, data)
    vector, state = honest[rounds]
    assert 0.01 * EPS < did.abs().max() / vector.abs().max() < 0.9 * EPS, "all that she did fits in"
    holding(child.path, honest | {rounds: (vector + did, state)}, data)
    result = verify(made_elsewhere(load_run(child.path)), quick, key=AUDIT_KEY, save=False, data=data)
    (found,) = (finding for finding in result.findings if finding.audit == "replay")
    assert result.verdict == found.verdict == "INCONCLUSIVE", found.details
    blind = [line for line in found.details if line.startswith("could not be told from rounding")]
    assert blind, found.details
    assert all(f"of client {EARLY}, " in line for line in blind), blind


@pytest.mark.thorough
def test_who_was_nearly_forgotten_two_runs_ago_is_asked_under_the_draws_of_that_run(tmp_path, quick):
    """Another request comes before hers, so all draws change. The run between drew her late, and answers for both."""
    data, (other, hers) = federation(), (13, 25)
    first = train(tables(ROUNDS), tmp_path / "first", secret=secret(3), data=data)
    second = unlearn(first, "fats", Request.of([other]), tmp_path / "second", data=data)
    child = unlearn(second, "fats", Request.of([hers]), tmp_path / "child", data=data)
    last = [max(n for n in range(1, ROUNDS + 1) if hers in run.plan.cohort(n)) for run in (first, second)]
    assert last == [35, 49]
    rerun, drawn = Case(Evidence(child, second, data), None).rerun, LazySchedule([first.plan], ROUNDS)
    before, kept = first.plan.retained, child.plan.retained.owner
    counts = {*kept, *before.samples[hers]}, {*kept}
    with_her, without = (rerun.models([Leg(first.plan, before, drawn, [c])])[ROUNDS][0] for c in counts)
    (vector, state), did = child.checkpoint(ROUNDS), with_her - without
    assert 0.1 * EPS < did.abs().max() / vector.abs().max() < 0.9 * EPS, "all that she did to the first run fits in"
    holding(child.path, {0: child.checkpoint(0), ROUNDS: (vector + did, state)}, data)
    result = verify(made_elsewhere(load_run(child.path)), quick, key=AUDIT_KEY, save=False, data=data)
    (found,) = (finding for finding in result.findings if finding.audit == "replay")
    assert result.verdict == found.verdict == "INCONCLUSIVE", found.details
    blind = [line for line in found.details if line.startswith("could not be told from rounding")]
    assert blind, found.details
    assert all("drawn as in first" in line for line in blind), blind
