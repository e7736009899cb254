"""example-name: a client stage, what a client does with its own row before it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import RoundContext, State, Stateless, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ExampleClientStage(Stateless):
    """Sends each coordinate with probability ``share``, divided by it, and zero in the place of the others.

    Attributes:
        share: the probability, above 0 and at most 1.
    """

    share: float = 0.5
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"share must be above 0 and at most 1, not {self.share}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """``(n, c) -> (n, c)``, each row by what its own client draws."""
        import torch  # here, so that commands that train nothing start at once

        drawn = [torch.from_numpy(context.own(row).uniform("sent", updates.shape[1])) for row in range(len(updates))]
        sent = torch.stack(drawn).to(updates.device) < self.share
        return updates * sent / self.share, state
