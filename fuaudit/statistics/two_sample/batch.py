"""Two-sample tests at a number of pairs that is fixed in advance, by swapping the runs within pairs.

- *Null hypothesis*: both arms have one law. Then every pair is exchangeable: given the unordered pairs, all ``2**n``
  ways to swap pairs are equally likely.
- *Test*: a row of numbers is computed for the data as they are, and for ``B`` random ways to swap pairs. The p-value of
  a number is ``(1 + how many of the B others are at least as large) / (B + 1)``.
- *Guarantee*: it is at most alpha with probability at most alpha, for every n and B, ties or not. Where nothing ties
  this probability is floor(alpha (B + 1)) / (B + 1); ties make it smaller.
- *Several numbers* are combined by the sum of the inverses of their p-values (as in Wilson's harmonic mean, PNAS 2019).
  This sum is ranked among those of all rows in its turn. Every row is treated as the first one is, so the guarantee
  holds for the combined p-value too, however the numbers depend on each other.

Each of the ``s`` statistics is replaced by the normal scores of its pooled ranks. Scores do not know which arm is
which, have no units, and give a place to values that are not finite. Four tests look at them:

- *MMD* (Gretton et al., JMLR 2012, unbiased): Gaussian and Laplace kernels with five bandwidths each, aggregated as in
  Schrab et al., JMLR 2023, but by ranked p-values;
- *energy distance* (Szekely and Rizzo 2013): the same form, with minus the distance as kernel;
- *KS*: the Kolmogorov-Smirnov distance of every statistic;
- *C2ST* (Lopez-Paz and Oquab, ICLR 2017): a linear classifier is fitted on the first half of the pairs, and must tell
  the runs of the second half apart. The number is the mean difference of its scores, which has more power than its
  accuracy.

At the fixed number of pairs these tests have more power than the test by betting. Under optional stopping their
p-values are not valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from fuaudit.statistics.two_sample.arrays import Floats, as_arms, dense_ranks, require_alpha

Signs = Floats
Uniform = Callable[[int], Floats]

TESTS = ("MMD", "energy distance", "KS", "C2ST")
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of the kernels, in units of the median distance of the pooled runs."""

_ROUNDING = 1e-12
_RIDGE = 1.0  # of the classifier, in units of one run a statistic


@dataclass(frozen=True)
class BatchTest:
    """The result at a fixed number of pairs: one p-value that decides, and the parts it was combined from.

    Attributes:
        parts: the p-values of the four tests by name. Each is valid alone; they are not corrected for being four.
        accuracy: that of the classifier on the held-out runs.
    """

    p_value: float
    parts: dict[str, float]
    accuracy: float
    resamples: int
    alpha: float

    @property
    def rejected(self) -> bool:
        """Whether equal laws are rejected at level ``alpha``."""
        return self.p_value <= self.alpha


