"""Who is there in many plans of an availability law at once, and where a request is first involved in each.

Only what the question needs is drawn: of clients that are available independently of each other, those asked for.
Equal to reading the plans draw by draw (tested).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws import END, Keyed, Purpose
from fuaudit.draws.address import NOBODY
from fuaudit.draws.keyed import Addresses
from fuaudit.draws.philox import Words
from fuaudit.plans.availability import (
    AvailabilityLaw,
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.expanded import Ids
from fuaudit.plans.plan import Plan
from fuaudit.plans.population import Request
from fuaudit.plans.stacked import Stack, alike
from fuaudit.plans.strange_laws import is_just

There = NDArray[np.bool_]
CELLS = 1_000_000
"""Weights drawn at once."""

LARGEST = 2**62
"""Sums of weights below it are read in arrays."""


class Attendance(Stack):
    """Many plans of one availability law over one history of populations, all drawn from keys."""

    @classmethod
    def fits(cls, plans: Sequence[Plan]) -> bool:
        """Whether these plans can be read at once. By exact classes: it repeats what their code does."""
        law, population = plans[0].law, plans[0].populations[0]
        if type(law) is not AvailabilityLaw or not is_just(law.batches, FreshBatches, PermutedEpochs, PoissonBatches):
            return False
        who, clients = law.availability, len(population.clients)
        small = is_just(who, BoundedRoundRobin, StaticProbability) or (
            type(who) is TimeVaryingWeights and who.largest * clients < LARGEST
        )
        return small and alike(plans, (Keyed,))

    @property
    def batch_size(self) -> int:
        """See :class:`~fuaudit.plans.stacked.Stack`."""
        return int(self.law.batches.size)

    def there(self, clients: Sequence[int]) -> There:
        """Whether clients, of the first population, take part in each round of each plan: ``(n, R, len(clients))``."""
        who, asked = self.law.availability, np.array(clients, dtype=np.int64)
        if type(who) is TimeVaryingWeights:
            result = self._weighted(who, asked)
        else:
            draw = self._in_turn if type(who) is BoundedRoundRobin else self._static
            result = draw(who, asked)
            versions = self._at(Purpose.AVAILABILITY, self._rounds)[2]
            result &= self._sizes[versions[..., None], asked] >= 0
        if self.law.first_all:
            versions = self._at(Purpose.COHORT, self._rounds[:1])[2]
            result[:, 0] = self._sizes[versions[:, 0, None], asked] >= 0
        return result

    @property
    def _rounds(self) -> Ids:
        return np.arange(1, self.law.rounds + 1)

    def _at(self, purpose: Purpose, rounds: Ids) -> tuple[Words, Words, Ids]:
        """Key words and versions of all plans where cohorts are drawn, ``(n, len(rounds))`` each; 0 for the start."""
        run, zero = np.arange(len(self.plans))[:, None], np.zeros(1, dtype=np.int64)
        first, second, versions, _ = self._drawn_from(purpose, run, rounds, zero)
        return first, second, versions

    def _in_turn(self, who: BoundedRoundRobin, clients: Ids) -> There:
        first, second, versions = self._at(Purpose.AVAILABILITY, np.zeros(1, dtype=np.int64))
        zero = np.zeros_like(versions)

        def drawn(occurrence: int, bounds: Ids) -> Ids:
            at = Addresses((first, second), zero, zero, clients[None], zero + occurrence, versions)
            return at.integer(0, bounds)

        shape = len(self.plans), len(clients)
        tau = drawn(0, np.full(shape, who.tau_max + 1))
        often = np.maximum(tau, 1)
        phase = drawn(1, often) if who.phase == "drawn" else np.zeros(shape, dtype=np.int64)
        rounds = np.arange(self.law.rounds)[None, :, None]
        result: There = (tau < 2)[:, None] | (rounds % often[:, None] == phase[:, None])
        return result

    def _static(self, who: StaticProbability, clients: Ids) -> There:
        first, second, versions = self._at(Purpose.AVAILABILITY, self._rounds)
        rounds = np.arange(1, self.law.rounds + 1)[None, :, None]
        shape = (*versions.shape, len(clients))
        if who.probability == 1:
            return np.ones(shape, dtype=np.bool_)
        zero = np.zeros(1, dtype=np.int64)
        at = Addresses((first[..., None], second[..., None]), rounds, zero, clients, zero, versions[..., None])
        return np.broadcast_to(at.happens(0, who.probability), shape).copy()

    def _weighted(self, who: TimeVaryingWeights, asked: Ids) -> There:
        """A cohort of weights depends on everybody, so all weights are drawn."""
        first, second, versions = self._at(Purpose.AVAILABILITY, self._rounds)
        ones, twos, _ = self._at(Purpose.COHORT, self._rounds)
        result = np.zeros((*versions.shape, len(asked)), dtype=np.bool_)
        for version, clients in enumerate(self._clients):
            run, column = np.nonzero(versions == version)
            if not len(run):
                continue
            places = np.searchsorted(clients, asked)
            known = (places < len(clients)) & (clients[np.minimum(places, len(clients) - 1)] == asked)
            size = max(1, CELLS // len(clients))
            for start in range(0, len(run), size):
                some = slice(start, start + size)
                i, c = run[some], column[some]
                keys = (first[i, c], second[i, c]), (ones[i, c], twos[i, c])
                inside = self._chosen(who, keys, c + 1, version)
                result[i, c] = inside[:, np.where(known, places, 0)] & known
        return result

    def _chosen(
        self,
        who: TimeVaryingWeights,
        keys: tuple[tuple[Words, Words], tuple[Words, Words]],
        round_number: Ids,
        version: int,
    ) -> There:
        """Which clients of one version are drawn in some rounds: arrays ``(m,)`` in, ``(m, M)`` out."""
        clients, zero = self._clients[version], np.zeros(1, dtype=np.int64)
        spread = keys[0][0][:, None], keys[0][1][:, None]
        at = Addresses(spread, round_number[:, None], zero, clients[None], zero, zero + version)
        left = at.integer(0, np.full((len(round_number), len(clients)), who.largest)) + 1
        at = Addresses(keys[1], round_number, zero, zero + NOBODY, zero, zero + version)
        rows, inside = np.arange(len(round_number)), np.zeros(left.shape, dtype=np.bool_)
        for index in range(who.most(len(clients))):
            ticket = at.integer(index, left.sum(axis=1))
            place = (np.cumsum(left, axis=1) <= ticket[:, None]).sum(axis=1)
            inside[rows, place] = True
            left[rows, place] = 0
        return inside

    def first_involvement(self, request: Request, cohorts: Ids | None = None) -> tuple[Ids, Ids]:
        """See :class:`~fuaudit.plans.stacked.Stack`. ``cohorts`` are not needed.

        With permuted epochs a sample is drawn where its owner takes part; the step is that of the draw.
        """
        width = self.law.steps + 1
        earliest = np.full(len(self.plans), END.round * width, dtype=np.int64)
        owner = (
            {s: c for population in self.populations for s, c in population.owner.items()} if request.samples else {}
        )
        owners = sorted({owner[s] for s in request.samples if s in owner})
        whole = [client for client in request.clients if client in self.populations[0].samples]
        if whole:
            there: There = np.any(self.there(whole), axis=2)
            found = np.flatnonzero(np.any(there, axis=1))
            earliest[found] = (there[found].argmax(axis=1) + 1) * width
        if owners:
            run, column, place = np.nonzero(self.there(owners))
            if type(self.law.batches) is PermutedEpochs:
                np.minimum.at(earliest, run, (column + 1) * width + 1)
            elif type(self.law.batches) is PoissonBatches:
                m, e = np.nonzero(self._included(run, column + 1, np.array(owners)[place], request.samples))
                np.minimum.at(earliest, run[m], (column[m] + 1) * width + e + 1)
            else:
                client = np.array(owners)[place]
                batches = self.batches_of(run, column + 1, client, np.zeros_like(client))
                m, e = np.nonzero(np.isin(batches, request.samples).any(axis=2))
                np.minimum.at(earliest, run[m], (column[m] + 1) * width + e + 1)
        return earliest // width, earliest % width

    def _included(self, run: Ids, round_number: Ids, client: Ids, samples: Sequence[int]) -> There:
        """Whether any of some samples is included, in each step of some participations: ``(m,)`` in, ``(m, E)`` out.

        Nothing else is drawn: what is included of a sample depends on its place among those of its client alone.
        """
        law, result = self.law, np.zeros((len(run), self.law.steps), dtype=np.bool_)
        if not len(run):
            return result
        steps = np.arange(1, law.steps + 1)
        first, second, versions, _ = self._drawn_from(Purpose.BATCH, run[:, None], round_number[:, None], steps)
        for version, population in enumerate(self.populations):
            for sample in samples:
                owner = population.owner.get(sample)
                if owner is None:
                    continue
                m, e = np.nonzero((versions == version) & (client == owner)[:, None])
                zero = np.zeros(len(m), dtype=np.int64)
                at = Addresses((first[m, e], second[m, e]), round_number[m], e + 1, client[m], zero, zero + version)
                rank = population.samples[owner].index(sample)
                result[m, e] |= at.happens(rank, law.batches.rate)
        return result
