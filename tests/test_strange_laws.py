"""Laws of strangers: a mistake is told with the law's name, what was asked of it, and its line."""

import importlib
import sys
import threading
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from test_guide import listings
from tests_support import audits, of_the_run

from fuaudit import load_run, train, unlearn
from fuaudit.audits.plan_law.simulate import Trial
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Plan, Request, UniformLaw, WeightedLaw
from fuaudit.plans.availability import AvailabilityLaw, FreshBatches, StaticProbability
from fuaudit.plans.plan import Routed
from fuaudit.plans.reference import is_closed
from fuaudit.plans.stacked import expand_many
from fuaudit.plans.strange_laws import is_foreign, remade
from fuaudit.plans.tried_laws import require_law, require_own_name
from fuaudit.proofs.toys import federation
from fuaudit.testing import check_law
from fuaudit.workflow.begin import begun

HERE = Address(Purpose.COHORT, 1)
THERE = Address(Purpose.BATCH, 1, 1, 0, 0)

WRONG = {
    "a population left out": ("cohort", lambda self, draws, t: draws.sequence(HERE, 1), "cohort of round 1, raised"),
    "a list": ("cohort", lambda self, draws, t: [0], r"cohort of round 1, returned \[0\], and not a tuple"),
    "a number that seems another one": (
        "cohort",
        lambda self, draws, t: (type("Odd", (int,), {})(0),),
        r"returned \(0,\), and not a tuple of clients",
    ),
    "a stranger": ("cohort", lambda self, draws, t: (7,), r"returned \(7,\), and not a tuple of clients"),
    "too many": ("cohort", lambda self, draws, t: (0, 1), "returned 2 clients, and places says 1"),
    "another purpose": (
        "cohort",
        lambda self, draws, t: draws.subset(THERE, (0,), 1),
        "that purpose is of the batches",
    ),
    "a later round": (
        "cohort",
        lambda self, draws, t: draws.subset(HERE._replace(round=t + 1), (0,), 1),
        "that is not round 1, step 0",
    ),
    "no step": (
        "batch",
        lambda self, draws, t, step, client, occurrence: draws.subset(THERE._replace(step=0, client=client), (), 0),
        "that is not round 1, step 1",
    ),
    "nobody by another number": (
        "cohort",
        lambda self, draws, t: draws.sequence(HERE._replace(client=2**64 - 1), (0,), 1),
        "which is no address",
    ),
    "no client": (
        "batch",
        lambda self, draws, t, step, client, occurrence: draws.subset(Address(Purpose.BATCH, t, step), (), 0),
        "that is not client",
    ),
    "samples of others": ("batch", lambda *asked: (2, 0), "and not a sorted tuple of this client's samples"),
    "a later step": ("drawn_at", lambda self, step: step + 1, "drawn_at of step 0, returned 1"),
    "no whole number": ("places", lambda self, population: 1.0, "places, returned 1.0, and not a whole number"),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The guide's law and learner, installed; the first can be written otherwise."""

    def installed(was="", now=""):
        found = listings("docs/plugin-guide.md")
        (tmp_path / "alone.py").write_text(found["alone.py"].replace(was, now), encoding="utf-8")
        (tmp_path / "solo.py").write_text(found["solo.py"], encoding="utf-8")
        about = tmp_path / "alone-0.1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: alone\nVersion: 0.1\n", encoding="utf-8")
        (about / "entry_points.txt").write_text("[fuaudit.learners]\nsolo = solo:Solo\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        gone()  # another module of tests may have met the guide's, which lay elsewhere
        return importlib.import_module("alone").Alone(rounds=2, steps=2, batch_size=2)

    def gone():
        for name in ("alone", "solo"):
            sys.modules.pop(name, None)

    yield installed
    gone()


@pytest.fixture
def alone(package):
    """The law of the guide."""
    return package()


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_law_is_told_before_training(alone, monkeypatch, mistake):
    method, does, told = WRONG[mistake]
    monkeypatch.setattr(type(alone), method, does)
    with pytest.raises(PluginError, match=f"the law Alone, .*{told}"):
        require_law(alone, federation((2, 2)))
    with pytest.raises(AssertionError, match=told):
        check_law(alone)


def test_a_law_that_raises_is_named_with_its_line(package):
    alone = package(".clients, 1)", ".customers, 1)")
    line = Path(sys.modules["alone"].__file__).read_text(encoding="utf-8").split("customers")[0].count("\n") + 1
    plan = Plan.fresh(alone, federation((2, 2)), Keyed(bytes(32)))
    for asked in (lambda: plan.cohort(2), plan.history):
        with pytest.raises(PluginError, match=rf"the law Alone, .* raised AttributeError.* \(alone.py, line {line}\)"):
            asked()


CONFIG = {
    "data": {"use": "digits"},
    "partition": {"use": "iid", "clients": 3},
    "model": {"use": "linear"},
    "learner": {"use": "solo", "rounds": 1, "steps": 1, "batch": 1, "step_size": 0.1},
}


def test_training_asks_the_law_before_it_commits(package):
    package("draws.subset(at, draws.population(at).clients, 1)", "draws.sequence(at, 1)")
    with pytest.raises(PluginError, match=r"the law Alone, cohort of round 1, raised TypeError.*alone.py, line"):
        begun(CONFIG, None, bytes(32))


def test_the_law_of_the_guide_is_trained_with(alone):
    assert begun(CONFIG, None, bytes(32)).plan(None).law == replace(alone, rounds=1, steps=1, batch_size=1)


MEMORY = """clients, drawn = draws.population(at).clients, globals().setdefault("DRAWN", {{}})
        if round_number <= {forgets} or round_number not in drawn:
            drawn[round_number] = draws.subset(at, clients, 1)
        return drawn[round_number] if drawn[round_number][0] in clients else clients[:1]"""


def remembering(package, forgets=0):
    """The guide's law, whose module remembers the cohorts of all rounds but the first ones."""
    return package("return draws.subset(at, draws.population(at).clients, 1)", MEMORY.format(forgets=forgets))


def test_a_law_that_remembers_is_told_before_training(package):
    remembering(package)
    with pytest.raises(PluginError, match="the law Alone, asked again, draws at other addresses"):
        begun(CONFIG, None, bytes(32))


@pytest.mark.parametrize(
    ("forgets", "told"), [(0, "draws at other addresses"), (2, "otherwise when it is asked again")]
)
def test_the_contract_finds_a_law_that_remembers(package, forgets, told):
    law = replace(remembering(package, forgets), rounds=3)
    with pytest.raises(AssertionError, match=told):
        check_law(law)


MANY = CONFIG | {"partition": {"use": "iid", "clients": 12}, "learner": CONFIG["learner"] | {"rounds": 5}}


def provenance(run):
    return audits(run, spec=of_the_run())[1]["provenance"]


def test_a_parent_that_trained_with_her_is_not_said_never_to_have_used_her(package, tmp_path):
    """Her rounds were drawn in training, and the law now answers for the parent by what it drew for the child."""
    remembering(package, forgets=2)
    memory = vars(sys.modules["alone"]).setdefault("DRAWN", {})
    parent = train(MANY, tmp_path / "parent", secret=bytes(32))
    first, late = set(parent.participation["cohorts"][0]), parent.participation["cohorts"][-1]
    assert not first & set(late)
    memory.clear()
    child = unlearn(parent, "retrain", Request.of(late), tmp_path / "child")
    memory.clear()
    child.plan.history()
    found = provenance(child)
    assert found.verdict == "INCONCLUSIVE"
    assert found.values["nothing_to_forget"].startswith("unknown: parent records another cohort of round")
    assert "than its law draws now" in found.shows
    assert not found.qualification


def test_a_parent_of_a_law_that_does_not_remember_is_said_never_to_have_used_her(package, tmp_path):
    package()
    parent = train(MANY, tmp_path / "parent", secret=bytes(32))
    missed = next(c for c in parent.original.clients if [c] not in parent.participation["cohorts"])
    found = provenance(unlearn(parent, "retrain", Request.of([missed]), tmp_path / "child"))
    assert found.verdict == "PASS"
    assert "The training never used what was to be forgotten" in found.qualification


@pytest.mark.parametrize("law", [UniformLaw(2, 2, 2, 2), UniformLaw(2, 2, 1, 3, replacement=False)])
def test_own_laws_keep_the_contract(law):
    check_law(law)


def test_a_fault_of_fuaudits_own_law_is_not_called_a_plugins():
    law = WeightedLaw(1, 1, 1, 1, weights=())
    with pytest.raises(KeyError):
        Plan.fresh(law, federation((1, 1)), Keyed(bytes(32))).cohort(1)


@dataclass(frozen=True)
class Lowest(UniformLaw):
    """Takes the rest of its members from a law of fuaudit, and the clients with the lowest ids."""

    name = "the lowest clients"

    def cohort(self, draws, round_number):
        return draws.population(Address(Purpose.COHORT, round_number)).clients[: self.cohort_size]


def test_what_inherits_from_a_known_law_is_none():
    """It was trained with, and known by statistics, as the law that it inherits from."""
    plan = Plan.fresh(Lowest(3, 2, 2, 2, replacement=False), federation((3, 3, 3, 3, 3)), Keyed(bytes(32)))
    assert [plan.cohort(number) for number in (1, 2, 3)] == [(0, 1)] * 3
    assert expand_many([plan]).cohorts[0].tolist() == [[0, 1]] * 3
    with pytest.raises(UsageError, match="the law of no statistic is known for plans drawn by 'the lowest clients'"):
        _ = Trial(plan.law, plan.retained, ()).uniform


@dataclass(frozen=True)
class EqualToEverything(UniformLaw):
    """Its batches are tuples of a kind of their own, which are equal to any other."""

    def batch(self, draws, round_number, step, client, occurrence):
        kind = type("Alike", (tuple,), {"__eq__": lambda mine, theirs: True, "__hash__": lambda mine: 0})
        return kind(super().batch(draws, round_number, step, client, occurrence))


def test_histories_that_proofs_compare_hold_plain_batches():
    """A proof would find every method exact, for all histories are one."""
    plan = Plan.fresh(EqualToEverything(1, 1, 1, 1, True), federation((2, 2)), Keyed(bytes(32)))
    with pytest.raises(PluginError, match="not a tuple of samples"):
        plan.history()


class Sly(int):
    """A number with a truth of its own."""


def half_of_sly():
    half = Fraction(1, 2)
    half._denominator = Sly(2)
    return half


class Equal(type):
    """Classes that say that they are int."""

    def __eq__(cls, other):
        return other is int or cls is other

    def __hash__(cls):
        return hash(int)


class Steps(int, metaclass=Equal):
    """It is in every set of classes that has int."""


class Veil(dict):
    """A dictionary of an object that does not name all that it holds."""

    def keys(self):
        return {name: None for name in dict.keys(self) if name != "cohort"}.keys()

    def __ror__(self, other):
        return other | {name: value for name, value in dict.items(self) if name != "cohort"}


def with_a_hidden_method(law):
    hidden = Veil(law.__dict__)
    hidden["cohort"] = lambda draws, number: (0,)
    object.__setattr__(law, "__dict__", hidden)
    return law


class Name(str):
    """It enters a dictionary as one name, and says afterwards that it is another."""

    at = "cohort"

    def __hash__(self):
        return hash(self.at)

    def __eq__(self, other):
        return True


def with_a_method_under_a_name_that_lies(law):
    class Told(Name):
        pass

    del law.__dict__["replacement"]
    law.__dict__[Told("cohort")] = lambda draws, number: (0,)
    Told.at = "rounds"
    return law


def with_a_method(law):
    object.__setattr__(law, "cohort", lambda draws, number: (0,))
    return law


@pytest.mark.parametrize(
    "law",
    [
        UniformLaw(2, 1, 1, 1, replacement=Sly(1)),
        UniformLaw(2, 1, Steps(1), 1),
        with_a_method(UniformLaw(2, 1, 1, 1)),
        with_a_hidden_method(UniformLaw(2, 1, 1, 1)),
        with_a_method_under_a_name_that_lies(UniformLaw(2, 1, 1, 1)),
        AvailabilityLaw(2, with_a_method(StaticProbability(Fraction(1, 2))), FreshBatches(1, 1)),
        AvailabilityLaw(2, StaticProbability(type("Half", (Fraction,), {})(1, 2)), FreshBatches(1, 1)),
        AvailabilityLaw(2, StaticProbability(half_of_sly()), FreshBatches(1, 1)),
    ],
)
def test_more_than_the_code_of_fuaudit_makes_is_no_law_of_fuaudit(law):
    """The theorem, and the statistics, speak of the class; the instance draws otherwise."""
    assert is_foreign(law)
    assert not is_closed(law)
    with pytest.raises(PluginError, match="which is a law of fuaudit"):
        require_own_name(law)


@dataclass(frozen=True, slots=True)
class InSlots:
    """A law's options without a dictionary."""

    rounds: int
    shares: tuple[Fraction, ...]


@dataclass(frozen=True)
class Round:
    """A law that keeps a helper, which knows the law."""

    rounds: int
    table: list = field(default_factory=lambda: [1, {2: {3}}])

    @cached_property
    def helper(self):
        return Helper(self)


@dataclass(frozen=True)
class Helper:
    law: Round


def test_a_law_is_made_anew_down_to_what_can_be_written_into():
    slots = InSlots(2, (Fraction(1, 2),))
    law = remade(slots)
    assert law == slots
    assert law.shares[0] is not slots.shares[0]
    assert is_foreign(slots)

    around = Round(2)
    assert around.helper.law is around
    law = remade(around)
    assert law.helper.law is law
    assert law.table == around.table
    assert law.table[1] is not around.table[1]

    weights = Round(2, np.ones(3))
    remade(weights).table[:] = 0
    assert weights.table.all()


def test_a_law_that_cannot_be_made_anew_is_refused():
    with pytest.raises(PluginError, match="cannot be copied"):
        remade(Round(2, threading.Lock()))


FLIPS = """
from dataclasses import dataclass
from typing import Any, ClassVar

from fuaudit.plugins import PLAIN, UniformLaw

PLACES = 3


@dataclass(frozen=True)
class Flips:
    rounds: int
    steps: int
    batch: int
    step_size: float
    decay: float = 1.0
    solver: ClassVar[dict[str, Any]] = PLAIN
    server: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "mean"},)

    @property
    def law(self):
        return UniformLaw(self.rounds, PLACES, self.steps, self.batch, replacement=True)
"""


def test_a_learner_that_makes_another_law_now_is_told_by_what_was_recorded(tmp_path, monkeypatch):
    """The law is fuaudit's own. In training three took part in a round, and now one does."""
    info = tmp_path / "site" / "flips-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "flipping.py").write_text(FLIPS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flips\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fuaudit.learners]\nflips = flipping:Flips\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    learner = {"use": "flips", "rounds": 4, "steps": 1, "batch": 8, "step_size": 0.1}
    parent = train(MANY | {"learner": learner}, tmp_path / "parent", secret=bytes(32))
    monkeypatch.setattr(sys.modules["flipping"], "PLACES", 1)
    child = unlearn(load_run(parent.path), "retrain", Request.of([0]), tmp_path / "child")
    found = provenance(child)
    assert (found.verdict, found.values["nothing_to_forget"][:7]) == ("INCONCLUSIVE", "unknown")
    sys.modules.pop("flipping")


@dataclass(frozen=True)
class Remembers(UniformLaw):
    """Not one law: once somebody was forgotten it draws the first client alone."""

    name = "remembers"

    def cohort(self, draws, round_number):
        at = Address(Purpose.COHORT, round_number)
        clients = draws.population(at).clients
        forgotten = len(draws.plan.populations) > 1
        return draws.sequence(at, clients[:1] if forgotten else clients, self.cohort_size)


def test_a_law_of_a_stranger_finds_no_plan_behind_its_draws():
    """Retraining is the same law over the retained population: what it must not know is that it was another one."""
    plan = Plan.fresh(Remembers(1, 2, 1, 1), federation((1, 1, 1)), Keyed(bytes(32)))
    with pytest.raises(PluginError, match="no attribute 'plan'"):
        plan.cohort(1)

    seen = []

    class Looks(UniformLaw):
        def cohort(self, draws, round_number):
            seen.append((draws, draws.population(Address(Purpose.COHORT, 1))))
            return super().cohort(draws, round_number)

    members = federation((1, 1, 1))
    plan = Plan.fresh(Looks(1, 2, 1, 1), members, Keyed(bytes(32)))
    assert plan.cohort(1) == Plan.fresh(UniformLaw(1, 2, 1, 1), members, Keyed(bytes(32))).cohort(1)
    ((draws, population),) = seen
    assert population == members
    assert population is not members
    found = [getattr(draws, name) for name in dir(draws) if not name.startswith("__")]
    assert not any(isinstance(getattr(one, "__self__", None), Routed) for one in found)


@dataclass(frozen=True)
class Compares(UniformLaw):
    """Not one law: it leaves the last client out where the initial model was drawn over more."""

    name = "compares"

    def cohort(self, draws, round_number):
        clients = draws.population(Address(Purpose.COHORT, round_number)).clients
        before = draws.population(Address(Purpose.INIT)).clients
        return draws.sequence(Address(Purpose.COHORT, round_number), clients[: -(clients != before)], 2)


@pytest.mark.parametrize("purpose", [Purpose.INIT, Purpose.PARTITION, Purpose.STAGE])
def test_a_law_of_a_stranger_gets_cohorts_and_batches_alone(purpose):
    """Where the initial model is kept its population is that of before: who was forgotten is told by it."""

    class Looks(UniformLaw):
        def cohort(self, draws, round_number):
            draws.population(Address(purpose))
            return super().cohort(draws, round_number)

    for law in (Compares(1, 2, 1, 1), Looks(1, 2, 1, 1)):
        plan = Plan.fresh(law, federation((1, 1, 1)), Keyed(bytes(32)))
        with pytest.raises(PluginError, match="it gets cohorts and batches alone"):
            plan.cohort(1)
