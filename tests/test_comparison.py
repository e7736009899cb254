"""Level 5 beside the reference: equal plans give a bound, others none, and a run is compared by itself."""

import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import log
from pathlib import Path

import numpy as np
import pytest
from fuaudit_plugins.coupling import MaximalCoupling
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning

from fuaudit import registry
from fuaudit.audits.plan_law.audit import PlanLaw
from fuaudit.audits.plan_law.comparison import alone, compare, differences, first_difference, needed, references
from fuaudit.audits.plan_law.known_laws import POWER, chance, plans_for, registered, suspects
from fuaudit.audits.plan_law.simulate import Step, Trial
from fuaudit.audits.provenance import Provenance
from fuaudit.draws import END, START, Address, Keyed, Position, Purpose, Stream
from fuaudit.plans import AvailabilityLaw, Plan, Request, UniformLaw, WeightedLaw
from fuaudit.plans.availability import (
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.plan import Segment
from fuaudit.plans.reference import ANEW, EDITS, KEEPS, PROVED, Edited, in_turn
from fuaudit.proofs import exactness
from fuaudit.proofs.toys import federation
from fuaudit.runs.ancestors import parent_of
from fuaudit.statistics.known_law import log_wealth
from fuaudit.statistics.rounding import confidence, down, rate_up, up
from fuaudit.unlearning.baselines import Noop, Retrain
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.finding import Verdict
from fuaudit.workflow.prune import prune
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

sys.path.append(str(Path(__file__).parent / "mutants"))
from fuaudit_mutants import (
    AlwaysRestarts,
    AsksForEach,
    BackToFirstStep,
    CohortTwice,
    Late,
    LowestFree,
    MoreSegments,
    PicksInitial,
    PrintedButLowest,
    PrintedForTwo,
    PrintedFromFour,
    Recognises,
    WritesDown,
)

KEY = bytes(range(32))
LAW, POPULATION = UniformLaw(rounds=4, cohort_size=2, steps=2, batch_size=3), federation((5,) * 6)
CLIENT, SAMPLE = Request.of(clients=[1]), Request.of(samples=[7])
SEVERAL = Request.of(samples=[0, 7])
MIXED = Request.of(clients=[3], samples=[0, 7])
STREAM = (SAMPLE, CLIENT, Request.of(samples=[0, 11]))
LAWS = {
    "uniform": LAW,
    "distinct": UniformLaw(4, 2, 2, 3, replacement=False),
    "round-robin": AvailabilityLaw(4, BoundedRoundRobin(3, "drawn"), FreshBatches(2, 3), first_all=False),
    "static": AvailabilityLaw(4, StaticProbability(Fraction(3, 10)), PermutedEpochs(2, 3, 5)),
    "weights": AvailabilityLaw(4, TimeVaryingWeights(number=2, largest=3), FreshBatches(2, 3), first_all=False),
    "share": AvailabilityLaw(
        4, TimeVaryingWeights(share=Fraction(1, 3), largest=3), FreshBatches(2, 3), first_all=False
    ),
}


def trial_of(method, requests, law=LAW, not_before=END):
    requests = requests if isinstance(requests, tuple) and not isinstance(requests, Request) else (requests,)
    moments = [not_before, *[END] * (len(requests) - 1)]
    return Trial(law, POPULATION, tuple(Step(method, "fats", r, at) for r, at in zip(requests, moments, strict=True)))


def judged(method, requests, law=LAW, not_before=END, **options):
    return PlanLaw(**{"plans": 2000, "most": 20_000, "effect": 0.05} | options).judged(
        trial_of(method, requests, law, not_before), KEY
    )


@pytest.mark.parametrize("requests", [CLIENT, SAMPLE, SEVERAL, MIXED, STREAM], ids=str)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("method", [FatsUnlearning(), Retrain()], ids=lambda m: type(m).__name__)
def test_proved_methods_get_the_bound(method, law, requests):
    if law == "share" and isinstance(method, FatsUnlearning):
        return  # it does not claim to be exact there
    found = judged(method, requests, LAWS[law], plans=100, effect=0.1)
    assert found.verdict is Verdict.PASS, found.shows
    assert found.values["differs_below"] == pytest.approx(1 - 0.001 ** (1 / 100))
    assert found.bounds_rate == 0.001
    assert found.error_rate == 0.001, "the tests would have had it"


def test_what_is_kept_of_a_share_of_the_clients_gets_no_bound():
    """A share changes in number with the population: the reference draws all anew."""
    found = judged(FatsUnlearning(), CLIENT, LAWS["share"], plans=100)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "No bound" in found.shows


@pytest.mark.parametrize("not_before", [Position(1, 0), Position(3, 0)])
@pytest.mark.parametrize("requests", [CLIENT, SAMPLE, MIXED], ids=str)
def test_requests_during_training(requests, not_before):
    assert judged(FatsUnlearning(), requests, not_before=not_before).verdict is Verdict.PASS
    assert judged(Noop(), requests, not_before=Position(3, 0)).verdict is Verdict.FAIL


RIGHT = [WritesDown(), AsksForEach(), AlwaysRestarts(), MoreSegments()]


@pytest.mark.parametrize("requests", [CLIENT, SAMPLE, MIXED, STREAM], ids=str)
@pytest.mark.parametrize("method", RIGHT, ids=lambda m: type(m).__name__)
def test_right_methods_that_look_odd_get_the_bound(method, requests):
    found = judged(method, requests, plans=300)
    assert found.verdict is Verdict.PASS, found.shows
    assert found.values["equal"] == 300


def test_a_right_method_that_draws_otherwise_passes_by_its_name():
    found = judged(BackToFirstStep(), SAMPLE)
    assert found.verdict is Verdict.PASS, found.shows
    assert "the code of 'fats' (fuaudit" in found.qualification
    assert found.qualification in found.shows
    assert "differs_below" not in found.values
    assert found.values["equal"] < 2000
    assert judged(BackToFirstStep(), CLIENT).values["equal"] == 2000, "clients are met at cohorts"


WRONG = {
    "late": (Late(), CLIENT, Verdict.FAIL),
    "untouched": (Noop(), SAMPLE, Verdict.FAIL),
    "picks the initial model": (PicksInitial(), SAMPLE, None),
    "lowest free id": (LowestFree(), SAMPLE, None),
    "printed but for the lowest id": (PrintedButLowest(), SAMPLE, Verdict.FAIL),
    "printed for two samples": (PrintedForTwo(), SEVERAL, None),
    "printed from four clients on": (PrintedFromFour(), SAMPLE, Verdict.FAIL),
    "one cohort twice": (CohortTwice(), CLIENT, None),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRONG)
def test_wrong_methods_get_no_bound(name):
    """None: they draw otherwise, and whether the tests see it is for their power to say; a PASS names the code."""
    method, requests, verdict = WRONG[name]
    found = judged(method, requests)
    assert "differs_below" not in found.values
    assert found.values["equal"] < 100
    assert any("no bound: plan" in line for line in found.details)
    assert verdict is None or found.verdict is verdict, found.shows
    assert found.verdict is not Verdict.PASS or "the code of" in found.qualification


@pytest.mark.parametrize(
    ("method", "requests"),
    [(PrintedButLowest(), Request.of(samples=[0])), (PrintedForTwo(), SAMPLE), (PrintedFromFour(), CLIENT)],
    ids=str,
)
def test_they_are_right_elsewhere(method, requests):
    assert judged(method, requests).values["differs_below"] < 0.01


@pytest.mark.parametrize("law", ["round-robin", "static", "weights"])
def test_where_no_law_is_known_a_plan_with_the_target_refutes(law):
    found = judged(Noop(), CLIENT, LAWS[law], plans=100)
    assert found.verdict is Verdict.FAIL
    assert "leaves what was to be forgotten in a plan" in found.shows


def test_weighted_cohorts_have_the_coupling_s_own_proof_alone():
    law = WeightedLaw(2, 2, 1, 1, weights=tuple((c, c + 1) for c in range(6)))
    assert judged(Retrain(), CLIENT, law, plans=100, effect=0.1).verdict is Verdict.PASS
    found = judged(MaximalCoupling(), CLIENT, law, plans=100)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "No bound" in found.shows
    assert "'weighted without replacement' have no test, so this speaks neither for nor against" in found.shows
    assert "as 'retrain' does. A spec with asks = \"run\" does not need this check." in found.shows


@dataclass(frozen=True)
class KeepsARound(FatsUnlearning):
    """Right wherever FATS is, and keeps less: one round at most."""

    def rewrite(self, plan, request, fresh, not_before):
        return plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before, Position(2, 0)))


