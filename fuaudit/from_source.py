"""Outside packages are compiled from their sources: a kept bytecode file can hold other code than the source beside it.

A verification names outside code by a digest of its files. Python itself would run what lies in ``__pycache__``, by
the time and size of the source alone, or unasked. So one list says what a distribution has. By it modules are compiled,
and by it they are digested; what each module was compiled from is remembered, and compared.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    NamespaceLoader,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from os.path import isfile, join
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType

_CODE = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)

_NOTES = frozenset({"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json"})
"""What an installer notes of an installation: it differs from machine to machine."""


@dataclass(frozen=True)
class Code:
    """What a distribution has: the names of its modules at the top, and its files by what they are called in it."""

    tops: frozenset[str] = frozenset()
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each file, by its real path."""
        return {os.path.realpath(place): sha256(place.read_bytes()).hexdigest() for place in self.files.values()}


def code_of(dist: Distribution | None, modules: Iterable[str]) -> Code:
    """The code of a distribution whose entry points lie in these modules at the top; nothing of it is imported.

    Its files are those that it lists, those in its folder of notes, and what an import finds under the names of its
    modules, which may stand earlier on the search path. Where it does not list its own module (an editable
    installation), what lies beside that module is its own too, unless another distribution lists it. There are no
    files where one of the modules cannot be found as a file.
    """
    listed, named = dict(_listed(dist)), frozenset(modules)
    tops = named | _tops(listed)
    for module in named - _tops(listed):
        tops |= _beside(module)
    found = {top: dict(_imported(top)) for top in tops}
    if not all(found[module] for module in named):
        return Code(tops)
    places = {**listed, **{path: place for files in found.values() for path, place in files.items()}}
    return Code(tops, places)


def _listed(dist: Distribution | None) -> Iterator[tuple[str, Path]]:
    """The files that a distribution lists, and those in its folder of notes, without bytecode and what installers note.

    Of what lies elsewhere (scripts, in whose first line the machine stands) modules alone count.
    """
    files = {str(PurePosixPath(f.as_posix())): Path(str(f.locate())) for f in (dist and dist.files) or ()}
    notes = getattr(dist, "_path", None)
    if isinstance(notes, Path) and notes.is_dir():
        files |= {f"{notes.name}/{place.relative_to(notes).as_posix()}": place for place in _walk(notes)}
    for path, place in files.items():
        parts = PurePosixPath(path).parts
        noted = len(parts) == 2 and parts[0].endswith((".dist-info", ".egg-info")) and parts[1] in _NOTES
        script = ".." in parts and not path.endswith(_CODE)
        if not (noted or script or path.endswith(".pyc")) and isfile(place):
            yield path, place


def _tops(listed: Iterable[str]) -> frozenset[str]:
    """The names at the top of the modules among listed files."""
    paths = [PurePosixPath(path) for path in listed if path.endswith(_CODE)]
    firsts = (path.name if ".." in path.parts else path.parts[0] for path in paths)
    return frozenset(name.partition(".")[0] for name in firsts if not name.endswith((".dist-info", ".egg-info")))


def _beside(module: str) -> frozenset[str]:
    """The names of the modules that lie where a module lies, and that no distribution lists."""
    spec = _spec(module)
    places = list((spec and spec.submodule_search_locations) or ())
    homes = {Path(place).parent for place in places or [spec.origin if spec and spec.origin else "."]}
    found: set[str] = set()
    for home in filter(os.path.isdir, homes if spec else ()):
        others = [_tops(str(file) for file in dist.files or ()) for dist in distributions(path=[str(home)])]
        names = {path.name.partition(".")[0] for path in home.iterdir() if _is_module(path)}
        found |= names.difference(*others)
    return frozenset(found) - {"", "fuaudit"} - sys.stdlib_module_names


def _is_module(path: Path) -> bool:
    try:
        inner = [place.name for place in path.iterdir()] if os.path.isdir(path) else []
    except OSError:  # a folder of somebody else's
        return False
    return path.name.endswith(_CODE) or ("." not in path.name and any(name.endswith(_CODE) for name in inner))


def _imported(module: str) -> Iterator[tuple[str, Path]]:
    """The code of a module at the top where an import finds it."""
    spec = _spec(module)
    if spec is None:
        return
    for folder in reversed([Path(place) for place in spec.submodule_search_locations or ()]):  # the first one counts
        for place in _walk(folder):
            if place.name.endswith(_CODE):
                yield f"{module}/{place.relative_to(folder).as_posix()}", place
    if spec.submodule_search_locations is None and spec.origin and spec.origin.endswith(_CODE):
        yield Path(spec.origin).name, Path(spec.origin)


def _spec(module: str) -> ModuleSpec | None:
    try:
        return find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None


def _walk(folder: Path) -> Iterator[Path]:
    """All files in a folder, through links too: an import follows them. Links to nowhere and pipes are none."""
    seen = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = sorted(folders) if real not in seen else []
        yield from (Path(place, name) for name in sorted(files) if real not in seen and isfile(join(place, name)))
        seen.add(real)


