"""Gaussian: Byzantine clients send noise.

Blanchard, El Mhamdi, Guerraoui, Stainer: "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent"
(NeurIPS 2017), in its experiments. Each coordinate of each of their rows is drawn by itself:

    row_k <- deviation * N(0, 1)

What differs from print, and why: nothing; the default deviation is the printed one, made for gradients. Updates are
shorter by their step size, so 200 is far away from all of them: a mean fails at once, and most rules do not notice.

It sees: nothing but how long a row is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import RoundContext, State, Stateless, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Gaussian(Stateless):
    """Named clients send normal noise, drawn anew in every round, each its own. They see no row.

    Attributes:
        clients: their ids.
        deviation: the standard deviation of a coordinate, above 0.
    """

    clients: tuple[int, ...]
    deviation: float = 200.0
    draws: ClassVar[bool] = True
    sees: ClassVar[str] = "own"
    cite: ClassVar[str] = "Blanchard, El Mhamdi, Guerraoui and Stainer, NeurIPS 2017"

    def __post_init__(self) -> None:
        if not 0 < self.deviation < inf:
            raise UsageError(f"gaussian needs a finite deviation above 0, not {self.deviation}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.Byzantine`."""
        import torch

        rows = updates.clone()
        for place in context.cohort.named(self.clients).nonzero()[:, 0].tolist():
            noise = context.own(place).normal("row", rows.shape[1])
            rows[place] = self.deviation * torch.from_numpy(noise).to(rows)
        return rows, state