@pytest.mark.parametrize("law", ["uniform", "distinct", "round-robin", "static", "weights"])
def test_the_guide_s_table_of_laws_without_a_test(law):
    """A right method that draws otherwise than a proved one passes where tests are known, and is never refuted."""
    own = replace(LAWS[law], batches=FreshBatches(2, 3), first_all=False) if law == "static" else LAWS[law]
    small = AvailabilityLaw(2, StaticProbability(Fraction(1, 3)), FreshBatches(1, 1), first_all=False)
    assert exactness(KeepsARound(), small, federation((2, 1, 1)), [CLIENT]).exact
    found = judged(KeepsARound(), CLIENT, own, plans=100, effect=0.5)
    assert any("differs from that of a proved method" in words for words in (found.shows, *found.details))
    if law in ("uniform", "distinct"):
        assert found.verdict is Verdict.PASS, found.shows
    else:
        assert found.verdict is Verdict.INCONCLUSIVE
        assert "have no test, so this speaks neither for nor against the method" in found.shows


def test_of_several_methods_a_pass_does_not_say_of_each_that_it_draws_otherwise():
    """The second one here draws what a proved method draws; the comparison ends with the first plan that differs."""

    def passed(*methods):
        steps = tuple(Step(method, name, asked) for (method, name), asked in zip(methods, STREAM, strict=False))
        found = PlanLaw(plans=100, most=20_000, effect=0.5).judged(Trial(LAW, POPULATION, steps), KEY)
        assert found.verdict is Verdict.PASS, found.shows
        return found.qualification

    keeps, fats = (KeepsARound(), "fats-as-printed"), (FatsUnlearning(), "fats")
    rests = ", so at full size this rests on small federations, on tests of "
    several = "At least one method of the lineage ('fats-as-printed', then 'fats') draws otherwise than a proved one"
    assert passed(keeps, fats).startswith(several + rests)
    for same in ((keeps,), (keeps, keeps)):
        assert passed(*same).startswith("'fats-as-printed' draws otherwise than a proved method" + rests)


