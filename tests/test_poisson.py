"""Poisson batches: their law, what may be kept of batches that were cut, and what is recorded of them."""

import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import comb
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning
from scipy.stats import binom

from fuaudit.audits.enumeration import Enumeration as EnumerationAudit
from fuaudit.audits.plan_law.comparison import differences, first_difference
from fuaudit.draws import END, START, Address, Enumeration, Keyed, Position, Purpose, Recorded, enumerate_law
from fuaudit.errors import EvidenceError, FuauditError, PluginError, UsageError
from fuaudit.plans import AvailabilityLaw, Plan, Request
from fuaudit.plans.availability import (
    BoundedRoundRobin,
    FreshBatches,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
    chance_of_cuts,
)
from fuaudit.plans.expanded import NONE, SelectedRuns, expand
from fuaudit.plans.participation import Involvement
from fuaudit.plans.plan import occurrences
from fuaudit.plans.reference import Reference, is_closed, resampled
from fuaudit.plans.stacked import LazySchedule, expand_many
from fuaudit.plans.tried_laws import require_law
from fuaudit.proofs.cut import at_own_rate, cut_toys
from fuaudit.proofs.exactness import compare, exactness, retraining, unlearning
from fuaudit.proofs.sweep import tasks_of, walked
from fuaudit.proofs.toys import Shape, federation
from fuaudit.testing.laws import check_law
from fuaudit.testing.unlearners import check_unlearner
from fuaudit.unlearning.baselines import Retrain
from fuaudit.unlearning.protocol import EVERY_LAW, exact_under

sys.path.append(str(Path(__file__).parent / "mutants"))
from fuaudit_mutants import ByWhatIsLeft, ForgedInclusion

KEY = Keyed(bytes(range(32)))
HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
ALWAYS = StaticProbability(Fraction(1))
CLIENT, SAMPLE = Request.of([0]), Request.of(samples=[0])


def poisson(rate=HALF, size=1, rounds=1, steps=1, who=ALWAYS, first_all=False):
    return AvailabilityLaw(rounds, who, PoissonBatches(steps, rate, size, divisor=1), first_all)


def law_of_batches(law, samples):
    """(What was included, what is left of it) -> probability, of one batch of a client with so many samples."""

    def procedure(draws: Enumeration):
        plan = Plan.fresh(law, federation((samples,)), draws.source("key"))
        return plan.included(1, 1, 0, 0), plan.batch(1, 1, 0, 0)

    return enumerate_law(procedure)


@pytest.mark.parametrize("rate", [HALF, THIRD, Fraction(1), Fraction(1, 100), Fraction(2**63 - 1, 2**64)])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_sample_is_included_by_itself_and_a_cut_leaves_a_uniform_set(rate, size):
    samples = 4
    found = law_of_batches(poisson(rate, size), samples)
    assert sum(found.values()) == 1
    for (included, left), probability in found.items():
        count = len(included)
        ways = comb(count, size) if count > size else 1
        assert probability == rate**count * (1 - rate) ** (samples - count) / ways
        assert len(left) == min(count, size)
        assert set(left) <= set(included)
    cut = sum(probability for (included, left), probability in found.items() if included != left)
    assert rounded_up(PoissonBatches(1, rate, size, 1).chance_of_cut(samples), cut)


def rounded_up(told, exact):
    """Whether a float is no less than a chance, and more by 1e-15 of it at most; or the smallest float there is."""
    return exact <= Fraction(told) <= exact * Fraction(10**15 + 1, 10**15) or (told == 5e-324 and exact < 5e-324)


def exact_chance(rate, size, samples):
    """The chance of a cut, term by term in fractions."""
    yes, all_ = rate.as_integer_ratio()
    ways = sum(comb(samples, k) * yes**k * (all_ - yes) ** (samples - k) for k in range(min(size, samples) + 1))
    return 1 - Fraction(ways, all_**samples)


