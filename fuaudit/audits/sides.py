"""Two sides: plans executed over all rows and over the retained ones, until models or states part.

Plans go abreast, round by round. A plan that has parted is not followed further, and neither is one whose training
overflows on both sides: NaN differs from NaN, and an honest method made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isnan

import numpy as np
import torch

from fuaudit.plans import Plan, Population
from fuaudit.plans.expanded import NONE, Round
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import PlannedDraws
from fuaudit.training.engines.protocol import ClientProblem, Engine
from fuaudit.training.execute import Procedure, RoundState, execute, initial_state


@dataclass(frozen=True)
class Parted:
    """How the two sides of a plan end.

    Attributes:
        differs: the first round after which they differ, by ``gap``; 0 for none.
        overflows: the first round after which neither is finite; 0 for none.
    """

    differs: int = 0
    gap: float = 0.0
    overflows: int = 0


@dataclass(frozen=True)
class Side:
    """The rows of one side: who owns them, and what engines train on."""

    population: Population
    problem: ClientProblem


def parted(
    procedure: Procedure, full: Side, retained: Side, plans: Sequence[Plan], kept: Sequence[int], engine: Engine
) -> list[Parted]:
    """How each of some plans ends in its ``kept`` rounds. The plans are of one law over ``full``.

    Solver and server run for both sides, whatever the engine shares between them.
    """
    schedule, device = LazySchedule(plans, max(1, *kept)), full.problem.inputs.device
    draws = [PlannedDraws.flat(plan, plan.sources) for plan in plans]
    states = [initial_state(procedure, plans, side.population, device) for side in (full, retained)]
    found, number = dict[int, Parted](), 1
    while going := [run for run in range(len(plans)) if run not in found and kept[run] >= number]:
        for runs, drawn in _of_one_size(schedule.round(number), going, number):
            own = [draws[run] for run in runs]
            for at, side in enumerate((full, retained)):
                start, given = states[at][runs], (procedure, side.problem, side.population, drawn)
                ((_, end),) = execute(*given, start, engine, number, own)
                states[at] = end if len(runs) == len(plans) else states[at].updated(torch.tensor(runs), end)
            sides = (states[0][runs].without(procedure, full.population, retained.population), states[1][runs])
            found |= {run: how for place, run in enumerate(runs) if (how := _parted(*sides, place, number))}
        number += 1
    return [found.get(run, Parted()) for run in range(len(plans))]


def _of_one_size(drawn: Round, runs: Sequence[int], number: int) -> Iterator[tuple[list[int], _Alone]]:
    """The runs with equally many participants, and their round alone: nobody gets an unused place that it had not."""
    sizes = (drawn.cohorts[runs] != NONE).sum(axis=1)
    for size in np.unique(sizes).tolist():
        some = [run for run, own in zip(runs, sizes.tolist(), strict=True) if own == size]
        places = slice(max(1, size))
        yield some, _Alone(number, Round(drawn.cohorts[some, places], drawn.batches[some, places]))


@dataclass(frozen=True)
class _Alone:
    """One round of several plans, for whoever executes up to it."""

    rounds: int
    drawn: Round

    def round(self, number: int) -> Round:
        """See :class:`~fuaudit.plans.expanded.Rounds`."""
        return self.drawn


def _parted(full: RoundState, retained: RoundState, run: int, number: int) -> Parted | None:
    """How the sides of a run ended in a round; None where they go on. The states are over the same clients."""
    pairs = [(full.vectors[run], retained.vectors[run])]
    pairs += [(tensor[run], retained.state[name][run]) for name, tensor in full.state.items()]
    if not any(all(bool(t.isfinite().all()) for t in side) for side in zip(*pairs, strict=True)):
        return Parted(overflows=number)
    if all(torch.equal(a, b) for a, b in pairs):
        return None
    gaps = [float((a - b).abs().max()) for a, b in pairs if a.numel()]
    return Parted(differs=number, gap=inf if any(map(isnan, gaps)) else max(gaps))
