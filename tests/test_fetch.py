"""Fetching: the one command that downloads. torchvision's folders are made here in their real form, but small."""

import hashlib
import pickle
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torchvision import datasets

from fuaudit.data.images import Cifar10, Cifar100, Mnist
from fuaudit.errors import UsageError
from fuaudit.importing.fetch import fetch

EACH = 3
TRAIN, TEST = [f"data_batch_{n}" for n in range(1, 6)], ["test_batch"]


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.setattr("torchvision.datasets.cifar.download_and_extract_archive", refuse)
    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", refuse)


def pickled(folder, cls, files, key, seed, monkeypatch, attribute):
    """Batches as the Python version of CIFAR has them, and torchvision told that these are the authors'."""
    draws, listed = np.random.default_rng(seed), []
    for name in files:
        batch = {"data": draws.integers(256, size=(EACH, 3072), dtype=np.uint8), key: [2, 0, 1]}
        content = pickle.dumps(batch)
        (folder / name).write_bytes(content)
        listed.append([name, hashlib.md5(content).hexdigest()])
    monkeypatch.setattr(cls, attribute, listed)


def torchvisions(root, cls, key, train, test, monkeypatch):
    folder = root / cls.base_folder
    folder.mkdir(parents=True)
    pickled(folder, cls, train, key, 1, monkeypatch, "train_list")
    pickled(folder, cls, test, key, 2, monkeypatch, "test_list")
    meta = pickle.dumps({cls.meta["key"]: ["a", "b", "c"]})
    (folder / cls.meta["filename"]).write_bytes(meta)
    monkeypatch.setattr(cls, "meta", cls.meta | {"md5": hashlib.md5(meta).hexdigest()})


@pytest.mark.parametrize(
    ("name", "cls", "reader", "key", "train", "test"),
    [
        ("cifar-10", datasets.CIFAR10, Cifar10, "labels", TRAIN, TEST),
        ("cifar-100", datasets.CIFAR100, Cifar100, "fine_labels", ["train"], ["test"]),
    ],
)
def test_cifar_of_torchvision_becomes_the_binary_version(
    tmp_path, monkeypatch, offline, name, cls, reader, key, train, test
):
    torchvisions(tmp_path, cls, key, train, test, monkeypatch)
    monkeypatch.setattr(reader, "rows", (EACH * len(train), EACH))
    with pytest.raises(UsageError, match=f"fuaudit fetch {name} --data '.*a b'"):
        reader().load(tmp_path / "a b")
    fetch(name, tmp_path)
    found = reader().load(tmp_path)
    expected = cls(tmp_path, train=True)
    assert torch.equal(found.inputs, torch.from_numpy(expected.data.transpose(0, 3, 1, 2).astype(np.float32) / 255))
    assert found.targets.tolist() == expected.targets
    assert found.test_targets.tolist() == [2, 0, 1]
    assert not torch.equal(found.inputs[:EACH], found.test_inputs)


def test_pickles_that_are_not_the_authors_are_not_opened(tmp_path, offline):
    folder = tmp_path / datasets.CIFAR10.base_folder
    folder.mkdir()
    for name in [*TRAIN, *TEST, "batches.meta"]:
        (folder / name).write_bytes(f"cos\nmkdir\n(S'{tmp_path}/executed'\ntR.".encode())
    with pytest.raises(UsageError, match=r"could not be fetched(.|\n)*network"):
        fetch("cifar-10", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_files_of_mnist_that_are_there_are_taken(tmp_path, monkeypatch, offline):
    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    for name, count in (("train", 4), ("t10k", 2)):
        images = b"\0\0\x08\3" + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28)) + bytes(count * 784)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(images)
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\1" + count.to_bytes(4, "big") + bytes(range(count)))
    monkeypatch.setattr(Mnist, "rows", (4, 2))
    fetch("mnist", tmp_path)
    with pytest.raises(UsageError, match="could not be fetched"):
        fetch("fashion-mnist", tmp_path)


def test_the_command(tmp_path, fuaudit):
    code, _, error = fuaudit("fetch", "digits", "--data", tmp_path)
    assert code == 2
    assert "'digits' cannot be fetched" in error
