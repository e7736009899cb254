"""Many plans read at once, by address, only where asked; equal to reading each draw by draw (tested)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws import END, Address, Keyed, Position, Purpose, Recorded, Seeded, Stream
from fuaudit.draws.address import NOBODY
from fuaudit.draws.keyed import Addresses, philox_key, sequences, subsets
from fuaudit.draws.philox import Words
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans.expanded import NONE, Ids, Round, Schedule, all_rounds, expand, most_ids, occurrence_numbers
from fuaudit.plans.law import UniformLaw
from fuaudit.plans.plan import Plan, Segments
from fuaudit.plans.population import Request

ABSENT = -1
"""The size of a client outside a population; an emptied client inside has size 0."""

IDS_AT_ONCE = 4_000_000
"""Ids drawn at once: 32 MB."""


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


def _number(at: Position) -> int:
    """A number in the order of positions."""
    return at.round << 32 | at.step


def _per_position(segments: Segments, positions: Ids) -> tuple[Ids, Ids]:
    """Source and version of every position (given by its number): two arrays ``(len(positions),)``."""
    chosen = np.searchsorted([_number(s.start) for s in segments], positions, side="right") - 1
    return np.array([s.source for s in segments])[chosen], np.array([s.version for s in segments])[chosen]


def alike(plans: Sequence[Plan], sources: tuple[type, ...]) -> bool:
    """Whether plans are of one law, over equal histories of populations, with sources of these classes."""
    first = plans[0]
    return all(
        (plan.law is first.law or plan.law == first.law)
        and plan.populations == first.populations
        and all(type(source) in sources for source in plan.sources)
        for plan in plans
    )


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
        self.plans = plans
        self.law: Any = plans[0].law
        self.populations = plans[0].populations
        self._tabulate()

    @classmethod
    def fits(cls, plans: Sequence[Plan]) -> bool:
        """Whether these plans can be stacked."""
        return type(plans[0].law) is UniformLaw and alike(plans, (Keyed, Seeded, Recorded))

    @property
    def batch_size(self) -> int:
        """The most samples of a batch."""
        return int(self.law.batch_size)

    def _tabulate(self) -> None:
        """Ranks to ids: tables over (version, client)."""
        width = max(max(p.clients) for p in self.populations) + 1
        versions = len(self.populations)
        self._clients = [np.array(p.clients, dtype=np.int64) for p in self.populations]
        self._sizes = np.full((versions, width), ABSENT, dtype=np.int64)
        self._offsets = np.zeros((versions, width), dtype=np.int64)
        pieces: list[Ids] = []
        filled = 0
        for version, population in enumerate(self.populations):
            for client in population.clients:
                samples = np.array(population.samples[client], dtype=np.int64)
                self._sizes[version, client], self._offsets[version, client] = len(samples), filled
                pieces.append(samples)
                filled += len(samples)
        self._samples = np.concatenate(pieces)

    @cached_property
    def _owners(self) -> Ids:
        """The client of every sample in every version, ``ABSENT`` for none."""
        table = np.full((len(self.populations), int(self._samples.max(initial=-1)) + 1), ABSENT, dtype=np.int64)
        for version, population in enumerate(self.populations):
            for client in population.clients:
                table[version, list(population.samples[client])] = client
        return table

    def _segments(
        self, stream: Stream, purpose: Purpose, positions: Sequence[Position], runs: Iterable[int]
    ) -> tuple[Words, Words, Ids, NDArray[np.bool_]]:
        """Key words and versions of some plans at some positions, and which draws are recorded.

        Four arrays ``(len(runs), len(positions))``; the words of recorded draws are 0.
        """
        plans = [self.plans[run] for run in runs]
        by_segments: dict[Segments, list[int]] = {}
        for place, plan in enumerate(plans):
            by_segments.setdefault(plan.streams[stream], []).append(place)
        sources = [source for plan in plans for source in plan.sources]
        keys = np.array([philox_key(s.secret, purpose) if type(s) is Keyed else (0, 0) for s in sources], np.uint64)
        written = np.array([type(source) is Recorded for source in sources])
        ends = np.cumsum([len(plan.sources) for plan in plans])
        shape = len(plans), len(positions)
        numbers = np.array([_number(at) for at in positions])
        first, second = np.empty(shape, dtype=np.uint64), np.empty(shape, dtype=np.uint64)
        versions, recorded = np.empty(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        for segments, places in by_segments.items():
            source, versions[places] = _per_position(segments, numbers)
            begin = np.array([ends[place] - len(plans[place].sources) for place in places])
            words = keys[begin[:, None] + source]
            first[places], second[places] = words[..., 0], words[..., 1]
            if written.any():
                recorded[places] = written[begin[:, None] + source]
            for place in places:
                for number, drawn in enumerate(plans[place].sources):
                    if type(drawn) is Seeded:  # has a key for every position
                        (here,) = np.nonzero(source == number)
                        own = drawn.words(purpose, [positions[i] for i in here.tolist()])
                        first[place, here], second[place, here] = own[:, 0], own[:, 1]
        return first, second, versions, recorded

    def cohorts(self, chosen: range | None = None) -> Ids:
        """The cohorts of all rounds, or of those chosen: client ids ``(n, R, K)``, padded with ``NONE``."""
        law = self.law
        rounds = np.array(all_rounds(self.plans[0]) if chosen is None else chosen)
        positions = [Position(int(r), 0) for r in rounds]
        first, second, versions, recorded = self._segments(
            Stream.COHORTS, Purpose.COHORT, positions, range(len(self.plans))
        )
        result = np.full((len(self.plans), len(rounds), law.cohort_size), NONE, dtype=np.int64)
        for version, clients in enumerate(self._clients):
            run, column = np.nonzero((versions == version) & ~recorded)
            if not len(run):
                continue
            zero = np.zeros(len(run), dtype=np.int64)
            at = Addresses(
                (first[run, column], second[run, column]), rounds[column], zero, zero + NOBODY, zero, zero + version
            )
            sizes = zero + len(clients)
            if law.replacement:
                result[run, column] = clients[sequences(at, sizes, law.cohort_size)]
            else:
                count = min(law.cohort_size, len(clients))
                result[run, column, :count] = clients[subsets(at, sizes, count)]
        for i, c in zip(*np.nonzero(recorded), strict=True):
            cohort = self.plans[i].cohort(int(rounds[c]))
            result[i, c, : len(cohort)] = cohort
        places = int((result != NONE).any(axis=(0, 1)).sum())
        return result[..., :places]

    def batches_of(self, run: Ids, round_number: Ids, client: Ids, occurrence: Ids) -> Ids:
        """The batches of some participations, all steps: arrays ``(m,)`` in, sample ids ``(m, E, B)`` out.

        ``run`` counts from 0, ``round_number`` from 1.
        """
        law = self.law
        if not len(run):
            return np.empty((0, law.steps, law.slots), dtype=np.int64)
        # of the rounds asked for only: whoever reads a plan block by block would pay for all of them every time
        earliest, latest = int(round_number.min()), int(round_number.max())
        positions = [Position(r, e) for r in range(earliest, latest + 1) for e in range(1, law.steps + 1)]
        asked, run = np.unique(run, return_inverse=True)
        first, second, versions, recorded = self._segments(Stream.BATCHES, Purpose.BATCH, positions, asked.tolist())
        step = np.arange(1, law.steps + 1)
        column = (round_number[:, None] - earliest) * law.steps + step - 1  # (m, E)
        row = run[:, None]
        version = versions[row, column]
        sizes = self._sizes[version, client[:, None]]
        if (sizes == ABSENT).any():
            raise PluginError(
                "the plan draws a batch of a client that is not in the population of that draw",
                "A method of this lineage kept draws of a client that was erased, as noop does: unlearn from the run "
                "before that, or start over with retrain.",
            )
        counts = np.minimum(sizes, self.batch_size)
        result = np.full((*column.shape, law.slots), NONE, dtype=np.int64)
        noted = recorded[row, column]
        for count in np.unique(counts):
            if count == 0:
                continue
            m, e = np.nonzero((counts == count) & ~noted)
            at = Addresses(
                (first[run[m], column[m, e]], second[run[m], column[m, e]]),
                round_number[m],
                step[e],
                client[m],
                occurrence[m],
                version[m, e],
            )
            ranks = subsets(at, sizes[m, e], int(count))
            offsets = self._offsets[version[m, e], client[m]]
            result[m, e, :count] = self._samples[offsets[:, None] + ranks]
        m, e = np.nonzero(noted)
        if len(m):
            places = asked[run[m]], round_number[m], step[e], client[m], occurrence[m]
            result[m, e] = self._recorded(*places, version[m, e], counts[m, e])
        return result

    def _recorded(
        self, run: Ids, round_number: Ids, step: Ids, client: Ids, occurrence: Ids, version: Ids, count: Ids
    ) -> Ids:
        """Recorded batches, looked up: arrays ``(m,)`` in, sample ids ``(m, B)`` out."""
        result = np.full((len(run), self.law.slots), NONE, dtype=np.int64)
        columns = [column.tolist() for column in (run, round_number, step, client, occurrence)]
        odd: list[int] = []
        for row, (i, r, e, c, o) in enumerate(zip(*columns, strict=True)):
            plan, at = self.plans[i], Address(Purpose.BATCH, r, e, c, o)
            source = plan.sources[plan.segment(Stream.BATCHES, at.position).source]
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
            drawn = self.plans[i].batch(r, e, c, o)
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
        """
        law = self.law
        cohorts = self.cohorts() if cohorts is None else cohorts
        never = END.round * (law.steps + 1)
        earliest = np.full(len(self.plans), never, dtype=np.int64)
        if request.clients:
            hit = np.any(np.isin(cohorts, request.clients), axis=2)
            run = np.nonzero(np.any(hit, axis=1))[0]
            earliest[run] = (np.argmax(hit[run], axis=1) + 1) * (law.steps + 1)
        owners = sorted({p.owner[s] for s in request.samples for p in self.populations if s in p.owner})
        if owners:
            occurrence = occurrence_numbers(cohorts)
            run, column, place = np.nonzero(np.isin(cohorts, owners))
            client = cohorts[run, column, place]
            flat = self.batches_of(run, column + 1, client, occurrence[run, column, place])
            hit = np.any(np.isin(flat, request.samples), axis=2)
            m, e = np.nonzero(hit)
            np.minimum.at(earliest, run[m], (column[m] + 1) * (law.steps + 1) + e + 1)
        return earliest // (law.steps + 1), earliest % (law.steps + 1)
