"""Level 6 as an audit: its figures, one alpha, editors beside themselves, optional stopping, what it needs.

Keys are fixed in advance and nothing else is random, so a false alarm, of probability alpha, would have shown once.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from fuaudit_plugins.finetune import Finetune
from tests_support import changed, installed

from fuaudit import train, unlearn
from fuaudit.audits.model_law.audit import BETTING, EARLIER, SHARES, WHOLE, Missing, ModelLaw, Sampled
from fuaudit.audits.model_law.figures import sizes
from fuaudit.audits.model_law.measure import STATISTICS, Statistics
from fuaudit.data.images import Digits
from fuaudit.draws import Keyed
from fuaudit.errors import PluginError
from fuaudit.plans import Request
from fuaudit.replicas.arms import Batch
from fuaudit.replicas.pairs import PAIRS_A_SHARD
from fuaudit.statistics.sequential import SequentialTest
from fuaudit.statistics.two_sample.batch import BatchTest
from fuaudit.statistics.two_sample.betting import two_sample
from fuaudit.statistics.two_sample.power import Detectable, Goal, Point
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.finding import Verdict

KEY = bytes(range(60, 92))
DATA = Digits().load(None)


def audit(run, asked=None, **options):
    return (asked or ModelLaw(pairs=24, alpha=0.01, test_rows=100)).examine(
        changed(Case(Evidence(run, None, DATA), Keyed(KEY)), **options)
    )


@pytest.fixture(scope="module")
def edited(trained, target, tmp_path_factory):
    return unlearn(trained, "finetune", Request.of([target]), tmp_path_factory.mktemp("edited") / "finetune")


def test_earlier_requests_are_not_compared(edited, tmp_path):
    """Originals never had what they took away; a finding says so where not all methods are exact."""
    client = edited.plan.retained.clients[0]
    again = unlearn(edited, "finetune", Request.of([client]), tmp_path / "again")
    few = ModelLaw(pairs=2, test_rows=10)
    assert [EARLIER in audit(run, few).assumptions for run in (edited, again)] == [False, True]


ANEW = """
from dataclasses import dataclass
from typing import ClassVar
from fuaudit.plugins import exact_under

@dataclass(frozen=True)
class Anew:
    \"\"\"Draws all anew, at the first request; nobody tried what it does at a second one.\"\"\"
    needs: ClassVar[frozenset] = frozenset({"plan"})
    participants: ClassVar[frozenset] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "exact, it says"
    cite: ClassVar[str] = ""
    exact_for: ClassVar = exact_under("uniform with replacement")

    def rewrite(self, plan, request, fresh, not_before):
        return plan.restart(request, fresh)
