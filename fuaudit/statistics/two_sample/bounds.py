"""Bounds on the distance between two laws, from runs of both arms.

- *From below*: the total variation, and the epsilon of (epsilon, delta)-unlearning.
- *From above*: only the advantage of one stated, small class of adversaries, those that put a threshold on one
  statistic. No upper bound on the total variation of continuous parameters is given: without assumptions on the laws
  none exists.

:class:`Thresholds` and :class:`Epsilon` also say the best that so many runs could have shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fuaudit.statistics.two_sample.arrays import Floats, Ranks, as_arms, dense_ranks, require_alpha
from fuaudit.statistics.two_sample.betting import rank_payoffs


def mean_gap_interval(x: ArrayLike, y: ArrayLike, alpha: float) -> Floats:
    """Lower ends, ``(..., n)``, of an interval ``[lower, 1]`` for the total variation between the laws of the arms.

    - *Guarantee*: with probability at least ``1 - alpha`` no lower end, after any number of pairs, exceeds the largest
      Kolmogorov-Smirnov distance of the ``s`` statistics. That distance is at most the total variation. There is no
      upper end: without assumptions on the laws none exists.
    - *Assumptions*, more than the test needs: pairs are independent of each other, the two runs of a pair are
      independent, and the two laws are the same in all pairs.
    - *Method*: the conditional mean of each rank payoff is at most the distance of its statistic, and so is any
      weighted mean of them. The weighted mean of (payoff + 1) / 2, in [0, 1], is bounded by the predictable plug-in
      empirical Bernstein sequence (Waudby-Smith and Ramdas, Theorem 2, one-sided). Each of the ``2 s`` payoffs has
      ``alpha / (2 s)``.

    The theorem is stated for equal conditional means; the proof does not need them. Let v in [0, 1] have the mean m,
    let c in [0, 1] and 0 <= l < 1 be predictable, r = v - c and d = c - m. Fan's inequality
    exp(l r + r^2 (l + log(1 - l))) <= 1 + l r, for r >= -1, gives
    E exp(l (v - m) + r^2 (l + log(1 - l))) <= exp(l d) (1 - l d) <= 1.
    """
    require_alpha(alpha)
    x, y = as_arms(x, y)
    values = (np.concatenate(rank_payoffs(x, y), axis=-1) + 1) / 2
    level = np.log(values.shape[-1] / alpha)
    number = np.arange(1.0, values.shape[-2] + 1)[:, None]
    centre = (0.5 + np.cumsum(values, axis=-2)) / (number + 1)
    spread = (0.25 + np.cumsum((values - centre) ** 2, axis=-2)) / (number + 1)
    centre, spread = _before(centre, 0.5), _before(spread, 0.25)
    weight = np.minimum(0.5, np.sqrt(2 * level / (spread * number * np.log1p(number))))
    penalty = np.cumsum((values - centre) ** 2 * (-np.log1p(-weight) - weight), axis=-2)
    lower = (np.cumsum(weight * values, axis=-2) - level - penalty) / np.cumsum(weight, axis=-2)
    gap = np.maximum(2 * lower.max(axis=-1) - 1, 0.0)
    return np.maximum.accumulate(gap, axis=-1)


def _before(values: Floats, start: float) -> Floats:
    """The values one pair earlier, so that they are predictable; ``start`` for the first pair."""
    return np.concatenate([np.full_like(values[..., :1, :], start), values[..., :-1, :]], axis=-2)


@dataclass(frozen=True)
class Thresholds:
    """Bounds on the advantage of the best adversary that puts a threshold on one of the statistics.

    Attributes:
        largest: the largest observed Kolmogorov-Smirnov distance of the ``s`` statistics.
        lower, upper: with probability at least ``1 - alpha`` the largest true distance lies between them. So the total
            variation is at least ``lower``. ``upper`` says nothing of other adversaries.
        width: how far the observed distances are off at most, with that probability. No upper bound from so many runs
            is smaller.
    """

    largest: float
    lower: float
    upper: float
    width: float


def _distribution(ranks: Ranks, count: int) -> Floats:
    """The empirical distribution functions ``(s, count)`` of ranks ``(s, n)`` below ``count``, at every rank."""
    hits = np.zeros((len(ranks), count))
    np.add.at(hits, (np.arange(len(ranks))[:, None], ranks), 1.0)
    share: Floats = np.cumsum(hits, axis=1) / ranks.shape[1]
    return share


def threshold_bounds(x: ArrayLike, y: ArrayLike, alpha: float) -> Thresholds:
    """Bounds on the Kolmogorov-Smirnov distances of arms ``(n, s)``, simultaneous over all ``s`` statistics.

    The Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant holds for each of the ``2 s`` empirical
    distribution functions at ``alpha / (2 s)``. So every distance is off by at most
    ``2 sqrt(log(4 s / alpha) / (2 n))``, with probability at least ``1 - alpha``. Runs must be independent, and n fixed
    in advance.

    Raises:
        ValueError: arms of different shapes, no statistics, no runs, or an ``alpha`` outside (0, 1).
    """
    require_alpha(alpha)
    x, y = as_arms(x, y)
    if x.ndim != 2 or not len(x):
        raise ValueError(f"bounds take arms (n, s) with n >= 1, these have shape {x.shape}")
    n, s = x.shape
    ranks_x, ranks_y = dense_ranks(x, y)
    largest = float(np.abs(_distribution(ranks_x, 2 * n) - _distribution(ranks_y, 2 * n)).max())
    width = float(2 * np.sqrt(np.log(4 * s / alpha) / (2 * n)))
    return Thresholds(largest, max(0.0, largest - width), min(1.0, largest + width), width)


@dataclass(frozen=True)
class Epsilon:
    """A lower bound on epsilon.

    Attributes:
        ceiling: what the bound would be if every held-out run had been told rightly.
        statistic: the column whose threshold was chosen.
        runs: the held-out runs of each arm.
    """

    lower: float
    ceiling: float
    statistic: int
    runs: int


def _at_most(errors: ArrayLike, runs: int, alpha: float) -> Floats:
    """Clopper and Pearson's upper limits of rates, one-sided at ``1 - alpha``, from errors in ``runs`` runs."""
    counted = np.asarray(errors, dtype=np.float64)
    limits: Floats = np.where(counted < runs, betaincinv(counted + 1, np.maximum(runs - counted, 0.5), 1 - alpha), 1.0)
    return limits


