"""example-name: an adversary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuaudit.plugins import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ExampleAdversary:
    """Named clients call all their training samples by one class.

    Attributes:
        clients: their ids.
        label: the class.
    """

    clients: tuple[int, ...] = (0,)
    label: int = 0

    def __post_init__(self) -> None:
        if self.label < 0:
            raise UsageError(f"label must be a class, from 0, not {self.label}")

    def turn(self, inputs: Tensor, target: int, classes: int) -> tuple[Tensor, int]:
        """One row of its clients: inputs ``(*shape)`` and target before, inputs and target after."""
        if self.label >= classes:
            raise UsageError(f"label must be a class below {classes}, not {self.label}")
        return inputs, self.label
