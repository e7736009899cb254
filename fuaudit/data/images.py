"""Images: scikit-learn's digits, and folders in torchvision's layouts of MNIST and CIFAR."""

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
class _Cifar:
    """Colour images of 32 x 32; inputs in [0, 1], ``(3, 32, 32)``. 50,000 training and 10,000 test images.

    Read from the authors' binary version, ``ROOT/<binary>``, where it is there; a file is records of label bytes
    and 3,072 bytes of red, green and blue. Otherwise from the Python version in torchvision's layout, which is
    pickles: torchvision compares the MD5 of every file with that of the authors' files before it unpickles one,
    and other files are refused. With ``download`` torchvision fetches that version if it is not there.
    """

    download: bool = False
    name: ClassVar[str]
    pickled: ClassVar[str]
    binary: ClassVar[str]
    train_files: ClassVar[tuple[str, ...]]
    test_files: ClassVar[tuple[str, ...]]
    label_bytes: ClassVar[int]
    classes: ClassVar[int]
    cite: ClassVar[str] = "Krizhevsky, Learning multiple layers of features from tiny images, 2009"

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        if root is None:
            raise UsageError(
                f"{self.name} is read from a folder",
                f"Give --data ROOT with ROOT/{self.binary} or ROOT/{self.pickled}.",
            )
        if (root / self.binary).is_dir():
            parts = [self._records(root / self.binary, files) for files in (self.train_files, self.test_files)]
        else:
            parts = [self._unpickled(root, train) for train in (True, False)]
        (train_images, train_labels), (test_images, test_labels) = parts
        return Dataset(train_images, train_labels, test_images, test_labels, self.classes)

    def _records(self, folder: Path, files: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Images ``(n, 3, 32, 32)`` and labels ``(n,)`` of the binary version; the last label byte is the fine one."""
        records = []
        for name in files:
            try:
                content = (folder / name).read_bytes()
            except FileNotFoundError:
                raise UsageError(f"there is no {folder / name}", "Unpack the binary version again.") from None
            if not content or len(content) % (self.label_bytes + 3072):
                raise UsageError(f"{folder / name} is cut short or has surplus bytes", "Unpack the archive again.")
            records.append(np.frombuffer(content, dtype=np.uint8).reshape(-1, self.label_bytes + 3072))
        rows = np.concatenate(records)
        labels = rows[:, self.label_bytes - 1].astype(np.int64)
        if labels.max() >= self.classes:
            raise UsageError(f"{folder}: class {labels.max()} is outside 0 to {self.classes - 1}")
        images = rows[:, self.label_bytes :].reshape(-1, 3, 32, 32).astype(np.float32) / 255
        return torch.from_numpy(images), torch.from_numpy(labels)

    def _unpickled(self, root: Path, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Images ``(n, 3, 32, 32)`` and labels ``(n,)`` of the Python version, by torchvision."""
        if not self.download and not (root / self.pickled).is_dir():
            raise UsageError(
                f"there is neither {root / self.binary} nor {root / self.pickled}",
                "Unpack one of the archives there, or say download = true in [data].",
            )
        from torchvision import datasets

        try:
            data = getattr(datasets, self.name)(root, train=train, download=self.download)
        except (OSError, RuntimeError) as error:
            raise UsageError(
                f"{root / self.pickled} does not hold the authors' files: {error}", "Unpack the archive again."
            ) from None
        images = data.data.transpose(0, 3, 1, 2).astype(np.float32) / 255
        return torch.from_numpy(images), torch.tensor(data.targets)


@dataclass(frozen=True)
class Cifar10(_Cifar):
    """CIFAR-10: ten classes. See :class:`_Cifar` for files and options."""

    name: ClassVar[str] = "CIFAR10"
    pickled: ClassVar[str] = "cifar-10-batches-py"
    binary: ClassVar[str] = "cifar-10-batches-bin"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    test_files: ClassVar[tuple[str, ...]] = ("test_batch.bin",)
    label_bytes: ClassVar[int] = 1
    classes: ClassVar[int] = 10


@dataclass(frozen=True)
class Cifar100(_Cifar):
    """CIFAR-100 with its hundred fine classes. See :class:`_Cifar` for files and options."""

    name: ClassVar[str] = "CIFAR100"
    pickled: ClassVar[str] = "cifar-100-python"
    binary: ClassVar[str] = "cifar-100-binary"
    train_files: ClassVar[tuple[str, ...]] = ("train.bin",)
    test_files: ClassVar[tuple[str, ...]] = ("test.bin",)
    label_bytes: ClassVar[int] = 2
    classes: ClassVar[int] = 100
