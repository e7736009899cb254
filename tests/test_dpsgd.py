"""DP-SGD at the clients: the noise that is told is in what comes out, and is charged by the law of batches."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from fuaudit_plugins.dpsgd import DpSgd
from test_replay import case_of
from tests_support import AUDIT_KEY, claimed, config, drawn_client, of_the_run, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.model_law.measure import Statistics
from fuaudit.audits.replay.audit import Replay
from fuaudit.draws import Keyed
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Request
from fuaudit.plans.stacked import LazySchedule
from fuaudit.replicas import pairs as pairs_module
from fuaudit.replicas.pairs import Pairs
from fuaudit.runs.account import account_of
from fuaudit.testing.solvers import check_solver
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.engines import engine as engine_of
from fuaudit.training.events import Released
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import setup
from fuaudit.training.solvers import Steps
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workers import InProcess
from fuaudit.workflow import begin
from fuaudit.workflow import unlearn as unlearning
from fuaudit.workflow.prune import prune

NORM, NOISE = 0.5, 4.0
SOLVER = {"use": "dpsgd", "norm": NORM, "noise": NOISE}
LEARNER = {
    "use": "dropouts", "scenario": "static", "probability": 0.5, "first_all": False,
    "rounds": 4, "steps": 2, "rate": 0.25, "batch": 2, "largest_batch": 3, "step_size": 0.1,
}  # fmt: skip
UNCUT = LEARNER | {"largest_batch": 12}
RUN = {"checkpoint_every": 2, "engine": "reference", "device": "cpu", "requests": 3}
DELTA = 1e-5


def tables(learner=LEARNER, **more):
    return tiny_config(learner=learner, solver=SOLVER, server=[{"use": "mean"}], run=RUN) | more


def budget(epsilon, towards=None, delta=DELTA):
    return {"epsilon": epsilon, "delta": delta} | ({"towards": towards} if towards else {})


def trained(folder, learner=LEARNER, **more):
    return train(tables(learner, **more), folder, tiny_dataset(), secret(1))


# the contract


def test_contract():
    check_solver(DpSgd(NORM, NOISE))


@dataclass(frozen=True)
class Quieter(DpSgd):
    """Adds a little less noise than it tells."""

    def before(self, context, state):
        steps = super().before(context, state)
        return replace(steps, noise=0.8 * steps.noise)


@dataclass(frozen=True)
class OnceARound(DpSgd):
    """The same noise in all steps of a round."""

    def before(self, context, state):
        steps = super().before(context, state)
        return replace(steps, noise=steps.noise[:, :1].expand_as(steps.noise).clone())


@dataclass(frozen=True)
class OnceForAll(DpSgd):
    """The same noise in every round."""

    def before(self, context, state):
        return super().before(replace(context, own=lambda place: context.own(place)), state) and self._of_one(context)

    def _of_one(self, context):
        from fuaudit.draws import Address, Labelled, Purpose

        clients = context.cohort.clients.tolist()
        fixed = replace(context, own=lambda place: Labelled(bytes(32), Address(Purpose.SOLVER, client=clients[place])))
        return super().before(fixed, {})


@dataclass(frozen=True)
class Shared(DpSgd):
    """Noise that all draw together."""

    def before(self, context, state):
        return super().before(replace(context, own=lambda place: context.shared), state)


@dataclass(frozen=True)
class Wider(DpSgd):
    """Clips to twice the norm that it tells."""

    def before(self, context, state):
        return replace(super().before(context, state), clip=2 * self.norm)


@dataclass(frozen=True)
class Silent(DpSgd):
    """Draws, and gives no noise."""

    def before(self, context, state):
        return Steps(context.step_size, clip=self.norm)


@dataclass(frozen=True)
class Undeclared(DpSgd):
    """Says what it releases under, and that it draws nothing."""

    draws: ClassVar[bool] = False

    def before(self, context, state):
        return Steps(context.step_size, clip=self.norm)


@dataclass(frozen=True)
class Nameless(DpSgd):
    """Says nothing of what it releases under."""

    releases = None


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Quieter, "not the one that is told"),
        (OnceARound, "related"),
        (OnceForAll, "no draw of the client changes"),
        (Shared, "depends on draws of others"),
        (Wider, "another norm"),
        (Silent, "gave noise"),
        (Undeclared, "declares no draws"),
        (Nameless, "must answer with Released"),
    ],
)
def test_a_solver_whose_noise_is_another_is_refused(kind, words):
    with pytest.raises(AssertionError, match=words):
        check_solver(kind(NORM, NOISE))


@pytest.mark.parametrize(("norm", "noise"), [(0.0, 1.0), (1.0, 0.0), (float("inf"), 1.0), (1.0, float("nan"))])
def test_numbers_that_cannot_be_are_refused(norm, noise):
    with pytest.raises(UsageError, match="finite norm"):
        DpSgd(norm, noise)


# runs


def released(run, solver=None):
    """What comes out of round 1 of a run, as its plan and its secrets give it; also with another solver."""
    ready, plan = setup(run.config, tiny_dataset()), run.plan
    procedure = replace(ready.procedure, solver=solver or ready.procedure.solver)
    start = initial_state(procedure, [plan], plan.retained, ready.device)
    rounds = execute(
        procedure, ready.client_problem(plan.retained), plan.retained, LazySchedule([plan]), start, ready.engine,
        draws=run.stage_draws(plan),
    )  # fmt: skip
    return (start.vectors - next(rounds)[1].vectors)[0]


ALMOST_NONE = DpSgd(NORM, 1e-13)
EVERYBODY = LEARNER | {"probability": 1.0, "first_all": True, "steps": 1}
WIDE = {"model": {"use": "mlp", "hidden": [120]}, "run": RUN | {"dtype": "float64"}}


def test_every_round_tells_of_the_noise_and_what_comes_out_has_it(tmp_path):
    """Of one step from one model the noise is the whole difference: that of a mean of as many clients."""
    run = trained(tmp_path / "run", EVERYBODY, **WIDE)
    for line in run.ledger.of_kind("round"):
        (one,) = line["told"]
        assert one == {
            "kind": "released", "mechanism": "dpsgd", "parameters": {"noise": NOISE, "norm": NORM}, "part": "solver",
        }  # fmt: skip
    assert run.config.tables()["solver"] == SOLVER
    noise, clients = released(run) - released(run, ALMOST_NONE), len(run.plan.cohort(1))
    variance = (0.1 / 2 * NORM * NOISE) ** 2 / clients
    assert abs(float(noise.square().mean()) / variance - 1) < 5 * (2 / len(noise)) ** 0.5
    assert len(noise) > 500


def test_clients_who_drew_nothing_send_noise_too(tmp_path):
    """An empty batch is nobody's to know: who is in it would be told by a row of zeros."""
    run = trained(tmp_path / "run", LEARNER | {"rate": 0.001, "probability": 1.0})
    plan = run.plan
    assert not plan.batch(1, 1, 0, 0)
    assert bool(released(run).abs().min() > 0)
    quiet = released(run, ALMOST_NONE)
    assert quiet.abs().max() < 0.1 * NORM


