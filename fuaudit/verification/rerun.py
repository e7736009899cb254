"""Rerun: the run's config executed again on this machine, from its plan and the rows at hand."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuaudit.plans import Population
from fuaudit.plans.expanded import Rounds, SelectedRuns
from fuaudit.plans.stacked import LazySchedule
from fuaudit.progress import Progress, silent
from fuaudit.runs.derived_files import Checkpoints, Measures, derived_files
from fuaudit.runs.layout import stored_rounds
from fuaudit.runs.ledger import EventsByRound
from fuaudit.runs.platforms import Platform, makers_of
from fuaudit.runs.run import Run
from fuaudit.training.execute import RoundState, execute, initial_state
from fuaudit.training.rounds import State
from fuaudit.training.setup import Setup, setup
from fuaudit.verification.counterfactual import (
    Counterfactual,
    Counterfactuals,
    Leg,
    Rows,
    as_if_retained,
    counterfactuals,
)
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.own_steps import Masked, OwnSteps

EQUAL_BITS = (
    "Where versions, processor, plugins and the canary of two platforms are equal, both make equal bits of this run."
)
"""What a FAIL assumes that rests on bits of models."""

AT_ONCE = 2**24
"""So many numbers of updates, parts by places by parameters, are executed side by side: 64 MB in float32."""

SUMS = 2**26
"""So many numbers, parts by parameters, are added up at once: 256 MB in float32. More parts need the walk again."""


@dataclass(frozen=True)
class Rerun:
    """What executing the plans of a lineage gives. Everything is made when it is asked for, and once."""

    evidence: Evidence
    progress: Progress = silent

    @property
    def _run(self) -> Run:
        return self.evidence.run

    @cached_property
    def ready(self) -> Setup:
        """The run's config on this machine, with the engine that the run used. UsageError without data."""
        ready = setup(self._run.config, self.evidence.rows)
        # what came in messages is entered as the run has it, and what its clients keep is not here
        plainly = replace(ready.procedure.exchange.in_the_clear(), received=self._run.exchange.received)
        return replace(ready, procedure=replace(ready.procedure, exchange=plainly))

    @cached_property
    def schedule(self) -> Rounds:
        """The run's plan, up to its last executed round."""
        return LazySchedule([self._run.plan], self._run.rounds_executed)

    @property
    def stored_rounds(self) -> tuple[int, ...]:
        """The rounds after which a run of this config stores its model, ascending; 0 is before the first."""
        return stored_rounds(self._run.config.run.checkpoint_every, self._run.rounds_executed)

    @property
    def replayed(self) -> Checkpoints:
        """The models that the plan makes of the retained data, from scratch, at the rounds the run has stored."""
        return self._replayed[0]

    def after(self, round_number: int) -> Checkpoints:
        """The model and state that the plan makes up to one round, which the run may not store, by that round."""
        if round_number in self.replayed:
            return {round_number: self.replayed[round_number]}
        return {round_number: self.models([self._own(LazySchedule([self._run.plan], round_number))])[round_number]}

    def _own(self, schedule: Rounds) -> Leg:
        """The run's own plan over the retained data; rounds that came in messages are entered at what came."""
        return Leg(self._run.plan, self._run.plan.retained, schedule, received=self._run.received)

    @property
    def events(self) -> EventsByRound:
        """Round -> the events that its stages tell when the plan is executed; no round that tells nothing."""
        return self._replayed[1]

    @cached_property
    def _replayed(self) -> tuple[Checkpoints, EventsByRound]:
        events: EventsByRound = {}
        return self.models([self._own(self.schedule)], events), events

    @cached_property
    def counterfactuals(self) -> Counterfactuals:
        """What the models would be with erased data left in; see :mod:`fuaudit.verification.counterfactual`."""
        given = self.evidence
        return counterfactuals(given.run, given.ancestors, given.complete_lineage, self.ready.dataset, self.models)

    @cached_property
    def kept(self) -> dict[Hashable, Any]:
        """What one audit had executed here and the next one asks for again, by what was asked."""
        return {}

    @cached_property
    def regenerated(self) -> dict[str, bytes]:
        """Every file that follows from the retained data and the plan, computed from scratch."""
        salts = self._run.salt, self._run.participation_salt
        return derived_files(self.ready, self._run.plan.retained, self.schedule, self.replayed, *salts, self.measures)

    @cached_property
    def measures(self) -> Measures:
        """What is measured of models of the run, stored or made again: those of equal bits once."""
        return Measures(self.ready, self._run.plan.retained)

    def models(self, legs: Sequence[Leg], events: EventsByRound | None = None) -> Checkpoints:
        """Models and states at the stored rounds and the ends of legs, executed one after the other.

        What stages tell of rounds is put into ``events``, where it is given.

        The first plan says where they start: the initial model comes from its key, never from one that a run holds.
        """
        (found,) = self._side_by_side(legs, 1, events)
        return found

    def _side_by_side(
        self, legs: Sequence[Leg], runs: int, events: EventsByRound | None = None
    ) -> tuple[Checkpoints, ...]:
        """The same of several runs, which differ by whose gradients count in legs."""
        ready, retained, before, first = self.ready, self._run.plan.retained, legs[0].population, 1
        state = initial_state(ready.procedure, [legs[0].plan] * runs, before, ready.device)
        stored = tuple(dict[int, tuple[Tensor, State]]() for _ in range(runs))

        def store(number: int, found: RoundState) -> None:
            for run, models in enumerate(stored):
                models[number] = found.of(run)

        store(0, state.without(ready.procedure, before, retained))
        for leg in legs:
            population, problem = leg.population, ready.client_problem(leg.population)
            start, draws = state.without(ready.procedure, before, population), [*self._run.stage_draws(leg.plan)] * runs
            engine = ready.engine if leg.counts is None else Masked(ready.engine, leg.counts)
            schedule = SelectedRuns(leg.schedule, np.zeros(runs, dtype=np.int64), leg.schedule.rounds)
            rounds = execute(ready.procedure, problem, population, schedule, start, engine, first, draws, leg.received)
            for round_number, state in rounds:
                if events is not None and state.events:
                    events[round_number] = state.events
                if round_number in self.stored_rounds or round_number == leg.schedule.rounds:
                    store(round_number, state.without(ready.procedure, population, retained))
                self.progress("replaying rounds", round_number, self._run.rounds_executed)
            before, first = population, leg.schedule.rounds + 1
        return stored

    def left_in(
        self, ancestor: Run, retained: Population, parts: Mapping[str, Rows]
    ) -> Iterator[tuple[str, Checkpoints, Checkpoints]]:
        """What each part of a request did to the models under an ancestor's draws, as later rounds left it.

        Args:
            retained: the population after the request.

        Yields:
            Its name, the models of these draws with the gradients of what is retained and of this part alone, and with
            those of what is retained. Where training was stopped the run's own plan follows, as in a
            :class:`Counterfactual`; models after the last round before that are there too.
        """
        plan, before, own = ancestor.plan, ancestor.plan.retained, self._run.plan
        executed = min(ancestor.rounds_executed, self._run.rounds_executed)
        drawn, then = LazySchedule([plan], executed), list[Leg]()
        if executed < self._run.rounds_executed:
            then = [Leg(own, own.retained, self.schedule)]
        kept = frozenset(retained.owner)
        of_one = initial_state(self.ready.procedure, [plan], before, self.ready.device)
        places, state = plan.law.places(before.of_laws), sum(t.numel() for t in of_one.state.values())
        numbers = places * of_one.vectors.numel() + state
        at_once, names = max(1, AT_ONCE // numbers), [*parts]
        for first in range(0, len(names), at_once):
            some = names[first : first + at_once]
            counts = [kept, *(kept.union(parts[name]) for name in some)]
            masked, *found = self._side_by_side([Leg(plan, before, drawn, counts), *then], len(counts))
            for name, models in zip(some, found, strict=True):
                yield name, models, masked

    def remembered(self, link: Counterfactual, rows: Rows) -> Checkpoints:
        """The run's own plan, with sizes and constants of what it retains and of some rows that a request took away."""
        return self.models(as_if_retained(self._run, link.parent, link.executed, rows))

    def contributions(
        self, link: Counterfactual, parts: Mapping[str, Rows], of_parent: bool = False
    ) -> Iterator[tuple[int, Tensor, dict[str, Tensor]]]:
        """What each part of a request, rows by name, does in the rounds that had drawn it: to the run's own models.

        Each round that drew it is executed from the run's model before that round, over the draws and with the sizes
        and constants of before. The part's own gradients are in it, at the weight of its rows in their batches, or
        masked; the differences are added up. So nobody else's steps answer for it, nor the mean of its batch mates;
        see :class:`~fuaudit.verification.own_steps.OwnSteps`.

        Args:
            of_parent: whether it is done to the parent's models. The run's can be such as have not learnt what the
                parent's had, and then a part moves them far that did little.

        Yields:
            The stored round, the run's model ``(d,)``, and by part the sum so far ``(d,)``. Many parts come in turn.
        """
        start = initial_state(self.ready.procedure, [self._run.plan], link.parent.plan.retained, self.ready.device)
        names, size = [*parts], max(1, SUMS // start.vectors.numel())
        for first in range(0, len(names), size):
            yield from self._contributions(link, {name: parts[name] for name in names[first : first + size]}, of_parent)

    def _contributions(
        self, link: Counterfactual, parts: Mapping[str, Rows], of_parent: bool
    ) -> Iterator[tuple[int, Tensor, dict[str, Tensor]]]:
        """Of as many parts as are added up at once."""
        before, plan, ready = link.parent.plan.retained, link.parent.plan, self.ready
        problem, drawn = ready.client_problem(before), LazySchedule([plan], link.executed)

        def did(number: int, start: RoundState, some: Sequence[Rows]) -> Tensor:
            """What parts do in a round ``(P, d)``: run 0 is without them."""
            runs = np.zeros(1 + len(some), dtype=np.int64)
            engine = OwnSteps(ready.engine, link.retained.owner, some)
            draws = [*self._run.stage_draws(plan)] * len(runs)
            schedule = SelectedRuns(drawn, runs, link.executed)
            steps = execute(ready.procedure, problem, before, schedule, start[runs], engine, number, draws)
            vectors = next(steps)[1].vectors
            return vectors[1:] - vectors[0]

        walked, schedule = (plan, drawn) if of_parent else (self._run.plan, self.schedule)
        state = initial_state(ready.procedure, [walked], before, ready.device)
        sums = {name: torch.zeros_like(state.vectors[0]) for name in parts}
        draws = self._run.stage_draws(walked)
        for number, following in execute(ready.procedure, problem, before, schedule, state, ready.engine, draws=draws):
            batches = drawn.round(min(number, link.executed)).batches
            takes = {name: rows for name, rows in parts.items() if np.isin(batches, rows).any()}
            if takes and number <= link.executed:
                at_once = max(1, AT_ONCE // (batches.shape[1] * state.vectors.shape[1]))
                for first in range(0, len(takes), at_once):
                    names = [*takes][first : first + at_once]
                    moved = did(number, state, [takes[name] for name in names])
                    sums = sums | {name: sums[name] + row for name, row in zip(names, moved, strict=True)}
            state = following
            if number in self.stored_rounds:
                yield number, self.replayed[number][0], {name: total.cpu() for name, total in sums.items()}
        for number in self.stored_rounds:
            if number > schedule.rounds:
                yield number, self.replayed[number][0], {name: total.cpu() for name, total in sums.items()}

    @cached_property
    def _here(self) -> Platform:
        """What audits here. UsageError without data, which says what the run's arithmetic looks like."""
        return Platform.here(self.ready, 0)

    def elsewhere(self, run: Run, until: int | None = None, after: int = 0) -> tuple[str, ...]:
        """What says that models of a run of this lineage were made on another platform; empty where bits must agree.

        By default of all that it stores and measures, else of the rounds ``after`` + 1 to ``until``. All platforms
        that made them, those of ancestors whose rounds the run keeps included, must have the versions, plugins and
        canary of this machine. UsageError without data.
        """
        found = makers_of(run.ledger, run.rounds_executed + 1 if until is None else until, after)
        unlike = [(platform.since, platform.unlike(self._here)) for platform in found]
        return tuple(
            f"what {run.path.name} stores from round {since} on was made on another platform: other {names}"
            for since, names in unlike
            if names
        )

    @property
    def same_platform(self) -> bool:
        """Whether this machine computes as all those that made models of the run, so that bits must agree."""
        return not self.elsewhere(self._run)