# --- what is compared


def test_the_first_difference_is_the_first_in_the_order_of_draws():
    plan = Plan.fresh(LAW, POPULATION, Keyed(KEY))
    erased, fresh = plan.retained.without(CLIENT), Keyed(bytes(32))
    kept = plan.erase(CLIENT, fresh, END)
    assert kept.retained == erased
    for at in (Position(1, 0), Position(2, 1), Position(3, 2), Position(4, 0)):
        (found,) = differences([plan.erase(CLIENT, fresh, at)], [kept])
        assert found.at == at
    assert next(differences([plan.restart(CLIENT, fresh)], [kept])).at == START
    (initial,) = differences([plan.restart(CLIENT, fresh)], [plan.erase(CLIENT, fresh, START)])
    assert initial.at == START
    assert next(differences([kept], [kept])) is None


def test_a_method_is_compared_with_what_it_does():
    keeps, anew, _ = PROVED
    assert references(trial_of(FatsUnlearning(), STREAM), KEY) == (keeps,) * 3
    assert references(trial_of(Retrain(), STREAM), KEY) == (anew,) * 3
    assert references(trial_of(Noop(), CLIENT), KEY) == (keeps,)
    steps = tuple(
        Step(method, "x", request)
        for method, request in zip((FatsUnlearning(), Retrain()), (SAMPLE, CLIENT), strict=True)
    )
    mixed = Trial(LAW, POPULATION, steps)
    assert references(mixed, KEY) == (keeps, anew)
    assert compare(mixed, (keeps, anew), KEY, range(300)).first is None
    assert compare(mixed, (anew, keeps), KEY, range(300)).first is not None


def test_how_plans_are_grouped_changes_nothing():
    trial = trial_of(PrintedForTwo(), SEVERAL)
    beside = references(trial, KEY)
    whole = compare(trial, beside, KEY, range(500))
    first = compare(trial, beside, KEY, range(whole.equal))
    second = compare(trial, beside, KEY, range(whole.equal, 500))
    assert first.first is None
    assert (second.equal, second.first) == (0, whole.first)
    assert first.then(second).equal == whole.equal


