"""Two-sample tests by betting: whether unlearned runs have the law of retrained runs.

The data are ``n`` pairs of independent runs; pair ``t`` holds ``s`` pre-registered statistics of an unlearned run,
``x[t]``, and of a retrained run, ``y[t]``. Under the null hypothesis that both arms have one law a pair is
exchangeable given the pairs before it. A payoff that is antisymmetric in the pair, bounded by 1, and otherwise a
function of earlier pairs then has conditional mean 0, and the wealth of a predictable bet on it, the product of
``1 + bet * payoff``, is a martingale from 1. So is any average of wealths, however dependent they are. By Ville's
inequality the average ever reaches ``1 / alpha`` with probability at most ``alpha``: the auditor may look after
every pair, and stop or go on as it pleases. Nothing is assumed of the statistics, and no approximation is made.

Two kinds of payoff are bet on for every statistic:

- the *shift*: tanh of the difference over the root mean square of earlier differences, bets in [-1/2, 1/2];
- the *rank* payoffs: 1{x <= u} - 1{y <= u}, where ``u`` is where earlier pairs had the largest gap between the two
  empirical distribution functions; one payoff for either sign of the gap, half the money each, bets in [0, 1/2].

Values that are not finite are evidence, not noise (an unlearner may diverge). Values are ordered
``-inf < finite < inf < nan``, all nan equal. Rank payoffs need no more than the order. The shift of a pair whose
difference is not finite is the sign of the comparison in that order, the largest payoff there is, 0 when equal; such
pairs do not enter the scale. This is antisymmetric, so it is valid, and no wealth is ever nan.

Sources: payoffs, Shekhar and Ramdas, "Nonparametric two-sample testing by betting", IEEE Trans. Inf. Theory 2023;
bets, Cutkosky and Orabona, "Black-box reductions for parameter-free online learning in Banach spaces", COLT 2018;
lower bound, Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from fuaudit.errors import UsageError

Floats = NDArray[np.float64]
Ranks = NDArray[np.int32] | NDArray[np.int16]
Uniform = Callable[[int], Floats]

_STEP = 2 / (2 - np.log(3))  # of the online Newton step, for bets in [-1/2, 1/2] and payoffs in [-1, 1]
_LARGEST_BET = 0.5
_BLOCK = 1 << 18  # cells of the table of gaps handled at a time: 512 kB stay in the second-level cache
CONFIDENCE = 0.95  # of the lower limits in a power curve
RATES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def _arms(*arms: ArrayLike) -> tuple[Floats, ...]:
    """The arms as float64 arrays ``(..., n, s)`` of one shape."""
    arrays = tuple(np.asarray(arm, dtype=np.float64) for arm in arms)
    shapes = [array.shape for array in arrays]
    if len(set(shapes)) > 1 or len(shapes[0]) < 2 or shapes[0][-1] == 0:
        raise UsageError(
            f"the arms of a two-sample test have shapes {', '.join(map(str, shapes))}",
            "Give every arm the same number of runs and the same statistics, one row a run: (n, s) with s >= 1.",
        )
    return arrays


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"alpha is a false alarm rate inside (0, 1), not {alpha}")


def _comparison(x: Floats, y: Floats) -> Floats:
    """1 where x is above y, -1 below, 0 when equal, in the order ``-inf < finite < inf < nan``."""
    above = (x > y) | (np.isnan(x) & ~np.isnan(y))
    below = (x < y) | (np.isnan(y) & ~np.isnan(x))
    return above.astype(np.float64) - below


def shift_payoffs(x: Floats, y: Floats) -> Floats:
    """Payoffs on a shift of the mean, ``(..., n, s)`` in [-1, 1]: tanh of the difference over its past scale.

    The scale is the root mean square of earlier finite differences. While it is 0 (the first pair, or arms that
    were equal so far) the payoff is the limit of tanh at scale 0: the sign. One enormous finite difference makes
    later payoffs small; it costs power, not validity, and rank payoffs do not feel it.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        difference = x - y
    usable = np.isfinite(difference)
    size = np.where(usable, np.abs(difference), 0.0)
    scale = np.zeros_like(size)
    # hypot rather than a sum of squares, which would overflow from 1e154
    with np.errstate(over="ignore"):
        norm = np.hypot.accumulate(size, axis=-2)[..., :-1, :]
    scale[..., 1:, :] = norm / np.sqrt(np.maximum(np.cumsum(usable, axis=-2)[..., :-1, :], 1))
    usable &= scale > 0
    with np.errstate(over="ignore"):
        ratio = np.divide(difference, scale, out=np.zeros_like(size), where=usable)
    return np.where(usable, np.tanh(ratio), _comparison(x, y))


