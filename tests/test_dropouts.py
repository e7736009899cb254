"""FedProx, SCAFFOLD, MIFA and MimiC: contracts, limit cases bit for bit, and plain loops written from the papers.

Plain loops compute in fractions. Step sizes, updates and numbers of clients are powers of two or small whole numbers
there, so float64 is exact as well, and equality means equality.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, isclose
from pathlib import Path
from typing import ClassVar

import pytest
import tomli_w
import torch
from fuaudit_plugins.fedprox import Proximal
from fuaudit_plugins.mifa import LatestUpdates
from fuaudit_plugins.mimic import Corrections, step_size_conditions
from fuaudit_plugins.scaffold import ControlVariates
from tests_support import config

from fuaudit import registry, train
from fuaudit.config import resolve
from fuaudit.data.partition import partition
from fuaudit.draws import Keyed
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Plan
from fuaudit.plans.expanded import NONE, expand
from fuaudit.plans.participation import Participations
from fuaudit.plans.stacked import expand_many
from fuaudit.testing import check_aggregator, check_solver
from fuaudit.testing.tiny import CLIENTS, tiny_config, tiny_dataset
from fuaudit.training.dropouts import Dropouts
from fuaudit.training.exchange import exchange_of
from fuaudit.training.execute import RoundState, execute, initial_state, require_finite
from fuaudit.training.rounds import Cohort, RoundContext, StateShape
from fuaudit.training.server_step import ServerStep
from fuaudit.training.setup import depends_on, setup
from fuaudit.training.solvers import Outcome, Sgd, Steps
from fuaudit.training.stages import Mean
from fuaudit.workflow.resume import resume

KEY = Keyed(bytes(range(32)))
ALWAYS = {"scenario": "static", "probability": 1.0}
SOMETIMES = {"scenario": "static", "probability": 0.5, "first_all": False}
ROBIN = {"scenario": "round-robin", "tau_max": 3, "phase": "drawn"}


def learn(name, clients=CLIENTS, keys=(KEY,), dtype="float64", solver=None, server=None, client=None, **options):
    """Moments after every round, from the initial one on, of runs of a learner on the tiny federation."""
    learner = {"use": name, "rounds": 5, "steps": 2, "batch": 2, "step_size": 0.3, **options}
    tables = tiny_config(learner=learner, partition={"use": "iid", "clients": clients})
    tables["run"] |= {"dtype": dtype}
    tables |= {} if solver is None else {"solver": solver}
    tables |= {} if server is None else {"server": server}
    tables |= {} if client is None else {"client": client}
    ready = setup(resolve(tables), tiny_dataset())
    members = partition(registry.build("partitions", ready.config.partition), ready.dataset, KEY)
    plans = [Plan.fresh(ready.learner.law, members, key) for key in keys]
    round_states = [initial_state(ready.procedure, plans, members, ready.device)]
    schedule = expand_many(plans)
    problem = ready.client_problem(members)
    for _, round_state in execute(ready.procedure, problem, members, schedule, round_states[0], ready.engine):
        round_states.append(round_state)
    return round_states, schedule


def models(*arguments, **options):
    return torch.stack([round_state.vectors[0] for round_state in learn(*arguments, **options)[0]])


# contracts

SOLVERS = [
    Proximal(0.0), Proximal(0.7), ControlVariates(), Sgd(), Sgd(0.9),
]  # fmt: skip


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_solvers_keep_their_contract(solver):
    check_solver(solver)


@pytest.mark.parametrize("stage", [LatestUpdates, Corrections])
@pytest.mark.parametrize("memory", ["free", "scaled"])
def test_aggregators_keep_their_contract(stage, memory):
    check_aggregator(stage(memory))


def test_a_word_that_is_none_of_those_allowed():
    with pytest.raises(UsageError, match="memory = 'x' is not 'free' or 'scaled'"):
        registry.build("aggregators", {"use": "mimic", "memory": "x"})


@pytest.mark.parametrize("schedule", ["constant", "exponential", "participation"])
def test_server_steps_keep_their_contract(schedule):
    check_aggregator(ServerStep(0.5, schedule, 0.9), rows=(1,))


@dataclass(frozen=True)
class Broken(ControlVariates):
    """SCAFFOLD with one fault."""

    uploads: ClassVar[int] = 2


class NoRows(Broken):
    per_client_state: ClassVar[frozenset[str]] = frozenset({"controls", "momenta"})


class NoUploads(Broken):
    uploads: ClassVar[int] = 0


class NoDownloads(Broken):
    downloads: ClassVar[int] = 0


class NotARow(Broken):
    per_client_state: ClassVar[frozenset[str]] = frozenset({"control"})


class InPlace(Broken):
    def after(self, outcome, context, state):
        rows, new = super().after(outcome, context, state)
        return rows, {"control": state["control"].add_(1), "controls": new["controls"]}


class Scribbles(Broken):
    def after(self, outcome, context, state):
        outcome.updates.mul_(2)
        return super().after(outcome, context, state)


class MovesTheAbsent(Broken):
    def after(self, outcome, context, state):
        rows, new = super().after(outcome, context, state)
        return rows, {**new, "controls": new["controls"] + 1}


class BySlot(Broken):
    """Writes the rows of the first clients, whoever takes part."""

    def after(self, outcome, context, state):
        count = outcome.updates.shape[-2]
        table = state["controls"].clone()
        table[..., :count, :] = outcome.updates
        return outcome.updates, {**state, "controls": table}


class DividesByZero(Broken):
    def after(self, outcome, context, state):
        rows, new = super().after(outcome, context, state)
        return rows, {**new, "controls": new["controls"] / context.cohort.steps.min()}


class OneDrift(Broken):
    def before(self, context, state):
        return Steps(context.step_size, drift=state["control"].squeeze(0))


class Doubles(Broken):
    def after(self, outcome, context, state):
        rows, new = super().after(outcome, context, state)
        return rows.double(), new


class SumsOverRuns(Broken):
    def before(self, context, state):
        steps = super().before(context, state)
        return replace(steps, drift=steps.drift + state["control"].sum())


class CountsUnusedPlaces(Broken):
    def after(self, outcome, context, state):
        rows, new = super().after(outcome, context, state)
        return rows, {**new, "control": new["control"] + outcome.updates.sum(dim=-2, keepdim=True)}


class Grows(Broken):
    def after(self, outcome, context, state):
        rows, new = super().after(outcome, context, state)
        return rows, {**new, f"round {context.number}": rows}


class RollsDice(Broken):
    def before(self, context, state):
        torch.rand(1)
        return super().before(context, state)


BROKEN = {
    NoRows: "names what its state does not have: momenta",
    NoUploads: "uploads must be a whole number",
    NoDownloads: "downloads must be a whole number",
    NotARow: "'control' does not have one row for each client",
    InPlace: "changes the old state in place",
    Scribbles: "changes the outcome that it was given",
    MovesTheAbsent: "clients that do not take part",
    BySlot: "clients that do not take part",
    DividesByZero: "become infinite or NaN",
    OneDrift: "need one row a participation",
    Doubles: "it turns torch.float32 into",
    SumsOverRuns: "several runs in one tensor give other bits",
    CountsUnusedPlaces: "unused places",
    Grows: "names, shapes or dtypes of its state change",
    RollsDice: "a global generator",
}


@pytest.mark.parametrize("solver", BROKEN, ids=lambda solver: solver.__name__)
def test_broken_solvers_are_caught(solver):
    state = torch.get_rng_state()
    with pytest.raises(AssertionError, match=BROKEN[solver]):
        check_solver(solver())
    torch.set_rng_state(state)


# limit cases, bit for bit


@pytest.mark.parametrize("availability", [ALWAYS, SOMETIMES, ROBIN], ids=lambda a: a["scenario"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fedprox_with_mu_zero_is_fedavg(availability, dtype):
    averaged = models("dropouts", dtype=dtype, **availability)
    assert torch.equal(models("fedprox", dtype=dtype, solver={"use": "fedprox", "mu": 0.0}, **availability), averaged)
    assert not torch.equal(
        models("fedprox", dtype=dtype, solver={"use": "fedprox", "mu": 0.1}, **availability), averaged
    )


METHODS = ("scaffold", "mifa", "mimic", "mimic-at-clients")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", METHODS)
def test_the_first_round_of_all_is_that_of_fedavg(name, dtype):
    """Control variates and corrections are zero, and MIFA has heard of everybody."""
    options = {**SOMETIMES, "first_all": True, "dtype": dtype}
    own, averaged = models(name, **options), models("dropouts", **options)
    assert torch.equal(own[1], averaged[1])
    assert not torch.equal(own[2:], averaged[2:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["fedprox", "mifa", "mimic", "mimic-at-clients"])
def test_one_client_is_sgd(name, dtype):
    """With a decaying step size; SCAFFOLD's two control variates are equal only up to rounding, see below."""
    options = {**ALWAYS, "clients": 1, "decay": 0.9, "dtype": dtype}
    solver = {"use": "fedprox", "mu": 0.0} if name == "fedprox" else None
    assert torch.equal(models(name, solver=solver, **options), models("dropouts", **options))