def test_the_bound_is_the_coupling_inequality():
    assert compare(trial_of(FatsUnlearning(), CLIENT), [next(iter(PROVED))], KEY, range(50)).below(
        0.001
    ) == pytest.approx(1 - 0.001 ** (1 / 50))
    assert 1 - 0.001 ** (1 / 100_000) < 7e-5
    n = needed(0.01, 0.001)
    assert 1 - 0.001 ** (1 / n) <= 0.01 < 1 - 0.001 ** (1 / (n - 1))


def test_a_run_that_differs_alone_is_chance_at_the_stated_rate_at_most():
    for plans in (1, 10, 1000):
        worst = max((1 - i / 10_000) ** plans * i / 10_000 for i in range(10_001))
        assert worst <= alone(plans) <= worst * 1.01


# --- the run's own plan


@pytest.fixture(scope="module")
def lineage(small_config, tmp_path_factory):
    """A run of twelve rounds, and a client of it that is drawn late."""
    folder = tmp_path_factory.mktemp("own")
    parent = train(small_config(rounds=12), folder / "parent", secret=KEY)
    rounds = parent.plan.index.clients
    return parent, max(rounds, key=rounds.__getitem__)


def of_run(run, **options):
    case = Case(Evidence(run, parent_of(run), None), Keyed(KEY))
    return PlanLaw(**{"plans": 1000, "alpha": 0.001} | options).examine(case)


