"""A method writes into what it is given, and so changes what it is compared with.

It never draws the highest client again, and takes it out of the population that it was handed. If retraining, the
references and the run's own plan are drawn over that very object, all of them leave the client out as well.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from fuaudit_plugins.fats import FatsUnlearning

from fuaudit import train
from fuaudit.draws import END, Address, Keyed, Position, Purpose, Stream
from fuaudit.errors import FuauditError
from fuaudit.plans import Plan, Request, UniformLaw
from fuaudit.plans.availability import AvailabilityLaw, FreshBatches, StaticProbability
from fuaudit.plans.plan import WHOLE
from fuaudit.plans.veil import rewritten
from fuaudit.proofs import exactness
from fuaudit.proofs.toys import federation

LAW, REQUEST = UniformLaw(1, 2, 1, 1), Request.of(clients=[0])


@pytest.fixture
def members():
    """A federation of its own, which no other test has met."""
    return federation((1, 1, 1))


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
def test_what_it_writes_changes_nothing_but_its_own_copy(write, members):
    method = Spares(write)
    plan = Plan.fresh(LAW, members, Keyed(bytes(32)))
    for _ in range(2):
        assert not exactness(method, LAW, members, [REQUEST]).exact
        rewritten(method, "spares", plan, REQUEST, Keyed(bytes([1]) * 32), END)
    assert federation((1, 1, 1)) == members
    assert members.without(REQUEST).clients == (1, 2)
    assert vars(LAW) == vars(UniformLaw(1, 2, 1, 1))
    assert Request.of(clients=[0]) == REQUEST
    assert all(len(segments) == 1 for segments in WHOLE.values())
    assert exactness(FatsUnlearning(), LAW, federation((1, 1, 1)), [REQUEST]).exact


def test_a_fraction_of_a_law_can_be_written_into_and_is_no_other_s(members):
    """A deep copy of a fraction is the same object. With p = 1 for all that compare, any two methods are alike."""
    law = AvailabilityLaw(1, StaticProbability(Fraction(1, 2)), FreshBatches(1, 1))

    class Certain:
        def rewrite(self, plan, request, fresh, not_before):
            plan.law.availability.probability._numerator = 2
            return plan.erase(request, fresh, Position(1, 0))

    plan = Plan.fresh(law, members, Keyed(bytes(32)))
    new = rewritten(Certain(), "certain", plan, REQUEST, Keyed(bytes([1]) * 32), END)
    assert new.law is law
    assert law.availability.probability == Fraction(1, 2)


def test_no_plugin_holds_the_law_of_a_run(tiny, tmp_path):
    """A learner of somebody's could keep it, and write into it while it is compared with."""
    learner = {"use": "dropouts", "rounds": 2, "steps": 1, "batch": 2, "step_size": 0.1, "first_all": False}
    tables = {**tiny.tables, "learner": learner | {"scenario": "static", "probability": 0.5}}
    run = train(tables, tmp_path / "run", data=tiny.dataset, secret=bytes(range(32)))
    ours, theirs = run.law.availability.probability, run.learner.law.availability.probability
    assert ours == theirs
    assert ours is not theirs


SEEN = []


class Answering(tuple):
    """Compared with another tuple, it is asked first, and handed the other one."""

    def __ne__(self, other):
        SEEN.append(other)
        return False

    __eq__ = __ne__
    __hash__ = tuple.__hash__


@dataclass(frozen=True)
class Listens(FatsUnlearning):
    """Returns a plan whose parts are asked when they are compared."""

    def rewrite(self, plan, request, fresh, not_before):
        new = super().rewrite(plan, request, fresh, not_before)
        return replace(new, populations=Answering(new.populations))


def test_what_he_returns_is_not_compared_with_what_counts(members):
    plan = Plan.fresh(LAW, members, Keyed(bytes(32)))
    new = rewritten(Listens(), "listens", plan, REQUEST, Keyed(bytes([1]) * 32), END)
    theirs = [id(one) for other in SEEN for one in other]
    assert not {id(one) for one in new.populations} & set(theirs)


@dataclass(frozen=True)
class Theirs(UniformLaw):
    """A law of somebody else, that is right."""

    name = "theirs"


def test_a_law_of_another_package_is_not_the_rewriter_s_to_change(members):
    law = Theirs(1, 2, 1, 1)

    class Writes:
        def rewrite(self, plan, request, fresh, not_before):
            object.__setattr__(plan.law, "cohort", lambda draws, number: (1, 1))
            return plan.restart(request, fresh)

    plan = Plan.fresh(law, members, Keyed(bytes(32)))
    new = rewritten(Writes(), "writes", plan, REQUEST, Keyed(bytes([1]) * 32), END)
    assert new.law is law
    assert vars(law) == vars(Theirs(1, 2, 1, 1))


class Spared(tuple):
    """Compared with the populations that count, it takes all clients but the first out of the last one."""

    def __ne__(self, other):
        keep_the_first(other[-1])
        return False

    __eq__ = __ne__
    __hash__ = tuple.__hash__


def keep_the_first(left):
    for client in left.clients[1:]:
        left.samples.pop(client)
    left.__dict__["clients"] = left.clients[:1]


def by_hand(plan, request, fresh):
    """The first client of those who stay in every place, and written down as if nobody else could be drawn."""
    new = plan.erase(request, fresh, Position(1, 0))
    first = new.retained.clients[0]
    new = new.recorded({1: (first,) * 2})
    keep_the_first(new.retained)
    return new


def by_asking(plan, request, fresh):
    new = plan.restart(request, fresh)
    return replace(new, populations=Spared(new.populations))


def by_keeping(plan, request, fresh):
    """Keeps all that was drawn, and gives the population of before the samples of after."""
    new = plan.erase(request, fresh, END)
    plan.populations[0].samples.clear()
    plan.populations[0].samples.update(new.retained.samples)
    plan.populations[0].__dict__.pop("clients", None)
    return new


@pytest.mark.parametrize("write", [by_hand, by_asking, by_keeping])
def test_a_law_of_another_package_never_draws_over_what_a_rewriter_held(write, members):
    """Laws of strangers and rewriters shared one twin of a population: both then drew the first client alone."""

    class Method:
        def rewrite(self, plan, request, fresh, not_before):
            return write(plan, request, fresh)

    law = Theirs(1, 2, 1, 1)
    found = exactness(Method(), law, members, [REQUEST])
    assert found.exact is (write is by_asking)  # what is compared is his own, so this is retraining
    assert exactness(FatsUnlearning(), law, members, [REQUEST]).exact


def test_no_rewriting_meets_what_another_one_wrote(members):
    """A method of a stranger could spoil fuaudit's own, which came after it in a lineage."""

    class Spoils:
        def rewrite(self, plan, request, fresh, not_before):
            object.__setattr__(plan.law, "cohort_size", 0)
            for population in plan.populations:
                population.samples.clear()
            return plan.restart(request, fresh)

    for law in (LAW, Theirs(1, 2, 1, 1)):
        plan = Plan.fresh(law, members, Keyed(bytes(32)))
        with suppress(FuauditError):
            rewritten(Spoils(), "spoils", plan, REQUEST, Keyed(bytes([1]) * 32), END)
        assert exactness(FatsUnlearning(), law, members, [REQUEST]).exact
