"""Krum and multi-Krum: rows whose nearest neighbours are near.

Blanchard, El Mhamdi, Guerraoui, Stainer: "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent"
(NeurIPS 2017). A row's score is the sum of its squared distances to its n - f - 2 nearest other rows. Krum takes the
row with the least score, multi-Krum the mean of some rows with the least scores.

What differs from print, and why: print asks for n >= 2f + 3. A score needs n >= f + 3, and the guarantee n >= 2f + 2;
only the first is asked for, because f is what the user fears, and a round may have fewer rows. With fewer than f + 3
it fails.

Guarantee: with g = n - f and q = n - 2f - 1, kappa = (sqrt(2g) + sqrt(f + 1))^2 / q for n >= 2f + 2, of both rules;
docs/robust.md says what kappa is, and proves it. It stays above 2 where f is 0, so c = kappa n / (2f) grows like
1 / delta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit_plugins.robust import of_rows, require_rows, table_of_squares

from fuaudit.plugins import RoundContext, State, Stateless, UsageError, mean

if TYPE_CHECKING:
    from torch import Tensor


def scores(rows: Tensor, byzantine: int) -> Tensor:
    """The score of each of the rows ``(n, d)``: ``(n,)`` in float64."""
    import torch

    nearest = table_of_squares(rows).fill_diagonal_(torch.inf).sort(dim=1).values[:, : len(rows) - byzantine - 2]
    summed: Tensor = nearest.cumsum(dim=1)[:, -1]
    return summed


def best(rule: str, rows: Tensor, byzantine: int) -> Tensor:
    """Places by score, ascending; of equal ones the lower place comes first."""
    require_rows(rule, len(rows), _least(byzantine), "Fear fewer Byzantine rows, or let more take part.")
    return scores(rows, byzantine).sort(stable=True).indices


def _least(byzantine: int) -> int:
    """How many rows a score needs: one has a neighbour then."""
    return byzantine + 3


def _borne(byzantine: int, rows: int) -> int:
    """How many bad rows of so many there is a guarantee for: fewer rows can be each other's neighbours alone."""
    return byzantine if rows >= 2 * byzantine + 2 else 0


def _require(rule: str, byzantine: int) -> None:
    if byzantine < 0:
        raise UsageError(f"{rule} needs a number of Byzantine rows of at least 0, not {byzantine}")


@dataclass(frozen=True)
class Krum(Stateless):
    """The row whose n - f - 2 nearest others are nearest; of equal ones that at the lowest place.

    It always publishes one row as it is: behind sums of two a partner subtracts its own.

    Attributes:
        byzantine: f, how many rows may be bad; it needs f + 3 rows.
    """

    byzantine: int
    guarantee: ClassVar[str] = (
        "kappa = (sqrt(2g) + sqrt(f + 1))^2 / (n - 2f - 1) of g = n - f honest rows, for n >= 2f + 2"
    )
    cite: ClassVar[str] = "Blanchard and others, NeurIPS 2017"
    abrupt: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require("krum", self.byzantine)

    @property
    def least_rows(self) -> int:
        """See :data:`fuaudit.declared.WORDS`."""
        return _least(self.byzantine)

    def publishes(self, rows: int) -> str:
        """A row, of any number."""
        return "row"

    def bears(self, rows: int) -> int:
        """f, of 2f + 2 rows or more."""
        return _borne(self.byzantine, rows)

    def aggregate(self, rows: Tensor) -> Tensor:
        """One row ``(1, d)`` of the rows ``(n, d)``; UsageError where they are too few."""
        return rows[best("krum", rows, self.byzantine)[:1]]

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        return of_rows(self.aggregate, updates, context), state


@dataclass(frozen=True)
class MultiKrum(Stateless):
    """The mean of the rows with the least scores of Krum; of equal ones those at lower places.

    Added from the least score on: without ties the bits do not depend on the order of rows. It publishes one row as it
    is where one is kept.

    Attributes:
        byzantine: f, how many rows may be bad; it needs f + 3 rows.
        keep: how many rows are averaged, at most n - f; left out, n - f - 2.
    """

    byzantine: int
    keep: int | None = None
    guarantee: ClassVar[str] = (
        "kappa = (sqrt(2g) + sqrt(f + 1))^2 / (n - 2f - 1) of g = n - f honest rows, for n >= 2f + 2, keep <= n - f"
    )
    cite: ClassVar[str] = "Blanchard and others, NeurIPS 2017"
    abrupt: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require("multi-krum", self.byzantine)
        if self.keep is not None and self.keep < 1:
            raise UsageError(f"multi-krum keeps at least 1 row, not {self.keep}")

    @property
    def least_rows(self) -> int:
        """See :data:`fuaudit.declared.WORDS`."""
        return max(_least(self.byzantine), (self.keep or 1) + self.byzantine)

    def _kept(self, rows: int) -> int:
        return self.keep or rows - self.byzantine - 2

    def publishes(self, rows: int) -> str:
        """A row, where one is kept."""
        return "row" if self._kept(rows) == 1 else ""

    def bears(self, rows: int) -> int:
        """f, of 2f + 2 rows or more."""
        return _borne(self.byzantine, rows)

    def aggregate(self, rows: Tensor) -> Tensor:
        """One row ``(1, d)`` of the rows ``(n, d)``; UsageError where they are too few."""
        order, keep = best("multi-krum", rows, self.byzantine), self._kept(len(rows))
        require_rows("multi-krum", len(rows), keep + self.byzantine, "Keep fewer rows, or let more take part.")
        return mean(rows[order[:keep]])

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        return of_rows(self.aggregate, updates, context), state
