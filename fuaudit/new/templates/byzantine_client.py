"""example-name: a stage of Byzantine clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuaudit.plugins import RoundContext, State, Stateless, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ExampleByzantineClient(Stateless):
    """Named clients send the opposite of the mean of all rows, ``scale`` times as long.

    Attributes:
        clients: their ids.
        scale: of what they send, above 0.
    """

    clients: tuple[int, ...] = (0,)
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise UsageError(f"scale must be above 0 and finite, not {self.scale}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """``(n, c) -> (n, c)``; the rows of its clients are taken, those of others stay as they were."""
        return (-self.scale * updates.mean(dim=0)).expand(updates.shape), state
