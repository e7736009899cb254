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

        trained = context.cohort.trained.nonzero()[:, 0]  # rows of clients without samples would hide nobody
        means, sent, taken = [rows[:0]], torch.zeros_like(rows), torch.zeros_like(context.cohort.trained)
        if len(trained) >= self.size:
            order = torch.from_numpy(context.shared.permutation("order", len(trained))).to(rows.device)
            for some in trained[order].tensor_split(len(trained) // self.size):
                mean = rows[some].mean(dim=0, keepdim=True)
                if bool(mean.isfinite().all()):  # else a Byzantine client is in it
                    means.append(mean)
                    sent[some], taken[some] = rows[some], True
        shown = torch.cat(means)
        if not context.enough(len(shown)):  # the round fails: over a model that stays no sum is opened
            shown, sent, taken = rows[:0], torch.zeros_like(rows), torch.zeros_like(taken)
        return Delivery(shown, context.cohort.counted(len(shown)), sent, taken)

    def in_the_clear(self) -> ExampleTransport:
        """Itself: there is no cryptography."""
        return self
