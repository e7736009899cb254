"""Other copies: where else the contribution of erased data may lie. They are named, not judged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path

from fuaudit.draws import END
from fuaudit.errors import EvidenceError, FuauditError
from fuaudit.plans import Request
from fuaudit.runs.drawn import first_drawn
from fuaudit.runs.layout import (
    CONFIG,
    FILES,
    KEYS,
    LEDGER,
    MODEL,
    TRANSCRIPT_FOLDER,
    Held,
    file_of,
    is_clients_own,
    is_withheld,
    round_of,
    stays,
)
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.neighbours import neighbours
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted, printable
from fuaudit.training.setup import depended_on
from fuaudit.verification.case import Case
from fuaudit.verification.erased_rows import of_nobody_retained
from fuaudit.verification.finding import ResidualCopy


def other_copies(case: Case) -> tuple[ResidualCopy, ...]:
    """Where the contribution of what any request of the lineage erased may still lie: named, not judged.

    These are the ancestors at hand, runs beside the run that hold seeds of its earlier populations, and the folders of
    rows that the auditor named.
    """
    run = case.run
    if not run.is_child:
        return ()
    found = []
    for back, ancestor in enumerate(case.evidence.ancestors, 1):
        later = run.requests[-back:]
        found += [*_telling(ancestor, later), *_messages(ancestor, later)]
        if isinstance(ancestor, Tombstone):
            found.append(_buried(ancestor))
        else:
            held = _holding(ancestor, run.requests, later)
            found += [ResidualCopy(f"{ancestor.path.name}/{name}", why) for name, why in held]
    oldest = case.evidence.ancestors[-1] if case.evidence.ancestors else run
    if oldest.is_child:
        missing = oldest.info["parent"]["digest"][:16]
        where = f"the parent {missing} of {oldest.path.name}"
        found.append(ResidualCopy(where, "is not at hand; it may hold models with the contribution"))
    return *found, *_beside(case), *_in_the_data(case)


def _telling(ancestor: Run | Tombstone, later: tuple[Request, ...]) -> list[ResidualCopy]:
    """The ledger of an ancestor where stages told of rounds before later requests; a prune leaves it."""
    told = [event["told"] for event in ancestor.ledger.of_kind("round") if "told" in event]
    if not told:
        return []
    erased = {client for request in later for client in request.clients}
    named = {client for events in told for one in events for client in (one.get("client"), *one.get("clients", ()))}
    also = ", also of erased clients" if named & erased else ""
    why = f"holds what stages told of {counted(len(told), 'round')}{also}"
    return [ResidualCopy(f"{ancestor.path.name}/{LEDGER}", why)]


def _messages(ancestor: Run | Tombstone, later: tuple[Request, ...]) -> list[ResidualCopy]:
    """The transcript of an ancestor, where messages of its sums are there; a prune removes them."""
    if isinstance(ancestor, Tombstone) or ancestor.pruned or suite_of(ancestor.ledger) is None:
        return []
    chain, erased = ancestor.chain, {client for request in later for client in request.clients}
    also = ", also of erased clients" if erased & {entry.sender for entry in chain.entries} else ""
    why = f"holds messages of secure sums of {counted(len(chain.rounds), 'round')}{also}"
    return [ResidualCopy(f"{ancestor.path.name}/{TRANSCRIPT_FOLDER}", why)] if chain.rounds else []


def _buried(stone: Tombstone) -> ResidualCopy:
    """What is left of a pruned ancestor; a prune that was killed may have left more than a tombstone."""
    rest = sorted(printable(item.name) for item in stone.path.iterdir() if not stays(item.name))
    if rest:
        why = f"was pruned, but {', '.join(rest[:5])} still lie there; call fuaudit prune again"
        return ResidualCopy(stone.path.name, why)
    return ResidualCopy(stone.path.name, "was pruned; only run.json and its ledger are left", holds=False)


def _holding(ancestor: Run, asked: tuple[Request, ...], later: tuple[Request, ...]) -> list[tuple[str, str]]:
    """Files of an ancestor that hold what was to be forgotten, and why; ``later``: the requests that came after it.

    An inexact method may have left in the ancestor what it was itself asked to forget.
    """
    rounds = ancestor.plan.law.rounds
    drawn = min((at for request in asked if (at := first_drawn(ancestor, request))), default=END).round
    known = depended_on(ancestor.config, reduce(or_, later, Request()))

    def holding(round_number: int) -> str:
        """How a model came to hold it; empty where it does not."""
        if round_number >= drawn:
            return "trained with the erased data"
        if ancestor.by_editor:
            return "edited by a method that may have read the erased data"
        if any(number <= round_number for number in ancestor.received_rounds):
            return "made of messages, which can hold the erased data"
        return f"made in rounds that depend on {known}" if known and round_number else ""

    found = list[tuple[str, str]]()
    for name, held in _held(ancestor):
        number = round_of(name)
        if not held.by_model:
            found.append((name, held.undrawn if held.undrawn and drawn > rounds else held.what))
        elif why := holding(rounds if number is None else number):
            after = "" if number is None else f" after round {number}"
            found.append((name, f"{held.what}{after}, {why}"))
    return found


def _held(ancestor: Run) -> Iterator[tuple[str, Held]]:
    """The files of an ancestor that can hold what was erased since, in the order of the table of files."""
    lacks = is_withheld if ancestor.sealed else is_clients_own if ancestor.redacted else lambda name: False
    there = sorted(name for name in ancestor.files if not lacks(name))
    for file in FILES.values():
        if file.held:
            yield from ((name, file.held) for name in there if file_of(name) is file)


def _beside(case: Case) -> list[ResidualCopy]:
    """Runs beside this one, of no part in its lineage, that hold seeds of its earlier populations, or models."""
    passed = {ancestor.path.resolve() for ancestor in case.evidence.ancestors}
    try:
        beside = neighbours(case.run, passed)
    except EvidenceError as error:  # beside it lies another run under the name of an ancestor
        return [ResidualCopy("runs beside this one", f"could not be looked through: {printable(error)}")]
    why = "gives draws over an earlier population back; its models may hold the contribution"
    closed = "cannot be read, and may give such draws back"
    names = {path: _name(path, case.run) for path in (*beside.relatives, *beside.unread)}
    models = [(path, _of_models(case.run, path)) for path in beside.relatives if path not in beside.holding]
    return [
        # strangers give these names, which need be no text
        *(ResidualCopy(f"{names[path]}/{KEYS}", why) for path in beside.holding),
        *(ResidualCopy(f"{names[path]}/{MODEL}", held) for path, held in models if held),
        *(ResidualCopy(names[path] + _unread(path), closed) for path in beside.unread),
    ]


def _name(folder: Path, run: Run) -> str:
    """What a folder beside a run is called; one that lies beside a link to the run, by its path."""
    return printable(str(folder) if folder.parent != run.path.resolve().parent else folder.name)


def _unread(folder: Path) -> str:
    """The keys in a folder that cannot be read; nothing where none are seen."""
    return f"/{KEYS}" if os.path.lexists(folder / KEYS) else ""


def _of_models(run: Run, folder: Path) -> str:
    """How models of a run of the same training hold what was to be forgotten; empty where they do not.

    The seeds that it holds do not tell: two requests draw different numbers from one seed.
    """
    asked = reduce(or_, run.requests, Request())
    try:
        other = load_run(folder)
        if _training(other) != _training(run):
            return "of another training from the same secret; it may hold the contribution"
        left = other.plan.retained
        drawn = first_drawn(other, asked)
        # on what it has forgotten as well it does not depend, where none of its draws has it
        there = Request.of(left.samples.keys() & {*asked.clients}, left.owner.keys() & {*asked.samples})
        known = depended_on(other.config, asked)
    except FuauditError:
        return "cannot be opened as a run; its models may hold the contribution"
    if drawn:
        return "of another run of the same training, trained with the erased data"
    if other.received_rounds:
        return "of another run of the same training, made of messages, which can hold the erased data"
    if there == Request():
        return ""
    if other.by_editor:
        return "of another run of the same training, edited by a method that may have read the erased data"
    return f"of another run of the same training, made in rounds that depend on {known}" if known else ""


def _training(run: Run) -> tuple[object, ...]:
    """What tells trainings from one secret apart; the root of the seeds would take as long as a stranger likes."""
    return run.files[CONFIG]["sha256"], run.contents.root, run.beacon


def _in_the_data(case: Case) -> list[ResidualCopy]:
    """The folders of rows that the auditor named, where they hold erased rows, or rows and names that may be of such.

    They are no part of a run: no prune touches them.
    """
    data, opened = case.dataset, case.evidence.at_hand if case.dataset is not None else None
    if data is None or opened is None or not case.known.folder:
        return []
    kept, left = case.run.plan.retained.owner, of_nobody_retained(case.run, opened, data)
    whose = set() if data.owners is None else {int(data.owners[row]) for row in kept if row < data.size}
    known = {*(case.run.opening.names or {}).values()}
    named = [(name, k in whose) for k, name in enumerate(data.owner_names) if name and data.owners is not None]
    gone, strange = sum(not there for _, there in named), sum(there and name not in known for name, there in named)
    held = [f"{counted(len(opened.places), 'row')} that a request erased"] if opened.places else []
    held += [f"{counted(len(opened.moved), 'copy', 'copies')} of erased rows under other ids"] if opened.moved else []
    held += [f"{counted(len(left), 'row')} of no retained client, which may be erased ones"] if left else []
    held += [f"{counted(gone, 'name')} of whom no row is retained"] if gone else []
    held += [f"{counted(strange, 'name')} of no client, which nothing compares"] if strange else []
    where = "the folders of --data and --erased" if case.known.erased else "the folder of --data"
    return [ResidualCopy(where, f"holds {', '.join(held)}")] if held else []