def _ranks(x: Floats, y: Floats) -> tuple[Ranks, Ranks]:
    """Dense ranks of both arms in the pooled values of a statistic, ``(..., s, n)`` each; ties share a rank."""
    pooled = np.moveaxis(np.concatenate([x, y], axis=-2), -2, -1)
    order = np.argsort(pooled, axis=-1)  # nan last
    ordered = np.take_along_axis(pooled, order, axis=-1)
    larger = (ordered[..., 1:] != ordered[..., :-1]) & ~np.isnan(ordered[..., :-1])
    dtype = np.int16 if pooled.shape[-1] < 2**15 else np.int32
    dense = np.zeros(pooled.shape, dtype=dtype)
    np.cumsum(larger, axis=-1, out=dense[..., 1:])
    ranks = np.empty_like(dense)
    np.put_along_axis(ranks, order, dense, axis=-1)
    return ranks[..., : x.shape[-2]], ranks[..., x.shape[-2] :]


def _rank_payoffs(x: Ranks, y: Ranks) -> NDArray[np.int8]:
    """Rank payoffs of columns ``(c, n)`` of ranks, ``(2, n, c)``: for x below y, and for y below x."""
    columns, count = x.shape
    payoffs = np.zeros((2, count, columns), dtype=np.int8)
    grid = np.arange(2 * count, dtype=x.dtype)
    gap = np.zeros((columns, 2 * count), dtype=x.dtype)  # number of earlier x <= rank, minus that of y
    for t in range(count):
        now_x, now_y = x[:, t, None], y[:, t, None]
        for way, place in enumerate((gap.argmax(axis=-1), gap.argmin(axis=-1))):
            u = place[:, None]
            best = np.take_along_axis(gap, u, axis=-1)
            payoff = np.sign(best) * ((now_x <= u).view(np.int8) - (now_y <= u).view(np.int8))
            # The first maximum above 0 is at an earlier value. A maximum of 0 may be at a later one: no bet then.
            payoffs[way, t] = np.where(best > 0 if way == 0 else best < 0, payoff, 0)[:, 0]
        gap += (now_x <= grid).view(np.int8)
        gap -= (now_y <= grid).view(np.int8)
    return payoffs


