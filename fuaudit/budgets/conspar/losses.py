"""The law of one round's privacy loss: of two top sets that differ, under the first, the log of the two probabilities'
ratio. Proofs are in docs/budgets.md: both directions have the same law, and sets that differ in fewer elements have
less of it.
"""

from __future__ import annotations

from bisect import bisect_left
from math import comb, exp, inf, log

import numpy as np
from numpy.typing import NDArray

from fuaudit.budgets.conspar.law import ConSpar, growths
from fuaudit.budgets.losses import Floats, Losses, normal

TINY = 1e-200
"""A probability up to which a loss is left out: sums of such masses underflow."""
LEFT_OUT = 60.0
"""Minus the log of a bound on the probability of each of the four tails that are cut off."""
CELLS = 5 * 10**7
"""Joint overlaps that are looked at, at most."""
DIFFERING = 300
"""Elements in which sets may differ, at most, where the law of the loss is asked for."""


def losses(mechanism: ConSpar) -> Losses:
    """The law of the loss of one round; alpha must be within (0, 1), and :func:`is_too_wide` false."""
    d, k, h = mechanism.dim, mechanism.per_client, mechanism.differ
    low, high = overlaps(mechanism)
    least, most = max(mechanism.least_overlap, low - h), min(k, high + h)
    growth = np.array(growths(mechanism, least, most))
    u = np.arange(low, high + 1)
    more = (k - u[:-1]) ** 2.0 / ((u[:-1] + 1.0) * (d - 2 * k + u[:-1] + 1.0))
    rises = more * (1 + growth[low - least :][: high - low])
    overlap = normal(np.concatenate([[0.0], np.cumsum(np.log(rises))]))
    own = hits(k, h, u)
    other = hits(d - k, h, k - u)
    first, found = u - least, [(np.zeros(len(u)), overlap * sum(a * b for a, b in zip(own, other, strict=True)))]
    logs = np.concatenate([np.zeros(h), np.log1p(growth), np.zeros(h)])
    up, down = np.zeros(len(u)), np.zeros(len(u))
    for apart in range(1, h + 1):  # so many more are hit of one set's own coordinates than of the other's
        up = up + logs[first + h - apart]
        down = down - logs[first + h + apart - 1]
        found.append((up, overlap * sum(own[i + apart] * other[i] for i in range(h + 1 - apart))))
        found.append((down, overlap * sum(own[i] * other[i + apart] for i in range(h + 1 - apart))))
    values, masses = map(np.concatenate, zip(*found, strict=True))
    seen = masses > TINY
    return Losses(values[seen], masses[seen], 4 * exp(-LEFT_OUT) + len(masses) * TINY)


def is_too_wide(mechanism: ConSpar) -> bool:
    """Whether the sets differ in too many elements to look at all overlaps."""
    low, high = overlaps(mechanism)
    return mechanism.differ > DIFFERING or (high - low + 1) * (mechanism.differ + 1) ** 2 > CELLS


def hits(population: int, marked: int, drawn: NDArray[np.int64]) -> list[Floats]:
    """The chance that, of so many ``drawn (n,)`` of a population, 0, 1, .. ``marked`` are marked: arrays ``(n,)``."""
    found = []
    for count in range(marked + 1):
        chance = np.full(len(drawn), float(comb(marked, count)))
        for i in range(marked):  # one marked after the other: so many are drawn, then the others are not
            left = drawn - i if i < count else population - drawn - (i - count)
            chance *= np.maximum(left, 0) / (population - i)
        found.append(chance)
    return found


def overlaps(mechanism: ConSpar) -> tuple[int, int]:
    """The smallest and largest overlap that are looked at; others have a probability of at most 4 exp(-60).

    An overlap is what was kept and what was hit by chance. The less was kept, the more hits there are.
    """
    d, k = mechanism.dim, mechanism.per_client
    fewest, most = tails(k, float(1 - mechanism.alpha), float(mechanism.alpha))
    low = fewest + tails(k - most, (k - most) / (d - most), (d - k) / (d - most))[0]
    high = most + tails(k - fewest, (k - fewest) / (d - fewest), (d - k) / (d - fewest))[1]
    return max(low, mechanism.least_overlap), min(high, k)


def tails(draws: int, share: float, rest: float) -> tuple[int, int]:
    """Counts such that fewer, and more, have a probability of at most exp(-60) each; ``rest`` is 1 - share.

    By Chernoff and Hoeffding, for independent draws and for draws without replacement, each with this share.
    """

    def matters(count: int) -> bool:
        return draws * _divergence(count / draws, share, rest) <= LEFT_OUT

    if draws == 0:
        return 0, 0
    middle = min(draws, int(draws * share))
    smallest = bisect_left(range(middle), True, key=matters)
    largest = bisect_left(range(middle + 1, draws + 1), True, key=lambda count: not matters(count))
    return smallest, middle + largest


def _divergence(seen: float, share: float, rest: float) -> float:
    """The relative entropy of two coins."""
    parts = ((seen, share), (1 - seen, rest))
    return sum(a * log(a / b) if b > 0 else inf for a, b in parts if a > 0)
