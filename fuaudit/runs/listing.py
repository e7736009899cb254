"""What lies in a folder of runs: told by their first files, without a check of what these say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.runs.layout import CLIENTS, FORMER, MANIFEST, PLAN, RUN, TOMBSTONE
from fuaudit.runs.manifest import read_form
from fuaudit.text import client_in_words


@dataclass(frozen=True)
class Listed:
    """A run as its files tell, unchecked.

    Attributes:
        name: of its folder.
        kind: "training" or "unlearning"; empty where it cannot be read.
        state: "complete", "interrupted", "tombstone", or why it cannot be read.
        parent, unlearner: of a child, by name.
        request: of a child, in ids; empty where its files no longer tell it.
        whom: the same, clients by the names that are left beside their ids.
        digest, ledger: by its manifest, of files and the last event; empty without one.
        former: both of before its prune, as it tells; empty where it was not pruned.
    """

    name: str
    kind: str = ""
    state: str = "complete"
    parent: str = ""
    unlearner: str = ""
    request: str = ""
    whom: str = ""
    digest: str = ""
    ledger: str = ""
    former: tuple[str, ...] = ()


def is_run(folder: Path) -> bool:
    """Whether a run was begun in a folder, or left its tombstone there. OSError where nobody may look into it."""
    return any((folder / name).is_file() for name in (MANIFEST, RUN, TOMBSTONE))


def runs_in(folder: Path) -> Iterator[Listed]:
    """The runs in a folder, by name.

    Raises:
        EvidenceError: the folder cannot be read.
    """
    try:
        found = sorted(item for item in folder.iterdir() if not item.is_symlink() and _may_be_run(item))
    except OSError as error:
        hint = "Give the folder that holds runs: fuaudit runs FOLDER."
        raise EvidenceError(f"cannot read {folder}: {error.strerror or error}", hint) from error
    yield from map(_listed, found)


def _may_be_run(folder: Path) -> bool:
    """Whether a run was begun in a folder; also where nobody may look inside, which its row says."""
    try:
        return is_run(folder)
    except OSError:
        return True


def made_from(folder: Path) -> list[Path]:
    """The complete runs beside a folder that were made from its run, also by others of which a tombstone is left."""
    try:
        beside = list(runs_in(folder.parent))
    except EvidenceError:
        return []
    family = {folder.name}
    while more := {one.name for one in beside if one.parent in family} - family:
        family |= more
    return [folder.with_name(one.name) for one in beside if one.name in family and one.state == "complete"]


def _listed(folder: Path) -> Listed:
    try:
        if not (folder / MANIFEST).exists():
            gone = (folder / TOMBSTONE).exists()
            info = read_form(folder, TOMBSTONE)["info"] if gone else read_form(folder, RUN)
            return _row(folder, info, "tombstone" if gone else "interrupted")
        digest, ledger = _sealed(folder, MANIFEST)
        former = _sealed(folder, FORMER) if (folder / FORMER).exists() else ()
        return replace(_row(folder, read_form(folder, RUN), "complete", digest), ledger=ledger, former=former)
    except EvidenceError as error:
        return Listed(folder.name, state=str(error).partition("\n")[0])
    except OSError as error:
        return Listed(folder.name, state=f"cannot look into {folder}: {error.strerror or error}")


def _sealed(folder: Path, name: str) -> tuple[str, str]:
    manifest = read_form(folder, name)
    return manifest["digest"], manifest["ledger"]


def _row(folder: Path, info: dict[str, Any], state: str, digest: str = "") -> Listed:
    if info["kind"] == "training":
        return Listed(folder.name, info["kind"], state, digest=digest)
    asked = None if state == "tombstone" else _asked(folder)
    words = (str(asked), _whom(folder, asked)) if asked else ("", "")
    return Listed(folder.name, info["kind"], state, info["parent"]["name"], info["unlearner"]["use"], *words, digest)


def _asked(folder: Path) -> Request | None:
    rows = read_form(folder, PLAN)["requests"]
    return Request(tuple(rows[-1]["clients"]), tuple(rows[-1]["samples"])) if rows else None


def _whom(folder: Path, asked: Request) -> str:
    """Whom a request names, by names that lie in the open; those of clients with secrets lie with these.

    In a sealed view there are none.
    """
    names = (read_form(folder, CLIENTS)["names"] or {}) if (folder / CLIENTS).exists() else {}
    clients = [client_in_words(client, names.get(str(client))) for client in asked.clients]
    return ", ".join([*clients, *([str(Request((), asked.samples))] if asked.samples else [])])
