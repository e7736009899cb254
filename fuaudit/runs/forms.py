"""The forms of a run's files: what their bytes mean, and how numbers in them are compared with those of a machine."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuaudit.config import LONGEST, parse_toml
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import (
    MAX_JSON_BYTES,
    MAX_TENSOR_BYTES,
    Array,
    parse_arrays,
    parse_pretty,
    pretty_json,
    tensor_bytes,
)
from fuaudit.runs.rounding import DIGITS, are_neighbours, is_rounded

if TYPE_CHECKING:
    from torch import Tensor


class Elsewhere(Enum):
    """How the numbers of a field are compared with those that follow from the same models on another platform."""

    EXACT = "they follow from the plan alone, and are the same on every platform"
    SAME = "they are measured on models; where they differ, nothing is shown"
    NEAR = "they are measured on models and rounded, and may differ by one in the last digit"


OTHERS = "*"
"""Stands for the fields that :attr:`Json.numbers` does not name."""


@dataclass(frozen=True)
class Json:
    """Pretty JSON: a table, or a list of them.

    One that names its ``format`` is refused by that name when it is another, before anything else in it is judged.

    Attributes:
        wrong: the names of fields of a value that are missing, of another shape, or unknown.
        numbers: field -> how its numbers are compared on another platform. A field that is not named holds no
            fraction, and is compared exactly. None for a file that nothing makes again.
    """

    wrong: Callable[[Any], list[str]]
    format: str = ""
    numbers: Mapping[str, Elsewhere] | None = None

    limit = MAX_JSON_BYTES

    def parse(self, content: bytes, path: Path) -> Any:
        """The value; EvidenceError where it is in no such form."""
        value = parse_pretty(content, path, self.format)
        if refused := self._refused(value):
            raise EvidenceError(f"{path}: {refused}")
        return value

    def write(self, value: object) -> bytes:
        """The inverse of :meth:`parse`; ValueError for a value of another shape."""
        content = pretty_json(value)
        if refused := self._refused(json.loads(content)):  # a tuple is a list there
            raise ValueError(refused)
        return content

    def exact(self, value: object) -> bytes:
        """What of a value is the same on every platform; what was measured on models is left out."""
        measured = dict(self._measured)
        return pretty_json(
            [
                {name: inner for name, inner in row.items() if name not in measured} if isinstance(row, dict) else row
                for row in _rows(value)
            ]
        )

    def last_digits(self, ours: object, theirs: object) -> int | None:
        """How many figures of two values differ, each by one in its last digit, as two platforms may measure the same
        models; None where anything else differs.
        """
        if self.exact(ours) != self.exact(theirs):
            return None
        pairs = zip(_rows(ours), _rows(theirs), strict=True)
        found = [
            _last_digits(a.get(name), b.get(name), how is Elsewhere.NEAR)
            for a, b in pairs
            for name, how in self._measured
        ]
        return _sum(found)

    @property
    def _measured(self) -> Iterator[tuple[str, Elsewhere]]:
        return ((name, how) for name, how in (self.numbers or {}).items() if how is not Elsewhere.EXACT)

    def _refused(self, value: Any) -> str:
        if wrong := self.wrong(value):
            return f"missing, wrong or unknown: {', '.join(map(repr, wrong))}"
        if fine := sorted(self._not_rounded(value)):
            return f"not rounded to {DIGITS} digits: {', '.join(map(repr, fine))}"
        if self.numbers is None or OTHERS in self.numbers:
            return ""
        fields = (item for row in _rows(value) for item in (row.items() if isinstance(row, dict) else [("", row)]))
        if unsaid := sorted({name for name, inner in fields if name not in self.numbers and _has_fraction(inner)}):
            return f"fractions, and not said how they are compared elsewhere: {', '.join(map(repr, unsaid))}"
        return ""

    def _not_rounded(self, value: object) -> Iterator[str]:
        near = {name for name, how in (self.numbers or {}).items() if how is Elsewhere.NEAR}
        tables = [row for row in _rows(value) if isinstance(row, dict)]
        return (name for name in near if not all(map(is_rounded, _fractions([row.get(name) for row in tables]))))


def _rows(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _has_fraction(value: object) -> bool:
    return any(True for _ in _fractions(value))


def _fractions(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _fractions(one)


def _sum(counts: Sequence[int | None]) -> int | None:
    """The sum; None where one is."""
    return None if None in counts else sum(count for count in counts if count is not None)


def _last_digits(a: Any, b: Any, near: bool) -> int | None:
    """See :meth:`Json.last_digits`; only where they are ``near`` may figures differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        return _sum([_last_digits(a[name], b[name], near) for name in a]) if a.keys() == b.keys() else None
    if isinstance(a, list) and isinstance(b, list):
        return _sum([_last_digits(*pair, near) for pair in zip(a, b, strict=True)]) if len(a) == len(b) else None
    if repr(a) == repr(b):  # by its text: a zero with a sign is equal to one without
        return 0
    return 1 if near and isinstance(a, float) and isinstance(b, float) and are_neighbours(a, b) else None


