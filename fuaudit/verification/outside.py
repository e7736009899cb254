"""Outside code: every distribution but fuaudit whose plugins a verification runs, with a digest of its code.

A model, an aggregator or a reader of data can do anything; no audit reads code. What ran is therefore named, so that a
reader can look at it, or trust its author, or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from os.path import realpath
from typing import Any

from fuaudit import registry
from fuaudit.errors import EvidenceError, PluginError, UsageError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import canonical_json
from fuaudit.from_source import Kept, code_of, keeping, look
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

FEW = 5
"""Modules that a sentence names; findings hold all of them."""


@dataclass(frozen=True)
class Outside:
    """A distribution whose code ran.

    Attributes:
        plugins: what of it was used, such as ``model 'leaky'``.
        digest: SHA-256 over names and digests of its files; empty where they cannot be read.
        covers: what the digest is over, or why there is none.
        uncompiled: modules that fuaudit did not compile: they were imported before, or by somebody else's finder.
        kept: what the digest is over, file by file.
    """

    name: str
    version: str
    plugins: tuple[str, ...]
    digest: str
    covers: str
    uncompiled: tuple[str, ...] = ()
    kept: Kept = field(default_factory=Kept)

    def __str__(self) -> str:
        code = f"SHA-256 of its code {self.digest[:SHORT]}" if self.digest else "its code could not be read"
        some = f"; {counted(len(self.uncompiled), 'module')} not compiled from it" if self.uncompiled else ""
        return f"{self.name} {self.version} ({', '.join(self.plugins)}; {code}{some})"

    def as_json(self) -> dict[str, Any]:
        """What findings hold of it."""
        return {key: value for key, value in asdict(replace(self, kept=Kept())).items() if key != "kept"}

    @property
    def assumption(self) -> str:
        """What a finding takes on trust with it."""
        code = f"the SHA-256 of its code is {self.digest}, over {self.covers}" if self.digest else self.covers
        rest = ", ".join(map(repr, self.uncompiled[:FEW])) + (" and others" if len(self.uncompiled) > FEW else "")
        some = f" Imported otherwise than compiled by fuaudit, so not held to the digest: {rest}." if rest else ""
        return (
            f"Outside code does what it says: {self.name} {self.version} ({', '.join(self.plugins)}); {code}."
            f"{some} {AUDITED}"
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
        entry = _entry(kind, name)
        if not entry.own:
            found.setdefault(entry.distribution, []).append(entry)
    return tuple(_outside(name, entries) for name, entries in sorted(found.items()))


def _entry(kind: str, name: str) -> Entry:
    """A plugin; EvidenceError for an unlearner that there is not: only files of a run name one."""
    try:
        return registry.find(kind, name)
    except UsageError as error:
        if kind != "unlearners":
            raise
        raise EvidenceError(f"a run of the lineage names what is not there: {error}") from None


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


def keeping_to(outside: Iterable[Outside]) -> AbstractContextManager[None]:
    """Within it, no other code than was digested is loaded under the names of outside code."""
    kept = [code.kept for code in outside]
    digests = {path: digest for one in kept for path, digest in one.digests.items()}
    return keeping(Kept(frozenset().union(*(one.tops for one in kept)), digests))


def looked_at(outside: Iterable[Outside]) -> tuple[Outside, ...]:
    """Outside code with what was imported of it and not compiled.

    Raises:
        PluginError: what was imported under its names is not what was digested.
    """
    return tuple(_looked_at(code) for code in outside)


def _looked_at(code: Outside) -> Outside:
    if not code.digest:
        return code
    elsewhere, uncompiled = look(code.kept)
    if elsewhere:
        raise PluginError(
            f"{code.name} {code.version} runs code that its digest does not cover: {', '.join(elsewhere[:FEW])}",
            "The file has changed since, or lies elsewhere than the package. Verify in a new process.",
        )
    return replace(code, uncompiled=tuple(uncompiled))


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
    plugins = tuple(entry.words for entry in entries)
    code = code_of(entries[0].point.dist, {entry.package for entry in entries})
    try:
        kept = Kept(code.tops, code.digests)
        digest = sha256(canonical_json({path: kept.digests[realpath(place)] for path, place in code.files.items()}))
    except OSError as error:
        return Outside(name, entries[0].version, plugins, "", f"its code cannot be read: {error.strerror or error}")
    if not code.files:
        return Outside(name, entries[0].version, plugins, "", "its code cannot be read: no file of it was found")
    covers = f"{counted(len(code.files), 'file')}, as installed and imported"
    return Outside(name, entries[0].version, plugins, digest, covers, kept=kept)
