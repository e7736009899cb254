"""Power: the smallest planted violation that the test by betting would have found, by a lower limit.

The limit speaks of a fresh audit with as many pairs. It is computed from the runs of this audit, by resampling. These
runs tell the difference between untouched and retrained runs no better than the test itself does, so the error of the
limit does not vanish. Three things keep the statement true.

- *Resamples with replacement, from one pool.* A resampled audit draws untouched runs from those at hand. It draws all
  retrained runs, of either arm, from both retrained arms together. To reorder the pairs at hand would keep their luck
  in every resample. To draw the arms from two pools would take the difference of the pools, which is luck, for an
  effect, even where nothing is planted.
- *A margin for the runs at hand.* A world is drawn by resampling both pools once; audits are drawn in each of several
  worlds. The variance between worlds, beyond what audits of one world explain, is the error of a world drawn from runs.
  How much more audits of worlds find on average than audits of the pools is what the luck of the runs adds. An audit
  counts for the lower limit only if it rejects with a margin for both. The margin is taken on the root of log wealth:
  log wealth grows with the square of the effect, so its root has the effect's scale. On that scale errors are about
  normal and grow in proportion to the rate.
- *Rates are asked from the largest down*, and the first that fails ends it (testing in a fixed sequence). The first
  rate that is truly too small is passed with probability at most one minus the confidence. Smaller rates are asked only
  if it is passed. So the rate stated needs no correction for having been chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, prod, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri

from fuaudit.statistics.two_sample.arrays import Floats, as_arms, require_alpha
from fuaudit.statistics.two_sample.betting import largest_log_wealth

Uniform = Callable[[int], Floats]
Places = NDArray[np.int64]

RATES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_DRAWN = 0.5  # rates whose power is estimated lower are not asked below: the curve is long enough for a figure
_CELLS = 1 << 21  # values of an arm that are tested at once
_BEYOND = 2.0  # an audit whose root of log wealth is beyond the bar by so much after a part of its pairs ends


def lower_limit(hits: int, of: int, confidence: float) -> float:
    """Clopper and Pearson's lower limit of a probability, one-sided, from ``hits`` in ``of`` independent tries."""
    return float(betaincinv(hits, of - hits + 1, 1 - confidence)) if hits else 0.0


@dataclass(frozen=True)
class Goal:
    """What to look for.

    Attributes:
        power: the power wanted, by a lower limit of this ``confidence``.
        nominal: the quantile that the margin takes, as if its errors were normal. It is above the confidence, because a
            bootstrap knows too little of statistics that are dependent and have heavy tails.
        resamples: how many audits are drawn at every rate. The share of 200 has a standard error of .021 at power .9.
        worlds: how many are drawn for the margin, with ``audits`` in each.
        rates: the grid, increasing.
    """

    power: float = 0.9
    confidence: float = 0.9
    nominal: float = 0.99
    resamples: int = 200
    worlds: int = 80
    audits: int = 5
    rates: tuple[float, ...] = RATES

    def __post_init__(self) -> None:
        increasing = all(a < b for a, b in zip(self.rates, self.rates[1:], strict=False))
        if not self.rates or not increasing or not 0 < self.rates[0] <= self.rates[-1] <= 1:
            raise ValueError(f"rates increase within (0, 1], these are {self.rates}")
        if not 0 < self.power <= 1 or not 0.5 <= self.confidence <= self.nominal < 1:
            raise ValueError("power is within (0, 1], confidence within [.5, 1), nominal from confidence to below 1")
        if self.resamples < 1 or self.worlds < 2 or self.audits < 2:
            raise ValueError("a power needs at least one resample, and two audits in each of two worlds")


@dataclass(frozen=True)
class Point:
    """The power at one ``rate``: the share of resampled audits that reject, and of those that do with the margin."""

    rate: float
    estimate: float
    lower: float


