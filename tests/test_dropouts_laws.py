"""Laws of availability: their cohorts and batches against closed forms, and what may be kept, by enumeration."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning

from fuaudit.draws import END, Address, Enumeration, Keyed, Position, Purpose, enumerate_law
from fuaudit.errors import UsageError
from fuaudit.plans import AvailabilityLaw, Plan, Request, UniformLaw, WeightedLaw
from fuaudit.plans.availability import (
    CLOSED,
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.expanded import NONE, SelectedRuns, expand
from fuaudit.plans.participation import Involvement, Participations
from fuaudit.plans.plan import Routed
from fuaudit.plans.stacked import LazySchedule, expand_many
from fuaudit.proofs.exactness import compare, drawn, exactness, retraining
from fuaudit.proofs.sweep import sweep
from fuaudit.proofs.toys import Shape, federation, toys_like
from fuaudit.training.dropouts import Dropouts
from fuaudit.unlearning.baselines import Retrain
from fuaudit.unlearning.protocol import KINDS

KEY = Keyed(bytes(range(32)))
THIRD = Fraction(1, 3)
CLIENT, SAMPLE = Request.of([0]), Request.of(samples=[0])

WHO = {
    "aligned": BoundedRoundRobin(2),
    "drawn": BoundedRoundRobin(3, "drawn"),
    "static": StaticProbability(THIRD),
    "number": TimeVaryingWeights(number=1, largest=2),
}
WHAT = {"fresh": FreshBatches(1, 1), "epochs": PermutedEpochs(2, 1, 2), "Poisson": PoissonBatches(1, THIRD, 1, 1)}


def law_of(who, what, rounds=2, first_all=False):
    return AvailabilityLaw(rounds, WHO[who], WHAT[what], first_all)


def law_of_cohorts(law, clients):
    """Cohorts of all rounds -> probability, by enumeration."""
    population = federation((1,) * clients)

    def procedure(draws: Enumeration):
        plan = Plan.fresh(law, population, draws.source("key"))
        return tuple(plan.cohort(round_number) for round_number in range(1, law.rounds + 1))

    return enumerate_law(procedure)


def test_no_round_has_more_participations_than_the_law_says():
    """And every bound is reached: in round 1 where everybody is there."""
    laws = [law_of(who, "fresh", first_all=first) for who in WHO for first in (False, True)]
    laws += [UniformLaw(2, 3, 1, 1, replacement=True), UniformLaw(2, 3, 1, 1, replacement=False)]
    laws += [WeightedLaw(2, 3, 1, 1, ((0, 1), (1, 2)))]
    population = federation((1, 1))
    for law in laws:
        plans = [Plan.fresh(law, population, Keyed(bytes([number]) * 32)) for number in range(40)]
        most = max(len(plan.cohort(round_number)) for plan in plans for round_number in (1, 2))
        assert most == law.places(population), law
    assert [law.places(population) for law in laws[-3:]] == [3, 2, 2]


def test_static_availability_is_a_product():
    law = law_of_cohorts(law_of("static", "fresh", rounds=2), 2)
    assert len(law) == 16
    for cohorts, probability in law.items():
        there = sum(map(len, cohorts))
        assert probability == THIRD**there * (1 - THIRD) ** (4 - there)


@pytest.mark.parametrize("phase", ["aligned", "drawn"])
def test_round_robin_has_one_period_a_client_for_the_whole_run(phase):
    rounds, tau_max = 5, 3
    law = law_of_cohorts(AvailabilityLaw(rounds, BoundedRoundRobin(tau_max, phase), FreshBatches(1, 1), False), 1)
    expected = Counter()
    for tau in range(tau_max + 1):
        period = max(tau, 1)
        for start in range(period) if phase == "drawn" else [0]:
            pattern = tuple((0,) if t % period == start else () for t in range(rounds))
            expected[pattern] += Fraction(1, (tau_max + 1) * (period if phase == "drawn" else 1))
    assert law == dict(expected)


def test_periods_of_clients_are_independent():
    law = AvailabilityLaw(3, BoundedRoundRobin(3), FreshBatches(1, 1), False)
    one, two = law_of_cohorts(law, 1), law_of_cohorts(law, 2)
    for cohorts, probability in two.items():
        marginals = [one[tuple((0,) if client in cohort else () for cohort in cohorts)] for client in (0, 1)]
        assert probability == marginals[0] * marginals[1]


@pytest.mark.parametrize(("clients", "number"), [(3, 1), (3, 2), (4, 2)])
def test_weights_that_nobody_sees_make_a_uniform_set(clients, number):
    law = law_of_cohorts(AvailabilityLaw(1, TimeVaryingWeights(number, largest=3), FreshBatches(1, 1), False), clients)
    assert len(set(law.values())) == 1
    assert len(law) == {(3, 1): 3, (3, 2): 3, (4, 2): 6}[clients, number]


def test_a_share_counts_the_clients_exactly():
    """0.1 of 30 clients are three, although 0.1 * 30 is more than 3 in binary, and 0.29 of 100 are 29."""
    assert Dropouts("time-varying", 1, 1, 0.1, steps=1, share=0.1).law.availability.share == Fraction(1, 10)
    for share, clients, wanted in [("0.1", 30, 3), ("0.29", 100, 29), ("0.01", 30, 1), ("1", 4, 4)]:
        law = AvailabilityLaw(1, TimeVaryingWeights(share=Fraction(share)), FreshBatches(1, 1), False)
        assert len(Plan.fresh(law, federation((1,) * clients), KEY).cohort(1)) == wanted


def test_everybody_takes_part_in_the_first_round_where_the_law_says_so():
    for who in WHO:
        plan = Plan.fresh(law_of(who, "fresh", first_all=True), federation((2, 2, 1, 1)), KEY)
        assert plan.cohort(1) == (0, 1, 2, 3)


def test_epochs_read_every_sample_once_and_ragged_clients_take_fewer_steps():
    law = AvailabilityLaw(2, StaticProbability(Fraction(1)), PermutedEpochs(3, 2, 5), True)
    population = federation((5, 2, 3, 0))
    assert law.steps == 9
    plan = Plan.fresh(law, population, KEY)
    schedule = expand(plan)
    assert schedule.batches.shape == (1, 2, 4, 9, 2)
    orders = set()
    for round_number, (client, size) in product((0, 1), enumerate((5, 2, 3, 0))):
        for epoch in range(3):
            batches = schedule.batches[0, round_number, client, 3 * epoch : 3 * epoch + 3]
            read = batches[batches != NONE]
            assert sorted(read) == sorted(population.samples[client])
            assert ((batches != NONE).any(axis=1)).sum() == -(-size // 2)
            orders.add(tuple(read) if client == 0 else ())
    assert len(orders) > 2, "epochs are permuted anew"


def test_an_epoch_is_a_uniform_order():
    law = AvailabilityLaw(1, StaticProbability(Fraction(1)), PermutedEpochs(1, 1, 3), True)
    histories = enumerate_law(lambda draws: Plan.fresh(law, federation((3,)), draws.source("key")).history())
    assert set(histories.values()) == {Fraction(1, 6)}
    assert len(histories) == 6


def test_a_client_larger_than_the_law_says_is_an_error():
    law = AvailabilityLaw(1, StaticProbability(Fraction(1)), PermutedEpochs(1, 2, 2), True)
    with pytest.raises(UsageError, match="client 1 has 3 samples"):
        expand(Plan.fresh(law, federation((2, 3)), KEY))


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("at_once", [1, 150, 4_000_000])
def test_rounds_drawn_as_needed_are_those_drawn_at_once(who, what, at_once, monkeypatch):
    monkeypatch.setattr("fuaudit.plans.stacked.IDS_AT_ONCE", at_once)
    plans = [Plan.fresh(law_of(who, what, rounds=9), federation((2, 1, 2, 2)), Keyed(bytes([n]) * 32)) for n in (1, 2)]
    together, drawn = expand_many(plans), LazySchedule(plans)
    for number in range(1, 10):
        drawn_round = drawn.round(number)
        places = drawn_round.cohorts.shape[1]
        assert places >= 1
        assert np.array_equal(drawn_round.cohorts, together.cohorts[:, number - 1, :places])
        assert np.array_equal(drawn_round.batches, together.batches[:, number - 1, :places])
        assert (together.cohorts[:, number - 1, places:] == NONE).all()
        second = SelectedRuns(drawn, np.array([1]), 9).round(number)
        assert np.array_equal(second.cohorts, drawn_round.cohorts[1:])
        assert np.array_equal(second.batches, drawn_round.batches[1:])


def test_a_round_may_have_nobody_in_it():
    """Chance of no empty round among 40 rounds of two clients at one third each: (5/9)**40, below 1e-10; key fixed."""
    schedule = expand(Plan.fresh(law_of("static", "fresh", rounds=40), federation((1, 1)), KEY))
    assert ((schedule.cohorts == NONE).all(axis=2)).any()


# what may be kept


STREAMS = {
    "client": (CLIENT,),
    "sample": (SAMPLE,),
    "both": (Request.of([2], [0]),),
    "two": (SAMPLE, Request.of([1])),
}


@pytest.mark.parametrize("first_all", [False, True])
@pytest.mark.parametrize("asked", STREAMS)
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("who", WHO)
def test_fats_is_exact_where_the_law_is_closed(who, what, asked, first_all):
    law = law_of(who, what, first_all=first_all)
    assert {(law.name, kind) for kind in KINDS} <= FatsUnlearning.exact_for
    many = who == "number" or what == "Poisson"  # outcomes, so there is one client less where two are enough
    sizes = (2, 1) if many and asked not in ("client", "both") else (2, 1, 1)
    assert exactness(FatsUnlearning(), law, federation(sizes), STREAMS[asked], leaves=50_000).exact


@pytest.mark.parametrize("moment", [Position(2, 0), Position(1, 2), Position(2, 1)])
@pytest.mark.parametrize("who", ["aligned", "drawn", "static"])
def test_fats_is_exact_for_requests_during_training(who, moment):
    for what in (PermutedEpochs(1, 1, 2), FreshBatches(2, 1)):
        law = AvailabilityLaw(2, WHO[who], what, False)
        for request in (CLIENT, SAMPLE):
            assert exactness(FatsUnlearning(), law, federation((2, 2)), (request,), (moment,), 30_000).exact


def test_closed_laws_are_those_that_were_proved():
    proved = {law_of(who, what).name for who in WHO for what in WHAT}
    assert proved == set(CLOSED)


class PeriodsDrawnAnew(Plan):
    """A wrong plan: at every restart the periods come from the key in force in the round that asks for them."""

    def cohort(self, round_number):
        return self.law.cohort(_Following(self, round_number), round_number)


@dataclass(frozen=True)
class _Following(Routed):
    round: int

    def _route(self, at):
        moved = at._replace(round=self.round) if at.purpose is Purpose.AVAILABILITY else at
        segment = self.plan.segment("cohorts", moved.position)
        return self.plan.sources[segment.source], at._replace(version=segment.version)


class ReadsAt(AvailabilityLaw):
    """A wrong law: it says that the draw behind a batch is made where the batch is read."""

    def drawn_at(self, step):
        return step


class Wrong(NamedTuple):
    law: AvailabilityLaw
    request: Request
    plan: type[Plan] = Plan
    unlearner: object = FatsUnlearning()


WRONG = {
    # aligned clients are all there in round 1, so only a sample can leave rounds to keep
    "periods drawn anew": Wrong(
        AvailabilityLaw(3, BoundedRoundRobin(3), WHAT["fresh"], False), SAMPLE, PeriodsDrawnAnew
    ),
    "phases drawn anew": Wrong(
        AvailabilityLaw(2, BoundedRoundRobin(2, "drawn"), WHAT["fresh"], False), CLIENT, PeriodsDrawnAnew
    ),
    "restart inside an epoch": Wrong(ReadsAt(1, StaticProbability(THIRD), PermutedEpochs(1, 1, 2), False), SAMPLE),
    "a share of the clients": Wrong(
        AvailabilityLaw(1, TimeVaryingWeights(share=Fraction(2, 3), largest=2), WHAT["fresh"], False), CLIENT
    ),
    "cohort drawn anew after a look at the batch": Wrong(
        law_of("static", "fresh", rounds=1), SAMPLE, unlearner=FatsAsPrinted()
    ),
}


def distance(wrong):
    """Total variation from retraining."""
    population = federation((2, 1, 1))

    def procedure(draws: Enumeration):
        plan = wrong.plan.fresh(wrong.law, population, draws.source("training"))
        return drawn(draws, wrong.unlearner.rewrite(plan, wrong.request, draws.source("request"), END))

    laws = enumerate_law(procedure), enumerate_law(retraining(wrong.law, population, [wrong.request]))
    return compare(*laws).total_variation


@pytest.mark.parametrize("name", WRONG)
def test_wrong_variants_are_refuted(name):
    assert distance(WRONG[name]) > 0


@pytest.mark.parametrize("name", ["periods drawn anew", "phases drawn anew", "restart inside an epoch"])
def test_and_their_right_forms_are_not(name):
    wrong = WRONG[name]
    law = AvailabilityLaw(wrong.law.rounds, wrong.law.availability, wrong.law.batches, wrong.law.first_all)
    assert distance(Wrong(law, wrong.request)) == 0


def test_a_share_needs_retraining():
    law = AvailabilityLaw(1, TimeVaryingWeights(share=Fraction(2, 3), largest=2), WHAT["fresh"], False)
    assert (law.name, "client") not in FatsUnlearning.exact_for
    assert exactness(Retrain(), law, federation((2, 1, 1)), (CLIENT,)).exact
    assert exactness(FatsUnlearning(), law, federation((2, 1, 1)), (SAMPLE,)).exact, "samples change no share"


def test_a_period_is_kept_with_the_rounds_that_show_it():
    law = AvailabilityLaw(12, BoundedRoundRobin(5), FreshBatches(1, 1), False)
    plan = Plan.fresh(law, federation((2,) * 6), KEY)
    after = plan.erase(CLIENT, Keyed(bytes(32)), Position(4, 0))
    for round_number in range(1, 13):  # rounds 1 to 3 are kept whole; from round 4 on client 0 is gone
        assert after.cohort(round_number) == tuple(
            client for client in plan.cohort(round_number) if client or round_number < 4
        )


def test_first_involvement_is_where_the_order_of_an_epoch_is_drawn():
    law = AvailabilityLaw(3, StaticProbability(THIRD), PermutedEpochs(2, 1, 4), False)
    for number in range(20):
        plan = Plan.fresh(law, federation((4, 4)), Keyed(bytes([number]) * 32))
        rounds = [round_number for round_number in (1, 2, 3) if 0 in plan.cohort(round_number)]
        expected = Position(rounds[0], 1) if rounds else None
        assert plan.first_involvement(SAMPLE) == expected
        indexed = Plan(plan.law, plan.populations, plan.sources, index=Involvement.of(expand(plan)))
        assert indexed.first_involvement(SAMPLE) == expected


def test_audits_have_small_federations_of_these_laws():
    for who, what in product(("drawn", "static", "number"), WHAT):
        toys = list(toys_like(law_of(who, what, rounds=30), [Shape(1, ())]))
        assert toys
        assert {toy.law.name for toy in toys} == {law_of(who, what).name}
        found = sweep(FatsUnlearning(), toys[:8], 20_000)
        assert found.proved
        assert not found.refuted
    share = AvailabilityLaw(30, TimeVaryingWeights(share=Fraction(1, 10)), WHAT["fresh"], False)
    assert sweep(FatsUnlearning(), list(toys_like(share, [Shape(1, ())])), 20_000).refuted


# gaps and options


@pytest.mark.parametrize("first_all", [False, True])
@pytest.mark.parametrize(
    ("half", "always"),
    [(BoundedRoundRobin(3), True), (BoundedRoundRobin(3, "drawn"), False), (StaticProbability(Fraction(1, 2)), False)],
    ids=str,
)
@pytest.mark.parametrize(("work", "kinds"), [("fresh", {"clients"}), ("epochs", {"clients", "samples"})])
def test_whom_the_first_round_involves_whatever_is_drawn(half, always, first_all, work, kinds):
    """Held against plans: in each, everybody named is in the first round."""
    law = AvailabilityLaw(2, half, WHAT[work], first_all)
    assert law.first_round_involves == (kinds if always or first_all else set())
    members = federation((2, 1, 2))
    for number in range(20):
        plan = Plan.fresh(law, members, Keyed(bytes([number]) * 32))
        if "clients" in law.first_round_involves:
            assert {plan.first_involvement(Request.of([c])).round for c in members.clients} == {1}
        if "samples" in law.first_round_involves:
            assert {plan.first_involvement(Request.of(samples=[s])).round for s in members.owner} == {1}


def gaps(cohorts, clients):
    return Participations(tuple(cohorts), tuple((1,) * len(cohort) for cohort in cohorts)).longest_gaps(clients)


def test_gaps_count_from_before_the_first_round_to_after_the_last():
    cohorts = [(0, 1), (0,), (), (0, 1), (0,)]
    assert gaps(cohorts, (0, 1, 2)) == {0: 2, 1: 3, 2: 6}
    assert gaps([(0,)] * 4, (0,)) == {0: 1}
    assert gaps([(0, 7)], (0,)) == {0: 1}, "clients that are not asked about do not count"


def test_steps_that_were_taken_are_counted():
    """Five, two and no samples in batches of two: three, one and no steps an epoch, of four that there is room for."""
    plan = Plan.fresh(
        AvailabilityLaw(2, StaticProbability(Fraction(1)), PermutedEpochs(2, 2, 8)), federation((5, 2, 0)), KEY
    )
    for schedule in (expand(plan), LazySchedule([plan])):
        seen = Participations.of(schedule)
        assert seen.cohorts == ((0, 1, 2),) * 2
        assert seen.steps == ((6, 2, 0),) * 2


@pytest.mark.parametrize(
    "half",
    [
        *(BoundedRoundRobin(tau, phase) for tau in (0, 1, 2, 9) for phase in ("aligned", "drawn")),
        *(StaticProbability(Fraction(n, 10)) for n in (1, 10)),
        *(TimeVaryingWeights(number, largest=w) for number in (1, 9) for w in (1, 10)),
        *(TimeVaryingWeights(share=Fraction(n, 10)) for n in (1, 10)),
        *(FreshBatches(steps, size) for steps in (1, 9) for size in (1, 9)),
        *(PermutedEpochs(epochs, size, most) for epochs in (1, 9) for size in (1, 9) for most in (1, 9)),
    ],
    ids=str,
)
def test_every_law_has_a_small_form_that_is_enumerated(half):
    """Without one, enumeration has nothing to say of a run, and no erasure passes."""
    small = list(half.smaller())
    assert small
    assert {form.name for form in small} == {half.name}


@pytest.mark.parametrize(
    "options",
    [
        {"scenario": "static", "steps": 1},
        {"scenario": "static", "steps": 1, "tau_max": 3},
        {"scenario": "static", "steps": 1, "probability": 0.1, "tau_max": 3},
        {"scenario": "static", "steps": 1, "probability": 0.0},
        {"scenario": "static", "steps": 1, "probability": 1.5},
        {"scenario": "static", "steps": 1, "probability": float("nan")},
        {"scenario": "round-robin", "steps": 1, "tau_max": -1},
        {"scenario": "time-varying", "steps": 1, "share": 0.1, "active": 3},
        {"scenario": "time-varying", "steps": 1, "active": 0},
        {"scenario": "static", "probability": 0.1},
        {"scenario": "static", "probability": 0.1, "steps": 1, "epochs": 1},
        {"scenario": "static", "probability": 0.1, "epochs": 1},
        {"scenario": "static", "probability": 0.1, "steps": 0},
        {"scenario": "static", "probability": 0.1, "steps": 1, "decay": 1.5},
        {"scenario": "static", "probability": 0.1, "steps": 1, "phase": "drawn"},
        {"scenario": "static", "probability": 0.1, "steps": 1, "largest_client": 5},
        {"scenario": "static", "probability": 0.1, "steps": 1, "step_size": float("inf")},
    ],
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(UsageError):
        Dropouts(**{"rounds": 2, "batch": 1, "step_size": 0.1, **options})


@pytest.mark.parametrize("number", [1 / 7000, 1e-20])
def test_a_decimal_that_no_draw_can_decide_is_refused_by_name(number):
    """Its denominator is above the number of words: every word of a draw would be rejected, for ever."""
    for scenario, option in (("static", "probability"), ("time-varying", "share")):
        with pytest.raises(UsageError, match=f"{option} has too many digits"):
            Dropouts(scenario, rounds=2, batch=1, step_size=0.1, steps=1, **{option: number})
    Dropouts("static", rounds=2, batch=1, step_size=0.1, steps=1, probability=1e-19)


def test_addresses_of_periods_are_those_of_the_start():
    """One draw a client and run: at the first position, whichever round asks."""
    asked = set()

    class Watching:
        def population(self, at):
            return federation((1, 1))

        def sequence(self, at, population, count):
            asked.add(at)
            return (population[-1],)

    law = AvailabilityLaw(5, BoundedRoundRobin(4, "drawn"), FreshBatches(1, 1), False)
    for round_number in range(1, 6):
        law.cohort(Watching(), round_number)
    start = Address(Purpose.AVAILABILITY)
    assert asked == {start._replace(client=c, occurrence=o) for c in (0, 1) for o in (0, 1)}


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("who", WHO)
def test_what_the_law_would_not_read_is_not_written_down(who, what):
    """It would have been refused as evidence later, in words that blame the run."""
    plan = Plan.fresh(law_of(who, what), federation((2, 2, 2)), KEY).restart(CLIENT, Keyed(bytes(32)))
    with pytest.raises(UsageError, match="does not read what is written down as cohorts and batches"):
        plan.recorded({})


def test_who_is_always_there_is_not_written_down():
    """Nobody reads such a cohort, and a run that holds draws which its plan does not read is refused."""
    law = AvailabilityLaw(2, StaticProbability(Fraction(1)), FreshBatches(1, 1), False)
    plan = Plan.fresh(law, federation((2, 2, 2)), KEY).restart(CLIENT, Keyed(bytes(32)))
    written = plan.recorded({})
    assert written.history() == plan.history()
    assert {at.purpose for at in written.sources[-1].answers} == {Purpose.BATCH}
    assert len(written.sources[-1].answers) == 4
