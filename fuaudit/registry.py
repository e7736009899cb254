"""Plugins: named by entry points, found by name, built from plain tables of options.

Names in a config, run or spec resolve only to installed entry points, never to import paths, so data cannot
choose code to import. The papers' methods register through the same door as a stranger's package. Nothing is
imported before its name is used.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fuaudit import declared, renamed
from fuaudit.errors import EvidenceError, PluginError, UsageError, line_in, line_of, nearest
from fuaudit.from_source import code_of, compile_sources
from fuaudit.options import option_values, options, require_held

KINDS = (
    "adversaries",
    "aggregators",
    "audits",
    "byzantine",
    "client_stages",
    "datasets",
    "learners",
    "models",
    "partitions",
    "solvers",
    "stages",
    "transports",
    "unlearners",
)
"""What can be registered, as the entry-point groups ``fuaudit.<kind>``."""

WORDS = ("claims", "evidence")
"""What specs can ask for, and what shows it: registered alike, but values without options instead of classes."""

OWN = "fuaudit"
"""The distribution whose plugins are fuaudit's own, those of the papers among them."""

OWN_MODULES = frozenset({"fuaudit", "fuaudit_plugins"})
"""What such a plugin lies in: a distribution that merely calls itself fuaudit is an outside one."""

UNNAMED = "a package without a name"
"""Stands for what no sentence can name; nothing of it is loaded."""

_DIST = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_VERSION = re.compile("[A-Za-z0-9][A-Za-z0-9.!+_-]{0,98}")

_trusted: ContextVar[frozenset[str] | None] = ContextVar("trusted", default=None)


@contextmanager
def trusting(distributions: Iterable[str] | None) -> Iterator[None]:
    """Within it, a plugin of a distribution that is neither fuaudit nor among these is refused before it is imported.

    None trusts every installed one. An inner call can trust fewer, never more.
    """
    asked = None if distributions is None else frozenset(map(normalised, distributions))
    outer = _trusted.get()
    inner = outer if asked is None else asked if outer is None else asked & outer
    token = _trusted.set(inner)
    try:
        yield
    finally:
        _trusted.reset(token)


