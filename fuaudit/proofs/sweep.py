"""Sweeps: many small federations like those of a run, each proved or refuted within a budget of leaves."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from math import ceil, inf
from typing import Any

from fuaudit.declared import offers
from fuaudit.draws import END, Draws, Keyed, Position
from fuaudit.draws.keyed import derive
from fuaudit.errors import BudgetError
from fuaudit.plans import Law, Plan, Population, Request
from fuaudit.plans.reference import BehindEdit, Edited, in_turn
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.proofs.chance import drawn_toys
from fuaudit.proofs.coverage import STOPS, Coverage, missing
from fuaudit.proofs.cut import at_own_rate, cut_toys
from fuaudit.proofs.exactness import Exactness, estimated_leaves, estimated_retraining, exactness
from fuaudit.proofs.related import related_toys
from fuaudit.proofs.toys import LONGEST, Shape, Toy, Toys, during_training, numbers_of, toys_like, trials
from fuaudit.proofs.value import option
from fuaudit.text import counted

SHARE = 4
"""One federation may take a fourth of what is left of a budget: the rest is for others."""

RELATED, DRAWN, CUT = 5, 10, 4
"""Federations that are told apart by who is who have a fifth of the leaves more, those that the key draws a tenth, and
those whose batches are cut at the rate of the run a fourth."""

DRAWN_SHARE, TRIES = 16, 400
"""One that the key draws may take a 16th of what these have; so many are tried."""

DEAR = 10
"""To so many that the key draws and that are proved, one may be too large for the method alone: right ones that draw
more than they need had one to twenty, and a PASS names them."""

ROUGHLY, PROBES = 16, 8
"""One path tells the number of leaves within this factor, as a rule; so many tell it well enough."""

ROOM, SLACK = 16, 64
"""A rewriter may walk so many times the leaves of :class:`Keeping` on all federations together, and on one of them."""


@dataclass(frozen=True)
class Keeping:
    """Keeps what comes before the first involvement, under any law: the yardstick of what a rewriter has to draw.

    It says which federations are walked. Did the rewriter's own leaves say it, draws that he does not need would make
    those too large that refute him.
    """

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`fuaudit.unlearning.protocol.Rewriter`."""
        return plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before))


KEEPING = Keeping()


@dataclass(frozen=True)
class Succession:
    """A rewriter made of several: each carries out the request of its place, the last one all that follow."""

    steps: tuple[Any, ...]

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """What the unlearner of this request's place makes of the plan."""
        step = min(len(plan.populations) - 1, len(self.steps) - 1)
        rewritten: Plan = self.steps[step].rewrite(plan, request, fresh, not_before)
        return rewritten


@dataclass(frozen=True)
class Sweep:
    """What a sweep over small federations gave.

    ``too_large`` counts those that were not walked, by what retraining or keeping what one may takes already, and
    ``costly`` those that the rewriter alone made too large.
    """

    proved: tuple[Toy, ...]
    refuted: tuple[tuple[Toy, Exactness], ...]
    too_large: int
    leaves: int
    costly: int = 0

    def __add__(self, other: Sweep) -> Sweep:
        return Sweep(
            self.proved + other.proved,
            self.refuted + other.refuted,
            self.too_large + other.too_large,
            self.leaves + other.leaves,
            self.costly + other.costly,
        )

    @property
    def smallest(self) -> tuple[Toy, Exactness] | None:
        """The refutation that took the fewest leaves."""
        return min(self.refuted, key=lambda pair: pair[1].leaves, default=None)


