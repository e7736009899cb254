"""The contract of data sets."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fuaudit.data.dataset import Dataset, require_sound
from fuaudit.data.partition import is_name, look_of
from fuaudit.errors import UsageError
from fuaudit.testing.problems import Problems


def check_dataset(plugin: Any, root: Path | None = None) -> None:
    """Check that a data set keeps its contract.

    It loads sound data (:func:`fuaudit.data.dataset.require_sound`), the same when it is asked again, and every owner
    has a name that can be typed; without its folder it loads too, or raises UsageError; no global generator is used.

    Args:
        root: the folder that it reads, where it reads one.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(plugin, "datasets")
    with problems.during("loading"):
        data, again = plugin.load(root), plugin.load(root)
        if isinstance(data, Dataset):
            require_sound(data)
            problems.require(_equal(data, again), "it loads other data when it is asked again")
            _check_names(data, problems)
        else:
            problems.require(False, f"it loads {type(data).__name__}, not a Dataset")
    with problems.during("loading without a folder"), suppress(UsageError):
        plugin.load(None)
    problems.conclude()


def _equal(data: Dataset, other: Dataset) -> bool:
    names = ("inputs", "targets", "test_inputs", "test_targets")
    pairs = ((data.owners, other.owners), (data.test_owners, other.test_owners))
    alike = all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)
    rest = (data.classes, data.absent, data.owner_names) == (other.classes, other.absent, other.owner_names)
    return alike and rest and all(torch.equal(getattr(data, name), getattr(other, name)) for name in names)


def _check_names(data: Dataset, problems: Problems) -> None:
    names = data.owner_names
    if not names:
        return
    problems.require(len({*map(look_of, names)}) == len(names), "two owners have one name")
    problems.require(
        all(map(is_name, names)), "an owner's name cannot be typed: it must be printable, without end spaces"
    )
    known = data.owners is not None and int(data.owners.max()) < len(names)
    problems.require(known, "there are names of owners, but rows without owners, or owners without names")
