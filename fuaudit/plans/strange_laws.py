"""Laws of strangers: what they raise is told by name and line."""

from __future__ import annotations

import dataclasses
from copy import copy
from fractions import Fraction
from typing import Any

from fuaudit.errors import FuauditError, PluginError, line_of
from fuaudit.registry import is_strange

_PLAIN = (bool, float, int, str, type(None))

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
    return is_strange(law) or not vars(law).keys() <= names or any(map(is_foreign, parts))


def remade(law: Any) -> Any:
    """An equal law that shares nothing which can be written into: whoever has the one cannot change the other.

    Of what a law of a stranger holds besides values, dataclasses and containers, the same objects are kept.
    """
    if type(law) is Fraction:  # a copy of a fraction is the same object, and its two numbers can be set
        return Fraction(law.numerator, law.denominator)
    if type(law) in (tuple, list, set, frozenset):
        return type(law)(map(remade, law))
    if type(law) is dict:
        return {remade(name): remade(value) for name, value in law.items()}
    if not dataclasses.is_dataclass(law) or isinstance(law, type):
        return law
    made = copy(law)
    for name, value in vars(made).items():
        object.__setattr__(made, name, remade(value))
    return made