def normalised(distribution: str) -> str:
    """The one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


@dataclass(frozen=True)
class Entry:
    """One registered plugin: its kind and name, and the installed distribution it comes from.

    ``rivals`` are other distributions that claim its name; then it is refused where it is used.
    """

    kind: str
    name: str
    distribution: str
    version: str
    point: EntryPoint
    rivals: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.words} of {self.distribution} {self.version}"

    @property
    def words(self) -> str:
        """Its kind and name."""
        return f"{self.one} {self.name!r}"

    @property
    def one(self) -> str:
        """What it is one of."""
        return singular(self.kind)

    @property
    def package(self) -> str:
        """The module at the top, in which it lies."""
        return top_of(self.point)

    @property
    def own(self) -> bool:
        """Whether it is fuaudit's own code."""
        return normalised(self.distribution) == OWN and _is_ours(self.point)

    @property
    def loaded(self) -> Any:
        """What it names if its module was imported before; None else."""
        return getattr(sys.modules.get(self.point.module), self.point.attr, None)

    @property
    def clash(self) -> str:
        """Who claims its name, and what to do; "" where one distribution does."""
        if not self.rivals:
            return ""
        claimed = f"{' and '.join([self.distribution, *self.rivals])} register the {self.words}"
        others = [name for name in (self.distribution, *self.rivals) if name != OWN]
        return f"{claimed}. Uninstall {others[0] if len(others) == 1 else 'all but one of them'}."

    def value(self) -> Any:
        """What it names, imported.

        Raises:
            EvidenceError: it is not among those that are trusted; see :func:`trusting`.
            PluginError: its module cannot be imported, or several distributions claim its name.
        """
        if self.rivals:
            raise PluginError(self.clash)
        if self.distribution == UNNAMED:
            raise PluginError(
                f"the {self.words} has no sound name, or comes from a package without a sound name and version",
                "Names are letters, digits, '.', '_' and '-'. Uninstall it.",
            )
        trusted = _trusted.get()
        if trusted is not None and not self.own and normalised(self.distribution) not in trusted:
            raise EvidenceError(
                f"{self} is not trusted, so nothing of it was imported",
                f"The spec trusts {', '.join(sorted(trusted)) or 'fuaudit alone'} (its key trusts).",
            )
        if self.own:
            _require_home(self.package)
        try:
            if not self.own:
                _compile_outside(tuple(sys.path))
            return self.point.load()
        except Exception as error:
            line = line_in(self.package, error)
            raise PluginError(f"{self.words} of {self.distribution} cannot be loaded: {error}{line}") from error

    def load(self) -> type[Any]:
        """The plugin class, a frozen dataclass whose fields are its options.

        Raises:
            EvidenceError: as :meth:`value`.
            PluginError: as :meth:`value`, or it is no frozen dataclass, or has a field called ``use``, or declares
                what there is not (:mod:`fuaudit.declared`).
        """
        loaded = self.value()
        if not (isinstance(loaded, type) and dataclasses.is_dataclass(loaded)):
            raise PluginError(
                f"{self.words} of {self.distribution} is not a dataclass",
                "Register a class, not one of its instances, and write @dataclass(frozen=True) above it.",
            )
        if not getattr(loaded, "__dataclass_params__").frozen:  # noqa: B009
            raise PluginError(f"{self.words} of {self.distribution} is not frozen", "Write @dataclass(frozen=True).")
        if any(field.name == "use" for field in dataclasses.fields(loaded)):
            raise PluginError(
                f"{self.words} of {self.distribution} has an option called use",
                "Rename it: use is the name of the plugin itself.",
            )
        declared.require_words(loaded, self.kind, str(self))
        return loaded


def entries(kind: str) -> dict[str, Entry]:
    """All plugins of a kind, by name.

    ``FUAUDIT_NO_PLUGINS=1`` leaves only those of fuaudit itself.

    A name that several distributions claim is there too, and refused where it is used (:attr:`Entry.rivals`).
    """
    return dict(_entries(kind, _own_only(), tuple(sys.path)))


def _own_only() -> bool:
    return os.environ.get("FUAUDIT_NO_PLUGINS") == "1"


@cache
def _entries(kind: str, own_only: bool, path: tuple[str, ...]) -> dict[str, Entry]:
    """As :func:`entries`; metadata is read once for every search path."""
    found: dict[str, Entry] = {}
    for point, owner, version in _points(path)[kind]:
        entry = Entry(kind, point.name, owner, version, point)
        if own_only and not entry.own:
            continue
        first = found.setdefault(point.name, entry)
        if first.point.value != point.value:  # who says the same as the first one takes back no rival
            found[point.name] = dataclasses.replace(first, rivals=(*first.rivals, owner))
    return found


@dataclass(frozen=True)
class Stray:
    """A name that a distribution registers under a group that there is not, and the nearest group."""

    group: str
    name: str
    distribution: str

    def __str__(self) -> str:
        groups = [f"fuaudit.{kind}" for kind in (*KINDS, *WORDS)]
        return f"{self.distribution} registers {self.name!r} under {self.group!r}. {nearest(self.group, groups)}"


def strays() -> list[Stray]:
    """What no command will find: entry points of groups that begin as fuaudit's do, and are none."""
    known = {f"fuaudit.{kind}" for kind in (*KINDS, *WORDS)}
    installed = entry_points()
    groups = sorted(group for group in installed.groups if group.startswith("fuaudit.") and group not in known)
    found = [(group, point) for group in groups for point in installed.select(group=group)]
    owned = [(group, point.name, point.dist) for group, point in found if not _own_only()]
    return [Stray(group, name, _owner_of(dist)[0] if dist else "unknown") for group, name, dist in owned]