def test_one_client_of_scaffold_is_sgd_up_to_rounding():
    options = {**ALWAYS, "clients": 1}
    assert torch.allclose(models("scaffold", **options), models("dropouts", **options), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["mifa", "mimic"])
def test_with_everybody_always_there_both_are_fedavg(name):
    """MIFA bit for bit: nothing remembered is used. MimiC up to rounding: its corrections add up to zero."""
    options = {**ALWAYS, "decay": 0.8}
    own, averaged = models(name, **options), models("dropouts", **options)
    assert torch.equal(own, averaged) if name == "mifa" else torch.allclose(own, averaged, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("availability", [ALWAYS, SOMETIMES, ROBIN], ids=lambda a: a["scenario"])
@pytest.mark.parametrize("memory", ["free", "scaled"])
def test_both_forms_of_mimic_give_the_same_bits(availability, memory):
    options = {**availability, "decay": 0.9, "rounds": 8}
    at_server = models("mimic", server=[{"use": "mimic", "memory": memory}], **options)
    at_clients = models("mimic-at-clients", client=[{"use": "mimic-client", "memory": memory}], **options)
    assert torch.equal(at_server, at_clients)


@pytest.mark.parametrize("name", ["mifa", "mimic"])
def test_a_memory_with_step_sizes_inside_is_another_algorithm_once_they_decay(name):
    def gap(decay):
        pair = [
            models(name, server=[{"use": name, "memory": memory}], decay=decay, **ROBIN)
            for memory in ("free", "scaled")
        ]
        return float((pair[0] - pair[1]).abs().max())

    assert gap(1.0) < 1e-13
    assert gap(0.5) > 1e-3


# plain loops in fractions

N, D = 4, 3
ROUNDS = [(0, 1, 2, 3), (1,), (0, 2), (1, 3), (3,), (0, 1, 2, 3), (2, 3), (0,)]


def whole(round_number, client):
    """An update of small whole numbers."""
    return [Fraction((7 * round_number + 5 * client * client + 3 * k) % 11 - 5) for k in range(D)]


def tensor(rows):
    return torch.tensor([[float(x) for x in row] for row in rows], dtype=torch.float64)


def context(number, clients, step_size, steps=2):
    ids = torch.tensor(clients)
    ones = torch.ones_like(ids)
    cohort = Cohort(ids, ids, 4 * ones, steps * ones, ids >= 0, members=N, total=4 * N)
    return RoundContext(number, cohort, torch.zeros(D, dtype=torch.float64), step_size)


def mean(rows):
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def plus(a, b, factor=1):
    return [x + factor * y for x, y in zip(a, b, strict=True)]


SHAPE = StateShape(D, N, torch.float64, torch.device("cpu"))


@pytest.mark.parametrize("memory", ["free", "scaled"])
def test_mimic_against_a_loop_from_the_paper(memory):
    """Algorithm 1 with local updates g = update / eta_L (free), or eta_L inside as in published code (scaled)."""
    stage, zero = Corrections(memory), [Fraction(0)] * D
    state, c = stage.init(SHAPE), {i: zero for i in range(N)}
    for t, active in enumerate(ROUNDS):
        eta = Fraction(1, 2**t)
        unit = eta if memory == "free" else Fraction(1)
        g = {i: [x / unit for x in whole(t, i)] for i in active}
        v = mean([plus(g[i], c[i]) for i in active])
        for i in active:
            c[i] = plus(v, g[i], -1)
        applied = [unit * x for x in v]
        row, state = stage.apply(tensor([whole(t, i) for i in active]), context(t + 1, active, float(eta)), state)
        assert torch.equal(row, tensor([applied]))
        assert torch.equal(state["corrections"], tensor(c.values()))
        if len(active) == N:
            assert not any(mean(c.values())), "with everybody there the corrections add up to zero"


def test_mimic_with_everybody_always_there_is_the_mean_exactly():
    stage = Corrections()
    state = stage.init(SHAPE)
    for t in range(6):
        everybody = tuple(range(N))
        updates = tensor([whole(t, i) for i in everybody])
        row, state = stage.apply(updates, context(t + 1, everybody, 0.5**t), state)
        assert torch.equal(row, updates.sum(dim=0, keepdim=True) / N)


@pytest.mark.parametrize("memory", ["free", "scaled"])
def test_mifa_against_a_loop_from_the_paper(memory):
    stage = LatestUpdates(memory)
    state, latest = stage.init(SHAPE), {i: [Fraction(0)] * D for i in range(N)}
    for t, active in enumerate(ROUNDS[1:]):  # some are not heard of at first
        eta = Fraction(1, 2**t)
        unit = eta if memory == "free" else Fraction(1)
        latest |= {i: [x / unit for x in whole(t, i)] for i in active}
        applied = [unit * x for x in mean(latest.values())]
        row, state = stage.apply(tensor([whole(t, i) for i in active]), context(t + 1, active, float(eta)), state)
        assert torch.equal(row, tensor([applied]))
        assert torch.equal(state["updates"], tensor(latest.values()))


def test_scaffold_against_a_loop_from_the_paper():
    """Algorithm 1, option II, with K steps of size eta; the local model x - y is given."""
    solver, steps = ControlVariates(), 4
    state, c = solver.init(SHAPE), [Fraction(0)] * D
    own = {i: [Fraction(0)] * D for i in range(N)}
    for t, active in enumerate(ROUNDS):
        eta = Fraction(1, 2**t)
        at = context(t + 1, active, float(eta), steps)
        assert torch.equal(solver.before(at, state).drift, tensor([plus(c, own[i], -1) for i in active]))
        new = {i: plus(plus(own[i], c, -1), whole(t, i), 1 / (steps * eta)) for i in active}
        moves = [plus(new[i], own[i], -1) for i in active]
        c = plus(c, [sum(column) for column in zip(*moves, strict=True)], Fraction(1, N))
        own |= new
        updates = tensor([whole(t, i) for i in active])
        sent, state = solver.after(Outcome(updates), at, state)
        assert torch.equal(sent, updates)
        assert torch.equal(state["control"], tensor([c]))
        assert torch.equal(state["controls"], tensor(own.values()))


def test_a_client_without_samples_keeps_its_control_variate():
    solver = ControlVariates()
    state = {name: value + 1 for name, value in solver.init(SHAPE).items()}
    idle = context(1, (0, 1), 0.5, steps=0)
    _, new = solver.after(Outcome(torch.zeros(2, D, dtype=torch.float64)), idle, state)
    assert all(torch.equal(new[name], state[name]) for name in state)


# the server's step, rounds with nobody in them


@pytest.mark.parametrize(
    ("stage", "factors"),
    [
        (ServerStep(0.5), [0.5, 0.5]),
        (ServerStep(2.0, "exponential", decay=0.5), [2.0, 0.25]),
        (ServerStep(0.5, "participation", beta=2.0), [0.5 * 2 / 2, 0.5 * 2 / 5]),
    ],
)
def test_the_servers_step(stage, factors):
    rows = tensor([whole(0, 0)])
    for number, factor in zip((1, 4), factors, strict=True):
        scaled, _ = stage.apply(rows, context(number, (1, 3), 0.1), {})
        assert torch.equal(scaled, rows * factor)


@pytest.mark.parametrize(
    "options", [{"size": 0.0}, {"decay": 0.0}, {"decay": 1.1}, {"beta": 0.0}, {"size": inf}, {"beta": inf}]
)
def test_a_servers_step_outside_its_range_is_refused(options):
    with pytest.raises(UsageError):
        ServerStep(**options)


RARE = {"scenario": "static", "probability": 0.2, "first_all": False, "rounds": 12}


@pytest.mark.parametrize("name", ["dropouts", "scaffold", "mifa", "mimic", "mimic-at-clients"])
def test_a_round_with_nobody_in_it_changes_nothing(name):
    round_states, schedule = learn(name, **RARE, server=None)
    empty = [r for r in range(12) if (schedule.cohorts[0, r] == NONE).all()]
    assert empty
    assert len(empty) < 12
    for r in range(12):
        before, after = round_states[r], round_states[r + 1]
        still = torch.equal(before.vectors, after.vectors) and all(
            torch.equal(before.state[name], after.state[name]) for name in before.state
        )
        assert still == (r in empty)


@pytest.mark.parametrize("name", ["dropouts", "scaffold", "mifa", "mimic"])
def test_runs_side_by_side_have_the_bits_of_each_alone(name):
    """Their rounds with nobody in them differ."""
    keys = [Keyed(bytes([number]) * 32) for number in (1, 2, 3)]
    together, schedule = learn(name, keys=keys, **RARE)
    idle = (schedule.cohorts == NONE).all(axis=2)
    assert (idle.any(axis=0) & ~idle.all(axis=0)).any()
    for run, key in enumerate(keys):
        alone, _ = learn(name, keys=[key], **RARE)
        for one, many in zip(alone, together, strict=True):
            assert torch.equal(one.vectors[0], many.vectors[run])
            assert all(torch.equal(one.state[part][0], many.state[part][run]) for part in one.state)


@pytest.mark.parametrize("name", ["dropouts", "fedprox", *METHODS])
def test_epochs_train_on_every_engine(name):
    """Threads with the bits of the loop, the batched engine within 1e-9 of it."""
    learner = {"use": name, "rounds": 4, "batch": 5, "step_size": 0.3, "epochs": 2, "largest_client": 12, **ROBIN}
    finals = {}
    for engine in ("reference", "threads", "batched"):
        tables = tiny_config(learner=learner, partition={"use": "iid", "clients": 3})
        tables["run"] |= {"dtype": "float64", "engine": engine}
        ready = setup(resolve(tables), tiny_dataset())
        members = partition(registry.build("partitions", ready.config.partition), ready.dataset, KEY)
        plan = Plan.fresh(ready.learner.law, members, KEY)
        start, schedule = initial_state(ready.procedure, [plan], plan.retained, ready.device), expand(plan)
        *_, (_, last) = execute(ready.procedure, ready.client_problem(members), members, schedule, start, ready.engine)
        finals[engine] = last.vectors
    assert torch.equal(finals["reference"], finals["threads"])
    assert torch.allclose(finals["reference"], finals["batched"], rtol=1e-9, atol=1e-10)


# the conditions of Theorem 2 of the MimiC paper


def brute(eta, counts, n, gap, k, local, smoothness):
    """Conditions (19) and (25) written out; nu as in the tool."""
    rho = [eta[t] * counts[t + 1] / (eta[t + 1] * counts[t]) for t in range(len(eta) - 1)]
    nu = (min(rho) - 1) / 2
    a = 2 * local**2 * smoothness**2
    phi = (((2 + a) ** k - 1) / (k * (a + 1)) + 1) * smoothness**2
    return all(
        (1 / eta[t]) * (1 / (2 * eta[t]) - smoothness / 2) >= (rho[t] - nu) * phi * gap * n / (2 * nu * counts[t])
        for t in range(len(rho))
    )


@pytest.mark.parametrize("k", [1, 3])
def test_the_schedule_of_lemma_six_meets_the_conditions(k):
    """eta_t = c |S_t| / (t + beta): rho_t = (t + beta + 1) / (t + beta), equation (48)."""
    counts, beta, c = [4, 1, 2, 3, 1, 4], 2.0, 0.01
    eta = [c * count / (t + beta) for t, count in enumerate(counts)]
    found = step_size_conditions(eta, counts, N, 3, k, 0.1)
    assert found["condition_19"]
    assert isclose(found["smallest_rho"], (4 + beta + 1) / (4 + beta), abs_tol=1e-9)
    largest = found["log10_of_largest_smoothness"]
    assert brute(eta, counts, N, 3, k, 0.1, 10 ** (largest - 0.01))
    assert not brute(eta, counts, N, 3, k, 0.1, 10 ** (largest + 0.01))


def test_other_schedules_do_not():
    assert not step_size_conditions([0.1] * 4, [2] * 4, N, 3, 2, 0.1)["condition_19"]
    assert step_size_conditions([0.1 * 0.9**t for t in range(4)], [2] * 4, N, 3, 2, 0.1)["condition_19"]
    falling = step_size_conditions([0.1 * 0.9**t for t in range(4)], [4, 1, 4, 1], N, 3, 2, 0.1)
    assert not falling["condition_19"], "fewer participants in the next round"
    assert falling["log10_of_largest_smoothness"] is None
    assert not step_size_conditions([0.1], [4], N, 3, 2, 0.1)["condition_19"]
    idle = step_size_conditions([0.4, 0.3, 0.2], [2, 0, 2], N, 3, 2, 0.1)
    assert idle["smallest_rho"] == 2.0, "rounds with nobody in them are passed over"


def test_many_local_steps_leave_no_room_for_a_smoothness():
    """The paper's Table II: 5 epochs of 125 steps. phi_K grows like 2**K, so (25) fails for every realistic L."""
    counts = [8] * 200
    eta = [625 * 0.01 * 0.95**t for t in range(200)]
    found = step_size_conditions(eta, counts, 30, 20, 625, 0.01)
    assert found["condition_19"]
    assert found["log10_of_largest_smoothness"] < -90


def test_more_local_steps_than_numbers_can_raise_two_to():
    """The largest L is below every positive float at K = 2500; it is told by its logarithm, which halving K doubles."""
    counts = [8] * 40
    found = [step_size_conditions([0.5 * 0.95**t for t in range(40)], counts, 30, 20, k, 0.01) for k in (1250, 2500)]
    half, full = (table["log10_of_largest_smoothness"] for table in found)
    assert -400 < full < -370
    assert isclose(full, 2 * half, rel_tol=0.02)


@pytest.mark.parametrize("steps", [[0.1, 0.0], [inf, 0.1], [1e300, 1e-300], [5e-324, 1e300]])
def test_steps_that_are_no_positive_finite_numbers_have_no_conditions(steps):
    assert step_size_conditions(steps, [2, 2], N, 3, 2, 0.1) is None


def conclusions(name="mimic", rounds=3, solver=None, server=None, client=None, taken=(2, 2, 2), **options):
    """What a learner concludes from rounds in which everybody takes so many steps, with the chain of a config."""
    learner = {"use": name, "rounds": rounds, "steps": 2, "batch": 2, "step_size": 0.3, **ALWAYS, **options}
    tables = tiny_config(learner=learner)
    tables |= {"solver": solver} if solver else {}
    tables |= {"server": server} if server else {}
    tables |= {"client": client} if client else {}
    config = resolve(tables)
    learner = registry.build("learners", config.learner)
    seen = Participations(((0, 1, 2),) * rounds, (taken,) * rounds)
    return learner.conclusions(seen, (0, 1, 2), registry.build("solvers", config.solver), exchange_of(config))


FREE = {"use": "mimic"}


@pytest.mark.parametrize(
    ("chain", "there"),
    [
        ({}, True),
        ({"name": "mimic-at-clients"}, True),
        ({"server": [FREE, {"use": "server-step", "size": 0.5}]}, True),
        ({"client": [{"use": "mimic-client"}], "server": [{"use": "mean"}]}, True),
        ({"client": [{"use": "mimic-client"}], "server": [{"use": "size-weighted"}]}, False),
        ({"server": [{"use": "mean"}]}, False),
        ({"server": [{"use": "mifa"}]}, False),
        ({"server": [{"use": "mimic", "memory": "scaled"}]}, False),
        ({"name": "mimic-at-clients", "client": [{"use": "mimic-client", "memory": "scaled"}]}, False),
        ({"solver": {"use": "sgd", "momentum": 0.9}}, False),
        ({"server": [FREE, {"use": "momentum"}]}, False),
        ({"server": [FREE, {"use": "server-step", "schedule": "exponential", "decay": 1e-200}]}, False),
    ],
)
def test_conditions_are_those_of_the_chain_that_ran(chain, there):
    """The last one's steps of the server are 0 as numbers; nothing is raised, for training is over by then."""
    table = conclusions(**chain)
    assert (table["conditions"] is not None) == there
    assert bool(table.get("no_conditions")) == (not there)


def test_conditions_count_the_steps_that_were_taken_not_those_there_was_room_for():
    """The same rounds under laws with more room; and who takes another number of steps is no case of the theorem."""
    work = {"steps": None, "epochs": 1, "decay": 0.9}
    tables = [conclusions(**work, largest_client=most)["conditions"] for most in (4, 8, 2000)]
    assert tables[0]["condition_19"]
    assert tables[0] == tables[1] == tables[2]
    assert conclusions(**work, largest_client=8, taken=(4, 4, 4))["conditions"] != tables[0]
    for taken, words in (((2, 1, 2), "1 to 2"), ((2, 2, 0), "0 to 2"), ((0, 0, 0), "0 to 0")):
        table = conclusions(**work, largest_client=8, taken=taken)
        assert table["conditions"] is None
        assert words in table["no_conditions"]


def test_of_one_round_nothing_is_asked():
    one = step_size_conditions([0.1], [3], N, 1, 2, 0.1)
    assert one == {"condition_19": None, "smallest_rho": None, "log10_of_largest_smoothness": None}


# what is known before training is refused before it


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server": [{"use": "server-step"}]}, "no aggregator"),
        ({"server": [{"use": "momentum"}, {"use": "mean"}]}, "'momentum' takes one row, but before 'mean'"),
        ({"use": "fats", "cohort": 2, "server": [{"use": "momentum"}, {"use": "mean"}]}, 'use = "mean" first'),
        ({"step_size": 1e-30, "decay": 0.001}, "below 1.18e-38, the smallest float32"),
        ({"step_size": 1e39}, "above the largest float32"),
        ({"steps": None, "epochs": 1, "largest_client": 1}, "client 2 has 8 samples"),
        ({"use": "fats", "cohort": 2, "server": [{"use": "mifa"}]}, "twice in one round"),
        (
            {"use": "fats", "cohort": 2, "solver": {"use": "scaffold"}},
            "the solver's memory 'controls' has one row for each client",
        ),
    ],
)
def test_what_cannot_be_trained_leaves_no_folder_behind(changes, words, tmp_path):
    chain = {name: changes[name] for name in ("solver", "server") if name in changes}
    options = {name: value for name, value in changes.items() if name not in chain}
    learner = {"use": "dropouts", "rounds": 4, "steps": 2, "batch": 2, "step_size": 0.3}
    learner |= {} if "use" in options else ALWAYS
    learner = {name: value for name, value in (learner | options).items() if value is not None}
    tables = tiny_config(learner=learner, partition={"use": "iid", "clients": 3}) | chain
    with pytest.raises(UsageError, match=words):
        train(tables, tmp_path / "run", secret=bytes(32), data=tiny_dataset())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", [{"tau_max": 3}, {"probability": 0}, {"scenario": "sometimes"}, {"steps": 1.5}])