def test_a_prune_hides_no_run_that_starts_over_where_it_is_recognised(lineage, small_config, monkeypatch, tmp_path):
    """The plan of the run says itself that it kept nothing; its method keeps draws on all other plans."""
    usual = FatsUnlearning.rewrite

    def rewrite(self, plan, request, fresh, not_before):
        rounds = -(-len(self.known) // plan.law.cohort_size)
        if [c for r in range(1, rounds + 1) for c in plan.cohort(r)] == list(self.known):
            return plan.restart(request, fresh)
        return usual(self, plan, request, fresh, not_before)

    monkeypatch.setattr(Recognises, "rewrite", rewrite)
    parent = train(small_config(rounds=12), tmp_path / "parent", secret=KEY)
    _, client = lineage
    drawn = [client for round_number in range(1, 13) for client in parent.plan.cohort(round_number)]
    child = unlearn(parent, "mutant-recognises", Request.of(clients=[client]), tmp_path / "child", {"known": drawn})
    pruned, _ = prune(child)
    found = of_run(pruned)
    assert found.verdict is Verdict.FAIL
    assert found.values["own_plan"].startswith("differs: the initial model: the method draws it anew for request 1")


@pytest.mark.parametrize("name", ["fats", "retrain"])
def test_after_a_prune_the_only_method_is_compared_and_of_several_the_last(name, small_config, tmp_path):
    parent = train(small_config(rounds=12) | {"run": {"requests": 2}}, tmp_path / "parent", secret=KEY)
    first = unlearn(parent, name, Request.of(clients=[parent.plan.cohort(9)[0]]), tmp_path / "first")
    pruned, _ = prune(first)
    assert of_run(pruned).values["own_plan"] == "equal"
    sample = pruned.plan.retained.samples[pruned.plan.retained.clients[0]][3]
    second = unlearn(pruned, name, Request.of(samples=[sample]), tmp_path / "second")
    found = of_run(second)
    assert (found.verdict, found.values["own_plan"]) == (Verdict.PASS, "not compared")
    assert "of its 2 methods only the last was looked at" in found.qualification
    again = Provenance().examine(Case(Evidence(prune(second)[0], parent_of(second), None), Keyed(KEY)))
    assert "The ids of erased samples are as told; no draw follows from them." in again.assumptions
    assert ("kept nothing of what was drawn before it" in again.shows) == (name == "retrain")


def test_a_decoy_that_was_pruned_hides_no_plan(small_config, tmp_path):
    """What the method made of the parent's plan is at hand, whatever was pruned above."""
    parent = train(small_config(rounds=8) | {"run": {"requests": 3}}, tmp_path / "parent", secret=KEY)
    decoy, _ = prune(unlearn(parent, "retrain", Request.of(clients=[3]), tmp_path / "decoy"))
    child = unlearn(decoy, "mutant-few-behind", Request.of(clients=[1]), tmp_path / "child", allow_inexact=True)
    found = of_run(child)
    assert found.verdict is Verdict.FAIL
    assert "but not in this run" in found.shows
    last = of_run(unlearn(child, "fats", Request.of(clients=[4]), tmp_path / "last", allow_inexact=True))
    assert last.verdict is Verdict.INCONCLUSIVE
    assert "'mutant-few-behind' draws otherwise than a proved method: " in last.shows
    honest = of_run(unlearn(decoy, "retrain", Request.of(clients=[1]), tmp_path / "honest"))
    assert (honest.verdict, honest.values["own_plan"]) == (Verdict.PASS, "not compared")


def test_a_run_of_another_version_is_not_compared(lineage, monkeypatch):
    """What is installed says nothing of a run that another version made: neither plan nor plan-law may convict."""
    parent, _ = lineage
    rounds = parent.plan.index.samples
    sample = next(s for s, at in sorted(rounds.items()) if at.step == 2 and at.round > 2)
    request = Request.of(samples=[sample])
    child = unlearn(parent, "stranger-back-to-first-step", request, parent.path.parent / "version")
    monkeypatch.setattr(BackToFirstStep, "rewrite", FatsUnlearning.rewrite)
    assert of_run(child).verdict is Verdict.FAIL, "of this version it is what was recorded that counts"
    find = registry.find

    def newer(kind, name):
        entry = find(kind, name)
        return replace(entry, version="9.9") if name == "stranger-back-to-first-step" else entry

    monkeypatch.setattr(registry, "find", newer)
    found = of_run(child)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.values["own_plan"] == "not compared"
    assert "made by another version" in found.qualification
    plan = Provenance().examine(Case(Evidence(child, parent, None), Keyed(KEY)))
    assert plan.verdict is Verdict.INCONCLUSIVE
    assert sum("installed is" in line for line in plan.details) == 3  # its name, its plan and its doubts


def test_every_ancestor_that_stopped_early_is_named(small_config, tmp_path):
    parent = train(small_config(rounds=12) | {"run": {"requests": 2}}, tmp_path / "parent", secret=KEY, stop_after=6)
    first = unlearn(parent, "fats", Request.of(clients=[0]), tmp_path / "first")
    second = unlearn(first, "fats", Request.of(clients=[1]), tmp_path / "second")
    line = "The training of parent really was stopped for a request after round 6."
    assert line in Provenance().examine(Case(Evidence(second, first, None), Keyed(KEY))).assumptions
    pruned, _ = prune(second)
    assert line in Provenance().examine(Case(Evidence(pruned, parent_of(pruned), None), Keyed(KEY))).assumptions


def test_bounds_in_sentences_are_rounded_up():
    for value in (1 - 0.001 ** (1 / 100_000), 1 - 0.0002 ** (1 / 20_000), 0.05, 0.01, 1.0, 0.0):
        for digits in (2, 3):
            assert value <= float(up(value, digits)) <= value * 1.1
    assert (up(0.05), up(0.0421, 2), up(1.0), up(6.9075e-5, 3)) == ("0.05", "0.043", "1", "6.91e-05")
    for value in (0.8985, 2.15991, 0.05, 1.0):
        assert value * 0.9 <= float(down(value)) <= value <= float(up(value))
    assert (down(0.8985), down(2.15991, 4), up(-1.25), down(float("inf"))) == ("0.89", "2.159", "-1.2", "inf")
    assert [confidence(alpha) for alpha in (1e-3, 1e-7, 0.0001234567)] == ["0.999", "0.9999999", "0.9998765433"]
    assert [*map(rate_up, (0.00018160648, 0.1 + 0.2, 0.9999991))] == ["0.0001817", "0.3", "1"]
    assert confidence(1e-40) == "0." + "9" * 40
    found = judged(FatsUnlearning(), CLIENT, plans=11_111, alpha=0.001)
    assert f"less than {up(found.values['differs_below'])} away" in found.shows
    assert up(found.values["differs_below"]) != f"{found.values['differs_below']:.2g}"


@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.3])
def test_so_many_plans_show_untouched_ones_with_the_power_that_is_said(alpha):
    """At an alpha above .1 a test that rejects with probability 1 - alpha has not power .9."""
    trial = trial_of(FatsUnlearning(), CLIENT)
    said = suspects(trial, alpha, 0.01)[0].plans
    assert (1 - 0.01 * chance(trial)) ** said <= min(alpha, 1 - POWER) + 1e-12