@pytest.mark.parametrize("engine", ["threads", "batched"])
def test_engines_make_one_model(engine, tmp_path):
    """Executed again by another one: a config with another engine is another commitment, and has noise of its own."""
    run = trained(tmp_path / "run", run=RUN | {"dtype": "float64"})
    ready, plan = setup(run.config, tiny_dataset()), run.plan
    start = initial_state(ready.procedure, [plan], plan.retained, ready.device)
    rounds = execute(
        ready.procedure, ready.client_problem(plan.retained), plan.retained, LazySchedule([plan]), start,
        engine_of(engine, 2), draws=run.stage_draws(plan),
    )  # fmt: skip
    assert torch.allclose([state.vectors[0] for _, state in rounds][-1], run.model, rtol=0, atol=1e-9)


def test_many_runs_at_once_are_as_each_by_itself(tmp_path):
    run, other = trained(tmp_path / "run"), trained(tmp_path / "other", LEARNER | {"probability": 0.4})
    ready = setup(run.config, tiny_dataset())
    plans, draws = [run.plan, other.plan], [*run.stage_draws(run.plan), *other.stage_draws(other.plan)]
    problem, population = ready.client_problem(run.plan.retained), run.plan.retained

    def last(chosen):
        start = initial_state(ready.procedure, [plans[n] for n in chosen], population, ready.device)
        schedule = LazySchedule([plans[n] for n in chosen])
        rounds = execute(ready.procedure, problem, population, schedule, start, ready.engine, 1,
                         [draws[n] for n in chosen])  # fmt: skip
        return [state.vectors for _, state in rounds][-1]

    together = last([0, 1])
    assert torch.equal(together[0], last([0])[0])
    assert torch.equal(together[1], last([1])[0])
    assert not torch.equal(together[0], together[1])


