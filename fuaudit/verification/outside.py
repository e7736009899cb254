"""Outside code: every distribution but fuaudit whose plugins a verification runs, with a digest of its code.

A model, an aggregator or a reader of data can do anything; no audit reads code. What ran is therefore named, so that a
reader can look at it, or trust its author, or not.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Any

from fuaudit import registry
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import canonical_json
from fuaudit.registry import Entry
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.verification.claims import CLAIMS, EVIDENCE
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.spec import Spec

SHORT = 16
"""Hexadecimal digits of a digest in a sentence; findings hold all of them."""

AUDITED = "This code audited; a run records versions alone, so that the same code made it is taken on trust."

CODE = frozenset({".py", ".so", ".pyd"})


@dataclass(frozen=True)
class Outside:
    """A distribution whose code ran.

    Attributes:
        plugins: what of it was used, such as ``model 'leaky'``.
        digest: SHA-256 over names and digests of its files; empty where they cannot be read.
        covers: what the digest is over, or why there is none.
    """

    name: str
    version: str
    plugins: tuple[str, ...]
    digest: str
    covers: str

    def __str__(self) -> str:
        code = f"SHA-256 of its code {self.digest[:SHORT]}" if self.digest else "its code could not be read"
        return f"{self.name} {self.version} ({', '.join(self.plugins)}; {code})"

    @property
    def assumption(self) -> str:
        """What a finding takes on trust with it."""
        code = f"the SHA-256 of its code is {self.digest}, over {self.covers}" if self.digest else self.covers
        return (
            f"Outside code does what it says: {self.name} {self.version} ({', '.join(self.plugins)}); {code}. {AUDITED}"
        )


def outside_code(evidence: Evidence, spec: Spec) -> tuple[Outside, ...]:
    """The distributions beside fuaudit that config, lineage or spec name, by name.

    What these import from elsewhere is theirs to name; it is not looked for.
    """
    used = {("audits", check.audit["use"]) for check in spec.checks}
    used |= {("claims", spec.asks)} - {("claims", asks) for asks in CLAIMS}
    used |= {("evidence", word) for word in (spec.claim.needs | spec.evidence) - EVIDENCE.keys()}
    for run in (evidence.run, *evidence.ancestors):
        used |= set(_plugins_of(run))
    found: dict[str, list[Entry]] = {}
    for kind, name in sorted(used):
        entry = registry.find(kind, name)
        if not entry.own:
            found.setdefault(entry.distribution, []).append(entry)
    return tuple(_outside(name, entries) for name, entries in sorted(found.items()))


def require_trusted(outside: Iterable[Outside], spec: Spec) -> None:
    """Raises EvidenceError where outside code is used that the spec does not trust, imported already or not."""
    if spec.trusts is None:
        return
    trusted = frozenset(map(registry.normalised, spec.trusts))
    if others := [str(code) for code in outside if registry.normalised(code.name) not in trusted]:
        raise EvidenceError(
            f"the spec {spec.id} does not trust {'; '.join(others)}",
            f"It trusts {', '.join(sorted(trusted)) or 'fuaudit alone'} (its key trusts).",
        )


def _plugins_of(run: Run | Tombstone) -> Iterator[tuple[str, str]]:
    """Kind and name of every plugin that a run was made with, or names for what comes; a tombstone names its method."""
    if run.is_child:
        yield "unlearners", run.info["unlearner"]["use"]
    if not isinstance(run, Run):
        return
    yield from run.config.plugins
    if run.config.unlearner:
        yield "unlearners", run.config.unlearner["use"]


def _outside(name: str, entries: list[Entry]) -> Outside:
    tops = {entry.point.value.partition(":")[0].partition(".")[0].strip() for entry in entries}
    digest, covers = code_of(name, tops)
    plugins = tuple(entry.words for entry in entries)
    return Outside(name, entries[0].version, plugins, digest, covers)


def code_of(name: str, modules: Iterable[str]) -> tuple[str, str]:
    """A digest of the code of a distribution, and what it covers; "" and why where nothing can be read.

    It covers the files that the distribution lists, and those of its top-level ``modules`` where an import finds them.
    Both are needed. An editable installation lists no files. And an import takes a folder that stands earlier on the
    search path, in place of what was installed.
    """
    try:
        listed = dict(_listed(distribution(name)))
    except PackageNotFoundError:
        listed = {}
    found = {path: place for module in sorted(modules) for path, place in _imported(module)}
    try:
        digests = {path: sha256(place.read_bytes()) for path, place in {**listed, **found}.items()}
    except OSError as error:
        return "", f"its code cannot be read: {error.strerror or error}"
    if not digests:
        return "", "its code cannot be read: no file of it was found"
    covers = (
        f"{counted(len(digests), 'file')}, "
        f"{'as installed and imported' if listed else 'as imported (it lists no files)'}"
    )
    return sha256(canonical_json(digests)), covers


def _listed(found: Distribution) -> Iterator[tuple[str, Path]]:
    """The files that a distribution lists of itself, without bytecode, scripts and what installers note."""
    for file in found.files or ():
        path = PurePosixPath(file.as_posix())
        notes = path.parts[0].endswith((".dist-info", ".egg-info")) and path.name != "entry_points.txt"
        if notes or ".." in path.parts or "__pycache__" in path.parts or path.suffix == ".pth":
            continue
        if path.name.startswith("__editable__"):
            continue
        yield str(path), Path(str(found.locate_file(file)))


def _imported(module: str) -> Iterator[tuple[str, Path]]:
    """The code of a top-level module or package where an import finds it; nothing of it is imported."""
    try:
        spec: Any = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in CODE and path.is_file() and "__pycache__" not in path.parts:
                yield f"{module}/{path.relative_to(folder).as_posix()}", path
    if not spec.submodule_search_locations and spec.origin and Path(spec.origin).is_file():
        yield Path(spec.origin).name, Path(spec.origin)