def test_a_wrong_learner_is_the_only_thing_that_is_wrong(options):
    """Its own server is not known then, so nothing is said of it."""
    learner = {"use": "mimic", "rounds": 2, "steps": 1, "batch": 2, "step_size": 0.3, **ALWAYS, **options}
    with pytest.raises(UsageError) as error:
        resolve(tiny_config(learner=learner))
    assert "aggregator" not in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


@dataclass(frozen=True)
class Telling(Mean):
    depends_on: object = frozenset()


@pytest.mark.parametrize("said", ["samples", frozenset({"sample"}), ["clients"], None, 3])
def test_what_a_stage_says_it_tells_of_is_checked(said, monkeypatch):
    """A slip of the pen would switch a refusal off."""
    config = resolve(tiny_config())
    monkeypatch.setattr("fuaudit.training.exchange.build_stage", lambda table, place="server": Telling(said))
    with pytest.raises(PluginError, match="Telling declares depends_on as"):
        depends_on(config)


def fails(*_):
    raise KeyError("no such thing")


@pytest.mark.parametrize(
    "concluded",
    [fails, lambda *_: {"a": float("nan")}, lambda *_: {"a": {1}}, lambda *_: [], lambda *_: {"uploads": [1]}],
)
def test_conclusions_that_cannot_be_recorded_are_the_plugins_fault(concluded, monkeypatch, tmp_path):
    monkeypatch.setattr(Dropouts, "conclusions", concluded, raising=False)
    learner = {"use": "dropouts", "rounds": 2, "steps": 1, "batch": 2, "step_size": 0.3, **ALWAYS}
    with pytest.raises(PluginError, match="the conclusions of Dropouts"):
        train(tiny_config(learner=learner), tmp_path / "run", secret=bytes(32), data=tiny_dataset())
    monkeypatch.undo()
    assert resume(tmp_path / "run", data=tiny_dataset()).participation["uploads"] == [4, 8]


