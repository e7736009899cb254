"""Residual networks for images of about 32 x 32. He, Zhang, Ren, Sun (CVPR 2016, arXiv 1512.03385).

Groups of channels are normalised, not batches: see :mod:`fuaudit.models.layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fuaudit.models.convolutional import images, normalisation
from fuaudit.models.layout import require_positive


class _Narrowed(nn.Module):
    """A shortcut without parameters: every second pixel, and zeros for the channels that are new (option A)."""

    def __init__(self, surplus: int, stride: int) -> None:
        super().__init__()
        self.surplus, self.stride = surplus, stride

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, c, h, w)`` to ``(B, c + surplus, h / stride, w / stride)``."""
        before = self.surplus // 2
        kept = inputs[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(kept, (0, 0, 0, 0, before, self.surplus - before))


class _Block(nn.Module):
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
            self.shortcut = _Narrowed(wide - narrow, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, narrow, h, w)`` to ``(B, wide, h / stride, w / stride)``."""
        return torch.relu(self.path(inputs) + self.shortcut(inputs))


class _Average(nn.Module):
    """The mean over all pixels."""

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, c, h, w)`` to ``(B, c)``."""
        return inputs.mean(dim=(2, 3))


@dataclass(frozen=True)
class _ResNet:
    """A convolution, stages of blocks that halve the image and double the channels, an average, a linear layer.

    Attributes:
        width: channels of the first stage.
        groups: how many groups of channels are normalised, each by itself; a divisor; 0 for none.
    """

    width: int
    groups: int
    stages: ClassVar[tuple[int, ...]]
    projected: ClassVar[bool]

    def __post_init__(self) -> None:
        require_positive("a ResNet", self.width)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        layers: list[nn.Module] = [
            nn.Conv2d(images(shape)[0], self.width, 3, padding=1, bias=False),
            *normalisation(self.groups, self.width),
            nn.ReLU(),
        ]
        narrow = self.width
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                wide, stride = self.width << stage, 2 if stage and not block else 1
                layers.append(_Block(narrow, wide, stride, self.groups, self.projected))
                narrow = wide
        return nn.Sequential(*layers, _Average(), nn.Linear(narrow, classes))


@dataclass(frozen=True)
class ResNet18(_ResNet):
    """ResNet-18 with a 3 x 3 stem and no first pooling, for CIFAR; 11,173,962 parameters for ten classes.

    For the stability-fairness paper (7.1). Shortcuts are projected where the shape changes (option B).
    """

    width: int = 64
    groups: int = 32
    stages: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)
    projected: ClassVar[bool] = True


@dataclass(frozen=True)
class ResNet20(_ResNet):
    """ResNet-20 in the CIFAR form of He et al. (section 4.2); 269,722 parameters for ten classes.

    For the FedREP paper (section 5). Shortcuts have no parameters (option A).
    """

    width: int = 16
    groups: int = 8
    stages: ClassVar[tuple[int, ...]] = (3, 3, 3)
    projected: ClassVar[bool] = False
