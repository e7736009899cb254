"""Neighbours: what a prune of a run means for the folders beside it, which it leaves alone."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuaudit.draws import Seeds
from fuaudit.draws.shared_seeds import Shared, overlap, shared
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import read_bytes, read_json
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json
from fuaudit.runs.ancestors import lineage
from fuaudit.runs.kin import OF_A_RUN
from fuaudit.runs.layout import KEYS, LEDGER, MANIFEST, RUN, TOMBSTONE, file_of
from fuaudit.runs.listing import is_run
from fuaudit.runs.pruned_contents import kept_leaves
from fuaudit.runs.receipts import opens_erased, read_receipt
from fuaudit.runs.run import Run


@dataclass(frozen=True)
class Neighbours:
    """Folders beside a run that a prune of it leaves alone; ancestors that still are runs are none.

    Attributes:
        holding: those with seeds that a prune of the run destroys, or has destroyed.
        relatives: all of its training, whatever a prune has left in them.
        without_keys: those of its training by their ledgers alone: nothing tells what their models hold.
        unread: those that cannot be looked through, whose keys or ledger cannot be read, or whose keys are too many:
            they may hold such seeds.
    """

    holding: tuple[Path, ...]
    relatives: tuple[Path, ...]
    without_keys: tuple[Path, ...]
    unread: tuple[Path, ...]


def neighbours(run: Run, passed_over: Collection[Path] = ()) -> Neighbours:
    """What lies beside a run and is of its training, by seeds or by its ledger, or may be.

    The run itself, ancestors that still are runs, and folders that are ``passed_over`` are not looked into.

    Raises:
        EvidenceError: an ancestor does not check out, another run lies under its name, or the folder that holds the run
            cannot be read.
    """
    relatives, unread = dict[Path, tuple[str, ...]](), list[Path]()
    passed = {ancestor.path.resolve() for ancestor in lineage(run) if isinstance(ancestor, Run)}.union(passed_over)
    for folder in _beside(run):
        try:
            home = Path(os.path.realpath(folder, strict=True))
            if home in passed or not home.is_dir():
                continue
            found = _shared_with(run, folder)
            is_ours = found.same or (found.same is not None and _tells_of(run, folder))
        except FileNotFoundError:  # a link to nowhere
            continue
        except (EvidenceError, OSError):  # no permission to look inside, or a link to itself, is an answer too
            unread.append(folder)
            continue
        if found.same is None:
            unread.append(folder)
        elif is_ours:
            relatives[folder] = found.ways
    holding = _holding(run, relatives) if any(relatives.values()) else ()
    without_keys = tuple(folder for folder, ways in relatives.items() if not ways)
    return Neighbours(holding, tuple(relatives), without_keys, tuple(unread))


def _holding(run: Run, relatives: Mapping[Path, tuple[str, ...]]) -> tuple[Path, ...]:
    """Those of some folders, given with the ways of their seeds in the run's tree, that hold what a prune destroys."""
    mine = run.keys.seeds
    gone = [part for part in mine.keeping(kept_leaves(run, lineage(run))).parts if part.seed is None]
    return tuple(folder for folder, ways in relatives.items() if overlap(gone, mine.size, ways))


def _shared_with(run: Run, folder: Path) -> Shared:
    """What the keys in a folder share with those of a run; ``same`` is None where they may be keys in another form.

    They are not read as strictly as where a run is opened: a holder is one in whatever form.
    """
    path = folder / KEYS
    if not path.is_symlink() and not path.exists():
        return Shared(False)
    table = read_json(path)
    try:
        return shared(run.keys.seeds, Seeds.of_rows(table["seeds"]))
    except (EvidenceError, TypeError, KeyError):
        return Shared(None if _may_be_ours(table, folder) and (is_run(folder) or _has_models(folder)) else False)