def findings(run, *more, **options):
    result = verify(run, of_the_run(*more), key=AUDIT_KEY, data=tiny_dataset(), save=False, **options)
    return {finding.audit: finding for finding in result.findings}


@pytest.mark.parametrize("towards", [None, "public"])
def test_a_run_is_verified_before_and_after_a_prune(towards, tmp_path):
    run = trained(tmp_path / "run", UNCUT, budget=budget(9.0, towards))
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child", data=tiny_dataset())
    assert not child.info["doubts"]
    found = findings(child, "stress")
    assert {str(one.verdict) for one in found.values()} == {"PASS"}, [one.details for one in found.values()]
    rests = " ".join(found["provenance"].assumptions)
    assert "last bits of the noise tell nothing" in rests
    assert ("neither the plan nor the key" in rests) == (towards == "public")
    (before,) = account_of(child, DELTA).towards["server"].accounts
    pruned, _ = prune(child)
    found = findings(pruned)
    assert {str(one.verdict) for one in found.values()} == {"PASS"}, [one.details for one in found.values()]
    (after,) = account_of(pruned, DELTA).towards["server"].accounts
    assert (after.epsilon, after.rounds) == (before.epsilon, before.rounds)
    assert "there is the ledger alone" in after.statement.rounds_covered


def test_noise_hides_no_row_that_was_kept(tmp_path):
    """A plan that still draws the erased client has no model of retained rows, whatever noise lies over it."""
    run = trained(tmp_path / "run", UNCUT)
    request = Request.of([drawn_client(run)])
    child = unlearn(run, "noop", request, tmp_path / "noop", data=tiny_dataset(), allow_inexact=True)
    assert findings(child)["replay"].verdict == "FAIL"


@pytest.mark.parametrize("changes", [{"noise": 2 * NOISE}, {"norm": 2 * NORM}, None])
def test_a_ledger_that_tells_of_other_noise_or_of_none_is_refuted(changes, tmp_path):
    run = trained(tmp_path / "run", budget=budget(9.0))

    def retold(event):
        if "told" not in event:  # nobody took part
            return event
        if changes is None:
            return {name: value for name, value in event.items() if name != "told"}
        (one,) = event["told"]
        return event | {"told": [one | {"parameters": one["parameters"] | changes}]}

    def course(events):
        return map(retold, events)

    found = findings(told(run.path, course))
    assert found["replay"].verdict == "FAIL"
    assert (found["provenance"].verdict == "FAIL") == bool(changes)


