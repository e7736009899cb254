"""The account of DP-SGD at the clients: by the law of batches, towards each reader, capped, and held against audits."""

import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from fuaudit_plugins.dpsgd import DpSgd
from test_budget_family import went_on
from test_dpsgd import DELTA, NOISE, UNCUT, budget, tables, trained
from tests_support import AUDIT_KEY, secret

from fuaudit import load_run, unlearn
from fuaudit.audits.provenance.audit import Provenance
from fuaudit.budgets.dpsgd.account import account
from fuaudit.budgets.dpsgd.clients import Batches, NoisySteps, account_for, any_of
from fuaudit.budgets.dpsgd.laws import FIXED, POISSON
from fuaudit.budgets.dpsgd.steps import Steps as Charged
from fuaudit.budgets.target import Target
from fuaudit.config import read_config, resolve
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.models.layout import Layout
from fuaudit.plans import AvailabilityLaw, Population, Request, UniformLaw, WeightedLaw
from fuaudit.plans.availability import FreshBatches, PermutedEpochs, PoissonBatches, StaticProbability
from fuaudit.plans.batch_laws import batches_of
from fuaudit.plans.stage_draws import OF_SOLVER
from fuaudit.runs.account import account_of
from fuaudit.testing import audit_account
from fuaudit.testing.contexts import wide_context
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.training.capped import capped
from fuaudit.training.engines.batched import Batched
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.exchange import exchange_of
from fuaudit.training.releases import NO_WORD
from fuaudit.training.solvers import Steps
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow.begin import begun

# the account


POPULATION = Population({0: (0, 1, 2, 3), 1: (4, 5)})
POISSONS = PoissonBatches(2, Fraction(1, 4), 2, 2)


def of_batches(batches):
    return AvailabilityLaw(3, StaticProbability(Fraction(1, 2)), batches)


class Strange(UniformLaw):
    """A law of somebody else."""

    name = "strange"


STRANGE = Strange(3, 2, 5, 2, True)


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (of_batches(FreshBatches(3, 2)), Batches(FIXED, 3)),
        (of_batches(PermutedEpochs(3, 2, 4)), Batches(FIXED, 3)),
        (UniformLaw(3, 2, 5, 2, True), Batches(FIXED, 5)),
        (WeightedLaw(3, 2, 4, 2, ((0, 1), (1, 2))), Batches(FIXED, 4)),
        (of_batches(PoissonBatches(2, Fraction(1, 4), 5, 2)), Batches(POISSON, 2, 0.25)),
        (STRANGE, None),
    ],
)
def test_the_table_from_law_to_account(law, expected):
    assert batches_of(law, POPULATION) == expected


def test_of_poisson_batches_the_chance_of_a_cut_is_that_of_the_largest_client_and_one_row_more():
    found = batches_of(of_batches(POISSONS), POPULATION)
    assert found == Batches(POISSON, 2, 0.25, found.cut)
    exact = POISSONS.chance_of_cut(5)
    assert 0 <= Fraction(found.cut) - exact < Fraction(1, 10**15)
    third = batches_of(of_batches(replace(POISSONS, rate=Fraction(1, 3))), POPULATION)
    assert 0 <= Fraction(third.rate) - Fraction(1, 3) < Fraction(1, 10**15)


@pytest.mark.thorough
def test_the_account_is_that_of_the_command(tmp_path, fuaudit):
    run = trained(tmp_path / "run", UNCUT)
    found = account_of(run, delta=DELTA)
    assert found.terms.batches == Batches(POISSON, 2, 0.25)
    asked = ["budget", "dpsgd", "--noise", NOISE, "--steps", 8, "--delta", DELTA, "--json"]
    sampled = json.loads(fuaudit(*asked, "--rate", 0.25, "--sampling", "poisson")[1])
    known = json.loads(fuaudit(*asked, "--sampling", "fixed")[1])
    (public,), (server,) = found.towards["public"].accounts, found.towards["server"].accounts
    assert (public.epsilon, server.epsilon) == (sampled["epsilon_total"], known["epsilon_total"])
    assert public.epsilon < 0.8 * server.epsilon
    assert "clients are not sampled" in public.statement.sampling_assumption
    assert "every row is in a batch by itself" in public.statement.sampling_assumption
    assert "nothing is amplified" in server.statement.sampling_assumption
    assert "without their key is assumed" in public.statement.sampling_assumption
    assert "without their key" not in server.statement.sampling_assumption
    for one in (public, server):
        assert "gradients are zero" in one.statement.adjacency
        assert "one row of one client" in one.statement.unit
    assert fuaudit("budget", "run", run.path, "--delta", DELTA, "--plot", tmp_path / "budget.svg")[0] == 0
    assert (tmp_path / "budget.svg").exists()


