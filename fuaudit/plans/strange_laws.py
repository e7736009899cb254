"""Laws of strangers: what they raise is told by name and line."""

from __future__ import annotations

import dataclasses
from copy import copy, deepcopy
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Any

from fuaudit.declared import says
from fuaudit.errors import FuauditError, PluginError, line_of
from fuaudit.registry import is_strange

_PLAIN = frozenset(map(id, (bool, float, int, str, type(None))))
"""Classes of plain values, by identity: a class of a stranger's can have an equality, and a hash, of its own."""

SEE = "docs/plugin-guide.md has a law as a whole, with what it draws from, and at which addresses."


def require_unbroken(law: object, what: str, error: Exception) -> None:
    """Raises PluginError where a law of a stranger raised what is no FuauditError."""
    if is_strange(law) and not isinstance(error, FuauditError):
        raise PluginError(
            f"the law {type(law).__name__}, {what}, raised {error!r}{line_of(law, error)}", SEE
        ) from error


def is_plain(drawn: object) -> bool:
    """Whether it is a tuple of whole numbers, none of which compares as it likes."""
    if type(drawn) is not tuple:
        return False
    for one in drawn:  # noqa: SIM110 - a proof asks at each draw, and a generator takes twice as long
        if type(one) is not int:
            return False
    return True


def not_plain(law: object, what: str, drawn: object, of: str) -> PluginError:
    """The error where a law draws what is no tuple of whole numbers."""
    return PluginError(
        f"the law {type(law).__name__}, {what}, returned {drawn!r}, and not a tuple of {of}, as ids of type int", SEE
    )


def require_as_said(law: Any, round_number: int, cohort: tuple[int, ...], population: Any) -> None:
    """Raises PluginError where a client takes part more often in a round than a law says that one can.

    Before training its first rounds are tried. An account charges every round by its word. ``population``: that which
    the round is drawn over.
    """
    if told := otherwise_than_said(law, cohort, places_of(law, population)):
        raise PluginError(f"the law {type(law).__name__}, cohort of round {round_number}, {told}", SEE)


def places_of(law: Any, population: Any) -> int:
    """The most clients that a round over a population can have, as a law says."""
    try:
        return int(law.places(population))
    except Exception as error:
        require_unbroken(law, "places", error)
        raise


def otherwise_than_said(law: object, cohort: tuple[int, ...], places: int) -> str:
    """What a law says otherwise of how many take part in a round, and how often; empty for nothing."""
    if len(cohort) > places:
        return f"returned {len(cohort)} clients, and places says {places}"
    if len({*cohort}) < len(cohort) and not says(law, "replacement"):
        return f"returned {cohort!r}: a client that can be drawn twice is declared by replacement = True"
    return ""


def is_just(part: object, *kinds: type[Any]) -> bool:
    """Whether the class of a part is one of these, by identity: a class of a stranger's compares as it likes."""
    return any(type(part) is kind for kind in kinds)


def is_foreign(law: Any) -> bool:
    """Whether a law, or anything that it is made of, is no code of fuaudit, or more than fuaudit's code made of it.

    A number of a stranger's type can have a truth of its own, and an instance can hold a method of its own.
    """
    kind = type(law)
    if id(kind) in _PLAIN:
        return False
    if isinstance(law, tuple):
        return kind is not tuple or any(map(is_foreign, law))
    if kind is Fraction:
        return not is_plain((law.numerator, law.denominator))
    names = _fields(kind)  # type: ignore[arg-type]  # a class is hashable
    if names is None or is_strange(law) or type(getattr(law, "__dict__", {})) is not dict:
        return True
    held = _held(law)
    if any(type(name) is not str for name in held) or not held.keys() <= names:
        return True
    # most are plain, and need no call: a proof asks at each leaf
    return any(id(type(one := getattr(law, name))) not in _PLAIN and is_foreign(one) for name in names)


@cache  # a proof asks at each leaf, and a class has the fields that it has
def _fields(kind: Any) -> frozenset[str] | None:
    """The names of the fields of a class of data; None for another class."""
    return frozenset(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


@cache
def _slots(kind: Any) -> tuple[str, ...]:
    """The slots of a class and its bases."""
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if name != "__dict__")


def remade(law: Any) -> Any:
    """An equal law that shares nothing which can be written into: whoever has the one cannot change the other.

    Raises:
        PluginError: a law of a stranger holds what cannot be copied.
    """
    return _remade(law, {})


def _remade(part: Any, made: dict[int, tuple[Any, Any]]) -> Any:
    """``made`` has each part that was met, with its copy: a part may hold the law that holds it."""
    if id(type(part)) in _PLAIN or (type(part) is tuple and _is_fixed(part)):
        return part
    if id(part) in made:
        return made[id(part)][1]
    if type(part) is Fraction:  # a copy of a fraction is the same object, and its two numbers can be set
        return Fraction(part.numerator, part.denominator)
    if is_just(part, tuple, list, set, frozenset):
        return type(part)([_remade(one, made) for one in part])
    if type(part) is dict:
        return {_remade(name, made): _remade(value, made) for name, value in part.items()}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        made[id(part)] = part, (like := copy(part))
        for name, value in _held(like).items():
            # most are plain, and need no call: a proof asks for each rewriting
            if id(type(value)) not in _PLAIN and (anew := _remade(value, made)) is not value:
                object.__setattr__(like, name, anew)
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
    kinds = {id(type(one)) for one in parts}
    return kinds <= _PLAIN or (kinds == {id(tuple)} and _is_fixed(tuple(chain.from_iterable(parts))))


def _held(part: object) -> dict[str, Any]:
    """What an instance holds by name, in its dictionary or in slots."""
    slots = _slots(type(part))  # type: ignore[arg-type]  # a class is hashable
    found = {name: getattr(part, name) for name in slots if hasattr(part, name)}
    return found | getattr(part, "__dict__", {})
