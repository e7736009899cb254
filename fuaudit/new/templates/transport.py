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
        """Means ``(b, c)`` of rows ``(n, c)``, of which there may be none; nothing where too few have samples."""
        import torch  # here, so that commands that train nothing start at once

        taken = context.cohort.trained.nonzero()[:, 0]  # rows of clients without samples would hide nobody
        means, sent = [rows[:0]], torch.zeros_like(rows)
        if len(taken) >= self.size:
            order = torch.from_numpy(context.shared.permutation("order", len(taken))).to(rows.device)
            for some in taken[order].tensor_split(len(taken) // self.size):
                mean = rows[some].mean(dim=0, keepdim=True)
                if bool(mean.isfinite().all()):  # else a Byzantine client is in it
                    means.append(mean)
                    sent[some] = rows[some]
        shown = torch.cat(means)
        return Delivery(shown, context.cohort.counted(len(shown)), sent)

    def in_the_clear(self) -> ExampleTransport:
        """Itself: there is no cryptography."""
        return self
