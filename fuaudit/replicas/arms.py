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
from fuaudit.plans import Plan
from fuaudit.plans.expanded import SelectedRuns
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import PlannedDraws
from fuaudit.training.engines import Engine, engine, suggested
from fuaudit.training.engines.batched import Batched
from fuaudit.training.execute import RoundState, execute, initial_state
from fuaudit.training.setup import Setup
from fuaudit.unlearning.apply import edited, rewritten
from fuaudit.verification.case import Case

RUNS_ABREAST = 16
"""Runs that the batched engine advances in one operation; two make a part, one for each of two threads."""


@dataclass(frozen=True)
class Batch:
    """Some pairs, by their numbers, and what makes their runs."""

    case: Case
    numbers: range
    threads: int

    @cached_property
    def maker(self) -> Engine:
        """What advances many runs at once."""
        # where few of those who may take part do, room for all of them would be computed in vain
        return _engine(self.case.rerun.ready, says(self.case.run.plan.law, "cohort_size") or 1, self.threads)

    @cached_property
    def originals(self) -> list[Plan]:
        """Fresh plans over the population before the request."""
        run = self.case.run
        return [Plan.fresh(run.plan.law, run.before, _source(self.case, "original", i)) for i in self.numbers]

    @cached_property
    def history(self) -> list[RoundState]:
        """The originals after rounds 0 to R."""
        return _rounds(self.case.rerun.ready, self.originals, self.maker)

    def retained(self, arm: str) -> list[Plan]:
        """Fresh plans of an arm over the retained population."""
        plan = self.case.run.plan
        return [Plan.fresh(plan.law, plan.retained, _source(self.case, arm, i)) for i in self.numbers]


@dataclass(frozen=True)
class Arm:
    """A kind of run.

    Attributes:
        models: the final models ``(n, d)`` of a batch.
        may_refuse: whether a plugin may fail there, so that the arm is left out.
    """

    name: str
    models: Callable[[Batch], Tensor]
    may_refuse: bool = False


def untouched(batch: Batch) -> Tensor:
    """The originals as they are."""
    return batch.history[-1].vectors


def unlearned(batch: Batch) -> Tensor:
    """The originals, unlearned as `unlearn` does it."""
    return _subjects(batch.case, batch.originals, batch.history, batch.maker, batch.numbers, batch.threads)


def retrained(arm: str) -> Callable[[Batch], Tensor]:
    """Runs that never had what was to be forgotten, with draws of the arm's own."""

    def models(batch: Batch) -> Tensor:
        return _rounds(batch.case.rerun.ready, batch.retained(arm), batch.maker, keep=False)[-1].vectors

    return models


def edited_without(batch: Batch) -> Tensor:
    """Runs that never had it, edited as if they had."""
    plans = batch.retained(WITHOUT)
    history = _rounds(batch.case.rerun.ready, plans, batch.maker)
    return _edits(batch.case, plans, history, batch.numbers, batch.threads, "request without")


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
OF_EDITORS = (*ARMS, Arm(WITHOUT, edited_without, may_refuse=True))


def arms_of(is_editor: bool) -> tuple[Arm, ...]:
    """The arms of a method's pairs."""
    return OF_EDITORS if is_editor else ARMS


def _engine(ready: Setup, places: int, threads: int) -> Engine:
    maker = engine(suggested(ready.procedure.module, ready.device, many=True), threads)
    if isinstance(maker, Batched) and ready.device.type == "cpu":
        return replace(maker, stack_size=RUNS_ABREAST * places)
    return maker


def _source(case: Case, arm: str, number: int) -> Keyed:
    return Keyed(derive(case.key.secret, "parameters", arm, str(number)))


def _rounds(ready: Setup, plans: Sequence[Plan], maker: Engine, keep: bool = True) -> list[RoundState]:
    """The moments after rounds 0 to R of many runs over one population; only the last one unless ``keep``."""
    population = plans[0].retained
    round_states = [initial_state(ready.procedure, plans, population, ready.device)]
    problem, schedule = ready.client_problem(population), LazySchedule(plans)
    draws = [PlannedDraws.flat(plan, plan.sources) for plan in plans]
    for _, round_state in execute(ready.procedure, problem, population, schedule, round_states[0], maker, draws=draws):
        round_states = [*round_states, round_state] if keep else [round_state]
    return round_states


