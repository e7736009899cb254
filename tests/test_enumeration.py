"""Level 4: which small federations are looked at, how far they go, and which wrong methods they refute."""

import sys
from collections import Counter
from dataclasses import InitVar, dataclass, field, replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import ClassVar

import pytest
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning
from tests_support import config, drawn_client, secret

from fuaudit import train, unlearn
from fuaudit.audits.enumeration import Enumeration, requests_made
from fuaudit.draws import END, START, Address, Keyed, Position, Purpose, estimate_leaves
from fuaudit.draws.enumerating import paths
from fuaudit.errors import KeyReuseError, PluginError
from fuaudit.plans import AvailabilityLaw, Plan, Request, UniformLaw
from fuaudit.plans.availability import (
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.reference import Edited
from fuaudit.proofs import exactness
from fuaudit.proofs.chance import drawn_toys
from fuaudit.proofs.coverage import Coverage
from fuaudit.proofs.exactness import estimated_leaves
from fuaudit.proofs.sweep import _identity, sweep, swept, tasks_of, walked
from fuaudit.proofs.toys import PLACES, AllToys, Shape, Toy, federation, further_trials, leaves_choice, toys_like
from fuaudit.proofs.variation import Variation, variation
from fuaudit.runs.ancestors import parent_of
from fuaudit.unlearning.baselines import Noop, Retrain
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow.prune import prune

sys.path.append(str(Path(__file__).parent / "mutants"))
import fuaudit_mutants as mutants

RUN = UniformLaw(30, 4, 5, 8)
MEMBERS = federation((20,) * 10)
CLIENT, SAMPLE, TWO, MIXED = Shape(1, ()), Shape(0, (1,)), Shape(0, (2,)), Shape(1, (1,))
TWO_CLIENTS = Shape(2, ())


def key_of(number):
    return Keyed(secret(number))


def judged(method, *shapes, law=RUN, members=MEMBERS, **options):
    return Enumeration(**options).judged(law, members, [(method, shape) for shape in shapes], ["it"] * len(shapes))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "shape"),
    [
        (mutants.PicksInitial(), CLIENT),
        (mutants.PicksInitial(), SAMPLE),
        (mutants.LowestFree(), SAMPLE),
        (mutants.PrintedButLowest(), SAMPLE),
        (mutants.PrintedForTwo(), TWO),
        (mutants.PrintedFromFour(), SAMPLE),
        (mutants.CohortTwice(), CLIENT),
        (FatsAsPrinted(), SAMPLE),
        (FatsAsPrinted(), MIXED),
        (mutants.Late(), CLIENT),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, Shape) else str(value),
)
def test_wrong_methods_are_refuted(method, shape):
    found = judged(method, shape)
    assert found.verdict == "FAIL", found.shows
    assert Fraction(found.values["total_variation"]) > 0
    assert any(detail.startswith("smallest federation: ") for detail in found.details)


@pytest.mark.parametrize(
    ("sizes", "expected"), [((5, 4), Fraction(1, 10)), ((6, 6), Fraction(1, 10))], ids=["5 + 4", "6 + 6"]
)
def test_the_lowest_free_id_is_as_far_away_as_was_found(sizes, expected):
    law, members = UniformLaw(1, 1, 1, 3), federation(sizes)
    found = exactness(mutants.LowestFree(), law, members, [Request.of(samples=[0])])
    assert found.total_variation == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    "shapes", [(CLIENT,), (SAMPLE,), (TWO,), (MIXED,), (Shape(2, ()),), (Shape(0, (2, 1)),)], ids=str
)
def test_a_pass_states_how_far_it_goes(shapes):
    found = judged(FatsUnlearning(), *shapes, leaves=6_000)
    assert found.verdict == "PASS", found.shows
    for words in (
        "at most 3 rounds, 3 places",
        "batches of 3",
        "lowest, middle and highest ids",
        "2 drawing clients in a round",
        "of rounds, places, steps, batch and drawing clients are above 1",
    ):
        assert words in found.shows


@pytest.mark.thorough
@pytest.mark.parametrize("shapes", [(CLIENT,), (SAMPLE, CLIENT), (CLIENT, CLIENT)], ids=str)
def test_each_federation_is_counted_once(shapes):
    """Tasks have some in common: the fixed list, streams, and what the key draws. Methods are walked once on each."""
    law, made = UniformLaw(4, 3, 2, 4), [(FatsUnlearning(), shape) for shape in shapes]
    found, reached = swept(law, MEMBERS, made, 1_500, key=key_of(1))

    def told(toy):
        return toy.law, tuple(toy.population.samples.items()), toy.requests, toy.not_before

    tasks = tasks_of(law, made, key_of(1))
    several = Counter(told(toy) for task in tasks for toy in task.toys)
    proved = [told(toy) for toy in found.proved]
    assert max(several[toy] for toy in proved) > 1, "no federation is in two tasks"
    assert len(proved) == len(set(proved))
    assert 0 < reached.drawn < len(proved)
    assert found.leaves == sum(exactness(FatsUnlearning(), *toy).leaves for toy in found.proved)


