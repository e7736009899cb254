"""Kin: the runs at hand that were made of one training.

Runs of one training have one commitment, and a ledger begins with it. What lies beside the run is looked through; a run
that cannot be opened is a gap, and no run that nothing is known of.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from errno import ELOOP, ENOENT, ENOTDIR
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError, FuauditError
from fuaudit.formats.files import read_bytes, sha256
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json, parse_canonical, parse_json
from fuaudit.runs.layout import LEDGER, MANIFEST, RUN, SECRETS, TOMBSTONE
from fuaudit.runs.ledger import PLATFORM, released
from fuaudit.runs.pruned_contents import former_of
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.tombstone import Tombstone, read_tombstone

UNFINISHED = "it was begun and not finished, so how many rounds it executed is not known"
ONE_DIGEST = "it says that before a prune it was what another run is: as its parent's, that would hide its own rounds"
OTHER_TALE = "it is a copy of {}, and its ledger tells otherwise of rounds"
VIEW_ALONE = "it is a sealed view, which does not tell how its rounds were drawn, and its run is not at hand"
OF_A_RUN = b'"fuaudit run '
"""In every manifest and run.json, whatever version wrote it."""

_FIRST = (MANIFEST, RUN, TOMBSTONE, LEDGER)
"""The files by which a folder is known to hold a run, a tombstone, or what is left of either."""


@dataclass(frozen=True)
class Kin:
    """A run of a family, or its tombstone, by a name that no other has."""

    name: str
    found: Run | Tombstone
    copies: tuple[Kin, ...] = ()
    """Those at hand, also of after a prune, or of before it."""

    @property
    def digests(self) -> frozenset[str]:
        """All by which children can name it; what is told alone is none of them, as in a verification."""
        alike = (self, *self.copies)
        before = {kin.sealed for kin in alike if not kin.is_told}
        return frozenset(before | {kin.found.digest for kin in alike})

    @property
    def sealed(self) -> str:
        """Its digest before any prune."""
        return str(self.found.ledger.of_kind("sealed")[0]["digest"])

    @cached_property
    def is_told(self) -> bool:
        """Whether its digest before a prune is as told: nothing has it any more, or not the manifest of before."""
        if self.sealed == self.found.digest or isinstance(self.found, Tombstone):
            return self.sealed != self.found.digest
        try:
            former_of(self.found)
        except EvidenceError:
            return True
        return False

    @property
    def parent(self) -> str:
        """The digest of its parent; empty for a training run."""
        return str(self.found.info["parent"]["digest"]) if self.found.is_child else ""


@dataclass(frozen=True)
class Kinship:
    """What lies beside a run of the same training.

    ``gaps`` says of others why they cannot be opened, ``doubles`` why it is not known which run they are.
    """

    run: Kin
    kin: tuple[Kin, ...]
    gaps: dict[str, str] = field(default_factory=dict)
    doubles: dict[str, str] = field(default_factory=dict)


def kinship(run: Run, also: Iterable[Path] = ()) -> Kinship:
    """The runs beside a run, or beside a link to it, and in other folders, of the same training; of copies one.

    Raises:
        EvidenceError: a folder cannot be read.
    """
    own = Kin(run.path.resolve().name, run)
    found, gaps, views = [own], dict[str, str](), list[Kin]()
    for folder in _folders([*run.homes, *also]):
        name = folder.name if folder.name not in {*gaps, *(kin.name for kin in found)} else folder
        try:
            if folder.resolve() != run.path.resolve() and _is_of(folder, run) and not _is_ledger_of(folder, found):
                one = Kin(str(name), _opened(folder, run))
                (views if isinstance(one.found, Run) and one.found.sealed else found).append(one)
        except FuauditError as error:
            gaps[str(name)] = str(error.args[0])
    # a sealed view of a run at hand is a copy of it; of another one it does not tell how it was drawn
    at_hand = {digest for one in found for digest in one.digests}
    gaps |= {view.name: VIEW_ALONE for view in views if view.found.digest not in at_hand}
    found += [view for view in views if view.found.digest in at_hand]
    kin, other_tales = without_copies(found)
    runs, doubles = apart(own, kin)
    return Kinship(own, tuple(sorted(runs, key=lambda kin: kin.name)), gaps, other_tales | doubles)


def kinship_of(run: Run, ancestors: Iterable[Run | Tombstone]) -> Kinship:
    """A run and ancestors of it, and nothing of what lies beside them."""
    chain = [run, *ancestors]
    names = [found.path.resolve().name for found in chain]
    own, *others = (
        Kin(name if names.count(name) == 1 else f"{name} ({found.digest[:8]})", found)
        for name, found in zip(names, chain, strict=True)
    )
    runs, doubles = apart(own, [own, *others])
    return Kinship(own, tuple(runs), {}, doubles)


def without_copies(kin: Iterable[Kin]) -> tuple[list[Kin], dict[str, str]]:
    """Of copies of one run the first, with names and digests of all; then why those are a gap that tell otherwise.

    A copy of before a prune, or after it, is one of the same run where it holds the manifest of before.
    """
    groups, gaps = dict[str, list[Kin]](), dict[str, str]()
    for one in kin:
        groups.setdefault(one.found.digest if one.is_told else one.sealed, []).append(one)
    for first, *copies in groups.values():
        gaps |= {copy.name: OTHER_TALE.format(first.name) for copy in copies if _tale(copy) != _tale(first)}
    return [replace(first, copies=tuple(rest)) for first, *rest in groups.values()], gaps


def _tale(kin: Kin) -> object:
    """What an account takes from a ledger, which no digest covers."""
    platforms = kin.found.ledger.of_kind(PLATFORM)
    makers = {canonical_json([event[name] for name in ("versions", "plugins", "canary")]) for event in platforms}
    told = {line["round"]: released(line) for line in kin.found.ledger.of_kind("round")}
    return told, makers, [event.get("kept_rounds") for event in kin.found.ledger.of_kind("unlearning")]


def apart(own: Kin, kin: Iterable[Kin]) -> tuple[list[Kin], dict[str, str]]:
    """Runs without those that say that they were another one of them, and why each of those is a gap."""
    everybody, runs, gaps = tuple(kin), list[Kin](), dict[str, str]()
    for one in everybody:
        others = [other for other in everybody if other is not one] if one.is_told else []
        alike = [other for other in others if {one.sealed, *one.digests} & other.digests]
        # the run that is asked about counts in any case
        if not alike or one.found is own.found:
            runs.append(one)
        if alike and all(other.found.digest != one.found.digest for other in alike):
            gaps[one.name] = ONE_DIGEST
    return runs, gaps


def _folders(places: Sequence[Path]) -> Iterator[Path]:
    """The folders in some places that may hold a run, by names of files; those that nobody can look into are some."""
    for place in places:
        try:
            inside = sorted(item for item in place.iterdir() if _may_have(item, _FIRST))
        except OSError as error:
            raise EvidenceError(f"cannot look through {place}: {error.strerror or error}") from error
        yield from sorted(inside, key=lambda item: [not _may_have(item, [name]) for name in (MANIFEST, TOMBSTONE)])


def _may_have(folder: Path, names: Iterable[str]) -> bool:
    """Whether there is something by one of some names in a folder, or nobody can tell."""
    try:
        return any(_is_there(folder / name) for name in names)
    except EvidenceError:
        return True


def _is_there(path: Path) -> bool:
    """Whether there is something by this name: a link to nowhere, too. EvidenceError where nobody can tell."""
    try:
        path.lstat()
    except OSError as error:
        if error.errno in (ENOENT, ENOTDIR, ELOOP):
            return False
        raise EvidenceError(f"cannot look into {path.parent}: {error.strerror or error}") from error
    return True


def _is_of(folder: Path, run: Run) -> bool:
    """Whether a folder holds what was made of the training of a run, and not of another one, or by another program.

    Raises:
        EvidenceError: it holds a run, or what is left of one, and its ledger does not tell of which training; or what
            tells it cannot be read.
    """
    lines, mine = _lines(folder), str(run.ledger.events[0]["commitment"])
    commitment = _commitment(lines[0], folder) if lines else ""
    if commitment == mine:
        return True
    if mine.encode() in _content(folder / LEDGER):  # with other ends of lines, or a space in front
        raise EvidenceError(f"{folder / LEDGER} names the commitment of this training, and does not begin with it")
    if not commitment and _is_ours(folder):
        raise EvidenceError(f"{folder / LEDGER} is missing, or does not begin with a commitment")
    if commitment and _is_torn(lines, folder):
        raise EvidenceError(
            f"the ledger of {folder} begins with another commitment, and is torn or broken behind it: nobody can tell "
            "whether it was of this training"
        )
    return False


def _is_ledger_of(folder: Path, kin: Iterable[Kin]) -> bool:
    """Whether a folder has a copy of the ledger of a run that is at hand, and nothing else that tells of a run."""
    if any(_is_there(folder / name) for name in (MANIFEST, RUN, TOMBSTONE)):
        return False
    return sha256(_lines(folder)[-1]) in {one.found.ledger.head for one in kin}


def _lines(folder: Path) -> list[bytes]:
    """The whole lines of a ledger; none where there is no ledger."""
    return _content(folder / LEDGER).split(b"\n")[:-1]


def _content(path: Path) -> bytes:
    """What is in a file, also behind a link; nothing where there is none. EvidenceError where it cannot be read."""
    return read_bytes(Path(os.path.realpath(path)), MAX_JSON_BYTES) if _is_there(path) else b""


def _commitment(line: bytes, folder: Path) -> str:
    """What a first line of a ledger commits to; empty where it is none."""
    try:
        event = parse_canonical(line, folder / LEDGER)
    except EvidenceError:
        return ""
    return str(event.get("commitment", "")) if isinstance(event, dict) else ""


def _is_torn(lines: Sequence[bytes], folder: Path) -> bool:
    """Whether a ledger has a line that does not name the one before it, or is not that of the files beside it."""
    if any(sha256(line).encode() not in after for line, after in pairwise(lines)):
        return True
    if _is_there(folder / MANIFEST) and sha256(lines[-1]).encode() not in _content(folder / MANIFEST):
        return True
    if _digest_in(_table(folder / TOMBSTONE)) not in lines[-1]:
        return True
    parent = _digest_in(_table(folder / RUN).get("parent"))
    return not any(parent in line for line in lines)


def _table(path: Path) -> dict[str, Any]:
    """The table in a file; an empty one where there is none."""
    table = parse_json(_content(path), path) if _is_there(path) else {}
    return table if isinstance(table, dict) else {}


def _digest_in(table: object) -> bytes:
    """The digest that a table names, of a run or of its parent; empty where it names none."""
    return str(table.get("digest", "")).encode() if isinstance(table, dict) else b""


def _is_ours(folder: Path) -> bool:
    """Whether files in a folder say that they are of a run; other programs have a manifest.json as well."""
    return _is_there(folder / TOMBSTONE) or any(OF_A_RUN in _content(folder / name) for name in (MANIFEST, RUN))


def _opened(folder: Path, run: Run) -> Run | Tombstone:
    if (folder / MANIFEST).exists():
        return load_run(folder)
    if (folder / TOMBSTONE).exists():
        return read_tombstone(folder, run.config)
    raise EvidenceError(UNFINISHED)


def with_secrets(kin: Iterable[Kin]) -> tuple[str, ...]:
    """The runs with which the clients' secrets lie; with a redacted one they lay when it was redacted."""
    return tuple(one.name for one in kin if isinstance(one.found, Run) and SECRETS in one.found.files)


def tombstones(kin: Iterable[Kin]) -> tuple[str, ...]:
    """Those of which a prune left no more than a ledger."""
    return tuple(one.name for one in kin if isinstance(one.found, Tombstone))
