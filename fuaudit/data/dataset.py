"""Datasets: tensors under stable sample ids, and their retained form.

A sample id is the row of the sample in the training tensors of its dataset, and never changes. The retained
form of a dataset has the erased rows overwritten, so that a computation that touches one shows it: by NaN
where the inputs are real numbers; where they are integers (tokens of a text) by the largest number of their
type, of which :class:`fuaudit.models.Embedding` makes NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fuaudit.errors import UsageError
from fuaudit.plans import Population

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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
    ``test_owners (T,)`` int64 says the same of test rows, where it is known: they are counted, never dealt.
    ``dealt_by (N,)`` int64 holds the targets that rows were dealt by, where adversaries turned some since; None else.

    Raises:
        UsageError: ``owners`` or ``test_owners`` do not name one owner a row.
    """

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int
    absent: frozenset[int] = frozenset()
    owners: Tensor | None = None
    owner_names: tuple[str, ...] = ()
    test_owners: Tensor | None = None
    dealt_by: Tensor | None = None

    def __post_init__(self) -> None:
        for owners, inputs in ((self.owners, self.inputs), (self.test_owners, self.test_inputs)):
            if owners is not None and owners.shape != inputs.shape[:1]:
                raise UsageError(f"{inputs.shape[0]} samples cannot have owners of shape {tuple(owners.shape)}")

    @property
    def size(self) -> int:
        """The number of training rows, erased ones included."""
        return int(self.inputs.shape[0])

    @property
    def labels(self) -> Tensor:
        """The targets that partitions deal by, ``(N,)``."""
        return self.targets if self.dealt_by is None else self.dealt_by

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])


INPUT_TYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64")
"""What inputs may be, by name: types that NumPy knows too, so that digests can be taken of them."""


def is_input_type(dtype: torch.dtype) -> bool:
    """Whether inputs may be of a type."""
    return str(dtype).removeprefix("torch.") in INPUT_TYPES


def require_rows(dataset: object) -> None:
    """Raises UsageError where something else than a :class:`Dataset` was given as rows, with the way to make one."""
    if not isinstance(dataset, Dataset):
        raise UsageError(
            f"data is of type {type(dataset).__name__}, neither a folder nor rows (a fuaudit Dataset)",
            "Make one: fuaudit.data.dataset.Dataset(inputs, targets, test_inputs, test_targets, classes=...).",
        )


def require_sound(dataset: Dataset) -> None:
    """Check data before anything is computed or written with it.

    Raises:
        UsageError: what is no tensor; inputs that are not ``(N, *shape)`` of one of ``INPUT_TYPES``, equal for
            training and test rows; targets that are not ``(N,)`` int64 in [0, classes); no training or no test row; ids
            of absent rows or owners that cannot be; inputs of rows at hand that are NaN, infinite, below 0 (integers)
            or the mark of erased rows.
    """
    for problem in _problems(dataset):
        raise UsageError(f"the data cannot be used: {problem}", "docs/data-and-models.md says what data must be like.")


def _problems(data: Dataset) -> Iterator[str]:
    """What is wrong with a data set; only the first is sure to be meaningful."""
    import torch

    for name in ("inputs", "targets", "test_inputs", "test_targets", "owners", "test_owners"):
        given = getattr(data, name)
        if not isinstance(given, torch.Tensor) and not (given is None and name.endswith("owners")):
            yield f"{name} must be a torch tensor, not {_type(given)}: torch.as_tensor(...) makes one"
    if type(data.classes) is not int:
        yield f"classes must be a whole number, not {_type(data.classes)}"
    parts = (("training", data.inputs, data.targets), ("test", data.test_inputs, data.test_targets))
    for name, inputs, targets in parts:
        if not is_input_type(inputs.dtype):
            yield f"the {name} inputs are {inputs.dtype}, not one of {', '.join(INPUT_TYPES)}"
        if inputs.ndim < 2 or not inputs[:1].numel():
            yield f"there are no {name} rows, or no numbers in them: the inputs have shape {tuple(inputs.shape)}"
        if targets.dtype is not torch.int64 or targets.shape != inputs.shape[:1]:
            yield (
                f"{inputs.shape[0]} {name} rows need as many targets of type int64, "
                f"not {targets.dtype} of shape {tuple(targets.shape)}"
            )
        if (low := int(targets.min())) < 0 or (high := int(targets.max())) >= data.classes:
            yield f"a {name} target is {low if low < 0 else high}, outside 0 to {data.classes - 1}"
    if (data.inputs.shape[1:], data.inputs.dtype) != (data.test_inputs.shape[1:], data.test_inputs.dtype):
        yield (
            f"training inputs are {data.inputs.dtype} of shape {data.shape}, "
            f"test inputs {data.test_inputs.dtype} of shape {tuple(data.test_inputs.shape[1:])}"
        )
    if not data.absent <= set(range(data.size)) or len(data.absent) == data.size:
        yield f"{len(data.absent)} of {data.size} training rows cannot be the absent ones"
    owned = [owners for owners in (data.owners, data.test_owners) if owners is not None]
    if any(owners.dtype is not torch.int64 or int(owners.min()) < -1 for owners in owned):
        yield "owners must be int64, from 0, or -1 where they are unknown"
    present = torch.ones(data.size, dtype=torch.bool)
    present[sorted(data.absent)] = False
    for name, inputs, at_hand in (
        ("training", data.inputs, present),
        ("test", data.test_inputs, torch.ones(len(data.test_inputs), dtype=torch.bool)),
    ):
        if bool((wrong := at_hand & is_out_of_range(inputs)).any()):
            kind = "NaN or infinite" if inputs.is_floating_point() else f"below 0 or {erased_input(inputs.dtype)}"
            mark = "" if inputs.is_floating_point() else ", the mark of erased rows"
            yield f"the inputs of {name} row {int(wrong.nonzero()[0])} are {kind}{mark}"