def missing(what: str, name: str, known: Iterable[str], now: str = "") -> UsageError:
    """The error where no ``what`` has a name: with what was registered in vain, or the nearest that is known."""
    vain = [str(stray) for stray in strays() if stray.name == name]
    return UsageError(f"there is no {what} called {name!r}", "\n  ".join(vain) or now or nearest(name, known))


@cache
def _points(path: tuple[str, ...]) -> dict[str, list[tuple[EntryPoint, str, str]]]:
    """Kind -> its entry points, each with name and version of its distribution. No metadata is read twice."""
    installed, owners = entry_points(), dict[int, tuple[str, str]]()

    def owner(kind: str, point: EntryPoint) -> tuple[str, str]:
        if not _DIST.fullmatch(point.name.replace(" ", "-") if kind in WORDS else point.name):
            return UNNAMED, "unknown"
        if (dist := point.dist) is None:
            return "unknown", "unknown"
        if id(dist) not in owners:
            owners[id(dist)] = _owner_of(dist)
        name, version = owners[id(dist)]
        # a package can call itself fuaudit; what it registers must not be said in fuaudit's name
        return (f"the stranger {name!r}" if normalised(name) == OWN and not _is_ours(point) else name), version

    kinds = (*KINDS, *WORDS)
    return {
        kind: [(point, *owner(kind, point)) for point in installed.select(group=f"fuaudit.{kind}")] for kind in kinds
    }


def _owner_of(dist: Distribution) -> tuple[str, str]:
    """Name and version of a distribution, which stand in sentences: in the forms that installers write, or none."""
    name, version = dist.metadata["Name"], dist.metadata["Version"]
    if isinstance(name, str) and isinstance(version, str) and _DIST.fullmatch(name) and _VERSION.fullmatch(version):
        return name, version
    return UNNAMED, "unknown"


def _is_ours(point: EntryPoint) -> bool:
    return top_of(point) in OWN_MODULES


def top_of(point: EntryPoint) -> str:
    """The module at the top, in which an entry point lies."""
    return point.value.partition(":")[0].partition(".")[0].strip()


def _compile_outside(path: tuple[str, ...]) -> None:
    """Has all that outside distributions have compiled from sources, before one of them can import another."""
    compile_sources(*_outside(path))


