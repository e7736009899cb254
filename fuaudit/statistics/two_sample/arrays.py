"""What the tests share: arms as arrays, and an order of values in which those that are not finite have a place.

Values that are not finite are evidence, not noise (an unlearner may diverge). Values are ordered
``-inf < finite < inf < nan``, all nan equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ranks = NDArray[np.int32] | NDArray[np.int16]


def as_arms(*arms: ArrayLike) -> tuple[Floats, ...]:
    """The arms as float64 arrays ``(..., n, s)`` of one shape; ValueError for arms that do not fit together."""
    arrays = tuple(np.asarray(arm, dtype=np.float64) for arm in arms)
    shapes = [array.shape for array in arrays]
    if len(set(shapes)) > 1 or len(shapes[0]) < 2 or shapes[0][-1] == 0:
        raise ValueError(
            f"the arms of a two-sample test have shapes {', '.join(map(str, shapes))}",
            "Give every arm the same number of runs and the same statistics, one row a run: (n, s) with s >= 1.",
        )
    return arrays


def require_alpha(alpha: float) -> None:
    """Raises ValueError unless ``alpha`` can be a rate of false alarms."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is a false alarm rate inside (0, 1), not {alpha}")


def comparison(x: Floats, y: Floats) -> Floats:
    """1 where x is above y, -1 below, 0 when equal, in the order ``-inf < finite < inf < nan``."""
    above = (x > y) | (np.isnan(x) & ~np.isnan(y))
    below = (x < y) | (np.isnan(y) & ~np.isnan(x))
    return above.astype(np.float64) - below


def dense_ranks(x: Floats, y: Floats) -> tuple[Ranks, Ranks]:
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
