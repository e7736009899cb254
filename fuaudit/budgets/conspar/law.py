"""One round of ConSpar: the exact law of what a client sends, and its pure epsilon. Proofs are in docs/budgets.md.

A client has a set T of k top coordinates of d. It keeps each with probability 1 - alpha, and fills up to k coordinates
from all others, uniformly. The set that it sends has a probability that depends on its overlap u with T alone:

    P(u) = alpha^k f(u),    f(u) = sum over i <= u of C(u, i) odds^i / C(d - i, k - i),    odds = (1 - alpha) / alpha

*Source*: FedREP, Yang and others, Theorem 2 and equation 18.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import comb, fsum, inf, log1p
from typing import TYPE_CHECKING

from fuaudit.errors import BudgetError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LARGEST = 10**12
"""Coordinates of a model, at most."""
DIFFERING = 10**6
"""Elements in which two sets may differ, at most; the work grows with them."""
NEGLIGIBLE = -80.0
"""The log of a term, relative to the largest, from which on a sum is cut off."""
ERROR = 1e-11
"""Relative error up to which neighbours follow from each other; beyond it a sum is computed anew."""
SUMMED = 1e-15
"""Relative error of such a sum, and of a step."""


def decimal(text: str) -> Fraction:
    """The number within [0, 1] that a decimal says, exactly; UsageError for anything else."""
    if not re.fullmatch(r"(\d{1,30}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,2})?", text):
        raise UsageError(f"alpha is a decimal such as 0.95, not {text!r}")
    number = Fraction(text)
    if number > 1:
        raise UsageError(f"alpha is within 0 and 1, not {text}")
    return number


@dataclass(frozen=True)
class ConSpar:
    """What a round of ConSpar is: ``per_client`` of ``dim`` coordinates, of which sets differ in at most ``differ``.

    Raises:
        UsageError: no such round, or no two such sets.
    """

    dim: int
    per_client: int
    alpha: Fraction
    differ: int = 1

    def __post_init__(self) -> None:
        if 1 <= self.dim <= self.per_client:
            raise UsageError(
                f"a client may send {self.per_client:,} of {self.dim:,} coordinates, so it sends all of them: no set "
                "is chosen, and there is no choice that this account could bound"
            )
        if not 1 <= self.per_client < self.dim <= LARGEST:
            raise UsageError(
                f"a client sends {self.per_client:,} of {self.dim:,} coordinates: at least 1, of {LARGEST:,} at most"
            )
        if not 0 <= self.alpha <= 1:
            raise UsageError(f"alpha is within 0 and 1, not {self.alpha}")
        if not 1 <= self.differ <= min(self.per_client, self.dim - self.per_client):
            raise UsageError(
                f"sets of {self.per_client} of {self.dim} coordinates cannot differ in {self.differ}",
                f"They can differ in 1 to {min(self.per_client, self.dim - self.per_client)}.",
            )

    @property
    def odds(self) -> Fraction:
        """How much likelier a top coordinate is kept than given up; alpha must not be 0."""
        return (1 - self.alpha) / self.alpha

    @property
    def least_overlap(self) -> int:
        """The smallest overlap that two sets can have."""
        return max(0, 2 * self.per_client - self.dim)


def probability(mechanism: ConSpar, overlap: int) -> Fraction:
    """The probability of one set that has this overlap with the top set: equation 18, exactly. For small numbers."""
    k, kept = mechanism.per_client, 1 - mechanism.alpha
    terms = (
        comb(overlap, i) * kept**i * mechanism.alpha ** (k - i) / comb(mechanism.dim - i, k - i)
        for i in range(overlap + 1)
    )
    return sum(terms, Fraction(0))


def epsilon(mechanism: ConSpar) -> float:
    """The pure epsilon of one round; infinite at alpha 0."""
    if mechanism.alpha == 0:
        return inf
    if mechanism.alpha == 1:
        return 0.0
    if mechanism.differ > DIFFERING:
        raise BudgetError(f"sets that differ in more than {DIFFERING:,} coordinates are not looked at")
    return fsum(
        log1p(growth) for growth in growths(mechanism, mechanism.per_client - mechanism.differ, mechanism.per_client)
    )


def growths(mechanism: ConSpar, low: int, high: int) -> list[float]:
    """f(u + 1) / f(u) - 1 for u = low .. high - 1; alpha must be within (0, 1).

    Neighbours g(u - 1) and g(u) are tied: (k - u) g(u) = d odds - u (1 + odds) g(u - 1) / (1 + g(u - 1)). Going up
    loses digits where going down does not, so both ends are computed by their sums, and followed as far as they go.
    """
    found = [0.0] * (high - low)
    first, last = low, high
    while first < last:
        for growth in _upwards(mechanism, first, last):
            found[first - low] = growth
            first += 1
        for growth in _downwards(mechanism, last - 1, first):
            last -= 1
            found[last - low] = growth
    return found


def _upwards(mechanism: ConSpar, first: int, end: int) -> Iterator[float]:
    """g(first), and those after it while their relative error is below :data:`ERROR`."""
    d, k, odds = float(mechanism.dim), mechanism.per_client, float(mechanism.odds)
    growth, error = growth_by_sum(mechanism, first), SUMMED
    yield growth
    for u in range(first + 1, end):
        lost = u * (1 + odds) * growth / (1 + growth)
        rest = d * odds - lost
        error = error * lost / (1 + growth) + SUMMED * (d * odds + lost)
        if error > ERROR * rest:
            return
        growth, error = rest / (k - u), error / rest
        yield growth


def _downwards(mechanism: ConSpar, first: int, end: int) -> Iterator[float]:
    """g(first), and those before it down to g(end), while their relative error is below :data:`ERROR`."""
    d, k, odds = float(mechanism.dim), mechanism.per_client, float(mechanism.odds)
    if first < end:
        return
    growth, error = growth_by_sum(mechanism, first), SUMMED
    yield growth
    for u in range(first, end, -1):
        lost, whole = (k - u) * growth, u * (1 + odds)
        rest = d * odds - lost
        other = whole - rest
        error = (error * lost + SUMMED * (d * odds + lost + whole)) * whole
        if error > ERROR * rest * other:
            return
        growth, error = rest / other, error / (rest * other)
        yield growth


def growth_by_sum(mechanism: ConSpar, u: int) -> float:
    """f(u + 1) / f(u) - 1 as a mean of odds (d - i) / (k - i) over i <= u, with the terms of f(u) as weights.

    No term is negative. The terms are made of ratios of neighbours, from the largest of them on.
    """
    import numpy as np

    d, k, odds = mechanism.dim, mechanism.per_client, float(mechanism.odds)
    peak = _peak(mechanism, u)
    width = 256
    while True:
        low, high = max(0, peak - width), min(u, peak + width)
        i = np.arange(low, high, dtype=np.float64)
        logs = np.concatenate([[0.0], np.cumsum(np.log(odds * (u - i) * (d - i) / ((i + 1) * (k - i))))])
        logs -= logs[peak - low]
        if (low == 0 or logs[0] < NEGLIGIBLE) and (high == u or logs[-1] < NEGLIGIBLE):
            break
        width *= 2
    weights, places = np.exp(logs), np.arange(low, high + 1, dtype=np.float64)
    return float(odds * np.sum(weights * (d - places) / (k - places)) / np.sum(weights))


def _peak(mechanism: ConSpar, u: int) -> int:
    """Where the terms of f(u) are largest: they rise, and then fall."""
    d, k, odds = mechanism.dim, mechanism.per_client, float(mechanism.odds)
    low, high = 0, u
    while low < high:
        middle = (low + high) // 2
        if odds * (u - middle) * (d - middle) > (middle + 1) * (k - middle):
            low = middle + 1
        else:
            high = middle
    return low
