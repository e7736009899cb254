"""One round's privacy loss: what it can be and how likely, and the errors that such figures come with."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MASS_ERROR = 1e-11
"""Relative error of a probability of one round."""
LOSS_ERROR = 3e-11
"""Relative error of a loss."""


@dataclass(frozen=True)
class Losses:
    """Losses ``(n,)`` with their probabilities ``(n,)`` under the first law, and a bound on what was left out."""

    values: Floats
    masses: Floats
    left_out: float


def normal(logs: Floats) -> Floats:
    """Weights from their logs, scaled to a sum of 1."""
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def joining(epsilon: float, chance: float) -> float:
    """What joins delta where something else than the law comes out with a chance of at most ``chance``; rounded up.

    It does so under one history and under the other. So (epsilon, delta) becomes
    (epsilon, delta + (1 + e^epsilon) chance).
    """
    return (1 + exp(min(epsilon, 700))) * chance * (1 + 1e-12)
