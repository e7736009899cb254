"""Power: the smallest planted violation that the test by betting would have found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fuaudit.errors import UsageError
from fuaudit.verification.twosample.arrays import Floats, as_arms, require_alpha
from fuaudit.verification.twosample.betting import log_wealth_path

Uniform = Callable[[int], Floats]

CONFIDENCE = 0.95  # of the lower limits in a power curve
RATES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Goal:
    """What to look for: the ``power`` wanted, the number of replications, and the grid of rates, increasing.

    ``sure`` asks for it of the lower limit of the power instead of its estimate: for whoever looks again and again
    until the power is enough, and would else stop at the luckiest estimate.

    With the default 60 replications, 59 rejections put the lower limit of the power at .92, and 58 at .899.
    """

    power: float = 0.9
    replications: int = 60
    rates: tuple[float, ...] = RATES
    sure: bool = False

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
            if (point.lower if self.goal.sure else point.estimate) < self.goal.power:
                break
            answer = point
        return answer

    @property
    def rate(self) -> float | None:
        """The smallest detectable rate; None if even the largest rate of the grid is not."""
        return None if self.found is None else self.found.rate


def _audits(
    arms: tuple[Floats, ...], uniforms: Floats, rate: float, shares: Sequence[float] | None
) -> Iterator[Floats]:
    """The wealth paths of all replications at one rate, ``(chunk, n)`` at a time; uniforms ``(2, R, n)``."""
    untouched, reference, second = arms
    chunk = max(1, (1 << 21) // max(1, untouched.size))
    for start in range(0, uniforms.shape[1], chunk):
        orders, marks = uniforms[:, start : start + chunk]
        order = np.argsort(orders, axis=-1, kind="stable")
        planted = marks < rate
        subject = np.where(planted[..., None], untouched[order], second[order])
        yield log_wealth_path(subject, reference[order], shares)


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
        shares: of the test.

    Raises:
        UsageError: arms of different shapes, no statistics, or an ``alpha`` outside (0, 1).
    """
    require_alpha(alpha)
    goal = goal or Goal()
    arms = as_arms(untouched, second, reference)
    if arms[0].ndim != 2:
        raise UsageError(f"the arms have shape {arms[0].shape}, not (n, s)")
    shape = (2, goal.replications, arms[0].shape[0])
    uniforms = np.asarray(uniform(prod(shape)), dtype=np.float64).reshape(shape)
    curve = []
    for rate in goal.rates:
        largest = np.concatenate([path.max(axis=-1, initial=0.0) for path in _audits(arms, uniforms, rate, shares)])
        curve.append(Power(rate, int((largest >= -np.log(alpha)).sum()), goal.replications))
    return Detectable(goal, tuple(curve))
