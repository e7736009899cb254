"""Many plans in arrays: one law, one history of populations, columns of sources, and few lists of segments.

Plans that were rewritten alike share their segments. So what is kept a plan is its number, and who needs a plan by
itself gets it made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws import Stream
from fuaudit.draws.columns import Column, Listed, some
from fuaudit.errors import UsageError
from fuaudit.plans.law import Law
from fuaudit.plans.plan import WHOLE, Plan, Segments
from fuaudit.plans.population import Population

Ids = NDArray[np.int64]
Streams = Mapping[Stream, Segments]


@dataclass(frozen=True, eq=False)
class Plans(Sequence[Plan]):
    """n plans. Plan i has the streams ``streams[form[i]]`` and of each column the source ``i``.

    ``form (n,)``: which of the streams. Those are distinct, and more than are needed may be there.
    """

    law: Law
    populations: tuple[Population, ...]
    columns: tuple[Column, ...] = field(repr=False)
    streams: tuple[Streams, ...]
    form: Ids

    @classmethod
    def fresh(cls, law: Law, population: Population, column: Column) -> Plans:
        """Plans drawn as a whole, each from a source of its own."""
        return cls(law, (population,), (column,), (WHOLE,), np.zeros(len(column), dtype=np.int64))

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> Plans:
        """The same plans. They are of one law over one history of populations, with as many sources each.

        Raises:
            UsageError: they are not.
        """
        if isinstance(plans, Plans):
            return plans
        first = plans[0]
        if any(len(plan.sources) != len(first.sources) for plan in plans) or not of_one_kind(plans):
            raise UsageError("only plans of one law over the same populations, with as many sources, are read together")
        streams, form = distinct(plan.streams for plan in plans)
        columns = tuple(Listed(column) for column in zip(*(plan.sources for plan in plans), strict=True))
        return cls(first.law, first.populations, columns, streams, form)

    def __len__(self) -> int:
        return len(self.form)

    @overload
    def __getitem__(self, place: int) -> Plan: ...
    @overload
    def __getitem__(self, place: slice) -> Plans: ...
    def __getitem__(self, place: int | slice) -> Plan | Plans:
        if isinstance(place, slice):
            return self.some(np.arange(len(self))[place])
        sources = tuple(column[place] for column in self.columns)
        return Plan(self.law, self.populations, sources, self.streams[self.form[place]])

    def some(self, places: Ids) -> Plans:
        """The plans at some places."""
        columns = tuple(some(column, places) for column in self.columns)
        return Plans(self.law, self.populations, columns, self.streams, self.form[places])

    @property
    def retained(self) -> Population:
        """The population after the last request."""
        return self.populations[-1]

    @cached_property
    def kinds(self) -> frozenset[type]:
        """The classes of the sources."""
        return frozenset().union(*(column.kinds() for column in self.columns))

    def by_form(self, other: Plans, value: Callable[[Streams, Streams], Any]) -> NDArray[Any]:
        """A value of the streams of each plan and of the one at the same place of another list, ``(n,)``.

        It is computed once for each pair of streams that occurs.
        """
        pairs, inverse = np.unique(self.form * len(other.streams) + other.form, return_inverse=True)
        ours, theirs = np.divmod(pairs, len(other.streams))
        found = [value(self.streams[a], other.streams[b]) for a, b in zip(ours.tolist(), theirs.tolist(), strict=True)]
        return np.array(found)[inverse]


def of_one_kind(plans: Sequence[Plan]) -> bool:
    """Whether plans are of one law, over equal histories of populations."""
    if isinstance(plans, Plans):
        return True
    first = plans[0]
    return all(
        (plan.law is first.law or plan.law == first.law) and plan.populations == first.populations for plan in plans
    )


def key_of(streams: Streams) -> tuple[Segments, ...]:
    """The segments of all streams, in one order."""
    return tuple(streams[stream] for stream in Stream)


def distinct(found: Iterable[Streams]) -> tuple[tuple[Streams, ...], Ids]:
    """The distinct ones of some streams, and which of them each is, ``(n,)``."""
    places: dict[tuple[Segments, ...], int] = {}
    streams: list[Streams] = []
    form = []
    for one in found:
        key = key_of(one)
        if key not in places:
            places[key] = len(streams)
            streams.append(one)
        form.append(places[key])
    return tuple(streams), np.array(form, dtype=np.int64)


def chosen(where: NDArray[np.bool_], ours: Plans, theirs: Plans) -> Plans:
    """The plans of the one list where it says so, and those of the other elsewhere. Both were made of equal history."""
    if where.all():
        return ours
    form = np.where(where, ours.form, theirs.form + len(ours.streams))
    columns = tuple(
        a if a is b else Listed([a[i] if own else b[i] for i, own in enumerate(where.tolist())])
        for a, b in zip(ours.columns, theirs.columns, strict=True)
    )
    streams, renumbered = distinct((*ours.streams, *theirs.streams))
    return Plans(ours.law, ours.populations, columns, streams, renumbered[form])


@dataclass(frozen=True, eq=False)
class Origins:
    """From which source, over which population, each plan draws at each position of one stream."""

    plans: Plans
    stream: Stream

    @cached_property
    def _width(self) -> int:
        """Positions of one plan, and one behind each round and all of them."""
        return (self.plans.law.rounds + 2) * (self.plans.law.steps + 2)

    def _number(self, round_number: Ids, step: Ids) -> Ids:
        """A number of each position in their order; what lies behind the last round, or step, has one for all."""
        law = self.plans.law
        inside = round_number <= law.rounds
        return np.where(inside, round_number, law.rounds + 1) * (law.steps + 2) + np.where(
            inside, np.minimum(step, law.steps + 1), 0
        )

    @cached_property
    def _segments(self) -> tuple[Ids, Ids, Ids]:
        """Of all segments of all forms: where each starts, its source, its population, ``(s,)`` each."""
        rows = [
            (form, *segment.start, segment.source, segment.version)
            for form, streams in enumerate(self.plans.streams)
            for segment in streams[self.stream]
        ]
        form, round_number, step, source, version = np.array(rows, dtype=np.int64).T
        return form * self._width + self._number(round_number, step), source, version

    def at(self, run: Ids, round_number: Ids, step: Ids) -> tuple[Ids, Ids]:
        """Source and population: arrays ``(m,)`` in, two ``(m,)`` out."""
        starts, source, version = self._segments
        if len(starts) == 1:
            return np.broadcast_to(source, run.shape), np.broadcast_to(version, run.shape)
        where = self.plans.form[run] * self._width + self._number(round_number, step)
        place = np.searchsorted(starts, where, side="right") - 1
        return source[place], version[place]