def normal_scores(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The normal scores ``(n, s)`` of both arms among the pooled values of each statistic; ties share one."""
    ranks = _mid_ranks(np.concatenate(dense_ranks(x, y), axis=-1)).T
    scores: Floats = ndtri((ranks - 0.5) / len(ranks))
    return scores[: len(x)], scores[len(x) :]


def _mid_ranks(dense: NDArray[Any]) -> Floats:
    """Ranks from 1, ``(s, n)``, of dense ranks from 0; ties share the mean of theirs, which is exact in halves.

    They are those of ``scipy.stats.rankdata``, whose import takes longer than the ranks of most audits.
    """
    statistics, runs = dense.shape
    apart = dense + np.arange(statistics)[:, None] * runs
    ties = np.bincount(apart.ravel(), minlength=dense.size).reshape(dense.shape)
    means = np.cumsum(ties, axis=-1) - (ties - 1) / 2
    ranks: Floats = np.take_along_axis(means, dense.astype(np.int64), axis=-1)
    return ranks


def antisymmetric(kernel: Floats) -> Floats:
    """What every two pairs add to MMD^2, ``(n, n)``: a swap of one pair changes the sign, and no bit.

    Pairs of two equal runs have exact zeros. So rounding cannot tell the data as they are from swapped ones.
    """
    n = len(kernel) // 2
    cross = kernel[:n, n:]
    core: Floats = (kernel[:n, :n] - cross) + (kernel[n:, n:] - cross.T)  # any other order rounds otherwise
    np.fill_diagonal(core, 0.0)
    return core


def _quadratic(kernel: Floats, signs: Signs) -> Floats:
    """The unbiased MMD^2 under every row of signs, from the kernel of the pooled runs ``(2 n, 2 n)``."""
    n = len(kernel) // 2
    answer: Floats = np.einsum("bi,bi->b", signs @ antisymmetric(kernel), signs, dtype=np.float64) / (n * (n - 1))
    return answer


def _distances(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Distances ``(2 n, 2 n)`` between the pooled runs, Euclidean and by sums of absolute differences."""
    pooled = np.concatenate([x, y])
    gaps = pooled[:, None] - pooled[None]
    return np.sqrt((gaps**2).sum(axis=2)), np.abs(gaps).sum(axis=2)


def mmd_values(x: Floats, y: Floats, signs: Signs) -> Floats:
    """Unbiased MMD^2 of ten kernels under every row of signs, ``(b, 10)``."""
    columns = []
    for distance, kernel in zip(_distances(x, y), (_gaussian, _laplace), strict=True):
        median = float(np.median(distance[np.triu_indices(len(distance), 1)])) or 1.0
        columns += [_quadratic(kernel(distance / (width * median)), signs) for width in BANDWIDTHS]
    return np.stack(columns, axis=1)


def _gaussian(ratio: Floats) -> Floats:
    return np.exp(-0.5 * ratio**2)


def _laplace(ratio: Floats) -> Floats:
    return np.exp(-ratio)


def energy_values(x: Floats, y: Floats, signs: Signs) -> Floats:
    """The energy distance under every row of signs, ``(b, 1)``; unbiased, so it can be negative."""
    return _quadratic(-_distances(x, y)[0], signs)[:, None]


def ks_values(x: Floats, y: Floats, signs: Signs) -> Floats:
    """The Kolmogorov-Smirnov distance of every statistic under every row of signs, ``(b, s)``."""
    counts: NDArray[Any] = signs.T.astype(np.int16 if len(x) < 2**15 else np.int32, order="C")
    both = np.concatenate([counts, -counts])
    columns = [_largest_gap(np.concatenate(arms), both) for arms in zip(x.T, y.T, strict=True)]
    # whole numbers that float32 holds, over another
    return (np.stack(columns, axis=1) / np.float32(len(x))).astype(np.float64)


def _largest_gap(values: Floats, counts: NDArray[Any]) -> NDArray[np.float32]:
    """The largest sum of counts ``(2 n, b)`` of the values up to one of them, in size: ``(b,)``."""
    order = np.argsort(values)
    total, largest = np.zeros_like(counts[0]), np.zeros_like(counts[0])
    last = np.append(values[order][1:] != values[order][:-1], True)
    for place, ends in zip(order.tolist(), last.tolist(), strict=True):
        total += counts[place]
        if ends:
            np.maximum(largest, np.abs(total), out=largest)
    gap: NDArray[np.float32] = largest.astype(np.float32)
    return gap


def classifier_values(x: Floats, y: Floats, signs: Signs) -> tuple[Floats, float]:
    """The mean score difference on the held-out half under every row of signs ``(b, 1)``, and the accuracy as is.

    The classifier is the ridge regression of the arm on the differences of the first half, without a constant. It is
    fitted anew under every row, because rows must be treated alike; its weights are linear in the signs.
    """
    half, gaps = len(x) // 2, x - y
    gram = gaps[:half].T @ gaps[:half] + _RIDGE * np.eye(gaps.shape[1])
    weights = np.linalg.solve(gram, (signs[:, :half] @ gaps[:half]).T).T
    scores = gaps[half:] @ weights[0]
    accuracy = float(np.mean((scores > 0) + 0.5 * (scores == 0)))
    values = (weights * (signs[:, half:] @ gaps[half:])).sum(axis=1) / len(scores)
    return values[:, None], accuracy


def ranked(values: Floats) -> Floats:
    """The p-value of every entry within its column ``(b, k)``: the share of rows that are at least as large.

    Values that differ by rounding alone count as equal, which is on the safe side: p-values only grow. Scores, kernels
    and distances are of order 1, so what is below :data:`_ROUNDING` is rounding too.
    """
    margins = np.maximum(1e-9 * np.abs(values).max(axis=0), _ROUNDING)
    places = [
        np.searchsorted(np.sort(column), column - margin) for column, margin in zip(values.T, margins, strict=True)
    ]
    return (len(values) - np.stack(places, axis=1)) / len(values)


def combined(p_values: Floats) -> Floats:
    """The combined p-value of every row ``(b, 1)``: the rank of its sum of 1/p among those of all rows.

    The smallest p-values rule the sum. Unlike their minimum it is rarely tied at the top.
    """
    return ranked((1 / p_values).sum(axis=1, keepdims=True))


def swaps(count: int, pairs: int, uniform: Uniform) -> Signs:
    """Signs ``(count + 1, pairs)``: the data as they are, then ``count`` random ways to swap pairs."""
    drawn = np.asarray(uniform(count * pairs)).reshape(count, pairs) < 0.5
    return np.concatenate([np.ones((1, pairs)), np.where(drawn, 1.0, -1.0)])


def batch_test(x: ArrayLike, y: ArrayLike, alpha: float, uniform: Uniform) -> BatchTest:
    """Test whether the runs of two arms, ``(n, s)`` each, have one law; false alarms at most ``alpha``.

    Args:
        uniform: gives that many independent numbers, uniform in [0, 1); called once. ``B`` is 2 / alpha, and at
            least 999, so that the second rank of all rows still rejects.

    Raises:
        ValueError: arms of different shapes, no statistics, fewer than 4 pairs, or an ``alpha`` outside (0, 1).
    """
    require_alpha(alpha)
    x, y = as_arms(x, y)
    if x.ndim != 2 or len(x) < 4:
        raise ValueError(f"a batch test takes arms (n, s) with n >= 4, these have shape {x.shape}")
    resamples = max(999, ceil(2 / alpha))
    signs = swaps(resamples, len(x), uniform)
    x, y = normal_scores(x, y)
    classified, accuracy = classifier_values(x, y, signs)
    families = (mmd_values(x, y, signs), energy_values(x, y, signs), ks_values(x, y, signs), classified)
    each = np.concatenate([combined(ranked(values)) for values in families], axis=1)
    total = combined(each)
    parts = dict(zip(TESTS, each[0].tolist(), strict=True))
    return BatchTest(float(total[0, 0]), parts, accuracy, resamples, alpha)
