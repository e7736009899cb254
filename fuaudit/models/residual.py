"""Residual networks for images of about 32 x 32. He, Zhang, Ren, Sun (CVPR 2016, arXiv 1512.03385).

Groups of channels are normalised, not batches: see :mod:`fuaudit.models.layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.models.convolutional import images, normalisation
from fuaudit.models.sizes import require_positive

if TYPE_CHECKING:
    from torch import nn


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
        from torch import nn

        from fuaudit.models.residual_modules import Average, Block

        layers: list[nn.Module] = [
            nn.Conv2d(images(shape)[0], self.width, 3, padding=1, bias=False),
            *normalisation(self.groups, self.width),
            nn.ReLU(),
        ]
        narrow = self.width
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                wide, stride = self.width << stage, 2 if stage and not block else 1
                layers.append(Block(narrow, wide, stride, self.groups, self.projected))
                narrow = wide
        return nn.Sequential(*layers, Average(), nn.Linear(narrow, classes))


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
