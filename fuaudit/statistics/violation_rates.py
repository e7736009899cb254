"""What may be claimed when nothing was rejected: upper bounds on how often a *stated* violation occurs.

Nothing bounds the distance between laws in general. But if the law q of exact unlearning and the law v of a stated
violation are both known, then a method that commits it at rate rho has the law (1 - rho) q + rho v, and
"rho >= rho0" is a hypothesis that can be rejected: bet on q. The wealth, the product of q / p with
p = (1 - rho0) q + rho0 v, has at most mean 1 for every rho >= rho0, since it has mean 1 + (rho - rho0) d with
d = sum q v / p - sum q q / p: the sum of p p / p is 1, so d < 0 follows from sum q q / p >= 1 (Cauchy and Schwarz)
and (1 - rho0) sum q q / p + rho0 sum q v / p = 1. Hence "the violation occurs at a rate below rho0", at level alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, expm1, log, log1p

import numpy as np
from numpy.typing import ArrayLike

from fuaudit.statistics.known_law import Floats, checked_law
from fuaudit.statistics.rounding import up

RATES = tuple(float(rate) for rate in np.geomspace(1e-5, 1.0, 101))
"""Rates that can be stated, increasing; neighbours differ by a factor of 1.12."""


@dataclass(frozen=True)
class RateBound:
    """A violation occurs at a rate below ``below``, at level ``alpha``; None if nothing can be stated."""

    violation: str
    below: float | None
    alpha: float

    def __str__(self) -> str:
        if self.below is None:
            return f"{self.violation}: no bound on the rate"
        return f"{self.violation}: at a rate below {up(self.below, 3)} (confidence {1 - self.alpha:g})"


def reversed_wealth(categories: ArrayLike, exact: Sequence[float], violation: Sequence[float], rate: float) -> Floats:
    """Log wealth ``(n,)`` against "the violation occurs at ``rate`` or more"; its largest value so far decides."""
    q, x = checked_law(exact, categories)
    v, _ = checked_law(violation, categories)
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = np.log(q) - np.log((1 - rate) * q + rate * v)
        # 0 / 0: a category that neither law has settles nothing
        path: Floats = np.cumsum(np.nan_to_num(gains, nan=0.0, posinf=np.inf, neginf=-np.inf)[x])
    return np.fmax.accumulate(path)


def rate_bound(
    categories: ArrayLike, exact: Sequence[float], violation: Sequence[float], alpha: float, name: str
) -> RateBound:
    """The smallest of :data:`RATES` such that it and all larger ones are rejected at level ``alpha``.

    It needs no correction for the many rates: a false statement means that the largest rate of the grid which is
    not above the true one was rejected.

    Raises:
        ValueError: no law, categories outside it, or an ``alpha`` outside (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is within (0, 1), not {alpha}")
    below = None
    for rate in reversed(RATES):
        path = reversed_wealth(categories, exact, violation, rate)
        if not len(path) or path[-1] < -log(alpha):
            break
        below = rate
    return RateBound(name, below, alpha)


def undetected_rate_limit(plans: int, chance: float, alpha: float) -> float:
    """A violation that shows with this chance, and was seen in none of so many plans, has at most this rate.

    (1 - rate * chance) ** plans = alpha, at most 1. The same number is, for ``alpha`` = 1 - power, the rate from
    which on the violation would have been seen with that power: one plan that shows it is a counterexample.
    """
    if plans < 1 or not chance > 0:
        return 1.0
    return min(1.0, -expm1(log(alpha) / plans) / chance)


def plans_needed(rate: float, chance: float, alpha: float) -> int | None:
    """How many plans without a violation confine its rate to below ``rate``; None if no number does."""
    shown = rate * chance
    if not shown > 0:
        return None
    return 1 if shown >= 1 else ceil(log(alpha) / log1p(-shown))
