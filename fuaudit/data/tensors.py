"""A user's own data, as tensors in one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from fuaudit.data.dataset import Dataset, erased_input
from fuaudit.errors import UsageError


@dataclass(frozen=True)
class Tensors:
    """A user's own data: ``ROOT/data.safetensors`` with ``inputs``, ``targets``, ``test_inputs``, ``test_targets``.

    Inputs are real numbers, or integers for models that begin with an embedding. An optional tensor ``ids (n,)``
    names the stable ids of the training rows; ids that are missing are rows already erased from the folder.
    ``size`` is then the number of rows that there once were. An optional tensor ``owners (n,)`` holds the number
    of the owner of every row, from 0, for the partition ``by-owner``.
    """

    classes: int
    size: int | None = None
    file: ClassVar[str] = "data.safetensors"

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        from safetensors.torch import load_file

        if root is None or not (root / self.file).exists():
            raise UsageError(f"there is no {self.file} to read", f"Give --data ROOT with ROOT/{self.file}.")
        tensors = load_file(root / self.file)
        missing = {"inputs", "targets", "test_inputs", "test_targets"} - tensors.keys()
        if missing:
            raise UsageError(f"{root / self.file} lacks {', '.join(sorted(missing))}")
        inputs, targets = tensors["inputs"], tensors["targets"].long()
        ids = tensors.get("ids", torch.arange(len(inputs))).long()
        size = self.size if self.size is not None else int(ids.max()) + 1
        if (
            len(ids) != len(inputs)
            or len(targets) != len(inputs)
            or len(set(ids.tolist())) != len(ids)
            or int(ids.max()) >= size
        ):
            raise UsageError(f"{root / self.file}: ids, inputs and targets do not fit together")
        rows = torch.full((size, *inputs.shape[1:]), erased_input(inputs.dtype), dtype=inputs.dtype)
        classes = torch.zeros(size, dtype=torch.int64)
        rows[ids], classes[ids] = inputs, targets
        absent = frozenset(range(size)) - frozenset(ids.tolist())
        owners = None
        if "owners" in tensors:
            if tensors["owners"].shape != ids.shape:
                raise UsageError(f"{root / self.file}: owners must name one owner a training row")
            owners = torch.full((size,), -1)
            owners[ids] = tensors["owners"].long()
        test_inputs, test_targets = tensors["test_inputs"], tensors["test_targets"].long()
        return Dataset(rows, classes, test_inputs, test_targets, self.classes, absent, owners)