def test_a_request_that_was_published_ends_amplification(tmp_path):
    """Which rounds were drawn anew tells when a row was first included."""
    run = trained(tmp_path / "run", UNCUT)
    child = unlearn(run, "fats", Request.of([1]), tmp_path / "child", data=tiny_dataset())
    (public,) = account_of(child, delta=DELTA).towards["public"].accounts
    steps = 2 * (4 + 5 - child.info["first_change"][0])
    assert public.epsilon == account([Charged(NOISE, 1.0, steps)], DELTA, FIXED).total
    (alone,) = account_of(run, delta=DELTA).towards["public"].accounts
    assert alone.epsilon == account([Charged(NOISE, 0.25, 8)], DELTA, POISSON).total


def test_what_is_made_of_noisy_steps_is_no_release_without_noise(tmp_path):
    """A round in which nobody took part told of nothing, and let nothing out."""
    run = trained(tmp_path / "run")
    assert 0 < sum(not cohort for cohort in run.participation["cohorts"]) < 4
    assert {"told" in line for line in run.ledger.of_kind("round")} == {True, False}
    (rows,) = account_of(run).unlimited.values()
    assert {one.where for one in rows} == {"metrics.json", "participation.json"}


def test_a_client_that_is_drawn_several_times_is_charged_for_each(tmp_path):
    learner = {"use": "fats", "cohort": 2, "rounds": 3, "steps": 2, "batch": 2, "step_size": 0.1}
    run = trained(tmp_path / "run", learner)
    (one,) = account_of(run, delta=DELTA).towards["server"].accounts
    assert one.epsilon == account([Charged(NOISE, 1.0, 3 * 2 * 2)], DELTA, FIXED).total


@pytest.mark.thorough
def test_what_a_cut_adds_is_in_delta():
    """The account of batches that are cut holds at the delta that was asked for, cuts included."""
    batches = Batches(POISSON, 2, 0.05, 1e-9)
    found = account_for(NoisySteps(1.0, batches), 50, DELTA).found
    assert found.law is POISSON
    assert found.cut == any_of(1e-9, 100)
    assert 99e-9 < found.cut < 101e-9
    assert 0.95 * DELTA < found.delta_in_all <= DELTA
    assert found.total == account([Charged(1.0, 0.05, 100)], found.delta, POISSON, cut=found.cut).total
    whole = account_for(NoisySteps(1.0, replace(batches, cut=0.0)), 50, DELTA).found
    assert whole.total < found.total < 1.05 * whole.total
    # where cuts are too likely, what is known to hold is what holds of all batches
    likely = account_for(NoisySteps(1.0, replace(batches, cut=1e-4)), 50, DELTA).found
    assert (likely.law, likely.total) == (FIXED, account([Charged(1.0, 1.0, 100)], DELTA, FIXED).total)


def test_a_run_whose_batches_are_cut_often_has_nothing_amplified(tmp_path):
    run = trained(tmp_path / "run")
    found = account_of(run, delta=DELTA)
    assert found.terms.batches.cut > 1e-3
    (public,), (server,) = found.towards["public"].accounts, found.towards["server"].accounts
    assert public.epsilon == server.epsilon


