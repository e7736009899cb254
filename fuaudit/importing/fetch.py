"""Fetch: put the authors' files of a data set where its reader looks for them. The one place that downloads.

An audit reads with the reader that an audited run names, so readers neither fetch nor unpickle; fetching is what a
user asks for. torchvision does it: it takes files that are there and downloads the others, whose checksums must be the
authors'. Its CIFAR is the Python version, which is pickles, opened here only, after their checksums were compared; what
is read later are the same images as plain bytes, in the form of the binary version, written beside it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fuaudit import registry
from fuaudit.errors import UsageError, nearest
from fuaudit.formats.files import make_folder, storage, write_bytes

FETCHED = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "cifar-10": "CIFAR10", "cifar-100": "CIFAR100"}
"""Data set -> its class in torchvision."""


def fetch(name: str, root: Path) -> None:
    """Fetch a data set to ``root``, or complete what is there.

    Raises:
        UsageError: a data set that cannot be fetched; it could not be downloaded, or files there are not the authors'.
        StorageError: the file system refused.
    """
    if name not in FETCHED:
        raise UsageError(f"{name!r} cannot be fetched", nearest(name, FETCHED))
    from torchvision import datasets

    with storage(root):
        make_folder(root)
    reader = registry.find("datasets", name).load()
    parts: list[bytes] = []
    for train in (True, False):
        try:
            found = getattr(datasets, FETCHED[name])(root, train=train, download=True)
        except (OSError, RuntimeError) as error:
            raise UsageError(
                f"{name} could not be fetched: {error}",
                f"Is there a network? Files that you have go to {root}; docs/data-and-models.md says where.",
            ) from None
        if name.startswith("cifar"):
            parts.append(records(found.data, np.asarray(found.targets), reader.label_bytes))
    if parts:
        folder = root / reader.binary
        for files, content in zip((reader.train_files, reader.test_files), parts, strict=True):
            each = len(content) // len(files)
            for at, file in enumerate(files):
                write_bytes(folder / file, content[at * each : (at + 1) * each])
    reader().load(root)  # what was written can be read


def records(images: NDArray[np.uint8], labels: NDArray[np.int64], label_bytes: int) -> bytes:
    """Images ``(n, 32, 32, 3)`` and labels ``(n,)`` as CIFAR's binary version has them.

    The label stands in the last label byte; the byte before it, the coarse class of CIFAR-100, is 0, and not read.
    """
    marks = np.zeros((len(labels), label_bytes), dtype=np.uint8)
    marks[:, -1] = labels
    pixels = images.transpose(0, 3, 1, 2).reshape(len(labels), -1)
    return np.concatenate([marks, pixels], axis=1).tobytes()
