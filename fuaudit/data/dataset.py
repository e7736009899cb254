"""Datasets: tensors under stable sample ids, and their retained form.

A sample id is the row of the sample in the training tensors of its dataset, and never changes. The retained
form of a dataset has the erased rows overwritten, so that a computation that touches one shows it: by NaN
where the inputs are real numbers; where they are integers (tokens of a text) by the largest number of their
type, of which :class:`fuaudit.models.Embedding` makes NaN.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from fuaudit.errors import UsageError
from fuaudit.plans import Population

ERASED_TARGET = 0
"""Erased targets are overwritten by a valid class, so that only a NaN, never a crash, tells of a touched row."""


@dataclass(frozen=True)
class Dataset:
    """Training and test data of a classification task.

    ``inputs (N, *shape)`` floating point, or integers from 0 on that are smaller than the largest number of
    their type; ``targets (N,)`` int64 in [0, classes); the same for the test data.
    ``absent`` holds the ids of training rows that are not at hand (already erased from the data folder).
    ``owners (N,)`` int64 says to whom a row belongs by nature (a writer, a role), -1 where it is unknown; owner
    k is called ``owner_names[k]``. Partitions may deal by it. None where the data has no natural owners.

    Raises:
        UsageError: ``owners`` does not name one owner a row.
    """

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int
    absent: frozenset[int] = frozenset()
    owners: Tensor | None = None
    owner_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.owners is not None and self.owners.shape != self.inputs.shape[:1]:
            raise UsageError(f"{self.inputs.shape[0]} samples cannot have owners of shape {tuple(self.owners.shape)}")

    @property
    def size(self) -> int:
        """The number of training rows, erased ones included."""
        return int(self.inputs.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])


class DatasetPlugin(Protocol):
    """A registered dataset: a frozen dataclass that loads from a folder, or from nowhere."""

    def load(self, root: Path | None) -> Dataset:
        """The data. ``root`` is the folder given by ``--data``; UsageError when it is needed and absent."""
        ...


@dataclass(frozen=True)
class TrainingRows:
    """What an engine trains on: scaled inputs ``(N, *shape)`` and targets ``(N,)`` under stable ids."""

    inputs: Tensor
    targets: Tensor


def erased_input(dtype: torch.dtype) -> float | int:
    """What overwrites the inputs of erased rows: NaN, or the largest number of an integer type."""
    return torch.nan if dtype.is_floating_point else torch.iinfo(dtype).max


SCALINGS = ("none", "standardise")
"""``standardise`` subtracts the mean and divides by the standard deviation of all training rows of the
population. The two constants know every row, erased ones included: kept rounds of an otherwise exact
unlearner then still depend on erased data, which replay shows."""


def retained_rows(dataset: Dataset, population: Population) -> Dataset:
    """The dataset with every row outside the population overwritten: inputs by ``erased_input``, targets by 0."""
    mask = torch.ones(dataset.size, dtype=torch.bool)
    mask[torch.tensor(sorted(population.owner), dtype=torch.int64)] = False
    inputs, targets = dataset.inputs.clone(), dataset.targets.clone()
    inputs[mask], targets[mask] = erased_input(inputs.dtype), ERASED_TARGET
    return replace(dataset, inputs=inputs, targets=targets)


def scaling_constants(dataset: Dataset, population: Population, scaling: str) -> tuple[float, float]:
    """Shift and divisor of the inputs, computed in float64 over the rows of the population.

    Raises:
        UsageError: unknown scaling, or inputs that are integers and cannot be scaled.
    """
    if scaling == "none":
        return 0.0, 1.0
    if scaling in SCALINGS and not dataset.inputs.is_floating_point():
        raise UsageError(
            f"the inputs are integers (tokens), which scaling = {scaling!r} has no meaning for",
            'Leave scaling out, or say scaling = "none".',
        )
    if scaling == "standardise":
        rows = dataset.inputs[torch.tensor(sorted(population.owner), dtype=torch.int64)].double()
        return float(rows.mean()), (float(rows.std()) if rows.numel() > 1 else 0.0) or 1.0
    raise UsageError(f"unknown scaling {scaling!r}", f"Known: {', '.join(SCALINGS)}.")


def scaled(inputs: Tensor, shift: float, divisor: float, dtype: torch.dtype) -> Tensor:
    """Inputs ``(*s, *shape)`` as a model reads them: shifted and divided, in ``dtype``; integers as they are."""
    return (inputs.to(dtype) - shift) / divisor if inputs.is_floating_point() else inputs


def digest_of_client(dataset: Dataset, samples: tuple[int, ...]) -> str:
    """SHA-256 over the ids, inputs and targets of some rows: what a run remembers of a client's data."""
    rows = torch.tensor(samples, dtype=torch.int64)
    hasher = hashlib.sha256(rows.numpy().tobytes())
    hasher.update(dataset.inputs[rows].contiguous().numpy().tobytes())
    hasher.update(dataset.targets[rows].contiguous().numpy().tobytes())
    return hasher.hexdigest()


def digest_of_test(dataset: Dataset) -> str:
    """SHA-256 over the test inputs and targets, which the figures of a run depend on."""
    hasher = hashlib.sha256(dataset.test_inputs.contiguous().numpy().tobytes())
    hasher.update(dataset.test_targets.contiguous().numpy().tobytes())
    return hasher.hexdigest()
