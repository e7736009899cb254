"""What a value is told by, bit for bit, where its own word for equality is not enough."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any


def option(value: Any) -> tuple[Any, ...]:
    """A value bit for bit, with what it holds. Of what is no plain value only the same object is the same."""
    kind = type(value)
    if kind is int or kind is str or kind is bool:  # most are; what follows says the same of them
        return kind, value
    if isinstance(value, tuple | list):
        return type(value), *map(option, value)
    if isinstance(value, dict):
        return type(value), *((option(name), option(one)) for name, one in value.items())
    if isinstance(value, float):
        return float, value.hex()
    if value is None or isinstance(value, bool | int | str | bytes | Fraction):
        return kind, value
    if is_dataclass(value) and not isinstance(value, type) and not _has_slots(type(value)):
        names = {field.name for field in fields(value)} | getattr(value, "__dict__", {}).keys()
        return type(value), *((name, option(getattr(value, name))) for name in sorted(names))
    return type(value), id(value)


def _has_slots(kind: type) -> bool:
    """Whether objects of a class can hold something that is neither a field nor in their dict."""
    return any(base.__dict__.get("__slots__") for base in kind.__mro__)
