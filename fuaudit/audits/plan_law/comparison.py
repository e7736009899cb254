"""The methods of a lineage beside a reference that is proved, on the same plans with the same new keys.

By the coupling inequality two laws are no farther apart than their draws differ: TV(method, retraining) is at most the
chance that method and reference draw otherwise (docs/theorem.md). If n plans drawn independently all agree, that chance
is at most 1 - alpha ** (1 / n), with confidence 1 - alpha. What is compared is what is drawn: the initial model, every
cohort, every batch and what was cut from it, by which later requests go. Equal segments and sources settle it; where
they differ, the draws are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, expm1, log, log1p

import numpy as np
from numpy.typing import NDArray

from fuaudit.audits.plan_law.simulate import Trial, chunks, fresh_for, trained
from fuaudit.draws import END, START, Position, Stream
from fuaudit.errors import FuauditError
from fuaudit.plans import Plan
from fuaudit.plans.expanded import NONE, Ids, Round
from fuaudit.plans.involvement import involvements
from fuaudit.plans.many import Plans, Streams, chosen
from fuaudit.plans.plan import first_change
from fuaudit.plans.reference import candidates
from fuaudit.plans.stacked import LazySchedule, Stack

PILOT = 32
"""Plans on which it is decided what a method is compared with. They are drawn for this alone, and not counted."""

REQUEST, PILOTS = "plan law request", "plan law pilot"
"""Purposes of keys."""

READ = 32
"""Pairs of plans whose draws are read at once, where segments differ: some MB with 150 places a plan."""

NUMBERS = 4
"""Numbers of the initial draw that are compared: different keys give the same four with a chance of 2 ** -212."""


@dataclass(frozen=True)
class Difference:
    """Where two plans first draw otherwise: the position, and what each draws there, in words."""

    at: Position
    method: str
    reference: str

    def __str__(self) -> str:
        where = "the initial model" if self.at == START else f"round {self.at.round}, step {self.at.step}"
        return f"{where}: the method draws {self.method}, the reference {self.reference}"


@dataclass(frozen=True)
class Comparison:
    """How plans compared: the first ``equal`` of them agree; ``first`` is what the next one draws otherwise, if any.

    ``redrawn`` counts the plans, among those looked at, in which the reference drew anything anew.
    """

    equal: int
    first: Difference | None
    redrawn: int

    def then(self, other: Comparison) -> Comparison:
        """With another one after it, of the plans that follow."""
        return Comparison(self.equal + other.equal, other.first, self.redrawn + other.redrawn)

    def below(self, alpha: float) -> float:
        """An upper bound on the chance that a plan differs, and so on the total variation, where all were equal."""
        return -expm1(log(alpha) / self.equal) if self.first is None and self.equal else 1.0


def needed(below: float, alpha: float) -> int:
    """How many equal plans bound the distance from retraining by ``below``."""
    return int(np.ceil(log(alpha) / log1p(-below))) if below < 1 else 1


def alone(plans: int) -> float:
    """The most that "all plans are equal, and the run's is not" can have as a chance, for a method that is exact.

    If plans differ at a rate p it is (1 - p) ** n p, at most where p is 1 / (n + 1).
    """
    return exp(plans * log1p(-1 / (plans + 1))) / (plans + 1)


def differences(found: Sequence[Plan], expected: Sequence[Plan]) -> Iterator[Difference | None]:
    """The first difference of every pair of plans, over the same law and populations; None where draws are equal."""
    size = (
        READ if found and Stack.fits(found) else 1
    )  # where plans are read one by one, the first that differs is enough
    for start in range(0, len(found), size):
        pairs = list(zip(found[start : start + size], expected[start : start + size], strict=True))
        open_ = [pair for pair in pairs if not same_sources(*pair) and not pair[0].by_strangers]
        try:
            read = iter(_read([pair[0] for pair in open_], [pair[1] for pair in open_])) if open_ else iter(())
        except FuauditError:  # of one plan, which is then found by itself
            read = (_alone(*pair) for pair in open_)
        for pair in pairs:
            if same_sources(*pair):
                yield None
            else:
                yield _unread(*pair) if pair[0].by_strangers else next(read)


def first_difference(found: Plan, expected: Plan) -> Difference | None:
    """Where two plans first draw otherwise; FuauditError where a draw of one of them cannot be read."""
    if same_sources(found, expected):
        return None
    return _unread(found, expected) if found.by_strangers else _read([found], [expected])[0]


def same_sources(found: Plan, expected: Plan) -> bool:
    """Whether every draw of two plans comes from the same source over the same population."""
    if found.sources != expected.sources:
        return False
    return found.streams == expected.streams or found.first_change(expected) == END


def _unread(found: Plan, expected: Plan) -> Difference:
    """What comes from other sources, under a law of a stranger: read twice, it could give what it gave before."""
    change = found.first_change(expected)
    return Difference(START if change == END else change, "from other sources, or from a record", "its own ones")


def _alone(found: Plan, expected: Plan) -> Difference | None:
    """One pair; a plan that cannot be read is a difference."""
    try:
        return first_difference(found, expected)
    except FuauditError as error:
        return Difference(START, f"what cannot be read ({error})", "a plan")


def _read(found: Sequence[Plan], expected: Sequence[Plan]) -> list[Difference | None]:
    """The first difference of every pair, by reading all draws."""
    ours, theirs = LazySchedule(found), LazySchedule(expected)
    first: list[Difference | None] = [None] * len(found)
    for number in range(1, ours.rounds + 1):  # all of them, also where all differ: each plan has to be readable
        mine, other = ours.round(number), theirs.round(number)
        same = np.ones(len(found), dtype=np.bool_)
        for one, two in ((mine.cohorts, other.cohorts), (mine.batches, other.batches), (_cut(mine), _cut(other))):
            shape = tuple(map(max, one.shape, two.shape))
            a, b = (_padded(array, shape) for array in (one, two))
            same &= (a == b).reshape(len(found), -1).all(axis=1)
        for place in np.flatnonzero(~same).tolist():
            first[place] = first[place] or _first(number, mine, other, place)
    return [_initial(a, b) or seen for a, b, seen in zip(found, expected, first, strict=True)]


def _cut(drawn: Round) -> Ids:
    """The samples that were cut, ``(n, K, E, C)``; C is 0 where none were."""
    return np.empty((*drawn.batches.shape[:3], 0), dtype=np.int64) if drawn.cut is None else drawn.cut


def _padded(array: Ids, shape: Sequence[int]) -> Ids:
    gaps = [(0, most - size) for most, size in zip(shape, array.shape, strict=True)]
    return np.pad(array, gaps, constant_values=NONE)


def _initial(found: Plan, expected: Plan) -> Difference | None:
    origins = [plan.segment(Stream.INITIAL, START) for plan in (found, expected)]
    a, b = (plan.sources[origin.source] for plan, origin in zip((found, expected), origins, strict=True))
    if origins[0].origin == origins[1].origin and (a is b or a == b):
        return None
    ours, theirs = (plan.initial_uniform(NUMBERS).tolist() for plan in (found, expected))
    if ours == theirs:
        return None
    return Difference(START, f"numbers that begin with {ours[0]:.6f}", f"{theirs[0]:.6f}")


def _first(number: int, ours: Round, theirs: Round, place: int) -> Difference | None:
    """The first difference of one run in a round."""
    a, b = (_ids(drawn.cohorts[place]) for drawn in (ours, theirs))
    if a != b:
        return Difference(Position(number, 0), f"the cohort {a}", str(b))
    for step, (at, client) in product(range(ours.batches.shape[2]), enumerate(a)):
        x, y = ((_ids(of[place, at, step]) for of in (drawn.batches, _cut(drawn))) for drawn in (ours, theirs))
        (left, cut), (other, gone) = x, y
        if left != other:
            return Difference(Position(number, step + 1), f"samples {left} of client {client}", str(other))
        if cut != gone:
            what = f"samples {left} of client {client}, cut from a batch with {cut} besides"
            return Difference(Position(number, step + 1), what, f"the same, with {gone}")
    return None


def _ids(row: Ids) -> list[int]:
    return [int(i) for i in row if i != NONE]


def references(trial: Trial, key: bytes) -> tuple[str, ...]:
    """For each step of a trial what its method is compared with: one of :data:`fuaudit.plans.reference.REFERENCES`.

    The first candidate that draws what the method draws on all pilot plans; where none does, the first of all.
    Pilot plans are not counted afterwards, so the choice does not bear on the bound.

    Raises:
        PluginError: an unlearner raised, or returned no plan over the retained population.
    """
    plans, taken = trained(trial, key, range(PILOT), PILOTS), list[str]()
    for place, step in enumerate(trial.steps):
        fresh = fresh_for(key, f"{PILOTS} request", range(PILOT), place)
        involved = involvements(plans, step.request)
        after = step.carrier.carried_out(plans, fresh, *involved)
        names = candidates(step.unlearner)
        for name in names if len(names) > 1 else ():
            expected = trial.reference(place, name).carried_out(plans, fresh, *involved)
            if all(found is None for found in differences(after, expected)):
                taken.append(name)
                break
        else:
            taken.append(names[0])
        plans = after
    return tuple(taken)


def compare(trial: Trial, beside: Sequence[str], key: bytes, numbers: range) -> Comparison:
    """Carry out the requests on plans by the methods and by what they are compared with, up to the first difference.

    Args:
        beside: of :func:`references`.
        numbers: of the plans. Each follows from the key and its number, so results do not depend on grouping.

    Raises:
        PluginError: an unlearner raised, or returned no plan over the retained population.
    """
    equal = redrawn = 0
    for chunk in chunks(trial, numbers):
        plans, expected, same = _carried_out(trial, beside, key, chunk)
        redrawn += int(expected.by_form(expected, lambda streams, _: _redraws(streams)).sum())
        apart = np.flatnonzero(~same)
        read = differences(plans.some(apart), expected.some(apart)) if len(apart) else iter(())
        for number, found in zip(apart.tolist(), read, strict=True):
            if found is not None:
                return Comparison(equal + number, found, redrawn)
        equal += len(chunk)
    return Comparison(equal, None, redrawn)


def _carried_out(
    trial: Trial, beside: Sequence[str], key: bytes, numbers: range
) -> tuple[Plans, Plans, NDArray[np.bool_]]:
    """Plans by the methods and by the references, and which of them have the same sources everywhere, ``(n,)``."""
    plans = trained(trial, key, numbers)
    expected, same = plans, np.ones(len(plans), dtype=np.bool_)
    for place, (step, name) in enumerate(zip(trial.steps, beside, strict=True)):
        fresh = fresh_for(key, REQUEST, numbers, place)
        involved = involvements(plans, step.request)
        after = step.carrier.carried_out(plans, fresh, *involved)
        rounds, steps = (found.copy() for found in involved)
        if len(others := np.flatnonzero(~same)):
            rounds[others], steps[others] = involvements(expected.some(others), step.request)
        made = trial.reference(place, name).carried_out(expected, fresh, rounds, steps)
        same, plans = _same_sources(after, made), after
        expected = chosen(same, plans, made)
    return plans, expected, same


def _same_sources(ours: Plans, theirs: Plans) -> NDArray[np.bool_]:
    """:func:`same_sources` of every pair, ``(n,)``."""
    same: NDArray[np.bool_] = ours.by_form(theirs, lambda a, b: first_change(a, b) == END)
    for a, b in zip(ours.columns, theirs.columns, strict=True):
        if a is not b:
            same &= np.array([one is other or one == other for one, other in zip(a, b, strict=True)])
    return same


def _redraws(streams: Streams) -> bool:
    """Whether any draw is not that of training."""
    return any([segment.origin for segment in row] != [(0, 0)] for row in streams.values())


def first_holding(trial: Trial, key: bytes, numbers: range) -> str:
    """The first of these plans that draws what was to be forgotten, and in which round; "" for none."""
    plans = trained(trial, key, numbers)
    for place, step in enumerate(trial.steps):
        fresh = fresh_for(key, REQUEST, numbers, place)
        plans = step.carrier.carried_out(plans, fresh, *involvements(plans, step.request))
    clients = [c for step in trial.steps for c in step.request.clients]
    samples = [s for step in trial.steps for s in step.request.samples]
    for number, plan in zip(numbers, plans, strict=True):
        drawn = LazySchedule([plan])
        for round_number in range(1, drawn.rounds + 1):
            here = drawn.round(round_number)
            held = np.isin(here.batches, samples).any() or np.isin(_cut(here), samples).any()
            if held or np.isin(here.cohorts, clients).any():
                return f"plan {number + 1}, round {round_number}"
    return ""
