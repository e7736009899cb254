"""Built-in datasets: scikit-learn's digits, folders in torchvision's MNIST layout, and a user's own tensors."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fuaudit.data.dataset import Dataset
from fuaudit.errors import UsageError


@dataclass(frozen=True)
class Digits:
    """1,797 handwritten digits of 8 x 8 pixels, shipped with scikit-learn; every fifth is a test image.

    Alpaydin and Kaynak, "Optical recognition of handwritten digits" (UCI, 1998). Inputs in [0, 1], flat (64,).
    """

    cite: ClassVar[str] = "Alpaydin and Kaynak, UCI Machine Learning Repository, 1998"

    def load(self, root: Path | None) -> Dataset:
        """Needs no folder."""
        from sklearn.datasets import load_digits

        data = load_digits()
        inputs = torch.tensor(data.data, dtype=torch.float32) / 16
        targets = torch.tensor(data.target, dtype=torch.int64)
        test = torch.arange(len(targets)) % 5 == 4
        return Dataset(inputs[~test], targets[~test], inputs[test], targets[test], classes=10)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes in the IDX format, plain or gzipped.

    Raises:
        UsageError: there is no such file, or its header and size disagree.
    """
    zipped = path.with_name(path.name + ".gz")
    if path.exists():
        content = path.read_bytes()
    elif zipped.exists():
        try:
            content = gzip.decompress(zipped.read_bytes())
        except (EOFError, OSError, zlib.error) as error:
            raise UsageError(f"{zipped} is cut short or corrupt: {error}") from None
    else:
        raise UsageError(f"there is neither {path} nor {zipped.name}", "Give the folder above 'raw' with --data.")
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise UsageError(f"{path} is not an IDX file of bytes")
    rank = content[3]
    header = 4 + 4 * rank
    if len(content) < header:
        raise UsageError(f"{path} is cut short inside its header")
    shape = tuple(int(n) for n in np.frombuffer(content[4:header], dtype=">u4"))
    if len(shape) != rank or len(content) - header != int(np.prod(shape, dtype=np.int64)):
        raise UsageError(f"{path} is cut short or has surplus bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


@dataclass(frozen=True)
class _Idx:
    """Images of 28 x 28 bytes in torchvision's layout, ``ROOT/<folder>/raw``; inputs in [0, 1], (1, 28, 28)."""

    folder: ClassVar[str]

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        if root is None:
            raise UsageError(f"{self.folder} is read from a folder", f"Give --data ROOT with ROOT/{self.folder}/raw.")
        raw = root / self.folder / "raw"

        def images(name: str) -> torch.Tensor:
            return torch.from_numpy(read_idx(raw / name).astype(np.float32) / 255).unsqueeze(1)

        def labels(name: str) -> torch.Tensor:
            return torch.from_numpy(read_idx(raw / name).astype(np.int64))

        return Dataset(
            images("train-images-idx3-ubyte"),
            labels("train-labels-idx1-ubyte"),
            images("t10k-images-idx3-ubyte"),
            labels("t10k-labels-idx1-ubyte"),
            classes=10,
        )


@dataclass(frozen=True)
class Mnist(_Idx):
    """MNIST: 60,000 training and 10,000 test images. LeCun, Bottou, Bengio, Haffner (Proc. IEEE 1998)."""

    folder: ClassVar[str] = "MNIST"
    cite: ClassVar[str] = "LeCun, Bottou, Bengio and Haffner, Proceedings of the IEEE 86(11), 1998"


@dataclass(frozen=True)
class FashionMnist(_Idx):
    """Fashion-MNIST: 60,000 training and 10,000 test images. Xiao, Rasul, Vollgraf (arXiv 1708.07747)."""

    folder: ClassVar[str] = "FashionMNIST"
    cite: ClassVar[str] = "Xiao, Rasul and Vollgraf, arXiv 1708.07747, 2017"


@dataclass(frozen=True)
class Tensors:
    """A user's own data: ``ROOT/data.safetensors`` with ``inputs``, ``targets``, ``test_inputs``, ``test_targets``.

    An optional tensor ``ids (n,)`` names the stable ids of the training rows; ids that are missing are rows
    already erased from the folder. ``size`` is then the number of rows that there once were.
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
        rows = torch.full((size, *inputs.shape[1:]), torch.nan, dtype=inputs.dtype)
        classes = torch.zeros(size, dtype=torch.int64)
        rows[ids], classes[ids] = inputs, targets
        absent = frozenset(range(size)) - frozenset(ids.tolist())
        return Dataset(rows, classes, tensors["test_inputs"], tensors["test_targets"].long(), self.classes, absent)
