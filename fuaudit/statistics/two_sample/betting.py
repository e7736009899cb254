"""The test by betting: whether unlearned runs have the law of retrained runs. One may look after every pair.

The data are ``n`` pairs of independent runs. Pair ``t`` holds ``s`` pre-registered statistics of an unlearned run,
``x[t]``, and of a retrained run, ``y[t]``.

- *Null hypothesis*: both arms have one law. Then a pair is exchangeable given the pairs before it.
- *Test*: a payoff is a number in [-1, 1] that changes its sign when the pair is swapped, and otherwise depends on
  earlier pairs alone. Under the null hypothesis its conditional mean is 0. So the wealth, the product of
  ``1 + payoff``, is a martingale from 1, and so is any average of wealths, however dependent they are.
- *Guarantee*: by Ville's inequality the average ever reaches ``1 / alpha`` with probability at most ``alpha``. The
  auditor may look after every pair, and stop or go on. Nothing is assumed of the statistics, and nothing is
  approximated.

The money is divided once, over statistics and over fixed stakes, and every part grows by itself. The part with the
best stake soon holds nearly all of it. So the log of the average falls short of that part by at most the log of
one over its share. The bets on every statistic are

- the *shift*: ``STAKE * tanh(stake * z)``. ``z`` is the difference over the root mean square of earlier differences.
  Stakes have either sign. If both arms were normal with one variance, then the stake ``mean * rms / variance`` of the
  differences and STAKE 1 would give the payoff of the likelihood ratio of the pair against the swapped pair. No fair
  payoff grows faster. STAKE is below 1, so that one freak pair does not end a bet;
- the *ranks*: 1{x <= u} - 1{y <= u}, times a stake. ``u`` is where earlier pairs had the largest gap between the two
  empirical distribution functions; one payoff for either sign of the gap.

Rank payoffs need no more than the order of values (see :mod:`~fuaudit.statistics.two_sample.arrays`). Where the
difference of a pair is not finite, ``z`` is infinite with the sign of the comparison in that order, or 0 when equal.
Such a pair does not enter the scale. This payoff changes its sign with a swap as well, so it is valid, and no wealth is
ever nan.

Sources: payoffs, Shekhar and Ramdas, "Nonparametric two-sample testing by betting", IEEE Trans. Inf. Theory 2023;
mixtures of fixed stakes, Cover, "Universal portfolios", Mathematical Finance 1991. Shares and stakes were chosen on
development keys; docs/results/repeated-sampling.md reports fresh ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from fuaudit.statistics.sequential import SequentialTest, tested
from fuaudit.statistics.two_sample.arrays import Floats, Ranks, as_arms, comparison, dense_ranks, require_alpha

STAKE = 0.9
"""The most that is put on one pair, as a part of the money."""

SHIFT_STAKES = (0.3, 0.6, 1.2, 3.0)
"""Of the differences of a statistic in units of their root mean square, each with either sign."""

RANK_STAKES = (0.15, 0.4, 0.8)
RANK_SHARE = 0.2
"""What part of every statistic's money bets on ranks."""

MULTIPLIED = 1000
"""Pairs up to which wealth is a product of floats: 1.9 to the 1000 is 1e279."""

_BLOCK = 1 << 18  # cells of the table of gaps handled at a time: 512 kB stay in the second-level cache