@pytest.mark.thorough
@pytest.mark.parametrize(("noise", "verdict"), [(1.0, "PASS"), (20.0, "INCONCLUSIVE")])
def test_on_another_platform_noise_may_hide_what_a_row_did(noise, verdict, tmp_path, monkeypatch):
    """Rounding is told from a row that was left in, unless noise made its numbers small beside others."""
    learner = LEARNER | {"rounds": 8, "rate": 0.02, "batch": 3, "largest_batch": 30, "probability": 0.3}
    solver = {"use": "dpsgd", "norm": 1.0, "noise": noise}
    monkeypatch.setattr("fuaudit.training.setup.engine", lambda name, *workers: engine_of("batched", *workers))
    run = train(config(learner=learner, solver=solver), tmp_path / "run", secret=secret(4))
    child = claimed(unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child").path, torch="another")
    monkeypatch.undo()
    found = Replay().examine(case_of(child))
    assert found.verdict == verdict, (found.shows, found.details)
    assert "bit for bit" not in found.shows.replace("not bit for bit", "")


def test_replicas_have_noise_of_their_own_and_fewer_stand_side_by_side(tmp_path, monkeypatch):
    """Cut otherwise, in another order: the same bits. Noise of a round is made for all pairs of a part at once."""
    run = trained(tmp_path / "run", LEARNER | {"probability": 1.0})
    child = unlearn(run, "fats", Request.of([1]), tmp_path / "child", data=tiny_dataset())
    pairs = Pairs.of(Case(Evidence(child, None, tiny_dataset()), Keyed(AUDIT_KEY)), Statistics(10))
    (whole,) = InProcess().map(pairs, [(0, 4)])
    pieces = list(InProcess().map(pairs, [(3, 1), (0, 3)]))
    for arm, values in whole.items():
        assert np.array_equal(np.concatenate([pieces[1][arm], pieces[0][arm]]), values), arm
        assert len(np.unique(values, axis=0)) == 4
    numbers = child.model.numel() * (4 + 1 + 4 * 2)  # models of all rounds, and noise of one
    monkeypatch.setattr(pairs_module, "_NUMBERS_AT_HAND", 3 * numbers)
    assert pairs.shards(8) == [(0, 3), (3, 3), (6, 2)]


# no noise twice


def late_sample(run, after=1):
    """A sample that is included, and not before a round."""
    return max(one for one, at in run.plan.index.samples.items() if at.round > after)


def test_where_rounds_depend_on_all_rows_keeping_them_is_refused(tmp_path, monkeypatch):
    run = trained(tmp_path / "run", EVERYBODY, **WIDE, scaling="standardise")
    one = Request.of(samples=[late_sample(run)])
    with pytest.raises(UsageError, match="with the noise that they had: scaling 'standardise' depends on"):
        unlearn(run, "fats", one, tmp_path / "child", data=tiny_dataset(), allow_inexact=True)
    with monkeypatch.context() as patch:  # a forger refuses himself nothing
        patch.setattr(unlearning, "depended_on", lambda config, request: "")
        child = unlearn(run, "fats", one, tmp_path / "child", data=tiny_dataset(), allow_inexact=True)
    noisy, quiet = released(child) - released(run), released(child, ALMOST_NONE) - released(run, ALMOST_NONE)
    assert quiet.abs().max() > 1e-6
    assert torch.allclose(noisy, quiet, rtol=0, atol=1e-12)


def test_kept_rounds_tell_nothing_more_and_others_have_noise_of_their_own(tmp_path):
    run = trained(tmp_path / "run", EVERYBODY | {"steps": 2}, **WIDE)
    kept = unlearn(run, "fats", Request.of(samples=[late_sample(run)]), tmp_path / "kept", data=tiny_dataset())
    assert kept.info["first_change"][0] > 1
    assert torch.equal(released(kept), released(run))
    inside = next(one for one, at in sorted(run.plan.index.samples.items()) if at == (1, 2))
    asked = {"inside": ("fats", Request.of(samples=[inside])), "anew": ("retrain", Request.of([1]))}
    runs = [run, *(unlearn(run, name, one, tmp_path / to, data=tiny_dataset()) for to, (name, one) in asked.items())]
    assert runs[1].info["first_change"] == [1, 2]
    longer = trained(tmp_path / "longer", EVERYBODY | {"steps": 2, "rounds": 5}, **WIDE)
    assert run.secrets.generations == longer.secrets.generations
    noise = [released(one) - released(one, ALMOST_NONE) for one in (*runs, longer)]
    for number, mine in enumerate(noise):
        # of two steps; the second starts where the first one's noise led, which moves gradients by little
        variance = 2 * (0.1 / 2 * NORM * NOISE) ** 2 / (3 if number == 2 else 4)
        assert abs(float(mine.square().mean()) / variance - 1) < 0.25
        for other in noise[:number]:
            related = torch.corrcoef(torch.stack([mine, other]))[0, 1]
            assert abs(float(related)) < 6 / len(mine) ** 0.5


def test_a_solver_that_draws_and_gives_no_noise_is_named(tmp_path):
    run = trained(tmp_path / "run")
    with pytest.raises(PluginError, match="gave noise: none"):
        released(run, Silent(NORM, NOISE))


def test_config_and_secrets(tmp_path):
    run = trained(tmp_path / "run")
    assert load_run(run.path).exchange.draws
    assert begin.begun(tables(), tiny_dataset(), secret(1)).secrets is not None
    assert DpSgd(NORM, NOISE).releases(7) == Released("dpsgd", {"noise": NOISE, "norm": NORM})