def kind_of(tensor: Tensor | Array) -> str:
    """The kind of numbers in a tensor, in a word."""
    return str(tensor.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Tensors:
    """Safetensors. ``named`` gives the kind and the number of axes of each tensor; None where a model decides.
    Those that are ``optional`` need not be there.

    They are read as arrays: looking at them needs no torch.
    """

    named: Mapping[str, tuple[str, int]] | None = None
    optional: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    limit = MAX_TENSOR_BYTES

    def parse(self, content: bytes, path: Path) -> dict[str, Array]:
        """The tensors; EvidenceError where they are in no such form."""
        tensors = parse_arrays(content, path)
        if wrong := self._wrong(tensors):
            raise EvidenceError(f"{path}: tensors that are missing, wrong or unknown: {', '.join(map(repr, wrong))}")
        return tensors

    def write(self, tensors: Mapping[str, Tensor | Array]) -> bytes:
        """The inverse of :meth:`parse`; ValueError for other tensors."""
        if wrong := self._wrong(tensors):
            raise ValueError(f"tensors that are missing, wrong or unknown: {', '.join(map(repr, wrong))}")
        return tensor_bytes(tensors)

    def _wrong(self, tensors: Mapping[str, Tensor | Array]) -> list[str]:
        if self.named is None:
            return [] if tensors else [""]
        found = {name: (kind_of(t), t.ndim) for name, t in tensors.items()}
        known = {**self.named, **{name: form for name, form in self.optional.items() if name in found}}
        return sorted(n for n in found.keys() | known.keys() if found.get(n) != known.get(n))


@dataclass(frozen=True)
class Checkpoint(Tensors):
    """The tensors of a stored round: ``vector`` and memories of solver and server, whose shapes the config decides."""

    def _wrong(self, tensors: Mapping[str, Tensor | Array]) -> list[str]:
        strange = [
            name for name in tensors if name != "vector" and not name.startswith(("state.solver.", "state.server."))
        ]
        vector = tensors.get("vector")
        sound = vector is not None and vector.ndim == 1 and kind_of(vector).startswith("float")
        return strange + ([] if sound else ["vector"])


@dataclass(frozen=True)
class Memories(Tensors):
    """What client stages keep after a stored round, and the salt of the file."""

    def _wrong(self, tensors: Mapping[str, Tensor | Array]) -> list[str]:
        strange = [name for name in tensors if name != "salt" and not name.startswith("state.client.")]
        salt = tensors.get("salt")
        sound = salt is not None and tuple(salt.shape) == (32,) and kind_of(salt) == "uint8"
        return strange + ([] if sound else ["salt"])


@dataclass(frozen=True)
class Deliveries(Tensors):
    """What came of a round in messages; who is behind each row is said by places, or by counts alone."""

    def _wrong(self, tensors: Mapping[str, Tensor | Array]) -> list[str]:
        found = {name: (kind_of(t), t.ndim) for name, t in tensors.items()}
        rows, axes = found.pop("rows", ("", 0))
        strange = [] if rows.startswith("float") and axes == 2 else ["rows"]
        behind = {"counts", "discarded"} if "counts" in found else {"places"}
        axes_of = dict.fromkeys(behind, 1) | {"absent": 1, "rejected": 2}
        axes_of |= {"coordinates": 1} if "coordinates" in found else {}
        known = {name: ("int64", count) for name, count in axes_of.items()}
        return strange + sorted(n for n in found.keys() | known.keys() if found.get(n) != known.get(n))


@dataclass(frozen=True)
class Toml:
    """A config. Which options there are is for the plugins that it names; :mod:`fuaudit.config` asks them."""

    limit = LONGEST

    def parse(self, content: bytes, path: Path) -> dict[str, Any]:
        """The table; EvidenceError where it is no TOML."""
        try:
            return parse_toml(content.decode())
        except (ValueError, tomllib.TOMLDecodeError) as error:
            raise EvidenceError(f"{path} cannot be read: {error}") from None


@dataclass(frozen=True)
class Lines:
    """Canonical JSON, an event or a message a line; the ledger and the chain of a transcript read their own.

    ``limit``: bytes at most.
    """

    limit: int = MAX_JSON_BYTES


@dataclass(frozen=True)
class Envelopes:
    """Messages in bytes, one after the other; the chain of the transcript tells where each ends."""

    limit: int = MAX_TENSOR_BYTES
