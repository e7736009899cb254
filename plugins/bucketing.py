"""Bucketing: a rule behind it sees means of few rows, put together by lot.

Karimireddy, He, Jaggi: "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing" (ICLR 2022), Algorithm 1.

What differs from print, and why: nothing; the last bucket may be smaller, and counts in full, as in the authors' code.

Guarantee: of n / s buckets at most f are bad, and honest ones are nearer to each other: the expected squared distance
of two that hold s honest rows is at most rho^2 / s, because they are disjoint samples without replacement. So a rule
behind it is told f among ceil(n / s) rows: where 2f is not below that, no rule has a guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import RoundContext, State, Stateless, UsageError, mean

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Bucketing(Stateless):
    """Replaces the rows by the means of buckets of some rows each, in an order that all draw together.

    It hides no row from the server, which has seen them all.

    Attributes:
        size: how many rows a bucket holds, at least 1; the last one may hold fewer.
    """

    size: int = 2
    cite: ClassVar[str] = "Karimireddy and others, ICLR 2022"
    draws: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"bucketing needs a size of at least 1, not {self.size}")

    def rows_left(self, rows: int) -> int:
        """How many buckets there are of so many rows."""
        return -(-rows // self.size)

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        import torch

        rows = updates[context.cohort.present]
        order = torch.from_numpy(context.shared.permutation("order", len(rows))).to(rows.device)
        buckets = rows[order].split(self.size)
        return torch.cat([mean(one) for one in buckets]), state