"""


@pytest.mark.parametrize(
    ("first", "second", "said"), [("fats", "fats", False), ("fats", "anew", True), ("anew", "retrain", False)]
)
def test_earlier_requests_are_named_where_a_method_of_somebody_bears(
    trained, target, tmp_path, monkeypatch, first, second, said
):
    """Pairs are unlearned once: nothing there tries a method at a second request."""
    entry = "[fuaudit.unlearners]\nanew = anew:Anew\n"
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "anew", ANEW, entry)))
    one = unlearn(trained, first, Request.of([target]), tmp_path / "one")
    two = unlearn(one, second, Request.of([one.plan.retained.clients[0]]), tmp_path / "two")
    found = audit(two, ModelLaw(pairs=2, test_rows=10), parent=one)
    assert (EARLIER in found.assumptions) == said


@pytest.mark.parametrize(("method", "said"), [("fats", False), ("anew", True)])
def test_it_says_that_no_training_is_stopped(small_config, tmp_path, monkeypatch, method, said):
    """A method of somebody may do otherwise with a request during training."""
    monkeypatch.syspath_prepend(
        str(installed(tmp_path / "site", "anew", ANEW, "[fuaudit.unlearners]\nanew = anew:Anew\n"))
    )
    run = train(small_config(), tmp_path / "run", secret=bytes(32), stop_after=3)
    one = unlearn(run, method, Request.of([run.plan.cohort(1)[0]]), tmp_path / "one")
    found = audit(one, ModelLaw(pairs=2, test_rows=10), parent=run)
    assert (WHOLE in found.assumptions) == said


def test_one_alpha_for_everything(child):
    found = audit(child)
    figures = found.values
    assert figures["alpha_betting"] + figures["alpha_batch"] == pytest.approx(figures["alpha"])
    assert figures["alpha_betting"] == pytest.approx(BETTING * 0.01)
    assert sum(SHARES) == pytest.approx(1)
    assert len(SHARES) == len(STATISTICS)
    wealth = np.array(found.series["log wealth, subject"])
    assert figures["p_value"] == pytest.approx(min(1, math.exp(-wealth.max())))
    assert (figures["rejected_at"] is None) == (figures["p_value"] > figures["alpha_betting"])
    assert (figures["pairs"], figures["runs"]) == (24, 96)
    low, high = found.figure("thresholds_at_most").interval
    assert low <= high == figures["thresholds_at_most"]
    assert figures["thresholds_ceiling"] <= figures["thresholds_at_most"]
    assert figures["epsilon_at_least"] <= figures["epsilon_ceiling"]
    assert sum(line.startswith("batch tests, ") for line in found.details) == 3


@pytest.mark.parametrize("key", [1, 5, 7])
def test_an_exact_method_is_not_failed_where_nearly_all_training_diverges(small_config, tmp_path, key):
    """Of 24 runs of an arm at most a few are finite. Then no order of them is rare enough for a level of .01."""
    config = small_config(learner={"step_size": 5.2e37})
    run = train(config, tmp_path / "run", secret=bytes([17]) * 32)  # it is finite itself, else it is refused
    forgot = unlearn(run, "fats", Request.of([0]), tmp_path / "child")
    found = ModelLaw(pairs=24, alpha=0.05, test_rows=50).examine(
        Case(Evidence(forgot, None, DATA), Keyed(bytes([key]) * 32))
    )
    assert found.verdict == "INCONCLUSIVE"
    assert found.values["batch_p_value"] > 0.01


def sampled(subject=None, second=None, untouched=1, batches=(), rate=0.25, pairs=64):
    """The tests of an audit, as if they had been made; numbers are the pairs after which betting rejects."""
    path = np.zeros(pairs)
    stops = {"subject": subject, "second": second, "untouched": untouched}
    bets = {arm: SequentialTest(path, 0.01, stop) for arm, stop in stops.items()}
    tests = {arm: BatchTest(0.001, {}, 0.5, 999, 0.002) for arm in batches}
    goal = Goal(rates=(0.25, 1.0))
    lowers = {0.25: (1.0, 1.0), 1.0: (0.0, 1.0), None: (0.0, 0.0)}[rate]
    curve = tuple(Point(r, 1.0, lower) for r, lower in zip(goal.rates, lowers, strict=True))
    return Sampled({"subject": np.zeros((pairs, 10))}, bets, None, tests, Detectable(goal, curve))


def test_verdicts_follow_from_all_tests_and_controls():
    asked = ModelLaw(pairs=64, effect=0.5)
    assert sampled().verdict(asked) is Verdict.PASS
    assert sampled(subject=9).verdict(asked) is Verdict.FAIL
    assert sampled(batches=["subject"]).verdict(asked) is Verdict.FAIL
    assert sampled(subject=9, second=3).verdict(asked) is Verdict.INCONCLUSIVE
    assert sampled(subject=9, batches=["second"]).verdict(asked) is Verdict.INCONCLUSIVE
    assert sampled(untouched=None).verdict(asked) is Verdict.INCONCLUSIVE
    assert sampled(untouched=None, batches=["untouched"]).verdict(asked) is Verdict.PASS
    assert sampled(rate=None).verdict(asked) is Verdict.INCONCLUSIVE
    assert sampled().verdict(replace(asked, effect=0.2)) is Verdict.INCONCLUSIVE
    assert sampled(pairs=63).verdict(asked) is Verdict.INCONCLUSIVE
    assert sampled(pairs=63, subject=9).verdict(asked) is Verdict.FAIL


def test_the_pairs_needed_are_read_off_what_was_found():
    assert sampled(rate=0.25).pairs_needed(0.25) == 64
    assert sampled(rate=0.25).pairs_needed(0.125) == 256
    assert sampled(rate=None, untouched=30).pairs_needed(0.5) == 120
    assert sampled(rate=None, untouched=None).pairs_needed(0.5) is None


def test_a_number_of_pairs_says_what_it_is_computed_from():
    assert sampled(rate=0.25).basis == "the smallest rate that is seen with power 0.9, 25%"
    even = "one control of untouched models, as no rate is seen: so many pairs tell them with even odds alone"
    assert sampled(rate=None, untouched=30).basis == even
    told = sampled(rate=None, untouched=30).needed_in_words(0.5, 120, 4)
    assert told.startswith(
        "to see untouched models in 50% of runs, about 120 pairs (480 training runs) would be needed"
    )
    assert f"extrapolated from {even}; " in told
    (figure,) = [one for one in sizes(64, 256, False, 120, even) if one.key == "pairs_needed"]
    assert even in figure.how


def test_an_inconclusive_finding_says_how_many_pairs_it_would_take(child):
    found = audit(child)
    assert found.verdict == "INCONCLUSIVE"
    needed = found.values["pairs_needed"]
    assert needed is None or f"about {needed} pairs ({4 * needed} training runs)" in " ".join(found.details)


# --- editors ------------------------------------------------------------------------------------------------------


def test_an_editor_is_also_compared_with_itself(edited, child):
    found = audit(edited)
    assert found.values["runs"] == 5 * found.values["pairs"]
    assert 0 < found.values["without_p_value"] <= 1
    assert any("the same editor made of runs that never had the target" in line for line in found.details)
    assert not any("same editor" in line for line in audit(child).details)
    assert "without_p_value" not in audit(child).values


@pytest.mark.thorough
def test_further_training_is_told_from_retraining_and_not_from_itself(trained, target, tmp_path):
    """An editor that trains twice as long: the loss betrays it, the target does not. alpha .01 for each test."""
    run = unlearn(trained, "finetune", Request.of([target]), tmp_path / "long", {"rounds": 20})
    found = audit(run, ModelLaw(pairs=32, alpha=0.01, test_rows=200))
    assert found.verdict == "FAIL"
    assert found.values["without_rejected_at"] is None
    assert "further training alone may then make the difference" in found.shows


def test_an_editor_that_needs_the_target_can_be_applied_without_it(edited, monkeypatch):
    """It steps up the gradient of the target's loss: the request is the same, the run never had the target."""
    requests = []

    def edit(self, context):
        requests.append(context.request)
        return context.model + 0.05 * context.target_gradient(context.model)

    monkeypatch.setattr(Finetune, "edit", edit)
    monkeypatch.setattr(Finetune, "participants", frozenset({"server", "target"}))
    found = audit(edited, ModelLaw(pairs=3, alpha=0.01, test_rows=50))
    assert found.values["without_p_value"] is not None
    assert set(requests) == {edited.request}
    assert len(requests) == 6


