"""example-name: a transport, the way of rows to the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import Delivery, RoundContext, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ExampleTransport:
    """Shows the server means of ``size`` rows or more, put together by a drawn order.

    Attributes:
        size: the fewest rows of a mean, at least 2.
    """

    size: int = 2
    shows: ClassVar[str] = "sums"
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 2:
            raise UsageError(f"size must be at least 2, not {self.size}")

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """Means ``(b, c)`` of rows ``(n, c)``, of which there may be none; nothing where they are too few."""
        import torch  # here, so that commands that train nothing start at once

        if len(rows) < self.size:
            return Delivery(rows[:0], context.cohort.counted(0), torch.zeros_like(rows))
        order = torch.from_numpy(context.shared.permutation("order", len(rows))).to(rows.device)
        means = torch.stack([rows[some].mean(dim=0) for some in order.tensor_split(len(rows) // self.size)])
        return Delivery(means, context.cohort.counted(len(means)), rows)

    def in_the_clear(self) -> ExampleTransport:
        """Itself: there is no cryptography."""
        return self
