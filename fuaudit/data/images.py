"""Images: scikit-learn's digits, MNIST in torchvision's layout, and the binary version of CIFAR.

Every format here is plain bytes. CIFAR's Python version is pickles, which execute what they say; it is not read, but
``fuaudit fetch`` writes it as the binary version.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fuaudit.data.dataset import Dataset
from fuaudit.errors import UsageError
from fuaudit.reading import require_regular
from fuaudit.text import command

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Digits:
    """1,797 handwritten digits of 8 x 8 pixels, shipped with scikit-learn; every fifth is a test image.

    Alpaydin and Kaynak, "Optical recognition of handwritten digits" (UCI, 1998). Inputs in [0, 1], flat (64,).
    """

    cite: ClassVar[str] = "Alpaydin and Kaynak, UCI Machine Learning Repository, 1998"
    reads_folder: ClassVar[bool] = False

    def load(self, root: Path | None) -> Dataset:
        """Needs no folder."""
        import torch

        pixels, labels = _digits()
        inputs = torch.tensor(pixels, dtype=torch.float32) / 16
        targets = torch.tensor(labels, dtype=torch.int64)
        test = torch.arange(len(targets)) % 5 == 4
        return Dataset(inputs[~test], targets[~test], inputs[test], targets[test], classes=10)


@cache  # it is unpacked and parsed each time
def _digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pixels and labels of scikit-learn's file, as its ``load_digits`` reads them; its import takes far longer."""
    found = find_spec("sklearn")
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz" if found and found.origin else None
    if path is None or not path.exists():  # a version that keeps it elsewhere
        return _by_its_library()
    with gzip.open(path, "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",")
    return table[:, :-1], table[:, -1].astype(np.int64)


def _by_its_library() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return data.data, data.target


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An array ``shape`` of bytes in the IDX format, plain or gzipped; no more of the file is unpacked than that.

    Raises:
        UsageError: there is no such file, it holds another array, or its header and size disagree.
    """
    zipped = path.with_name(path.name + ".gz")
    if not path.exists() and not zipped.exists():
        raise UsageError(f"there is neither {path} nor {zipped.name}", "Give the folder above 'raw' with --data.")
    require_regular(path if path.exists() else zipped)
    try:
        with path.open("rb") if path.exists() else gzip.open(zipped) as file:
            kind, header = file.read(4), file.read(4 * len(shape))
            if len(kind) < 4 or kind[:3] != b"\x00\x00\x08":
                raise UsageError(f"{path} is not an IDX file of bytes")
            if kind[3] != len(shape) or header != struct.pack(f">{len(shape)}I", *shape):
                found = struct.unpack(f">{len(header) // 4}I", header[: len(header) // 4 * 4])
                raise UsageError(
                    f"{path} is cut short, or not the authors' file: {kind[3]} axes of lengths {found}, not {shape}",
                    "Fetch the authors' file again.",
                )
            content = file.read(prod(shape) + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{path} or {zipped.name} is cut short or corrupt: {error}") from None
    if len(content) != prod(shape):
        raise UsageError(f"{path} is cut short or has surplus bytes", "Fetch the authors' file again.")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _shares(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes as shares of 255; divided while they are converted, so that no second array of floats is made."""
    return np.divide(images, np.float32(255), dtype=np.float32)


GIVE = "Give --data ROOT with ROOT/{}/raw; fuaudit fetch downloads it there."
"""What to do where no folder was given."""


@dataclass(frozen=True)
class _Idx:
    """Images of 28 x 28 bytes in torchvision's layout, ``ROOT/<folder>/raw``; inputs in [0, 1], (1, 28, 28).

    ``rows``: how many training and test images the authors' files hold; others are refused.
    """

    folder: ClassVar[str]
    rows: ClassVar[tuple[int, int]] = (60_000, 10_000)

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        import torch

        if root is None:
            raise UsageError(f"{self.folder} is read from a folder", GIVE.format(self.folder))
        raw = root / self.folder / "raw"

        def part(name: str, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
            images = read_idx(raw / f"{name}-images-idx3-ubyte", (rows, 28, 28))
            labels = read_idx(raw / f"{name}-labels-idx1-ubyte", (rows,))
            return (
                torch.from_numpy(_shares(images)).unsqueeze(1),
                torch.from_numpy(labels.astype(np.int64)),
            )

        return Dataset(*part("train", self.rows[0]), *part("t10k", self.rows[1]), classes=10)


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
class _Cifar:
    """Colour images of 32 x 32; inputs in [0, 1], ``(3, 32, 32)``. 50,000 training and 10,000 test images.

    Read from the authors' binary version, ``ROOT/<binary>``; a file is records of label bytes and 3,072 bytes of red,
    green and blue. ``rows``: how many training and test images the authors' files hold; others are refused.
    """

    name: ClassVar[str]
    fetched: ClassVar[str]
    archive: ClassVar[str]
    binary: ClassVar[str]
    rows: ClassVar[tuple[int, int]] = (50_000, 10_000)
    train_files: ClassVar[tuple[str, ...]]
    test_files: ClassVar[tuple[str, ...]]
    label_bytes: ClassVar[int]
    classes: ClassVar[int]
    cite: ClassVar[str] = "Krizhevsky, Learning multiple layers of features from tiny images, 2009"

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        if root is None:
            raise UsageError(f"{self.name} is read from a folder", f"Give --data ROOT with ROOT/{self.binary}.")
        folder = root / self.binary
        if not folder.is_dir():
            raise UsageError(
                f"there is no {folder}",
                f"`{command('fetch', self.fetched, data=root)}` puts it there; or unpack {self.archive}.",
            )
        train, test = self.rows
        return Dataset(
            *self._records(folder, self.train_files, train), *self._records(folder, self.test_files, test), self.classes
        )

    def _records(self, folder: Path, files: tuple[str, ...], count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images ``(n, 3, 32, 32)`` and labels ``(n,)`` of the binary version; the last label byte is the fine one."""
        import torch

        records, each = [], count // len(files) * (self.label_bytes + 3072)
        for name in files:
            try:
                require_regular(folder / name)
                with (folder / name).open("rb") as file:
                    content = file.read(each + 1)
            except OSError as error:
                raise UsageError(
                    f"cannot read {folder / name}: {error.strerror}", "Unpack the binary version again."
                ) from None
            if len(content) != each:
                raise UsageError(f"{folder / name} is cut short or has surplus bytes", "Unpack the archive again.")
            records.append(np.frombuffer(content, dtype=np.uint8).reshape(-1, self.label_bytes + 3072))
        rows = np.concatenate(records)
        labels = rows[:, self.label_bytes - 1].astype(np.int64)
        if labels.max() >= self.classes:
            raise UsageError(f"{folder}: class {labels.max()} is outside 0 to {self.classes - 1}")
        images = rows[:, self.label_bytes :].reshape(-1, 3, 32, 32)
        return torch.from_numpy(_shares(images)), torch.from_numpy(labels)


@dataclass(frozen=True)
class Cifar10(_Cifar):
    """CIFAR-10: ten classes. See :class:`_Cifar` for the files."""

    name: ClassVar[str] = "CIFAR10"
    fetched: ClassVar[str] = "cifar-10"
    archive: ClassVar[str] = "cifar-10-binary.tar.gz"
    binary: ClassVar[str] = "cifar-10-batches-bin"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    test_files: ClassVar[tuple[str, ...]] = ("test_batch.bin",)
    label_bytes: ClassVar[int] = 1
    classes: ClassVar[int] = 10


@dataclass(frozen=True)
class Cifar100(_Cifar):
    """CIFAR-100 with its hundred fine classes. See :class:`_Cifar` for the files."""

    name: ClassVar[str] = "CIFAR100"
    fetched: ClassVar[str] = "cifar-100"
    archive: ClassVar[str] = "cifar-100-binary.tar.gz"
    binary: ClassVar[str] = "cifar-100-binary"
    train_files: ClassVar[tuple[str, ...]] = ("train.bin",)
    test_files: ClassVar[tuple[str, ...]] = ("test.bin",)
    label_bytes: ClassVar[int] = 2
    classes: ClassVar[int] = 100