def test_an_editor_that_refuses_runs_without_the_target_says_so(edited, target, monkeypatch):
    def edit(self, context):
        if target not in context.plan.populations[0].samples:
            raise ValueError("never heard of it")
        return context.model

    monkeypatch.setattr(Finetune, "edit", edit)
    monkeypatch.setattr(Finetune, "needs", frozenset({"model", "plan"}))
    found = audit(edited, ModelLaw(pairs=3, alpha=0.01, test_rows=50))
    assert "without_p_value" not in found.values
    # also where nothing is rejected: which comparison is missing, and the editor's own reason
    for said in (found.shows, " ".join(found.details)):
        assert "Not compared: these models with those that the same editor makes of runs that never had" in said
        assert "never heard of it" in said
        assert "parts of the pairs" not in said

    def broken(self, context):
        raise ValueError("never works")

    monkeypatch.setattr(Finetune, "edit", broken)
    with pytest.raises(PluginError, match="never works"):
        audit(edited, ModelLaw(pairs=3, alpha=0.01, test_rows=50))


def test_an_editor_that_fails_in_a_part_of_the_pairs_is_not_compared_on_the_rest(edited, target, monkeypatch):
    """What is left would be chosen by the editor. It says in how many parts, and no addresses of objects."""
    seen = []

    def edit(self, context):
        if target not in context.plan.populations[0].samples:
            seen.append(context)
            if len(seen) > PAIRS_A_SHARD:
                raise ValueError(f"tired of {object()!r}")
        return context.model

    monkeypatch.setattr(Finetune, "edit", edit)
    monkeypatch.setattr(Finetune, "needs", frozenset({"model", "plan"}))
    found = audit(edited, ModelLaw(pairs=PAIRS_A_SHARD + 1, alpha=0.01, test_rows=10))
    assert "without_p_value" not in found.values
    assert "in 1 of 2 parts of the pairs" in found.shows
    assert "object at 0x...>" in found.shows


