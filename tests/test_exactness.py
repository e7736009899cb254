"""Exactness: the named witnesses, proofs on generated federations, mutants, and the machinery under them."""

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from fuaudit.draws import (
    END,
    Address,
    Enumeration,
    Keyed,
    Position,
    Purpose,
    Recorded,
    Stream,
    enumerate_law,
    estimate_leaves,
)
from fuaudit.draws.enumerating import paths
from fuaudit.draws.keyed import Addresses, philox_key
from fuaudit.draws.philox import block, blocks, stream
from fuaudit.errors import BudgetError, KeyReuseError, UsageError
from fuaudit.plans import Plan, Request, UniformLaw, WeightedLaw
from fuaudit.plans.expanded import expand
from fuaudit.plans.participation import Involvement
from fuaudit.plans.plan import occurrences
from fuaudit.plans.stacked import Stack, expand_many
from fuaudit.testing import adaptive_exactness, exactness, federation, plans
from fuaudit.testing.strategies import federations, keys, laws, requests, trials
from fuaudit.unlearning.baselines import Noop, Retrain
from fuaudit.unlearning.protocol import claims_exactness

generated = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
LEAVES = 2500
TOY = federation((2, 2)), UniformLaw(1, 1, 1, 1)
SAMPLE, CLIENT = Request.of(samples=[0]), Request.of(clients=[0])


def distance(unlearner, law, members, *asked, not_before=None):
    return exactness(unlearner, law, members, asked, not_before).total_variation


# the named witnesses


@pytest.mark.parametrize(
    ("unlearner", "request_", "expected"),
    [
        (FatsAsPrinted(), SAMPLE, Fraction(1, 8)),
        (FatsUnlearning(), SAMPLE, 0),
        (FatsUnlearning(), CLIENT, 0),
        (FatsAsPrinted(), CLIENT, 0),
        (Retrain(), SAMPLE, 0),
        (Retrain(), CLIENT, 0),
    ],
)
def test_smallest_witness(unlearner, request_, expected):
    members, law = TOY
    assert distance(unlearner, law, members, request_) == expected


def test_second_witness():
    members, law = federation((3, 3)), UniformLaw(2, 1, 1, 1)
    assert distance(FatsAsPrinted(), law, members, SAMPLE) == Fraction(1, 12)
    assert distance(FatsUnlearning(), law, members, SAMPLE) == 0


def test_a_witness_names_a_history_and_its_two_probabilities():
    result = exactness(FatsAsPrinted(), TOY[1], TOY[0], [SAMPLE])
    assert not result.exact
    assert result.witness.history == (((0,), (((1,),),)),)
    assert (result.witness.unlearned, result.witness.retrained) == (Fraction(3, 8), Fraction(1, 2))


def test_keeping_is_not_exact_for_weighted_cohorts():
    law = WeightedLaw(1, 2, 1, 1, weights=((0, 1), (1, 2), (2, 3), (3, 4)))
    members = federation((1, 1, 1, 1))
    assert distance(FatsUnlearning(), law, members, CLIENT) == Fraction(13, 1890)
    assert distance(Retrain(), law, members, CLIENT) == 0
    assert not claims_exactness(FatsUnlearning(), law.name, "client")


def test_adaptive_requester():
    def requester(plan):
        return Request.of(clients=[0 if plan.cohort(1) == (1,) else 2])

    results = adaptive_exactness(FatsUnlearning(), UniformLaw(1, 1, 1, 1), federation((1, 1, 1)), requester)
    assert {request.clients: found.total_variation for request, found in results.items()} == {
        (0,): Fraction(1, 2),
        (2,): Fraction(1, 4),
    }


def test_a_proof_beyond_its_budget_says_so():
    with pytest.raises(BudgetError):
        exactness(FatsUnlearning(), UniformLaw(2, 2, 2, 1), federation((3, 3)), [SAMPLE], leaves=100)


# proofs on generated federations


def test_exact_on_generated_federations():
    proved, shape = set(), Counter()

    @settings(generated, max_examples=75)
    @given(trials(LEAVES, unlearner=FatsUnlearning()))
    def prove(trial):
        result = exactness(
            FatsUnlearning(), trial.law, trial.population, trial.requests, trial.not_before, leaves=20 * LEAVES
        )
        assert result.exact, (str(trial), result)
        if str(trial) not in proved:
            sizes = [len(samples) for samples in trial.population.samples.values()]
            shape.update(
                name
                for name, held in {
                    "rounds": trial.law.rounds > 1,
                    "cohort": trial.law.cohort_size > 1,
                    "steps": trial.law.steps > 1,
                    "batch": trial.law.batch_size > 1,
                    "with": trial.law.replacement,
                    "without": not trial.law.replacement,
                    "ragged": len(set(sizes)) > 1,
                    "three clients": len(sizes) > 2,
                    "stream": len(trial.requests) > 1,
                    "during training": trial.not_before[0] != END,
                    **{request.kind: True for request in trial.requests},
                }.items()
                if held
            )
        proved.add(str(trial))

    prove()
    assert len(proved) >= 50
    assert len(shape) == 13, shape
    assert min(shape.values()) >= 3, shape


