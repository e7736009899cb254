"""The spectral filter of F2ed-Learning: rows lose weight along the direction in which they vary too much.

Wang, Pang, Wang, Song: "Towards Bidirectional Protection in Federated Learning" (arXiv 2010.01175), FilterL2. Behind
``secure-sum`` it works on means of shards. All n rows begin with weight c = 1:

1. mu and S are the weighted mean and covariance of the rows; lambda and v are the top eigenvalue of S and its vector.
2. If lambda <= 9 sigma^2, mu is the row.
3. Else with tau_i = <v, x_i - mu>^2, c_i <- (1 - tau_i / max tau) c_i, the maximum over rows with weight; go to 1.

What differs from print, and why:

- The eigenvector is that of the n x n table of inner products, which has the same eigenvalue. So large d needs no
  chunks.
- Where all rows with weight have the largest tau, no weight would be left, and print divides 0 by 0. There mu is the
  row, under the weights that there were. Two rows, or two heaps of equal rows with equal weight, are such rows.
- sigma has no default: it is the scale of honest rows, which only the user knows.

Guarantee: let sigma^2 be at least the variance of the honest rows in every direction. For f <= n / 8 the error is at
most 4 sigma sqrt(f / (n - 2f)); docs/robust.md proves it. The number of coordinates does not enter.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING, ClassVar

from fuaudit_plugins.robust import of_rows, table_of_squares

from fuaudit.plugins import RoundContext, State, Stateless, UsageError, weighted_sum

if TYPE_CHECKING:
    from torch import Tensor


def variation(apart: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    """The top eigenvalue of the weighted covariance, and tau ``(n,)`` up to a factor: the largest is 1.

    It needs squared distances ``(n, n)`` and weights ``(n,)`` that add up to 1.
    """
    import torch

    away = apart @ weights
    inner = (away[:, None] + away[None, :] - apart - weights @ away) / 2
    roots = weights.sqrt()
    values, vectors = torch.linalg.eigh(roots[:, None] * inner * roots[None, :])
    along = (inner @ (roots * vectors[:, -1])).abs() * (weights > 0)
    return float(values[-1]), (along / along.max()).square()


ROUNDING = 1e-12
"""What share of the weight is none: rows with equal tau differ by a few last bits."""


@dataclass(frozen=True)
class SpectralFilter(Stateless):
    """The weighted mean of the rows that are left when they vary by at most 9 sigma^2 in every direction.

    It publishes one row as it is where all others lost their weight. Rows are added in the order of places, and the
    eigenvector is LAPACK's: last bits depend on both. Where rows vary equally in two directions, which comes first does
    too.

    Attributes:
        sigma: the largest standard deviation of honest rows in any direction, above 0; infinite for the mean.
    """

    sigma: float
    guarantee: ClassVar[str] = (
        "an error of at most 4 sigma sqrt(f / (n - 2f)) for f <= n / 8 and a sigma of the honest rows"
    )
    cite: ClassVar[str] = "Wang and others, 2020"
    abrupt: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise UsageError(f"spectral-filter needs a sigma above 0, not {self.sigma}")

    def publishes(self, rows: int) -> str:
        """A row, where all others lost their weight; nothing where sigma is infinite."""
        return "" if isinf(self.sigma) else "row"

    def bears(self, rows: int) -> int:
        """An eighth."""
        return 0 if isinf(self.sigma) else rows // 8

    def aggregate(self, rows: Tensor) -> Tensor:
        """One row ``(1, d)`` of the rows ``(n, d)``."""
        # what is too far for a square counts as far, and rows that are no numbers make NaN of the row later
        apart = table_of_squares(rows).cpu().nan_to_num(nan=0.0, posinf=1e300)
        weights = apart.new_full((len(rows),), 1 / len(rows))
        for _ in range(len(rows)):  # each step takes all weight of one row
            largest, along = variation(apart, weights)
            left = weights * (1 - along)
            if largest <= 9 * self.sigma * self.sigma or not float(left.sum()) > ROUNDING:
                break
            weights = left / left.sum()
        return weighted_sum(rows, weights.to(rows))

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        return of_rows(self.aggregate, updates, context), state
