"""Plans expanded into arrays: what the engines execute.

:func:`expand` reads one plan draw by draw and is the specification of :mod:`fuaudit.plans.stacked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fuaudit.declared import says
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans.law import Law
from fuaudit.plans.plan import Plan, occurrences
from fuaudit.plans.population import Population
from fuaudit.plans.strange_laws import SEE

Ids = NDArray[np.int64]
NONE = -1
"""Padding: no client at this place, no sample in this slot."""


@dataclass(frozen=True)
class Round:
    """One round of n expanded plans: ``cohorts (n, K)`` of client ids, ``batches (n, K, E, B)`` of sample ids.

    ``cut (n, K, E, C)`` has the samples that were included in batches and cut from them; None where there are none.
    """

    cohorts: Ids
    batches: Ids
    cut: Ids | None = None

    def same(self, other: Round) -> bool:
        """Whether both have the same cohorts, batches and samples that were cut, as they were read together."""
        drawn = np.array_equal(self.cohorts, other.cohorts) and np.array_equal(self.batches, other.batches)
        if self.cut is None or other.cut is None:
            return drawn and self.cut is other.cut
        return drawn and np.array_equal(self.cut, other.cut)


class Rounds(Protocol):
    """Expanded plans, read round by round."""

    @property
    def rounds(self) -> int:
        """The number of rounds, R."""
        ...

    def round(self, number: int) -> Round:
        """One round, from 1; unused slots are ``NONE``."""
        ...


@dataclass(frozen=True)
class Schedule:
    """Expanded plans of n runs with R rounds, at most K places a round, E steps and batches of at most B.

    ``cohorts (n, R, K)`` holds client ids, ``batches (n, R, K, E, B)`` sample ids; unused slots are ``NONE``. ``cut
    (n, R, K, E, C)`` as in :class:`Round`.
    """

    cohorts: Ids
    batches: Ids
    cut: Ids | None = None

    @property
    def runs(self) -> int:
        """The number of runs, n."""
        return int(self.cohorts.shape[0])

    @property
    def rounds(self) -> int:
        """The number of rounds, R."""
        return int(self.cohorts.shape[1])

    def round(self, number: int) -> Round:
        """One round, from 1."""
        cut = None if self.cut is None else self.cut[:, number - 1]
        return Round(self.cohorts[:, number - 1], self.batches[:, number - 1], cut)


@dataclass(frozen=True)
class SelectedRuns:
    """Some runs of expanded plans, by their numbers, up to round ``rounds``. A view: it copies one round at a time."""

    schedule: Rounds
    runs: Ids
    rounds: int

    def round(self, number: int) -> Round:
        """See :class:`Rounds`."""
        whole = self.schedule.round(number)
        cut = None if whole.cut is None else whole.cut[self.runs]
        return Round(whole.cohorts[self.runs], whole.batches[self.runs], cut)


def most_ids(law: Law, population: Population) -> int:
    """The most sample ids that a round of one plan over a population can hold."""
    return law.places(population.of_laws) * law.steps * law.slots


MOST_ROUNDS = 999_999
"""A run names its stored rounds by six digits."""

MOST_IDS = 100_000_000
"""Sample ids of one round of one plan: 800 MB."""


def require_feasible(law: Law, population: Population) -> None:
    """Raises UsageError where a law names more than can be executed: rounds, or sample ids of one round."""
    if law.rounds > MOST_ROUNDS:
        raise UsageError(f"{law.rounds:,} rounds cannot be executed; a run has at most {MOST_ROUNDS:,}")
    if (ids := most_ids(law, population)) > MOST_IDS:
        raise UsageError(
            f"a round of {law.places(population.of_laws):,} participants with {law.steps:,} steps and batches of "
            f"{law.slots:,} has up to {ids:,} samples, and cannot be executed; at most {MOST_IDS:,} can"
        )


def all_rounds(law: Law) -> range:
    """The numbers of the rounds of a law."""
    return range(1, law.rounds + 1)


def expand(plan: Plan, rounds: range | None = None) -> Schedule:
    """One plan, or some of its rounds (counted from 1), read draw by draw."""
    chosen = all_rounds(plan.law) if rounds is None else rounds
    table = []
    for round_number in chosen:
        cohort = plan.cohort(round_number)
        table.append(
            (
                cohort,
                [
                    [plan.batch(round_number, step, client, occurrence) for step in range(1, plan.law.steps + 1)]
                    for client, occurrence in occurrences(cohort)
                ],
            )
        )
    places = max([1, *(len(cohort) for cohort, _ in table)])  # a round may have nobody in it
    cohorts = np.full((1, len(table), places), NONE, dtype=np.int64)
    batches = np.full((1, len(table), places, plan.law.steps, plan.law.slots), NONE, dtype=np.int64)
    cuts: dict[tuple[int, int, int], list[int]] = {}
    for r, (cohort, participations) in enumerate(table):
        cohorts[0, r, : len(cohort)] = cohort
        for k, (steps, place) in enumerate(zip(participations, occurrences(cohort), strict=True)):
            for e, batch in enumerate(steps):
                batches[0, r, k, e, : len(batch)] = batch
                # fuaudit's own law fills a batch that it cuts; one of a stranger may leave fewer
                if says(plan.law, "cuts") and (len(batch) == plan.law.slots or plan.by_strangers):
                    included = plan.included(chosen[r], e + 1, *place)
                    if not {*batch} <= {*included}:
                        raise _not_included(plan.law, (chosen[r], e + 1, place[0]), batch, included)
                    left = {*included}.difference(batch)
                    cuts |= {(r, k, e): sorted(left)} if left else {}
    if not cuts:
        return Schedule(cohorts, batches)
    cut = np.full((*batches.shape[:-1], max(map(len, cuts.values()))), NONE, dtype=np.int64)
    for (r, k, e), left_out in cuts.items():
        cut[0, r, k, e, : len(left_out)] = left_out
    return Schedule(cohorts, batches, cut)


def _not_included(law: Law, at: tuple[int, int, int], batch: tuple[int, ...], included: tuple[int, ...]) -> PluginError:
    """The error where a law draws a batch of samples that it says were not included."""
    where = f"the law {type(law).__name__}, round {at[0]}, step {at[1]}, client {at[2]}"
    return PluginError(f"{where}, drew the batch {batch}, cut from {included}, which holds not all of it", SEE)


def occurrence_numbers(cohorts: Ids) -> Ids:
    """How often the client of each place was named earlier in its round; same shape ``(..., K)``."""
    result = np.zeros_like(cohorts)
    for place in range(1, cohorts.shape[-1]):
        result[..., place] = (cohorts[..., :place] == cohorts[..., place : place + 1]).sum(axis=-1)
    return result


def occurrences_of(cohorts: Ids, run: Ids, column: Ids, place: Ids) -> Ids:
    """:func:`occurrence_numbers` of some places of cohorts ``(n, R, K)``: three arrays ``(m,)`` in, one out."""
    named = cohorts[run, column] == cohorts[run, column, place][:, None]
    return np.asarray((named & (np.arange(cohorts.shape[-1]) < place[:, None])).sum(axis=1), dtype=np.int64)
