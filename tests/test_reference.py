"""The reference: exact by enumeration wherever its theorem says so, and one plan however it is found."""

from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuaudit.draws import END, Keyed, Position
from fuaudit.plans import AvailabilityLaw, Plan, Request, UniformLaw, WeightedLaw
from fuaudit.plans.availability import (
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.reference import Reference, is_closed, resampled
from fuaudit.proofs.exactness import exactness
from fuaudit.proofs.toys import federation
from fuaudit.testing import strategies
from fuaudit.testing.unlearners import trials
from fuaudit.unlearning.baselines import Retrain

WHO = [
    BoundedRoundRobin(2, "drawn"),
    BoundedRoundRobin(2),
    StaticProbability(Fraction(1, 2)),
]


def laws_of(rounds, cohort, steps, batch):
    yield UniformLaw(rounds, cohort, steps, batch, True)
    yield UniformLaw(rounds, cohort, steps, batch, False)
    weighted = (
        TimeVaryingWeights(number=min(cohort, 2), largest=2),
        TimeVaryingWeights(share=Fraction(2, 3), largest=2),
    )
    for who in (*WHO, *weighted):
        yield AvailabilityLaw(rounds, who, FreshBatches(steps, batch), first_all=False)
        yield AvailabilityLaw(rounds, who, PermutedEpochs(steps, batch, 3), first_all=cohort == 1)


def test_which_laws_are_closed():
    closed = [is_closed(law) for law in laws_of(1, 2, 1, 1)]
    assert closed == [True] * 10 + [False] * 2
    assert not is_closed(WeightedLaw(1, 2, 1, 1, weights=((0, 1), (1, 2), (2, 3))))

    class Other(UniformLaw):
        pass

    assert not is_closed(Other(1, 1, 1, 1))


@pytest.mark.parametrize("number", range(12))
def test_exact_by_enumeration(number):
    """On the contract suite's federations: ragged, emptied, streams, mixed, during training."""

    def law(*sizes):
        return list(laws_of(*sizes))[number]

    proved = 0
    for trial in trials(law):
        result = exactness(Reference(), trial.law, trial.population, trial.requests, trial.not_before, 400_000)
        assert result.exact, f"{trial}: {result.witness}"
        proved += 1
    assert proved == 19


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_position_by_position_is_one_after_another(data):
    population = data.draw(strategies.federations(4, 4))
    sizes = [data.draw(st.integers(1, most)) for most in (4, 3, 3, 3)]
    law = data.draw(st.sampled_from([law for law in laws_of(*sizes) if is_closed(law)]))
    if getattr(getattr(law, "batches", None), "largest", 9) < max(map(len, population.samples.values())):
        law = UniformLaw(*sizes)
    requests = data.draw(strategies.streams(population, 4))
    first = data.draw(strategies.moments(law))
    moments = [first, *[END] * (len(requests) - 1)]
    sources = [Keyed(bytes([data.draw(st.integers(0, 255)), i]) * 16) for i in range(len(requests) + 1)]
    restarted = data.draw(st.integers(0, len(requests)))
    plan = Plan.fresh(law, population, sources[0])
    for number, (request, moment) in enumerate(zip(requests, moments, strict=True), 1):
        method = Retrain() if number == restarted else Reference()
        plan = method.rewrite(plan, request, sources[number], moment)
    found = resampled(law, population, sources, requests, moments, restarted)
    assert found.streams == plan.streams
    assert found == plan


def test_two_requests_at_one_position():
    """Both are named by one cohort: the second takes over from the first only if its own draw names it too."""
    population = federation((2, 2, 2, 2))
    law = UniformLaw(3, 2, 1, 1)
    requests = [Request.of(clients=[0]), Request.of(clients=[1])]
    seen = set()
    for key in range(200):
        sources = [Keyed(key.to_bytes(31, "big") + bytes([i])) for i in range(3)]
        plan = reduce(
            lambda plan, step: Reference().rewrite(plan, step[0], step[1], END),
            zip(requests, sources[1:], strict=True),
            Plan.fresh(law, population, sources[0]),
        )
        found = resampled(law, population, sources, requests, [END, END])
        assert found == plan
        seen.add(tuple(segment.source for segment in found.streams["cohorts"]))
    assert seen >= {(0,), (0, 1), (0, 2), (0, 1, 2)}


def test_a_request_during_training():
    population, law = federation((2, 2, 2)), UniformLaw(4, 1, 1, 1)
    sources = [Keyed(bytes([i]) * 32) for i in range(2)]
    request, moment = Request.of(samples=[0]), Position(3, 0)
    plan = Reference().rewrite(Plan.fresh(law, population, sources[0]), request, sources[1], moment)
    assert resampled(law, population, sources, [request], [moment]) == plan
