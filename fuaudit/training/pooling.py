"""Max-pooling by slices: the greatest of k x k images that are shifted against each other.

The library's kernel for images on a CPU looks at one window after another. The greatest of whole images takes a seventh
of the time, and leaves the same numbers, NaN included. With gradients it is slower, so models are trained without it.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn


class SlicedMaxPool2d(nn.MaxPool2d):
    """:class:`torch.nn.MaxPool2d` without padding, dilation and indices."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The greatest of every window: ``(*s, h, w)`` to ``(*s, h', w')``."""
        (high, wide), (down, right) = _pair(self.kernel_size), _pair(self.stride)
        # whole rows first: they lie in one piece, and half as many numbers are left for the columns
        return _greatest(_greatest(inputs, -2, high, down), -1, wide, right)


def _greatest(inputs: Tensor, axis: int, length: int, step: int) -> Tensor:
    """The greatest of every ``length`` neighbours along an axis, from every ``step``-th one on."""
    count = (inputs.shape[axis] - length) // step + 1
    index = [slice(None)] * inputs.dim()
    shifted = []
    for first in range(length):
        index[axis] = slice(first, first + step * (count - 1) + 1, step)
        shifted.append(inputs[tuple(index)])
    return reduce(torch.maximum, shifted)


def sliced(module: nn.Module) -> nn.Module:
    """The module itself, in which max-pooling of images is done by slices wherever it can be."""
    for pool in module.modules():
        if type(pool) is nn.MaxPool2d and _is_plain(pool):
            pool.__class__ = SlicedMaxPool2d  # it keeps its name, its options and whatever is hooked to it
    return module


def _is_plain(pool: nn.MaxPool2d) -> bool:
    special = _pair(pool.padding) != (0, 0) or _pair(pool.dilation) != (1, 1)
    return not (special or pool.ceil_mode or pool.return_indices)


def _pair(size: int | tuple[int, ...]) -> tuple[int, int]:
    """A size of both directions, as height and width."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])