def test_a_pass_says_what_was_not_compared():
    missing = Missing.of([{}, {"refused without": np.frombuffer(b"no such client", dtype=np.uint8)}])
    assert "1 of 2 parts" in str(missing)
    assert "'no such client'" in str(missing)
    assert Missing.of([{"without": np.zeros((2, 10))}]) is None


def test_training_that_fails_without_the_target_is_no_refusal_of_the_editor(edited, monkeypatch):
    """A plugin that breaks there breaks the audit: only the editor itself may refuse."""
    executed = Batch.executed

    def broken(self, plans, keep=True):
        if keep and plans[0].retained == edited.plan.retained:
            raise PluginError("a stage broke")
        return executed(self, plans, keep)

    monkeypatch.setattr(Batch, "executed", broken)
    with pytest.raises(PluginError, match="a stage broke"):
        audit(edited, ModelLaw(pairs=3, alpha=0.01, test_rows=50))


# --- optional stopping --------------------------------------------------------------------------------------------

FEW = ModelLaw(pairs=20, alpha=0.001, test_rows=50)


@pytest.fixture(scope="module")
def decided(child):
    """An exact method on a federation where nothing can be seen: only the budget of 70 pairs ends it."""
    return audit(child, FEW, budget=4 * 70, stopping="decided")


@pytest.mark.thorough
def test_until_decided_stops_at_a_rejection_and_shows_no_batch_tests(trained, target, tmp_path):
    """The same long editor, far more pairs in the spec: one part is enough."""
    run = unlearn(trained, "finetune", Request.of([target]), tmp_path / "long", {"rounds": 20})
    asked = ModelLaw(pairs=1000, alpha=0.01, test_rows=200)
    seen = []
    found = audit(run, asked, stopping="decided", progress=lambda *row: seen.append(row))
    assert found.verdict == "FAIL"
    assert found.values["pairs"] == 32 >= found.values["rejected_at"]
    assert found.values["batch_p_value"] is None
    assert found.values["alpha_batch"] is None
    # bounds that hold for a fixed number of pairs are not stated where the data chose it
    fixed_only = ("thresholds_at_most", "thresholds_ceiling", "epsilon_at_least", "untouched_epsilon_at_least")
    assert [found.values[name] for name in fixed_only] == [None] * 4
    assert found.figure("thresholds_at_most").interval is None
    assert found.values["total_variation_at_least"] is not None  # holds at any stopping
    assert seen == [("pairs of runs", 0, 1000), ("pairs of runs", 32, 1000)]
    # what a report says about how to repeat it gives the same finding
    assert found.values["stopping"] == "decided"
    assert audit(run, asked, stopping="decided", budget=found.values["runs"]) == found


