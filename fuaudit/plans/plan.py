"""A plan: all draws of a run, as segments of streams rather than as stored numbers.

A stream is a family of draws in the order of positions: the cohorts, and the batches. A segment says from
which position on a stream is drawn from which source (key) over which population. Rewriting a plan cuts its
streams and adds segments, so what a run stores grows with the requests, not with the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fuaudit.draws import END, START, Address, Draws, Position, Purpose
from fuaudit.plans.law import Law
from fuaudit.plans.population import Population, Request


@dataclass(frozen=True)
class Segment:
    """From ``start`` on, a stream is drawn from source number ``source`` over population ``version``."""

    start: Position
    source: int
    version: int


def _cut(segments: tuple[Segment, ...], new: Segment) -> tuple[Segment, ...]:
    """The segments before ``new.start``, then ``new``."""
    return (*(s for s in segments if s.start < new.start), new)


def occurrences(cohort: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The participations of a cohort in order: (client, how many times it was named before)."""
    seen: Counter[int] = Counter()
    for client in cohort:
        yield client, seen[client]
        seen[client] += 1


class Index(Protocol):
    """Answers first involvement by look-up; see :class:`fuaudit.plans.schedule.Involvement`."""

    def first(self, request: Request) -> Position | None: ...


@dataclass(frozen=True)
class Plan:
    """All draws of a run over a history of requests.

    Attributes:
        law: how rounds are drawn.
        populations: one per version; the last is the retained one.
        sources: draws under the keys that segments refer to.
        cohorts, batches: the segments of the two streams, by start; the first starts at ``START``.
        initial: the segment from which the initial model is drawn.
        index: the first involvements that a saved run has recorded; without it they are found by drawing.
    """

    law: Law
    populations: tuple[Population, ...]
    sources: tuple[Draws, ...]
    cohorts: tuple[Segment, ...] = (Segment(START, 0, 0),)
    batches: tuple[Segment, ...] = (Segment(START, 0, 0),)
    initial: Segment = Segment(START, 0, 0)
    index: Index | None = field(default=None, compare=False, repr=False)

    @classmethod
    def fresh(cls, law: Law, population: Population, source: Draws) -> Plan:
        """A plan drawn as a whole from one source: what training makes, and what retraining makes."""
        return cls(law, (population,), (source,))

    @property
    def retained(self) -> Population:
        """The population after the last request."""
        return self.populations[-1]

    def _segment(self, stream: tuple[Segment, ...], at: Position) -> Segment:
        return next(s for s in reversed(stream) if s.start <= at)

    def segment_of_cohort(self, round: int) -> Segment:
        """The segment from which the cohort of a round is drawn."""
        return self._segment(self.cohorts, Position(round, 0))

    def segment_of_batch(self, round: int, step: int) -> Segment:
        """The segment from which the batches of one step are drawn."""
        return self._segment(self.batches, Position(round, step))

    def initial_uniform(self, count: int) -> Any:
        """The numbers in [0, 1) from which the initial model is made, float64 ``(count,)``."""
        segment = self.initial
        return self.sources[segment.source].uniform(Address(Purpose.INIT, version=segment.version), count)

    def cohort(self, round: int) -> tuple[int, ...]:
        """The clients of a round (from 1), in drawn order, with repetitions."""
        s = self.segment_of_cohort(round)
        return self.law.cohort(self.sources[s.source], self.populations[s.version], round, s.version)

    def batch(self, round: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """The samples of one participation in one step (from 1), sorted."""
        s = self.segment_of_batch(round, step)
        population = self.populations[s.version]
        return self.law.batch(self.sources[s.source], population, round, step, client, occurrence, s.version)

    def first_involvement(self, request: Request) -> Position | None:
        """The first position whose draw holds something requested, or None.

        An erased client is involved where a cohort holds it (step 0), an erased sample where a batch holds
        it. Only the batches of owners of requested samples are looked at; none with an index.
        """
        if self.index is not None:
            return self.index.first(request)
        clients, samples = set(request.clients), set(request.samples)
        owners = {self.retained.owner[sample] for sample in samples}
        for round in range(1, self.law.rounds + 1):
            if not clients and not owners:
                return None
            cohort = self.cohort(round)
            if clients.intersection(cohort):
                return Position(round, 0)
            touched = [place for place in occurrences(cohort) if place[0] in owners]
            for step in range(1, self.law.steps + 1):
                for client, occurrence in touched:
                    if samples.intersection(self.batch(round, step, client, occurrence)):
                        return Position(round, step)
        return None

    def erase(self, request: Request, fresh: Draws, at: Position) -> Plan:
        """The plan over the retained population: everything drawn at ``at`` or later comes from ``fresh``.

        At step 0 the cohort of the round is drawn anew; inside a round it is kept, and cohorts are drawn anew
        from the next round on. ``END`` keeps every draw.

        Raises:
            UsageError: the request does not fit the population.
        """
        grown = replace(
            self,
            populations=(*self.populations, self.retained.without(request)),
            sources=(*self.sources, fresh),
            index=None,
        )
        if at >= END or at.round > self.law.rounds:
            return grown
        source, version = len(self.sources), len(self.populations)
        next_cohort = at if at.step == 0 else Position(at.round + 1, 0)
        return replace(
            grown,
            cohorts=_cut(self.cohorts, Segment(next_cohort, source, version)),
            batches=_cut(self.batches, Segment(at, source, version)),
        )

    def restart(self, request: Request, fresh: Draws) -> Plan:
        """The plan that keeps nothing, not even the initial model."""
        erased = self.erase(request, fresh, START)
        return replace(erased, initial=Segment(START, len(self.sources), len(self.populations)))

    def first_change(self, parent: Plan) -> Position:
        """The first position at which this plan draws anew, compared with the plan it was rewritten from.

        ``START`` also where the initial model is drawn anew; ``END`` when nothing changed.
        """
        if self.initial != parent.initial:
            return START
        new = [s.start for s in (*self.cohorts, *self.batches) if s.source >= len(parent.sources)]
        return min(new, default=END)

    def history(self) -> Hashable:
        """The expanded history: per round the cohort, and the batches of every place in it.

        Bookkeeping (segments, keys, versions) is not part of it: this is the object whose law "exact" is
        about. Nor is the initial draw: it is one continuous draw that nothing looks at, so it is independent
        of all that is listed here under whichever key it is made.
        """
        return tuple(
            (
                cohort := self.cohort(round),
                tuple(
                    tuple(self.batch(round, step, client, occurrence) for step in range(1, self.law.steps + 1))
                    for client, occurrence in occurrences(cohort)
                ),
            )
            for round in range(1, self.law.rounds + 1)
        )
