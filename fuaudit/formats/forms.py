"""Forms: the one way in which the format writes a value, and readers that take no other.

Pure functions between values and bytes. Every encoder gives one text for one value; every decoder writes what it has
read again and compares, so that nothing can lie in the spelling. The forms are those of docs/run-format.md and of no
library: what a library writes may change. Sizes are looked at before contents, lengths before lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.errors import EvidenceError
from fuaudit.formats.versions import require_format

if TYPE_CHECKING:
    from torch import Tensor

MAX_JSON_BYTES = 64 * 2**20
MAX_TENSOR_BYTES = 16 * 2**30
MAX_HEADER_BYTES = 16 * 2**20
"""Of the names and shapes of a file of tensors."""

DEEPEST = 64
"""Levels of nested tables and lists."""

MAX_NAME = 200
"""Characters of the name of a tensor."""

# --- JSON


def canonical_json(value: object) -> bytes:
    """One form for one value: sorted keys, no spaces, no NaN; what digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def pretty_json(value: object) -> bytes:
    """For files that people read: sorted and indented."""
    return (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number of this format")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits[:20]} is too large for a number of this format")
    return number


def parse_json(content: bytes, path: Path) -> Any:
    """Strict JSON in UTF-8: no repeated keys, only finite numbers and whole characters, bounded size.

    Raises:
        EvidenceError: for anything else.
    """
    if len(content) > MAX_JSON_BYTES:
        raise EvidenceError(f"{path} is larger than {MAX_JSON_BYTES} bytes")
    try:
        text = content.decode()
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
        if "\\u" in text:
            canonical_json(value)  # half a character, written as an escape, has no bytes
        return value
    except (ValueError, RecursionError, MemoryError) as error:
        raise EvidenceError(f"{path} is not valid JSON: {error}") from None


def parse_pretty(content: bytes, path: Path, expected: str = "") -> Any:
    """The value of a file in pretty JSON; EvidenceError where the same value is written in another way.

    Before that it is refused where it names another format than the expected one; see :func:`require_format`.
    """
    value = parse_json(content, path)
    if expected:
        require_format(value, expected, path)
    return _in_form(value, pretty_json, content, path)


def parse_canonical(content: bytes, path: Path) -> Any:
    """The value of a text in canonical JSON; EvidenceError where the same value is written in another way."""
    return _in_form(parse_json(content, path), canonical_json, content, path)


def _in_form(value: Any, encode: Any, content: bytes, path: Path) -> Any:
    try:
        same = encode(value) == content
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{path} holds what cannot be written: {error}") from None
    if not same:
        raise EvidenceError(f"{path} is not in the form in which fuaudit writes it: another program wrote it anew")
    return value


# --- TOML, as far as configs need it