def test_what_has_no_account_is_no_guarantee(tmp_path):
    scaled = trained(tmp_path / "scaled", scaling="standardise")
    (one,) = account_of(scaled, delta=DELTA).towards["server"].accounts
    assert one.epsilon == float("inf")
    assert "constants of all rows" in one.reason
    (one,) = account_of(trained(tmp_path / "run"), delta=0.0).towards["server"].accounts
    assert one.epsilon == float("inf")


def test_behind_noisy_steps_byzantine_clients_see_noise_and_are_not_covered(tmp_path):
    run = trained(tmp_path / "run", UNCUT, client=[{"use": "mimic", "clients": [1]}], budget=budget(99.0))
    (one,) = account_of(run, delta=DELTA).towards["server"].accounts
    assert one.epsilon == account([Charged(NOISE, 1.0, 8)], DELTA, FIXED).total
    assert one.statement.unit.endswith(
        "it is in all of these runs, and of none of those who are Byzantine by the config: 1"
    )


def test_the_word_of_a_strangers_solver_is_taken_by_a_cap_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("tests/stages")
    run = trained(tmp_path / "run", UNCUT, solver={"use": "test-claims-noisy-steps"}, budget=budget(9.0))
    (one,) = account_of(run, delta=DELTA).towards["server"].accounts
    assert (one.part, one.epsilon) == ("solver", float("inf"))
    assert f"the solver 'test-claims-noisy-steps' is not fuaudit's own, and {NO_WORD}" in one.reason
    found = Provenance().examine(Case(Evidence(load_run(run.path), None, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert found.verdict == "PASS", found.details
    (taken,) = [line for line in found.assumptions if NO_WORD in line]
    assert "The budget takes parts of other packages at their word: the solver 'test-claims-noisy-steps'" in taken


DEALT = {"use": "test-deals", "clients": 4}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"partition": DEALT, "server": [{"use": "mean"}, {"use": "test-tells"}]}, ["deals", "tells"]),
        ({"partition": DEALT}, []),
        ({"model": {"use": "test-keeping"}, "server": [{"use": "mean"}, {"use": "test-tells"}]}, ["keeping"]),
        ({"model": {"use": "test-keeping"}}, ["keeping"]),
        ({"adversary": [{"use": "test-other-way", "clients": [1]}]}, ["other-way"]),
        ({"client": [{"use": "test-keeps"}, {"use": "test-puts-back"}]}, []),
        ({"client": [{"use": "test-one-for-all"}], "server": [{"use": "mean"}, {"use": "test-tells"}]}, []),
    ],
)
def test_what_parts_of_other_packages_are_given_decides_around_noisy_steps_too(tmp_path, monkeypatch, parts, named):
    """All stages are given what its noise is in already; what treats several rows of a client is in front of it."""
    monkeypatch.syspath_prepend("tests/stages")
    run = trained(tmp_path / "run", UNCUT, budget=budget(9.0), **parts)
    (one,) = [one for one in account_of(run, delta=DELTA).towards["server"].accounts if one.part == "solver"]
    assert (one.epsilon == float("inf"), [name for name in named if f"'test-{name}'" in one.reason]) == (
        bool(named),
        named,
    )
    found = Provenance().examine(Case(Evidence(load_run(run.path), None, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert found.verdict == "PASS", found.details
    word = "may put back what was kept" if len(named) > 1 else "may let one bear on what is made of others"
    assert any(word in line for line in found.assumptions) == bool(named)


def test_what_a_stage_tells_beside_noisy_steps_is_another_release(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("tests/stages")
    stage = {"use": "test-tells-at-clients"}
    run = trained(tmp_path / "run", UNCUT, budget=budget(9.0), client=[stage])
    found = Provenance().examine(Case(Evidence(load_run(run.path), None, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert (found.verdict, "client.0 told of releases" in found.shows) == ("INCONCLUSIVE", True)


def test_steps_that_were_lost_on_another_platform_may_have_one_noise_over_two_rows(tmp_path):
    run = trained(tmp_path / "run", UNCUT, budget=budget(9.0))
    went_on(run, 2, canary="0" * 64)
    for reader in account_of(load_run(run.path), delta=DELTA).towards.values():
        assert "broken off and went on behind round 2 on another platform" in "; ".join(reader.reasons)
    found = Provenance().examine(Case(Evidence(load_run(run.path), None, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert any("Each round is counted once: it was broken off" in line for line in found.assumptions)


def test_a_child_that_keeps_a_round_in_which_nobody_took_part_released_no_more_than_noise(tmp_path):
    run = trained(tmp_path / "run")
    child = unlearn(run, "noop", Request.of([1]), tmp_path / "kept", data=tiny_dataset(), allow_inexact=True)
    assert child.ledger.of_kind("round") == []
    left = account_of(child, delta=DELTA).unlimited
    assert {one.where for one in left["kept"]} <= {"metrics.json", "participation.json"}


# the cap


@pytest.mark.parametrize("towards", [None, "public"])
def test_a_pass_says_that_a_child_keeps_to_no_budget_towards_the_public(towards, tmp_path):
    """What a request drew anew tells when a row was drawn: from then on nothing is amplified."""
    target = 1.01 * account([Charged(NOISE, 0.25 if towards else 1.0, 8)], DELTA, POISSON if towards else FIXED).total
    run = trained(tmp_path / "run", UNCUT, budget=budget(target, towards))
    child = unlearn(run, "fats", Request.of([1]), tmp_path / "child", data=tiny_dataset())
    words = "child does not keep to its budget towards the public, as its training alone did"
    for one in (run, child):
        found = Provenance().examine(Case(Evidence(load_run(one.path), None, tiny_dataset()), Keyed(bytes(32))))
        said = [line for line in found.assumptions if words in line]
        assert bool(said) == (one is child and towards == "public")
    if said:
        assert "4 rounds have epsilon" in said[0]


@pytest.mark.parametrize("towards", [None, "public"])
def test_as_many_rounds_as_the_target_allows_are_begun_and_one_more_is_refused(towards):
    sampled = Charged(NOISE, 0.25, 1) if towards == "public" else Charged(NOISE, 1.0, 1)
    law = POISSON if towards == "public" else FIXED

    def epsilon(rounds):
        return account([replace(sampled, count=2 * rounds)], DELTA, law, cells=2**16).total

    rounds, target = 6, (epsilon(6) + epsilon(7)) / 2
    fits = tables(UNCUT | {"rounds": rounds}, budget=budget(target, towards))
    assert begun(fits, tiny_dataset(), secret(1)).ready.config.tables()["budget"].get("towards") == towards
    with pytest.raises(UsageError, match=rf"(?s)\[budget\]: 7 rounds have epsilon .*At most {rounds} rounds"):
        begun(tables(UNCUT | {"rounds": 7}, budget=budget(target, towards)), tiny_dataset(), secret(1))


def test_the_example_keeps_to_its_budget():
    config = read_config(Path(__file__).parents[1] / "examples/dpsgd.toml")
    assert begun(config, None, secret(1)).ready.config.budget == Target(3.0, DELTA, 1, "public")
    with pytest.raises(UsageError, match="have epsilon"):
        begun(replace(config, budget=Target(3.0, DELTA)), None, secret(1))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"client": [{"use": "gaussian-noise", "norm": 0.5, "noise": 20.0}]}, "one mechanism.*dpsgd.*besides"),
        ({"scaling": "standardise"}, "scaled by constants of all rows"),
        ({"budget": budget(9.0, delta=0.0)}, "no guarantee at delta 0"),
        ({"budget": budget(1e-4)}, "Not even one round"),
        ({"budget": budget(9.0, "nobody")}, "towards"),
    ],
    ids=["two mechanisms", "scaled", "no delta", "too much", "nobody"],
)
def test_what_no_budget_can_be_kept_with_is_refused(more, words):
    with pytest.raises(UsageError) as error:
        begun(tables(**({"budget": budget(9.0)} | more)), tiny_dataset(), secret(1))
    assert re.search(rf"(?s){words}", f"{error.value} {error.value.hint}")


def test_a_law_of_a_stranger_has_no_account_where_a_budget_asks_for_one():
    config = resolve(tables())
    with pytest.raises(UsageError, match=r"\[budget\]: batches are drawn by a law that nobody accounts for"):
        capped(Target(9.0, DELTA), exchange_of(config), DpSgd(0.5, NOISE), STRANGE, POPULATION, 12)
    once = UniformLaw(3, 2, 5, 2, False)
    known = capped(Target(99.0, DELTA), exchange_of(config), DpSgd(0.5, NOISE), once, POPULATION, 12)
    assert known.total == account([Charged(NOISE, 1.0, 3 * 5)], DELTA, FIXED).total


# held against what comes out

TRIALS, CELLS, WIDE = 8_000, 40, 0.01
"""Of one history; kinds of outcomes; and a delta at which so few trials tell much."""
LOUD = ClientProblem(
    module := torch.nn.Linear(2, 2).double(), Layout.of(module), torch.tensor([[3.0, -4.0]]).double(), torch.tensor([1])
)
"""One row, whose gradient is longer than the norm."""


def outcomes(solver, present, number):
    """What one step lets out along the gradient of the row, in norms: ``(n,)``, each with draws of its own."""
    columns, noise = LOUD.layout.dimension, []
    for trial in range(len(present)):
        context = wide_context([0], torch.float64, number * len(present) + trial + 1, columns)
        one_step = replace(context, cohort=replace(context.cohort, steps=torch.ones(1, dtype=torch.int64)))
        noise.append(solver.before(one_step.at(OF_SOLVER, solver, None), {}).noise)
    vectors = torch.zeros(len(present), columns, dtype=torch.float64)
    batches = torch.where(torch.from_numpy(present), 0, -1)[:, None, None, None]
    steps = Steps(1.0, clip=solver.norm, divisor=1, noise=torch.stack(noise))
    updates = Batched(1, stack_size=1024).advance(LOUD, vectors, batches, steps).updates[:, 0]
    still = replace(steps, noise=None)
    alone = Batched(1).advance(LOUD, vectors[:1], torch.zeros(1, 1, 1, 1, dtype=torch.int64), still).updates[0, 0]
    assert 0.999 < alone.norm() / solver.norm <= 1
    return (updates @ (alone / alone.norm()) / solver.norm).numpy()


def audited(solver, epsilon, rate, always=False):
    """The account of one step held against both histories; with a planted fault the row is in every batch."""
    drawn = np.random.Generator(np.random.Philox(7)).random(TRIALS) < rate
    found = [outcomes(solver, present, number) for number, present in enumerate((drawn | always, drawn & False))]
    low, high = -6.0, 7.0
    kinds = [np.clip((one - low) / (high - low) * CELLS, 0, CELLS - 1).astype(np.int64) for one in found]
    return audit_account(epsilon, *kinds, WIDE)


NOISY = DpSgd(0.5, 1.0)


@pytest.mark.thorough
def test_no_audit_refutes_the_account():
    known = audited(NOISY, account([Charged(1.0, 1.0, 1)], WIDE, FIXED).total, 1.0)
    assert (str(known.verdict), known.share > 0.5) == ("PASS", True)
    sampled = audited(NOISY, account([Charged(1.0, 0.25, 1)], WIDE, POISSON).total, 0.25)
    assert (str(sampled.verdict), sampled.share > 0.3) == ("PASS", True)


@dataclass(frozen=True)
class Quieter(DpSgd):
    """A third of the noise."""

    def before(self, context, state):
        steps = super().before(context, state)
        return replace(steps, noise=steps.noise / 3)


@pytest.mark.thorough
def test_an_audit_refutes_what_is_not_done_as_told():
    often = audited(NOISY, account([Charged(1.0, 0.25, 1)], WIDE, POISSON).total, 0.25, always=True)
    quiet = audited(Quieter(0.5, 1.0), account([Charged(1.0, 1.0, 1)], WIDE, FIXED).total, 1.0)
    assert [str(one.verdict) for one in (often, quiet)] == ["FAIL", "FAIL"]
