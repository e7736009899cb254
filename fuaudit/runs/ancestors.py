"""Ancestors: the runs from which unlearning made a run, and its plan as their requests and its seeds give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fuaudit.draws import END, Noted, Position, Seeds, Stream
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import named
from fuaudit.plans import Plan
from fuaudit.plans.reference import resampled
from fuaudit.runs.layout import MANIFEST, TOMBSTONE
from fuaudit.runs.run import Run, load_run, require_text
from fuaudit.runs.tombstone import Tombstone, read_tombstone
from fuaudit.text import printable


def moment(parent: Run | Tombstone, rounds: int) -> Position:
    """The first position that was not executed when a request came to a run; ``END`` when training was over."""
    return Position(parent.rounds_executed + 1, 0) if parent.rounds_executed < rounds else END


def parent_of(run: Run | Tombstone, given: Path | None = None) -> Run | Tombstone | None:
    """The parent of a run: at the path given, or beside it under its recorded name; None when it is not there.

    Raises:
        EvidenceError: what is there is not the parent, or does not check out.
    """
    if not run.is_child:
        return None
    recorded = run.info["parent"]
    path = given or run.path.resolve().parent / Path(recorded["name"]).name
    if not path.is_dir():
        if given:
            raise EvidenceError(f"there is no run at {given}")
        return None
    require_text(path)
    parent = read_tombstone(path, run.config) if (path / TOMBSTONE).exists() else load_run(path)
    if parent.digest != recorded["digest"]:
        if recorded["digest"] in {event["before"] for event in parent.ledger.of_kind("pruned")}:
            raise EvidenceError(
                f"{path} was pruned after {run.path} was made of it, and has another digest since then",
                f"{printable(run.path.name)} can be neither verified nor pruned any more. Make it again of the pruned "
                "run.",
            )
        raise EvidenceError(
            f"{path} is not the parent of {run.path}: its digest is {parent.digest[:16]}, "
            f"not {recorded['digest'][:16]}",
            "Give the right folder with --parent.",
        )
    return parent


def run_or_remains(path: Path | str) -> Run | Tombstone:
    """The run in a folder, or the tombstone that a prune left of it: findings that lie beside it are of either.

    Raises:
        EvidenceError: as for :func:`fuaudit.runs.run.load_run`, or the tombstone is none.
    """
    folder = named(Path(path))
    require_text(folder)
    gone = (folder / TOMBSTONE).is_file() and not (folder / MANIFEST).exists()
    return read_tombstone(folder) if gone else load_run(folder)


def lineage(run: Run | Tombstone | None) -> tuple[Run | Tombstone, ...]:
    """A run and its ancestors beside it, youngest first, as far as they are there; of none nothing."""
    found: list[Run | Tombstone] = []
    while run is not None:
        found.append(run)
        run = parent_of(run)
    return tuple(found)


def repeated(run: Run, chain: Sequence[Run | Tombstone], seeds: Seeds | Noted | None = None) -> Plan:
    """The plan of a run found position by position from its seeds alone; see :func:`fuaudit.plans.reference.resampled`.

    Args:
        chain: the run and all its ancestors, youngest first: they tell when requests came.
        seeds: to draw from, by default those of the run.

    Raises:
        EvidenceError: an ancestor is missing, or a seed that is needed was destroyed.
    """
    if len(chain) != len(run.requests) + 1:
        raise EvidenceError(f"not all {len(run.requests)} ancestors of {run.path} are at hand")
    (first,) = run.plan.streams[Stream.INITIAL]
    sources = [replace(source, seeds=seeds or source.seeds) for source in run.sources]
    rounds = run.plan.law.rounds
    moments = [moment(parent, rounds) for parent in chain[:0:-1]]
    return resampled(run.plan.law, run.original, sources, run.requests, moments, first.source)
