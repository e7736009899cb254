"""Built-in models."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from fuaudit.errors import UsageError


@dataclass(frozen=True)
class Linear:
    """Multinomial logistic regression."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers with ReLU between them. ``hidden = [32]`` on digits has 2,410 parameters."""

    hidden: tuple[int, ...] = (32,)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        widths = (prod(shape), *self.hidden, classes)
        layers: list[nn.Module] = [nn.Flatten()]
        for wide, narrow in pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class Cnn:
    """The small CNN for 28 x 28 images: 5 x 5 convolutions with 10 and 20 channels, 50 hidden units.

    The FATS paper says "CNN" without printing layers. On MNIST this one has 21,840 parameters.
    """

    channels: tuple[int, ...] = (10, 20)
    hidden: int = 50

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        if len(shape) != 3:
            raise UsageError(f"a CNN reads images (channels, height, width), not inputs of shape {shape}")
        layers: list[nn.Module] = []
        channels, height, width = shape
        for wide in self.channels:
            layers += [nn.Conv2d(channels, wide, 5), nn.ReLU(), nn.MaxPool2d(2)]
            channels, height, width = wide, (height - 4) // 2, (width - 4) // 2
        if min(height, width) < 1:
            raise UsageError(f"images of shape {shape} are too small for {len(self.channels)} convolutions of 5 x 5")
        return nn.Sequential(
            *layers,
            nn.Flatten(),
            nn.Linear(channels * height * width, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, classes),
        )
