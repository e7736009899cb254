"""A user's own data, as tensors in one file."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from safetensors import SafetensorError

from fuaudit.data.dataset import Dataset, erased_input, is_input_type, require_room
from fuaudit.data.documents import parse
from fuaudit.data.partition import MOST_OF_A_NAME, is_name
from fuaudit.errors import UsageError
from fuaudit.reading import require_regular
from fuaudit.text import printable

if TYPE_CHECKING:
    from torch import Tensor

NEEDED = {"inputs", "targets", "test_inputs", "test_targets"}
NUMBERS = {"ids", "owners", "test_owners"}
LINES = {"lines", "test_lines"}
"""Tensors of the file, by name: those it must have, those it may have, and those in which `fuaudit import` notes the
lines of the file that rows come from."""

ENTRY = {"dtype", "shape", "data_offsets"}
"""What the header says of a tensor."""

NOTES: tuple[dict[str, str], ...] = {}, {"format": "pt"}, {"format": "np"}
"""What the header of the file may note beside tensors: many programs name a library there."""


@dataclass(frozen=True)
class Tensors:
    """A user's own data: ``ROOT/data.safetensors`` with ``inputs``, ``targets``, ``test_inputs``, ``test_targets``.

    Inputs are real numbers, or integers for models that begin with an embedding. An optional tensor ``ids (n,)``
    names the stable ids of the training rows, from 0; ids that are missing are rows already erased from the folder.
    So are all ids of a run beyond the largest one here. An optional tensor ``owners (n,)`` holds the number of the
    owner of every row, from 0, for the partition ``by-owner``; ``test_owners (t,)`` says the same of test rows, to
    count them. ``ROOT/owners.json``, a list of texts, gives their names, where there is one. `fuaudit import` makes
    such folders from CSV files, with ``lines`` and ``test_lines``; other tensors, and notes in the header, are refused.

    Attributes:
        classes: how many classes there are; targets are smaller.
    """

    classes: int
    file: ClassVar[str] = "data.safetensors"
    names: ClassVar[str] = "owners.json"

    def load(self, root: Path | None) -> Dataset:
        """Needs ``--data ROOT``."""
        import torch
        from safetensors.torch import load_file

        if root is None or not (root / self.file).exists():
            raise UsageError(
                f"there is no {self.file if root is None else root / self.file} to read",
                f"Give --data ROOT with ROOT/{self.file}.",
            )
        require_regular(root / self.file)
        try:
            tensors = load_file(root / self.file)
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{root / self.file} is no safetensors file: {error}") from None
        _require_plain_header(root / self.file)
        if missing := NEEDED - tensors.keys():
            raise UsageError(f"{root / self.file} lacks {', '.join(sorted(missing))}")
        if surplus := tensors.keys() - NEEDED - NUMBERS - LINES:
            raise UsageError(
                f"{root / self.file} holds tensors that nothing reads: {', '.join(map(printable, sorted(surplus)))}",
                "Leave them out: erased rows could lie in them unseen.",
            )
        inputs, count = tensors["inputs"], len(tensors["targets"]) if tensors["targets"].ndim else 0
        if inputs.ndim < 2 or not is_input_type(inputs.dtype) or not count:
            raise UsageError(
                f"{root / self.file}: inputs of type {inputs.dtype} and shape {tuple(inputs.shape)} "
                f"with {count} targets cannot be used",
                "Give inputs (n, ...) of real numbers or integers, and targets (n,).",
            )
        columns = {name: self._integers(root, tensors, name) for name in ("targets", "test_targets")}
        columns |= {name: self._integers(root, tensors, name) for name in sorted((NUMBERS | LINES) & tensors.keys())}
        for name in sorted(LINES & columns.keys()):
            if columns[name].shape != columns[of := name.replace("lines", "targets")].shape:
                raise UsageError(f"{root / self.file}: {name} must give one line of a file for each of the {of}")
        ids = columns.get("ids", torch.arange(count))
        if "owners" in columns and columns["owners"].shape != ids.shape:
            raise UsageError(f"{root / self.file}: owners must name one owner a training row")
        if "owners" in columns and int(columns["owners"].min()) < 0:
            raise UsageError(
                f"{root / self.file}: an owner is {int(columns['owners'].min())}; owners are numbered from 0",
                "Leave rows out that belong to nobody.",
            )
        if not len(ids) == len(inputs) == count or len(ids.unique()) != count or int(ids.min()) < 0:
            raise UsageError(
                f"{root / self.file}: ids, inputs and targets do not fit together",
                "Every row of the inputs needs one target and one id of its own, from 0.",
            )
        names = self._names(root, columns.get("owners"))
        size = int(ids.max()) + 1
        require_room(size - count, inputs)  # before anything is made of that size

        def placed(values: Tensor, absent: float) -> Tensor:
            everywhere = values.new_full((size, *values.shape[1:]), absent)
            everywhere[ids] = values
            return everywhere

        return Dataset(
            placed(inputs, erased_input(inputs.dtype)),
            placed(columns["targets"], 0),
            tensors["test_inputs"],
            columns["test_targets"],
            self.classes,
            frozenset(range(size)) - frozenset(ids.tolist()),
            placed(columns["owners"], -1) if "owners" in columns else None,
            names,
            columns.get("test_owners"),
        )

    def _names(self, root: Path, owners: Tensor | None) -> tuple[str, ...]:
        """The names of owners; none without a file of them. The name of one whose rows are gone may be empty."""
        path = root / self.names
        if owners is None or not path.exists():
            return ()
        require_regular(path)
        content = path.read_bytes()
        names = parse(content, path)
        if not isinstance(names, list) or not all(name == "" or is_name(name) for name in names):
            raise UsageError(
                f"{path} is no list of names",
                f"Names are printable, have 1 to {MOST_OF_A_NAME} characters, and no space at their ends.",
            )
        if len(content) > len(json.dumps(names, indent=4)) + 2:  # at most the end of a line behind them
            raise UsageError(
                f"{path} is longer than its names", "Write it anew: erased rows could lie in its spaces unseen."
            )
        if twice := [name for name, count in Counter(names).items() if name and count > 1]:
            raise UsageError(f"{path} has the name {twice[0]!r} twice", "Give every owner a name of its own.")
        if int(owners.max()) >= len(names) or not all(names[owner] for owner in owners.unique().tolist()):
            raise UsageError(f"{path} lacks the name of an owner of rows in {self.file}", "Owner k has the place k.")
        return tuple(names)

    def _integers(self, root: Path, tensors: dict[str, Tensor], name: str) -> Tensor:
        """One tensor as int64 ``(n,)``; UsageError for real numbers, truth values or other shapes."""
        values = tensors[name]
        if values.ndim != 1 or not is_input_type(values.dtype) or values.is_floating_point():
            raise UsageError(
                f"{root / self.file}: {name} must be integers (n,), not {values.dtype} of shape {tuple(values.shape)}"
            )
        return values.long()


def _require_plain_header(path: Path) -> None:
    """Raises UsageError where the header of a safetensors file has room for anything but what its tensors need.

    It may be as long as JSON is with a space behind each comma and colon, filled up to a multiple of eight bytes.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    if header.get("__metadata__", {}) not in NOTES:
        raise UsageError(
            f"the header of {path} holds notes that nothing reads",
            "Write it without metadata: erased rows could lie there unseen.",
        )
    if any(entry.keys() != ENTRY for name, entry in header.items() if name != "__metadata__"):
        raise UsageError(
            f"the header of {path} says more of a tensor than {', '.join(sorted(ENTRY))}",
            "Write the file anew with safetensors: erased rows could lie there unseen.",
        )
    if length >= len(json.dumps(header)) + 8:
        raise UsageError(
            f"{path}: its header is longer than what it says",
            "Write the file anew with safetensors: erased rows could lie in spaces unseen.",
        )
