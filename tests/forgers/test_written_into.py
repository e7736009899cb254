"""A method writes into what it is given, and so changes what it is compared with.

It never draws the highest client again, and takes it out of the population that it was handed. If retraining, the
references and the run's own plan are drawn over that very object, all of them leave the client out as well.
"""

from dataclasses import dataclass

import pytest
from fuaudit_plugins.fats import FatsUnlearning

from fuaudit.draws import END, Address, Keyed, Position, Purpose, Stream
from fuaudit.errors import FuauditError
from fuaudit.plans import Plan, Request, UniformLaw
from fuaudit.plans.plan import WHOLE
from fuaudit.plans.veil import rewritten
from fuaudit.proofs import exactness
from fuaudit.proofs.toys import federation

LAW, MEMBERS, REQUEST = UniformLaw(1, 2, 1, 1), federation((1, 1, 1)), Request.of(clients=[0])


def fewer_clients(plan, left):
    left.__dict__["clients"] = left.clients[:-1]


def fewer_samples(plan, left):
    left.samples.pop(left.clients[-1])


def another_answer(plan, left):
    plan.retained._retained[REQUEST] = left.without(Request.of(left.clients[-1:]))


def a_method_of_the_law(plan, left):
    object.__setattr__(plan.law, "cohort", lambda draws, number: left.clients[:1] * 2)


def another_stream(plan, left):
    plan.streams[Stream.COHORTS] = plan.streams[Stream.COHORTS][:1] * 2


@dataclass(frozen=True)
class Spares(FatsUnlearning):
    """Draws every cohort anew, of all who are left but the last."""

    write: object

    def rewrite(self, plan, request, fresh, not_before):
        new = plan.erase(request, fresh, Position(1, 0))
        left = new.retained
        at = Address(Purpose.COHORT, 1, version=len(plan.populations))
        cohort = fresh.sequence(at, left.clients[:-1], 2)
        self.write(plan, left)
        object.__setattr__(request, "clients", (1,))
        return new.recorded({1: cohort})


@pytest.mark.parametrize("write", [fewer_clients, fewer_samples, another_answer, a_method_of_the_law, another_stream])
def test_what_it_writes_changes_nothing_but_its_own_copy(write):
    method = Spares(write)
    plan = Plan.fresh(LAW, MEMBERS, Keyed(bytes(32)))
    for _ in range(2):
        try:
            assert not exactness(method, LAW, MEMBERS, [REQUEST]).exact
            rewritten(method, "spares", plan, REQUEST, Keyed(bytes([1]) * 32), END)
        except FuauditError:
            pass  # refused is as good
    assert federation((1, 1, 1)) == MEMBERS
    assert MEMBERS.without(REQUEST).clients == (1, 2)
    assert vars(LAW) == vars(UniformLaw(1, 2, 1, 1))
    assert Request.of(clients=[0]) == REQUEST
    assert all(len(segments) == 1 for segments in WHOLE.values())
    assert exactness(FatsUnlearning(), LAW, MEMBERS, [REQUEST]).exact
