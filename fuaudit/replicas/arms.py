"""Arms: the kinds of runs that every pair holds, each with how its final models are made.

Every run of every pair has draws of its own, from the audit's key, the name of its arm and its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fuaudit.commitments.keys import derive
from fuaudit.declared import says
from fuaudit.draws import END, Keyed, Stream
from fuaudit.errors import PluginError
from fuaudit.plans import Plan
from fuaudit.plans.expanded import SelectedRuns
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import PlannedDraws
from fuaudit.plans.veil import rewritten
from fuaudit.runs.layout import stored_rounds
from fuaudit.training.engines import Engine, engine
from fuaudit.training.engines.batched import Batched, stack_size_of
from fuaudit.training.execute import RoundState, execute, initial_state
from fuaudit.training.setup import Setup
from fuaudit.unlearning.apply import edited
from fuaudit.verification.case import Case


def runs_abreast(case: Case) -> int:
    """How many runs fill a chunk of the engine; 1 where its chunks are short, or nobody knows.

    Laws that do not say how many take part may have room for many who do not.
    """
    places = says(case.run.plan.law, "cohort_size")
    return max(1, _lanes(case.rerun.ready) // places) if places else 1


def _lanes(ready: Setup) -> int:
    """How many participations the engine of repeated runs computes at once, if it is `batched`; others take few."""
    if ready.engine_of_many != "batched":
        return 1
    return stack_size_of(ready.procedure.module, ready.procedure.layout.dimension, ready.device)


@dataclass(frozen=True)
class Batch:
    """Some pairs, by their numbers, and what makes their runs.

    Attributes:
        read: the rounds whose models an editor is given.
        size: pairs in the largest batch. The engine's chunks have room for so many and no more, in smaller ones too:
            bits are compared under one size of chunks.
    """

    case: Case
    numbers: range
    threads: int
    read: tuple[int, ...]
    size: int

    @cached_property
    def maker(self) -> Engine:
        """What advances many runs at once."""
        # where few of those who may take part do, room for all of them would be computed in vain
        places = says(self.case.run.plan.law, "cohort_size") or 1
        return _engine(self.case.rerun.ready, self.size * places, self.threads)

    @cached_property
    def originals(self) -> list[Plan]:
        """Fresh plans over the population before the request."""
        run = self.case.run
        return [Plan.fresh(run.plan.law, run.before, source) for source in self.sources("original")]

    @cached_property
    def history(self) -> list[RoundState]:
        """The originals after rounds 0 to R."""
        return self.executed(self.originals)

    def retained(self, arm: str) -> list[Plan]:
        """Fresh plans of an arm over the retained population."""
        plan = self.case.run.plan
        return [Plan.fresh(plan.law, plan.retained, source) for source in self.sources(arm)]

    def sources(self, label: str) -> list[Keyed]:
        """Draws of their own, for an arm or for a request in it."""
        secret = self.case.key.secret
        return [Keyed(derive(secret, "parameters", label, str(number))) for number in self.numbers]

    def executed(self, plans: Sequence[Plan], keep: bool = True) -> list[RoundState]:
        """The states after rounds 0 to R of runs over one population; only the last one unless ``keep``."""
        ready, population = self.case.rerun.ready, plans[0].retained
        found = [initial_state(ready.procedure, plans, population, ready.device)]
        problem, schedule = ready.client_problem(population), LazySchedule(plans)
        draws = [PlannedDraws.flat(plan, plan.sources) for plan in plans]
        for _, after in execute(ready.procedure, problem, population, schedule, found[0], self.maker, draws=draws):
            found = [*found, after] if keep else [after]
        return found


class EditRefused(PluginError):
    """An editor failed on a run that never had the target: pairs go on without that arm, and findings say why."""


@dataclass(frozen=True)
class Arm:
    """A kind of run.

    Attributes:
        models: the final models ``(n, d)`` of a batch; one that editors may refuse raises :class:`EditRefused`.
    """

    name: str
    models: Callable[[Batch], Tensor]


def untouched(batch: Batch) -> Tensor:
    """The originals as they are."""
    return batch.history[-1].vectors


def unlearned(batch: Batch) -> Tensor:
    """The originals, unlearned as `unlearn` does it."""
    case, originals = batch.case, batch.originals
    assert case.request is not None
    if case.evidence.is_editor:
        return _edits(batch, originals, batch.history, "request")
    method, name, fresh = case.evidence.unlearner, case.run.info["unlearner"]["use"], batch.sources("request")
    plans = [rewritten(method, name, p, case.request, s, END) for p, s in zip(originals, fresh, strict=True)]
    return _resumed(batch, plans, fresh)


def retrained(arm: str) -> Callable[[Batch], Tensor]:
    """Runs that never had what was to be forgotten, with draws of the arm's own."""

    def models(batch: Batch) -> Tensor:
        return batch.executed(batch.retained(arm), keep=False)[-1].vectors

    return models


