"""example-name: an agreement of clients on the coordinates that they send in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuaudit.plugins import Rejected, RoundContext, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ExampleAgreement:
    """Each client proposes its ``keep`` largest coordinates; all send the union.

    Attributes:
        keep: how many coordinates a client proposes, at least 1.
    """

    keep: int = 50

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UsageError(f"keep must be at least 1, not {self.keep}")

    def propose(self, updates: Tensor, context: RoundContext) -> list[Tensor]:
        """Of each row of ``(n, c)`` the columns ``(k,)``, from it alone."""
        return list(updates.abs().argsort(dim=1, descending=True, stable=True)[:, : self.keep])

    def agree(self, proposals: list[Tensor], context: RoundContext) -> Tensor:
        """The columns of the rest of the round, ``(c',)``, ascending. What no honest client proposes is told."""
        import torch  # here, so that commands that train nothing start at once

        taken = [context.vectors.new_zeros(0, dtype=torch.int64)]
        for client, columns in zip(context.cohort.clients.tolist(), proposals, strict=True):
            if len(columns) > self.keep:
                context.tell(Rejected(client, "too many coordinates"))
            elif bool(((columns < 0) | (columns >= context.columns)).any()):
                context.tell(Rejected(client, "coordinates out of range"))
            else:
                taken.append(columns)
        agreed: Tensor = torch.cat(taken).unique()
        return agreed