def rank_payoffs(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Payoffs on the gap between two distribution functions, twice ``(..., n, s)`` with values -1, 0 and 1.

    The first bets that x is below ``u`` more often than y, the second that y is; each picks its own ``u``, the
    smallest value of earlier pairs at which the gap of their empirical distribution functions is largest.
    The conditional mean of either is at most the Kolmogorov-Smirnov distance of the statistic's two laws.
    """
    rank_x, rank_y = _ranks(x, y)
    count = x.shape[-2]
    columns = prod(rank_x.shape[:-1])
    flat_x, flat_y = rank_x.reshape(columns, count), rank_y.reshape(columns, count)
    payoffs = np.empty((2, count, columns), dtype=np.int8)
    width = max(1, _BLOCK // max(1, 2 * count))
    for start in range(0, columns, width):
        block = slice(start, start + width)
        payoffs[:, :, block] = _rank_payoffs(flat_x[block], flat_y[block])
    shape = (2, count, *rank_x.shape[:-1])  # (2, n, ..., s)
    first, second = np.moveaxis(payoffs.reshape(shape), 1, -2).astype(np.float64)
    return first, second


def log_wealth(payoffs: Floats, low: float, high: float) -> Floats:
    """Log wealth after every pair, ``(..., n, k)``, of ``k`` bettors with payoffs ``(..., n, k)`` in [-1, 1].

    A bet is a share of the wealth, in [low, high] within [-1/2, 1/2]. The bettor is the online Newton step: it
    starts with no bet and follows the derivative of the log wealth of the pair before.
    """
    bet = np.zeros(payoffs.shape[:-2] + payoffs.shape[-1:])
    curvature = np.ones_like(bet)
    gains = np.empty(payoffs.shape)
    for t in range(payoffs.shape[-2]):
        payoff = payoffs[..., t, :]
        gains[..., t, :] = bet * payoff
        slope = payoff / (1 + bet * payoff)
        curvature += slope * slope
        bet = np.clip(bet + _STEP * slope / curvature, low, high)
    path: Floats = np.cumsum(np.log1p(gains), axis=-2)
    return path


def log_wealth_path(x: ArrayLike, y: ArrayLike) -> Floats:
    """Log of the averaged wealth after every pair, ``(..., n)``, for arms ``(..., n, s)``: one e-process.

    Every statistic has the same share; half of it is bet on the shift, a quarter on either rank payoff.
    Leading axes are replicates; memory is about 100 bytes a value, so split very many replicates.
    """
    x, y = _arms(x, y)
    first, second = rank_payoffs(x, y)
    ranks = np.logaddexp(log_wealth(first, 0.0, _LARGEST_BET), log_wealth(second, 0.0, _LARGEST_BET)) - np.log(2)
    shift = log_wealth(shift_payoffs(x, y), -_LARGEST_BET, _LARGEST_BET)
    averaged: Floats = np.logaddexp.reduce(np.logaddexp(shift, ranks), axis=-1) - np.log(2 * x.shape[-1])
    return averaged


@dataclass(frozen=True, eq=False)
class SequentialTest:
    """The result of a test by betting.

    ``log_wealth`` is the log of the averaged wealth after every pair, ``(n,)``; ``rejected_at`` the number of
    pairs after which it first was at least ``log(1 / alpha)``, None if never.
    """

    log_wealth: Floats = field(repr=False)
    alpha: float
    rejected_at: int | None

    @property
    def p_value(self) -> float:
        """The anytime-valid p-value, 1 over the largest wealth so far, at most 1."""
        return float(np.exp(-self.log_wealth.max(initial=0.0)))


def two_sample(x: ArrayLike, y: ArrayLike, alpha: float) -> SequentialTest:
    """Test whether the runs of two arms, ``(n, s)`` each, have one law; false alarms at most ``alpha``.

    Pairs must be independent of each other, and in a pair exchangeable if the laws are equal; the order of the
    pairs and the statistics must be fixed before the data are seen. No rejection shows nothing by itself: see
    :func:`detectable_rate`.

    Raises:
        UsageError: arms of different shapes, no statistics, or an ``alpha`` outside (0, 1).
    """
    _check_alpha(alpha)
    x, y = _arms(x, y)
    if x.ndim != 2:
        raise UsageError(f"a test takes arms (n, s), these have shape {x.shape}")
    path = log_wealth_path(x, y)
    reached = np.flatnonzero(path >= -np.log(alpha))
    return SequentialTest(path, alpha, int(reached[0]) + 1 if reached.size else None)


def mean_gap_interval(x: ArrayLike, y: ArrayLike, alpha: float) -> Floats:
    """Lower ends, ``(..., n)``, of an interval ``[lower, 1]`` for the total variation between the laws of the arms.

    With probability at least ``1 - alpha`` no lower end, after any number of pairs, exceeds the total variation;
    nor the largest Kolmogorov-Smirnov distance of the ``s`` statistics, which is what is bounded. It needs more
    than the test does: pairs independent of each other, and both arms independent in a pair, with the same two
    laws throughout. There is no upper end: distribution-free, none exists.

    The conditional mean of each rank payoff is at most that distance, and so is any weighted mean of them. Their
    weighted mean is bounded by the predictable plug-in empirical Bernstein sequence (Waudby-Smith and Ramdas,
    Theorem 2, one-sided, on (payoff + 1) / 2 in [0, 1]); the proof does not need equal conditional means: with
    v in [0, 1] of mean m and a predictable centre c, Fan's inequality exp(l r + r^2 (l + log(1 - l))) <= 1 + l r
    for r = v - c >= -1 and 0 <= l < 1 gives E exp(l (v - m) + r^2 (l + log(1 - l))) <= exp(l d) (1 - l d) <= 1,
    d = c - m. Each of the ``2 s`` payoffs has ``alpha / (2 s)``.
    """
    _check_alpha(alpha)
    x, y = _arms(x, y)
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
    """The values one pair earlier, so that they are predictable, after a start."""
    return np.concatenate([np.full_like(values[..., :1, :], start), values[..., :-1, :]], axis=-2)


@dataclass(frozen=True)
class Goal:
    """What to look for: the ``power`` wanted, the number of replications, and the grid of rates, increasing.

    With the default 60 replications, 59 rejections put the lower limit of the power at .92, and 58 at .899.
    """

    power: float = 0.9
    replications: int = 60
    rates: tuple[float, ...] = RATES

    def __post_init__(self) -> None:
        increasing = all(a < b for a, b in zip(self.rates, self.rates[1:], strict=False))
        if not self.rates or not increasing or not 0 < self.rates[0] <= self.rates[-1] <= 1:
            raise UsageError(f"rates increase within (0, 1], these are {self.rates}")
        if not 0 < self.power <= 1 or self.replications < 1:
            raise UsageError("power is within (0, 1], and there is at least one replication")


@dataclass(frozen=True)
class Power:
    """How often violations at one rate were found: ``rejections`` of ``replications``.

    ``lower`` is the Clopper-Pearson lower limit, one-sided at confidence .95, as if replications were independent.
    """

    rate: float
    rejections: int
    replications: int

    @property
    def estimate(self) -> float:
        """The fraction of replications that rejected."""
        return self.rejections / self.replications

    @property
    def lower(self) -> float:
        """The lower limit of the power."""
        if self.rejections == 0:
            return 0.0
        return float(betaincinv(self.rejections, self.replications - self.rejections + 1, 1 - CONFIDENCE))


@dataclass(frozen=True)
class Detectable:
    """The power curve of planted violations; see :func:`detectable_rate`."""

    goal: Goal
    curve: tuple[Power, ...]

    @property
    def found(self) -> Power | None:
        """The smallest rate from which on every rate of the curve reaches the power wanted; None if none does."""
        answer = None
        for point in reversed(self.curve):
            if point.estimate < self.goal.power:
                break
            answer = point
        return answer

    @property
    def rate(self) -> float | None:
        """The smallest detectable rate; None if even the largest rate of the grid is not."""
        return None if self.found is None else self.found.rate


def _audits(arms: tuple[Floats, ...], uniforms: Floats, rate: float) -> Iterator[Floats]:
    """The wealth paths of all replications at one rate, ``(chunk, n)`` at a time; uniforms ``(2, R, n)``."""
    untouched, reference, second = arms
    chunk = max(1, (1 << 21) // max(1, untouched.size))
    for start in range(0, uniforms.shape[1], chunk):
        orders, marks = uniforms[:, start : start + chunk]
        order = np.argsort(orders, axis=-1, kind="stable")
        planted = marks < rate
        subject = np.where(planted[..., None], untouched[order], second[order])
        yield log_wealth_path(subject, reference[order])


def detectable_rate(
    untouched: ArrayLike,
    reference: ArrayLike,
    second: ArrayLike,
    alpha: float,
    uniform: Uniform,
    goal: Goal | None = None,
) -> Detectable:
    """The smallest rate of one planted violation that the test would find: "forgets nothing, now and then".

    An audit of a defective unlearner is simulated many times: each run of its subject is, with probability
    ``rate``, a run that was not unlearned at all, else a retrained one; it is tested against the reference. The
    total variation between subject and reference is then at most ``rate``.

    What the answer says: had the unlearner left its model untouched in a fraction of runs of at least ``rate``,
    this test, with this many pairs, these statistics and this ``alpha``, would have rejected with about the power
    wanted. What it does not: anything about another kind of violation, however large its total variation, or about
    rates between those of the grid. It is an estimate: all replications resample the same ``n`` runs an arm (an
    order of the pairs and a choice of the planted ones), so they are dependent, ``lower`` does not cover the
    sampling of the runs, and at rate 1 only the order differs.

    Args:
        untouched: statistics ``(n, s)`` of runs of the original training, with no unlearning.
        reference: statistics ``(n, s)`` of the retrained runs that the subject is compared with.
        second: statistics ``(n, s)`` of retrained runs that share nothing with ``reference``. Testing the two is
            the negative control: where it rejects, the curve means nothing.
        alpha: of the test.
        uniform: gives that many independent numbers, uniform in [0, 1). It is called once: a keyed source
            answers twice in the same way. All rates share the numbers, so the planted runs of a rate are also
            planted at every larger one.
        goal: the power wanted, replications and grid.

    Raises:
        UsageError: arms of different shapes, no statistics, or an ``alpha`` outside (0, 1).
    """
    _check_alpha(alpha)
    goal = goal or Goal()
    arms = _arms(untouched, second, reference)
    if arms[0].ndim != 2:
        raise UsageError(f"the arms have shape {arms[0].shape}, not (n, s)")
    shape = (2, goal.replications, arms[0].shape[0])
    uniforms = np.asarray(uniform(prod(shape)), dtype=np.float64).reshape(shape)
    curve = []
    for rate in goal.rates:
        largest = np.concatenate([path.max(axis=-1, initial=0.0) for path in _audits(arms, uniforms, rate)])
        curve.append(Power(rate, int((largest >= -np.log(alpha)).sum()), goal.replications))
    return Detectable(goal, tuple(curve))
