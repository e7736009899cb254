"""Models of linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from fuaudit.models.sizes import require_positive

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Linear:
    """Multinomial logistic regression."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers with ReLU between them. ``hidden = [32]`` on digits has 2,410 parameters.

    Attributes:
        hidden: units of each hidden layer.
    """

    hidden: tuple[int, ...] = (32,)

    def __post_init__(self) -> None:
        require_positive("mlp", *self.hidden)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        from torch import nn

        widths = (prod(shape), *self.hidden, classes)
        layers: list[nn.Module] = [nn.Flatten()]
        for wide, narrow in pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        return nn.Sequential(*layers[:-1])
