"""The contracts of models and data sets hold for our own, and wrong ones are caught."""

from dataclasses import dataclass, replace
from itertools import count

import pytest
import torch
from torch import nn

from fuaudit.data import Dataset
from fuaudit.errors import UsageError
from fuaudit.models.dense import Linear, Mlp
from fuaudit.models.recurrent import Lstm
from fuaudit.testing import check_dataset, check_model
from fuaudit.testing.tiny import tiny_dataset

CALLS = count()


def test_our_own_keep_the_contract():
    check_model(Linear())
    check_model(Mlp(hidden=(5, 4)), (2, 3), 4)
    check_model(Lstm(hidden=4, layers=1), classes=7, inputs=torch.arange(20, dtype=torch.uint8).reshape(4, 5) % 7)


@dataclass(frozen=True)
class Wrong:
    """A model that is wrong in one of several ways."""

    way: str

    def build(self, shape, classes):
        wide = 8 + int(torch.rand(()) * 1000) if self.way == "by chance" else 8
        wrong = {"dropout": nn.Dropout(), "batch norm": nn.BatchNorm1d(8), "beside": Beside()}
        layers = [nn.Flatten(), nn.Linear(64, wide), wrong.get(self.way, nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(wide, classes + (self.way == "classes")))


class Beside(nn.Module):
    """Subtracts the mean of the rows."""

    def forward(self, rows):
        return rows - rows.mean(dim=0)


@dataclass(frozen=True)
class NoModule:
    """Builds no module."""

    def build(self, shape, classes):
        return "a model"


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (Wrong("by chance"), "builds another module"),
        (Wrong("dropout"), "Dropout draws from torch's global generator"),
        (Wrong("batch norm"), "makes samples depend on each other"),
        (Wrong("beside"), "depend on the rows beside"),
        (Wrong("classes"), "not logits"),
        (NoModule(), "it builds str, not a module"),
    ],
)
def test_wrong_models_are_caught(recipe, said):
    with pytest.raises(AssertionError, match=said):
        check_model(recipe)


@dataclass(frozen=True)
class Rows:
    """A data set that is right, or wrong in one of several ways."""

    way: str = ""

    def load(self, root):
        data = tiny_dataset()
        if root is None and self.way != "without a folder":
            raise UsageError("there is no folder") if self.way != "folder" else ValueError("no folder")
        owners = torch.arange(data.size) % 2
        ways = {
            "none": lambda: None,
            "classes": lambda: replace(data, classes=2),
            "other": lambda: replace(data, inputs=data.inputs + next(CALLS)),
            "names": lambda: replace(data, owners=owners, owner_names=("a", "a")),
            "spaces": lambda: replace(data, owners=owners, owner_names=("a", "b ")),
            "numpy": lambda: replace(data, inputs=data.inputs.numpy()),
            "few": lambda: replace(data, owners=owners, owner_names=("a",)),
        }
        made = ways.get(self.way, lambda: replace(data, owners=owners, owner_names=("a", "b")))()
        assert made is None or isinstance(made, Dataset)
        return made


def test_a_right_data_set_passes(tmp_path):
    check_dataset(Rows(), tmp_path)
    check_dataset(Rows("without a folder"))


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("none", "it loads NoneType, not a Dataset"),
        ("classes", "outside 0 to 1"),
        ("other", "other data when it is asked again"),
        ("names", "two owners have one name"),
        ("spaces", "cannot be typed"),
        ("few", "owners without names"),
        ("numpy", "inputs must be a torch tensor, not numpy.ndarray"),
        ("folder", "loading without a folder: ValueError"),
    ],
)
def test_wrong_data_sets_are_caught(tmp_path, way, said):
    with pytest.raises(AssertionError, match=said):
        check_dataset(Rows(way), tmp_path)


class BesideMany(nn.Module):
    """Looks at the rows beside where there are more than four, or where one of them is large."""

    def __init__(self, large):
        super().__init__()
        self.large = large

    def forward(self, inputs):
        if self.large:
            return inputs + (inputs.abs().amax() > 3)
        return inputs - inputs.mean(0, keepdim=True) if len(inputs) > 4 else inputs


@dataclass(frozen=True)
class WrongAmongMany:
    large: bool

    def build(self, shape, classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes), BesideMany(self.large))


@pytest.mark.parametrize("large", [False, True])
def test_a_model_that_looks_at_many_rows_or_large_ones(large):
    with pytest.raises(AssertionError, match="depend on the rows beside"):
        check_model(WrongAmongMany(large))
