"""Many steps over Poisson batches: the exact loss composed from both sides, by dp-accounting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, sqrt

from fuaudit.budgets.compose import UNIT, Bracket, Part, bounds, epsilons, noise, tail_of
from fuaudit.budgets.dpsgd.cells import CellLaw, Sampled, laws, reach_of
from fuaudit.budgets.dpsgd.steps import Steps
from fuaudit.budgets.losses import MASS_ERROR

LEAST_NOISE, MOST_NOISE = 0.05, 1e6
"""Below the one losses of a step go into the hundreds; above the other they are lost beside rounding."""
LEAST_DELTA = 1e-13
"""Rounding of any transform is more than a smaller one."""
CELLS = 2**18
"""Of a composed loss."""
ROUGH = 2_000
"""Cells of one step, to find how wide a composed loss is."""
STEP_ERROR = 1e-14
"""Of the loss of a step: edges of cells are rounded."""


@dataclass(frozen=True)
class _Grid:
    """Laws on cells of one width, in both directions: for each kind of steps one."""

    interval: float
    directions: tuple[tuple[CellLaw, ...], ...]
    slack: float


def bracket(steps: Sequence[Steps], delta: float, cells: int = CELLS) -> Bracket | None:
    """The epsilon at ``delta`` from both sides, in the worse of both directions; kinds are all different.

    None where noise is tiny or huge, or where the rounding of Fourier transforms is not small beside ``delta``.

    Raises:
        UsageError: dp-accounting is not installed.
    """
    if delta < LEAST_DELTA or not all(LEAST_NOISE <= each.noise <= MOST_NOISE for each in steps):
        return None
    found = [_grid(steps, delta, cells >> shift) for shift in (0, 3, 6)]
    grid = next((one for one in found if one.slack < delta / 20), min(found, key=lambda one: one.slack))
    if grid.slack > delta / 2:
        return None
    tail, sides = tail_of(delta), []
    less, more = delta - grid.slack, delta + grid.slack + 2 * tail * len(steps)
    for direction in grid.directions:
        upper = [Part(law.pessimistic(), each.count, law.left_out) for law, each in zip(direction, steps, strict=True)]
        lower = [Part(law.optimistic(), each.count) for law, each in zip(direction, steps, strict=True)]
        sides.append((epsilons(lower, grid.interval, more, tail)[0], epsilons(upper, grid.interval, less, tail)[1]))
    wrong = STEP_ERROR * sum(each.count for each in steps)
    return Bracket(max(0.0, max(low for low, _ in sides) - wrong), max(high for _, high in sides) + wrong)


def _grid(steps: Sequence[Steps], delta: float, cells: int) -> _Grid:
    """A grid on which the composed loss has about so many cells."""
    total = sum(each.count for each in steps)
    reach = reach_of(delta * 1e-10 / total)
    sampled = [Sampled(each.rate, 1 / each.noise) for each in steps]
    interval = _width(sampled, steps, delta, reach) / cells
    directions = tuple(zip(*(laws(one, interval, reach) for one in sampled), strict=True))
    rounding = max(
        sum(noise(law.pessimistic()[1], each.count, delta) for law, each in zip(direction, steps, strict=True))
        for direction in directions
    )
    # kinds are convolved by transforms of up to four times the cells; the norm of a law is at most 1
    size = 4 * cells
    rounding += (len(steps) - 1) * 8 * UNIT * log2(size) * 2 * sqrt(size)
    return _Grid(interval, directions, rounding + delta * total * MASS_ERROR)


def _width(sampled: Sequence[Sampled], steps: Sequence[Steps], delta: float, reach: float) -> float:
    """How wide the composed loss is, about, and at least four times as wide as that of a step."""
    width, widest = 0.0, 0.0
    for one, each in zip(sampled, steps, strict=True):
        spread = max(abs(one.loss(-reach)), abs(one.loss(one.shift + reach)))
        coarse = spread / ROUGH
        low, high = bounds(laws(one, coarse, reach)[0].pessimistic()[1], each.count, delta)
        width, widest = width + (high - low) * coarse, max(widest, spread)
    return max(width, 4 * widest)