@pytest.mark.parametrize("rate", [HALF, THIRD, Fraction(1, 100), Fraction("0.6666666666666666"), Fraction(1, 2**64)])
def test_the_chance_of_a_cut_is_rounded_up_in_its_last_digits(rate):
    assert PoissonBatches(1, HALF, 3, 1).chance_of_cut(3) == 0
    for samples in (2, 3, 7, 40, 300):
        for size in sorted({1, 2, 5, samples // 4, samples // 3, samples // 2, samples - 2, samples - 1} - {-1, 0}):
            told = PoissonBatches(1, rate, size, 1).chance_of_cut(samples)
            assert rounded_up(told, exact_chance(rate, size, samples)), (samples, size)


def test_the_chance_of_a_cut_is_found_at_once():
    """Clients of many samples: by fractions the first of these takes more than a minute, the last one hours."""
    started = perf_counter()
    for samples, rate, width, told in (
        (60_000, Fraction("0.123456789"), 8_000, 7.42e-14),
        (600_000, Fraction("0.001"), 800, 1.0),
        (600_000, Fraction("0.0006666666666666666"), 500, None),
        (10_000_000, Fraction("0.001"), 10_001, 0.4907),
    ):
        found = PoissonBatches(1, rate, width, 1).chance_of_cut(samples)
        assert 0 < found <= 1
        if told:
            assert found == pytest.approx(binom.sf(width, samples, float(rate)), rel=1e-6)
    assert perf_counter() - started < 5


def test_the_chance_of_any_cut_is_rounded_up():
    """Two clients with three and five samples, one with none; two rounds of three steps."""
    law = poisson(HALF, 2, rounds=2, steps=3)
    one = {samples: exact_chance(HALF, 2, samples) for samples in (3, 5, 6)}
    assert one[3] == pytest.approx(1 / 8)
    found = chance_of_cuts(law, federation((3, 5, 0)))
    for told, exact in (
        (found.any_batch, 1 - ((1 - one[3]) * (1 - one[5])) ** 6),
        (found.any_of_one, 1 - (1 - one[6]) ** 6),
    ):
        assert exact <= Fraction(told) <= exact * Fraction(1000001, 1000000)
    assert chance_of_cuts(law, federation((2, 1))).any_batch == 0
    assert chance_of_cuts(poisson(Fraction(1), 1), federation((2, 1))).any_batch == 1
    rare = chance_of_cuts(poisson(Fraction(1, 10**6), 40), federation((100,)))
    assert 0 < rare.any_batch < 1e-150
    assert chance_of_cuts(AvailabilityLaw(1, ALWAYS, FreshBatches(1, 1), False), federation((2,))) is None


def test_the_chance_of_many_clients_is_rounded_up_too():
    law = poisson(Fraction(1, 100), 12, rounds=10)
    told = chance_of_cuts(law, federation((50,) * 200_000)).any_batch
    one = Decimal(law.batches.chance_of_cut(50))
    with localcontext(Context(prec=60)):
        exact = 1 - (1 - one) ** 2_000_000
        assert exact <= Decimal(told) <= exact * (1 + Decimal("2e-12"))


def test_chances_that_cannot_be_are_plain_zeros():
    assert str(chance_of_cuts(poisson(HALF, 8), federation((3, 1)))) == "Cuts(any_batch=0.0, any_of_one=0.0)"


class Bigger(PoissonBatches):
    """A stranger's: it includes more than its rate says."""

    def included(self, draws, round_number, step, client, occurrence):
        at = Address(Purpose.BATCH, round_number, step, client, occurrence)
        return draws.population(at).samples[client]


def test_chances_of_a_law_of_a_stranger_are_not_known():
    law = AvailabilityLaw(1, ALWAYS, Bigger(1, Fraction(1, 1000), 1, 1), False)
    assert law.cuts
    assert chance_of_cuts(law, federation((3,))) is None
    assert chance_of_cuts(Halves(), federation((3,))) is None


@pytest.mark.parametrize("at", [START, Position(2, 0), Position(2, 1), END], ids=str)
def test_the_widest_population_is_that_of_the_draws_that_are_kept(at):
    plan = Plan.fresh(poisson(rounds=3), federation((4, 2)), KEY).erase(CLIENT, Keyed(bytes(32)), at)
    assert plan.widest == plan.populations[at == START]


def of_batches(method, law):
    """The total variation between what is left of batches after unlearning one sample of three, and in retraining."""
    laws = []
    for procedure in (
        unlearning(method, law, federation((3,)), (SAMPLE,)),
        retraining(law, federation((3,)), (SAMPLE,)),
    ):
        left = defaultdict(Fraction)
        for (initial, history), weight in enumerate_law(procedure).items():
            left[initial, tuple(round_[:2] for round_ in history)] += weight
        laws.append(left)
    return compare(*laws).total_variation


@pytest.mark.parametrize(
    ("method", "distance"),
    [
        (ByWhatIsLeft(), Fraction(5, 24)),
        (FatsUnlearning(), 0),
        (Reference(), 0),
        (Retrain(), 0),
    ],
    ids=["by what is left", "fats", "reference", "retrain"],
)
def test_keeping_by_what_is_left_of_a_cut_batch_is_not_exact(method, distance):
    """Three samples, rate 1/2, one place; with what was included, and in what is left, which makes the model."""
    found = exactness(method, poisson(), federation((3,)), (SAMPLE,))
    assert found.total_variation == distance
    assert of_batches(method, poisson()) == distance / 4


def test_without_a_cut_both_are_exact():
    for method in (ByWhatIsLeft(), FatsUnlearning()):
        assert exactness(method, poisson(size=3), federation((3,)), (SAMPLE,)).exact


# what may be kept

WHO = {
    "always": ALWAYS,
    "drawn": BoundedRoundRobin(2, "drawn"),
    "static": StaticProbability(THIRD),
    "number": TimeVaryingWeights(number=1, largest=2),
}
STREAMS = {
    "client": (CLIENT,),
    "sample": (SAMPLE,),
    "two samples": (Request.of(samples=[0, 1]),),
    "both": (Request.of([1], [0]),),
    "two": (SAMPLE, Request.of(samples=[1])),
    "two kinds": (SAMPLE, Request.of([1])),
}


@pytest.mark.parametrize("asked", STREAMS)
@pytest.mark.parametrize("who", WHO)
def test_fats_is_exact_where_batches_are_cut(who, asked):
    long = len(STREAMS[asked]) > 1 and who != "always"
    for law in (poisson(THIRD, 1, rounds=1 if long else 2, who=WHO[who]), poisson(HALF, 2, who=WHO[who])):
        assert is_closed(law)
        assert {(law.name, request.kind) for request in STREAMS[asked]} <= FatsUnlearning.exact_for
        sizes = (2, 1) if asked in ("client", "sample", "both") else (3, 1)
        assert exactness(FatsUnlearning(), law, federation(sizes), STREAMS[asked], leaves=200_000).exact


@pytest.mark.parametrize("moment", [Position(1, 1), Position(1, 2), Position(2, 0)])
def test_fats_is_exact_for_requests_during_training(moment):
    law = poisson(HALF, 1, rounds=2, steps=2)
    assert exactness(FatsUnlearning(), law, federation((2,)), (SAMPLE,), (moment,), 100_000).exact


def test_wrong_methods_are_told():
    whole = StaticProbability(HALF)
    assert not exactness(FatsAsPrinted(), poisson(who=whole), federation((2, 1)), (SAMPLE,)).exact
    for law in (poisson(THIRD, 1), poisson(HALF, 2)):
        assert not exactness(ByWhatIsLeft(), law, federation((4,)), (SAMPLE,)).exact


@dataclass(frozen=True)
class Refilled(PoissonBatches):
    """A wrong law: what an erased sample leaves open in a cut batch is not drawn anew."""

    def included(self, draws, round_number, step, client, occurrence):
        return self.batch(draws, round_number, step, client, occurrence)

    def batch(self, draws, round_number, step, client, occurrence):
        found = PoissonBatches.included(self, draws, round_number, step, client, occurrence)
        cut = Address(Purpose.CUT, round_number, step, client, occurrence)
        return found if len(found) <= self.size else draws.subset(cut, found, self.size)


def test_a_law_that_tells_what_is_left_for_what_was_included_is_not_closed():
    law = AvailabilityLaw(1, ALWAYS, Refilled(1, HALF, 1, 1), False)
    assert not is_closed(law)
    assert exactness(FatsUnlearning(), law, federation((3,)), (SAMPLE,)).total_variation == Fraction(5, 96)


# draws under keys


def test_draws_under_a_key_are_integers_by_place():
    """By the same words as single draws; with a bound of which nearly half of all words are rejected."""
    population = tuple(range(10, 40))
    for rate in (
        HALF,
        Fraction(2**62, 2**63 + 1),
        Fraction(1, 2**64),
        Fraction(2**64 - 1, 2**64),
        Fraction(1),
        Fraction(0),
    ):
        yes, bound = rate.as_integer_ratio()
        for number in range(20):
            at = Address(Purpose.BATCH, 3, number + 1, 7, 1, 2)
            expected = tuple(
                member for rank, member in enumerate(population) if KEY.integer(at, rank, bound) >= bound - yes
            )
            assert KEY.independent(at, population, rate) == expected


@pytest.mark.thorough
def test_shares_of_samples_and_of_pairs_are_those_of_the_rate():
    """100,000 draws of three: chi-square over the eight sets; false alarm 1e-9."""
    from scipy.stats import chi2

    count, rate = 100_000, Fraction(3, 10)
    found = np.zeros(8)
    for number in range(count):
        drawn = KEY.independent(Address(Purpose.BATCH, number // 1000 + 1, number % 1000 + 1, 0), (0, 1, 2), rate)
        found[sum(1 << member for member in drawn)] += 1
    expected = np.array([float(rate ** bin(s).count("1") * (1 - rate) ** (3 - bin(s).count("1"))) for s in range(8)])
    statistic = ((found - count * expected) ** 2 / (count * expected)).sum()
    assert statistic < chi2.isf(1e-9, 7)


@pytest.mark.parametrize(
    ("population", "rate", "error"),
    [
        ((1, 1), HALF, PluginError),
        ((1, 2), 0.5, PluginError),
        ((1, 2), Fraction(3, 2), PluginError),
        ((1, 2), Fraction(-1, 2), PluginError),
        ((1, 2), Fraction(1, 2**64 + 1), UsageError),
    ],
)
def test_questions_that_no_source_answers(population, rate, error):
    at = Address(Purpose.BATCH, 1, 1, 0)
    for source in (KEY, Enumeration([]).source("key"), Recorded({at: ()})):
        with pytest.raises(error):
            source.independent(at, population, rate)


def test_a_record_answers_with_any_number_of_members():
    at = Address(Purpose.BATCH, 1, 1, 0)
    assert Recorded({at: (2,)}).independent(at, (1, 2), HALF) == (2,)
    assert Recorded({at: ()}).independent(at, (1, 2), HALF) == ()
    for wrong in ((3,), (2, 2)):
        with pytest.raises(EvidenceError):
            Recorded({at: wrong}).independent(at, (1, 2), HALF)


# plans in arrays, and what is recorded of them


def plans_of(law, sizes=(6, 2, 0), count=12):
    return [Plan.fresh(law, federation(sizes), Keyed(bytes([number]) * 32)) for number in range(count)]


LAW = poisson(HALF, 2, rounds=4, steps=3, who=StaticProbability(HALF))


def test_what_was_cut_stands_beside_the_batches():
    plans = plans_of(LAW)
    together, lazy = expand_many(plans), LazySchedule(plans)
    assert together.batches.shape[-1] == 2
    cuts = 0
    for number in range(1, 5):
        drawn = lazy.round(number)
        for run, plan in enumerate(plans):
            for place, (client, occurrence) in enumerate(occurrences(plan.cohort(number))):
                for step in range(1, 4):
                    rows = [drawn.batches[run, place, step - 1], drawn.cut[run, place, step - 1]]
                    left, cut = ({*row.tolist()} - {NONE} for row in rows)
                    assert tuple(sorted(left | cut)) == plan.included(number, step, client, occurrence)
                    assert tuple(sorted(left)) == plan.batch(number, step, client, occurrence)
                    cuts += bool(cut)
        second = SelectedRuns(lazy, np.array([1]), 4).round(number)
        assert np.array_equal(second.cut, drawn.cut[1:2])
        assert np.array_equal(together.round(number).cut[:, : drawn.cut.shape[1]], drawn.cut)
    assert cuts == 50


def test_the_index_of_a_run_knows_what_was_cut():
    """Equal to drawing, for every sample; for some of them what was left of batches says another position."""
    otherwise = 0
    for plan in plans_of(LAW):
        index = Involvement.of(LazySchedule([plan]))
        bare = Involvement.of(replace(expand(plan), cut=None))
        for sample in plan.retained.owner:
            request = Request.of(samples=[sample])
            found = plan.first_involvement(request)
            assert index.first(request) == found
            otherwise += bare.first(request) != found
    assert otherwise > 10


def test_other_laws_cut_nothing():
    plan = Plan.fresh(AvailabilityLaw(2, ALWAYS, FreshBatches(2, 1), False), federation((3, 1)), KEY)
    assert expand(plan).cut is None
    assert plan.included(1, 1, 0, 0) == plan.batch(1, 1, 0, 0)


def test_position_by_position_is_one_after_another():
    """After a prune the plan is followed by what was included, not by what was left."""
    population, requests = federation((6, 3, 2)), (SAMPLE, Request.of([1]), Request.of(samples=[3, 4]))
    for number in range(20):
        sources = [Keyed(bytes([number, n]) * 16) for n in range(4)]
        plan = Plan.fresh(LAW, population, sources[0])
        for request, fresh in zip(requests, sources[1:], strict=True):
            plan = FatsUnlearning().rewrite(plan, request, fresh, END)
        assert resampled(LAW, population, sources, requests, [END] * 3) == plan


def test_a_law_of_poisson_batches_keeps_the_contract_of_laws():
    for law in (LAW, poisson(THIRD, 3, rounds=2, first_all=True)):
        check_law(law)


@pytest.mark.parametrize(
    "options",
    [{"rate": Fraction(0)}, {"rate": Fraction(5, 4)}, {"size": 0}, {"divisor": 0}, {"steps": 0}],
    ids=str,
)
def test_options_out_of_range(options):
    with pytest.raises(FuauditError):
        PoissonBatches(**{"steps": 1, "rate": HALF, "size": 1, "divisor": 1} | options)


# laws of strangers that cut


@dataclass(frozen=True)
class Halves:
    """Everybody in each round; half of the samples, of which one is left."""

    rounds: int = 1
    steps: int = 1
    slots: int = 1
    name = "halves"
    cuts = True

    def places(self, population):
        return len(population.clients)

    def smaller(self):
        return iter((self,))

    def cohort(self, draws, round_number):
        return draws.population(Address(Purpose.COHORT, round_number)).clients

    def included(self, draws, round_number, step, client, occurrence):
        at = Address(Purpose.BATCH, round_number, step, client, occurrence)
        return draws.independent(at, draws.population(at).samples[client], HALF)

    def batch(self, draws, round_number, step, client, occurrence):
        found = self.included(draws, round_number, step, client, occurrence)
        cut = Address(Purpose.CUT, round_number, step, client, occurrence)
        return draws.subset(cut, found, 1) if len(found) > 1 else found

    def drawn_at(self, step):
        return step


class Silent(Halves):
    """It does not say that it cuts."""

    cuts = False


class Others(Halves):
    """What it says was included lacks what is left."""

    def included(self, draws, round_number, step, client, occurrence):
        return ()

    def batch(self, draws, round_number, step, client, occurrence):
        return Halves().batch(draws, round_number, step, client, occurrence)


class Elsewhere(Halves):
    """It draws what is included where nobody looks for it."""

    def included(self, draws, round_number, step, client, occurrence):
        return super().included(draws, round_number, step + 1, client, occurrence)


def test_a_law_of_a_stranger_may_cut():
    check_law(Halves())
    keeps = replace(plans_of(poisson(), sizes=(3,), count=1)[0], law=Halves())
    assert keeps.included(1, 1, 0, 0) == Plan.fresh(poisson(), federation((3,)), keeps.sources[0]).included(1, 1, 0, 0)
    assert exactness(FatsUnlearning(), Halves(), federation((3,)), (SAMPLE,)).exact
    assert exactness(ByWhatIsLeft(), Halves(), federation((3,)), (SAMPLE,)).total_variation == Fraction(5, 24)
    assert of_batches(ByWhatIsLeft(), Halves()) == Fraction(5, 96)


@pytest.mark.parametrize(
    ("law", "words"),
    [(Silent(), "cuts = True"), (Others(), "holds not all of it"), (Elsewhere(), "that is not round 1, step 1")],
    ids=["silent", "others", "elsewhere"],
)
def test_what_a_stranger_says_was_included_is_looked_at(law, words):
    with pytest.raises(PluginError, match=words):
        require_law(law, federation((8, 8)))


# what was included is compared, and written down


def forged(plan):
    """The same batches, with what is left of each written down as all that was included."""
    places = [
        (number, step, client, occurrence)
        for number in range(1, plan.law.rounds + 1)
        for step in range(1, plan.law.steps + 1)
        for client, occurrence in occurrences(plan.cohort(number))
    ]
    answers = {Address(Purpose.BATCH, *place): plan.batch(*place) for place in places}
    return replace(plan, sources=(*plan.sources[:-1], Recorded(answers)))


def test_whoever_writes_down_what_is_left_for_what_was_included_is_refuted():
    """By one request: the batches that it leaves have the right law, and a second request would keep what it must not.

    Three samples, of which one is erased, rate 1/2, one place: the method draws anew, and both are included, with 3/8.
    """
    alone = exactness(ForgedInclusion(), poisson(), federation((3,)), (SAMPLE,))
    assert alone.total_variation > 0
    assert "cut from them" in str(alone.witness)
    assert exactness(FatsUnlearning(), poisson(), federation((3,)), (SAMPLE,)).exact


def test_plans_that_differ_in_what_was_cut_alone_differ():
    law = poisson(HALF, 1, rounds=2, steps=2)
    plan = Plan.fresh(law, federation((5, 1)), KEY).erase(SAMPLE, Keyed(bytes(32)), START)
    other = forged(plan)
    assert np.array_equal(expand(plan).batches, expand(other).batches)
    assert plan.history() != other.history()
    found = first_difference(other, plan)
    assert "cut from a batch with [] besides" in str(found), found
    assert [*differences([other, plan], [plan, plan])] == [found, None]
    assert first_difference(plan, other) is not None


def test_rounds_that_differ_in_what_was_cut_alone_are_not_the_same():
    plan = Plan.fresh(poisson(HALF, 1, rounds=3, steps=2), federation((4, 1)), KEY)
    one, again, other = (LazySchedule([which]) for which in (plan, plan, forged(plan)))
    assert all(one.round(number).same(again.round(number)) for number in (1, 2, 3))
    assert not all(one.round(number).same(other.round(number)) for number in (1, 2, 3))


@dataclass(frozen=True)
class Recording(FatsUnlearning):
    """An honest author, who writes down what fats draws."""

    exact_for = exact_under(EVERY_LAW)

    def rewrite(self, plan, request, fresh, not_before):
        return super().rewrite(plan, request, fresh, not_before).recorded({})


def test_what_is_written_down_has_all_that_was_included():
    """Three samples, rate 1/2, one place; with what is left alone the second request would be 5/192 away."""
    population, requests = federation((3, 1)), (SAMPLE, Request.of(samples=[1]))
    for law in (poisson(), Halves()):
        for number in range(20):
            plan = Plan.fresh(law, population, Keyed(bytes([number]) * 32))
            written = plan.recorded({})
            assert written.history() == plan.history()
            for sample in (0, 1, 2, 3):
                request = Request.of(samples=[sample])
                assert written.first_involvement(request) == plan.first_involvement(request)
        assert exactness(Recording(), law, population, requests).exact


@dataclass(frozen=True)
class CutElsewhere(Halves):
    """What is left of a batch is drawn where the batch of another participation would be."""

    def batch(self, draws, round_number, step, client, occurrence):
        found = self.included(draws, round_number, step, client, occurrence)
        at = Address(Purpose.CUT, round_number, step, client, occurrence + 1)
        return draws.subset(at, found, 1) if len(found) > 1 else found


def test_what_a_law_would_not_find_is_refused():
    plan = Plan.fresh(CutElsewhere(rounds=3), federation((4, 4)), KEY)
    with pytest.raises(UsageError, match="does not read what is written down"):
        plan.recorded({})


@dataclass(frozen=True)
class Fewer(Halves):
    """Of more than two samples one is left."""

    rounds: int = 3
    slots: int = 2

    def batch(self, draws, round_number, step, client, occurrence):
        found = self.included(draws, round_number, step, client, occurrence)
        cut = Address(Purpose.CUT, round_number, step, client, occurrence)
        return draws.subset(cut, found, 1) if len(found) > 2 else found


def test_the_index_knows_what_was_cut_where_a_law_leaves_fewer_than_there_is_room_for():
    check_law(Fewer())
    cut = 0
    for plan in plans_of(Fewer()):
        index = Involvement.of(LazySchedule([plan]))
        cut += expand(plan).cut is not None
        for sample in plan.retained.owner:
            request = Request.of(samples=[sample])
            assert index.first(request) == plan.first_involvement(request)
    assert cut == 11


class Later(Halves):
    """From round 3 on it says that nothing was included."""

    def included(self, draws, round_number, step, client, occurrence):
        return () if round_number > 2 else super().included(draws, round_number, step, client, occurrence)

    def batch(self, draws, round_number, step, client, occurrence):
        return Halves().batch(draws, round_number, step, client, occurrence)


def test_a_batch_that_was_not_included_is_refused_wherever_it_is():
    plan = Plan.fresh(Later(rounds=4), federation((8, 8)), KEY)
    require_law(plan.law, plan.retained)
    with pytest.raises(PluginError, match=r"round 3, step 1.* holds not all of it"):
        expand(plan)


# how far small federations go at the rate of the run


@dataclass(frozen=True)
class SometimesByWhatIsLeft(FatsUnlearning):
    """Right, but that from a round and a step on it goes by what is left, where that is so many."""

    exact_for = exact_under(EVERY_LAW)
    round: int = 1
    step: int = 1
    left: int = 1

    def rewrite(self, plan, request, fresh, not_before):
        return plan.erase(request, fresh, min(self._first(plan, request) or END, not_before))

    def _first(self, plan, request):
        asked = set(request.samples)
        for number, step in product(range(1, plan.law.rounds + 1), range(1, plan.law.steps + 1)):
            for client, occurrence in occurrences(plan.cohort(number)):
                place = number, step, client, occurrence
                if asked.intersection(plan.included(*place)):
                    left = plan.batch(*place)
                    wrong = number >= self.round and step >= self.step and len(left) >= self.left
                    if not wrong or asked.intersection(left):
                        return Position(number, step)
        return None


LARGE = AvailabilityLaw(30, StaticProbability(Fraction(3, 10)), PoissonBatches(5, Fraction(1, 50), 8, 4), False)


def cut_task(method):
    """What is walked of federations whose batches are cut, for one sample, with the built-in leaves."""
    (task,) = [task for task in tasks_of(LARGE, [(method, Shape(0, (1,)))]) if task.words == "1 sample, cut"]
    return walked(task, 50_000 // task.more)[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "where", [{"round": 2}, {"step": 2}, {"left": 2}, {"round": 2, "step": 2}, {"step": 2, "left": 2}], ids=str
)
def test_a_method_that_is_wrong_in_later_rounds_and_steps_alone_is_refuted(where):
    """At the rate of the run: with rate 1, by which rounds and steps are reached elsewhere, it does nothing wrong."""
    assert cut_task(SometimesByWhatIsLeft(**where)).refuted


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "leaves"), [(Shape(1, ()), 25_000), (Shape(0, (3,)), 6_000), (Shape(1, (1,)), 40_000)], ids=str
)
def test_within_the_leaves_of_the_built_in_specs_the_floor_is_reached(shape, leaves):
    assert leaves < EnumerationAudit().leaves
    law = AvailabilityLaw(8, StaticProbability(Fraction(3, 10)), PoissonBatches(2, Fraction(1, 50), 3, 3), False)
    found = EnumerationAudit(leaves=leaves).judged(law, federation((20,) * 10), [(Retrain(), shape)], ["it"])
    assert found.verdict == "PASS", found.shows


@pytest.mark.thorough
def test_enumeration_fails_a_method_that_is_wrong_from_the_second_round_on():
    method = SometimesByWhatIsLeft(round=2)
    found = EnumerationAudit(leaves=6_000).judged(LARGE, federation((20,) * 10), [(method, Shape(0, (1,)))], ["it"])
    assert found.verdict == "FAIL", found.shows


def test_a_right_method_is_walked_on_all_federations_whose_batches_are_cut():
    found = cut_task(FatsUnlearning())
    assert (len(found.proved), found.refuted, found.too_large, found.costly) == (15, (), 0, 0)
    assert {(toy.law.rounds, toy.law.steps, toy.law.slots) for toy in found.proved} == {
        *product((1, 2), (1, 2), (1, 2))
    } - {(2, 2, 2)}
    assert at_own_rate(LARGE, found.proved) == (
        "In 15 of those for samples batches have the rate of the run (at most 2 rounds, 2 steps, batches of 2).",
        "In all others every sample is included, with rate 1.",
    )


def test_other_laws_and_requests_have_no_such_federations():
    always = replace(LARGE, batches=replace(LARGE.batches, rate=Fraction(1)))
    fresh = replace(LARGE, batches=FreshBatches(5, 8))
    for law, shape in (
        (always, Shape(0, (1,))),
        (fresh, Shape(0, (1,))),
        (LARGE, Shape(1, ())),
        (Halves(), Shape(0, (1,))),
    ):
        assert not [*cut_toys(law, [shape])]
        assert at_own_rate(law, []) == ()


@pytest.mark.thorough
def test_the_contract_of_unlearners_refutes_keeping_by_what_is_left():
    claim = exact_under("static availability, Poisson batches", kinds=("sample",))
    claiming = dataclass(frozen=True)(type("Claiming", (ByWhatIsLeft,), {"exact_for": claim}))
    with pytest.raises(AssertionError, match="it is not exact for 'static availability, Poisson batches'"):
        check_unlearner(claiming())