@pytest.mark.thorough
def test_a_pass_is_told_in_short_sentences():
    """One of some 700 characters nobody reads to its end."""
    made = [(FatsUnlearning(), replace(SAMPLE, moment=1)), (FatsUnlearning(), CLIENT)]
    found = Enumeration(leaves=6_000).judged(RUN, MEMBERS, made, ["it"] * 2, key=key_of(1))
    assert found.verdict == "PASS", found.shows
    sentences = found.shows.removesuffix(".").split(". ")
    assert max(map(len, sentences)) < 270, sentences
    assert sentences[0].endswith(" small federations the plan has exactly the law of retraining (total variation 0)")
    for begins in (
        "With 1 request: at most 3 rounds, ",
        "With 1 request, during training, after 1 round: at most 3 rounds, ",
        "With 2 requests, one after another, during training, after 2 rounds: at most 3 rounds, ",
    ):
        assert any(sentence.startswith(begins) for sentence in sentences), begins
    assert sentences[-1].endswith(
        " of the federations were drawn by the key of the audit, with sizes, ids and owners as they came"
    )


@pytest.mark.thorough
def test_streams_and_requests_during_training_are_enumerated_as_they_were_made():
    made = [(FatsUnlearning(), replace(SAMPLE, moment=1)), (Retrain(), CLIENT), (FatsUnlearning(), TWO)]
    tasks = tasks_of(RUN, made)
    words = [task.words for task in tasks]
    for stop, when in ((1, "1 round"), (2, "2 rounds")):
        assert f"1 sample during training, after {when}, then 1 client, then 2 samples" in words
        assert f"1 sample during training, after {when}" in words
        moments = {toy.not_before[0] for task in tasks if task.stop == stop for toy in task.toys}
        assert moments == {Position(stop + 1, 0)}
    after = {toy.not_before for task in tasks if task.alone and not task.stop for toy in task.toys}
    assert after == {(END,)}
    found = Enumeration(leaves=6000).judged(RUN, MEMBERS, made[:2], ["it"] * 2)
    assert found.verdict == "PASS", found.shows
    assert "2 requests, one after another" in found.shows
    assert ", during training, after 2 rounds: at most 3 rounds, " in found.shows


@dataclass(frozen=True)
class ByWeight(UniformLaw):
    """One client a round, by a weight of hers."""

    weights: tuple[int, ...] = (1, 2, 3, 4, 5)

    def cohort(self, draws, round_number):
        at = Address(Purpose.COHORT, round_number)
        clients = draws.population(at).clients
        return draws.weighted(at, clients, [self.weights[client] for client in clients], 1)

    def smaller(self):
        return (replace(self, rounds=rounds, cohort_size=1, steps=1, batch_size=1) for rounds in (1, 2))


def test_the_key_draws_no_more_clients_than_lists_have_under_a_law_of_a_stranger():
    """It may have a number for each client of its run, and none for more."""

    def clients(law):
        tasks = tasks_of(law, [(Retrain(), CLIENT)], key_of(1))
        return [
            max(len(toy.population.clients) for task in tasks if task.drawn == key for toy in task.toys)
            for key in (0, 1)
        ]

    @dataclass(frozen=True)
    class Large(ByWeight):
        def smaller(self):
            return ()

    assert judged(Retrain(), CLIENT, law=Large(3, 1, 2, 4)).verdict == "INCONCLUSIVE"
    found = Enumeration().judged(Large(3, 1, 2, 4), MEMBERS, [(Retrain(), CLIENT)], ["it"], key=key_of(1))
    assert found.verdict == "INCONCLUSIVE"
    assert clients(UniformLaw(3, 1, 2, 4))[1] > 5
    assert clients(ByWeight(3, 1, 2, 4)) == [5, 5]


def test_streams_of_three_are_walked():
    made = [(FatsUnlearning(), SAMPLE), (Retrain(), CLIENT), (FatsUnlearning(), SAMPLE)]
    found = Enumeration(leaves=6000).judged(RUN, MEMBERS, made, ["it"] * 3)
    assert found.verdict == "PASS", found.shows
    assert "3 requests, one after another" in found.shows


DURING = {
    "rounds": lambda plan, executed: executed == 2,
    "places": lambda plan, executed: executed > 0 and plan.law.cohort_size > 1,
    "steps": lambda plan, executed: executed == 2 and plan.law.steps > 1,
    "batch": lambda plan, executed: executed > 0 and plan.law.batch_size > 1,
}


@dataclass(frozen=True)
class PrintedDuring(FatsUnlearning):
    """As printed for requests during training alone, and there for some laws and stops."""

    what: str = ""

    def rewrite(self, plan, request, fresh, not_before):
        during = not_before.round <= plan.law.rounds
        wrong = during and DURING[self.what](plan, not_before.round - 1)
        return (FatsAsPrinted() if wrong else FatsUnlearning()).rewrite(plan, request, fresh, not_before)


@pytest.mark.thorough
@pytest.mark.parametrize("what", DURING)
def test_who_is_wrong_during_training_alone_is_refuted_there(what):
    found = judged(PrintedDuring(what), replace(SAMPLE, moment=1), leaves=6000)
    assert found.verdict == "FAIL", found.shows
    assert "when round" in "".join(found.details)
    assert judged(PrintedDuring(what), SAMPLE, leaves=6_000).verdict == "PASS"


