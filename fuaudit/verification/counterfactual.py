"""The erased data left in: the models that a run would hold if forgetting had gone wrong in a known way.

Where bits cannot be compared, a tolerance must be shown to be finer than what it may hide. So the faults that
replay exists to find are executed on the same machine: what they differ by is then no rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field

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
from fuaudit.training.received import Received
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
        remembered: the run's own plan, with sizes and constants of what it retains and of what the request took away:
            what other requests took away is in neither, for it would answer for this one.
        retained: the population after the request.
        drawn: what a louder part of the request could hide, by name: each sample, and the rows of each client that were
            drawn. Empty where none of it was.
        quietest: of each of these the quietest tenth.
        alone: of a request of several clients, or of samples of several, the rows of each, by name. Empty else: the
            request as a whole is such a part. Later rounds can forget one of them that was drawn early, and one that
            was drawn late moves the models.
        gone: all rows that the request took away.
        older: the parent's ancestors, youngest first. They held what the request took away as well, and drew it
            otherwise: their later rounds can have forgotten it where the parent's did not.
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
    gone: Rows
    older: tuple[Run, ...]


@dataclass(frozen=True)
class Counterfactuals:
    """The links of a lineage, youngest first, and why some of them could not be executed."""

    links: tuple[Counterfactual, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Leg:
    """A plan over a population, from the end of the leg before to the last round of a schedule.

    Gradients of samples outside ``counts`` are zero, where it is given; all count where it is None. Several of them
    are several runs, side by side. Of one run, rounds that came in messages are entered at what was ``received``.
    """

    plan: Plan
    population: Population
    schedule: Rounds
    counts: Sequence[Collection[int]] | None = None
    received: Mapping[int, Received] = field(default_factory=dict)


Models = Callable[[Sequence[Leg]], Checkpoints]
"""Executes legs, from the initial model of the first plan: models and states at the stored rounds."""


def counterfactuals(
    run: Run, ancestors: Sequence[Run | Tombstone], complete: bool, dataset: Dataset, models: Models
) -> Counterfactuals:
    """Every request of the lineage with its data left in; needs the parents and the erased rows.

    Raises:
        UsageError: no data is at hand at all.
    """
    if not run.is_child:
        return Counterfactuals((), ("the run carries out no request, so there is nothing to leave in",))
    found, missing = _parents(run, ancestors, complete, dataset)
    links = (
        _link(run, parent, child.plan.retained, tuple(older for older, _ in found[place + 1 :]), dataset, models)
        for place, (parent, child) in enumerate(found)
    )
    return Counterfactuals(tuple(links), missing)


def _parents(
    run: Run, ancestors: Sequence[Run | Tombstone], complete: bool, dataset: Dataset
) -> tuple[list[tuple[Run, Run]], tuple[str, ...]]:
    """Ancestors whose draws can be executed here, each with its child, and why others cannot.

    No plan makes a model that was edited. Those above it are executed all the same: no run may hold a copy of theirs.
    """
    found, edited, child = list[tuple[Run, Run]](), list[str](), run
    for parent in ancestors:
        if not isinstance(parent, Run):
            return found, (*edited, f"the parent of {child.path.name} was pruned")
        if "edited_by" in parent.info:
            edited.append(f"the model of {parent.path.name} was edited, and no draws say what the data did to it")
        elif reason := _not_at_hand(parent, dataset):
            return found, (*edited, reason)
        else:
            found.append((parent, child))
        child = parent
    return found, (*edited, *(() if complete else (f"the parent of {child.path.name} is not at hand",)))


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


def _link(
    run: Run, parent: Run, retained: Population, older: tuple[Run, ...], dataset: Dataset, models: Models
) -> Counterfactual:
    before, plan, rounds = parent.plan.retained, parent.plan, run.rounds_executed
    executed, own = min(parent.rounds_executed, rounds), run.plan
    schedule, usual = LazySchedule([plan], executed), sorted(before.owner)
    drawn, gone = _drawn(before, retained, schedule), _gone(before, retained)
    then = [Leg(own, own.retained, LazySchedule([own], rounds))] if executed < rounds else []
    untouched = models([Leg(plan, before, schedule), *then])
    masked = models([Leg(plan, before, schedule, [retained.owner]), *then])
    stored, all_gone = {0, *run.checkpoints}, tuple(sample for rows in gone.values() for sample in rows)
    return Counterfactual(
        parent=parent,
        changed=own.first_change(plan).round,
        executed=executed,
        untouched=_at(untouched, {*stored, executed}),
        taken_out=_at(models([Leg(plan, retained, RestrictedSchedule(schedule, retained)), *then]), stored),
        masked=_at(masked, stored),
        did=untouched[executed][0] - masked[executed][0] if then else None,
        remembered=_at(models(as_if_retained(run, parent, executed, all_gone)), stored),
        retained=retained,
        drawn=drawn,
        quietest={name: quietest(dataset.inputs, rows, usual) for name, rows in drawn.items()},
        alone=_alone(before, retained),
        gone=all_gone,
        older=older,
    )


def as_if_retained(run: Run, parent: Run, executed: int, rows: Rows) -> list[Leg]:
    """The run's own plan for so many rounds as if it retained some rows too: its sizes and constants; then as it is."""
    own, population = run.plan, _with_rows(run.plan.retained, parent.plan.retained, rows)
    rounds = run.rounds_executed
    first = Leg(own, population, LazySchedule([own], executed))
    return [first, Leg(own, own.retained, LazySchedule([own], rounds))] if executed < rounds else [first]


def _with_rows(retained: Population, before: Population, rows: Rows) -> Population:
    """What is retained, and some rows more of those before."""
    wanted = {*retained.owner, *rows}
    clients = {*retained.samples, *(before.owner[row] for row in rows)}
    return Population({c: tuple(s for s in mine if s in wanted) for c, mine in before.samples.items() if c in clients})


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