class _Compiled(SourceFileLoader):
    """Reads the source, and no bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        data = self.get_data(path)
        _FINDER.remember(fullname, self, data)
        code: CodeType = self.source_to_code(data, path)
        return code


@dataclass
class _Finder(MetaPathFinder):
    """Finds what the other finders find, and has the modules of some distributions compiled.

    Attributes:
        tops: names at the top of these modules.
        files: their real paths; a module is theirs under whatever name it is imported.
        kept: which files with which digests a verification is about; other code of its names is refused within it.
        ran: of each module that was compiled, its loader, and the real path and the digest of its file.
        ever: the name, real path and digest of all that was loaded: what is gone from ``sys.modules`` may still run.
    """

    tops: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    kept: Kept | None = None
    ran: dict[str, tuple[object, str, str]] = field(default_factory=dict)
    ever: set[tuple[str, str, str]] = field(default_factory=set)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`. ImportError where there is bytecode alone."""
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        found = next((spec for finder in others if (spec := finder.find_spec(fullname, path, target))), None)
        if found is None or not (_top(fullname) in self.tops or os.path.realpath(found.origin or "") in self.files):
            return found
        if isinstance(found.loader, SourcelessFileLoader):
            raise ImportError(f"{fullname} is bytecode without a source, which nobody can read", name=fullname)
        if type(found.loader) is SourceFileLoader:
            found.loader = _Compiled(found.loader.name, found.loader.path)
        if isinstance(found.loader, ExtensionFileLoader):
            self.remember(fullname, found.loader, Path(found.loader.path).read_bytes())
        return found

    def remember(self, fullname: str, loader: SourceFileLoader | ExtensionFileLoader, data: bytes) -> None:
        """Notes what a module is made of. ImportError where a verification is about other code."""
        real, digest = os.path.realpath(loader.path), sha256(data).hexdigest()
        if self.kept and self.kept.covers(fullname, real) and self.kept.digests.get(real) != digest:
            raise ImportError(
                f"{fullname} lies in {loader.path}, which is not the code that was digested", name=fullname
            )
        self.ran[fullname] = loader, real, digest
        self.ever.add((fullname, real, digest))


@dataclass(frozen=True)
class Kept:
    """The code that a verification is about: names of modules at the top, and digests of files by their real paths."""

    tops: frozenset[str] = frozenset()
    digests: Mapping[str, str] = field(default_factory=dict)

    def covers(self, fullname: str, real: str) -> bool:
        """Whether a module bears one of the names, or lies in one of the files."""
        return _top(fullname) in self.tops or real in self.digests


_FINDER = _Finder()


def _top(fullname: str) -> str:
    return fullname.partition(".")[0]


def compile_sources(tops: Iterable[str], files: Iterable[str], kept: Kept | None = None) -> None:
    """From now on modules of these names, or in these files (by their real paths), are compiled from their sources."""
    _FINDER.tops |= frozenset(tops)
    _FINDER.files |= frozenset(files)
    _FINDER.kept = kept or _FINDER.kept
    # a finder that came in since would be asked first, and ours not at all
    if sys.meta_path[:1] != [_FINDER]:
        sys.meta_path[:] = [_FINDER, *(finder for finder in sys.meta_path if finder is not _FINDER)]


@contextmanager
def keeping(kept: Kept) -> Iterator[None]:
    """Within it, other code than this is not loaded under its names, in worker processes neither."""
    outer, _FINDER.kept = _FINDER.kept, kept
    try:
        yield
    finally:
        _FINDER.kept = outer


def look(kept: Kept) -> tuple[list[str], list[str]]:
    """Modules that were imported of some code: those from elsewhere or of other bytes, and those not compiled here.

    The latter were there before, came through a finder of somebody else's, or were other code when they were imported
    before: a function of that may have been kept.
    """
    elsewhere = list[str]()
    before = {
        name for name, real, digest in _FINDER.ever if kept.covers(name, real) and kept.digests.get(real) != digest
    }
    uncompiled = sorted(before)
    folder = cache(os.path.realpath)  # thousands of modules lie in a few hundred folders
    for name, module in sorted(sys.modules.copy().items()):
        loader, real, digest = _FINDER.ran.get(name, (None, "", ""))
        if not digest or _loader(module) is not loader:
            real, digest = _place(module, folder), ""
        if not kept.covers(name, real) or (not real and _is_namespace(module)):
            continue
        if real and (real not in kept.digests or digest not in ("", kept.digests[real])):
            elsewhere.append(f"{name} of {real}")
        elif not digest and name not in before:
            uncompiled.append(name)
    return elsewhere, sorted(uncompiled)


def _place(module: ModuleType, folder: Callable[[str], str]) -> str:
    """The real path of a module's file; "" for none. ``folder`` gives the real path of a folder."""
    said = _said(module)
    place = getattr(said.get("__spec__"), "origin", None) or said.get("__file__")
    if not isinstance(place, str) or not isfile(place):
        return ""
    home, name = os.path.split(place)
    found = join(folder(home), name)
    return os.path.realpath(found) if os.path.islink(found) else found


def _is_namespace(module: ModuleType) -> bool:
    return type(_loader(module)) is NamespaceLoader


def _loader(module: ModuleType) -> object:
    return getattr(_said(module).get("__spec__"), "loader", None)


def _said(module: ModuleType) -> Mapping[str, object]:
    """What a module says of itself, without waking one that is loaded when it is first used."""
    try:
        said = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return said if isinstance(said, dict) else {}


class Compiled:
    """Sent to another process, it has the same modules compiled there, from the moment at which it is read."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[frozenset[str], frozenset[str], Kept | None]]:
        return compile_sources, (_FINDER.tops, _FINDER.files, _FINDER.kept)
