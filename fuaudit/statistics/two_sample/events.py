"""A lower bound on the epsilon of a mechanism, from what it let out under two histories, told apart by kinds.

Two histories that an account calls adjacent are executed many times, each with draws of its own. What comes out is
sorted into kinds, such as how many coordinates two sets share. If one event is so much likelier under one of them that
no mechanism with the account's epsilon allows it, the account does not hold for this implementation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from fuaudit.statistics.two_sample.arrays import Floats, require_alpha

CHOOSING = 0.2
"""The share of the trials that choose an event, and bound nothing."""
WAYS = ((0, 1), (1, 0))
"""Which history an event is likelier under, and which rarer."""


@dataclass(frozen=True)
class LeastEpsilon:
    """The epsilon is at least ``lower``, but for one case in 1 / ``alpha``.

    Attributes:
        ceiling: what the bound would be if an event came always under one history and never under the other.
        event: the kinds that it is made of.
        hits: how often it came under each history, in as many held-out ``trials``.
    """

    lower: float
    ceiling: float
    event: tuple[int, ...]
    hits: tuple[int, int]
    trials: tuple[int, int]
    delta: float
    alpha: float


def least_epsilon(one: ArrayLike, other: ArrayLike, delta: float, alpha: float) -> LeastEpsilon:
    """A lower bound from kinds ``(n,)`` and ``(m,)``, numbered from 0, of independent trials under two histories.

    (epsilon, delta)-privacy means ``P(E) <= e^epsilon Q(E) + delta`` for all events E, and the same with P and Q
    exchanged. The event is chosen on the first fifth of the trials. On the others P(E) is bounded from below and Q(E)
    from above, each by Clopper and Pearson's limit at ``alpha / 2`` (Jagielski, Ullman and Oprea, NeurIPS 2020). So the
    bound is above the true epsilon with probability at most ``alpha``.

    Raises:
        ValueError: too few trials to choose and to count, an ``alpha`` outside (0, 1), a ``delta`` outside [0, 1).
    """
    require_alpha(alpha)
    kinds = [np.asarray(each, dtype=np.int64) for each in (one, other)]
    if min(len(each) for each in kinds) < 10 or any(each.ndim != 1 or each.min() < 0 for each in kinds):
        raise ValueError("a bound takes kinds (n,) of at least 10 trials of each history, numbered from 0")
    if not 0 <= delta < 1:
        raise ValueError(f"delta is at least 0 and below 1, not {delta}")
    size = 1 + max(int(each.max()) for each in kinds)
    cuts = [int(len(each) * CHOOSING) for each in kinds]
    first = [np.bincount(each[:cut], minlength=size) for each, cut in zip(kinds, cuts, strict=True)]
    rest = [np.bincount(each[cut:], minlength=size) for each, cut in zip(kinds, cuts, strict=True)]
    trials = [int(counts.sum()) for counts in rest]
    promised = [_chosen(first[more], first[less], (trials[more], trials[less]), delta, alpha) for more, less in WAYS]
    best = int(np.argmax([promise for promise, _ in promised]))
    (likely, rare), (_, event) = WAYS[best], promised[best]
    hits = [int(counts[event].sum()) for counts in rest]
    lower = float(_bound(hits[likely], hits[rare], trials[likely], trials[rare], delta, alpha))
    ceiling = float(_bound(trials[likely], 0, trials[likely], trials[rare], delta, alpha))
    return LeastEpsilon(
        lower, ceiling, tuple(event.tolist()), (hits[0], hits[1]), (trials[0], trials[1]), delta, alpha
    )  # fmt: skip


def _chosen(
    likely: NDArray[np.int64], rare: NDArray[np.int64], trials: tuple[int, int], delta: float, alpha: float
) -> tuple[float, NDArray[np.int64]]:
    """What the best event promises, and its kinds: those with the largest ratios, as many as are best.

    The rarer history is given one hit more than it had. Few trials choose, and an event that it never had among them
    would else promise most, although it may have a chance that many trials show.
    """
    order = np.argsort(-(likely + 0.5) / (rare + 0.5), kind="stable")
    hits, missed = np.cumsum(likely[order]), np.cumsum(rare[order]) + 1
    more, less = (
        counts * (of / n) for counts, of, n in zip((hits, missed), trials, (hits[-1], missed[-1]), strict=True)
    )
    promises = _bound(more, less, *trials, delta, alpha)
    count = int(promises.argmax()) + 1
    return float(promises[count - 1]), order[:count]


def _bound(likely: ArrayLike, rare: ArrayLike, of_likely: int, of_rare: int, delta: float, alpha: float) -> Floats:
    """The least epsilon of events with so many hits, at least 0."""
    more, less = (np.asarray(each, dtype=np.float64) for each in (likely, rare))
    at_least = np.where(more > 0, betaincinv(np.maximum(more, 0.5), of_likely - more + 1, alpha / 2), 0.0)
    at_most = np.where(less < of_rare, betaincinv(less + 1, np.maximum(of_rare - less, 0.5), 1 - alpha / 2), 1.0)
    found: Floats = np.log(np.maximum((at_least - delta) / at_most, 1.0))
    return found