@cache
def _outside(path: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Names at the top, and files, of the distributions beside fuaudit that register anything."""
    found: dict[int, tuple[Distribution | None, set[str]]] = {}
    for points in _points(path).values():
        for point, owner, _ in points:
            if not (normalised(owner) == OWN and _is_ours(point)):
                found.setdefault(id(point.dist), (point.dist, set()))[1].add(top_of(point))
    codes = [code_of(dist, modules) for dist, modules in found.values()]
    tops = frozenset().union(*(code.tops for code in codes))
    return tops, frozenset(os.path.realpath(place) for code in codes for place in code.files.values())


def _require_home(package: str) -> None:
    """Raises PluginError where an import finds a package of fuaudit elsewhere than beside fuaudit."""
    spec = find_spec(package)
    # a module that is one file has no folders, and can name some itself
    home, elsewhere = _elsewhere(
        tuple((spec.submodule_search_locations if spec else None) or [str(spec and spec.origin)])
    )
    if elsewhere:
        raise PluginError(
            f"{package}, a package of fuaudit, is found in {elsewhere}, and fuaudit lies in {home}",
            "Another package brings it, or the search path names a copy. Take that one away.",
        )


@cache  # each plugin that is built asks for the same few folders
def _elsewhere(places: tuple[str, ...]) -> tuple[Path, Path | None]:
    """Where fuaudit lies, and the first of some folders unless all lie beside it."""
    home, resolved = Path(__file__).resolve().parent, [Path(place).resolve() for place in places]
    there = {*resolved} <= {home, home.parent / "fuaudit_plugins", home.parent / "plugins"}
    return home, None if there else resolved[0]


def singular(kind: str) -> str:
    """What a plugin of a kind is called."""
    return {"adversaries": "adversary", "byzantine": "Byzantine client"}.get(
        kind, kind.removesuffix("s").replace("_", " ")
    )


def find(kind: str, name: str) -> Entry:
    """The plugin of that kind and name.

    Raises:
        UsageError: there is none; the message offers the nearest name, or the one that came after a former one.
    """
    known = entries(kind)
    if name not in known:
        now = renamed.PLUGINS.get(kind, {}).get(name)
        raise missing(singular(kind), name, known, renamed.sentence(repr(name), repr(now)) if now in known else "")
    return known[name]


def called(plugin: object) -> str:
    """Kind and name of a plugin, as configs have it; of what is not registered, its class.

    A class that no config names goes by the plugin that it extends in the same file: that one is in documents.
    """
    own, every = type(plugin), [entry for kind in KINDS for entry in entries(kind).values()]
    family = [one for one in own.__mro__ if one.__module__ == own.__module__]
    return next((entry.words for one in family for entry in every if entry.loaded is one), own.__name__)


def is_strange(part: object) -> bool:
    """Whether the class of a part is no code of fuaudit: what it says of its module has to be true."""
    kind = type(part)
    if kind.__module__.partition(".")[0] not in OWN_MODULES:
        return True
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not kind


@contextmanager
def blaming(plugin: object, doing: str) -> Iterator[None]:
    """What a plugin raises within it, but for a UsageError, is a PluginError that names the plugin and its line."""
    try:
        yield
    except (UsageError, PluginError):
        raise
    except (Exception, SystemExit) as error:
        told = f"{type(error).__name__}: {error}" if isinstance(error, OSError) else repr(error)  # repr names no file
        raise PluginError(f"{called(plugin)}, {doing}, raised {told}{line_of(plugin, error)}") from error


def outside_of(error: BaseException) -> str:
    """The installed package of a stranger, and its innermost line, that an error came through; "" for none."""
    packages = {
        entry.package: f"{entry.distribution} {entry.version}"
        for kind in KINDS
        for entry in entries(kind).values()
        if not entry.own
    }
    found = {package: line for package in packages if (line := line_in(package, error))}
    return "".join(f"{packages[package]}{line}" for package, line in [*found.items()][:1])


def build(kind: str, table: Mapping[str, object] | str) -> Any:
    """A plugin from ``{"use": name, option: value, ...}``, or from its name alone.

    Raises:
        UsageError: unknown name or option, wrong type, missing option.
        PluginError: the plugin cannot be loaded, or refuses its options with another error.
    """
    plain: Mapping[str, object] = {"use": table} if isinstance(table, str) else table
    name = plain.get("use") if isinstance(plain, Mapping) else None
    if not isinstance(name, str):
        raise UsageError(f'a {singular(kind)} is chosen by use = "name"', nearest("", entries(kind)))
    entry = find(kind, name)
    plugin = entry.load()
    values = options(plugin, f"{singular(kind)} {name!r}", {k: v for k, v in plain.items() if k != "use"})
    require_held(f"{singular(kind)} {name!r}", values)
    try:
        built = plugin(**values)
        if isinstance(plugin, type) and type(built) is not plugin:  # what is said of a plugin is read off its class
            made = f"{singular(kind)} {name!r} of {entry.distribution} made an object of another class, {type(built)}"
            raise PluginError(made, "Register the class itself: an object of another one is another plugin.")
        option_values(built)  # what a file cannot hold would be another option for whoever reads the run
        if kind == "learners":
            declared.require_words(type(built.law), "laws")
        return built
    except (UsageError, PluginError):
        raise
    except Exception as error:
        line = line_in(entry.package, error)
        raise PluginError(
            f"{singular(kind)} {name!r} of {entry.distribution} raised while being built: {error}{line}"
        ) from error
