"""Many plans read at once, by address, only where asked; equal to reading each draw by draw (tested)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws import END, Address, Keyed, Purpose, Recorded, Seeded, Stream
from fuaudit.draws.address import NOBODY, STREAM_OF
from fuaudit.draws.columns import keys_at
from fuaudit.draws.keyed import Addresses, sequences, subsets
from fuaudit.draws.philox import Words
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans.expanded import (
    NONE,
    Ids,
    Round,
    Schedule,
    all_rounds,
    expand,
    most_ids,
    occurrence_numbers,
    occurrences_of,
)
from fuaudit.plans.law import UniformLaw
from fuaudit.plans.many import Origins, Plans, of_one_kind
from fuaudit.plans.plan import Plan
from fuaudit.plans.population import ABSENT, Request

IDS_AT_ONCE = 4_000_000
"""Ids drawn at once: 32 MB."""

PLACES = 500_000
"""Places of rounds, of all plans together, that are drawn at once: some 50 MB."""


class LazySchedule:
    """Plans whose rounds ``1`` to ``rounds`` are drawn when they are asked for, some at a time.

    For plans that are too large for memory as a whole. The numbers are equal to those of :func:`expand_many`.
    """

    def __init__(self, plans: Sequence[Plan], rounds: int | None = None) -> None:
        """``rounds`` defaults to those of the law."""
        self.rounds = plans[0].law.rounds if rounds is None else rounds
        self._plans = plans
        self._block: tuple[range, Schedule] | None = None
        most = max(most_ids(plans[0].law, population) for population in plans[0].populations)
        self._length = max(1, IDS_AT_ONCE // (len(plans) * most))

    def round(self, number: int) -> Round:
        """See :class:`~fuaudit.plans.expanded.Rounds`."""
        if self._block is None or number not in self._block[0]:
            # where all rounds fit, all are drawn: whoever goes through them again finds them
            first = 1 if self._length >= self.rounds else number
            rounds = range(first, min(first + self._length, self.rounds + 1))
            drawn = expand_many(self._plans, rounds)
            # where not everybody takes part, more rounds fit than was thought
            self._length = max(1, len(rounds) * IDS_AT_ONCE // max(1, drawn.batches.size))
            self._block = rounds, drawn
        rounds, drawn = self._block
        drawn_round = drawn.round(number - rounds.start + 1)
        # as many places as this round needs, whichever rounds it was drawn with
        places = max(1, int((drawn_round.cohorts != NONE).any(axis=0).sum()))
        cut = None if drawn_round.cut is None else drawn_round.cut[:, :places]
        return Round(drawn_round.cohorts[:, :places], drawn_round.batches[:, :places], cut)


def expand_many(plans: Sequence[Plan], rounds: range | None = None) -> Schedule:
    """Many plans of one law and one history of populations; read at once where the law allows it."""
    if Stack.fits(plans):
        return Stack(plans).schedule(rounds)
    single = [expand(plan, rounds) for plan in plans]
    places = max(s.cohorts.shape[2] for s in single)

    def pad(array: Ids, *widths: int) -> Ids:
        gaps = [(0, 0)] * (array.ndim - len(widths)) + [
            (0, w - n) for w, n in zip(widths, array.shape[-len(widths) :], strict=True)
        ]
        return np.pad(array, gaps, constant_values=NONE)

    most = max((s.cut.shape[4] for s in single if s.cut is not None), default=0)
    none = [np.empty((*s.batches.shape[:4], 0), dtype=np.int64) for s in single]
    cuts = [
        pad(empty if s.cut is None else s.cut, places, s.batches.shape[3], most)
        for s, empty in zip(single, none, strict=True)
    ]
    return Schedule(
        np.concatenate([pad(s.cohorts, places) for s in single]),
        np.concatenate([pad(s.batches, places, *s.batches.shape[3:]) for s in single]),
        np.concatenate(cuts) if most else None,
    )


def alike(plans: Sequence[Plan], sources: tuple[type, ...]) -> bool:
    """Whether plans are of one law, over equal histories of populations, with sources of these classes."""
    if isinstance(plans, Plans):
        return plans.kinds <= {*sources}
    kinds = {type(source) for plan in plans for source in plan.sources}
    return kinds <= {*sources} and len({len(plan.sources) for plan in plans}) == 1 and of_one_kind(plans)


class Stack:
    """Many plans of one uniform law over one history of populations, read by address in arrays.

    Draws under keys are computed in arrays. Recorded draws are looked up when they are asked for.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        """Raises UsageError unless :meth:`fits`."""
        if not self.fits(plans):
            raise UsageError(
                "only plans of one uniform law, over the same populations, with keys or records, can be stacked"
            )
        self.plans = Plans.of(plans)
        self.law: Any = self.plans.law
        self.populations = self.plans.populations

    @classmethod
    def fits(cls, plans: Sequence[Plan]) -> bool:
        """Whether these plans can be stacked."""
        law = plans.law if isinstance(plans, Plans) else plans[0].law
        return type(law) is UniformLaw and alike(plans, (Keyed, Seeded, Recorded))

    @property
    def batch_size(self) -> int:
        """The most samples of a batch."""
        return int(self.law.batch_size)

    @property
    def _clients(self) -> list[Ids]:
        return [population.table.clients for population in self.populations]

    @cached_property
    def _sizes(self) -> Ids:
        """How many samples a client has, over (version, client); ``ABSENT`` for who is no client."""
        tables = [population.table.sizes for population in self.populations]
        width = max(map(len, tables))
        return np.stack([np.pad(sizes, (0, width - len(sizes)), constant_values=ABSENT) for sizes in tables])

    @cached_property
    def _owners(self) -> Ids:
        """The client of every sample in every version, ``ABSENT`` for none."""
        tables = [population.table for population in self.populations]
        last = max(int(table.samples.max(initial=-1)) for table in tables)
        owners = np.full((len(tables), last + 1), ABSENT, dtype=np.int64)
        for row, table in zip(owners, tables, strict=True):
            row[table.samples] = np.repeat(table.clients, table.sizes[table.clients])
        return owners

    @cached_property
    def _origins(self) -> dict[Stream, Origins]:
        return {stream: Origins(self.plans, stream) for stream in Stream}

    def _drawn_from(
        self, purpose: Purpose, run: Ids, round_number: Ids, step: Ids
    ) -> tuple[Words, Words, Ids, NDArray[np.bool_]]:
        """Key words and versions of some draws, each of one plan at one position, and which are recorded.

        Three arrays of one broadcast shape ``s`` in, four ``s`` out; the words of recorded draws are 0.
        """
        shape = np.broadcast_shapes(run.shape, round_number.shape, step.shape)
        run, round_number, step = (np.broadcast_to(a, shape).reshape(-1) for a in (run, round_number, step))
        source, version = self._origins[STREAM_OF[purpose]].at(run, round_number, step)
        words, recorded = np.zeros((len(run), 2), dtype=np.uint64), np.zeros(len(run), dtype=np.bool_)
        for number, column in enumerate(self.plans.columns):
            if len(where := np.flatnonzero(source == number)):
                words[where], recorded[where] = keys_at(column, purpose, run[where], round_number[where], step[where])
        return words[:, 0].reshape(shape), words[:, 1].reshape(shape), version.reshape(shape), recorded.reshape(shape)

    def blocks(self, places: int) -> Iterator[range]:
        """All rounds of the law, so many at a time that all plans have at most ``places`` places, or one round."""
        size = max(1, places // max(1, len(self.plans) * self.law.cohort_size))
        rounds = all_rounds(self.law)
        return (rounds[start : start + size] for start in range(0, len(rounds), size))

    def cohorts(self, chosen: range | None = None) -> Ids:
        """The cohorts of all rounds, or of those chosen: client ids ``(n, R, K)``, padded with ``NONE``."""
        rounds = np.array(all_rounds(self.law) if chosen is None else chosen)
        run, column = (a.reshape(-1) for a in np.indices((len(self.plans), len(rounds))))
        flat = self.cohorts_at(run, rounds[column])
        places = int((flat != NONE).any(axis=0).sum())
        return flat.reshape(len(self.plans), len(rounds), -1)[..., :places]

    def cohorts_at(self, run: Ids, round_number: Ids) -> Ids:
        """Some cohorts: arrays ``(m,)`` in, client ids ``(m, K)`` out, padded with ``NONE``. Rounds count from 1."""
        law, zero = self.law, np.zeros(1, dtype=np.int64)
        first, second, versions, recorded = self._drawn_from(Purpose.COHORT, run, round_number, zero)
        result = np.full((len(run), law.cohort_size), NONE, dtype=np.int64)
        for version, clients in enumerate(self._clients):
            where = np.flatnonzero((versions == version) & ~recorded)
            if not len(where):
                continue
            at = Addresses(
                (first[where], second[where]), round_number[where], zero, zero + NOBODY, zero, zero + version
            )
            sizes = np.full(len(where), len(clients))
            if law.replacement:
                result[where] = clients[sequences(at, sizes, law.cohort_size)]
            else:
                count = min(law.cohort_size, len(clients))
                result[where, :count] = clients[subsets(at, sizes, count)]
        for row in np.flatnonzero(recorded).tolist():
            cohort = self.plans[int(run[row])].cohort(int(round_number[row]))
            result[row, : len(cohort)] = cohort
        return result

    def batches_of(self, run: Ids, round_number: Ids, client: Ids, occurrence: Ids) -> Ids:
        """The batches of some participations, all steps: arrays ``(m,)`` in, sample ids ``(m, E, B)`` out.

        ``run`` counts from 0, ``round_number`` from 1.
        """
        law = self.law
        if not len(run):
            return np.empty((0, law.steps, law.slots), dtype=np.int64)
        step = np.arange(1, law.steps + 1)
        first, second, version, noted = self._drawn_from(Purpose.BATCH, run[:, None], round_number[:, None], step)
        sizes = self._sizes[version, client[:, None]]
        if (sizes == ABSENT).any():
            raise PluginError(
                "the plan draws a batch of a client that is not in the population of that draw",
                "A method of this lineage kept draws of a client that was erased, as noop does: unlearn from the run "
                "before that, or start over with retrain.",
            )
        counts = np.minimum(sizes, self.batch_size)
        result = np.full((*version.shape, law.slots), NONE, dtype=np.int64)
        for number, count in product(range(len(self.populations)), np.unique(counts).tolist()):
            m, e = np.nonzero((counts == count) & (version == number) & ~noted)
            if count == 0 or not len(m):
                continue
            keys, zero = (first[m, e], second[m, e]), np.zeros(1, dtype=np.int64)
            at = Addresses(keys, round_number[m], step[e], client[m], occurrence[m], zero + number)
            ranks, table = subsets(at, sizes[m, e], count), self.populations[number].table
            result[m, e, :count] = table.samples[table.offsets[client[m], None] + ranks]
        m, e = np.nonzero(noted)
        if len(m):
            places = run[m], round_number[m], step[e], client[m], occurrence[m]
            result[m, e] = self._recorded(*places, version[m, e], counts[m, e])
        return result

    def _recorded(
        self, run: Ids, round_number: Ids, step: Ids, client: Ids, occurrence: Ids, version: Ids, count: Ids
    ) -> Ids:
        """Recorded batches, looked up: arrays ``(m,)`` in, sample ids ``(m, B)`` out."""
        result = np.full((len(run), self.law.slots), NONE, dtype=np.int64)
        columns = [column.tolist() for column in (run, round_number, step, client, occurrence)]
        odd: list[int] = []
        plans = {i: self.plans[i] for i in {*columns[0]}}
        for row, (i, r, e, c, o) in enumerate(zip(*columns, strict=True)):
            at = Address(Purpose.BATCH, r, e, c, o)
            source: Any = plans[i].draws.source(at)
            answer = source.answers.get(at)
            if answer is None or len(answer) != count[row]:
                odd.append(row)
            else:
                result[row, : len(answer)] = answer
        ordered, there = np.sort(result, axis=1), result != NONE
        known = (result < self._owners.shape[1]) & (result >= 0)
        own = known & (self._owners[version[:, None], np.where(known, result, 0)] == client[:, None])
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NONE)
        wrong = (there & ~own).any(axis=1) | twice.any(axis=1) | (there.sum(axis=1) != count)
        for row in {*odd, *np.flatnonzero(wrong).tolist()}:  # the reading draw by draw says what is wrong
            i, r, e, c, o = (int(column[row]) for column in columns)
            drawn = plans[i].batch(r, e, c, o)
            result[row, : len(drawn)] = drawn
        return result

    def schedule(self, chosen: range | None = None) -> Schedule:
        """Everything, or the rounds chosen, as arrays."""
        cohorts = self.cohorts(chosen)
        first = 1 if chosen is None else chosen.start
        occurrence = occurrence_numbers(cohorts)
        run, column, place = np.nonzero(cohorts != NONE)
        flat = self.batches_of(run, column + first, cohorts[run, column, place], occurrence[run, column, place])
        batches = np.full((*cohorts.shape, *flat.shape[1:]), NONE, dtype=np.int64)
        batches[run, column, place] = flat
        return Schedule(cohorts, batches)

    def first_involvement(self, request: Request, cohorts: Ids | None = None) -> tuple[Ids, Ids]:
        """First involvement of a request in every plan: rounds and steps ``(n,)``, those of ``END`` if none.

        Draws the cohorts, unless they are given, and the batches of the owners of requested samples; nothing else.
        Rounds are looked at some at a time, so memory does not grow with their number.
        """
        width = self.law.steps + 1
        earliest = np.full(len(self.plans), END.round * width, dtype=np.int64)
        owners = sorted({p.owner[s] for s in request.samples for p in self.populations if s in p.owner})
        for rounds in self.blocks(PLACES):
            here = self.cohorts(rounds) if cohorts is None else cohorts[:, rounds.start - 1 : rounds.stop - 1]
            if request.clients:
                run, column = np.nonzero(isin(here, request.clients).any(axis=2))
                np.minimum.at(earliest, run, (column + rounds.start) * width)
            for run, column, drawn in self.batches_of_owners(here, owners, rounds.start) if owners else ():
                m, e = np.nonzero(isin(drawn, request.samples).any(axis=2))
                np.minimum.at(earliest, run[m], (column[m] + rounds.start) * width + e + 1)
        return earliest // width, earliest % width

    def batches_of_owners(self, cohorts: Ids, clients: Sequence[int], first: int) -> Iterator[tuple[Ids, Ids, Ids]]:
        """The batches of some clients in cohorts ``(n, r, K)`` that begin with round ``first``, some at a time.

        Each time runs and rounds from 0, ``(m,)``, and sample ids ``(m, E, B)``.
        """
        run, column, place = np.nonzero(isin(cohorts, clients))
        occurrence = occurrences_of(cohorts, run, column, place)
        size = max(1, IDS_AT_ONCE // (self.law.steps * self.law.slots))
        for start in range(0, len(run), size):
            r, c, k = (a[start : start + size] for a in (run, column, place))
            yield r, c, self.batches_of(r, c + first, cohorts[r, c, k], occurrence[start : start + size])


def isin(ids: Ids, wanted: Sequence[int]) -> NDArray[np.bool_]:
    """Which ids, or places of none, are among some ids: one comparison for one, which is what is asked mostly."""
    found: NDArray[np.bool_] = ids == wanted[0] if len(wanted) == 1 else np.isin(ids, wanted)
    return found
