"""Gaps: how far two sets of stored models are apart, and how many of their numbers agree in every bit."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf, isfinite

import torch
from torch import Tensor

from fuaudit.runs.derived_files import Checkpoints

Gaps = dict[tuple[int, str] | tuple[int, str, int], float]
"""(round, tensor) or (round, tensor, row) -> gap, where two sets of models differ. The model is called ``vector``."""

ROUNDING = 4
"""Differences of so many machine epsilons of a number, or fewer, are its low bits."""

FEW = 10
"""Fewer differences than these are no model."""


def gaps(found: Checkpoints, other: Checkpoints, scale: Checkpoints, by_row: Collection[str] = ()) -> Gaps:
    """How far two sets of models are apart, tensor by tensor, where they differ at all.

    Names of a state in ``by_row`` are compared row by row, ``(M, d)``: one loud row would hide what others hold.

    A gap is the largest difference of two entries over the largest entry of ``scale``, in absolute values: a
    largest, not a mean, because what a sample leaves may sit in a few entries. It is infinite for numbers that
    cannot be compared: other shapes, NaN, a scale of nothing but zeros, and integers, which have no rounding.
    """
    result: Gaps = {}
    for round_number in sorted(found.keys() & other.keys()):
        ours, theirs, unit = (_tensors(models, round_number) for models in (found, other, scale))
        for name in sorted(ours.keys() | theirs.keys()):
            if name not in ours or name not in theirs:
                result[round_number, name] = inf
            else:
                by_rows = name.removeprefix("state ") in by_row
                result |= (_by_row if by_rows else _whole)(
                    (round_number, name), ours[name], theirs[name], unit.get(name)
                )
    return result


def bit_equal(
    found: Checkpoints, other: Checkpoints, by_row: Collection[str] = (), kept: Checkpoints | None = None
) -> float:
    """The share of numbers that agree in every bit, in the tensor where fewest do. Tables are looked at row by row.

    Rounds that are kept, numbers that only those have moved, and other clients' rows are equal bits in any run:
    together with them, one model that holds other bits would look like next to nothing. So each tensor stands by
    itself, and numbers are left out that both sides have as they were before: in the last of the models ``kept``
    before that round, or in the first of ``other``. Of tensors of other shapes or types nothing agrees.
    """
    shares, before = [1.0], {min(other): other[min(other)], **(kept or {})} if other else {}
    for round_number in sorted(found.keys() & other.keys()):
        first = _tensors(before, max(earlier)) if (earlier := [n for n in before if n < round_number]) else {}
        ours, theirs = _tensors(found, round_number), _tensors(other, round_number)
        for name, tensor in theirs.items():
            if name not in ours or not _alike(ours[name], tensor):
                shares.append(0.0)
            elif tensor.numel():
                rows = len(tensor) if name.removeprefix("state ") in by_row and tensor.dim() == 2 else 1
                shares.append(float(_equal(ours[name], tensor, first.get(name), rows).min()))
    return min(shares)


def other_bits(found: Checkpoints, other: Checkpoints) -> int:
    """How many numbers of a stored model and its state have other bits, in the round where most do.

    Beside the share, which any number that agrees makes larger. Tensors of other shapes or types count as a whole.
    """

    def of(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> int:
        return sum(
            int((_bits(ours[name]) != _bits(tensor)).sum())
            if name in ours and _alike(ours[name], tensor)
            else tensor.numel()
            for name, tensor in theirs.items()
        )

    return max((of(_tensors(found, n), _tensors(other, n)) for n in found.keys() & other.keys()), default=0)


@dataclass(frozen=True)
class Hidden:
    """How much of what moved no gap shows, in the tensor, or the row of a table, where it is most.

    A few may be the rounding of larger numbers, so tensors of which fewer than :data:`FEW` numbers moved are apart.

    Attributes:
        share: where :data:`FEW` numbers moved or more, the share of them, in [0, 1].
        few: where fewer did, how many.
        share_of_few: the share of these, in [0, 1].
    """

    share: float = 0.0
    few: int = 0
    share_of_few: float = 0.0

    @staticmethod
    def most(found: Iterable[Hidden]) -> Hidden:
        """The largest of each."""
        result = Hidden()
        for one in found:
            shares = max(result.share, one.share), max(result.share_of_few, one.share_of_few)
            result = Hidden(shares[0], max(result.few, one.few), shares[1])
        return result


def hidden(found: Checkpoints, other: Checkpoints, scale: Checkpoints, limit: float, by_row: Collection[str]) -> Hidden:
    """Of the numbers of a tensor that differ by more than rounding: how many differ by no more than ``limit``.

    A gap is relative to the largest entry, here of all three. Beside one loud number quiet ones may be exchanged as a
    whole, and no gap exceeds ``limit``. Tables are looked at row by row, as in :func:`gaps`. What training did is the
    difference of ``scale`` to its first round.
    """
    shares = list[Hidden]()
    for round_number in sorted(found.keys() & other.keys()):
        first = _tensors(scale, min(scale))
        ours, theirs, unit = (_tensors(models, round_number) for models in (found, other, scale))
        for name in ours.keys() & theirs.keys() & unit.keys() & first.keys():
            tensors = ours[name], theirs[name], unit[name], first[name]
            if unit[name].is_floating_point() and unit[name].numel() and len({t.shape for t in tensors}) == 1:
                rows = len(unit[name]) if name.removeprefix("state ") in by_row and unit[name].dim() == 2 else 1
                a, b, size, start = (tensor.double().reshape(rows, -1) for tensor in tensors)
                within = limit * torch.stack([a, b, size]).abs().amax(dim=(0, -1))[:, None]
                eps = torch.finfo(unit[name].dtype).eps
                shares.append(_unseen((a - b).abs(), within, size, start, eps))
    return Hidden.most(shares)


def largest(scale: Checkpoints, *others: Checkpoints) -> Checkpoints:
    """The largest absolute value that each number has in any of these models, at the rounds of ``scale``.

    A difference of models that are far larger than ``scale`` may be their own rounding, so it is measured by these.
    """

    def of(tensor: Tensor, more: Iterable[Tensor | None]) -> Tensor:
        alike = [t.abs() for t in more if t is not None and t.shape == tensor.shape and t.dtype == tensor.dtype]
        return torch.stack([tensor.abs(), *alike]).amax(dim=0) if tensor.is_floating_point() else tensor

    result: dict[int, tuple[Tensor, dict[str, Tensor]]] = {}
    for number, (vector, state) in scale.items():
        found = [models[number] for models in others if number in models]
        names = {name: of(tensor, (s.get(name) for _, s in found)) for name, tensor in state.items()}
        result[number] = of(vector, (v for v, _ in found)), names
    return result


def finite(models: Checkpoints) -> bool:
    """Whether no number of any model or state is NaN or infinite."""
    return all(bool(t.isfinite().all()) for number in models for t in _tensors(models, number).values())


def _unseen(apart: Tensor, within: Tensor, size: Tensor, start: Tensor, eps: float) -> Hidden:
    """Of rows ``(r, k)``, how many of the differences, without rounding, lie within ``(r, 1)``. NaN is unseen."""
    differs = ~(apart <= ROUNDING * eps * torch.maximum(size.abs(), start.abs()))
    moved, unseen = differs.sum(dim=-1), (differs & ~(apart > within)).sum(dim=-1)
    share, many = unseen.double() / moved.clamp(min=1), moved >= FEW
    return Hidden(float((share * many).max()), int((unseen * ~many).max()), float((share * ~many).max()))


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _equal(a: Tensor, b: Tensor, start: Tensor | None, rows: int) -> Tensor:
    """Row by row ``(r,)``, the share of numbers of equal bits; 1 where both are what they were at the start."""
    same = (_bits(a) == _bits(b)).reshape(rows, -1)
    still = torch.zeros_like(same)
    if start is not None and _alike(start, b):
        still = same & (_bits(start) == _bits(b)).reshape(rows, -1)
    moved = (~still).sum(dim=-1)
    return torch.where(moved > 0, (same & ~still).sum(dim=-1).double() / moved.clamp(min=1), 1.0)


def _bits(tensor: Tensor) -> Tensor:
    """The same bits as integers: zeros of two signs are equal numbers, and a sign is a bit."""
    return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])


def _tensors(models: Checkpoints, round_number: int) -> dict[str, Tensor]:
    vector, state = models[round_number]
    return {"vector": vector, **{f"state {name}": tensor for name, tensor in state.items()}}


def _whole(at: tuple[int, str], a: Tensor, b: Tensor, scale: Tensor | None) -> Gaps:
    return {} if torch.equal(a, b) else {at: _gap(a, b, scale)}


def _by_row(at: tuple[int, str], a: Tensor, b: Tensor, scale: Tensor | None) -> Gaps:
    """Row by row of tables ``(M, d)``, each over the same row of the scale; what is no such table as a whole."""
    if scale is None or not a.shape == b.shape == scale.shape or a.dtype != b.dtype or a.dim() != 2:
        return _whole(at, a, b, scale)
    if torch.equal(a, b):
        return {}
    rows = (row for row in range(len(a)) if not torch.equal(a[row], b[row]))
    return {(*at, row): _gap(a[row], b[row], scale[row]) for row in rows}


def _gap(a: Tensor, b: Tensor, scale: Tensor | None) -> float:
    if a.shape != b.shape or a.dtype != b.dtype or scale is None or not a.is_floating_point():
        return inf
    unit = float(scale.abs().max())
    gap = float((a.double() - b.double()).abs().max()) / unit if unit else inf
    return gap if isfinite(gap) else inf
