"""One round's privacy loss: what it can be and how likely, and the errors that such figures come with."""

from __future__ import annotations

from dataclasses import dataclass

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
