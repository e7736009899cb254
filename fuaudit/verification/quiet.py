"""Quiet rows: those of a client that louder ones could hide, because a model's largest numbers are made of these."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PART = 10
"""One of so many rows of a client is among the quietest."""

USUAL = 1000
"""At most so many rows say what is usual."""


def quietest(inputs: Tensor, rows: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    """The quietest tenth of ``rows``, rounded up, ascending; ``others`` say how loud a feature usually is.

    Args:
        inputs: ``(N, *shape)``.
    """
    if not rows:
        return ()
    order = loudness(inputs, rows, others).argsort(stable=True)[: ceil(len(rows) / PART)]
    return tuple(sorted(rows[place] for place in order.tolist()))


def loudness(inputs: Tensor, rows: Sequence[int], others: Sequence[int]) -> Tensor:
    """How loud rows are ``(r,)``: the largest feature of each, in units of the median among ``others``.

    Absolute values; zeros are left out of the median, so that a rare feature is not loud. Integers are tokens: 0.
    """
    import torch

    if not inputs.is_floating_point():
        return torch.zeros(len(rows))
    sizes = inputs[list(others[:: ceil(len(others) / USUAL)])].double().abs().flatten(1)
    usual = torch.where(sizes == 0, torch.nan, sizes).nanmedian(dim=0).values
    return (inputs[list(rows)].double().abs().flatten(1) / usual).nan_to_num(nan=0.0).amax(dim=1)
