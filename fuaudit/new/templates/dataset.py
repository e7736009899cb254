"""example-name: a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fuaudit.plugins import Dataset, UsageError


@dataclass(frozen=True)
class ExampleDataset:
    """Numbers from ``ROOT/example-name.csv``: the last column is the class, every fifth row is for testing.

    Attributes:
        classes: how many classes there are, numbered from 0.
    """

    classes: int = 2
    file: ClassVar[str] = "example-name.csv"

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        import torch  # here, so that commands without data start at once

        if root is None or not (root / self.file).is_file():
            raise UsageError(f"there is no {self.file} to read", f"Give --data ROOT with ROOT/{self.file}.")
        try:
            rows = np.loadtxt(root / self.file, delimiter=",", ndmin=2, dtype=np.float64)
        except ValueError as error:
            raise UsageError(f"{root / self.file} is no table of numbers: {error}") from None
        if not np.array_equal(rows[:, -1], np.floor(rows[:, -1])):
            raise UsageError(f"{root / self.file}: a class is no whole number")
        inputs, targets = torch.from_numpy(rows[:, :-1]).float(), torch.from_numpy(rows[:, -1]).long()
        tested = torch.arange(len(rows)) % 5 == 4
        return Dataset(inputs[~tested], targets[~tested], inputs[tested], targets[tested], self.classes)
