"""One step over a Poisson batch: the law of its privacy loss on the cells of a grid, in both directions.

Numbers are in units of the noise. Without the row a step shows x ~ N(0, 1); with it, x ~ N(0, 1) with chance 1 - q,
and N(m, 1) with chance q, where m is 1 / noise. This pair dominates every step of its kind, also in composition, and
the pair with both exchanged does so for the other direction (Zhu, Dong, Wang, Optimal Accounting of Differential
Privacy via Characteristic Function, 2022). The loss grows with x:

    loss(x) = ln(1 - q + q e^(m x - m^2 / 2))

Masses of a cell are integrals of what is never negative, so nothing is subtracted and no digits are lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, floor, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from fuaudit.budgets.compose import Cells
from fuaudit.budgets.losses import Floats

WIDEST = 0.25
"""Of a piece that is integrated at once."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
LARGE = 30.0
"""Losses from which on e^loss - 1 is e^loss for all digits, and might overflow."""


@dataclass(frozen=True)
class Sampled:
    """One step: the share of rows that is sampled, and how far one row moves the sum, in units of the noise."""

    rate: float
    shift: float

    def loss(self, x: float) -> float:
        """The loss where x is seen."""
        ahead = self.shift * x - self.shift**2 / 2
        if self.rate == 1:
            return ahead
        if ahead > LARGE:
            return ahead + log(self.rate) + float(np.log1p((1 - self.rate) / self.rate * exp(-ahead)))
        return float(np.log1p(self.rate * expm1(ahead)))

    def seen(self, losses: Floats) -> Floats:
        """Where the losses ``(n,)`` are reached; minus infinity below all losses there are."""
        if self.rate == 1:
            return np.asarray((losses + self.shift**2 / 2) / self.shift)
        with np.errstate(divide="ignore", invalid="ignore"):
            small = np.log1p(np.expm1(np.minimum(losses, LARGE)) / self.rate)
        large = losses - log(self.rate) + np.log1p(-(1 - self.rate) * np.exp(-np.maximum(losses, LARGE)))
        ahead = np.where(losses > LARGE, large, np.where(np.isnan(small), -np.inf, small))
        return np.asarray((ahead + self.shift**2 / 2) / self.shift)


@dataclass(frozen=True)
class CellLaw:
    """Cells of the loss in one direction, from the cell ``first`` on: all arrays are ``(n,)``.

    Attributes:
        masses: of the first law of the pair.
        above: by how much the masses exceed those of the other law, times e^loss at the lower edge.
        below: by how much they fall short of those, times e^loss at the upper edge.
        left_out: a bound on the masses of both laws that lie in no cell.
    """

    interval: float
    first: int
    masses: Floats
    above: Floats
    below: Floats
    left_out: float

    def pessimistic(self) -> Cells:
        """Masses at the edges of cells, shared out so that both laws keep theirs: never more private.

        Whoever sees the shares can put them together again.
        """
        shared = np.zeros(len(self.masses) + 1)
        shared[1:] += self.above / -expm1(-self.interval)
        shared[:-1] += self.below / expm1(self.interval)
        return self.first, shared

    def optimistic(self) -> Cells:
        """Masses at the lower edges of cells: never less private.

        From the top downwards each cell is put together with as much of those below as brings its loss to the edge
        between them: a function of what is seen, with a loss that needs no rounding.
        """
        placed = np.zeros(len(self.masses))
        masses, above, below = self.masses.tolist(), self.above.tolist(), self.below.tolist()
        cell, left = len(masses) - 1, 1.0
        while cell >= 0:
            mass, excess, other = left * masses[cell], left * above[cell], cell - 1
            left = 0.0
            while other >= 0:
                missing = below[other] + expm1((cell - 1 - other) * self.interval) * (masses[other] + below[other])
                if excess < missing:
                    left = 1.0 - excess / missing
                    mass += (1.0 - left) * masses[other]
                    break
                mass, excess, other = mass + masses[other], excess - missing, other - 1
            placed[cell] = mass  # in the last cells excess may be left: their loss is rounded down
            cell = other
        return self.first, placed


def reach_of(chance: float) -> float:
    """A normal number is beyond this on one side with at most this chance."""
    return sqrt(-2 * log(chance))


def laws(step: Sampled, interval: float, reach: float) -> tuple[CellLaw, CellLaw]:
    """The law of the loss where the row is there, and where it is not, on cells of one width."""
    top, bottom = step.shift + reach, -reach
    first = floor(step.loss(bottom) / interval)
    count = floor(step.loss(top) / interval) + 1 - first
    places = np.arange(first, first + count + 1, dtype=np.float64)
    edges = step.seen(places * interval)
    edges[0] = min(edges[0], bottom)
    low, high, cell = _pieces(np.clip(edges, bottom, None), bottom)
    half = (high - low) / 2
    x = (low + half)[:, None] + half[:, None] * NODES
    absent = np.exp(-x * x / 2) * half[:, None] * WEIGHTS / sqrt(2 * pi)
    present = step.rate * np.exp(-((x - step.shift) ** 2) / 2) * half[:, None] * WEIGHTS / sqrt(2 * pi)
    floors = edges[cell][:, None]
    whole = np.isinf(floors)  # nothing has a loss below: all of the second law counts as exceeded
    rest = np.where(whole[:, 0], (1 - step.rate) - np.exp(places[cell] * interval), 0.0)[:, None]
    risen = -np.expm1(-step.shift * (x - np.where(whole, x, floors)))
    above = np.where(whole, np.maximum(rest, 0.0) * absent + present, present * risen)
    below = present * np.expm1(step.shift * (edges[cell + 1][:, None] - x))

    def gathered(values: Floats) -> Floats:
        return np.bincount(cell, weights=values.sum(axis=1), minlength=count).astype(np.float64)

    without, over, short = gathered(absent), gathered(above), gathered(below)
    with_it = (1 - step.rate) * without + gathered(present)
    falling = np.exp(-places * interval)
    left_out = 2 * exp(-reach * reach / 2)
    there = CellLaw(interval, first, with_it, over, short, left_out)
    gone = CellLaw(
        interval, -(first + count), without[::-1], (falling[1:] * short)[::-1], (falling[:-1] * over)[::-1], left_out
    )
    return there, gone


def _pieces(edges: Floats, bottom: float) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Pieces of cells, none of them wide: where they begin, where they end, and of which cell they are."""
    between = np.arange(bottom, edges[-1], WIDEST)
    ends = np.unique(np.concatenate([edges, between]))
    low, high = ends[:-1], ends[1:]
    cell = np.searchsorted(edges, (low + high) / 2, side="right") - 1
    return low, high, cell.astype(np.int64)
