"""A plan: all draws of a run, as segments of streams rather than as stored numbers.

A stream is a family of draws in the order of positions: the initial model, the cohorts, the batches. A segment
says from which position on a stream is drawn from which source (key) over which population. Rewriting a plan
cuts its streams and adds segments, so what a run stores grows with the requests, not with the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, cast

from fuaudit.declared import says
from fuaudit.draws import END, START, Address, Draws, Position, Purpose, Recorded, Stream
from fuaudit.draws.address import OPEN, STREAM_OF, is_address
from fuaudit.draws.recorded import Watched
from fuaudit.errors import EvidenceError, PluginError, UsageError
from fuaudit.plans.law import Law, PlanDraws, UniformLaw, WeightedLaw, owned_samples
from fuaudit.plans.population import Population, Request
from fuaudit.plans.strange_laws import SEE, is_foreign, is_just, is_plain, not_plain, require_as_said, require_unbroken


class Segment(NamedTuple):
    """From ``start`` on, a stream is drawn from source number ``source`` over population ``version``."""

    start: Position
    source: int
    version: int

    @property
    def origin(self) -> tuple[int, int]:
        """Source and version: what decides a draw at a given address."""
        return self.source, self.version


Segments = tuple[Segment, ...]
WHOLE: Mapping[Stream, Segments] = {stream: (Segment(START, 0, 0),) for stream in Stream}
"""Every stream from one source over one population."""


def segment_at(segments: Segments, at: tuple[int, int]) -> Segment:
    """The segment in force at a position, of round and step."""
    place = len(segments) - 1
    while place and segments[place].start > at:
        place -= 1
    return segments[place]


def cut(segments: Segments, new: Segment) -> Segments:
    """The segments before ``new.start``, then ``new``."""
    return (*(s for s in segments if s.start < new.start), new)


def occurrences(cohort: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The participations of a cohort in order: (client, how many times it was named before)."""
    seen: dict[int, int] = {}
    for client in cohort:
        before = seen.get(client, 0)
        yield client, before
        seen[client] = before + 1


def first_change(ours: Mapping[Stream, Segments], theirs: Mapping[Stream, Segments]) -> Position:
    """The first position at which the streams of two plans have different sources; ``END`` where they have none."""
    return min((_parting(one, theirs[name]) for name, one in ours.items() if one != theirs[name]), default=END)


def _parting(one: Segments, other: Segments) -> Position:
    """Where two streams part; both begin at ``START``. It takes time in proportion to both."""
    at = place = 0
    while one[at].origin == other[place].origin:
        following = one[at + 1 : at + 2] + other[place + 1 : place + 2]
        if not following:
            return END
        start = min(segment.start for segment in following)
        at += at + 1 < len(one) and one[at + 1].start == start
        place += place + 1 < len(other) and other[place + 1].start == start
    return max(one[at].start, other[place].start)


class Index(Protocol):
    """Answers first involvement by look-up; see :class:`fuaudit.plans.participation.Involvement`."""

    def first(self, request: Request) -> Position | None: ...