def test_a_memory_that_is_no_longer_finite_is_named():
    state = {"server.0.corrections": torch.tensor([[[0.0, inf]]])}
    with pytest.raises(UsageError, match=r"the memory server\.0\.corrections is no longer finite after round 3"):
        require_finite(RoundState(torch.zeros(1, 2), state), 3)


def test_nobody_in_any_round_is_told(tmp_path, fuaudit):
    learner = {"use": "mimic", "scenario": "static", "probability": 0.001, "first_all": False, "rounds": 2}
    tables = tiny_config(learner=learner | {"steps": 1, "batch": 2, "step_size": 0.3})
    run = train(tables, tmp_path / "run", secret=bytes(32), data=tiny_dataset())
    assert torch.equal(run.checkpoint(2)[0], run.checkpoint(0)[0])
    code, out, _ = fuaudit("show", run.path)
    assert code == 0
    assert "none in any round: the model is the initial one" in out
    words = "condition 19 none, log10 of largest smoothness none, smallest rho none"
    assert f"concluded     by mimic, in the terms of its paper: conditions: {words}\n" in out, "in words, not as JSON"


def test_what_a_learner_concludes_is_shown_where_it_is_looked_for(tmp_path, fuaudit):
    """In the terms of its paper, it is nothing for whoever trains or has something forgotten."""
    learner = {"use": "mimic", "scenario": "static", "probability": 0.5, "rounds": 2, "steps": 1, "batch": 2}
    (tmp_path / "mimic.toml").write_text(tomli_w.dumps(config(learner=learner | {"step_size": 0.1})))
    code, out, err = fuaudit("train", tmp_path / "mimic.toml", "--out", tmp_path / "run")
    assert code == 0, err
    assert "condition 19" not in out
    shown = fuaudit("show", tmp_path / "run")[1]
    assert "concluded     by mimic, in the terms of its paper: conditions: condition 19" in shown


def test_a_client_without_samples_counts_as_a_participant_that_stands_still():
    """It uploads zeros, and is counted by every mean. MimiC then keeps v for it, and repeats v when it is alone."""
    updates, idle = tensor([whole(0, 0), [0] * D]), context(1, (0, 1), 1.0)
    average, _ = Mean().apply(updates, idle, {})
    assert torch.equal(average, updates[:1] / 2)
    latest, _ = LatestUpdates().apply(updates, idle, LatestUpdates().init(SHAPE))
    assert torch.equal(latest, updates[:1] / N)
    row, state = Corrections().apply(updates, idle, Corrections().init(SHAPE))
    assert torch.equal(state["corrections"][1], row[0])
    again, _ = Corrections().apply(updates[1:], context(2, (1,), 1.0), state)
    assert torch.equal(again, row)


EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("dropouts-*.toml")), ids=lambda path: path.stem)
def test_examples_train(path, tmp_path):
    run = train(path, tmp_path / "run", secret=bytes(32))
    first, last = run.metrics[0], run.metrics[-1]
    assert last["test_accuracy"] > first["test_accuracy"] + 0.5
    assert (run.path / "participation.json").exists()
