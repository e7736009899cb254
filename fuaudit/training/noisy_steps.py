"""Steps with noise: what a solver that draws gives, one run after the other, and what is told of it.

Such a solver is asked for the participations that there are, with draws of their clients. It tells nothing itself, for
it knows the noise: what it releases under is asked of its options alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fuaudit.declared import says
from fuaudit.errors import PluginError
from fuaudit.plans.stage_draws import OF_SOLVER
from fuaudit.registry import called
from fuaudit.training.asking import a, asked
from fuaudit.training.releases import released_by
from fuaudit.training.rounds import ExchangeContext, RoundContext, State, telling
from fuaudit.training.solvers import Solver, Steps

if TYPE_CHECKING:
    from torch import Tensor


def steps_of(solver: Solver, context: ExchangeContext, state: State) -> Steps:
    """The terms of the steps of a round ``(*s, n)``; what a solver that draws releases is told.

    Raises:
        PluginError: it has no noise for some step, or its runs have other terms.
    """
    if not says(solver, "draws"):
        steps: Steps = asked(solver, "before", a(Steps), context.bare().muted(), state)
        return steps
    telling(context.told, str(OF_SOLVER))(released_by(solver, context.vectors.shape[-1]))
    runs = [
        _of_one(solver, context[run], {name: tensor[run] for name, tensor in state.items()})
        for run in range(len(context.vectors))
    ]
    for terms, _ in runs:
        if terms != runs[0][0]:
            raise PluginError(f"{called(solver)}, before, gave other terms to one run than to another")
    import torch

    return replace(runs[0][0], noise=torch.stack([noise for _, noise in runs]))


def _of_one(solver: Solver, context: ExchangeContext, state: State) -> tuple[Steps, Tensor]:
    """The steps of one run without their noise, and the noise ``(n, E, d)``: zero at unused places."""
    present = context.cohort.present
    seen = replace(context, cohort=context.cohort.among(present)).at(OF_SOLVER, solver, None).muted()
    found: Steps = asked(solver, "before", a(Steps), seen, state)
    drawn = require_noise(solver, found, seen)
    noise = drawn.new_zeros(len(present), *drawn.shape[1:])
    noise[present] = drawn
    return replace(found, noise=None), noise


def require_noise(solver: object, steps: Steps, context: RoundContext) -> Tensor:
    """The noise of each step of each participation of a run, ``(n, E, d)``; PluginError where there is none."""
    taken, vectors = context.cohort.steps, context.vectors
    form = (len(taken), int(taken.max()), vectors.shape[-1])
    if steps.noise is None or steps.noise.shape != form or steps.noise.dtype != vectors.dtype:
        given = "none" if steps.noise is None else f"{tuple(steps.noise.shape)} of {steps.noise.dtype}"
        told = f"{called(solver)}, before, gave noise: {given}"
        raise PluginError(told, f"A solver that draws gives some for each step: {form} of {vectors.dtype}.")
    if steps.drift is not None or steps.velocity is not None:
        raise PluginError(f"{called(solver)} adds noise, and gives clients a drift or a velocity", "Leave these out.")
    return steps.noise