def test_the_run_and_the_tests_share_alpha():
    """An exact method that differs at a rate fails by the one or the other with alpha in all."""
    for plans, alpha in ((20_000, 0.0002), (20_000, 2.5e-5), (300, 0.002), (2000, 0.00025)):
        share = PlanLaw(plans=plans, alpha=alpha).share_of_run(plans)
        assert share in (0.0, alone(plans))
        assert share < alpha / 2


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fats", "retrain", "stranger-writes-down", "stranger-more-segments"])
def test_the_run_s_own_plan_is_equal_along_its_lineage(lineage, name):
    parent, client = lineage
    folder = parent.path.parent
    first = unlearn(parent, name, Request.of(clients=[client]), folder / name)
    sample = first.plan.retained.samples[first.plan.retained.clients[0]][3]
    second = unlearn(first, name, Request.of(samples=[sample]), folder / f"{name}-twice")
    found = of_run(second)
    assert found.verdict is Verdict.PASS, found.shows
    assert found.values["own_plan"] == "equal"
    assert "The run's own plan equals that of a proved method." in found.shows
    alone = PlanLaw(plans=100, effect=0.1).examine(Case(Evidence(second, None, None), Keyed(KEY)))
    assert (alone.verdict, alone.values["own_plan"]) == (Verdict.INCONCLUSIVE, "not compared")
    assert "not all runs that it was made from are at hand. A method can tell a run by its draws." in alone.shows


# --- editors in a lineage


@pytest.mark.parametrize("law", LAWS)
def test_behind_an_editor_everything_starts_over(law):
    """FATS keeps draws, also of what the editor was to erase: there it is refused, and one starts over."""
    asked = (Edited(), FatsUnlearning(), Edited(), Edited(), Retrain(), AlwaysRestarts())
    requests = [Request.of(clients=[c]) for c in (2, 0)] + [Request.of(samples=[s]) for s in (16, 17, 27, 29)]
    pairs = zip(in_turn(asked), requests, strict=True)
    trial = Trial(LAWS[law], POPULATION, tuple(Step(method, "x", request) for method, request in pairs))
    assert references(trial, KEY) == (EDITS, ANEW, EDITS, EDITS, ANEW, KEEPS if law == "share" else ANEW)
    found = PlanLaw(plans=100, effect=0.1).judged(trial, KEY)
    assert found.verdict is Verdict.PASS, found.shows
    assert found.shows.startswith("'x', then 'x', then 'x' draws what")


@pytest.fixture(scope="module")
def edited(small_config, tmp_path_factory):
    """By a word for each method, f(ats), e(ditor), r(etrain): runs of one training, made as they are asked for."""
    folder = tmp_path_factory.mktemp("edited")
    parent = train(small_config(rounds=8) | {"run": {"requests": 4}}, folder / "parent", secret=KEY)
    use = {"f": "fats", "e": "finetune", "r": "retrain"}

    @cache
    def made(word):
        run = made(word[:-1]) if word else parent
        asked = Request.of(clients=[len(word) - 1])
        return unlearn(run, use[word[-1]], asked, folder / word) if word else parent

    return made


@pytest.mark.parametrize("word", ["er", "eer", "fer", "erf", "ere", "erer"])
def test_an_editor_in_the_lineage_hides_no_plan(edited, word):
    found = of_run(edited(word))
    if word.endswith("e"):
        assert found.verdict is Verdict.NOT_APPLICABLE
        return
    assert (found.verdict, found.values["own_plan"]) == (Verdict.PASS, "equal"), found.shows
    assert "'finetune'" not in found.shows
    assert "'finetune' edits models and keeps every draw; who comes next starts over" in found.details


def test_a_method_that_is_wrong_behind_an_editor_fails_there(edited):
    """On all plans, by the known law; and on one plan that it knows, by the run's own."""
    before, request = edited("e"), Request.of(clients=[1])
    cohorts = [client for round_number in range(1, 5) for client in before.plan.cohort(round_number)]
    always = unlearn(before, "mutant-few-behind", request, before.path.parent / "always")
    found = of_run(always, plans=200, most=200)
    assert found.verdict is Verdict.FAIL
    assert found.shows.startswith("'mutant-few-behind' has not the law of retraining")
    once = unlearn(before, "mutant-few-behind", request, before.path.parent / "once", {"known": cohorts})
    found = of_run(once)
    assert found.verdict is Verdict.FAIL
    assert "in all 1,000 plans, but not in this run" in found.shows
    again = unlearn(once, "fats", Request.of(clients=[2]), before.path.parent / "again")
    assert of_run(again).verdict is Verdict.FAIL, "nor behind another request"


