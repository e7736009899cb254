"""What all contenders train: MNIST among 100 clients, ten of them a round, a small CNN.

It knows PyTorch and no other library. Everybody reads the same files, gives each client 600 rows of one shuffle, and
takes rounds x 10 x 10 local steps of 10 rows. Each draws cohorts and batches by itself. The tool's side is
``mnist.toml``.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

CLIENTS, COHORT, STEPS, BATCH, STEP_SIZE = 100, 10, 10, 10, 0.05
BEGUN = time.perf_counter()


def read(path: Path) -> NDArray[np.uint8]:
    """One file in the layout of the data set's authors, as it is or gzipped."""
    raw = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes())
    axes = raw[3]
    shape = np.frombuffer(raw, ">i4", axes, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def rows(root: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images ``(n, 1, 28, 28)`` in [0, 1] and classes ``(n,)``; ``part`` is ``train`` or ``t10k``."""
    folder = root / "MNIST" / "raw"
    images = read(folder / f"{part}-images-idx3-ubyte")
    classes = read(folder / f"{part}-labels-idx1-ubyte")
    return torch.from_numpy(images.astype(np.float32) / 255)[:, None], torch.from_numpy(classes.astype(np.int64))


def shares(rows: int) -> Tensor:
    """Which rows each client has, ``(clients, rows / clients)``."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1))
    return order[: rows - rows % CLIENTS].reshape(CLIENTS, -1)


def network() -> nn.Module:
    """The tool's ``cnn`` with channels 10 and 20 and 50 hidden units: 21,840 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(10, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )


@torch.no_grad()
def accuracy(module: nn.Module, root: Path) -> float:
    """On the test rows, in chunks as scripts do it."""
    images, classes = rows(root, "t10k")
    module.eval()
    right = sum(
        int((module(some).argmax(1) == these).sum())
        for some, these in zip(images.split(1000), classes.split(1000), strict=True)
    )
    return right / len(classes)


def told(out: Path, module: nn.Module, root: Path, trained: float) -> None:
    """Tests once, writes the model and what was found."""
    found = {"accuracy": accuracy(module, root), "training": trained}
    torch.save(module.state_dict(), out / "model.pt")
    (out / "found.json").write_text(json.dumps(found | {"all": time.perf_counter() - BEGUN}))


def given() -> tuple[Path, Path, int]:
    """Folder of data, folder to write to, rounds: the arguments of every contender."""
    root, out, rounds = sys.argv[1:4]
    Path(out).mkdir(parents=True, exist_ok=True)
    return Path(root), Path(out), int(rounds)