def _subjects(
    case: Case, originals: list[Plan], history: list[RoundState], maker: Engine, numbers: range, threads: int
) -> Tensor:
    """The unlearned models ``(n, d)`` of some originals, made as `unlearn` makes them."""
    assert case.request is not None
    if case.evidence.is_editor:
        return _edits(case, originals, history, numbers, threads, "request")
    name = case.run.info["unlearner"]["use"]
    fresh = [_source(case, "request", i) for i in numbers]
    method = case.evidence.unlearner
    plans = [rewritten(method, name, p, case.request, s, END) for p, s in zip(originals, fresh, strict=True)]
    # runs of one history of populations are stacked by making the populations the same object
    shared = plans[0].populations
    plans = [replace(plan, populations=shared) for plan in plans]
    ready, before = case.rerun.ready, case.run.before
    inherited = [state.without(ready.procedure, before, plans[0].retained) for state in history]
    return _resume(ready, plans, originals, inherited, maker, fresh)


def _edits(
    case: Case, plans: list[Plan], history: list[RoundState], numbers: range, threads: int, own_draws: str
) -> Tensor:
    """The models ``(n, d)`` that an editor makes of some runs; the runs may never have had the target."""
    assert case.request is not None
    name, retained = case.run.info["unlearner"]["use"], case.run.plan.retained
    ready = replace(case.rerun.ready, engine=engine(case.rerun.ready.engine.name, threads))
    target = case.request, case.run.before
    models = []
    for place, (plan, i) in enumerate(zip(plans, numbers, strict=True)):
        fresh = _source(case, own_draws, i)
        stored = {round_number: round_state.vectors[place].cpu() for round_number, round_state in enumerate(history)}
        after = replace(plan, populations=(plan.retained, retained), sources=(*plan.sources, fresh))
        models.append(edited(ready, plan, after, case.evidence.unlearner, name, stored[max(stored)], stored, target)[0])
    return torch.stack(models).to(ready.device)


def _resume(
    ready: Setup, plans: list[Plan], originals: list[Plan], history: list[RoundState], maker: Engine, fresh: list[Keyed]
) -> Tensor:
    """Final models ``(n, d)``: every run goes on from the start of its first changed round, on the retained data."""
    rounds, thrice = plans[0].law.rounds, zip(plans, originals, fresh, strict=True)
    draws = [PlannedDraws.flat(plan, (*original.sources, own)) for plan, original, own in thrice]
    firsts = np.array([min(max(p.first_change(o).round, 1), rounds + 1) for p, o in zip(plans, originals, strict=True)])
    initial = [[p.streams[Stream.INITIAL] for p in pair] for pair in zip(plans, originals, strict=True)]
    redrawn = [place for place, (new, old) in enumerate(initial) if new != old]
    vectors = history[-1].vectors.clone()
    state = {k: v.clone() for k, v in history[-1].state.items()}
    if redrawn:
        begin = initial_state(ready.procedure, [plans[place] for place in redrawn], plans[0].retained, ready.device)
    schedule, population = LazySchedule(plans), plans[0].retained
    problem = ready.client_problem(population)
    for round_number in range(1, rounds + 1):
        starting = np.flatnonzero(firsts == round_number)
        vectors[starting] = history[round_number - 1].vectors[starting]
        for key, value in state.items():
            value[starting] = history[round_number - 1].state[key][starting]
        if round_number == 1 and redrawn:
            vectors[redrawn] = begin.vectors
            for key, value in state.items():
                value[redrawn] = begin.state[key]
        active = np.flatnonzero(firsts <= round_number)
        if not len(active):
            continue
        part = SelectedRuns(schedule, active, round_number)
        round_state = RoundState(vectors, state)[active]
        own = [draws[place] for place in active]
        *_, (_, round_state) = execute(
            ready.procedure, problem, population, part, round_state, maker, round_number, own
        )
        vectors[active] = round_state.vectors
        for key, value in state.items():
            value[active] = round_state.state[key]
    return vectors