@dataclass(frozen=True)
class Plan:
    """All draws of a run over a history of requests.

    Attributes:
        law: how rounds are drawn.
        populations: one per version; the last is the retained one.
        sources: draws under the keys that segments refer to.
        streams: the segments of every stream, by start; the first starts at ``START``. The initial model is
            one draw at ``START``, so its stream has one segment.
        index: the first involvements that a saved run has recorded; without it they are found by drawing.
    """

    law: Law
    populations: tuple[Population, ...]
    sources: tuple[Draws, ...]
    streams: Mapping[Stream, Segments] = field(default_factory=lambda: WHOLE)
    index: Index | None = field(default=None, compare=False, repr=False)

    @classmethod
    def fresh(cls, law: Law, population: Population, source: Draws) -> Plan:
        """A plan drawn as a whole from one source: what training makes, and what retraining makes."""
        return cls(law, (population,), (source,))

    @property
    def retained(self) -> Population:
        """The population after the last request."""
        return self.populations[-1]

    @property
    def widest(self) -> Population:
        """The largest population that a batch, or a cohort, is drawn over: where draws are kept, that of before."""
        rounds = (*self.streams[Stream.COHORTS], *self.streams[Stream.BATCHES])
        return self.populations[min(segment.version for segment in rounds)]

    def segment(self, stream: Stream, at: Position) -> Segment:
        """The segment from which a stream is drawn at a position."""
        return segment_at(self.streams[stream], at)

    def latest(self, at: Position) -> tuple[int, int]:
        """The latest source, and its population, from which anything up to a position is drawn, in any stream."""
        return max(s.origin for segments in self.streams.values() for s in segments if s.start <= at)

    @cached_property
    def by_strangers(self) -> bool:
        """Whether the law, or a part of it, is no code of fuaudit's."""
        return is_foreign(self.law)

    @property
    def draws(self) -> Routed:
        """Every draw by its address, whatever source it comes from."""
        return Routed(self)

    def _for_law(self) -> PlanDraws:
        """What the law draws from. A stranger's finds no plan there: who was forgotten must not tell how to draw."""
        seen: Any = Behind(self.draws) if self.by_strangers else self.draws
        return cast(PlanDraws, seen)

    def initial_uniform(self, count: int) -> Any:
        """The numbers in [0, 1) from which the initial model is made, float64 ``(count,)``."""
        return self.draws.uniform(Address(Purpose.INIT), count)

    def cohort(self, round_number: int) -> tuple[int, ...]:
        """The clients of a round (from 1), in drawn order, with repetitions."""
        try:
            drawn = self.law.cohort(self._for_law(), round_number)
        except Exception as error:
            require_unbroken(self.law, f"cohort of round {round_number}", error)
            raise
        if not is_plain(drawn):
            raise not_plain(self.law, f"cohort of round {round_number}", drawn, "clients")
        if self.by_strangers:
            over = self.segment(Stream.COHORTS, Position(round_number, 0)).version  # fewer samples may take more places
            require_as_said(self.law, round_number, drawn, self.populations[over].of_laws)
        return drawn

    def batch(self, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """The samples of one participation in one step (from 1), sorted."""
        try:
            drawn = self.law.batch(self._for_law(), round_number, step, client, occurrence)
        except Exception as error:
            require_unbroken(self.law, f"batch of round {round_number}, step {step}, client {client}", error)
            raise
        if not is_plain(drawn):
            raise not_plain(self.law, f"batch of round {round_number}, step {step}, client {client}", drawn, "samples")
        return drawn

    def included(self, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """The samples that the draw of a batch names, sorted: those of the batch, and others that were cut from it.

        Whoever keeps a batch because it does not hold a sample has to ask this. What is left of a cut batch depends on
        all that was included.
        """
        law: Any = self.law
        if not says(law, "cuts"):
            return self.batch(round_number, step, client, occurrence)
        what = f"samples included in round {round_number}, step {step}, client {client}"
        try:
            drawn: tuple[int, ...] = law.included(self._for_law(), round_number, step, client, occurrence)
        except Exception as error:
            require_unbroken(law, what, error)
            raise
        if not is_plain(drawn):
            raise not_plain(law, what, drawn, "samples")
        return drawn

    def first_involvement(self, request: Request) -> Position | None:
        """The first position whose draw holds something requested, or None.

        An erased client is involved where a cohort holds it (step 0), an erased sample where the draw behind a
        batch that holds it is made: with permuted epochs at the first step of the epoch. Of a batch that was cut
        counts what was included. Only the batches of owners of requested samples are looked at; none with an index.
        """
        use = self.first_use(request)
        return use and Position(use.round, self.law.drawn_at(use.step))

    def first_use(self, request: Request) -> Position | None:
        """The first position at which a client takes part, or a sample is included; by the index where there is one."""
        if self.index is not None:
            return self.index.first(request)
        clients, samples = set(request.clients), set(request.samples)
        owners = {self.retained.owner[sample] for sample in samples}
        for round_number in range(1, self.law.rounds + 1):
            if not clients and not owners:
                return None
            cohort = self.cohort(round_number)
            if clients.intersection(cohort):
                return Position(round_number, 0)
            touched = [place for place in occurrences(cohort) if place[0] in owners]
            for step in range(1, self.law.steps + 1):
                for client, occurrence in touched:
                    if samples.intersection(self.included(round_number, step, client, occurrence)):
                        return Position(round_number, step)
        return None

    def erase(self, request: Request, fresh: Draws, at: Position) -> Plan:
        """The plan over the retained population: everything drawn at ``at`` or later comes from ``fresh``.

        At step 0 the cohort of the round is drawn anew; inside a round it is kept, and cohorts are drawn anew
        from the next round on. The initial model is kept. ``END`` keeps every draw.

        Raises:
            UsageError: the request does not fit the population.
        """
        populations, sources = (*self.populations, self.retained.without(request)), (*self.sources, fresh)
        if at.round > self.law.rounds:
            return type(self)(self.law, populations, sources, self.streams)
        new = Segment(at, len(self.sources), len(self.populations))
        drawn = {stream: cut(self.streams[stream], new) for stream in (Stream.COHORTS, Stream.BATCHES)}
        return type(self)(self.law, populations, sources, {**self.streams, **drawn})

    def restart(self, request: Request, fresh: Draws) -> Plan:
        """The plan that keeps nothing, not even the initial model."""
        erased = self.erase(request, fresh, START)
        whole = (Segment(START, len(self.sources), len(self.populations)),)
        return replace(erased, streams={stream: whole for stream in Stream})

    def recorded(self, cohorts: Mapping[int, tuple[int, ...]]) -> Plan:
        """The plan with what its last source draws written down, and other cohorts in some rounds (by number).

        For rewriters whose plans segments cannot express, and laws that draw a cohort, and a batch, at once. Batches of
        given cohorts come from the last source too. Of a batch that was cut all that was included is written down, and
        what is left of it. What an earlier source draws is not written, because a run that holds draws which its plan
        does not read is refused.

        Raises:
            ValueError: another cohort is given for a round whose cohort comes from an earlier source.
            UsageError: the law draws otherwise, as who is available client by client, so it would not find them.
        """
        last = len(self.sources) - 1
        starts = [segment.start.round for segment in self.streams[Stream.BATCHES] if segment.source == last]
        if not starts:
            return self
        first = max(1, starts[0])
        answers: dict[Address, tuple[int, ...]] = {}
        places: list[Address] = []
        for round_number in range(first, self.law.rounds + 1):
            cohort = cohorts[round_number] if round_number in cohorts else self.cohort(round_number)
            if self.segment(Stream.COHORTS, Position(round_number, 0)).source == last:
                answers[Address(Purpose.COHORT, round_number)] = cohort
            elif cohort != self.cohort(round_number):
                raise ValueError(
                    f"the cohort of round {round_number} is kept: another one cannot be written down for it"
                )
            steps = [
                step
                for step in range(1, self.law.steps + 1)
                if self.segment(Stream.BATCHES, Position(round_number, step)).source == last
            ]
            for client, occurrence in occurrences(cohort):
                places += [Address(Purpose.BATCH, round_number, step, client, occurrence) for step in steps]
        batches = dict(zip(places, self._batches(places), strict=True))
        if is_just(self.law, UniformLaw, WeightedLaw):
            answers |= batches
        else:  # what is left of a batch that was cut is a draw of its own, and what was included decides later requests
            included = {at: self.included(at.round, at.step, at.client, at.occurrence) for at in places}
            cut = {at._replace(purpose=Purpose.CUT): left for at, left in batches.items() if left != included[at]}
            answers = _found(self, answers | included | cut, batches)
        return replace(self, sources=(*self.sources[:-1], Recorded(answers)))

    def _batches(self, places: Sequence[Address]) -> list[tuple[int, ...]]:
        """The batches at some addresses, read together where law and source allow it."""
        law: Any = self.law
        if not is_just(law, UniformLaw, WeightedLaw):
            return [self.batch(at.round, at.step, at.client, at.occurrence) for at in places]
        drawn: list[tuple[int, ...]] = [()] * len(places)
        origins = {at: self.segment(Stream.BATCHES, at).origin for at in {place.position for place in places}}
        together: dict[int, list[int]] = {}
        for row, place in enumerate(places):
            together.setdefault(origins[place.position][0], []).append(row)
        for number, rows in together.items():
            source = self.sources[number]
            asked = [(place := places[row])._replace(version=origins[place.position][1]) for row in rows]
            owned = [owned_samples(self.populations[at.version], at.client) for at in asked]
            counts = [min(law.batch_size, len(samples)) for samples in owned]
            for row, batch in zip(rows, source.many_subsets(asked, owned, counts), strict=True):
                drawn[row] = batch
        return drawn

    def first_change(self, parent: Plan) -> Position:
        """The first position at which this plan and the one it was rewritten from have different sources.

        ``START`` also where the initial model is drawn anew; ``END`` when nothing changed.
        """
        return first_change(self.streams, parent.streams)

    def redrawn_from(self, change: Position) -> Position:
        """``change``, the first one of this plan; ``END`` where it is ``START`` and yet draws of rounds are kept."""
        rounds = (*self.streams[Stream.COHORTS], *self.streams[Stream.BATCHES])
        keeps = any(segment.source != len(self.sources) - 1 for segment in rounds)
        return END if change == START and keeps else change

    @property
    def mixes_generations(self) -> bool:
        """Whether what was drawn for one population is used over another: one random number would serve twice."""
        return any(segment.source != segment.version for segments in self.streams.values() for segment in segments)

    @property
    def has_idle_segments(self) -> bool:
        """Whether a segment has the source and population of the one before, or starts where nothing is drawn."""
        law = self.law
        starts = {s.start for segments in self.streams.values() for s in segments[1:]}
        if any(not (1 <= at.round <= law.rounds and 0 <= at.step <= law.steps) for at in starts):
            return True
        return any(
            one.origin == other.origin for segments in self.streams.values() for one, other in pairwise(segments)
        )

    @property
    def goes_back(self) -> bool:
        """Whether a stream is drawn from an older source behind a newer one."""
        return any(one.source > other.source for segments in self.streams.values() for one, other in pairwise(segments))

    def changes_of(self, number: int) -> tuple[Position, Position]:
        """The earliest and the latest first change that request ``number`` can have made, by what this plan draws.

        They are one where a draw that the request brought is the first that is not older. Else later requests have
        drawn anew what lies between.
        """
        starts = [(segment.start, max(segment.origin)) for segments in self.streams.values() for segment in segments]
        earliest = min((at for at, maker in starts if maker >= number), default=END)
        return earliest, min((at for at, maker in starts if maker == number), default=END)

    def history(self) -> Hashable:
        """The expanded history: per round the cohort, and the batches of every place in it.

        Under a law that cuts batches a round has the samples that were cut as well, in the order of the batches. No
        model is made of them, but what a later request may keep goes by them.

        Bookkeeping (segments, keys, versions) is not part of it. With the initial draw, which stands apart because it
        is continuous, this is the object whose law "exact" is about (:mod:`fuaudit.proofs.exactness`).
        """
        try:
            return tuple(map(self._round, range(1, self.law.rounds + 1)))
        except Exception as error:
            require_unbroken(self.law, "history", error)
            raise

    def _round(self, number: int) -> Hashable:
        cohort, steps = self.cohort(number), range(1, self.law.steps + 1)
        batches = tuple(
            tuple(self.batch(number, step, client, occurrence) for step in steps)
            for client, occurrence in occurrences(cohort)
        )
        if not says(self.law, "cuts"):
            return cohort, batches
        return (
            cohort,
            batches,
            tuple(
                tuple(
                    tuple(sorted({*self.included(number, step, client, occurrence)}.difference(left)))
                    for step, left in enumerate(row, 1)
                )
                for (client, occurrence), row in zip(occurrences(cohort), batches, strict=True)
            ),
        )


@dataclass(frozen=True)
class Routed(PlanDraws):
    """The draws of a plan as one source: an address is answered by the source in force at it.

    Implements :class:`fuaudit.plans.law.PlanDraws`. Versions in addresses are filled in here.
    """

    plan: Plan

    def _segment(self, at: Address) -> Segment:
        segments = self.plan.streams[STREAM_OF[at.purpose]]
        return segments[0] if len(segments) == 1 else segment_at(segments, at[1:3])

    def source(self, at: Address) -> Draws:
        """The source in force at an address."""
        return self.plan.sources[self._segment(at).source]

    def _route(self, at: Address) -> tuple[Draws, Address]:
        if not is_address(at):  # a key and a proof would answer otherwise
            name = type(self.plan.law).__name__
            raise PluginError(f"the law {name}, with its draws, asked for one at {at!r}, which is no address", SEE)
        segment = self._segment(at)
        same = at.version == segment.version  # most draws are over the first population
        return self.plan.sources[segment.source], at if same else Address(*at[:5], segment.version)

    def population(self, at: Address) -> Population:
        """See :class:`~fuaudit.plans.law.PlanDraws`. A stranger's law gets a twin, which it may write into."""
        population = self.plan.populations[self._segment(at).version]
        return population.of_laws if self.plan.by_strangers else population

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        source, at = self._route(at)
        return source.sequence(at, population, count)

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        source, at = self._route(at)
        return source.subset(at, population, count)

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        source, at = self._route(at)
        return source.weighted(at, population, weights, count)

    def independent(self, at: Address, population: Sequence[int], probability: Fraction) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        source, at = self._route(at)
        return source.independent(at, population, probability)

    def permutation(self, at: Address, population: Sequence[int]) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        source, at = self._route(at)
        return source.permutation(at, population)

    def uniform(self, at: Address, count: int) -> Any:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        source, at = self._route(at)
        return source.uniform(at, count)


class Behind:
    """Draws and populations of cohorts and batches, and nothing else: no plan, no sources.

    Not those of the initial model either: where it is kept, its population is that of before.
    """

    __slots__ = (
        "independent", "many_subsets", "permutation", "population", "sequence", "subset", "uniform", "weighted",
    )  # fmt: skip

    def __init__(self, draws: Routed) -> None:
        for name in self.__slots__:
            setattr(self, name, _alone(getattr(draws, name)))


def _alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """A function in place of a method, which knows the object that it is of."""

    def ask(at: Any, *given: Any, **named: Any) -> Any:
        for one in [at] if type(at) is Address else at:
            if is_address(one) and one.purpose not in OPEN:
                raise PluginError(f"a law asked for {one.purpose}: it gets cohorts and batches alone", SEE)
        return method(at, *given, **named)

    return ask


def _found(
    plan: Plan, answers: Mapping[Address, tuple[int, ...]], batches: Mapping[Address, tuple[int, ...]]
) -> dict[Address, tuple[int, ...]]:
    """What a law reads of what was written down as cohorts and batches: who is always there, is not drawn.

    ``batches`` are what it must draw, by their addresses; ``answers`` has what was included in them, and what is left.

    Raises:
        UsageError: it does not find all of it.
    """
    watched = Watched(answers)
    written = replace(plan, sources=(*plan.sources[:-1], Recorded(watched)))
    try:
        for at, drawn in answers.items():
            if at.purpose is Purpose.COHORT:
                _require_read(written.cohort(at.round), drawn)
        for at, drawn in batches.items():
            place = at.round, at.step, at.client, at.occurrence
            _require_read(written.batch(*place), drawn)
            _require_read(written.included(*place), answers[at])
    except EvidenceError as error:
        raise UsageError(
            f"the law {plan.law.name!r} does not read what is written down as cohorts and batches: {error}",
            "Plan.recorded is for laws that draw a cohort at one address, and a batch at one; what is left of a batch "
            "that was cut at the same with Purpose.CUT.",
        ) from error
    return {at: drawn for at, drawn in answers.items() if at in watched.asked}


def _require_read(found: tuple[int, ...], written: tuple[int, ...]) -> None:
    """Raises EvidenceError where a law draws something else than was written down."""
    if found != written:
        raise EvidenceError(f"it draws {found} where {written} was written down")