def test_the_printed_algorithm_is_refuted_by_search():
    def refuted(trial):
        try:
            result = exactness(FatsAsPrinted(), trial.law, trial.population, trial.requests, trial.not_before, LEAVES)
        except BudgetError:
            return False
        return not result.exact

    smallest = find(trials(LEAVES // 5, kinds=("sample",)), refuted, settings=settings(generated, max_examples=500))
    assert smallest.law.rounds == 1
    assert smallest.population.size <= 4


@settings(generated, max_examples=60)
@given(trials(LEAVES, kinds=("client",), unlearner=FatsUnlearning()))
def test_the_printed_algorithm_is_exact_for_clients(trial):
    trial = trial._replace(not_before=(END,) * len(trial.requests))
    assert exactness(FatsAsPrinted(), *trial, leaves=20 * LEAVES).exact


# mutants: each must be caught


class TooLate(FatsUnlearning):
    """Draws anew one round after the first involvement."""

    def rewrite(self, plan, request, fresh, not_before):
        first = plan.first_involvement(request)
        return plan.erase(request, fresh, Position(first.round + 1, 0) if first else END)


def written(plan, renamed=None):
    """Every draw of a plan by address, with some clients in the places of others, and their samples too."""
    renamed, members, answers = renamed or {}, plan.retained.samples, {}
    for round_number in range(1, plan.law.rounds + 1):
        old = plan.cohort(round_number)
        cohort = answers[Address(Purpose.COHORT, round_number)] = tuple(renamed.get(client, client) for client in old)
        for before, after in zip(occurrences(old), occurrences(cohort), strict=True):
            for step in range(1, plan.law.steps + 1):
                ranks = [members[before[0]].index(sample) for sample in plan.batch(round_number, step, *before)]
                batch = tuple(members[after[0]][rank] for rank in ranks)
                answers[Address(Purpose.BATCH, round_number, step, *after)] = batch
    return answers


class OldKey(FatsUnlearning):
    """Draws anew from the key and version that made the old plan, over the smaller population."""

    def rewrite(self, plan, request, fresh, not_before):
        first = plan.first_involvement(request)
        if first is None:
            return plan.erase(request, fresh, END)
        again = Plan.fresh(plan.law, plan.retained.without(request), plan.sources[0])
        return replace(plan.erase(request, fresh, Position(1, 0)), sources=(*plan.sources, Recorded(written(again))))


class FirstOccurrence(FatsUnlearning):
    """Accepts an old plan when the last round does not hold the target: wrong acceptance."""

    def rewrite(self, plan, request, fresh, not_before):
        last = plan.cohort(plan.law.rounds)
        return plan.erase(request, fresh, Position(1, 0) if set(request.clients) & set(last) else END)


class Scapegoat(FatsUnlearning):
    """Also draws anew when the neighbour of the target was drawn: keeps a set that is not closed."""

    def rewrite(self, plan, request, fresh, not_before):
        both = Request.of(clients=[*request.clients, 1])
        return plan.erase(request, fresh, plan.first_involvement(both) or END)


class Inherited(FatsUnlearning):
    """The slot of the erased client goes to the next one: what row numbers instead of stable ids would do."""

    def rewrite(self, plan, request, fresh, not_before):
        renamed = Recorded(written(plan, {0: 1}))
        return replace(plan.erase(request, fresh, Position(1, 0)), sources=(*plan.sources, renamed))


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (Noop(), Fraction(5, 9)),
        (TooLate(), Fraction(1, 3)),
        (FirstOccurrence(), None),
        (Scapegoat(), None),
        (Inherited(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_mutants_of_client_erasure_are_caught(mutant, expected):
    members, law = federation((2, 2, 2)), UniformLaw(2, 1, 1, 1)
    result = exactness(mutant, law, members, [CLIENT])
    assert not result.exact
    assert result.witness is not None
    if expected:
        assert result.total_variation >= expected
    assert distance(FatsUnlearning(), law, members, CLIENT) == 0


@pytest.mark.parametrize("mutant", [Noop(), TooLate()], ids=lambda value: type(value).__name__)
def test_mutants_of_sample_erasure_are_caught(mutant):
    assert distance(mutant, UniformLaw(2, 1, 1, 1), federation((3, 2)), SAMPLE) > 0


@pytest.mark.parametrize("request_", [SAMPLE, CLIENT], ids=str)
def test_an_old_key_over_a_smaller_population_is_an_error(request_):
    with pytest.raises(KeyReuseError):
        distance(OldKey(), UniformLaw(2, 1, 1, 1), federation((3, 2, 2)), request_)


# plans, schedules and look-ups


@settings(generated, max_examples=150)
@given(plans(), st.data())
def test_arrays_and_look_ups_agree_with_drawing(plan, data):
    one = expand(plan)
    many = expand_many([plan, plan])
    assert Stack.fits([plan])
    for row in (0, 1):
        assert np.array_equal(many.cohorts[row], one.cohorts[0])
        assert np.array_equal(many.batches[row], one.batches[0])
    request = data.draw(requests(plan.retained))
    scanned = plan.first_involvement(request)
    assert Involvement.of(one).first(request) == scanned
    round_number, step = Stack([plan]).first_involvement(request)
    assert Position(int(round_number[0]), int(step[0])) == (scanned or END)


@settings(generated, max_examples=60)
@given(laws(4, 4, 3, 4), federations(5, 6), st.lists(keys(), min_size=4, max_size=8, unique=True), st.data())
def test_stacks_of_rewritten_plans_agree_with_drawing(law, members, sources, data):
    request = data.draw(requests(members))
    half = len(sources) // 2
    rewritten = [
        FatsUnlearning().rewrite(Plan.fresh(law, members, old), request, new, END)
        for old, new in zip(sources[:half], sources[half:], strict=False)
    ]
    shared = [replace(plan, populations=rewritten[0].populations) for plan in rewritten]
    assert Stack.fits(shared)
    stacked, single = expand_many(shared), [expand(plan) for plan in rewritten]
    for row, one in enumerate(single):
        places, slots = one.cohorts.shape[2], one.batches.shape[4]
        assert np.array_equal(stacked.cohorts[row, :, :places], one.cohorts[0])
        assert np.array_equal(stacked.batches[row, :, :places, :, :slots], one.batches[0])
        assert (stacked.batches[row, :, :, :, slots:] == -1).all()
    again = data.draw(requests(shared[0].retained))
    rounds, steps = Stack(shared).first_involvement(again)
    for row, plan in enumerate(rewritten):
        assert Position(int(rounds[row]), int(steps[row])) == (plan.first_involvement(again) or END)


@settings(generated, max_examples=100)
@given(plans())
def test_batches_are_sorted_sets_of_their_client(plan):
    for round_number in range(1, plan.law.rounds + 1):
        for client, occurrence in occurrences(plan.cohort(round_number)):
            for step in range(1, plan.law.steps + 1):
                batch = plan.batch(round_number, step, client, occurrence)
                owned = plan.populations[plan.segment(Stream.BATCHES, (round_number, step)).version].samples[client]
                assert batch == tuple(sorted(set(batch)))
                assert set(batch) <= set(owned)
                assert len(batch) == min(plan.law.batch_size, len(owned))


@settings(generated, max_examples=100)
@given(laws(4, 4, 3, 4), federations(5, 6), keys(), st.data())
def test_removing_a_client_shifts_no_other_batch(law, members, source, data):
    gone = data.draw(st.sampled_from(members.clients))
    before = Plan.fresh(law, members, source)
    after = Plan.fresh(law, members.without(Request.of(clients=[gone])), source)
    for client in after.retained.clients:
        for at in ((1, 1), (law.rounds, law.steps)):
            assert before.batch(*at, client, 1) == after.batch(*at, client, 1)


# draws


@settings(generated, max_examples=50)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_philox_is_that_of_numpy(words):
    counter, key = tuple(words[:4]), tuple(words[4:])
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=np.array(counter, dtype=np.uint64))
    number = sum(word << (64 * place) for place, word in enumerate(counter)) + 1  # numpy counts before it draws
    following = tuple((number >> (64 * place)) % 2**64 for place in range(4))
    expected = generator.random_raw(4).tolist()
    assert list(block(following, key)) == expected
    arrays = [np.array([word], dtype=np.uint64) for word in (*following, *key)]
    assert blocks(tuple(arrays[:4]), tuple(arrays[4:]))[0].tolist() == expected
    later = tuple(((number + 1) >> (64 * place)) % 2**64 for place in range(4))
    assert stream(following, key, 7).tolist() == [*expected, *block(later, key)[:3]]


def test_many_blocks_are_single_blocks():
    count = 2 * 4096 + 3  # more than are computed at once
    arrays = [stream((place, 0, 0, 0), (1, 2), count) for place in range(5)]
    found = blocks((arrays[0], arrays[1], arrays[2], np.uint64(7)), (arrays[3], arrays[4]))
    for at in (0, 4095, 4096, count - 1):
        counter = (*(int(array[at]) for array in arrays[:3]), 7)
        assert found[at].tolist() == list(block(counter, (int(arrays[3][at]), int(arrays[4][at]))))


def test_integers_are_unbiased_where_a_quarter_of_the_words_is_rejected():
    # without rejection a number below 2**61 would have probability 3/8 instead of 1/3: 2,000 draws tell by 4 sd
    bound, count, source = 3 << 61, 8000, Keyed(bytes(range(32)))
    single = [source.integer(Address(Purpose.AUDIT, round=n), 0, bound) for n in range(count)]
    low = sum(number < 1 << 61 for number in single)
    deviation = (count * 2 / 9) ** 0.5
    assert abs(low - count / 3) < 4 * deviation  # false alarm: 6e-5
    assert abs(low - count * 3 / 8) > 4 * deviation  # the biased one would be seen
    zero = np.zeros(count, dtype=np.int64)
    words = philox_key(source.secret, Purpose.AUDIT)
    at = Addresses(
        (np.full(count, words[0], np.uint64), np.full(count, words[1], np.uint64)),
        np.arange(count),
        zero,
        zero - 1,
        zero,
        zero,
    )
    assert at.integers(1, np.array(bound)).reshape(-1).tolist() == single


def test_a_bound_above_all_words_is_refused():
    """2**64 is the most: above it every word would be rejected, for ever."""
    source, at = Keyed(bytes(range(32))), Address(Purpose.AUDIT)
    assert 0 <= source.integer(at, 0, 2**64) < 2**64
    with pytest.raises(UsageError, match="is the most"):
        source.integer(at, 0, 2**64 + 1)
    with pytest.raises(UsageError, match="is the most"):
        source.weighted(at, (0, 1), (10**20 - 1, 1), 1)


def uneven(draws):
    """A tree with 1 + 2 + 3 leaves."""
    source = draws.source("tree")
    first = source.sequence(Address(Purpose.AUDIT), (1, 2, 3), 1)[0]
    return first, source.sequence(Address(Purpose.AUDIT, round=1), tuple(range(first)), 1)


def test_knuth_estimate_is_unbiased():
    leaves = [result for result, _ in paths(uneven, 100)]
    assert len(leaves) == 6
    # exact mean over the probe's own choices: every draw uniform, degree 3 then the number drawn first
    mean = sum(Fraction(1, 3 * first) * (3 * first) for first, _ in leaves)
    assert mean == 6
    spread = sum((3 * first - 6) ** 2 for first in (1, 2, 3)) / 3
    assert abs(estimate_leaves(uneven, 4000) - 6) < 4 * (spread / 4000) ** 0.5  # false alarm: 6e-5


def test_knuth_estimate_is_exact_on_an_even_tree():
    members, law = TOY
    assert estimate_leaves(lambda draws: Plan.fresh(law, members, draws.source("a")).history(), 1) == 4


def test_weights_of_a_law_sum_to_one_and_lazy_draws_do_not_branch():
    law = enumerate_law(uneven)
    assert sum(law.values()) == 1
    assert law[1, (0,)] == Fraction(1, 3)

    def lazy(draws: Enumeration):
        Plan.fresh(UniformLaw(50, 9, 9, 9), federation((9,) * 9), draws.source("never looked at"))
        return 0

    assert enumerate_law(lazy) == {0: Fraction(1)}
    assert prod(enumerate_law(lazy).values()) == 1


@dataclass(frozen=True)
class WhateverIsAccepted:
    """FATS where it keeps no round, and retraining where it would: the draws choose the method."""

    def rewrite(self, plan, request, fresh, not_before):
        kept = FatsUnlearning().rewrite(plan, request, fresh, not_before)
        return kept if kept.first_change(plan).round <= 1 else Retrain().rewrite(plan, request, fresh, not_before)


def test_a_method_chosen_by_the_draws_is_another_law():
    """Both are exact; which is why refusals look at law and request only."""
    law, members, asked = UniformLaw(2, 1, 1, 1), federation((2, 2)), [Request.of(samples=[0])]
    assert exactness(FatsUnlearning(), law, members, asked).exact
    assert exactness(Retrain(), law, members, asked).exact
    assert exactness(WhateverIsAccepted(), law, members, asked).total_variation == Fraction(1, 8)
