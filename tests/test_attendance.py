"""First involvement under laws of availability: in arrays, as by reading plans draw by draw."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from fuaudit_plugins.fats import FatsUnlearning
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import foreseeing

from fuaudit.draws import END, Address, Keyed, Position, Purpose
from fuaudit.draws.keyed import Addresses, philox_key
from fuaudit.plans import AvailabilityLaw, Plan, Request, UniformLaw
from fuaudit.plans.attendance import Attendance
from fuaudit.plans.availability import (
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.proofs.toys import federation
from fuaudit.testing import strategies
from fuaudit.unlearning.baselines import Retrain

WHO = [
    BoundedRoundRobin(3, "drawn"),
    BoundedRoundRobin(3),
    BoundedRoundRobin(0),
    StaticProbability(Fraction(1, 3)),
    StaticProbability(Fraction(1)),
    StaticProbability(Fraction(str(2 / 3))),
    StaticProbability(Fraction(2**64 - 1, 2**64)),
    TimeVaryingWeights(number=2, largest=3),
    TimeVaryingWeights(share=Fraction(1, 2), largest=10),
]


MANY_DIGITS = Fraction(str(2 / 3)), Fraction(2**63, 2**64 - 1), Fraction(2**63 + 1, 2**64), Fraction(3, 2**63 + 1)
"""As a rate of 2/3 is written, and such that numbers have 64 bits."""

RATES = Fraction(1, 2), Fraction(1, 5), Fraction(1), Fraction(2**61, 2**62 - 1), *MANY_DIGITS


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_equal_to_drawing(data):
    population = data.draw(strategies.federations(5, 4))
    rounds, steps, size = (data.draw(st.integers(1, most)) for most in (5, 2, 3))
    batches = data.draw(
        st.sampled_from(
            [
                FreshBatches(steps, size),
                PermutedEpochs(steps, size, 4),
                *(PoissonBatches(steps, rate, size, 1) for rate in RATES),
            ]
        )
    )
    law = AvailabilityLaw(rounds, data.draw(st.sampled_from(WHO)), batches, data.draw(st.booleans()))
    requests = data.draw(strategies.streams(population, 3))
    moment = data.draw(strategies.moments(law))
    key = data.draw(st.integers(0, 200))
    plans = [Plan.fresh(law, population, Keyed(bytes([key, i]) * 16)) for i in range(8)]
    for number, request in enumerate(requests):
        assert Attendance.fits(plans)
        expected = [replace(plan, index=None).first_involvement(request) or END for plan in plans]
        indexed, _, _ = foreseeing(plans, request)
        assert [plan.first_involvement(request) or END for plan in indexed] == expected
        method = FatsUnlearning() if (key + number) % 3 else Retrain()
        made = [
            method.rewrite(plan, request, Keyed(bytes([key, i, number, 1]) * 8), moment if not number else END)
            for i, plan in enumerate(indexed)
        ]
        plans = [replace(plan, populations=made[0].populations, index=None) for plan in made]


@pytest.mark.parametrize("who", WHO, ids=lambda who: who.name)
def test_who_is_there(who):
    """All clients of all rounds, before and after one is gone from a round on."""
    law = AvailabilityLaw(6, who, FreshBatches(1, 1), first_all=False)
    population = federation((2, 2, 2, 2, 2))
    request = Request.of(clients=[3])
    plans = [Plan.fresh(law, population, Keyed(bytes([i]) * 32)) for i in range(20)]
    gone = [plan.erase(request, Keyed(bytes([i + 99]) * 32), Position(3, 0)) for i, plan in enumerate(plans)]
    for some in (plans, gone):
        there = Attendance(some).there(population.clients)
        for plan, rows in zip(some, there, strict=True):
            found = [tuple(np.flatnonzero(row).tolist()) for row in rows]
            assert found == [plan.cohort(round_number) for round_number in range(1, 7)]


def test_one_integer_of_many_draws_is_that_of_one():
    keys = [Keyed(bytes([i]) * 32) for i in range(50)]
    words = np.array([philox_key(k.secret, Purpose.AVAILABILITY) for k in keys], dtype=np.uint64)
    zero = np.zeros(50, dtype=np.int64)
    at = Addresses((words[:, 0], words[:, 1]), zero + 4, zero, zero + 7, zero, zero + 1)
    one = Address(Purpose.AVAILABILITY, 4, client=7, version=1)
    for index, bound in ((0, 7), (5, 3), (1, 2**62)):
        expected = [key.integer(one, index, bound) for key in keys]
        assert at.integer(index, np.full(50, bound)).tolist() == expected


class Own(AvailabilityLaw):
    """A law of a stranger, whose code nobody knows."""


def test_other_laws_are_read_otherwise():
    population = federation((2, 2))
    law = UniformLaw(1, 1, 1, 1)
    assert not Attendance.fits([Plan.fresh(law, population, Keyed(bytes(32)))])
    fine = AvailabilityLaw(1, StaticProbability(Fraction(1, 2**63)), FreshBatches(1, 1), first_all=False)
    assert Attendance.fits([Plan.fresh(fine, population, Keyed(bytes(32)))])
    fine = Own(1, StaticProbability(Fraction(1, 2**63)), FreshBatches(1, 1), first_all=False)
    plans = [Plan.fresh(fine, population, Keyed(bytes([i]) * 32)) for i in range(3)]
    assert not Attendance.fits(plans)
    indexed, rounds, _ = foreseeing(plans, Request.of(clients=[0]))
    assert rounds.tolist() == [END.round] * 3
    assert indexed[0].first_involvement(Request.of(clients=[0])) is None
