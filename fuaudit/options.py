"""Options of plugins: plain tables against the fields of a dataclass, and back."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
import types
import typing
from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Any

from fuaudit.errors import PluginError, UsageError, nearest


def options(plugin: type[Any], owner: str, table: Mapping[str, object]) -> dict[str, Any]:
    """The checked options of a dataclass from a table.

    Raises:
        UsageError: an unknown option, one of the wrong type, or a required one that is missing; all at once.
    """
    if not isinstance(table, Mapping):
        raise UsageError(f"{owner} takes a table of options, not {table!r}")
    hints = _types(plugin)  # type: ignore[arg-type]  # a class is hashable
    fields = {f.name: f for f in dataclasses.fields(plugin) if f.init}
    problems, values = [], {}
    for name, value in table.items():
        if name not in fields:
            problems.append(f"{owner} has no option {name!r}. {nearest(name, fields)}")
            continue
        plain = _tuples(value)
        if not _fits(plain, hints[name]):
            problems.append(f"{owner}: {name} = {value!r} is not {_spelled(hints[name], fields[name].type)}")
        values[name] = plain
    problems += [f"{owner} needs the option {name!r}" for name in required_options(plugin) if name not in table]
    if problems:
        raise UsageError("\n  ".join(problems))
    return values


def require_held(owner: str, values: Mapping[str, object]) -> None:
    """Raises UsageError for checked options that no file of a run can hold, whatever their type says."""
    wrong = [f"{owner}: {name} = {value!r} is {_UNHELD}" for name, value in values.items() if not _is_plain(value)]
    if wrong:
        raise UsageError("\n  ".join(wrong), _PLAIN)


def option_values(plugin: Any) -> dict[str, Any]:
    """The options of a plugin, as a file holds them: tuples are lists.

    Raises:
        PluginError: an option, or its default, is nothing that a file gives back as it is: an Enum, a list, an array,
            a date, a subclass of a plain type, a number that is not finite, a whole number of more than 64 bits.
    """
    options = {field.name: getattr(plugin, field.name) for field in dataclasses.fields(plugin) if field.init}
    for name, value in options.items():
        if not _is_plain(value):
            raise PluginError(
                f"the option {name!r} of {type(plugin).__qualname__} is {value!r}, which no file gives back as it is",
                f"{_PLAIN} For a choice of words take Literal; None can stand for no limit. A table has its keys in "
                "ascending order.",
            )
    return {name: _lists(value) for name, value in options.items()}


def required_options(plugin: type[Any]) -> list[str]:
    """The options of a dataclass that have no default."""
    bare = [f for f in dataclasses.fields(plugin) if f.default is f.default_factory is dataclasses.MISSING]
    return [field.name for field in bare if field.init]


@cache  # to evaluate annotations takes longer than all that is done with them
def _types(plugin: type[Any]) -> dict[str, Any]:
    """The types of the options. Nothing else is evaluated: other types may be there for type checkers alone."""
    names = {field.name for field in dataclasses.fields(plugin) if field.init}
    hints: dict[str, Any] = {}
    for base in reversed(plugin.__mro__):
        noted = {name: note for name, note in inspect.get_annotations(base).items() if name in names}
        written, module = types.SimpleNamespace(__annotations__=noted), sys.modules.get(base.__module__)
        try:
            hints |= typing.get_type_hints(written, dict(vars(base)), vars(module) if module else {})
        except NameError as error:
            raise PluginError(
                f"the types of the options of {plugin.__module__}.{plugin.__qualname__} cannot be read: {error}",
                "Import what options are made of where the module runs, not under TYPE_CHECKING.",
            ) from error
    return hints


def _fits(value: object, hint: object) -> bool:
    """Whether a value read from TOML or JSON fits an annotation made of plain types."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and _fit(value, typing.get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint in (int, str, bool, date):
        return type(value) is hint
    if origin is dict or hint is dict:
        names, members = typing.get_args(hint) or (typing.Any, typing.Any)
        return isinstance(value, dict) and all(_fits(k, names) and _fits(v, members) for k, v in value.items())
    return hint is not type(None) or value is None


def _fit(values: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    """Whether the members of a tuple fit: ``(int, ...)`` for any number of one kind, or one hint a member."""
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(_fits(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(_fits, values, hints))


def _spelled(hint: object, written: object) -> str:
    """An annotation for a message: the words it allows, or as it is written in the source."""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if dict in (hint, typing.get_origin(hint)):
        return "a table" + (f" of {written}" if typing.get_args(hint) else "")
    parts = str(getattr(written, "__name__", written)).split(" | ")
    return " or ".join(_SPELLED.get(part, part) for part in parts)


_SPELLED = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


_UNHELD = "nothing that a run can hold"
_PLAIN = "Take true or false, finite numbers, whole ones of at most 64 bits, text, or lists of these."


def _is_plain(value: object) -> bool:
    """Whether JSON and TOML give a value back as it is; JSON has no dates, and TOML only whole numbers of 64 bits."""
    return value is None or _is_held(value)


def _is_held(value: object) -> bool:
    """The same within lists and tables, where TOML has no None. Files have the keys of a table in ascending order."""
    if type(value) is tuple:
        return all(map(_is_held, typing.cast("tuple[object, ...]", value)))
    if type(value) is dict:
        names = [name for name in value if type(name) is str]
        return len(names) == len(value) and names == sorted(names) and all(map(_is_held, value.values()))
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return type(value) in (bool, str) or (type(value) is float and math.isfinite(value))


def _lists(value: object) -> object:
    if isinstance(value, dict):
        return {key: _lists(member) for key, member in value.items()}
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


def _tuples(value: object) -> object:
    if isinstance(value, dict):
        return {key: _tuples(value[key]) for key in sorted(value, key=str)}  # in the order in which files have them
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value
