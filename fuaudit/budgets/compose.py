"""Many rounds: the pure sum, optimal composition of pure budgets, and composition of the exact loss from both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import expm1, log2, sqrt
from typing import Any

import numpy as np

from fuaudit.budgets.losses import LOSS_ERROR, MASS_ERROR, Floats, Losses, normal
from fuaudit.errors import UsageError

Cells = tuple[int, Floats]
"""A first cell, and the masses from there on."""
UNIT = 2.0**-53
"""The unit roundoff of float64."""


@dataclass(frozen=True)
class Bracket:
    """Of the epsilon of many rounds: no larger than ``high``, no smaller than ``low``."""

    low: float
    high: float


def optimal(epsilon: float, rounds: int, delta: float) -> float:
    """The smallest epsilon that holds at ``delta`` for all mechanisms with this pure epsilon a round.

    *Source*: Kairouz, Oh, Viswanath, The Composition Theorem for Differential Privacy, 2015, Theorem 3.3, as the curve
    of randomised response with truth in e^epsilon of 1 + e^epsilon cases. In logs: nothing overflows.
    """
    if delta == 0 or epsilon == 0:
        return rounds * epsilon
    lies = np.arange(rounds, dtype=np.float64)
    steps = np.log((rounds - lies) / (lies + 1)) - epsilon
    masses = normal(np.concatenate([[0.0], np.cumsum(steps)]))
    values = (rounds - 2 * np.arange(rounds + 1.0)) * epsilon

    def left(total: float) -> float:
        worse = values > total
        return float(-np.expm1(total - values[worse]) @ masses[worse])

    return min(rounds * epsilon, crossing(left, delta * (1 - 1e-9), rounds * epsilon)[1] * (1 + 1e-12))


def crossing(left: Callable[[float], float], delta: float, high: float) -> tuple[float, float]:
    """Two close numbers up to ``high``: a falling function is above ``delta`` at the first, and not at the other.

    0 and 0 where it is nowhere above.
    """
    if left(0.0) <= delta:
        return 0.0, 0.0
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > delta else (low, middle)
    return low, high


def composed(law: Losses, rounds: int, delta: float, bins: int) -> Bracket | None:
    """The epsilon at ``delta`` of so many rounds with this law of the loss, from both sides, by dp-accounting's PLD.

    None where the rounding of Fourier transforms is not small beside ``delta``.

    Raises:
        UsageError: dp-accounting is not installed.
    """
    grid = None
    for cells in (bins, bins >> 4, bins >> 8):
        other = grid_for(law, rounds, delta, cells)
        if other.interval > float(np.abs(law.values).max()) / 8:
            break
        if grid is None or other.slack < grid.slack:
            grid = other
        if grid.slack < delta / 20:
            break
    if grid is None or grid.slack > delta / 2:
        return None
    tail, slack = tail_of(delta), grid.slack
    _, high = epsilons([Part(grid.upper, rounds, law.left_out)], grid.interval, delta - slack, tail)
    low, _ = epsilons([Part(grid.lower, rounds)], grid.interval, delta + slack + 2 * tail, tail)
    return Bracket(low, high)


@dataclass(frozen=True)
class Grid:
    """A law on cells of one width, from above and from below: its first cell and the masses from there on.

    ``slack`` is what mistakes of rounding add to delta, at most.
    """

    interval: float
    upper: Cells
    lower: Cells
    slack: float


def grid_for(law: Losses, rounds: int, delta: float, bins: int) -> Grid:
    """A grid such that the sum of so many losses fits into so many cells, or few more, up to a negligible tail."""
    spread = float(np.abs(law.values).max())
    coarse = spread / 1000
    low, high = bounds(_split(law, coarse)[1], rounds, delta)
    interval = max(float(high - low) * coarse, 2 * spread) / bins
    upper, lower = _split(law, interval), _floored(law, interval)
    rounding = max(noise(masses, rounds, delta) for _, masses in (upper, lower))
    return Grid(interval, upper, lower, rounding + delta * rounds * MASS_ERROR)


def bounds(masses: Floats, rounds: int, delta: float) -> tuple[int, int]:
    """The cells between which the library keeps the sum."""
    low, high = _library().common.compute_self_convolve_bounds(masses, rounds, tail_of(delta))
    return int(low), int(high)


def noise(masses: Floats, rounds: int, delta: float) -> float:
    """A bound on what rounding adds to all composed probabilities together: docs/budgets.md.

    The library transforms, takes the power and transforms back; a mistake of the first transform grows with the power.
    """
    import scipy.fft

    low, high = bounds(masses, rounds, delta)
    size = scipy.fft.next_fast_len(max(high - low + 1, len(masses)))
    error = 8 * UNIT * log2(size + 1)
    heights = np.abs(scipy.fft.fft(masses, size)) + error
    return float(error * rounds * sqrt(size) * np.sqrt(np.mean(heights ** (2.0 * (rounds - 1)))))


def tail_of(delta: float) -> float:
    """The chance that the library may leave out of a composed law."""
    return delta * 1e-9


def _split(law: Losses, interval: float) -> Cells:
    """Every loss shared out to the two cells around it, so that both sets' probabilities stay what they are.

    Whoever sees the shares can put them together again, so this is never more private than the law.
    """
    places = (law.values + LOSS_ERROR * np.abs(law.values)) / interval
    below = np.floor(places)
    above = np.expm1((below - places) * interval) / expm1(-interval)
    return _gathered(np.concatenate([below, below + 1]), np.concatenate([law.masses * (1 - above), law.masses * above]))


def _floored(law: Losses, interval: float) -> Cells:
    """Every loss at the cell below it: never less private than the law."""
    return _gathered(np.floor((law.values - LOSS_ERROR * np.abs(law.values)) / interval), law.masses)


def _gathered(places: Floats, masses: Floats) -> Cells:
    """The first cell, and the probabilities from there on."""
    first = int(places.min())
    return first, np.bincount((places - first).astype(np.int64), weights=masses).astype(np.float64)


@dataclass(frozen=True)
class Part:
    """A law of the loss on cells, for so many rounds; ``infinite``: the chance of a loss without end in each."""

    cells: Cells
    rounds: int
    infinite: float = 0.0

    def most(self) -> int:
        """The largest cell that a sum of all rounds can have."""
        first, masses = self.cells
        return self.rounds * (first + len(masses))


def epsilons(parts: Sequence[Part], interval: float, delta: float, tail: float) -> tuple[float, float]:
    """Numbers around the epsilon at ``delta`` of all parts together; losses are numbers of cells times ``interval``.

    The library leaves out a chance of ``tail`` of each part, and counts it as a loss without end.
    """
    total = None
    for part in parts:
        first, masses = part.cells
        (there,) = np.nonzero(masses)
        pmf = dict(zip((there + first).tolist(), masses[there].tolist(), strict=True))
        # of one direction: who accounts for two composes each by itself, or has shown them to be one
        pld = _library().privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
            pmf, part.infinite, interval, symmetric=True
        )
        composed = pld.self_compose(part.rounds, tail_mass_truncation=tail)
        total = composed if total is None else total.compose(composed)
    assert total is not None, "there is nothing to compose"
    # its get_epsilon_for_delta loses exp(-loss) beyond 709
    return crossing(total.get_delta_for_epsilon, delta, interval * sum(part.most() for part in parts))


def _library() -> Any:
    """dp-accounting's privacy loss distributions."""
    try:
        import dp_accounting.pld.common
        import dp_accounting.pld.privacy_loss_distribution
    except ImportError as error:
        raise UsageError(
            f"rounds are composed at a delta by the library dp-accounting, which cannot be imported: {error}",
            "Install it with: pip install 'fuaudit[budgets]'. Without --delta it is not needed.",
        ) from None
    return dp_accounting.pld