def _may_be_ours(table: Any, folder: Path) -> bool:
    """Whether keys in another form may have been edited; other programs have files of these names too."""
    if isinstance(table, dict) and {name.casefold() for name in table} & {"seeds", "partition", "partition_digest"}:
        return True
    if re.search(rb"[0-9A-Fa-f]{64}", canonical_json(table)):
        return True
    first = [folder / name for name in (MANIFEST, RUN, TOMBSTONE) if (folder / name).is_file()]
    return any(OF_A_RUN in read_bytes(path, MAX_JSON_BYTES) for path in first)


def _tells_of(run: Run, folder: Path) -> bool:
    """Whether a ledger in a folder names the commitment of a run, and models lie there.

    Raises:
        EvidenceError: models lie beside a ledger that cannot be read, such as a link: nothing tells whose they are.
        OSError: the folder cannot be looked through.
    """
    path = folder / LEDGER
    if not os.path.lexists(path):
        return False
    try:
        ledger = read_bytes(path, MAX_JSON_BYTES)
    except EvidenceError:
        if _has_models(folder):
            raise
        return False
    return run.ledger.events[0]["commitment"].encode() in ledger and _has_models(folder)


def _has_models(folder: Path) -> bool:
    """Whether files by the names of a run's models lie in a folder, or in the folders that runs have."""
    kinds = (file_of(name) for name in _inside(folder))
    return any(file is not None and file.held is not None and file.held.by_model for file in kinds)


def _inside(folder: Path) -> Iterator[str]:
    """The files in a folder and in folders of it, by their paths. OSError where one of these cannot be listed."""
    for item in folder.iterdir():
        yield item.name
        with suppress(NotADirectoryError, FileNotFoundError):  # a file, or a link to nowhere
            yield from (f"{item.name}/{name}" for name in os.listdir(item))


def orphans(run: Run) -> list[Path]:
    """Runs beside a run whose parent its prune would bury, and which it would not prune: they can be judged less then.

    None are named where the lineage cannot be read as it is: a prune that was killed has begun to bury it.
    """
    try:
        chain = [ancestor for ancestor in lineage(run) if isinstance(ancestor, Run)]
    except EvidenceError:
        return []
    passed = {ancestor.path.resolve() for ancestor in chain}
    beside = _children_of({ancestor.digest for ancestor in chain[1:]}, run)
    return [folder for folder in beside if folder.resolve() not in passed]


def receipts_beside(run: Run) -> list[Path]:
    """Receipts beside a run that open what was to be forgotten: they are written there, and a prune leaves them."""
    files = (path for path in _beside(run) if path.suffix == ".json" and path.is_file())
    return [path for path in files if _opens(path, run)]


def _opens(path: Path, run: Run) -> bool:
    try:
        receipt = read_receipt(path)
    except (EvidenceError, OSError):
        return False
    return receipt.commitment == run.commitment and opens_erased(receipt, run)


def children(run: Run) -> list[Path]:
    """Runs beside a run that were made of it: a prune gives it another digest, and they lose their parent."""
    return _children_of({run.digest}, run)


def _children_of(digests: Collection[str], run: Run) -> list[Path]:
    """The folders beside a run that hold runs with one of these parents."""
    return [folder for folder in _beside(run) if _parent_in(folder, digests)]


def _beside(run: Run) -> list[Path]:
    """All that lies in the folders that hold a run, or a link to it. EvidenceError where one cannot be read."""
    try:
        return [item for home in run.homes for item in sorted(home.iterdir())]
    except OSError as error:
        raise EvidenceError(f"cannot look through {error.filename}: {error.strerror or error}") from error


def _parent_in(folder: Path, digests: Collection[str]) -> bool:
    """Whether a folder holds a run with one of these parents; not, where it cannot be read."""
    try:
        return (folder / MANIFEST).is_file() and read_json(folder / RUN)["parent"]["digest"] in digests
    except (EvidenceError, OSError, TypeError, KeyError):
        return False
