"""What is required of a solver that draws: the noise of its steps is its clients' own, and the one that is told."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import says
from fuaudit.errors import FuauditError
from fuaudit.plans.stage_draws import OF_SOLVER
from fuaudit.testing.contexts import draws_changed, wide_context
from fuaudit.testing.problems import Problems
from fuaudit.training.noisy_steps import require_noise
from fuaudit.training.releases import released_by
from fuaudit.training.rounds import ExchangeContext
from fuaudit.training.solvers import Steps

COLUMNS, CLIENTS, ROUNDS = 4000, (0, 2, 4), (1, 2)
"""Of the rounds in which noise is looked at."""

FAR = 6.0
"""So many standard deviations: fair noise is further away with a chance below 1e-8."""


def check_noise(solver: Any, problems: Problems) -> None:
    """The noise of a solver that draws, and what it says of it."""
    if not says(solver, "draws"):
        problems.require(says(solver, "releases") is None, "it says what it releases under, and declares no draws")
        return
    with problems.during("what it releases under"):
        try:
            told = released_by(solver, COLUMNS)
        except (FuauditError, AttributeError) as error:
            problems.require(False, f"releases(columns) must answer with Released: {error}")
            return
    for dtype in (torch.float32, torch.float64):
        with problems.during(f"noise of {dtype}"):
            rows: dict[tuple[int, int, int], Tensor] = {}
            for number in ROUNDS:
                whole = wide_context([*CLIENTS], dtype, number, COLUMNS)
                steps, noise = _noise(solver, whole, problems)
                rows |= {(c, number, e): noise[p, e] for p, c in enumerate(CLIENTS) for e in range(noise.shape[1])}
                _require_own(solver, whole, noise, problems)
                if told.mechanism == "dpsgd":
                    problems.require(steps.clip == told.parameters.get("norm"), "it tells of another norm")
            if told.mechanism == "dpsgd":
                deviation = float(told.parameters.get("noise", 0)) * float(told.parameters.get("norm", 0))
                _require_told(rows, deviation, problems)


def _noise(solver: Any, whole: ExchangeContext, problems: Problems) -> tuple[Steps, Tensor]:
    context = whole.at(OF_SOLVER, solver, None).muted()
    steps: Steps = solver.before(context, {})
    noise = require_noise(solver, steps, context)
    again = require_noise(solver, solver.before(context, {}), context)
    problems.require(torch.equal(noise, again), "it gives other noise when it is asked again")
    return steps, noise


def _require_own(solver: Any, whole: ExchangeContext, noise: Tensor, problems: Problems) -> None:
    """Noise follows from the client's own draws, all of it, and from nothing else."""
    for place, client in enumerate(CLIENTS):
        others = _noise(solver, draws_changed(whole, client, together=True), problems)[1]
        problems.require(torch.equal(others[place], noise[place]), "the noise of a client depends on draws of others")
        apart = [row for row in range(len(CLIENTS)) if row != place]
        same = bool((others[apart] == noise[apart]).all(dim=-1).any())
        problems.require(not same, "there are steps whose noise no draw of the client changes")


def _require_told(rows: dict[tuple[int, int, int], Tensor], deviation: float, problems: Problems) -> None:
    """Each step of each client has noise of the told size, and no two are related."""
    problems.require(deviation > 0, "it tells of no noise and norm above 0")
    if not deviation > 0:
        return
    found = {at: row.to(torch.float64) / deviation for at, row in rows.items()}
    spread = (2 / COLUMNS) ** 0.5
    for row in found.values():
        fits = abs(float(row.square().mean()) - 1) < FAR * spread and abs(float(row.mean())) < FAR / COLUMNS**0.5
        problems.require(fits, "the noise of a step is not the one that is told")
    for one, other in combinations(found.values(), 2):
        alone = abs(float((one * other).mean())) < FAR / COLUMNS**0.5
        problems.require(alone, "noise of two steps, clients or rounds is related")
