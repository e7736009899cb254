"""Local steps that two executions share: only where an engine is given the same bits, and never by one answer for two.

The oracle of a stress plan is the plain way: each plan by itself, both sides by an engine of their own.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf, isnan

import pytest
import torch
from tests_support import config

from fuaudit import registry
from fuaudit.audits.sides import Parted, Side, parted
from fuaudit.audits.stress import stepping
from fuaudit.config import resolve
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import Iid, partition
from fuaudit.draws import Keyed
from fuaudit.plans import Plan, Request
from fuaudit.plans.availability import AvailabilityLaw, FreshBatches, StaticProbability
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import PlannedDraws
from fuaudit.training.engines import Engine, engine
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import setup
from fuaudit.training.solvers import Steps
from fuaudit.verification.shared_steps import SharedSteps

NAN = float("nan")
BATCHES = torch.tensor([[[[0, 1], [2, -1]], [[3, 4], [5, 6]]]])  # one run, two places, two steps


@dataclass
class Counting:
    """An engine, and how often it was asked."""

    engine: Engine
    asked: list[int] = field(default_factory=list)

    @property
    def name(self):
        return self.engine.name

    def advance(self, *given):
        self.asked.append(1)
        return self.engine.advance(*given)


@pytest.fixture(scope="module")
def problem():
    ready = setup(resolve(config()))
    return ready.client_problem(partition(Iid(10), ready.dataset, Keyed(bytes(32))))


def sent(problem):
    return torch.linspace(-1, 1, problem.layout.dimension)[None]


def rows(problem, **changed):
    """The problem with other inputs at some rows."""
    inputs = problem.inputs.clone()
    for row, value in changed.items():
        inputs[int(row[1:])] = value
    return replace(problem, inputs=inputs)


MOMENTUM = Steps(0.1, momentum=0.5, dampening=0.1)
OTHER = {
    "one bit of a model": lambda p, v, b, s: (p, v + torch.zeros_like(v).index_fill(1, torch.tensor([3]), 1e-7), b, s),
    "a batch": lambda p, v, b, s: (p, v, b.flip(0, 1), s),
    "a size": lambda p, v, b, s: (p, v, b, replace(s, size=0.2)),
    "a divisor": lambda p, v, b, s: (p, v, b, replace(s, divisor=3)),
    "a drift": lambda p, v, b, s: (p, v, b, replace(s, drift=torch.zeros(1, 2, v.shape[1]))),
    "a velocity of zero with a sign": lambda p, v, b, s: (p, v, b, replace(s, velocity=-torch.zeros(1, 2, v.shape[1]))),
    "a row that a batch reads": lambda p, v, b, s: (rows(p, r6=NAN), v, b, s),
    "a target that a batch reads": lambda p, v, b, s: (
        replace(p, targets=p.targets.clone().index_fill(0, torch.tensor([5]), (int(p.targets[5]) + 1) % 10)),
        v,
        b,
        s,
    ),
    "another template": lambda p, v, b, s: (replace(p, module=type(p.module)(*p.module)), v, b, s),
}


@pytest.mark.parametrize("what", OTHER)
def test_other_bits_are_computed(problem, what):
    given = (problem, sent(problem), BATCHES, replace(MOMENTUM, velocity=torch.zeros(1, 2, problem.layout.dimension)))
    shared = SharedSteps(counting := Counting(engine("reference")))
    first = shared.advance(*given)
    other = shared.advance(*OTHER[what](*given))
    assert len(counting.asked) == 2
    alone = engine("reference").advance(*OTHER[what](*given))
    assert torch.equal(other.updates, alone.updates) or bool(alone.updates.isnan().any())
    assert torch.equal(first.updates, engine("reference").advance(*given).updates)


def test_equal_bits_are_computed_once_whatever_lies_in_rows_that_nobody_reads(problem):
    shared = SharedSteps(counting := Counting(engine("reference")))
    start = sent(problem)
    start[0, 5] = NAN  # NaN has bits too
    first = shared.advance(problem, start, BATCHES, MOMENTUM)
    again = shared.advance(rows(problem, r7=NAN, r900=NAN), start.clone(), BATCHES.clone(), replace(MOMENTUM))
    assert len(counting.asked) == 1
    assert torch.equal(first.updates.nan_to_num(7), again.updates.nan_to_num(7))


def test_whoever_writes_on_what_was_given_or_answered_changes_no_later_answer(problem):
    shared, start = SharedSteps(counting := Counting(engine("reference"))), sent(problem)
    first = shared.advance(problem, start, BATCHES, MOMENTUM)
    expected, velocity = first.updates.clone(), first.velocity.clone()
    first.updates.zero_(), first.velocity.zero_()
    second = shared.advance(problem, start, BATCHES, MOMENTUM)
    assert torch.equal(second.updates, expected)
    assert torch.equal(second.velocity, velocity)
    start.add_(1)
    assert not torch.equal(shared.advance(problem, start, BATCHES, MOMENTUM).updates, expected)
    assert len(counting.asked) == 2


# --- two sides ----------------------------------------------------------------------------------------------------


def alone(ready, step, plan, kept, name):
    """The plain way: one plan, both sides round by round, each by an engine of its own."""
    draws, ends = PlannedDraws.flat(plan, plan.sources), []
    for population in (step.before, step.after):
        start = initial_state(ready.procedure, [plan], population, ready.device)
        problem, rounds = ready.client_problem(population), LazySchedule([plan], kept)
        ends.append(execute(ready.procedure, problem, population, rounds, start, engine(name), draws=(draws,)))
    for (number, everything), (_, retained) in zip(*ends, strict=True):
        full = everything.without(ready.procedure, step.before, step.after)
        pairs = [(full.vectors, retained.vectors), *((full.state[k], retained.state[k]) for k in full.state)]
        if not any(all(bool(t.isfinite().all()) for t in side) for side in zip(*pairs, strict=True)):
            return Parted(overflows=number)
        if not all(torch.equal(a, b) for a, b in pairs):
            gaps = [float((a - b).abs().max()) for a, b in pairs if a.numel()]
            return Parted(differs=number, gap=inf if any(map(isnan, gaps)) else max(gaps))
    return Parted()


LEARNER = {"use": "fats", "rounds": 8, "cohort": 3, "steps": 2, "batch": 8, "step_size": 0.1}
SERVERS = {
    "mean": {},
    "momentum": {"server": [{"use": "mean"}, {"use": "momentum"}]},
    "median": {"server": [{"use": "coordinate-median"}]},
    "memories": {"server": [{"use": "mifa"}], "learner": LEARNER | {"use": "fedavg"}},
    "weights of all": {"server": [{"use": "size-weighted", "by": "total"}]},
    "constants of all": {"scaling": "standardise"},
    "control variates": {"solver": {"use": "scaffold"}, "learner": LEARNER | {"use": "fedavg"}},
    "noise": {"client": [{"use": "quantise", "bits": 4}]},
    "overflow": {"learner": LEARNER | {"step_size": 1e30}},
}


@dataclass(frozen=True)
class Both:
    before: object
    after: object


def tried(ready, kept, law=None, name="reference"):
    """How five plans end abreast, and each alone; and how often engines were asked."""
    before = partition(Iid(10), ready.dataset, Keyed(bytes(32)))
    step = Both(before, before.without(Request.of(clients=[4])))
    plans = [Plan.fresh(law or ready.learner.law, before, Keyed(bytes([number]) * 32)) for number in range(5)]
    sides = [Side(population, ready.client_problem(population)) for population in (step.before, step.after)]
    shared = SharedSteps(counting := Counting(engine(name)))
    found = parted(ready.procedure, *sides, plans, kept, shared)
    return found, [alone(ready, step, *one, name) for one in zip(plans, kept, strict=True)], len(counting.asked)


@pytest.mark.parametrize("name", SERVERS)
def test_plans_abreast_end_as_each_does_alone(name):
    ready = setup(resolve(config(**({"learner": LEARNER} | SERVERS[name]))))
    found, expected, _ = tried(ready, [8, 0, 3, 8, 5])
    assert found == expected


@pytest.mark.parametrize("server", ["mean", "weights of all", "constants of all", "control variates", "overflow"])
def test_plans_of_convolutions_abreast_end_as_each_does_alone(server):
    """Four participations a call, of whatever plans; one that parts or overflows moves none beside it."""
    draws = torch.Generator().manual_seed(2)
    images = [torch.rand(rows, 1, 12, 12, generator=draws) for rows in (120, 6)]
    pixels = Dataset(images[0], torch.arange(120) % 3, images[1], torch.arange(6) % 3, 3)
    small = {"model": {"use": "cnn", "channels": [3], "hidden": 4}}
    ready = setup(resolve(config(**({"learner": LEARNER} | small | SERVERS[server]))), pixels)
    assert ready.engine_of_many == stepping(ready).name == "grouped"
    found, expected, _ = tried(ready, [8, 0, 3, 8, 5], name="grouped")
    assert found == expected
    assert any(end.overflows if server == "overflow" else end.differs for end in found)


def test_plans_in_which_others_take_part_end_as_each_does_alone():
    """Rounds of one plan have more participants than those of another, or none."""
    ready = setup(resolve(config()))
    found, expected, _ = tried(
        ready,
        [8, 0, 3, 8, 5],
        AvailabilityLaw(8, StaticProbability(Fraction(3, 20)), FreshBatches(2, 8), first_all=False),
    )
    assert found == expected


def test_honest_rounds_take_their_steps_once_and_others_twice():
    once = tried(setup(resolve(config(learner=LEARNER))), [2] * 5)
    assert once[2] <= 2 + sum(end.differs > 0 for end in once[0])
    twice = tried(setup(resolve(config(learner=LEARNER, scaling="standardise"))), [1] * 5)
    assert twice[2] == 2
    assert all(end.differs == 1 for end in twice[0])


def test_a_model_of_another_package_is_asked_for_both_sides(monkeypatch):
    ready = setup(resolve(config()))
    assert isinstance(stepping(ready), SharedSteps)
    entry = replace(registry.find("models", "linear"), distribution="a-stranger")
    monkeypatch.setattr(registry, "find", lambda kind, name: entry)
    assert stepping(ready) is ready.engine