_BARE = re.compile("[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def toml_bytes(table: Mapping[str, Any]) -> bytes:
    """A table as TOML: plain values first, then tables, each in the order given; lists of tables as ``[[name]]``.

    Args:
        table: texts, truth values, whole and real numbers, lists, and tables of these.

    Raises:
        ValueError: something else is in it.
    """
    return "".join(f"{line}\n" for line in _toml_lines(table, ())).encode()


def _is_list_of_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _toml_lines(table: Mapping[str, Any], above: tuple[str, ...]) -> list[str]:
    """The lines of a table that stands under some names."""
    nested = {name for name, value in table.items() if isinstance(value, Mapping) or _is_list_of_tables(value)}
    lines = [f"{_toml_key(name)} = {_toml_value(value)}" for name, value in table.items() if name not in nested]
    for name in (name for name in table if name in nested):
        here = (*above, name)
        title = ".".join(map(_toml_key, here))
        single = isinstance(table[name], Mapping)
        for item in [table[name]] if single else table[name]:
            lines += [""] if lines else []
            lines += [f"[{title}]" if single else f"[[{title}]]", *_toml_lines(item, here)]
    return lines


def _toml_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _toml_text(name)


def _toml_text(text: str) -> str:
    def written(character: str) -> str:
        control = ord(character) < 0x20 or ord(character) == 0x7F
        return _ESCAPES.get(character) or (f"\\u{ord(character):04x}" if control else character)

    return f'"{"".join(map(written, text))}"'


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and isfinite(value):
        return repr(value)
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):  # inside a list that holds other things too
        inner = ", ".join(f"{_toml_key(name)} = {_toml_value(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    raise ValueError(f"{value!r} has no form in a config")


# --- tensors: the layout of safetensors, in one form

_DTYPES: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "F16": np.dtype("<f2"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
"""The kinds of numbers, in the order in which they lie in a file: wider ones first, so that each is aligned."""

_KINDS = {dtype.newbyteorder("="): kind for kind, dtype in _DTYPES.items()}


Array = NDArray[Any]
"""A tensor as NumPy has it: reading and checking a run needs no more."""


def tensor_bytes(tensors: Mapping[str, Tensor | Array]) -> bytes:
    """Tensors as safetensors: by kind of number, then by name, without gaps, metadata or a choice.

    Raises:
        ValueError: a kind of number that the format does not have, or a name that it cannot hold.
    """
    arrays = {name: np.ascontiguousarray(_array(tensor)) for name, tensor in tensors.items()}
    kinds = {name: _kind(name, array) for name, array in arrays.items()}
    order = sorted(arrays, key=lambda name: (list(_DTYPES).index(kinds[name]), name))
    head = _header({name: (kinds[name], tensors[name].shape) for name in order})
    return b"".join([head, *(arrays[name].astype(_DTYPES[kinds[name]], copy=False).tobytes() for name in order)])


def _array(tensor: Tensor | Array) -> Array:
    if isinstance(tensor, np.ndarray):
        return tensor
    found: Array = tensor.detach().cpu().numpy()
    return found


def _kind(name: str, array: Array) -> str:
    if not 1 <= len(name) <= MAX_NAME:
        raise ValueError(f"the name of a tensor has 1 to {MAX_NAME} characters, not {len(name)}")
    kind = _KINDS.get(array.dtype)
    if kind is None:
        raise ValueError(f"{name} holds {array.dtype}; a run holds {', '.join(map(str, _KINDS))}")
    return kind


def _header(order: Mapping[str, tuple[str, tuple[int, ...]]]) -> bytes:
    """Length and text of the header of tensors of these kinds and shapes, in this order."""
    entries: dict[str, Any] = {}
    end = 0
    for name, (kind, shape) in order.items():
        start, end = end, end + prod(shape) * _DTYPES[kind].itemsize
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def as_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Arrays as tensors, which share their memory."""
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def parse_arrays(content: bytes, path: Path) -> dict[str, Array]:
    """Arrays from their form. They share no memory with ``content``.

    Raises:
        EvidenceError: it is no safetensors file, is in another form than :func:`tensor_bytes` writes, or holds NaN or
            infinities.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(MAX_HEADER_BYTES, len(content) - 8):
        raise EvidenceError(f"{path} is not a valid safetensors file: its header is cut short or too long")
    shapes = _shapes(parse_json(content[8 : 8 + length], path), path)
    size = sum(prod(shape) * _DTYPES[kind].itemsize for kind, shape in shapes.values())
    if _header(shapes) != content[: 8 + length] or size != len(content) - 8 - length:
        raise EvidenceError(f"{path} is not in the form in which a run is written")
    arrays, place = dict[str, Array](), 8 + length
    for name, (kind, shape) in shapes.items():
        end = place + prod(shape) * _DTYPES[kind].itemsize
        raw = np.frombuffer(memoryview(content)[place:end], _DTYPES[kind])
        place = end
        if kind == "BOOL" and (raw.view(np.uint8) > 1).any():
            raise EvidenceError(f"{path}: {name} holds truth values that are neither")
        if raw.dtype.kind == "f" and not np.isfinite(raw).all():
            raise EvidenceError(f"{path}: {name} holds NaN or infinities")
        arrays[name] = raw.astype(raw.dtype.newbyteorder("="), copy=True).reshape(shape)
    return arrays


def _shapes(header: object, path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> kind and shape, in the order of the form; EvidenceError where a header says something else."""
    found = {}
    for name, entry in header.items() if isinstance(header, dict) else [("", None)]:
        kind, shape = (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else (None, None)
        if (
            not isinstance(kind, str)
            or kind not in _DTYPES
            or not isinstance(shape, list)
            or len(shape) > 8
            or not all(type(extent) is int and 0 <= extent < 2**48 for extent in shape)
            or not 1 <= len(name) <= MAX_NAME
        ):
            raise EvidenceError(f"{path} is not a valid safetensors file of this format")
        found[name] = kind, tuple(shape)
    order = sorted(found, key=lambda name: (list(_DTYPES).index(found[name][0]), name))
    return {name: found[name] for name in order}
