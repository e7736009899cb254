"""Kin: the runs at hand that were made of one training.

Runs of one training have one commitment, and a ledger begins with it. What lies beside the run is looked through; a run
that cannot be opened is a gap, and no run that nothing is known of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from fuaudit.errors import EvidenceError, FuauditError
from fuaudit.formats.files import read_bytes
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json, parse_canonical
from fuaudit.runs.layout import CONFIG, LEDGER, MANIFEST, RUN, SECRETS, TOMBSTONE
from fuaudit.runs.ledger import PLATFORM, released
from fuaudit.runs.pruned_contents import former_of
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.tombstone import Tombstone, read_tombstone

UNFINISHED = "it was begun and not finished, so how many rounds it executed is not known"
ONE_DIGEST = "it says that before a prune it was what another run is: as its parent's, that would hide its own rounds"
OTHER_TALE = "it is a copy of {}, and its ledger tells otherwise of rounds"


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
    """The runs beside a run, and in other folders, that were made of the same training; of copies one.

    Raises:
        EvidenceError: a folder cannot be read.
    """
    own = Kin(run.path.resolve().name, run)
    found, gaps = [own], dict[str, str]()
    for folder in _folders([run.path.resolve().parent, *also]):
        name = folder.name if folder.name not in {*gaps, *(kin.name for kin in found)} else folder
        try:
            if folder.resolve() != run.path.resolve() and _commitment(folder) == _commitment(run.path):
                found.append(Kin(str(name), _opened(folder, run)))
        except FuauditError as error:
            gaps[str(name)] = str(error.args[0])
    kin, other_tales = without_copies(found)
    runs, doubles = apart(own, kin)
    return Kinship(own, tuple(sorted(runs, key=lambda kin: kin.name)), gaps, other_tales | doubles)


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
    """The folders in some places that hold a run; runs before tombstones."""
    for place in places:
        try:
            inside = sorted(filter(_is_ours, place.iterdir()))
        except OSError as error:
            raise EvidenceError(f"cannot look through {place}: {error.strerror or error}") from error
        yield from sorted(inside, key=lambda item: not (item / MANIFEST).is_file())


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a run, also one of which a file was taken away; others have a manifest.json as well."""
    there = [name for name in (MANIFEST, RUN, CONFIG, TOMBSTONE, LEDGER) if (folder / name).is_file()]
    return len(there) > 1 or there == [TOMBSTONE]  # all that is left of a buried run, beside its ledger


def _commitment(folder: Path) -> str:
    """What the first line of a ledger commits to; EvidenceError where it is none."""
    path = folder / LEDGER
    event = parse_canonical(read_bytes(path, MAX_JSON_BYTES).partition(b"\n")[0], path)
    if not isinstance(event, dict) or not isinstance(event.get("commitment"), str):
        raise EvidenceError(f"{path} does not begin with a commitment")
    return str(event["commitment"])


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