def sweep(
    unlearner: Any,
    toys: Toys | Sequence[Toy],
    leaves: int,
    progress: Any = None,
) -> Sweep:
    """Prove or refute exactness on each federation whose estimated leaves fit into what is left of the budget.

    What does not fit is costly where :class:`Keeping` takes a small part of what is left: no budget helps there.

    Raises:
        PluginError, KeyReuseError: the unlearner failed on one of them.
    """
    proved, refuted, too_large, costly, left = [], [], 0, 0, leaves
    for number, toy in enumerate(toys, 1):
        try:
            if left < 1 or not _fits(unlearner, toy, left):
                raise BudgetError("too large for what is left")
            result = _once(_proof, unlearner, toy, left)
            left -= result.leaves
        except BudgetError:
            alone = _fits(KEEPING, toy, left // SLACK)
            too_large, costly = too_large + (not alone), costly + alone
            continue
        finally:
            if progress:
                progress("small federations", number, len(toys))
        if result.exact:
            proved.append(toy)
        else:
            refuted.append((toy, result))
    return Sweep(tuple(proved), tuple(refuted), too_large, leaves - left, costly)


def _beside(unlearner: object, toy: Toy, left: int, few: int) -> tuple[Sweep, int]:
    """What is found on one federation that Keeping walks with about ``few`` leaves, and how many it takes.

    These are estimated. They are counted where the unlearner takes many: the estimate may be what is wrong.
    """
    result, leaves = _walk(unlearner, toy, SLACK * few) if left > 0 else (None, 0)
    if result is None or leaves > 2 * few:
        own, counted_leaves = _walk(KEEPING, toy, SLACK * few)
        if own is None and result is None:
            return Sweep((), (), 1, leaves), few
        if own and counted_leaves > few:
            few = counted_leaves
            if result is None and left > leaves:
                result, again = _walk(unlearner, toy, SLACK * few)
                leaves += again
    if result is None:
        return Sweep((), (), 0, leaves, costly=1), few
    return Sweep((toy,) * result.exact, () if result.exact else ((toy, result),), 0, leaves), few


def _walk(unlearner: object, toy: Toy, most: int) -> tuple[Exactness | None, int]:
    """The proof, or None where it takes more leaves; and how many were walked.

    An estimate can be wrong by much where some draws are rare: it refuses what is far beyond, and the walk the rest.
    """
    try:
        if _once(_estimate, unlearner, toy, ROUGHLY * most) > ROUGHLY * most:
            return None, 0
        proof: Exactness = _once(_proof, unlearner, toy, most)
        return proof, proof.leaves
    except BudgetError:
        return None, most


def _fits(unlearner: object, toy: Toy, most: int) -> bool:
    """Whether a proof takes at most so many leaves, about; most that do not are seen by one path of retraining."""
    try:
        return bool(_once(_one_path, None, toy) <= ROUGHLY * most and _once(_estimate, unlearner, toy, most) <= most)
    except BudgetError:
        return False


def _one_path(_: None, toy: Toy) -> float:
    return estimated_retraining(toy.law, toy.population, toy.requests, 1)


def _estimate(unlearner: Any, toy: Toy, most: int) -> float:
    return estimated_leaves(unlearner, *toy, probes=PROBES, most=most)


def _proof(unlearner: Any, toy: Toy, leaves: int) -> Exactness:
    return exactness(unlearner, *toy, leaves=leaves)


def _once(work: Callable[..., Any], unlearner: object, toy: Toy, *given: Any) -> Any:
    """The result of one of these, computed once in a process for unlearners and laws that are values.

    A proof speaks of a method and a law, not of a run: whoever verifies many runs of one method waits for it once. Of
    laws of strangers nothing is kept: what they draw may hang on more than their options.
    """
    if is_foreign(toy.law):
        return work(unlearner, toy, *given)
    try:
        return _kept(work, (_identity(unlearner), option(toy.law)), unlearner, toy, *given)
    except TypeError:  # not hashable; an unlearner that raises one is a PluginError by now
        return work(unlearner, toy, *given)


@lru_cache(maxsize=50_000)
def _kept(work: Callable[..., Any], _: object, unlearner: object, *given: Any) -> Any:
    return work(unlearner, *given)


def _identity(unlearner: object) -> tuple[Any, ...]:
    """The classes, code and options of an unlearner, beside its value: what says it is equal to another need not be.

    Options that are left out of comparisons count. Of those without a hash only the same object is the same.
    """
    if isinstance(unlearner, Succession):
        return tuple(map(_identity, unlearner.steps))
    if isinstance(unlearner, BehindEdit):
        return BehindEdit, *_identity(unlearner.method)
    kind: Any = type(unlearner)
    return id(kind), kind.rewrite if offers(kind, "rewrite") else None, option(unlearner)


def _federation(toy: Toy) -> Hashable:
    """What a federation is told by: tasks have some in common, and each is counted once."""
    return option(toy.law), tuple(toy.population.samples.items()), toy.requests, toy.not_before


def _walk_of(unlearner: object, toy: Toy) -> Hashable:
    """What a proof is told by that is made once; under a law of a stranger each is made, so each has a name."""
    return object() if is_foreign(toy.law) else (_identity(unlearner), _federation(toy))


@dataclass(frozen=True)
class Task:
    """A method, or several one after another, on federations for requests of some shapes.

    Attributes:
        steps: the places of its methods among those of a lineage, oldest first.
        shapes: of the requests; none for the fixed list, which has its own.
        alone: marks one request by itself, whose federations must reach as far as
            :data:`fuaudit.proofs.coverage.FLOOR`, or, during training, as ``FLOOR_DURING``.
        group: tasks of one group share leaves. Others have their own: whoever is asked besides takes none away.
        stop: how many rounds were executed when a request came during training; None where none did.
        more: where they have no floor, and leaves of their own: those of the others over this number. 0 for the others.
        drawn: marks federations that the key of the audit drew.
    """

    unlearner: Any
    words: str
    toys: tuple[Toy, ...]
    steps: tuple[int, ...]
    shapes: tuple[Shape, ...] = ()
    alone: bool = False
    group: Hashable = 0
    stop: int | None = None
    more: int = 0
    drawn: bool = False


FIXED = "the fixed list"

Made = Sequence[tuple[Any, Shape]]
"""Unlearners of a lineage with the shapes of their requests, oldest first."""


def tasks_of(law: Law, made: Made, key: Keyed | None = None) -> list[Task]:
    """What is enumerated for a run: its requests by themselves, twice, as they were made, and the fixed list.

    Requests that came during training come after one round and after two, as far as the run has more. All but the
    fixed list comes again over federations that are told apart by who is who, over those whose batches are cut at the
    rate of the run, and over those that a key draws.
    """
    listed = _listed(law, made)
    asked = [(number, task) for number, task in enumerate(listed) if task.shapes]
    by_relation = [_besides(task, number, "related", related_toys(law, task.shapes), RELATED) for number, task in asked]
    cut = [_besides(task, number, "cut", cut_toys(law, task.shapes), CUT) for number, task in asked]
    by_relation += [task for task in cut if task.toys]
    if key is None:
        return listed + by_relation
    keys = {number: Keyed(derive(key.secret, "small federations", str(number))) for number, _ in asked}
    most = _most_served(law, listed)
    by_chance = [
        _besides(task, number, "drawn", _of_most(drawn_toys(law, task.shapes, keys[number], TRIES), most), DRAWN)
        for number, task in asked
    ]
    return [*listed, *by_relation, *(replace(task, drawn=True) for task in by_chance)]


def _most_served(law: Law, listed: Sequence[Task]) -> float:
    """How many clients a law serves: one of a stranger's may have numbers for no more than the lists have."""
    numbers = (len(toy.population.clients) for task in listed for toy in task.toys)
    return max(numbers, default=inf) if is_foreign(law) else inf


def _of_most(toys: Iterable[Toy], most: float) -> Iterator[Toy]:
    return (toy for toy in toys if len(toy.population.clients) <= most)


def _besides(task: Task, number: int, words: str, toys: Iterable[Toy], more: int) -> Task:
    """The same over other federations, with leaves of its own."""
    told = f"{task.words}, {words}"
    return replace(task, words=told, toys=tuple(toys), alone=False, group=(words, number), more=more)


def _listed(law: Law, made: Made) -> list[Task]:
    tasks, first = list[Task](), dict[Any, int]()
    rewriters = [
        (first.setdefault(_identity(own), place), shape)
        for place, (own, shape) in enumerate(made)
        if not isinstance(own, Edited)
    ]
    for number, (place, shape) in enumerate(dict.fromkeys(rewriters)):
        after, kinds = replace(shape, moment=None), {other.kind for at, other in rewriters if at == place}
        if place not in {task.steps[0] for task in tasks}:
            fixed = [toy for toy in _fixed(law) if {request.kind for request in toy.requests} <= kinds]
            tasks.append(Task(made[place][0], FIXED, tuple(fixed), (place,), group=number))
        tasks.append(_task(made, law, [after], place, alone=True, group=number))
        if shape.moment is not None:
            tasks += [
                _task(made, law, [stopped], place, alone=True, group=(number, stopped.moment))
                for (stopped,) in _stopped([shape], law)
            ]
        tasks.append(_task(made, law, [after, Shape.of_kind(after.kind)], place, group=number))
    if len(made) > 1:
        latest = range(max(0, len(made) - LONGEST), len(made))
        for shapes in _stopped([made[place][1] for place in latest], law):
            tasks.append(_task(made, law, shapes, *latest, group=len(tasks)))
    return tasks


def _stopped(shapes: Sequence[Shape], law: Law) -> Iterator[list[Shape]]:
    """Requests with those during training after one round, and after two; as they are where none came then."""
    if all(shape.moment is None for shape in shapes):
        yield [*shapes]
        return
    for stop in STOPS:
        if stop < law.rounds:
            yield [shape if shape.moment is None else replace(shape, moment=stop) for shape in shapes]


def _task(made: Made, law: Law, shapes: Sequence[Shape], *steps: int, group: Hashable, alone: bool = False) -> Task:
    methods = in_turn([made[place][0] for place in steps])
    # a method after itself is that method: its proofs are those of other tasks
    unlearner = Succession(methods) if len(set(map(_identity, methods))) > 1 else methods[0]
    words, toys = ", then ".join(map(str, shapes)), tuple(toys_like(law, shapes))
    stop = next((shape.moment for shape in shapes if shape.moment is not None), None)
    return Task(unlearner, words, toys, steps, tuple(shapes), alone, group, stop)


def _fixed(law: Law) -> Iterator[Toy]:
    """The contract suite's list under small laws like this one, as far as there are such."""
    small = {numbers_of(like): like for like in law.smaller()}
    try:
        yield from trials(lambda *numbers: small[numbers])
    except KeyError:
        return


@dataclass(frozen=True)
class Reached:
    """What the proofs of a sweep reach: where they fall short, and how far they go for each task, in words.

    Attributes:
        numbers: how far they go for one request, for two, and so on, after training and then during it, in words: what
            those of every method do.
        drawn: how many federations were proved that the key of the audit drew, and that no list has.
        dear: how many of these were not walked, for the method alone draws far more on them than it needs.
        refuted: the task that ended it.
        rates: how far federations go whose batches have the rate of the run, in sentences; none where all have.
    """

    short: tuple[str, ...]
    details: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    drawn: int = 0
    dear: int = 0
    refuted: Task | None = None
    rates: tuple[str, ...] = ()


def walked(task: Task, leaves: int, progress: Any = None, known: Container[Hashable] = ()) -> tuple[Sweep, int]:
    """Prove exactness on the federations that :class:`Keeping` walks within so many leaves, up to the first refutation.

    Leaves of proofs that are ``known`` (:func:`_walk_of`) count as taken, and not among those that were walked.

    Returns:
        What was found, and how many leaves are left by those that Keeping takes. One federation may take a share of
        what is left.

    Raises:
        PluginError, KeyReuseError: the unlearner failed on one of them.
    """
    found, left = Sweep((), (), 0, 0), leaves
    for number, toy in enumerate(task.toys, 1):
        most = min(left, leaves // DRAWN_SHARE) if task.drawn else left // SHARE
        if most >= 1 and _fits(KEEPING, toy, most):
            about = ceil(_once(_estimate, KEEPING, toy, most))
            one, few = _beside(task.unlearner, toy, ROOM * leaves - found.leaves, about)
            again = _walk_of(task.unlearner, toy) in known
            found, left = found + (replace(one, leaves=0) if again else one), left - few
        else:
            found += Sweep((), (), int(not task.drawn), 0)
        if progress:
            progress(f"small federations, {task.words}", number, len(task.toys))
        if found.refuted:
            break
    return found, left


def swept(
    law: Law, before: Population, made: Made, leaves: int, progress: object = None, key: Keyed | None = None
) -> tuple[Sweep, Reached]:
    """All tasks one after the other, up to the first refutation; each has its share of what is left to its group.

    Tasks have federations in common. Each counts for all of its tasks, and once in what is found by all of them.

    Args:
        before: the population before the last request, which says how far the federations must go.
        made: the requests of the lineage, with their unlearners.
        leaves: of a group, by what :class:`Keeping` takes.
        key: draws federations beside those of lists; they have leaves of their own.
    """
    found, short, details, drawn, dear = Sweep((), (), 0, 0), list[str](), list[str](), 0, 0
    tasks, proved = tasks_of(law, made, key), dict[tuple[int, int, Hashable], list[Toy]]()
    left = {task.group: leaves // (task.more or 1) for task in tasks}
    walks, there = set[Hashable](), set[Hashable]()
    for number, task in enumerate(tasks):
        weights = [1 + later.alone for later in tasks[number:] if later.group == task.group]
        share = left[task.group] * weights[0] // sum(weights)
        part, rest = walked(task, share, progress, walks)
        walks |= {_walk_of(task.unlearner, toy) for toy in part.proved}
        new = {_federation(toy): toy for toy in part.proved if _federation(toy) not in there}
        there |= new.keys()
        found, left[task.group] = found + replace(part, proved=(*new.values(),)), left[task.group] - share + rest
        if part.refuted:
            return found, Reached(tuple(short), tuple(details), refuted=task)
        drawn += len(new) * task.drawn
        reached = Coverage.of(part.proved)
        details += _proved(task, part) or [f"{task.words}: no federation was walked"] * bool(task.more)
        # by chance one may be too large for a right method that draws more; where several are, something may be hidden
        most = len(part.proved) // DEAR if task.drawn else 0
        dear += part.costly
        if part.costly > most or (task.toys and not part.proved and not task.more):
            short.append(_unwalked(part, task.words))
        if task.alone:
            short += [f"{words} for {task.words}" for words in missing(reached, law, before, task.stop)]
        if task.words != FIXED and part.proved and not task.more:
            proved.setdefault((task.stop or 0, len(part.proved[0].requests), task.group), []).extend(part.proved)
    return found, Reached(
        tuple(short), tuple(details), tuple(_by_number(proved)), drawn, dear, None, at_own_rate(law, found.proved)
    )


def _proved(task: Task, part: Sweep) -> list[str]:
    """In words: what was proved for a task; the fixed list has requests after training and during it."""
    after = [toy for toy in part.proved if task.stop or toy.not_before[-1] == END]
    during = [toy for toy in part.proved if toy not in after]
    return [
        f"{task.words}{when}: {counted(len(toys), 'federation')} proved; {Coverage.of(toys)}"
        for when, toys in (("", after), (", during training", during))
        if toys
    ]


def _by_number(proved: Mapping[tuple[int, int, Hashable], Sequence[Toy]]) -> Iterator[str]:
    """How far proofs go for each number of requests: what those of all groups of tasks reach."""
    for stop, number in sorted({key[:2] for key in proved}):
        reached = [Coverage.of(toys) for key, toys in proved.items() if key[:2] == (stop, number)]
        yield reduce(Coverage.and_, reached).sentences(during_training(stop) if stop else "")


def _unwalked(part: Sweep, words: str) -> str:
    """In words: which federations of a task were asked of the rewriter, and not walked."""
    if not part.costly:
        return f"any federation for {words}"
    asked = counted(len(part.proved) + part.costly, "federation")
    return f"{part.costly} of {asked} for {words}, on which the method draws far more than one that keeps what it may"
