"""Upper bounds on how often a *stated* violation occurs, where no test rejected.

No bound on the distance between laws holds in general. A bound on a rate needs two known laws: q, that of exact
unlearning, and v, that of the violation. A method that commits the violation at rate rho has the law
(1 - rho) q + rho v.

- *Null hypothesis*: rho >= rho0.
- *Test*: bet on q. The wealth is the product of q(x) / p(x) over all observations x, with p = (1 - rho0) q + rho0 v.
- *Guarantee*: under the null hypothesis the wealth is a supermartingale that starts at 1. By Ville's inequality it ever
  reaches 1/alpha with probability at most alpha. A rejection says at level alpha: the rate is below rho0.

Why a supermartingale: at rate rho a factor has the mean 1 + (rho - rho0) d, with d = sum q v / p - sum q q / p. By
Cauchy and Schwarz sum q q / p >= 1. From (1 - rho0) sum q q / p + rho0 sum q v / p = 1 follows sum q v / p <= 1. So
d <= 0, and the mean is at most 1 for every rho >= rho0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, expm1, log, log1p

import numpy as np
from numpy.typing import ArrayLike

from fuaudit.statistics.known_law import Floats, checked_law
from fuaudit.statistics.rounding import confidence, up

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
        return f"{self.violation}: at a rate below {up(self.below, 3)} (confidence {confidence(self.alpha)})"


def reversed_wealth(categories: ArrayLike, exact: Sequence[float], violation: Sequence[float], rate: float) -> Floats:
    """The largest log wealth so far, ``(n,)``, against "the violation occurs at ``rate`` or more"."""
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

    The many rates need no correction. The bound is false only if the largest rate of the grid that is not above the
    true one was rejected. For that rate the null hypothesis holds, so this has probability at most ``alpha``.

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
    """The upper limit, at confidence ``1 - alpha``, of the rate of a violation that none of ``plans`` plans showed.

    A plan with the violation shows it with probability ``chance``. The limit solves
    ``(1 - rate * chance) ** plans = alpha``, and is at most 1. With ``alpha = 1 - power`` it is a detectable rate:
    plans with a violation at this rate or more show it at least once with that power.
    """
    if plans < 1 or not chance > 0:
        return 1.0
    return min(1.0, -expm1(log(alpha) / plans) / chance)


def plans_needed(rate: float, chance: float, alpha: float) -> int | None:
    """How many plans that show no violation bound its rate by ``rate``; None if no number does."""
    shown = rate * chance
    if not shown > 0:
        return None
    return 1 if shown >= 1 else ceil(log(alpha) / log1p(-shown))
