"""Procedures of a proof in parts: the same paths, weights and estimates as those of the procedures as a whole."""

import sys
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice, product
from pathlib import Path

import pytest
from fuaudit_plugins.coupling import MaximalCoupling
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning

from fuaudit.draws import END, Address, Enumeration, Position, Purpose, estimate_leaves
from fuaudit.draws.enumerating import Then, counted_law, paths
from fuaudit.errors import BudgetError
from fuaudit.plans import AvailabilityLaw, Request, UniformLaw, WeightedLaw
from fuaudit.plans.availability import (
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.reference import BehindEdit, Edited
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.proofs import exactness, parts
from fuaudit.proofs.exactness import estimated_leaves, estimated_retraining, retraining, unlearning
from fuaudit.proofs.sweep import Keeping, Succession
from fuaudit.proofs.toys import federation
from fuaudit.unlearning.baselines import Noop, Retrain

sys.path.append(str(Path(__file__).parent / "mutants"))
import fuaudit_mutants as mutants

CLIENT, SAMPLE, OTHER = Request.of([0]), Request.of(samples=[0]), Request.of([1])
LAWS = {
    "with replacement": UniformLaw(2, 2, 1, 1),
    "distinct": UniformLaw(2, 2, 1, 1, replacement=False),
    "two steps": UniformLaw(1, 1, 2, 2),
    "static": AvailabilityLaw(2, StaticProbability(Fraction(1, 3)), FreshBatches(1, 1), first_all=False),
    "aligned": AvailabilityLaw(2, BoundedRoundRobin(2), FreshBatches(1, 1), first_all=False),
    "drawn phases": AvailabilityLaw(2, BoundedRoundRobin(2, "drawn"), FreshBatches(1, 1), first_all=False),
    "epochs": AvailabilityLaw(1, BoundedRoundRobin(0), PermutedEpochs(2, 1, 2), first_all=False),
    "weights": AvailabilityLaw(1, TimeVaryingWeights(number=1, largest=2), FreshBatches(1, 1), first_all=False),
    "weighted": WeightedLaw(2, 1, 1, 1, ((0, 1), (1, 2), (2, 3))),
    "cut": AvailabilityLaw(1, BoundedRoundRobin(0), PoissonBatches(1, Fraction(1, 2), 1, 1), first_all=False),
}
MEMBERS = federation((2, 1, 2))


@dataclass(frozen=True)
class Tosses(FatsUnlearning):
    """A stranger's: a coin, and by it one of two ways."""

    def rewrite(self, plan, request, fresh, not_before):
        heads = fresh.sequence(Address(Purpose.COUPLING, 1), range(2), 1) == (0,)
        return (Retrain() if heads else FatsUnlearning()).rewrite(plan, request, fresh, not_before)


METHODS = {
    "fats": (FatsUnlearning(), END),
    "fats, during training": (FatsUnlearning(), Position(2, 0)),
    "as printed": (FatsAsPrinted(), END),
    "retrain": (Retrain(), END),
    "noop": (Noop(), END),
    "keeping": (Keeping(), END),
    "behind an editor": (BehindEdit(FatsUnlearning()), END),
    "an editor": (Edited(), END),
    "coupling": (MaximalCoupling(), END),
    "late": (mutants.Late(), END),
    "initial": (mutants.PicksInitial(), END),
    "a cohort twice": (mutants.CohortTwice(), END),
    "a record": (mutants.LowestFree(), END),
    "coins": (Tosses(), END),
    "two in turn": (Succession((FatsAsPrinted(), Tosses())), END),
}


def said(work, *given):
    """What comes of it; what it raises, where it raises."""
    try:
        return work(*given)
    except Exception as error:
        return type(error), str(error)


def estimate(method, law, members, requests, moments, probes, most):
    return said(estimate_leaves, unlearning(method, law, members, requests, moments), probes, most)


def of(path):
    """The first paths of a procedure; what it raises, where it raises."""
    return said(lambda: [*islice(paths(path, 20_000), 100)])


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("name", METHODS)
def test_paths_are_those_of_the_whole(name, law):
    """Twice: first all is found out, and then it is remembered."""
    method, moment = METHODS[name]
    if moment != END and law.rounds < moment.round:
        return
    for requests in ([CLIENT], [SAMPLE]) if law.rounds > 1 else ([CLIENT], [SAMPLE], [SAMPLE, OTHER]):
        given = law, MEMBERS, requests
        moments = [moment, *[END] * (len(requests) - 1)]
        whole = of(unlearning(method, *given, moments))
        for _ in range(2):
            assert of(parts.unlearning_in_parts(method, *given, moments)) == whole
        assert whole[0] is not AttributeError
        for probes, most in ((3, 1e9), (4, 30)):
            left = estimate_leaves(retraining(*given), probes, most)
            assert estimated_retraining(*given, probes, most) == left
            if type(whole) is list:
                own = estimate(method, *given, moments, probes, most - left) if left <= most else 0
                due = own if isinstance(own, tuple) else left + own
                assert said(estimated_leaves, method, *given, moments, probes, most) == due


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_paths_of_retraining_are_those_of_the_whole(law):
    whole = [*paths(retraining(law, MEMBERS, [CLIENT]), 20_000)]
    assert len(whole) > 1
    for _ in range(2):
        assert [*paths(parts.retraining_in_parts(law, MEMBERS, [CLIENT]), 20_000)] == whole


@pytest.mark.parametrize("sizes", [*product((1, 2), repeat=3)], ids=str)
def test_estimates_of_retraining_do_not_hang_on_ids(sizes):
    """They are made once for all federations of the same sizes, in the order of their clients."""
    law, members = UniformLaw(2, 2, 1, 1), federation((1, *sizes))
    for client in members.clients[:2]:
        given = law, members, [Request.of([client])]
        assert estimated_retraining(*given, 8) == estimate_leaves(retraining(*given), 8)


def test_all_paths_are_counted_and_no_more_than_that():
    whole = [*paths(retraining(LAWS["distinct"], MEMBERS, [CLIENT]), 20_000)]
    procedure = parts.retraining_in_parts(LAWS["distinct"], MEMBERS, [CLIENT])
    assert counted_law(procedure, len(whole))[1] == len(whole)
    with pytest.raises(Exception, match="leaves"):
        counted_law(procedure, len(whole) - 1)


def test_a_part_is_run_once_for_all_paths_that_have_it_in_common():
    first, second = [], []

    def toss(draws, number):
        return draws.source("it").sequence(Address(Purpose.COHORT, number), (0, 1), 1)

    def later(before):
        def part(draws):
            second.append(before)
            return before, toss(draws, 2), toss(draws, 3), toss(draws, 1)

        return part

    def procedure(draws):
        first.append(0)
        return Then(later(toss(draws, 1)))

    found = [*paths(procedure, 8)]
    assert [result for result, _ in found] == [
        ((one,), (two,), (three,), (one,)) for one, two, three in product((0, 1), repeat=3)
    ]
    assert {weight for _, weight in found} == {Fraction(1, 8)}
    assert (len(first), len(second)) == (2, 8)


def test_what_is_heard_inside_is_heard_outside():
    """A call of a law may make another one, which is remembered too."""
    draws = Enumeration([])
    source, at = draws.source("it"), Address(Purpose.COHORT, 1)

    def outer():
        source.sequence(at, (0, 1), 1)
        draws.hear(lambda: source.sequence(at._replace(round=2), (0, 1), 1))
        return source.sequence(at, (0, 1), 1)

    _, heard = draws.hear(outer)
    assert [one.at.round for one in heard] == [1, 2, 1]


def behind(ask):
    """The source behind a function of the veil."""
    held = [cell.cell_contents for cell in ask.__closure__]
    found = next((one for one in held if hasattr(one, "uniform")), None)
    return found or behind(next(one for one in held if getattr(one, "__closure__", None)))


@dataclass(frozen=True)
class Peeks(FatsUnlearning):
    """Finds the draws behind the veil, asks them there, and starts over where he likes the first cohort."""

    def rewrite(self, plan, request, fresh, not_before):
        cohort = behind(plan.sources[0].sequence).sequence(Address(Purpose.COHORT, 1), (0, 1, 2), plan.law.cohort_size)
        return (Retrain() if 1 in cohort else FatsUnlearning()).rewrite(plan, request, fresh, not_before)


def test_who_looks_behind_the_veil_is_refuted(monkeypatch):
    """Were he remembered by what he asked in front of it, other paths would be walked."""
    law, members = UniformLaw(2, 1, 1, 1), federation((1, 1, 1))
    found = exactness(Peeks(), law, members, [CLIENT])
    assert not found.exact
    assert found == exactness(Peeks(), Strange(law), members, [CLIENT])
    monkeypatch.setattr(parts, "is_foreign", lambda part: False)
    remembered = exactness(Peeks(), replace(law), members, [CLIENT])
    assert remembered != found


def Strange(law):
    """The same law, of a stranger's."""
    return _Strange(law.rounds, law.cohort_size, law.steps, law.batch_size, law.replacement)


@dataclass(frozen=True)
class _Strange(UniformLaw):
    calls: list = field(default_factory=list, compare=False, repr=False)

    def cohort(self, draws, round_number):
        self.calls.append(round_number)
        return super().cohort(draws, round_number)


def test_a_law_of_a_stranger_is_asked_on_every_path():
    law = Strange(UniformLaw(1, 2, 1, 1))
    found = exactness(Retrain(), law, MEMBERS, [CLIENT])
    assert is_foreign(law)
    assert found == exactness(Retrain(), UniformLaw(1, 2, 1, 1), MEMBERS, [CLIENT])
    assert len(law.calls) == found.leaves


@dataclass(frozen=True)
class Turns(FatsUnlearning):
    """Right so often, and then it does nothing: what it makes does not hang on draws alone."""

    right: int = 1
    calls: list = field(default_factory=list, compare=False, repr=False)

    def rewrite(self, plan, request, fresh, not_before):
        self.calls.append(1)
        method = Retrain() if len(self.calls) <= self.right else Noop()
        return method.rewrite(plan, request, fresh, not_before)


@pytest.mark.parametrize("right", [0, 1])
def test_a_rewriter_of_a_stranger_is_run_on_every_path(right):
    """He asks for nothing, so that he would be run once if that were enough."""
    given = UniformLaw(1, 1, 1, 1), federation((1, 1, 1)), [CLIENT]
    assert not exactness(Turns(right), *given).exact
    honest = Turns(10**6)
    found = exactness(honest, *given)
    assert found == exactness(Retrain(), *given)
    assert len(honest.calls) == len([*paths(unlearning(Retrain(), *given), 100)]) == 2


@pytest.mark.parametrize("number", [0, 1])
def test_in_a_stream_each_of_them_is(number):
    steps = [FatsUnlearning(), FatsUnlearning()]
    steps[number] = Turns(1)
    given = UniformLaw(1, 1, 1, 1), federation((1, 1, 1, 1)), [CLIENT, OTHER]
    assert exactness(FatsUnlearning(), *given).exact
    assert not exactness(Succession(tuple(steps)), *given).exact


@pytest.mark.parametrize("name", ["fats", "fats, during training", "as printed", "retrain", "noop", "keeping"])
@pytest.mark.parametrize("law", [UniformLaw(*sizes, bool(kind)) for *sizes, kind in product((1, 2), repeat=5)], ids=str)
def test_rounds_that_are_multiplied_give_the_laws_of_the_whole(name, law):
    """Rounds that draw over the same populations are walked once, whoever asks: so many ask, one after another."""
    method, moment = METHODS[name]
    if moment != END and law.rounds < moment.round:
        return
    for request in (CLIENT, SAMPLE, OTHER):
        given = law, MEMBERS, [request]
        try:
            whole = counted_law(unlearning(method, *given, [moment]), 500)
        except BudgetError:
            continue
        assert counted_law(parts.unlearning_in_parts(method, *given, [moment]), 500) == whole
        with pytest.raises(BudgetError):
            counted_law(parts.unlearning_in_parts(method, *given, [moment]), whole[1] - 1)
        assert counted_law(parts.retraining_in_parts(*given), 500) == counted_law(retraining(*given), 500)


def test_a_round_is_walked_once_for_all_that_draw_over_the_same_populations():
    law = UniformLaw(3, 2, 1, 1)
    parts._rounds.clear()
    parts._memories.clear()
    counted_law(parts.retraining_in_parts(law, MEMBERS, [CLIENT]), 20_000)
    assert len(parts._rounds) == 1
    counted_law(parts.retraining_in_parts(replace(law, rounds=2), MEMBERS, [CLIENT]), 20_000)
    assert len(parts._rounds) == 1
    counted_law(parts.retraining_in_parts(law, MEMBERS, [OTHER]), 20_000)
    assert len(parts._rounds) == 2
