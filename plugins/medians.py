"""Medians and the trimmed mean.

Yin, Chen, Kannan, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates" (ICML 2018),
for both coordinate rules; Pillutla, Kakade, Harchaoui: "Robust Aggregation for Federated Learning" (IEEE TSP 2022,
arXiv 1912.13445) for the smoothed Weiszfeld algorithm.

With f of n rows arbitrary, f < n / 2, x the mean of the others and s^2 their mean squared distance from x, a rule's row
is within sqrt(kappa) s of x; it is (delta, c)-robust at delta = f / n with c = kappa / (2 delta). docs/robust.md proves
every kappa below.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

from fuaudit_plugins.robust import ascending, lengths, of_rows, require_rows, require_trim, trimmed

from fuaudit.plugins import RoundContext, State, Stateless, UsageError, mean, weighted_sum

if TYPE_CHECKING:
    from torch import Tensor


def middle(rows: Tensor, trim: int) -> Tensor:
    """The mean ``(1, d)`` of what is left of each coordinate of ``(n, d)`` without the ``trim`` least and largest.

    Added in ascending order: the bits do not depend on the order of rows.
    """
    return mean(ascending(rows, trim, len(rows) - trim))


def median(rows: Tensor) -> Tensor:
    """The median of each coordinate; of two middle values their mean."""
    return middle(rows, (len(rows) - 1) // 2)


def weighed(rows: Tensor, away: Tensor, least: float) -> Tensor:
    """Weiszfeld's step ``(1, d)``: the mean of rows ``(n, d)`` by 1 / max(distance, least), from distances ``(n,)``."""
    weights = least / away.clamp(min=least)
    return weighted_sum(rows, (weights / weights.cumsum(dim=0)[-1]).to(rows.dtype))


@dataclass(frozen=True)
class CoordinateMedian(Stateless):
    """The median of each coordinate; of two middle values the mean.

    Guarantee: kappa = (n - 1) / (n + 1 - 2f) for odd n, (n - 2) / (n + 2 - 2f) for even n: that of the trimmed mean
    which leaves one value or two. It stays near 1 where f is 0, so c grows like 1 / delta.

    It publishes single coordinates of single rows as they are, where n is odd; where n is 1, a row.
    """

    guarantee: ClassVar[str] = "kappa = (n - 1) / (n + 1 - 2f) for odd n, (n - 2) / (n + 2 - 2f) for even n"
    cite: ClassVar[str] = "Yin and others, ICML 2018"

    def publishes(self, rows: int) -> str:
        """Coordinates, of an odd number."""
        return "coordinates" if rows % 2 else ""

    def bears(self, rows: int) -> int:
        """Fewer than half."""
        return max(0, rows - 1) // 2

    def aggregate(self, rows: Tensor) -> Tensor:
        """One row ``(1, d)`` of the rows ``(n, d)``."""
        return median(rows)

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        return of_rows(self.aggregate, updates, context), state


@dataclass(frozen=True)
class TrimmedMean(Stateless):
    """The mean of each coordinate without its least and its largest values.

    A fraction is taken as the decimal it is written as, of the rows that came, and rounded down.

    Guarantee: kappa = b / (n - f - b) where b >= f values are trimmed a side, and no less. With b = f that is
    f / (n - 2f), the least that any rule can have. Whatever f <= b is, c = 1 / (2 (1 - 2 delta)) at delta = b / n.

    It publishes single coordinates of single rows as they are, where one value is left.

    Attributes:
        trim: how many values are left out a side, a whole number, or which fraction of the rows, below 0.5.
    """

    trim: int | float
    guarantee: ClassVar[str] = "kappa = b / (n - f - b) where b >= f values are trimmed a side"
    cite: ClassVar[str] = "Yin and others, ICML 2018"

    def __post_init__(self) -> None:
        require_trim(self.trim)

    @property
    def least_rows(self) -> int:
        """See :data:`fuaudit.declared.WORDS`; a fraction leaves a row of any number."""
        return 2 * self.trim + 1 if isinstance(self.trim, int) else 1

    def publishes(self, rows: int) -> str:
        """Coordinates, where one value is left."""
        return "coordinates" if rows - 2 * trimmed(self.trim, rows) == 1 else ""

    def bears(self, rows: int) -> int:
        """As many as are left out a side."""
        return int(trimmed(self.trim, rows))

    def aggregate(self, rows: Tensor) -> Tensor:
        """One row ``(1, d)`` of the rows ``(n, d)``; UsageError where they are too few."""
        trim = trimmed(self.trim, len(rows))
        require_rows(
            "trimmed-mean", len(rows), self.least_rows, f"Trim fewer than {trim} a side, or let more take part."
        )
        return middle(rows, trim)

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        return of_rows(self.aggregate, updates, context), state


@dataclass(frozen=True)
class GeometricMedian(Stateless):
    """The point with the least sum of distances to all rows, as far as a fixed number of Weiszfeld's steps leads.

    It starts at the coordinate median, and weighs each row by 1 / max(distance, nu). nu is ``smoothing`` times the
    lower median of the first distances.

    What differs from print, and why: print takes an absolute nu, and code starts at the mean or at 0. From the mean, a
    row that is far enough away keeps any fixed number of steps far away. An absolute nu turns the rule into the mean
    where updates are shorter than it. No step makes the sum of distances larger, and that bounds how far steps lead;
    they can still lead further away than the start ever is (docs/robust.md). A start at a row is left slowly.

    Guarantee: with r = (n - f) / (n - 2f), kappa = 4 r^2 for the point itself. After any number of steps kappa is
    (2 r + n / (n - 2f) sqrt(k))^2, up to the smoothing, with k that of the coordinate median. c grows like 1 / delta.

    It can publish a row nearly as it is: one that is the geometric median, which a majority of equal rows always is.
    Rows are added in the order of places, so the last bits depend on it. Rows more than 1e150 apart are left at the
    coordinate median, or where a step led.

    Attributes:
        steps: how many of Weiszfeld's steps are taken, at least 1.
        smoothing: the least distance that a row is taken to have, in median distances; above 0, at most 1.
    """

    steps: int = 8
    smoothing: float = 1e-6
    guarantee: ClassVar[str] = (
        "kappa = ((2 (n - f) + n sqrt(k)) / (n - 2f))^2, k of the coordinate median, up to the smoothing"
    )
    cite: ClassVar[str] = "Pillutla and others, IEEE TSP 2022"

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.smoothing <= 1:
            raise UsageError("geometric-median needs at least 1 step, and a smoothing above 0 and at most 1")

    def bears(self, rows: int) -> int:
        """Fewer than half."""
        return max(0, rows - 1) // 2

    def aggregate(self, rows: Tensor) -> Tensor:
        """One row ``(1, d)`` of the rows ``(n, d)``."""
        point = median(rows)
        away = lengths(rows, point)
        least = self.smoothing * float(away.sort().values[(len(rows) - 1) // 2])
        if not 0 < least < inf:
            return point  # half of the rows lie there, so it is the median; or no distance is a number
        point = weighed(rows, away, least)
        for _ in range(self.steps - 1):
            away = lengths(rows, point)
            if not bool(away.isfinite().any()):
                break  # a last bit is further from every row than a square can be
            point = weighed(rows, away, least)
        return point

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        return of_rows(self.aggregate, updates, context), state
