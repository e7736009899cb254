"""example-name: a model."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from fuaudit.plugins import UsageError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ExampleModel:
    """One hidden layer with tanh.

    Attributes:
        hidden: units of the hidden layer, at least 1.
    """

    hidden: int = 16

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise UsageError(f"hidden must be at least 1, not {self.hidden}")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module that maps ``(B, *shape)`` to logits ``(B, classes)``; the values of its parameters do not matter."""
        from torch import nn  # here, so that commands without a model start at once

        return nn.Sequential(
            nn.Flatten(), nn.Linear(prod(shape), self.hidden), nn.Tanh(), nn.Linear(self.hidden, classes)
        )
