"""Outside packages are compiled from their sources: a kept bytecode file can hold other code than the source beside it.

A verification names outside code by a digest of its sources. Python itself would run what lies in ``__pycache__``, by
the time and size of the source alone, or unasked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType


class _Compiled(SourceFileLoader):
    """Reads the source, and no bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _Finder(MetaPathFinder):
    """Finds what the other finders find, of some packages, and has it compiled."""

    def __init__(self) -> None:
        self.packages: frozenset[str] = frozenset()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`. ImportError where there is bytecode alone."""
        if fullname.partition(".")[0] not in self.packages:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        found = next((spec for finder in others if (spec := finder.find_spec(fullname, path, target))), None)
        if found is not None and isinstance(found.loader, SourcelessFileLoader):
            raise ImportError(f"{fullname} is bytecode without a source, which nobody can read", name=fullname)
        if found is not None and type(found.loader) is SourceFileLoader:
            found.loader = _Compiled(found.loader.name, found.loader.path)
        return found


_FINDER = _Finder()


def compile_sources(packages: Iterable[str]) -> None:
    """From now on these top-level packages are compiled from their sources; what was imported before stays."""
    _FINDER.packages |= frozenset(packages)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def is_compiled(package: str) -> bool:
    """Whether a top-level package is among them."""
    return package in _FINDER.packages


class Compiled:
    """Sent to another process, it has these packages compiled there, from the moment at which it is read."""

    def __reduce__(self) -> tuple[Callable[[frozenset[str]], None], tuple[frozenset[str]]]:
        return compile_sources, (_FINDER.packages,)