@dataclass(frozen=True)
class Detectable:
    """The power curve of planted violations, by increasing rate; see :func:`detectable_rate`.

    Rates below the first of the curve were not asked, because the power was low there already.
    """

    goal: Goal
    curve: tuple[Point, ...]

    @property
    def found(self) -> Point | None:
        """The smallest rate such that it and all larger ones have the power wanted; None if the largest has not."""
        at = _from_which_on([point.lower >= self.goal.power for point in self.curve])
        return None if at is None else self.curve[at]

    @property
    def rate(self) -> float | None:
        """The smallest detectable rate; None if even the largest rate of the grid is not."""
        return None if self.found is None else self.found.rate


@dataclass(frozen=True)
class _Pools:
    """What audits are resampled from: untouched runs ``(n, s)``, and retrained ones ``(m, s)`` for either arm."""

    untouched: Floats
    retrained: Floats
    shares: Sequence[float] | None
    bar: float

    def roots(
        self, rate: float, draws: Floats, worlds: tuple[Places, Places] | None = None, bound: bool = False
    ) -> Floats:
        """Roots of the largest log wealth of audits with planted violations, ``(...,)``; some that are large end early.

        Args:
            draws: uniform numbers ``(4, ..., n)``. They mark the planted runs, and pick an untouched, a retrained and
                a reference run for each pair.
            worlds: which runs of the pools make up each world, ``(k, n)`` and ``(k, m)``; the first axis of audits in
                ``draws`` is then that of worlds.
            bound: a root that is beyond the bar by :data:`_BEYOND` may be told as less, but not as less than that.
        """
        marks, *picked = draws
        numbers = np.arange(marks[..., 0].size)
        world = None if worlds is None else numbers // marks[0, ..., 0].size
        marks, *picked = (part.reshape(len(numbers), -1) for part in (marks, *picked))
        found = np.empty(len(numbers))
        step = max(1, _CELLS // self.untouched.size)
        for start in range(0, len(numbers), step):
            part = slice(start, start + step)
            first, second, third = (
                _places(uniform[part], len(pool))
                for uniform, pool in zip(picked, (self.untouched, self.retrained, self.retrained), strict=True)
            )
            if worlds is not None and world is not None:
                own = world[part, None]
                first, second, third = worlds[0][own, first], worlds[1][own, second], worlds[1][own, third]
            planted = marks[part, :, None] < rate
            subject = np.where(planted, self.untouched[first], self.retrained[second])
            found[part] = self._tested(subject, self.retrained[third], bound)
        return found.reshape(draws.shape[1:-1])

    def _tested(self, subject: Floats, reference: Floats, bound: bool) -> Floats:
        # a test of the first pairs is the same test, ended early
        end = (self.bar + _BEYOND) ** 2
        roots: Floats = np.sqrt(largest_log_wealth(subject, reference, self.shares, end, bound))
        return roots


def _places(uniform: Floats, size: int) -> Places:
    return (uniform * size).astype(np.int64)


def _from_which_on(held: Sequence[bool]) -> int | None:
    """The first place from which all hold to the end; None if the last does not."""
    failed = [at for at, holds in enumerate(held) if not holds]
    first = failed[-1] + 1 if failed else 0
    return first if first < len(held) else None


def _margin(pools: _Pools, rate: float, roots: Floats, own: Floats, draws: Floats, nominal: float) -> float:
    """By how much roots must exceed the bar at a rate.

    Args:
        roots: of audits at that rate that were drawn from the pools themselves.
        own: uniform numbers ``(k, n + m)`` for the worlds.
        draws: uniform numbers ``(4, k, a, n)`` for the audits in each world.
    """
    count = len(pools.untouched)
    worlds = _places(own[:, :count], count), _places(own[:, count:], len(pools.retrained))
    found = pools.roots(rate, draws, worlds)
    audits = found.shape[1]
    # variance between worlds as in an analysis of variance with random effects
    within = found.var(axis=1, ddof=1).mean()
    between = max(0.0, float(found.mean(axis=1).var(ddof=1) - within / audits))
    luck = max(0.0, float(found.mean() - roots.mean()))
    return float(ndtri(nominal)) * sqrt(between) + luck


def detectable_rate(
    untouched: ArrayLike,
    reference: ArrayLike,
    second: ArrayLike,
    alpha: float,
    uniform: Uniform,
    goal: Goal | None = None,
    shares: Sequence[float] | None = None,
) -> Detectable:
    """The smallest rate of one planted violation that the test would find: "forgets nothing, now and then".

    An audit of a defective unlearner is simulated many times. Each run of its subject is, with probability ``rate``, a
    run that was not unlearned at all, and else a retrained one. It is tested against retrained runs. The total
    variation between subject and reference is then at most ``rate``.

    - *What the answer says*: suppose the unlearner leaves its model untouched in a share ``rate`` of runs or more,
      independently from run to run. Then a fresh audit by this test, with this many pairs, these statistics and this
      ``alpha``, rejects with the power wanted.
    - *How sure it is*: it claims more than is true with a probability of about one minus the confidence. The limit is a
      bootstrap's, so its confidence is approximate; docs/results/powers.md measures it. Between the rates of the grid,
      power is taken to grow with the rate.
    - *What it does not say*: anything about another kind of violation, however large its total variation.

    Args:
        untouched: statistics ``(n, s)`` of runs of the original training, with no unlearning.
        reference: statistics ``(n, s)`` of the retrained runs that the subject is compared with.
        second: statistics ``(n, s)`` of retrained runs that share nothing with ``reference``. A test of the two is the
            negative control: where it rejects, the curve means nothing.
        alpha: of the test.
        uniform: gives that many independent numbers, uniform in [0, 1). It is called once, because a keyed source
            gives the same numbers again. All rates share the numbers, so the planted runs of a rate are also planted at
            every larger one.
        goal: the power wanted, its confidence, resamples and grid.
        shares: of the test.

    Raises:
        ValueError: arms of different shapes, no statistics, or an ``alpha`` outside (0, 1).
    """
    require_alpha(alpha)
    goal = goal or Goal()
    arms = as_arms(untouched, second, reference)
    if arms[0].ndim != 2:
        raise ValueError(f"the arms have shape {arms[0].shape}, not (n, s)")
    n, bar = len(arms[0]), sqrt(-log(alpha))
    pools = _Pools(arms[0], np.concatenate(arms[1:]), shares, bar)
    shapes = ((4, goal.resamples, n), (goal.worlds, 3 * n), (4, goal.worlds, goal.audits, n))
    sizes = [prod(shape) for shape in shapes]
    numbers = np.split(np.asarray(uniform(sum(sizes)), dtype=np.float64), np.cumsum(sizes)[:-1])
    draws, own, inner = (part.reshape(shape) for part, shape in zip(numbers, shapes, strict=True))
    roots = dict[float, Floats]()
    for rate in reversed(goal.rates):
        roots[rate] = pools.roots(rate, draws, bound=True)
        if (roots[rate] >= bar).mean() < min(_DRAWN, goal.power):
            break
    rates = sorted(roots)
    estimates = [float((roots[rate] >= bar).mean()) for rate in rates]
    start = _from_which_on([estimate >= goal.power for estimate in estimates])
    # where no rate reaches the power wanted even without a margin, the largest gives one for the curve
    at = rates[-1 if start is None else start]
    margin = _margin(pools, at, pools.roots(at, draws), own, inner, goal.nominal)
    margins = {rate: margin * rate / at for rate in rates}
    # what was told as less is beyond any margin but one that is wider still
    roots |= {rate: pools.roots(rate, draws) for rate in rates if margins[rate] > _BEYOND}
    lowers = [float((roots[rate] >= bar + margins[rate]).mean()) for rate in rates]
    points = map(Point, rates, estimates, lowers)
    return Detectable(goal, tuple(points))