def test_where_plans_differ_too_the_run_s_is_reported_only(lineage):
    parent, _ = lineage
    rounds = parent.plan.index.samples
    sample = next(s for s, at in sorted(rounds.items()) if at.step == 2 and at.round > 2)
    child = unlearn(parent, "stranger-back-to-first-step", Request.of(samples=[sample]), parent.path.parent / "back")
    found = of_run(child, most=3000)
    assert found.values["own_plan"].startswith("differs: round ")
    assert found.verdict is not Verdict.FAIL


@pytest.mark.parametrize("name", LAWS)
def test_the_number_of_plans_is_decided_beforehand(name):
    law, audit = LAWS[name], PlanLaw(plans=20_000, draws=240_000)
    arrays = 240_000 // (4 * 6)
    uniform = name in ("uniform", "distinct")
    assert audit.planned(trial_of(FatsUnlearning(), CLIENT, law)) == (20_000 if uniform else arrays)
    weighted = WeightedLaw(4, 2, 1, 1, weights=tuple((c, c + 1) for c in range(6)))
    assert audit.planned(trial_of(Retrain(), CLIENT, weighted)) == arrays // 50


def test_the_work_is_announced(lineage):
    parent, client = lineage
    child = unlearn(parent, "fats", Request.of(clients=[client]), parent.path.parent / "announced")
    told = PlanLaw(plans=3000, most=7000).cost(Case(Evidence(child, parent, None), Keyed(KEY)))
    assert told == "plan law: each method rewrites at most 3,000 plans, up to 7,000 more where it draws otherwise"
    assert PlanLaw().cost(Case(Evidence(parent, None, None), Keyed(KEY))) == ""


# --- the size of the tests


def test_tests_of_the_stated_size_have_the_stated_power():
    """400 audits of plans of the printed form, by the bettors on participations alone; .9 or more in the mean.

    A true power of .9 gives fewer than 340 of 400 with probability 1.1e-3; the key is fixed.
    """
    trial, alpha = trial_of(FatsAsPrinted(), SAMPLE), 0.001
    chosen = registered(trial)
    (statistic,) = [s for s in chosen if s.suspects]
    plans = plans_for(statistic.law, statistic.believed[-1], statistic.believed, len(chosen), alpha)
    assert suspects(trial, alpha, 0.5)[-1].plans == plans
    numbers = Keyed(KEY).uniform(Address(Purpose.AUDIT, 1), 400 * plans).reshape(400, plans)
    edges = np.cumsum(statistic.believed[-1])[:-1]
    hits = 0
    for row in numbers:
        path = log_wealth(np.searchsorted(edges, row, side="right"), statistic.law, statistic.believed)
        hits += bool(path.max() >= -log(alpha) + log(len(chosen)))
    assert hits >= 340
    assert 50 < plans < 20_000


def test_what_cannot_be_told_has_no_size():
    assert plans_for((0.5, 0.5), (0.5, 0.5), (), 1, 0.001) is None
    assert plans_for((1.0, 0.0), (0.5, 0.5), (), 1, 0.001) == 1
    tilted = [(0.5 + gap, 0.5 - gap) for gap in (0.2, 0.1, 0.05)]
    sizes = [plans_for((0.5, 0.5), law, (law,), 4, 0.001) for law in tilted]
    assert sizes == sorted(sizes)
    assert sizes[2] > 10 * sizes[0]


def test_too_few_plans_are_not_enough_for_the_printed_form():
    """The audit takes as many as that needs; where it may not, it says how many."""
    trial = trial_of(BackToFirstStep(), SAMPLE)
    needed_plans = suspects(trial, 0.001, 0.05)[-1].plans
    found = PlanLaw(plans=50, most=50, effect=0.5).judged(trial, KEY)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "plans are needed" in found.shows
    assert needed_plans > 50
    found = PlanLaw(plans=50, most=20_000, effect=0.5).judged(trial, KEY)
    assert found.verdict is Verdict.PASS, found.shows
    assert found.values["plans"] >= needed_plans
    assert "would have been rejected with power 0.9" in found.shows