def _epsilon(false_alarms: ArrayLike, misses: ArrayLike, delta: float) -> Floats:
    """The least epsilon, at least 0, at which a test can have these two error rates, which are above 0."""
    a, b = np.asarray(false_alarms, dtype=np.float64), np.asarray(misses, dtype=np.float64)
    least: Floats = np.log(np.maximum(np.maximum((1 - delta - a) / b, (1 - delta - b) / a), 1.0))
    return least


def epsilon_bound(x: ArrayLike, y: ArrayLike, delta: float, alpha: float) -> Epsilon:
    """A lower bound on the epsilon of (epsilon, delta)-unlearning, in either direction, from arms ``(n, s)``.

    (epsilon, delta)-unlearning, with retraining as the reference (Ginart et al. 2019), means that
    ``P(T) <= e^epsilon Q(T) + delta`` for all events T, and the same with P and Q exchanged. Then every test of P
    against Q with error rates a and b has ``1 - delta - a <= e^epsilon b`` and ``1 - delta - b <= e^epsilon a``.

    The test here is a threshold on one statistic. Statistic and threshold are chosen on the first half of the runs: a
    choice on the runs that are reported would claim too much. The error rates are bounded on the other half, each by
    Clopper and Pearson's limit at ``alpha / 2`` (Jagielski, Ullman and Oprea, NeurIPS 2020). So the bound is above the
    true epsilon with probability at most ``alpha``.

    Raises:
        ValueError: arms of different shapes, fewer than two runs, an ``alpha`` or ``delta`` outside (0, 1).
    """
    require_alpha(alpha)
    x, y = as_arms(x, y)
    if x.ndim != 2 or len(x) < 2 or not 0 < delta < 1:
        raise ValueError(f"epsilon needs arms (n, s) with n >= 2 and delta in (0, 1), not {x.shape} and {delta}")
    half = len(x) // 2
    runs = len(x) - half
    ranks_x, ranks_y = dense_ranks(x, y)  # the order of values alone, so that held-out ones choose nothing
    grid = np.unique(np.concatenate([ranks_x[:, :half], ranks_y[:, :half]]))
    low_x, low_y = (np.rint(half * _distribution(ranks[:, :half], 2 * len(x))[:, grid]) for ranks in (ranks_x, ranks_y))
    # a run counts as one of the first arm at or below the threshold, or above it
    missed, alarmed = np.stack([half - low_x, low_x]), np.stack([low_y, half - low_y])
    promise = _epsilon(_at_most(alarmed, half, alpha / 2), _at_most(missed, half, alpha / 2), delta)
    promise += 1e-6 * (half - missed - alarmed) / half  # where nothing is promised, the best of what there is
    way, column, place = np.unravel_index(int(promise.argmax()), promise.shape)
    taken = [(ranks[column, half:] <= grid[place]) == (way == 0) for ranks in (ranks_x, ranks_y)]
    misses, alarms = int((~taken[0]).sum()), int(taken[1].sum())
    perfect = _at_most(0, runs, alpha / 2)
    return Epsilon(
        float(_epsilon(_at_most(alarms, runs, alpha / 2), _at_most(misses, runs, alpha / 2), delta)),
        float(_epsilon(perfect, perfect, delta)),
        int(column),
        runs,
    )
