"""The door through which every rewriter gets its plan, in a proof, in an audit and in a real run.

A rewriter decides by draws, and by nothing else. So all sources behind the door are of one class. It answers draws of
cohorts and batches. It shows no key, no numbers of an initial model, and not whether it stands in a proof or in a run.
Of the plan that comes back only segments and records are used.

This guides authors and is no wall, for Python has none. Code that looks into closures, counts calls or opens files can
tell a run from a proof. Such a method is found by what it draws, or by reading its code.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeVar

from fuaudit.draws import END, START, Address, Draws, Position, Purpose, Recorded, Stream
from fuaudit.draws.address import NOBODY, OPEN, is_address
from fuaudit.errors import BudgetError, FuauditError, PluginError, line_of
from fuaudit.plans.plan import Plan, Segment, Segments
from fuaudit.plans.population import Population, Request
from fuaudit.plans.strange_laws import is_just, is_plain, remade

Answer = TypeVar("Answer")

Finite = Callable[[Address, Sequence[int], int], tuple[int, ...]]

Many = Callable[[Sequence[Address], Sequence[Sequence[int]], Sequence[int]], list[tuple[int, ...]]]

FIRST = -1
"""In :data:`Hear`, in the place of a source: who is asked where a request is first involved."""

Hear = Callable[[int, Any], None]
"""Is given all that a rewriter may ask, before he gets it: the number of a source, or FIRST, and the object."""


class Veiled:
    """Draws of cohorts and batches under some key. Two are equal only if they are the same object.

    Who answers cannot be told: what is asked is made plain first, what comes back is made anew, and an error ends the
    rewriting whoever catches it (:func:`rewritten`).
    """

    __slots__ = ("independent", "many_subsets", "permutation", "sequence", "subset", "weighted")

    def __init__(self, source: Draws, clients: Container[int], broken: list[Exception]) -> None:
        """``source`` answers draws of ``clients``, those at training; it is not kept under a name.

        Errors go to ``broken``.
        """

        def answered(ask: Callable[[], Answer]) -> Answer:
            try:
                return ask()
            except Exception as error:
                broken.append(error)
                raise

        def sequence(at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
            return answered(lambda: _anew(source.sequence(_open(at, clients), _plainly(population), count)))

        def subset(at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
            return answered(lambda: _anew(source.subset(_open(at, clients), _plainly(population), count)))

        def many_subsets(
            places: Sequence[Address], populations: Sequence[Sequence[int]], counts: Sequence[int]
        ) -> list[tuple[int, ...]]:
            def ask() -> list[tuple[int, ...]]:
                among = [_plainly(population) for population in populations]
                return [*map(_anew, source.many_subsets([_open(at, clients) for at in places], among, list(counts)))]

            return answered(ask)

        def weighted(at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
            def ask() -> tuple[int, ...]:
                among, sizes = _plainly(population), tuple(weights)
                return _anew(source.weighted(_open(at, clients), among, sizes, count))

            return answered(ask)

        def independent(at: Address, population: Sequence[int], probability: Fraction) -> tuple[int, ...]:
            return answered(
                lambda: _anew(source.independent(_open(at, clients), _plainly(population), _as_plain(probability)))
            )

        def permutation(at: Address, population: Sequence[int]) -> tuple[int, ...]:
            return answered(lambda: _anew(source.permutation(_open(at, clients), _plainly(population))))

        self.many_subsets: Many = many_subsets
        self.sequence: Finite = sequence
        self.subset: Finite = subset
        self.weighted: Callable[[Address, Sequence[int], Sequence[int], int], tuple[int, ...]] = weighted
        self.independent: Callable[[Address, Sequence[int], Fraction], tuple[int, ...]] = independent
        self.permutation: Callable[[Address, Sequence[int]], tuple[int, ...]] = permutation

    def uniform(self, at: Address, count: int) -> Any:
        """Raises PluginError: a rewriter has no use for the numbers of an initial model."""
        if at.purpose in OPEN:
            raise PluginError(
                f"a rewriter asked for numbers in [0, 1) at a draw of {at.purpose}: it gets ids alone", COIN
            )
        _refuse(at)

    def __repr__(self) -> str:
        return "<draws>"


class Asked:
    """An index that answers first involvement. It does not show whether the answer was known or had to be drawn.

    It speaks of what was executed. The index of a run that was stopped holds no more, and a proof could draw the rest.
    """

    __slots__ = ("first",)

    def __init__(self, plan: Plan, not_before: Position, broken: list[Exception]) -> None:
        """``plan`` answers, of what comes before ``not_before``; errors go to ``broken``."""

        def first(request: Request) -> Position | None:
            try:
                found = plan.first_use(_there(request, plan.retained))
            except Exception as error:
                broken.append(error)
                raise
            if found is None:
                return None
            # of the draw, always: an index that was made beforehand knows that, and one of a run knows the reading
            drawn = Position(found.round, plan.law.drawn_at(found.step))
            return drawn if drawn < not_before else None

        self.first: Callable[[Request], Position | None] = first

    def __repr__(self) -> str:
        return "<first involvement>"


def _there(request: Request, population: Population) -> Request:
    """The same request, made anew, of who is there: an index of a run would answer for others, and a proof would not.

    Raises:
        PluginError: it is no request, or names who is not there.
    """
    if type(request) is Request and is_plain(request.clients) and is_plain(request.samples):
        owners = population.owner
        if all(c in population.samples for c in request.clients) and all(s in owners for s in request.samples):
            return Request(request.clients, request.samples)
    raise PluginError(
        "a rewriter asked for the first involvement of what is no request to this population",
        "Make one by Request.of(clients, samples), of ids of type int that the plan's last population has.",
    )


def _open(at: Address, clients: Container[int]) -> Address:
    """An address that may be asked: of a client whom no run had, a run holds no seed, and a proof would answer."""
    if not is_address(at) or not (at.client == NOBODY or at.client in clients):
        raise PluginError(
            f"a rewriter asked for a draw at {at!r}, which is no address",
            "An Address has a Purpose and numbers of type int, from 0 to 2**31 - 1; a client is one of those that "
            "training began with.",
        )
    if at.purpose not in OPEN:
        _refuse(at)
    return at


def _plainly(population: Sequence[int]) -> Sequence[int]:
    """A tuple or a range: another sequence could see how it is read."""
    return population if is_just(population, tuple, range) else tuple(population)


def _as_plain(probability: Fraction) -> Fraction:
    """A fraction of its own: another one could see how it is read. What is none is refused by every source."""
    return Fraction(probability.numerator, probability.denominator) if type(probability) is Fraction else probability


def _anew(answer: tuple[int, ...]) -> tuple[int, ...]:
    """The same ids in new objects: a source that remembers its answers is told by ``is``."""
    return tuple([one + 0 for one in answer])


COIN = (
    "A coin of its own is fresh.sequence(Address(Purpose.COUPLING, 1), range(2), 1): no law of fuaudit draws for this "
    "purpose, and other rounds are other coins."
)
"""How a rewriter draws for itself."""


def _refuse(at: Address) -> None:
    initial = (
        "Whether the initial model is drawn anew must not depend on the initial model: plan.restart draws a new one."
    )
    raise PluginError(
        f"a rewriter asked for a draw of {at.purpose}: it gets those of cohorts and batches alone",
        initial if at.purpose == Purpose.INIT else COIN,
    )


def veiled(plan: Plan, not_before: Position = END, broken: list[Exception] | None = None) -> Plan:
    """The plan as a plugin sees it: its draws of cohorts and batches, and where a request is first involved.

    All that it can write into is made anew for this one call: what a proof and an audit compare with it is drawn over
    objects that no plugin ever held, and the next plugin gets others. What was not executed begins at ``not_before``.
    Errors that a draw raised go to ``broken``, where it is given.
    """
    noted = [] if broken is None else broken
    twins = tuple(population.twin for population in plan.populations)
    clients = frozenset(plan.populations[0].clients)
    sources = tuple(Veiled(source, clients, noted) for source in plan.sources)
    return Plan(remade(plan.law), twins, sources, dict(plan.streams), Asked(plan, not_before, noted))


def rewritten(
    unlearner: Any,
    name: str,
    plan: Plan,
    request: Request,
    fresh: Draws,
    not_before: Position,
    hear: Hear | None = None,
) -> Plan:
    """The plan that a rewriter makes behind the veil, checked for form.

    The result has the law, the populations and the sources that are given here. Its streams come from the rewriter, and
    so may a record in the place of the fresh source.

    Raises:
        PluginError: the rewriter raised, asked for what it does not get, or returned no plan over the retained
            population.
        UsageError: the request does not fit the population, or the rewriter refuses it.
    """
    # 1. the request is judged before the rewriter sees it, and what is left is computed here, not there
    retained = plan.retained.without(request)
    # 2. the veiled sources are kept here: what comes back is compared with these very objects
    broken: list[Exception] = []
    behind = veiled(plan, not_before, broken)
    sources, own = behind.sources, Veiled(fresh, frozenset(plan.populations[0].clients), broken)
    # what is left is made for him too, and found where he asks for it: owners of samples need not be listed for that
    left = retained.twin
    behind.retained.foresee(request, left)
    if hear is not None:
        for number, asked in enumerate((behind.index, *sources, own), FIRST):
            hear(number, asked)
    wrong: BaseException | None = None
    try:
        new = unlearner.rewrite(behind, Request(request.clients, request.samples), own, Position(*not_before))
    except (Exception, SystemExit) as error:
        wrong = error
    # an error that only a proof raises, or only a run, would tell which of them it is: whoever caught it, it is raised
    wrong = broken[0] if broken else wrong
    if wrong is not None:
        # that a federation is too large is for draws to say, and not for whoever is to be proved right on it
        if isinstance(wrong, FuauditError) and (broken or not isinstance(wrong, BudgetError)):
            raise wrong
        line = line_of(unlearner, wrong)
        raise PluginError(f"unlearner {name!r} raised while rewriting the plan: {wrong!r}{line}") from wrong
    # 3. the form is asked before anything is read: whatever was returned may be no plan
    if not isinstance(new, Plan):
        raise PluginError(f"unlearner {name!r} returned {type(new).__name__}, not a Plan")
    # what he returned may compare as it likes, and be handed the other side: so that is what he held already
    if new.law != behind.law or (*new.populations,) != (*behind.populations, left):
        raise PluginError(
            f"unlearner {name!r} returned a plan of another law or population",
            "Use plan.erase or plan.restart: they add the retained population, and keep those of before.",
        )
    last = new.sources[-1]
    given = last is own or type(last) is Recorded
    if not given or new.sources[:-1] != sources:
        raise PluginError(
            f"unlearner {name!r} added or dropped keys",
            "Use plan.erase or plan.restart, or put a Recorded in the place of the fresh source.",
        )
    # 4. the true sources go into a new plan: of what the rewriter held, only segments and records enter a run
    streams = _streams(name, new, plan)
    populations = (*plan.populations, retained)
    # a record of nothing is none: no file would have it
    written = _written(name, last) if type(last) is Recorded and last.answers else fresh
    return Plan(plan.law, populations, (*plan.sources, written), streams)


def _written(name: str, record: Any) -> Recorded:
    """A record of addresses and ids alone: what else could stand there compares as it likes."""
    answers: Mapping[Any, Any] = dict(record.answers) if type(record.answers) is dict else {None: None}
    for at, answer in answers.items():
        if not (is_address(at) and is_plain(answer)):
            raise PluginError(
                f"unlearner {name!r} recorded something else than a dict of addresses and tuples of ids",
                "Use plan.recorded, with ids of type int.",
            )
    return Recorded(answers)


def _streams(name: str, new: Plan, old: Plan) -> Mapping[Stream, Segments]:
    """The segments of every stream, checked. They are tuples: who holds those that he returned cannot change them."""
    streams, sources, versions = {}, len(new.sources), len(new.populations)
    for stream, before in old.streams.items():
        segments = new.streams.get(stream, ())
        if segments is not before and not _in_order(segments, sources, versions):
            raise PluginError(
                f"unlearner {name!r} returned a stream of {stream} that is not made of segments in order",
                "Use plan.erase or plan.restart.",
            )
        streams[stream] = before if segments == before else segments
    initial = streams[Stream.INITIAL]
    if initial is not old.streams[Stream.INITIAL] and (
        len(initial) != 1 or type(new.sources[initial[0].source]) is Recorded
    ):
        raise PluginError(
            f"unlearner {name!r} recorded or cut the draw of the initial model",
            "It is one draw, kept (plan.erase) or made anew by a key (plan.restart).",
        )
    return streams


def _in_order(segments: object, sources: int, versions: int) -> bool:
    """Whether these are segments that start at ``START``, one after another, of sources and populations there are."""
    if type(segments) is not tuple or not segments or not all(map(_is_plain, segments)):
        return False
    starts = [segment.start for segment in segments]
    rising = all(one < other for one, other in pairwise(starts))
    there = all(0 <= s.source < sources and 0 <= s.version < versions for s in segments)
    return starts[0] == START and rising and there


def _is_plain(segment: object) -> bool:
    """Whether it is a segment of numbers: what else could stand there compares as it likes."""
    if type(segment) is not Segment or type(segment.start) is not Position:
        return False
    return all(type(number) is int for number in (*segment.start, segment.source, segment.version))
