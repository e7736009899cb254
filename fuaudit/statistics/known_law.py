"""Tests of categories against a known law, by betting. One may look after every observation.

- *Null hypothesis*: every observation has the law q, whatever came before.
- *Test*: a bettor expects the law p, which may depend on earlier observations. Each observation x multiplies his wealth
  by p(x) / q(x). Wealth starts at 1, and is averaged over several bettors.
- *Guarantee*: under the null hypothesis the average is a supermartingale, a martingale where p is 0 wherever q is. By
  Ville's inequality it ever reaches 1/alpha with probability at most alpha.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

WEIGHTS = (None, 100.0, 10_000.0)
"""The bettors' priors, in observations before the first; the bettors have equal shares of the wealth.

None is the prior of Krichevsky and Trofimov, half an observation of each category: it learns a large deviation fast,
and pays about (k - 1) / 2 log n in log wealth. A number is so many observations that fit the known law: it learns more
slowly, and costs little where the deviation is small.
"""


def checked_law(law: Sequence[float], categories: ArrayLike) -> tuple[Floats, Ids]:
    """A law ``(k,)`` and categories ``(n,)`` in 0 .. k - 1 as arrays; ValueError for anything else."""
    q, x = np.asarray(law, dtype=np.float64), np.asarray(categories)
    if q.ndim != 1 or (q < 0).any() or not np.isclose(q.sum(), 1.0, rtol=0, atol=1e-9):
        raise ValueError("a law is a list of probabilities that sum to 1")
    if x.ndim != 1 or not np.issubdtype(x.dtype, np.integer) or ((x < 0) | (x >= len(q))).any():
        raise ValueError(f"categories are whole numbers from 0 to {len(q) - 1}")
    return q, x.astype(np.int64)


def before(x: Ids, size: int) -> Ids:
    """How often the category of each place occurred at earlier places, ``(n,)``, among ``size`` categories."""
    order = np.argsort(x, kind="stable")
    counts = np.bincount(x, minlength=size)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    result = np.empty(len(x), dtype=np.int64)
    result[order] = np.arange(len(x)) - starts
    return result


def log_wealth(categories: ArrayLike, law: Sequence[float], suspects: Sequence[Sequence[float]] = ()) -> Floats:
    """Log wealth after every observation, ``(n,)``, of categories ``(n,)`` in 0 .. k - 1 against their law ``(k,)``.

    A bettor of :data:`WEIGHTS` expects a category with probability
    (times seen + its prior) / (observations seen + sum of priors). Each of the ``suspects (m, k)``, laws of faults that
    are known beforehand, has a bettor who expects that law and need not learn. All have equal shares. After a category
    that the law makes impossible the wealth is infinite.

    Raises:
        ValueError: no law, or categories outside it.
    """
    q, x = checked_law(law, categories)
    earlier, number = before(x, len(q)), np.arange(len(x))
    paths = []
    for weight in WEIGHTS:
        prior = np.full(len(q), 0.5) if weight is None else weight * q
        with np.errstate(divide="ignore"):
            ratio = (earlier + prior[x]) / (number + prior.sum()) / q[x] if (q[x] > 0).all() else _ratios(q, x)
        paths.append(np.cumsum(np.log(ratio)))
    for suspect in suspects:
        with np.errstate(divide="ignore", invalid="ignore"):
            paths.append(np.cumsum(np.log(checked_law(suspect, x)[0] / q)[x]) if (q[x] > 0).all() else paths[0])
    return average(paths)


def _ratios(q: Floats, x: Ids) -> Floats:
    """Factors ``(n,)``: 1 up to the first impossible category, infinite from there on."""
    return np.where(np.logical_or.accumulate(q[x] == 0), np.inf, 1.0)


def average(paths: Iterable[Floats]) -> Floats:
    """The log of the mean of wealths, from their logs."""
    stacked = np.stack(list(paths))
    mean: Floats = np.logaddexp.reduce(stacked, axis=0) - np.log(len(stacked))
    return mean
