"""Vectors and modules: the model is one vector ``(d,)``; this module alone maps it to tensors of a module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fuaudit.errors import UsageError


class Recipe(Protocol):
    """A registered model: a frozen dataclass that builds a module for a given shape of inputs.

    ``build`` must not depend on random numbers; the values of its parameters are overwritten.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module that maps ``(B, *shape)`` to logits ``(B, classes)``."""
        ...


@dataclass(frozen=True)
class Layout:
    """The parameters of a module in their order: names, shapes, and the bounds of their initial values."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    bounds: tuple[float, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module of linear and convolutional layers.

        Initial values are uniform in [-1 / sqrt(fan_in), 1 / sqrt(fan_in)), weights and biases alike: the law
        that torch uses for these layers, but from draws of the plan.

        Raises:
            UsageError: the module has buffers (batch normalisation), for which there is no policy yet, or
                parameters of other layers, for which no initial law is declared.
        """
        buffers = [name for name, _ in module.named_buffers()]
        if buffers:
            raise UsageError(
                f"the model keeps buffers ({', '.join(buffers[:3])}): how to average and to forget them is undecided",
                "Use group or layer normalisation, or none.",
            )
        bounds: dict[str, float] = {}
        for prefix, layer in module.named_modules():
            for name, _ in layer.named_parameters(recurse=False):
                if not isinstance(layer, nn.Linear | nn.Conv2d):
                    raise UsageError(
                        f"no initial law is declared for {type(layer).__name__}, which holds {prefix}.{name}"
                    )
                bounds[f"{prefix}.{name}" if prefix else name] = layer.weight[0].numel() ** -0.5
        parameters = dict(module.named_parameters())
        return cls(
            tuple(parameters),
            tuple(tuple(p.shape) for p in parameters.values()),
            tuple(map(bounds.__getitem__, parameters)),
        )

    @property
    def sizes(self) -> list[int]:
        """Elements of every parameter."""
        return [prod(shape) for shape in self.shapes]

    @property
    def dimension(self) -> int:
        """The length of the vector, d."""
        return sum(self.sizes)

    def split(self, vectors: Tensor) -> list[Tensor]:
        """Views of ``(*s, d)`` as one tensor ``(*s, *shape)`` for every parameter."""
        parts = torch.split(vectors, self.sizes, dim=-1)
        return [part.unflatten(-1, shape or (1,)) for part, shape in zip(parts, self.shapes, strict=True)]

    def join(self, parameters: Sequence[Tensor], leading: int = 0) -> Tensor:
        """The vectors ``(*s, d)`` of parameters ``(*s, *shape)`` with ``leading`` axes in ``s``; a copy."""
        return torch.cat([p.flatten(leading) for p in parameters], dim=-1)

    def initial(self, uniform: NDArray[np.float64], dtype: torch.dtype) -> Tensor:
        """The initial vector ``(*s, d)`` from numbers in [0, 1) of the same shape."""
        bounds = np.repeat(self.bounds, self.sizes)
        return torch.from_numpy((2 * uniform - 1) * bounds).to(dtype)


def linear_stack(module: nn.Module) -> list[nn.Linear] | None:
    """The layers of a module that is only Flatten and Linear layers with ReLU between them; None for others.

    Such modules have a hand-written training step in the batched engine.
    """
    if not isinstance(module, nn.Sequential):
        return None
    layers = [layer for layer in module if not isinstance(layer, nn.Flatten)]
    linears = layers[::2]
    activations = layers[1::2]
    if len(linears) != len(activations) + 1:
        return None
    if all(isinstance(x, nn.Linear) and x.bias is not None for x in linears) and all(
        type(x) is nn.ReLU for x in activations
    ):
        return [x for x in linears if isinstance(x, nn.Linear)]
    return None
