"""Federated data in LEAF's JSON: FEMNIST by writer, Shakespeare by role.

LEAF (Caldas et al., arXiv 1812.01097) leaves ``train/*.json`` and ``test/*.json``; a file holds ``users`` (names),
``num_samples`` (one a user) and ``user_data`` (name -> lists ``x`` and ``y``). Owners are numbered in the order of
their names, so row ids do not depend on how users are spread over files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from fuaudit.data.dataset import Dataset
from fuaudit.data.documents import parse
from fuaudit.data.text import TOKENS, encode
from fuaudit.errors import UsageError
from fuaudit.reading import require_regular

if TYPE_CHECKING:
    from torch import Tensor

_NUMBERS = {int, float}
"""The numbers of JSON; true and false are of another type."""

Rows: TypeAlias = tuple["Tensor", "Tensor"]
"""Inputs ``(n, *shape)`` and targets ``(n,)`` of one user."""


@dataclass(frozen=True)
class _Leaf:
    """A LEAF data set in ``ROOT/<folder>/data``, as LEAF's own scripts lay it out.

    ``owners`` takes the first so many users of the training files in the order of names, and their test samples.

    Attributes:
        owners: how many users are read, in the order of names; left out, all.
    """

    owners: int | None = None
    folder: ClassVar[str]
    classes: ClassVar[int]
    cite: ClassVar[str] = "Caldas et al., arXiv 1812.01097, 2018"

    def __post_init__(self) -> None:
        if self.owners is not None and self.owners < 1:
            raise UsageError("owners must be at least 1")

    @abstractmethod
    def rows(self, inputs: list[Any], targets: list[Any]) -> Rows:
        """The samples of one user from the lists ``x`` and ``y``; ValueError if they are not such."""

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        import torch

        if root is None:
            raise UsageError(
                f"{self.folder} is read from LEAF's files", f"Give --data ROOT with ROOT/{self.folder}/data/train."
            )
        found, tested = (self._users(root / self.folder / "data" / part) for part in ("train", "test"))
        names = tuple(sorted(found))[: self.owners]
        train = [found[name] for name in names]
        test_names = [name for name in sorted(tested) if self.owners is None or name in names]
        test = [tested[name] for name in test_names]
        if not test:
            raise UsageError(
                f"the files in {root / self.folder / 'data' / 'test'} hold no sample of the {len(names)} users",
                "Split samples, not users, into training and test files, or leave owners out.",
            )
        shapes = {inputs.shape[1:] for inputs, _ in (*train, *test)}
        if len(shapes) != 1:
            raise UsageError(
                f"{root / self.folder / 'data'}: samples have several shapes: {sorted(map(tuple, shapes))}"
            )
        places = {name: place for place, name in enumerate(names)}

        def owners(names: Sequence[str], rows: Sequence[Rows]) -> Tensor:
            numbers = torch.tensor([places.get(name, -1) for name in names])
            return torch.repeat_interleave(numbers, torch.tensor([len(inputs) for inputs, _ in rows]))

        return Dataset(
            *_joined(train),
            *_joined(test),
            self.classes,
            frozenset(),
            owners(names, train),
            names,
            owners(test_names, test),
        )

    def _users(self, folder: Path) -> dict[str, Rows]:
        """The users of a folder and their samples; users without any are left out."""
        paths = sorted(folder.glob("*.json"))
        if not paths:
            raise UsageError(
                f"there are no files *.json in {folder}",
                f"Make them with LEAF's preprocess script and give the folder above {self.folder!r} with --data.",
            )
        found: dict[str, Rows] = {}
        for path in paths:
            for user, inputs, targets in _read(path):
                if user in found:
                    raise UsageError(f"{path}: user {user!r} was in an earlier file of the folder already")
                if not inputs:
                    continue
                try:
                    found[user] = self.rows(inputs, targets)
                except (ValueError, OverflowError) as error:
                    raise UsageError(f"{path}: the samples of user {user!r} are not {self.folder}'s: {error}") from None
        if not found:
            raise UsageError(f"the files in {folder} hold no sample")
        return found


def _read(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Name and lists ``x`` and ``y`` of every user of a file; UsageError when it is no such file."""
    require_regular(path)
    content = parse(path.read_bytes(), path)
    try:
        users, counts, samples = content["users"], content["num_samples"], content["user_data"]
        if len(set(users)) != len(users):
            raise UsageError(
                f"{path}: {next(user for user in users if users.count(user) > 1)!r} is listed twice in users"
            )
        if set(users) != samples.keys():
            raise UsageError(f"{path}: users and user_data do not name the same users")
        for user, count in zip(users, counts, strict=True):
            inputs, targets = samples[user]["x"], samples[user]["y"]
            if not isinstance(inputs, list) or not isinstance(targets, list):
                raise UsageError(f"{path}: x and y of user {user!r} must be lists")
            if not len(inputs) == len(targets) == count:
                raise UsageError(f"{path}: user {user!r} shall have {count} samples, not {len(inputs)}, {len(targets)}")
            yield user, inputs, targets
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is not in LEAF's form (users, num_samples, user_data): {error!r}") from None


def _joined(parts: list[Rows]) -> Rows:
    import torch

    inputs, targets = zip(*parts, strict=True)
    return torch.cat(inputs), torch.cat(targets)


@dataclass(frozen=True)
class Femnist(_Leaf):
    """Handwritten digits and letters by writer, 62 classes; images of 28 x 28 numbers in [0, 1], ``(1, 28, 28)``.

    White is 1, as LEAF writes it.
    """

    folder: ClassVar[str] = "femnist"
    classes: ClassVar[int] = 62

    def rows(self, inputs: list[Any], targets: list[Any]) -> Rows:
        """See :class:`_Leaf`."""
        import torch

        if not all(type(label) is int and 0 <= label < self.classes for label in targets):
            raise ValueError(f"a class is not a whole number from 0 to {self.classes - 1}")
        if not all(
            isinstance(image, list) and len(image) == 784 and {*map(type, image)} <= _NUMBERS for image in inputs
        ):
            raise ValueError("an image is not a list of 784 numbers")
        images = np.array(inputs, dtype=np.float32).reshape(-1, 1, 28, 28)
        if not ((images >= 0) & (images <= 1)).all():
            raise ValueError("an image holds a number outside 0 to 1, or NaN")
        return torch.from_numpy(images), torch.tensor(targets)


@dataclass(frozen=True)
class Shakespeare(_Leaf):
    """Next-character prediction by role: LEAF's windows of 80 characters as uint8 tokens ``(80,)``.

    Characters become tokens of :data:`fuaudit.data.text.ALPHABET`. LEAF's windows begin one character apart, so
    the characters of an erased sample remain in its neighbours.
    """

    folder: ClassVar[str] = "shakespeare"
    classes: ClassVar[int] = TOKENS

    def rows(self, inputs: list[Any], targets: list[Any]) -> Rows:
        """See :class:`_Leaf`."""
        if not all(isinstance(text, str) for text in (*inputs, *targets)):
            raise ValueError("windows and targets must be texts")
        if any(len(target) != 1 for target in targets) or len({len(text) for text in inputs}) != 1 or not inputs[0]:
            raise ValueError("windows must have one length, at least 1, and targets be one character")
        return encode("".join(inputs)).view(len(inputs), -1), encode("".join(targets)).long()
