"""example-name: an aggregator, the server's map from the updates of a round to one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import RoundContext, State, Stateless, UsageError, weighted_sum

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ExampleAggregator(Stateless):
    """The mean of the updates, each scaled to a length of at most ``norm``.

    Attributes:
        norm: the largest length of an update, above 0.
    """

    norm: float = 1.0
    vectorised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.norm < float("inf"):
            raise UsageError(f"norm must be above 0 and finite, not {self.norm}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """``(n, d) -> (1, d)``; leading axes of runs are treated elementwise."""
        length = (updates * updates).cumsum(dim=-1)[..., -1:].sqrt()
        short = updates * (self.norm / length.clamp(min=self.norm))
        present = context.cohort.present.to(updates.dtype)
        return weighted_sum(short, present / present.sum(dim=-1, keepdim=True)), state
