"""The erased data left in: the models that a run would hold if forgetting had gone wrong in a known way.

Where bits cannot be compared, a tolerance must be shown to be finer than what it may hide. So the faults that
replay exists to find are executed on the same machine: what they differ by is then no rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fuaudit.data.dataset import Dataset
from fuaudit.plans import Plan, Population
from fuaudit.plans.expanded import NONE, Round, Rounds
from fuaudit.plans.stacked import LazySchedule
from fuaudit.runs.derived_files import Checkpoints
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.verification.quiet import quietest

Rows = tuple[int, ...]
"""Ids of samples."""


@dataclass(frozen=True)
class Counterfactual:
    """One request of the lineage, and ways to execute it on this machine; models at the run's stored rounds.

    Attributes:
        parent: the run that the request was made to.
        changed: the first round in which the run draws anew, compared with that parent.
        executed: how many rounds of its plan the parent executed. After them the run's own plan over the retained
            population stands in all that follows: rounds that never were show nothing of what the erased data did.
        untouched: the parent's plan over the population before the request: nothing was forgotten. Also its model after
            the last round that the parent executed, which the run may not store.
        taken_out: the same draws, but who was to be forgotten takes no step, and sizes and constants are the
            retained ones. It differs from the run in its draws alone.
        masked: as ``untouched``, but gradients of the erased data are zero. Batches keep their lengths, and sizes and
            constants are those of before. ``untouched`` minus ``masked`` is what the erased data did to the models:
            where rows are taken out, the mean of their batch mates changes as well, and would answer for them.
        did: the same after the last round that the parent executed, ``(d,)``, where training was stopped; None else.
        remembered: the run's own plan, with sizes and constants of the population before the request.
        retained: the population after the request.
        drawn: what a louder part of the request could hide, by name: each sample, and the rows of each client that were
            drawn. Empty where none of it was.
        quietest: of each of these the quietest tenth.
        alone: of a request of several clients, or of samples of several, the rows of each, by name. Empty else: the
            request as a whole is such a part. Later rounds can forget one of them that was drawn early, and one that
            was drawn late moves the models.
    """

    parent: Run
    changed: int
    executed: int
    untouched: Checkpoints
    taken_out: Checkpoints
    masked: Checkpoints
    did: Tensor | None
    remembered: Checkpoints
    retained: Population
    drawn: Mapping[str, Rows]
    quietest: Mapping[str, Rows]
    alone: Mapping[str, Rows]


@dataclass(frozen=True)
class Counterfactuals:
    """The links of a lineage, youngest first, and why some of them could not be executed."""

    links: tuple[Counterfactual, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Leg:
    """A plan over a population, from the end of the leg before to the last round of a schedule.

    Gradients of samples outside ``counts`` are zero, where it is given; all count where it is None. Several of them
    are several runs, side by side.
    """

    plan: Plan
    population: Population
    schedule: Rounds
    counts: Sequence[Collection[int]] | None = None


Models = Callable[[Sequence[Leg]], Checkpoints]
"""Executes legs, from the initial model of the first plan: models and states at the stored rounds."""


def counterfactuals(
    run: Run, ancestors: Sequence[Run | Tombstone], complete: bool, dataset: Dataset, models: Models
) -> Counterfactuals:
    """Every request of the lineage with its data left in; needs the parents and the erased rows.

    Raises:
        UsageError: no data is at hand at all.
    """
    links: list[Counterfactual] = []
    child = run
    if not child.is_child:
        return Counterfactuals((), ("the run carries out no request, so there is nothing to leave in",))
    for parent in ancestors:
        if not isinstance(parent, Run):
            return Counterfactuals(tuple(links), (f"the parent of {child.path.name} was pruned",))
        if reason := _not_at_hand(parent, dataset):
            return Counterfactuals(tuple(links), (reason,))
        links.append(_link(run, parent, child.plan.retained, dataset, models))
        child = parent
    missing = () if complete else (f"the parent of {child.path.name} is not at hand",)
    return Counterfactuals(tuple(links), missing)


def _not_at_hand(parent: Run, dataset: Dataset) -> str:
    """Why the rows that a parent was trained on cannot be read here; empty when they can."""
    absent = dataset.absent.intersection(parent.plan.retained.owner)
    if absent:
        return (
            f"{counted(len(absent), 'erased row')} of {parent.path.name} "
            f"{'is' if len(absent) == 1 else 'are'} not at hand (--erased ROOT)"
        )
    if changed := parent.differences(dataset):
        return f"rows of {counted(len(changed.rows), 'client')} are not those that {parent.path.name} was trained on"
    return ""


def _link(run: Run, parent: Run, retained: Population, dataset: Dataset, models: Models) -> Counterfactual:
    before, plan, rounds = parent.plan.retained, parent.plan, run.rounds_executed
    executed, own = min(parent.rounds_executed, rounds), run.plan
    schedule, usual = LazySchedule([plan], executed), sorted(before.owner)
    drawn = _drawn(before, retained, schedule)
    then = [Leg(own, retained, LazySchedule([own], rounds))] if executed < rounds else []
    untouched = models([Leg(plan, before, schedule), *then])
    taken_out = models([Leg(plan, retained, RestrictedSchedule(schedule, retained)), *then])
    masked = models([Leg(plan, before, schedule, [retained.owner]), *then])
    stored = {0, *run.checkpoints}
    return Counterfactual(
        parent,
        own.first_change(plan).round,
        executed,
        _at(untouched, {*stored, executed}),
        _at(taken_out, stored),
        _at(masked, stored),
        untouched[executed][0] - masked[executed][0] if then else None,
        _at(models([Leg(own, before, LazySchedule([own], executed)), *then]), stored),
        retained,
        drawn,
        {name: quietest(dataset.inputs, rows, usual) for name, rows in drawn.items()},
        _alone(before, retained),
    )


def _alone(before: Population, retained: Population) -> dict[str, Rows]:
    """See :class:`Counterfactual`."""
    by_client = dict[int, list[int]]()
    for rows in _gone(before, retained).values():
        for sample in rows:
            by_client.setdefault(before.owner[sample], []).append(sample)
    if len(by_client) == 1:
        return {}
    return {f"what is erased of client {client}": tuple(rows) for client, rows in by_client.items()}


def _at(models: Checkpoints, rounds: Set[int]) -> Checkpoints:
    """Models of the rounds that a run stores."""
    return {number: found for number, found in models.items() if number in rounds}


def _gone(before: Population, retained: Population) -> dict[str, Rows]:
    """What a request took away: the rows of each client, and single samples of clients that stay."""
    clients = {f"client {c}": rows for c, rows in before.samples.items() if c not in retained.samples}
    stay = [s for s, owner in before.owner.items() if owner in retained.samples and s not in retained.owner]
    return clients | {f"sample {sample}": (sample,) for sample in sorted(stay)}


def _drawn(before: Population, retained: Population, schedule: Rounds) -> dict[str, Rows]:
    """See :class:`Counterfactual`; a single sample too, for what others did after it answers for it else."""
    gone = _gone(before, retained)
    wanted = np.array([sample for rows in gone.values() for sample in rows], dtype=np.int64)
    drawn = set[int]()
    for number in range(1, schedule.rounds + 1):
        drawn.update(np.intersect1d(schedule.round(number).batches, wanted).tolist())
    return {name: tuple(sample for sample in rows if sample in drawn) for name, rows in gone.items()}


@dataclass(frozen=True)
class RestrictedSchedule:
    """The same draws, but samples outside a population are in no batch: who has none left returns the model."""

    schedule: Rounds
    population: Population

    @property
    def rounds(self) -> int:
        """See :class:`~fuaudit.plans.expanded.Rounds`."""
        return self.schedule.rounds

    @property
    def takes_something(self) -> bool:
        """Whether any draw holds a sample from outside."""
        return any(
            not np.array_equal(self.round(number).batches, self.schedule.round(number).batches)
            for number in range(1, self.rounds + 1)
        )

    def round(self, number: int) -> Round:
        """See :class:`~fuaudit.plans.expanded.Rounds`."""
        drawn = self.schedule.round(number)
        kept = np.isin(drawn.batches, np.fromiter(self.population.owner, dtype=np.int64))
        return Round(drawn.cohorts, np.where(kept, drawn.batches, NONE))