@pytest.mark.thorough
@pytest.mark.parametrize(("shape", "leaves"), [(CLIENT, 6_000), (SAMPLE, 6_000), (Shape(0, (3,)), 50_000)], ids=str)
def test_epochs_of_clients_that_come_and_go_reach_the_floor(shape, leaves):
    """In example dropouts-mimic no law has two rounds and two steps with batches of one: the next larger one counts.

    And of three samples of one client two are left, and two of another client: that takes room for five.
    """
    law = AvailabilityLaw(40, BoundedRoundRobin(5, "drawn"), PermutedEpochs(1, 8, 89), first_all=False)
    assert judged(Retrain(), shape, law=law, members=federation((40,) * 20), leaves=leaves).verdict == "PASS"


def test_what_reaches_too_little_says_what_would_reach_more():
    found = judged(FatsUnlearning(), CLIENT, leaves=50)
    assert "not reached: " in found.shows
    assert found.shows.endswith("A spec of your own may allow more leaves.")


@dataclass(frozen=True)
class Half(UniformLaw):
    """Half of the clients that are there."""

    name: ClassVar[str] = "half of the clients"

    def places(self, population):
        return max(1, len(population.clients) // 2)

    def cohort(self, draws, round_number):
        at = Address(Purpose.COHORT, round_number)
        clients = draws.population(at).clients
        return draws.subset(at, clients, max(1, len(clients) // 2))

    def smaller(self):
        numbers = product(*(range(1, min(own, 2) + 1) for own in (self.rounds, self.steps, self.batch_size)))
        return (replace(self, rounds=n, steps=s, batch_size=b, cohort_size=1) for n, s, b in numbers)


@dataclass(frozen=True)
class Picky(Half):
    """It cannot say its places of few clients."""

    def places(self, population):
        if len(population.clients) < 4:
            raise ValueError("fewer than four clients")
        return super().places(population)


def test_a_law_that_breaks_is_named():
    with pytest.raises(PluginError, match="the law Picky, places, raised ValueError"):
        judged(Retrain(), CLIENT, law=Picky(3, 2, 1, 2))


@pytest.mark.thorough
def test_two_places_are_reached_where_they_take_four_clients():
    assert judged(Retrain(), CLIENT, law=Half(3, 2, 1, 2)).verdict == "PASS"


@pytest.mark.parametrize("leaves", [3000, 6_000])
def test_requests_during_training_have_a_floor(leaves):
    """With few leaves the smallest federations alone are walked."""
    found = judged(FatsUnlearning(), replace(SAMPLE, moment=1), leaves=leaves)
    assert found.verdict == ("PASS" if leaves > 3000 else "INCONCLUSIVE"), found.shows
    short = "places 2 (only 1) for 1 sample during training, after 1 round"
    assert (short in found.shows) is (leaves == 3000), found.shows


def test_who_is_wrong_for_three_distinct_clients_alone_is_refuted():
    """With three clients left a cohort of three is everybody, and nothing can be tilted."""
    law = UniformLaw(10, 3, 3, 4, replacement=False)
    found = judged(mutants.TiltsThree(), CLIENT, law=law, members=federation((8,) * 8))
    assert found.verdict == "FAIL", found.shows
    assert any("5 clients" in detail and "cohort 3" in detail for detail in found.details)


DRAWN_FROM = {
    "distinct": UniformLaw(10, 3, 3, 4, replacement=False),
    "with replacement": UniformLaw(10, 3, 3, 4, replacement=True),
    "static": AvailabilityLaw(9, StaticProbability(Fraction(1, 3)), FreshBatches(2, 3), first_all=False),
    "always": AvailabilityLaw(9, BoundedRoundRobin(0), FreshBatches(2, 3), first_all=False),
    "always, full batches": AvailabilityLaw(9, StaticProbability(Fraction(1)), FreshBatches(2, 3)),
    "aligned": AvailabilityLaw(9, BoundedRoundRobin(2), FreshBatches(2, 2)),
    "drawn phases": AvailabilityLaw(9, BoundedRoundRobin(2, "drawn"), FreshBatches(1, 2), first_all=False),
    "epochs": AvailabilityLaw(9, StaticProbability(Fraction(1, 2)), PermutedEpochs(2, 2, 20)),
    "a number": AvailabilityLaw(9, TimeVaryingWeights(number=2), FreshBatches(2, 3), first_all=False),
}


def all_plans(law, population):
    return lambda draws: Plan.fresh(law, population, draws.source("all")).history()


def few_of(law, *shapes):
    """Some federations of a law of which all plans can be drawn, from small to large."""
    toys = [toy for toy in toys_like(law, shapes) if estimate_leaves(all_plans(toy.law, toy.retained), 4) <= 400]
    return toys[:: max(1, len(toys) // 8)]


def seen_to_vary(law, population):
    """The specification of what can vary: every plan is drawn in full."""
    plans = [history for history, _ in paths(all_plans(law, population), 10_000)]
    cohorts, batches, together = {}, {}, {}
    for plan in plans:
        for number, (cohort, places) in enumerate(plan):
            cohorts.setdefault((number, len(cohort)), set()).add(cohort)
            for client, steps in zip(cohort, places, strict=True):
                for step, batch in enumerate(steps):
                    batches.setdefault((number, step, client, len(batch)), set()).add(batch)
                    together.setdefault((number, cohort, step), {}).setdefault(client, set()).add(batch)
    varying = [at for at, drawn in batches.items() if len(drawn) > 1]
    return Variation(
        rounds=sum(len(set(drawn)) > 1 for drawn in zip(*plans, strict=True)),
        places=max((size for (_, size), drawn in cohorts.items() if len(drawn) > 1), default=0),
        steps=len({step for _, step, _, _ in varying}),
        batch=max((size for _, _, _, size in varying), default=0),
        drawing=max((sum(len(drawn) > 1 for drawn in who.values()) for who in together.values()), default=0),
    )


@pytest.mark.parametrize("law", DRAWN_FROM.values(), ids=DRAWN_FROM)
@pytest.mark.parametrize("shapes", [(CLIENT,), (SAMPLE,), (replace(CLIENT, moment=1),)], ids=str)
def test_what_counts_is_what_is_seen_to_vary(law, shapes):
    for toy in few_of(law, *shapes):
        assert variation(toy.law, toy.retained) == seen_to_vary(toy.law, toy.retained), str(toy)


@pytest.mark.parametrize("law", DRAWN_FROM.values(), ids=DRAWN_FROM)
def test_pairs_count_where_both_vary_in_one_federation(law):
    toys = few_of(law, CLIENT)
    above = [[n for n, number in seen_to_vary(t.law, t.retained)._asdict().items() if number > 1] for t in toys]
    assert Coverage.of(toys).pairs == {pair for names in above for pair in combinations(names, 2)}


@pytest.mark.parametrize(
    ("method", "shape"),
    [
        (mutants.EchoesBatches(), CLIENT),
        (mutants.EchoesBatches(), TWO_CLIENTS),
        (mutants.EchoesBatches(), replace(CLIENT, moment=1)),
    ],
    ids=["a client", "two clients", "during training"],
)
@pytest.mark.parametrize("replacement", [True, False], ids=["with replacement", "distinct"])
def test_batches_of_two_clients_that_depend_on_each_other_are_refuted(method, shape, replacement):
    found = judged(method, shape, law=UniformLaw(8, 3, 5, 8, replacement))
    assert found.verdict == "FAIL", found.shows


WHO_IS_WHO = {
    "batches of unequal clients": (mutants.MirrorsUnequal(), (CLIENT,)),
    "where who leaves had a choice": (mutants.MirrorsForOwner(), (CLIENT,)),
    "where who leaves was asked for before": (mutants.MirrorsForLeaver(), (SAMPLE, CLIENT)),
    "a slice of the samples": (mutants.Neighbours(), (CLIENT,)),
    "as printed for another owner": (mutants.PrintedForAnother(), (SAMPLE, SAMPLE)),
}
"""Methods that are right wherever clients are alike, and each request names new ones or the same ones."""


@pytest.mark.thorough
@pytest.mark.parametrize("method", WHO_IS_WHO)
def test_who_is_who_is_walked(method):
    unlearner, shapes = WHO_IS_WHO[method]
    tasks = tasks_of(UniformLaw(8, 3, 5, 4), [(unlearner, shape) for shape in shapes])
    assert any(walked(task, 4_000)[0].refuted for task in tasks if task.more and len(task.shapes) == len(shapes))


@pytest.mark.parametrize("method", ["a slice of the samples", "as printed for another owner"])
def test_without_lists_keys_find_them(method):
    """What lists have no room for is found by chance; not all of it as often."""
    unlearner, shapes = WHO_IS_WHO[method]
    made, law = [(unlearner, shape) for shape in shapes], UniformLaw(8, 3, 5, 4, replacement=False)
    for number in range(2):
        drawn = (t for t in tasks_of(law, made, key_of(number)) if t.drawn and len(t.shapes) == len(shapes))
        assert any(walked(task, 5000)[0].refuted for task in drawn)


@dataclass(frozen=True)
class Hides(FatsUnlearning):
    """Draws without need wherever somebody who is left, or the last of them, has so many samples more than a batch."""

    more: int = 2
    last: bool = False

    def rewrite(self, plan, request, fresh, not_before):
        new = super().rewrite(plan, request, fresh, not_before)
        asked = list(new.retained.samples.values())[-1 if self.last else 0 :]
        if any(len(samples) >= plan.law.slots + self.more for samples in asked):
            fresh.sequence(Address(Purpose.BATCH, 1, 1, 0, 0, version=9), range(64), 3)
        return new


@pytest.mark.thorough
@pytest.mark.parametrize(("more", "number"), [(2, 1), (3, 1), (3, 2)], ids=["in most", "in some", "another key"])
def test_who_hides_from_federations_by_chance_is_told(more, number):
    """Lists reach two samples more than a batch; from there on it is what the key draws."""
    law, made = UniformLaw(8, 3, 5, 4, replacement=False), [(Hides(more), CLIENT)]
    found = Enumeration(leaves=6_000).judged(law, MEMBERS, made, ["hides"], key=key_of(number))
    assert found.verdict == "INCONCLUSIVE"
    assert "draws far more than one that keeps what it may" in found.shows
    assert found.values["costly"] > 0


@pytest.mark.thorough
def test_a_pass_names_federations_that_were_too_large_for_the_method_alone():
    """The method is right, and draws more than it needs on few of them."""
    law, made = UniformLaw(8, 3, 5, 4, replacement=False), [(Hides(3, last=True), CLIENT)]
    found = Enumeration(leaves=12_000).judged(law, MEMBERS, made, ["hides"], key=key_of(1))
    costly = found.values["costly"]
    assert found.verdict == "PASS"
    assert f" {costly} more of that key {'was' if costly == 1 else 'were'} not walked." in found.shows
    (line,) = (
        line for line in found.assumptions if line.startswith("Nothing is wrong where the method draws far more")
    )
    assert f": {costly} of the small federations that the key drew were not walked for that." in line


def test_federations_by_chance_follow_from_the_key():
    law = UniformLaw(8, 3, 5, 4)
    first, again, other = ([*drawn_toys(law, [CLIENT], key_of(number), 60)] for number in (1, 1, 2))
    assert first == again != other
    for shape in (CLIENT, SAMPLE, TWO, MIXED, replace(CLIENT, moment=1)):
        toys = [*drawn_toys(law, [shape, SAMPLE], key_of(3), 60)]
        assert len(toys) > 20
        for toy in toys:
            assert leaves_choice(toy.population, toy.requests)
            asked = toy.requests[0]
            assert (len(asked.clients), len(asked.samples)) == (shape.clients, sum(shape.samples))
            assert (toy.not_before[0] == END) == (shape.moment is None)


@pytest.mark.thorough
def test_steps_that_depend_on_each_other_in_cohorts_that_vary_are_refuted():
    """During training alone: with distinct clients a third one must be left."""
    law = UniformLaw(8, 3, 5, 8, replacement=False)
    found = judged(mutants.RepeatsInSome(), replace(CLIENT, moment=1), law=law, leaves=25_000)
    assert found.verdict == "FAIL", found.shows


@pytest.mark.thorough
@pytest.mark.parametrize("leaves", [500, 2000, 4000])
def test_steps_of_batches_that_cannot_vary_reach_no_floor(leaves):
    """The built-in spec walks 50,000; fewer may not refute it, and do not pass it."""
    found = judged(mutants.RepeatsLate(), replace(CLIENT, moment=1), law=UniformLaw(8, 3, 5, 8, False), leaves=leaves)
    assert found.verdict != "PASS", found.shows


def test_three_places_of_three_distinct_clients_do_not_count():
    toys = [
        Toy(UniformLaw(1, 3, 1, 2, replacement=False), federation(sizes), (Request.of([0]),), (END,))
        for sizes in ((2, 2, 1, 1), (2, 2, 1, 1, 1), (2, 3, 1, 1, 1))
    ]
    assert [(Coverage.of([toy]).places, Coverage.of([toy]).batch) for toy in toys] == [(0, 0), (3, 0), (3, 2)]
    assert [("places", "batch") in Coverage.of([toy]).pairs for toy in toys] == [False, False, True]
    words = str(Coverage.of(toys[:1]))
    assert words.startswith("at most rounds that cannot vary, ")
    assert "rounds of which no cohort can vary, batches that cannot vary, 4 clients" in words
    assert "never batches of two clients" in words


@pytest.mark.parametrize("leaves", [0, 20, 300])
def test_too_little_coverage_is_inconclusive(leaves):
    found = judged(FatsUnlearning(), SAMPLE, leaves=leaves)
    assert found.verdict == "INCONCLUSIVE"
    assert "not reached" in found.shows or "could be enumerated" in found.shows


def test_a_run_asks_for_no_more_than_it_has():
    small = UniformLaw(1, 1, 1, 1)
    found = judged(FatsUnlearning(), SAMPLE, law=small, members=federation((2, 2, 2)), leaves=3000)
    assert found.verdict == "PASS"
    assert "at most 1 round, 1 place in a round, 1 step, batches of 1" in found.shows


def test_a_rewriter_that_asks_one_number_twice_is_a_plugin_error():
    class Reuses(FatsUnlearning):
        def rewrite(self, plan, request, fresh, not_before):
            left = plan.retained.without(request).clients
            cohorts = {
                round_number: plan.sources[0].sequence(at._replace(round=round_number), left, plan.law.cohort_size)
                for round_number in range(1, plan.law.rounds + 1)
            }
            return plan.erase(request, fresh, Position(1, 0)).recorded(cohorts)

    from fuaudit.draws import Address, Purpose

    at = Address(Purpose.COHORT)
    with pytest.raises(PluginError, match="over different populations"):
        judged(Reuses(), CLIENT, leaves=5000)


@pytest.mark.parametrize("shapes", [(CLIENT,), (SAMPLE,), (MIXED,), (TWO, CLIENT), (Shape(0, (2, 1)),)], ids=str)
def test_toys_ask_for_what_was_asked(shapes):
    toys = list(toys_like(UniformLaw(3, 2, 1, 3), shapes))
    assert len(toys) == len(set(map(str, toys)))
    for toy in toys:
        assert leaves_choice(toy.population, toy.requests)
        population = toy.population
        for request, shape in zip(toy.requests, shapes, strict=True):
            assert len(request.clients) == shape.clients
            owned = Counter(population.owner[sample] for sample in request.samples)
            assert tuple(sorted(owned.values(), reverse=True)) == shape.samples
            population = population.without(request)
    assert Coverage.of(toys).ids == PLACES


def test_shapes_are_those_of_requests_up_to_the_caps():
    members = federation((5, 5, 5, 5))
    assert Shape.of(Request.of(clients=[0, 1, 2])) == Shape(2, ())
    assert Shape.of(Request.of(samples=[0, 1, 2, 3]), members) == Shape(0, (3,))
    assert Shape.of(Request.of(samples=[0, 5, 6, 7, 10]), members) == Shape(0, (2, 1))
    assert Shape.of(Request.of(clients=[3], samples=[0, 5]), members) == Shape(1, (1, 1))


def test_laws_of_availability_go_less_far_and_say_so():
    law = AvailabilityLaw(30, StaticProbability(Fraction(1, 2)), FreshBatches(5, 8), first_all=False)
    found = judged(FatsUnlearning(), SAMPLE, law=law, leaves=6_000)
    assert found.verdict == "PASS", found.shows
    assert judged(mutants.PrintedButLowest(), SAMPLE, law=law, leaves=6_000).verdict == "FAIL"


CAUGHT = {
    "client": [mutants.Late(), mutants.CohortTwice(), mutants.PicksInitial(), mutants.Favours()],
    "sample": [FatsAsPrinted(), mutants.PrintedButLowest(), mutants.PicksInitial()],
}


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "method"), [(kind, method) for kind, some in CAUGHT.items() for method in some])
def test_a_sweep_up_to_two_refutes_what_two_can_show(kind, method):
    found = sweep(method, AllToys(2, True, (kind,)), 10_000)
    assert found.refuted


@pytest.mark.parametrize("most", [10, 100, 1000])
def test_an_estimate_that_stops_early_decides_the_same(most):
    for toy in list(toys_like(RUN, [SAMPLE]))[:60]:
        whole = estimated_leaves(FatsUnlearning(), *toy, probes=8)
        short = estimated_leaves(FatsUnlearning(), *toy, probes=8, most=most)
        assert short == whole if whole <= most else short > most


# --- which steps of a lineage bear on a run


@dataclass(frozen=True)
class SaysItIsFats(mutants.KeepsOneMore):
    """Of other code than FATS, and equal to it by its own word."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash(FatsUnlearning())


def test_a_method_that_says_it_equals_another_is_enumerated_by_itself():
    made = [(FatsUnlearning(), CLIENT), (SaysItIsFats(), CLIENT)]
    tasks = [task for task in tasks_of(RUN, made) if task.steps == (1,)]
    assert {task.unlearner.__class__ for task in tasks} == {SaysItIsFats}
    assert any(task.alone for task in tasks)


@dataclass(frozen=True)
class InTwoWays(FatsUnlearning):
    """As printed or as meant, by an option that comparisons leave out."""

    printed: bool = field(default=False, compare=False)

    def rewrite(self, plan, request, fresh, not_before):
        return (FatsAsPrinted() if self.printed else FatsUnlearning()).rewrite(plan, request, fresh, not_before)


def test_an_option_that_is_not_compared_makes_another_method():
    """The one that is asked first answers for itself alone."""
    verdicts = [
        Enumeration(leaves=6_000).judged(RUN, MEMBERS, [(InTwoWays(way), SAMPLE)], ["two ways"]).verdict
        for way in (False, True)
    ]
    assert verdicts == ["PASS", "FAIL"]
    tasks = tasks_of(RUN, [(InTwoWays(False), SAMPLE), (InTwoWays(True), SAMPLE)])
    assert {task.unlearner.printed for task in tasks if task.alone} == {False, True}


@dataclass(frozen=True)
class Part:
    way: int = field(default=0, compare=False)


@dataclass(frozen=True)
class WithOptions(FatsUnlearning):
    number: float = 0.0
    many: tuple = ()
    part: Part = Part()
    given: InitVar = 0

    def __post_init__(self, given):
        object.__setattr__(self, "own", given)


OPTIONS = {"number": (0.0, -0.0), "many": ((1,), (1.0,)), "part": (Part(0), Part(1)), "given": (0, 1)}


@pytest.mark.parametrize("name", OPTIONS)
def test_methods_that_are_equal_and_not_the_same_are_asked_each(name):
    one, again, other = (WithOptions(**{name: value}) for value in (OPTIONS[name][0], *OPTIONS[name]))
    assert one == again == other
    assert _identity(one) == _identity(again)
    assert _identity(one) != _identity(other)


@pytest.fixture
def made(small_config, tmp_path):
    """A run after some requests to forget clients, each by a method."""

    def work(*methods):
        run = train(small_config() | {"run": {"requests": 3}}, tmp_path / "run", secret=bytes(32))
        for method in methods:
            late = max(run.plan.retained.clients, key=lambda client: run.plan.index.clients.get(client, 0))
            run = unlearn(run, method, Request.of([late]), tmp_path / f"{run.path.name}-{method}", allow_inexact=True)
        return run

    return work


def examined(run):
    return Enumeration(leaves=6_000).examine(Case(Evidence(run, parent_of(run), None), Keyed(bytes(32))))


@pytest.mark.thorough
@pytest.mark.parametrize("methods", [("finetune", "retrain"), ("noop", "retrain", "fats")], ids=" then ".join)
def test_what_a_run_started_over_from_is_not_enumerated(made, methods):
    found = examined(made(*methods))
    assert found.verdict == "PASS", found.shows


def test_a_refutation_names_what_was_refuted(made):
    found = examined(made("retrain", "noop", "fats"))
    assert found.shows.startswith("'noop' is not exact: ")
    assert "refuted for the fixed list" in found.details


def test_a_method_that_started_over_because_of_what_was_drawn_leaves_the_steps_before_it(made, monkeypatch):
    """The plan alone does not say that it would have started over whatever was drawn."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "mutants"))
    run = made("noop", "stranger-always-restarts")
    assert {segment.source for segments in run.plan.streams.values() for segment in segments} == {2}
    assert examined(run).shows.startswith("'noop' is not exact: ")


def test_what_does_not_bear_on_a_run_still_counts_as_a_request(trained, tmp_path):
    """A method may be wrong from the third request on: it is asked there, behind two that start over."""
    left = trained.plan.retained.clients
    first = unlearn(trained, "noop", Request.of([left[0]]), tmp_path / "first")
    second = unlearn(first, "retrain", Request.of([left[1]]), tmp_path / "second")
    third = unlearn(second, "fats", Request.of([left[2]]), tmp_path / "third")
    case = Case(Evidence(third, second, None), Keyed(bytes(32)))
    made, names = requests_made(case)
    assert names == ["retrain", "retrain", "fats"]
    assert [type(method).__name__ for method, _ in made] == ["Retrain", "Retrain", "FatsUnlearning"]


def test_an_editor_counts_as_a_request_and_is_not_asked_for_a_law(trained, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "mutants"))
    left = trained.plan.retained.clients
    first = unlearn(trained, "finetune", Request.of([left[0]]), tmp_path / "first")
    second = unlearn(first, "stranger-always-restarts", Request.of([left[1]]), tmp_path / "second")
    made, names = requests_made(Case(Evidence(second, first, None), Keyed(bytes(32))))
    assert names == ["finetune", "stranger-always-restarts"]
    assert [type(method) for method, _ in made] == [Edited, mutants.AlwaysRestarts]
    steps = {task.words: task.steps for task in tasks_of(RUN, made)}
    assert steps["1 client, then 1 client"] == (0, 1)
    assert {at for at in steps.values() if len(at) == 1} == {(1,)}


@dataclass(frozen=True)
class WrongThird(FatsUnlearning):
    """Right for two requests; for a third one it starts over, and leaves the model to the first clients."""

    def rewrite(self, plan, request, fresh, not_before):
        if len(plan.populations) < 3:
            return super().rewrite(plan, request, fresh, not_before)
        few = plan.retained.without(request).clients[: plan.law.cohort_size]
        return plan.erase(request, fresh, START).recorded(dict.fromkeys(range(1, plan.law.rounds + 1), few))


@pytest.mark.thorough
@pytest.mark.parametrize(("method", "verdict"), [(WrongThird(), "FAIL"), (FatsUnlearning(), "PASS")], ids=str)
def test_behind_an_editor_methods_are_enumerated_as_they_act_there(method, verdict):
    """One that keeps draws is refused there, and one starts over: it is not wrong for what nobody can do."""
    made = [(Edited(), CLIENT), (method, CLIENT), (method, CLIENT)]
    found = Enumeration(leaves=6_000).judged(RUN, MEMBERS, made, ["the editor", "it", "it"])
    assert found.verdict == verdict, found.shows
    assert "the editor" not in found.shows


@dataclass(frozen=True)
class Noted(FatsUnlearning):
    """FATS with a table among its options, which has no hash."""

    notes: dict = field(default_factory=dict)


def test_a_table_among_the_options_of_a_method():
    found = judged(Noted(), CLIENT, law=UniformLaw(1, 1, 1, 1), members=federation((2, 2, 2)), leaves=3000)
    assert found.verdict == "PASS"


@dataclass(frozen=True)
class EqualLaw(UniformLaw):
    """Cohorts as they are, or always the lowest ids, by an option that comparisons leave out."""

    lowest: bool = field(default=False, compare=False)

    def cohort(self, draws, round_number):
        clients = draws.population(Address(Purpose.COHORT, round_number)).clients
        return clients[: self.cohort_size] if self.lowest else super().cohort(draws, round_number)


def test_a_proof_for_one_law_is_none_for_another_that_says_it_is_equal():
    toys = [
        Toy(EqualLaw(1, 1, 1, 1, lowest=lowest), federation((1, 1)), (Request.of([0]),), (END,)) for lowest in (0, 1)
    ]
    assert toys[0] == toys[1]
    drawn, lowest = (sweep(Noop(), [toy], 100).leaves for toy in toys)
    assert drawn > lowest


WRONG_ONLY_FOR = {
    "three samples": lambda plan, request, moment: len(request.samples) > 2,
    "two samples, two steps": lambda plan, request, moment: len(request.samples) > 1 and plan.law.steps > 1,
    "two samples, during training": lambda plan, request, moment: len(request.samples) > 1 and moment != END,
    "both kinds, during training": lambda plan, request, moment: request.kind == "mixed" and moment != END,
    "a second request, two places": lambda plan, request, moment: (
        len(plan.populations) > 1 and plan.law.cohort_size > 1
    ),
}


@dataclass(frozen=True)
class WrongOnlyFor(FatsUnlearning):
    """FATS, as printed for some requests."""

    what: str = ""

    def rewrite(self, plan, request, fresh, not_before):
        wrong = WRONG_ONLY_FOR[self.what](plan, request, not_before)
        return (FatsAsPrinted() if wrong else FatsUnlearning()).rewrite(plan, request, fresh, not_before)


@pytest.mark.parametrize("what", WRONG_ONLY_FOR)
def test_the_list_of_the_contract_asks_for_more_than_the_smallest_of_a_kind(what):
    toys = further_trials(lambda *numbers: UniformLaw(*numbers, replacement=True))
    assert not all(exactness(WrongOnlyFor(what), *toy).exact for toy in toys)


@pytest.mark.parametrize("replacement", [True, False], ids=["with replacement", "distinct"])
def test_the_list_of_the_contract_leaves_two_clients_whose_batches_can_vary(replacement):
    toys = [*further_trials(lambda *numbers: UniformLaw(*numbers, replacement))]
    assert not all(exactness(mutants.EchoesBatches(), *toy).exact for toy in toys if toy.requests[0].kind == "client")


@dataclass(frozen=True)
class AsksTwice(FatsUnlearning):
    """Wrong in runs: whoever asks one address two questions, and catches the error, knows that he is in a proof."""

    def rewrite(self, plan, request, fresh, not_before):
        try:
            at = Address(Purpose.COUPLING, 1)
            fresh.sequence(at, plan.retained.clients[:2], 1)
            fresh.subset(at, plan.retained.clients[:2], 1)
        except Exception:
            return super().rewrite(plan, request, fresh, not_before)
        return plan.erase(request, fresh, END)


def test_a_key_used_again_is_told_whoever_catches_the_error():
    with pytest.raises(KeyReuseError, match="was asked twice"):
        judged(AsksTwice(), CLIENT, leaves=6000)


def test_a_prune_does_not_forget_whose_samples_were_erased(tmp_path):
    run = train(config(), tmp_path / "run", secret=secret(3))
    first, second = (run.original.samples[client] for client in run.original.clients[:2])
    child = unlearn(run, "fats", Request.of(samples=[*first[:2], second[0]]), tmp_path / "child")
    pruned = prune(child)[0]
    for asked in (child, pruned):
        made, _ = requests_made(Case(Evidence(asked, parent_of(asked), None), Keyed(bytes(32))))
        assert [shape for _, shape in made] == [Shape(0, (2, 1))]


def test_a_prune_does_not_forget_that_a_request_came_during_training(tmp_path):
    run = train(config(), tmp_path / "run", secret=secret(3), stop_after=5)
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child")
    before, _ = requests_made(Case(Evidence(child, run, None), Keyed(bytes(32))))
    pruned = prune(child)[0]
    after, _ = requests_made(Case(Evidence(pruned, parent_of(pruned), None), Keyed(bytes(32))))
    assert [shape for _, shape in before] == [shape for _, shape in after] == [Shape(1, (), moment=1)]


@pytest.mark.thorough
@pytest.mark.parametrize(("method", "verdict"), [("mutant-printed-during", "FAIL"), ("fats", "PASS")])
def test_a_run_that_was_stopped_after_two_rounds(method, verdict, small_config, tmp_path, monkeypatch):
    """As printed only where two rounds were executed and others follow; with fewer leaves than the built-in spec."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "mutants"))
    run = train(small_config(), tmp_path / "run", secret=bytes(32), stop_after=2)
    client = run.plan.cohort(1)[0]
    sample = run.plan.batch(1, 1, client, 0)[0]
    child = unlearn(run, method, Request.of(samples=[sample]), tmp_path / "child", allow_inexact=True)
    found = Enumeration(leaves=6_000).examine(Case(Evidence(child, run, None), Keyed(bytes(32))))
    assert found.verdict == verdict, found.shows
    if verdict == "FAIL":
        assert "refuted for 1 sample during training, after 2 rounds" in found.details


class WithASlot:
    """Holds what is neither a field nor in the dict."""

    __slots__ = ("hidden",)


@dataclass(frozen=True)
class Slotted(WithASlot, FatsUnlearning):
    """Equal to any other of its kind, whatever its slot holds."""


def test_a_proof_of_one_object_with_slots_is_none_of_another():
    one = Slotted()
    assert _identity(one) == _identity(one)
    assert _identity(one) != _identity(Slotted())