def test_looks_do_not_become_more_where_parts_are_smaller(child, decided, monkeypatch):
    """The lower limit of the power is not corrected for looks, so there is one after every 32 pairs, not every part."""
    monkeypatch.setattr("fuaudit.replicas.pairs.PAIRS_A_SHARD", 5)
    looks, seen, original = [], [], ModelLaw._decided

    def counted(self, case, found):
        looks.append(sum(len(part["subject"]) for part in found))
        return original(self, case, found)

    monkeypatch.setattr(ModelLaw, "_decided", counted)
    found = audit(child, FEW, budget=4 * 70, stopping="decided", progress=lambda *row: seen.append(row[1]))
    assert seen == [*range(0, 71, 5)]
    assert looks == [35, 65]  # after the parts that reach 32 and 64
    assert found == decided


def test_until_decided_goes_on_beyond_the_spec_up_to_the_budget(child, decided):
    assert decided.values["pairs"] == 70
    assert decided.values["batch_p_value"] is not None  # of the 20 pairs of the spec
    assert any("decided when to stop" in line for line in decided.assumptions)
    fixed = audit(child, FEW, budget=4 * 70)
    assert not any("decided when to stop" in line for line in fixed.assumptions)
    assert fixed.values["pairs"] == 20
    for name in ("batch_p_value", "thresholds_at_most", "epsilon_at_least", "untouched_epsilon_at_least"):
        assert fixed.values[name] == decided.values[name]
    assert fixed.figure("thresholds_at_most") == decided.figure("thresholds_at_most")
    first = fixed.series["log wealth, subject"]
    assert decided.series["log wealth, subject"][:20] == first
    assert audit(child, FEW, budget=4 * 10).values["pairs"] == 10


def test_a_power_is_stated_as_a_lower_limit(child, monkeypatch):
    """The sentence, the figures and the verdict take the limit; the estimate stands beside it."""
    asked = ModelLaw(pairs=64, alpha=0.01, test_rows=100)
    monkeypatch.setattr(ModelLaw, "_sampled", lambda self, case, limit: replace(whole, power=stated))
    case = Case(Evidence(child, None, DATA), Keyed(KEY))
    monkeypatch.setattr(ModelLaw, "_figures", lambda self, sampled: ({"alpha_bounds": 0.04}, None))
    whole, goal = sampled(), Goal()
    for lower, verdict in ((0.9, "PASS"), (0.89, "INCONCLUSIVE")):
        stated = Detectable(goal, (Point(0.4, 0.95, lower), Point(0.6, 1.0, 1.0)))
        found = asked.examine(case)
        assert found.verdict == verdict
        rate = "40%" if lower == 0.9 else "60%"
        assert found.detectable == f"a method that leaves the model untouched in {rate} of runs"
        assert (
            "would have been told with power 0.9 or more (a lower limit at confidence about 0.9, from resamples)"
            in found.shows
        )
        assert ("The spec asks to see untouched models in 50% of runs" in found.shows) is (verdict != "PASS")
        assert found.series["power, estimate"] == [0.95, 1.0]
        assert found.series["power, lower limit"] == [lower, 1.0]
        assert any("the confidence of its lower limit is approximate" in line for line in found.assumptions)
    stated = Detectable(goal, (Point(0.6, 0.95, 0.5),))
    assert "could not have seen even large ones" in asked.examine(case).shows


def test_the_shares_are_those_of_the_test(child):
    """The wealth of the finding is the test's on the arms, with the stated shares."""
    from fuaudit.replicas.pairs import Pairs

    asked = ModelLaw(pairs=12, alpha=0.01, test_rows=100)
    arms = Pairs.of(Case(Evidence(child, None, DATA), Keyed(KEY)), Statistics(100)).compute((0, 12), 1)
    path = two_sample(arms["subject"], arms["retrained"], 0.008, SHARES).log_wealth
    assert audit(child, asked).series["log wealth, subject"] == path.tolist()
