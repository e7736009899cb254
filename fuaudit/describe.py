"""What a plugin says of itself: its options with type, default and sentence, its claims, and where it comes from.

Types are told in words that a reader of TOML knows. Sentences come from docstrings: the entry of an option under
``Attributes:``, in the class or in one that it is made from.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from fuaudit import declared, registry
from fuaudit.registry import Entry

WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", date: "date", Any: "anything"}
"""Plain types in words."""

MANY = {int: "whole numbers", float: "numbers", str: "texts", dict: "tables"}
"""What a list of them holds."""


@dataclass(frozen=True)
class Option:
    """One option of a plugin, or one key of a table: what it takes, what it is when left out, what it does."""

    name: str
    type: str
    required: bool
    default: Any
    doc: str

    @property
    def default_text(self) -> str:
        """The default as TOML writes it; in words where there is none."""
        return "required" if self.required else "none" if self.default is None else toml(self.default)


@dataclass(frozen=True)
class Description:
    """One registered plugin.

    Attributes:
        exact_for: law -> the kinds of request for which it claims to be exact; None for what claims nothing of laws.
        declares: what else it declares that is no default, by the words of :mod:`fuaudit.declared`.
    """

    kind: str
    name: str
    doc: str
    options: tuple[Option, ...]
    guarantee: str
    cite: str
    mutant: bool
    exact_for: Mapping[str, tuple[str, ...]] | None
    declares: Mapping[str, str]
    distribution: str
    version: str

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return dataclasses.asdict(self)


def named(name: str) -> tuple[Entry, ...]:
    """All plugins of that name, of whatever kind.

    Raises:
        UsageError: there is none; near names are offered.
    """
    known = {kind: registry.entries(kind) for kind in (*registry.KINDS, *registry.WORDS)}
    if found := tuple(entries[name] for entries in known.values() if name in entries):
        return found
    names = {other for entries in known.values() for other in entries}
    raise registry.missing("plugin", name, names)


def description(entry: Entry) -> Description:
    """What a registered plugin says of itself. Imports it; raises as :meth:`~fuaudit.registry.Entry.load`.

    A claim or a kind of evidence is a value: it says its name or its sentence, and whoever reads a spec judges it.
    """
    if entry.kind in registry.WORDS:
        match entry.value():
            case object(name=str(told)):  # a claim
                pass
            case value:
                told = str(value)
        return Description(entry.one, entry.name, told, (), "", "", False, None, {}, entry.distribution, entry.version)
    plugin = entry.load()
    said = declared.said(plugin, entry.kind)
    claimed = said.get("exact_for")
    return Description(
        entry.one,
        entry.name,
        summary(plugin),
        options_of(plugin),
        said.get("guarantee", ""),
        said.get("cite", ""),
        said.get("mutant", False),
        _by_law(claimed) if isinstance(claimed, frozenset) else None,
        _declares(said, entry.kind) | _published(plugin, entry.kind),
        entry.distribution,
        entry.version,
    )


TOLD_APART = {"guarantee", "cite", "exact_for", "mutant", "law", "step_size", "decay"}
"""Words that have a place of their own here, or are mostly options."""


def _declares(said: Mapping[str, Any], kind: str) -> dict[str, str]:
    """What is worth telling of the rest: whatever must be said, or is no default."""
    defaults = {word.name: word.default for word in declared.WORDS[kind] if word.name not in TOLD_APART}
    worth = {name: said[name] for name in defaults if name in said and said[name] != defaults[name]}
    return {name: _of_method(value) or declared.in_words(value) for name, value in worth.items()}


def _of_method(value: object) -> str:
    """What the docstring of a method says; "" for what is none, has none, or refers to another one alone."""
    told = plain((inspect.getdoc(value) or "").partition("\n\n")[0]) if inspect.isfunction(value) else ""
    return "" if told.startswith("See ") else told


ROWS_TOLD = range(2, 10)
"""Of how many rows it is told what a rule publishes."""


def _published(plugin: type[Any], kind: str) -> dict[str, str]:
    """What a rule that says it by a method without words may publish, by numbers of rows, with default options."""
    method = getattr(plugin, "publishes", None) if kind in ("aggregators", "stages") else None
    if method is None or _of_method(method) or any(option.required for option in options_of(plugin)):
        return {}
    try:
        rule = plugin()
        told = {rows: str(rule.publishes(rows)) for rows in ROWS_TOLD if rows >= declared.says(rule, "least_rows")}
    except Exception:  # check_aggregator tells what is wrong with it
        return {}
    words = {word: [str(rows) for rows, said in told.items() if said == word] for word in dict.fromkeys(told.values())}
    each = [f"{word} of {', '.join(numbers)} rows" for word, numbers in words.items() if word]
    return {"publishes": "; ".join(each) or f"nothing of {ROWS_TOLD[0]} to {ROWS_TOLD[-1]} rows"}


def _by_law(claimed: frozenset[Any]) -> dict[str, tuple[str, ...]]:
    """Law -> the kinds of request; whatever is no pair of texts is left out, for registration judges it."""
    pairs = sorted(pair for pair in claimed if isinstance(pair, tuple) and [*map(type, pair)] == [str, str])
    return {law: tuple(kind for other, kind in pairs if other == law) for law in dict.fromkeys(law for law, _ in pairs)}


def options_of(table: type[Any]) -> tuple[Option, ...]:
    """The options of a dataclass, in their order."""
    hints, told = typing.get_type_hints(table), sentences(table)
    return tuple(_option(field, hints[field.name], told) for field in dataclasses.fields(table) if field.init)


def _option(field: dataclasses.Field[Any], hint: object, told: Mapping[str, str]) -> Option:
    made = field.default_factory
    default = field.default if made is dataclasses.MISSING else made()
    required = default is dataclasses.MISSING
    return Option(field.name, in_words(hint), required, None if required else default, told.get(field.name, ""))


def in_words(hint: Any) -> str:
    """A type in words: "whole number", "list of numbers", "'a' or 'b'"."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(in_words(option) for option in inner if option is not type(None))
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        plain = typing.get_origin(inner[0]) or inner[0]
        return f"list of {MANY.get(plain) or 'lists of ' + MANY.get(typing.get_args(inner[0])[0], 'values')}"
    if origin is tuple:
        return f"list: {', '.join(map(in_words, inner))}"
    return "table" if dict in (hint, origin) else WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def toml(value: object) -> str:
    """A default as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def summary(plugin: type[Any]) -> str:
    """The first paragraph of a docstring, on one line."""
    return plain(_doc(plugin).partition("\n\n")[0])


def sentences(plugin: type[Any]) -> dict[str, str]:
    """Option -> what docstrings say of it; those of the class itself come before those of what it is made from."""
    found: dict[str, str] = {}
    for part in plugin.__mro__:
        found = dict(_attributes(_doc(part))) | found
    return found


def _doc(plugin: type[Any]) -> str:
    """The docstring of a class itself; "" where it has none, or only the one that dataclasses write."""
    text = inspect.cleandoc(vars(plugin).get("__doc__") or "")
    return "" if text.startswith(f"{plugin.__name__}(") else text


_ENTRY = re.compile(r"    (?P<names>\w+(?:, \w+)*): (?P<text>\S.*)")
"""The first line of an entry under ``Attributes:``."""


def _attributes(doc: str) -> Iterator[tuple[str, str]]:
    """The entries under ``Attributes:``; one can name several options."""
    _, _, after = doc.partition("Attributes:\n")
    names: list[str] = []
    lines: list[str] = []
    for line in [*after.split("\n\n")[0].split("\n"), "    end: ."]:
        if start := _ENTRY.fullmatch(line):
            yield from ((name, plain(" ".join(lines))) for name in names)
            names, lines = start["names"].split(", "), [start["text"]]
        else:
            lines.append(line.strip())


def plain(text: str) -> str:
    """A docstring's words on one line: of a reference to code the last name is left, of literals the words."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda found: found[1].rpartition(".")[2], text)
    return " ".join(text.replace("``", "`").split())
