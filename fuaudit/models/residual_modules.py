"""Modules of residual networks. They are torch's, so only what builds a model imports them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fuaudit.models.convolutional import normalisation


class Narrowed(nn.Module):
    """A shortcut without parameters: every second pixel, and zeros for the channels that are new (option A)."""

    def __init__(self, surplus: int, stride: int) -> None:
        super().__init__()
        self.surplus, self.stride = surplus, stride

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, c, h, w)`` to ``(B, c + surplus, h / stride, w / stride)``."""
        before = self.surplus // 2
        kept = inputs[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(kept, (0, 0, 0, 0, before, self.surplus - before))


class Block(nn.Module):
    """Two convolutions of 3 x 3 beside a shortcut."""

    def __init__(self, narrow: int, wide: int, stride: int, groups: int, projected: bool) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(narrow, wide, 3, stride, padding=1, bias=False),
            *normalisation(groups, wide),
            nn.ReLU(),
            nn.Conv2d(wide, wide, 3, padding=1, bias=False),
            *normalisation(groups, wide),
        )
        self.shortcut: nn.Module = nn.Identity()
        if projected and (stride, narrow) != (1, wide):
            self.shortcut = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride, bias=False), *normalisation(groups, wide))
        elif (stride, narrow) != (1, wide):
            self.shortcut = Narrowed(wide - narrow, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, narrow, h, w)`` to ``(B, wide, h / stride, w / stride)``."""
        return torch.relu(self.path(inputs) + self.shortcut(inputs))


class Average(nn.Module):
    """The mean over all pixels."""

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, c, h, w)`` to ``(B, c)``."""
        return inputs.mean(dim=(2, 3))