def _type(given: object) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")


def is_out_of_range(inputs: Tensor) -> Tensor:
    """Which rows ``(N,)`` of inputs ``(N, *shape)`` hold a number that is none, or that stands for an erased one."""
    low, high = inputs.flatten(1).amin(1), inputs.flatten(1).amax(1)
    if inputs.is_floating_point():
        return ~(low.isfinite() & high.isfinite())
    return (low < 0) | (high == erased_input(inputs.dtype))


class DatasetPlugin(Protocol):
    """A registered dataset: a frozen dataclass that loads from a folder, or from nowhere."""

    def load(self, root: Path | None) -> Dataset:
        """The data. ``root`` is the folder given by ``--data``; UsageError when it is needed and absent."""
        ...


def erased_input(dtype: torch.dtype) -> float | int:
    """What overwrites the inputs of erased rows: NaN, or the largest number of an integer type."""
    import torch

    return torch.nan if dtype.is_floating_point else torch.iinfo(dtype).max


ABSENT_FREE, ABSENT_SHARE = 64 * 2**20, 16
"""Rows that are not at hand may take so many bytes, or so many times what those at hand take. How many there are is
said by a run, or by a file of ids, and neither shall choose how much memory is used."""

BOOKKEEPING = 160
"""About how many bytes a row that is not at hand takes besides its input: target, owner, and its id in a set."""


def require_room(rows: int, inputs: Tensor) -> None:
    """Raises UsageError where so many absent rows are too many beside those at hand, ``inputs (N, *shape)``."""
    size = inputs[:1].numel() * inputs.element_size() + BOOKKEEPING
    most = max(ABSENT_FREE, ABSENT_SHARE * len(inputs) * size)
    if rows * size > most:
        raise UsageError(
            f"{rows} rows are missing beside the {len(inputs)} at hand, and would take more than {most // 2**20} MiB",
            "Check the ids in the data, and whether it is the data of this run.",
        )


def padded(dataset: Dataset, rows: int) -> Dataset:
    """The dataset with at least ``rows`` training rows; those that are added are absent, and overwritten as erased.

    Whoever holds the retained rows alone cannot know how many there were: the last ones may be among the erased.

    Raises:
        UsageError: they would take too much memory beside the rows at hand.
    """
    import torch

    more = rows - dataset.size
    if more <= 0:
        return dataset
    require_room(more, dataset.inputs)
    inputs = dataset.inputs.new_full((more, *dataset.shape), erased_input(dataset.inputs.dtype))
    return replace(
        dataset,
        inputs=torch.cat([dataset.inputs, inputs]),
        targets=_longer(dataset.targets, more, ERASED_TARGET),
        absent=dataset.absent | frozenset(range(dataset.size, rows)),
        owners=None if dataset.owners is None else _longer(dataset.owners, more, -1),
        dealt_by=None if dataset.dealt_by is None else _longer(dataset.dealt_by, more, ERASED_TARGET),
    )


def _longer(numbers: Tensor, more: int, value: int) -> Tensor:
    """Numbers ``(n,)`` with so many of one value behind them."""
    import torch

    return torch.cat([numbers, numbers.new_full((more,), value)])


SCALINGS = ("none", "standardise")
"""``standardise`` subtracts the mean and divides by the standard deviation of all training rows of the
population. The two constants know every row, erased ones included: kept rounds of an otherwise exact
unlearner then still depend on erased data, which replay shows."""


def retained_rows(dataset: Dataset, population: Population) -> Dataset:
    """The dataset with every row outside the population overwritten: inputs by ``erased_input``, targets by 0."""
    import torch

    mask = torch.ones(dataset.size, dtype=torch.bool)
    mask[torch.tensor(sorted(population.owner), dtype=torch.int64)] = False
    if not mask.any():
        return replace(dataset, dealt_by=None)
    inputs, targets = dataset.inputs.clone(), dataset.targets.clone()
    inputs[mask], targets[mask] = erased_input(inputs.dtype), ERASED_TARGET
    return replace(dataset, inputs=inputs, targets=targets, dealt_by=None)


def scaling_constants(dataset: Dataset, population: Population, scaling: str) -> tuple[float, float]:
    """Shift and divisor of the inputs, computed in float64 over the rows of the population.

    Raises:
        UsageError: unknown scaling, or inputs that are integers and cannot be scaled.
    """
    import torch

    if scaling == "none":
        return 0.0, 1.0
    if scaling in SCALINGS and not dataset.inputs.is_floating_point():
        raise UsageError(
            f"the inputs are integers (tokens), which scaling = {scaling!r} has no meaning for",
            'Leave scaling out, or say scaling = "none".',
        )
    if scaling == "standardise":
        # by NumPy, whose sums do not depend on the number of threads, as torch's do
        rows = dataset.inputs[torch.tensor(sorted(population.owner), dtype=torch.int64)].double().numpy()
        return float(rows.mean()), (float(rows.std(ddof=1)) if rows.size > 1 else 0.0) or 1.0
    raise UsageError(f"unknown scaling {scaling!r}", f"Known: {', '.join(SCALINGS)}.")


def scaled(inputs: Tensor, shift: float, divisor: float, dtype: torch.dtype) -> Tensor:
    """Inputs ``(*s, *shape)`` as a model reads them: shifted and divided, in ``dtype``; integers as they are.

    Where nothing changes it is the tensor that was given.
    """
    if not inputs.is_floating_point():
        return inputs
    taken = inputs.to(dtype)
    return taken if (shift, divisor) == (0.0, 1.0) else (taken - shift) / divisor
