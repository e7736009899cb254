"""Tests by betting: the wealth of a bet against a hypothesis, and when it is large enough to reject.

Wealth starts at 1. Where the hypothesis holds it is a martingale or a supermartingale, or an average of such. By
Ville's inequality it then ever reaches 1 / alpha with probability at most alpha, so one may look after every
observation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SequentialTest:
    """The result of a test by betting.

    ``log_wealth`` is the log of the averaged wealth after every observation, ``(n,)``; ``rejected_at`` the number
    of observations after which it first was at least ``log(1 / alpha)``, None if never.
    """

    log_wealth: Floats = field(repr=False)
    alpha: float
    rejected_at: int | None

    @property
    def p_value(self) -> float:
        """The anytime-valid p-value, 1 over the largest wealth so far, at most 1."""
        return float(np.exp(-self.log_wealth.max(initial=0.0)))

    @property
    def pairs_needed(self) -> int | None:
        """How many pairs a rejection takes; None where the log wealth has not grown.

        After a rejection it is the number that it took. Before one it is extrapolated from the mean growth of log
        wealth per pair, and is no bound.
        """
        if self.rejected_at is not None:
            return self.rejected_at
        if not len(self.log_wealth) or self.log_wealth[-1] <= 0:
            return None
        return int(np.ceil(-np.log(self.alpha) * len(self.log_wealth) / self.log_wealth[-1]))


def tested(path: Floats, alpha: float) -> SequentialTest:
    """The test of a wealth, given by its logs: rejected when it first reaches 1 / alpha.

    Raises:
        ValueError: an ``alpha`` outside (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is within (0, 1), not {alpha}")
    reached = np.flatnonzero(path >= -np.log(alpha))
    return SequentialTest(path, alpha, int(reached[0]) + 1 if reached.size else None)