@pytest.mark.parametrize("law", ["uniform", "distinct", "static"])
def test_a_recorded_plan_holds_what_its_sources_draw(law):
    """Batches are read together; the plan says what it said before, but for the cohorts given."""
    plan = Plan.fresh(LAWS[law], POPULATION, Keyed(KEY)).erase(SAMPLE, Keyed(bytes(32)), Position(2, 2))
    fresh = Keyed(bytes(32))
    if law == "static":
        drawn = {round_number: plan.cohort(round_number) for round_number in range(2, 5)}
        places = [Address(Purpose.BATCH, r, 1, c) for r, cohort in drawn.items() for c in cohort]
        assert plan._batches(places) == [plan.batch(at.round, 1, at.client, 0) for at in places]
        return
    assert plan.recorded({}).history() == plan.history()
    other = plan.recorded({3: (5, 0)})
    assert other.cohort(3) == (5, 0)
    assert other.batch(3, 1, 5, 0) == plan.batch(3, 1, 5, 0)
    places = [Address(Purpose.BATCH, r, e, c, version=1) for r in range(1, 5) for e in (1, 2) for c in range(6)]
    owned = [POPULATION.samples[at.client] for at in places]
    counts = [at.step + 1 for at in places]
    one_by_one = [fresh.subset(*one) for one in zip(places, owned, counts, strict=True)]
    assert fresh.many_subsets(places, owned, counts) == one_by_one
    assert fresh.many_subsets(places, owned, [0] * len(places)) == [()] * len(places)


def test_what_an_earlier_source_draws_is_not_written_down():
    """A cut inside a round keeps the round's cohort and its first steps: a run may hold no draw that nobody reads."""
    plan = Plan.fresh(UniformLaw(3, 2, 3, 2), federation((5, 5, 5)), Keyed(bytes(32)))
    request = next(
        Request.of(samples=[s]) for s in range(15) if plan.first_involvement(Request.of(samples=[s])).step > 1
    )
    first = plan.first_involvement(request)
    new = plan.erase(request, Keyed(bytes([1]) * 32), first)
    written = new.recorded({})
    assert written.history() == new.history()
    positions = [at.position for at in written.sources[-1].answers]
    assert min(positions) == first
    with pytest.raises(ValueError, match=f"the cohort of round {first.round} is kept"):
        new.recorded({first.round: (0, 1)})


def test_what_is_written_down_begins_with_the_first_round():
    """No cohort and no batch is drawn before it, also where all is drawn anew; where nothing is, nothing is written."""
    plan = Plan.fresh(LAW, POPULATION, Keyed(KEY))
    new = plan.erase(CLIENT, Keyed(bytes(32)), START)
    written = new.recorded({})
    assert written.history() == new.history()
    assert {at.round for at in written.sources[-1].answers} == {1, 2, 3, 4}
    kept = plan.erase(CLIENT, Keyed(bytes(32)), END)
    assert kept.recorded({}) is kept


@dataclass(frozen=True)
class Repeats(UniformLaw):
    """A stranger's law that draws one cohort whatever it is asked, as one does that finds out whose plan it draws."""

    def cohort(self, draws, round_number):
        return (1,)

    def batch(self, draws, round_number, step, client, occurrence):
        return (3,)


def test_a_law_of_a_stranger_is_not_asked_whether_two_plans_are_one():
    """Drawn from other keys they are two, although the law gives one answer for both."""
    members = federation((3, 3))
    one, other = (Plan.fresh(Repeats(2, 1, 1, 1), members, Keyed(bytes([number]) * 32)) for number in (1, 2))
    assert one.history() == other.history()
    found = first_difference(one, other)
    assert (
        str(found)
        == "the initial model: the method draws from other sources, or from a record, the reference its own ones"
    )
    assert list(differences([one], [other])) == [found]
    assert list(differences([one], [one])) == [None]
    again = Segment(Position(2, 0), 0, 0)
    more = replace(one, streams={**one.streams, Stream.COHORTS: (*one.streams[Stream.COHORTS], again)})
    assert first_difference(more, one) is None