def edited_without(batch: Batch) -> Tensor:
    """Runs that never had it, edited as if they had."""
    plans = batch.retained(WITHOUT)
    history = batch.executed(plans)  # where training fails, the editor has refused nothing
    try:
        return _edits(batch, plans, history, "request without")
    except PluginError as error:
        raise EditRefused(str(error)) from error


WITHOUT = "without"
"""The arm of editors alone: the editor applied to a run that never had the target."""

ARMS = (
    Arm("untouched", untouched),
    Arm("subject", unlearned),
    Arm("retrained", retrained("retrained")),
    Arm("second", retrained("second")),
)
"""The arms of every pair: the run before, unlearned, and two retrained ones that share nothing."""

# not every editor can be asked to forget what a run never had
OF_EDITORS = (*ARMS, Arm(WITHOUT, edited_without))


def arms_of(is_editor: bool) -> tuple[Arm, ...]:
    """The arms of a method's pairs."""
    return OF_EDITORS if is_editor else ARMS


def rounds_read(case: Case) -> tuple[int, ...]:
    """The rounds whose models an editor had before it, ascending: those that the run it edited stores."""
    if case.parent is not None:
        return case.parent.checkpoints
    return stored_rounds(case.run.config.run.checkpoint_every, case.run.plan.law.rounds)


def _engine(ready: Setup, most: int, threads: int) -> Engine:
    """What advances runs with at most so many participations at once."""
    maker = engine(ready.engine_of_many, threads)
    if isinstance(maker, Batched) and ready.device.type == "cpu":
        return replace(maker, stack_size=max(2, min(_lanes(ready), most)))
    return maker


def _edits(batch: Batch, plans: list[Plan], history: list[RoundState], label: str) -> Tensor:
    """The models ``(n, d)`` that an editor makes of some runs; the runs may never have had the target."""
    case = batch.case
    assert case.request is not None
    name, retained = case.run.info["unlearner"]["use"], case.run.plan.retained
    ready = replace(case.rerun.ready, engine=engine(case.rerun.ready.engine.name, batch.threads))
    target = case.request, case.run.before
    models = []
    for place, (plan, fresh) in enumerate(zip(plans, batch.sources(label), strict=True)):
        before = [round_state.vectors[place].cpu() for round_state in history]
        read = {round_number: model for round_number, model in enumerate(before) if round_number in batch.read}
        after = replace(plan, populations=(plan.retained, retained), sources=(*plan.sources, fresh))
        models.append(edited(ready, plan, after, case.evidence.unlearner, name, before[-1], read, target)[0])
    return torch.stack(models).to(ready.device)


def _resumed(batch: Batch, plans: list[Plan], fresh: list[Keyed]) -> Tensor:
    """Final models ``(n, d)``: every run goes on from the start of its first changed round, on the retained data."""
    ready, originals, population = batch.case.rerun.ready, batch.originals, plans[0].retained
    history = [state.without(ready.procedure, originals[0].retained, population) for state in batch.history]
    rounds, thrice = plans[0].law.rounds, zip(plans, originals, fresh, strict=True)
    draws = [PlannedDraws.flat(plan, (*original.sources, own)) for plan, original, own in thrice]
    firsts = np.array([min(max(p.first_change(o).round, 1), rounds + 1) for p, o in zip(plans, originals, strict=True)])
    initial = [[p.streams[Stream.INITIAL] for p in pair] for pair in zip(plans, originals, strict=True)]
    redrawn = [place for place, (new, old) in enumerate(initial) if new != old]
    if redrawn:
        begin = initial_state(ready.procedure, [plans[place] for place in redrawn], population, ready.device)
        history[0] = history[0].updated(torch.tensor(redrawn, device=ready.device), begin)
    schedule, problem, now = LazySchedule(plans), ready.client_problem(population), history[-1]
    for round_number in range(1, rounds + 1):
        starting, active = (
            torch.from_numpy(np.flatnonzero(which)).to(ready.device)
            for which in (firsts == round_number, firsts <= round_number)
        )
        if not len(active):
            continue
        now = now.updated(starting, history[round_number - 1][starting])
        part = SelectedRuns(schedule, active.cpu().numpy(), round_number)
        own = [draws[place] for place in active.tolist()]
        *_, (_, after) = execute(
            ready.procedure, problem, population, part, now[active], batch.maker, round_number, own
        )
        now = now.updated(active, after)
    return now.vectors