def differences(x: Floats, y: Floats) -> Floats:
    """Differences over their past scale, ``(..., n, s)``: what bets on a shift look at.

    The scale is the root mean square of earlier finite differences. The first pair has no scale and gives 0. While the
    scale is 0, because the arms were equal so far, the result is plus or minus infinity, or 0 for equal values. One
    enormous finite difference makes later ones small. That costs power, not validity, and rank payoffs do not feel it.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        difference = x - y
    usable = np.isfinite(difference)
    size = np.where(usable, np.abs(difference), 0.0)
    # hypot rather than a sum of squares, which would overflow from 1e154
    with np.errstate(over="ignore"):
        norm = np.hypot.accumulate(size, axis=-2)[..., :-1, :]
    scale = np.zeros_like(size)
    scale[..., 1:, :] = norm / np.sqrt(np.maximum(np.cumsum(usable, axis=-2)[..., :-1, :], 1))
    sign = comparison(x, y)
    # without an earlier difference nothing is known of the scale; a difference that is not finite needs none
    sign[..., :1, :] = np.where(usable[..., :1, :], 0.0, sign[..., :1, :])
    usable &= scale > 0
    with np.errstate(over="ignore"):
        ratio = np.divide(difference, scale, out=np.zeros_like(size), where=usable)
    return np.where(usable, ratio, np.where(sign == 0, 0.0, np.copysign(np.inf, sign)))


def _rank_payoffs(x: Ranks, y: Ranks, start: int) -> NDArray[np.int8]:
    """Rank payoffs of columns ``(c, n)`` of ranks from a pair on, ``(2, n - start, c)``: x below y, and y below x."""
    columns, count = x.shape
    ranks = int(max(x.max(initial=0), y.max(initial=0))) + 1
    payoffs = np.zeros((2, count - start, columns), dtype=np.int8)
    begin = np.arange(columns)[:, None] * ranks
    hits, misses = (np.bincount((begin + each[:, :start]).ravel(), minlength=columns * ranks) for each in (x, y))
    # how many earlier x are at most a rank, minus those of y
    gap: NDArray[Any] = (hits - misses).reshape(columns, ranks).cumsum(axis=1).astype(x.dtype)
    # a value counts at its rank and above it; row r has that of the r-th rank from the end
    steps = sliding_window_view(np.repeat([0, 1], ranks).astype(x.dtype), ranks)
    rows = (np.ascontiguousarray(each[:, start:].T, dtype=np.intp) for each in (x, y))
    for t, (now_x, now_y) in enumerate(zip(*rows, strict=True)):
        for way, u in enumerate((gap.argmax(axis=1), gap.argmin(axis=1))):
            best = gap.reshape(-1)[begin[:, 0] + u]
            payoff = (now_x <= u).view(np.int8) - (now_y <= u).view(np.int8)
            # The first maximum above 0 is at an earlier value. A maximum of 0 may be at a later one: no bet then.
            payoffs[way, t] = payoff * (best > 0) if way == 0 else -payoff * (best < 0)
        gap += steps[ranks - now_x]
        gap -= steps[ranks - now_y]
    return payoffs


def rank_payoffs(x: Floats, y: Floats, start: int = 0) -> tuple[Floats, Floats]:
    """Payoffs on the gap between two distribution functions, twice ``(..., n - start, s)`` with values -1, 0 and 1.

    The first bets that x is at most ``u`` more often than y, the second that y is. Each picks its own ``u``: the
    smallest value of earlier pairs at which the gap between the empirical distribution functions is largest. The
    conditional mean of either is at most the Kolmogorov-Smirnov distance between the statistic's two laws.

    Args:
        start: how many pairs at the beginning are looked at, and not bet on.
    """
    rank_x, rank_y = dense_ranks(x, y)
    count = x.shape[-2]
    columns = prod(rank_x.shape[:-1])
    flat_x, flat_y = rank_x.reshape(columns, count), rank_y.reshape(columns, count)
    payoffs = np.empty((2, count - start, columns), dtype=np.int8)
    width = max(1, _BLOCK // max(1, 2 * count))
    for first in range(0, columns, width):
        block = slice(first, first + width)
        payoffs[:, :, block] = _rank_payoffs(flat_x[block], flat_y[block], start)
    shape = (2, count - start, *rank_x.shape[:-1])  # (2, n - start, ..., s)
    first_way, second_way = np.moveaxis(payoffs.reshape(shape), 1, -2).astype(np.float64)
    return first_way, second_way


def _average(paths: Sequence[Floats]) -> Floats:
    """The log of the average of some wealths, from their logs."""
    # by the largest, in place: a pass of exponentials each, where logaddexp would take two of logarithms
    largest = np.maximum.reduce(paths)
    total = np.zeros_like(largest)
    for path in paths:
        total += np.exp(path - largest)
    averaged: Floats = largest + np.log(total / len(paths))
    return averaged


def _wealths(payoffs: Floats) -> Floats:
    """Log wealth after every pair, from payoffs ``(..., n, s)`` in (-1, 1)."""
    # not log1p: payoffs below 1e-16 move nothing, and this is many times faster
    path: Floats = np.cumsum(np.log(1 + payoffs), axis=-2)
    return path


def shift_wealth(z: Floats) -> Floats:
    """Log wealth ``(..., n, s)`` of the bets on a shift, averaged over the stakes, from :func:`differences`."""
    with np.errstate(over="ignore"):  # tanh of infinity is 1
        payoffs = [STAKE * np.tanh(stake * z) for stake in SHIFT_STAKES]
    return _average([_wealths(sign * payoff) for payoff in payoffs for sign in (1, -1)])


def rank_wealth(payoffs: tuple[Floats, Floats]) -> Floats:
    """Log wealth ``(..., n, s)`` of the bets on ranks, averaged over the stakes, from :func:`rank_payoffs`."""
    return _average([_wealths(stake * payoff) for stake in RANK_STAKES for payoff in payoffs])


def log_wealth_path(x: ArrayLike, y: ArrayLike, shares: Sequence[float] | None = None) -> Floats:
    """Log of the averaged wealth after every pair, ``(..., n)``, for arms ``(..., n, s)``: one e-process.

    ``shares`` divides the money over the statistics, in advance; equally by default. Leading axes are replicates. It
    takes about 200 bytes of memory a value, so split very many replicates.

    Raises:
        ValueError: arms that do not fit together, or shares that are not ``s`` positive numbers.
    """
    x, y = as_arms(x, y)
    parts = _parts(x.shape[-1], shares)
    shift, ranks = shift_wealth(differences(x, y)), rank_wealth(rank_payoffs(x, y))
    each = np.logaddexp(shift + np.log1p(-RANK_SHARE), ranks + np.log(RANK_SHARE))
    averaged: Floats = np.logaddexp.reduce(each + np.log(parts), axis=-1)
    return averaged


def _parts(statistics: int, shares: Sequence[float] | None) -> Floats:
    """How the money is divided, ``(s,)``, with the sum 1."""
    parts = np.ones(statistics) if shares is None else np.asarray(shares, dtype=np.float64)
    if parts.shape != (statistics,) or not np.all((parts > 0) & np.isfinite(parts)):
        raise ValueError(f"shares are {statistics} positive numbers, not {shares}")
    divided: Floats = parts / parts.sum()
    return divided


def largest_log_wealth(
    x: ArrayLike, y: ArrayLike, shares: Sequence[float] | None = None, end: float = inf, bound: bool = False
) -> Floats:
    """The largest number of :func:`log_wealth_path`, at least 0, of replicates ``(a, n, s)``: ``(a,)``.

    It multiplies payoffs where the path adds up their logs. So last bits differ, and it takes a part of the time. A
    replicate that has reached ``end`` after a quarter of its pairs, or after half of them, ends there.

    Args:
        bound: where the bets on a shift reach ``end`` alone, what they make is told. All bets make more.

    Raises:
        ValueError: as :func:`log_wealth_path`.
    """
    x, y = as_arms(x, y)
    parts, count = _parts(x.shape[-1], shares), x.shape[-2]
    if count > MULTIPLIED:
        return _largest_by_logs(x, y, shares, end)
    found, going, start = np.zeros(len(x)), np.arange(len(x)), 0
    ranks = np.empty((2, len(x), 0, x.shape[-1]))
    for stop in (count // 4, count // 2, count):
        some = x[going, :stop], y[going, :stop]
        shift = (1 - RANK_SHARE) * (_shift_products(differences(*some)) @ parts)
        found[going] = _log_of_largest(shift)
        if bound:
            left = found[going] < end
            going, shift, ranks = going[left], shift[left], ranks[:, left]
        ranks = np.concatenate([ranks, rank_payoffs(x[going, :stop], y[going, :stop], start)], axis=2)
        found[going] = _log_of_largest(shift + RANK_SHARE * (_rank_products(ranks) @ parts))
        left = found[going] < end
        going, ranks, start = going[left], ranks[:, left], stop
    return found


def _largest_by_logs(x: Floats, y: Floats, shares: Sequence[float] | None, end: float) -> Floats:
    """The same by paths, also where products of so many payoffs would overflow."""
    found, count = np.zeros(len(x)), x.shape[-2]
    for stop in (count // 4, count // 2, count):
        going = np.flatnonzero(found < end)
        found[going] = log_wealth_path(x[going, :stop], y[going, :stop], shares).max(axis=-1, initial=0.0)
    return found


def _log_of_largest(wealth: Floats) -> Floats:
    """Of wealths ``(a, n)``, at least 0: ``(a,)``."""
    found: Floats = np.log(wealth.max(axis=-1, initial=1.0))
    return found


def _shift_products(z: Floats) -> Floats:
    """The wealth of which :func:`shift_wealth` is the log."""
    total = np.zeros_like(z)
    for stake in SHIFT_STAKES:
        with np.errstate(over="ignore"):  # tanh of infinity is 1
            payoff = STAKE * np.tanh(stake * z)
        for factor in (1 + payoff, 1 - payoff):
            total += np.multiply.accumulate(factor, axis=-2, out=factor)
    return total / (2 * len(SHIFT_STAKES))


def _rank_products(payoffs: Floats) -> Floats:
    """The wealth of which :func:`rank_wealth` is the log."""
    total: Floats = np.zeros(payoffs.shape[1:])
    for stake in RANK_STAKES:
        for payoff in payoffs:
            factor = 1 + stake * payoff
            total += np.multiply.accumulate(factor, axis=-2, out=factor)
    return total / (2 * len(RANK_STAKES))


def two_sample(x: ArrayLike, y: ArrayLike, alpha: float, shares: Sequence[float] | None = None) -> SequentialTest:
    """Test whether the runs of two arms, ``(n, s)`` each, have one law; false alarms at most ``alpha``.

    Pairs must be independent of each other; the two runs of a pair must be exchangeable if the laws are equal. The
    order of the pairs, the statistics and the shares must be fixed before the data are seen. No rejection shows
    nothing by itself: see :func:`fuaudit.statistics.two_sample.power.detectable_rate`.

    Raises:
        ValueError: arms of different shapes, no statistics, shares that do not fit, or an ``alpha`` outside (0, 1).
    """
    require_alpha(alpha)
    x, y = as_arms(x, y)
    if x.ndim != 2:
        raise ValueError(f"a test takes arms (n, s), these have shape {x.shape}")
    return tested(log_wealth_path(x, y, shares), alpha)
