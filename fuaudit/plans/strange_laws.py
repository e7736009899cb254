"""Laws of strangers: what they raise is told by name and line."""

from __future__ import annotations

import dataclasses
from copy import copy, deepcopy
from fractions import Fraction
from itertools import chain
from typing import Any

from fuaudit.errors import FuauditError, PluginError, line_of
from fuaudit.registry import is_strange

_PLAIN = frozenset({bool, float, int, str, type(None)})

SEE = "docs/plugin-guide.md has a law as a whole, with what it draws from, and at which addresses."


def require_unbroken(law: object, what: str, error: Exception) -> None:
    """Raises PluginError where a law of a stranger raised what is no FuauditError."""
    if is_strange(law) and not isinstance(error, FuauditError):
        raise PluginError(
            f"the law {type(law).__name__}, {what}, raised {error!r}{line_of(law, error)}", SEE
        ) from error


def is_plain(drawn: object) -> bool:
    """Whether it is a tuple of whole numbers, none of which compares as it likes."""
    return type(drawn) is tuple and all(type(one) is int for one in drawn)


def not_plain(law: object, what: str, drawn: object, of: str) -> PluginError:
    """The error where a law draws what is no tuple of whole numbers."""
    return PluginError(
        f"the law {type(law).__name__}, {what}, returned {drawn!r}, and not a tuple of {of}, as ids of type int", SEE
    )


def is_foreign(law: object) -> bool:
    """Whether a law, or anything that it is made of, is no code of fuaudit, or more than fuaudit's code made of it.

    A number of a stranger's type can have a truth of its own, and an instance can hold a method of its own.
    """
    if isinstance(law, tuple):
        return type(law) is not tuple or any(map(is_foreign, law))
    if type(law) is Fraction:
        return not is_plain((law.numerator, law.denominator))
    if not dataclasses.is_dataclass(law):
        return type(law) not in _PLAIN
    names = {field.name for field in dataclasses.fields(law)}
    parts = (getattr(law, name) for name in names)
    return is_strange(law) or not _held(law).keys() <= names or any(map(is_foreign, parts))


def remade(law: Any) -> Any:
    """An equal law that shares nothing which can be written into: whoever has the one cannot change the other.

    Raises:
        PluginError: a law of a stranger holds what cannot be copied.
    """
    return _remade(law, {})


def _remade(part: Any, made: dict[int, tuple[Any, Any]]) -> Any:
    """``made`` has each part that was met, with its copy: a part may hold the law that holds it."""
    if type(part) in _PLAIN or (type(part) is tuple and _is_fixed(part)):
        return part
    if id(part) in made:
        return made[id(part)][1]
    if type(part) is Fraction:  # a copy of a fraction is the same object, and its two numbers can be set
        return Fraction(part.numerator, part.denominator)
    if type(part) in (tuple, list, set, frozenset):
        return type(part)([_remade(one, made) for one in part])
    if type(part) is dict:
        return {_remade(name, made): _remade(value, made) for name, value in part.items()}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        made[id(part)] = part, (like := copy(part))
        for name, value in _held(like).items():
            object.__setattr__(like, name, _remade(value, made))
        return like
    try:
        return deepcopy(part)
    except Exception as error:
        raise PluginError(
            f"a law holds {part!r:.80}, which cannot be copied: {error!r:.80}",
            "A law is a frozen dataclass of numbers, fractions, strings and tuples.",
        ) from error


def _is_fixed(parts: tuple[Any, ...]) -> bool:
    """Whether nothing in a tuple can be written into: plain values, or tuples of such."""
    kinds = {*map(type, parts)}
    return kinds <= _PLAIN or (kinds == {tuple} and _is_fixed(tuple(chain.from_iterable(parts))))


def _held(part: object) -> dict[str, Any]:
    """What an instance holds by name, in its dictionary or in slots."""
    slots = (name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ()))
    found = {name: getattr(part, name) for name in slots if hasattr(part, name) and name != "__dict__"}
    return found | getattr(part, "__dict__", {})
