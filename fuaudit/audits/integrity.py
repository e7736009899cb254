"""Level 1: digests, chain, schema, parent. Anything wrong rejects the evidence before an audit runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from fuaudit import registry
from fuaudit.audits.gone import told_of_gone, told_of_rounds
from fuaudit.draws import START, Position
from fuaudit.formats.forms import canonical_json
from fuaudit.runs.layout import RECEIVED, RUN, is_withheld, of_round
from fuaudit.runs.ledger import PLATFORM
from fuaudit.runs.platforms import platforms_kept, platforms_of
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.verification.model_in_use import not_compared

NO_PARENT = "The parent of the run is not at hand: give its folder with --parent."
VIEW = (
    "The run is a sealed view: every byte that the server may be given is accounted for, and opens the commitment of "
    "the ledger. {} of the manifest are not in it: nobody looked at their contents. The operator has them."
)
WITHHELD = (
    "Files that the server may not be given are in the whole run, and have the digests that the manifest tells: none "
    "of them is in a sealed view."
)
SHOWS_NOT = "Digests do not show who wrote the files, nor that they were not written anew as a whole."


@dataclass(frozen=True)
class Integrity:
    """Reports what opening the run has checked, and compares each run of the lineage with what it says of its parent.

    A run that fails while it is opened is rejected, so there are no findings of it at all.
    """

    evidence: ClassVar[frozenset[str]] = frozenset({"files"})
    uses: ClassVar[frozenset[str]] = frozenset({"parent", "data", "model"})
    recomputes: ClassVar[str] = "the digest of every file, and the chain of the ledger"
    knows_received: ClassVar[bool] = True
    knows_sealed: ClassVar[bool] = True

    def examine(self, case: Case) -> Finding:
        """FAIL on a contradiction or another model in use; INCONCLUSIVE without the parent; PASS otherwise."""
        run, parent = case.run, case.parent
        if wrong := tuple(contradictions(case)):
            shows = "What a run says of its parent is not what the parent says."
            return Finding("integrity", Subject.RUN, Verdict.FAIL, shows, SHOWS_NOT, details=wrong)
        details = [
            f"{_looked_at(run)} files match the manifest {run.digest}",
            f"{len(run.ledger.events)} events of the ledger follow from each other; head {run.ledger.head}",
        ]
        if isinstance(parent, Tombstone):
            details.append(f"the parent {parent.digest} was pruned; its tombstone is consistent with the child")
        elif parent is not None:
            details.append(f"the parent {parent.digest} matches its own manifest")
        verdict, shows = Verdict.PASS, "Every byte of the run is accounted for."
        if run.sealed:
            lacking = sorted(filter(is_withheld, run.files))
            shows = VIEW.format(counted(len(lacking), "file"))
            details.append(f"not looked at, for the server may not be given them: {', '.join(lacking)}")
        elif run.redacted:
            shows = "The run is redacted: every byte but those of the clients' own files is accounted for."
        if run.is_child and parent is None:
            verdict, shows = Verdict.INCONCLUSIVE, NO_PARENT
        served = case.in_use
        if served is not None and served[0] is not Verdict.PASS:
            verdict, shows = served
        elif served is not None:
            details.append(served[1])
        trusted = *not_compared(case.known.model, run), *_as_told((run, *case.evidence.ancestors))
        trusted += (WITHHELD, *_told_in_view(run)) if run.sealed else ()
        return Finding(
            "integrity",
            Subject.RUN,
            verdict,
            shows,
            SHOWS_NOT,
            _figures(run),
            assumptions=trusted,
            details=tuple(details),
        )


def _looked_at(run: Run) -> int:
    """How many files of its manifest are at hand, or were when it was redacted."""
    return sum(not (run.sealed and is_withheld(name)) for name in run.files)


def _figures(run: Run) -> tuple[Figure, ...]:
    return (
        Figure(
            "files",
            "Files",
            _looked_at(run),
            "counted; the SHA-256 of each was computed anew and compared with the manifest",
        ),
        Figure(
            "events",
            "Events in the ledger",
            len(run.ledger.events),
            "counted; the hash of each covers the one before",
        ),
        Figure("digest", "Digest of the run", run.digest, "SHA-256 over the list of its files and their digests"),
    )


def _told_in_view(run: Run) -> Iterator[str]:
    """What is as told in a sealed view of a child, and in a whole run follows from what lies beside it."""
    if not run.is_child:
        return
    size = len(canonical_json([run.info["unlearner"], run.info["doubts"]]))
    yield (
        f"What {RUN} of a sealed view says of its method is as told here: {counted(size, 'byte')}, which provenance "
        "compares."
    )
    if number := sum(len(request.samples) for request in run.requests):
        yield f"It is as told which samples requests name: {counted(number, 'number')}, which nothing in a view has."


def _as_told(chain: Sequence[Run | Tombstone]) -> Iterator[str]:
    """What nobody can check: what ledgers say of platforms, names of parents' folders, where plugins came from."""
    events = [event for run in chain for event in run.ledger.of_kind(PLATFORM)]
    words = {json.dumps([e["versions"], e["plugins"], e["canary"]], sort_keys=True) for e in events}
    room = sum(map(len, words)) + sum(len(str(run.info["parent"]["name"]).encode()) for run in chain if run.is_child)
    parents = ", and the names of parents," * chain[0].is_child
    yield (
        f"What ledgers say of {counted(len(words), 'platform')}{parents} is as told: {counted(room, 'byte')}, from "
        "which nothing here was computed."
    )
    yield from filter(None, [told_of_gone(chain), told_of_rounds(chain)])
    run = chain[0]
    others = sorted({row["distribution"] for row in run.info["plugins"] if row["distribution"] != _of_here(row)})
    if others:
        yield f"Plugins are of other distributions here than the run names: {', '.join(others)}."


def _of_here(row: dict[str, str]) -> str:
    """The distribution that a plugin is of where the audit runs."""
    return registry.find(row["kind"], row["use"]).distribution


def contradictions(case: Case) -> Iterator[str]:
    """Where a run or a tombstone names another parent, or keeps rounds that it cannot keep."""
    lineage = pairwise((case.run, *case.evidence.ancestors))
    for (child, parent), asked in zip(lineage, reversed(case.run.requests), strict=False):
        name = child.path.name
        (request,) = child.ledger.of_kind("request")
        if request["parent"] != child.info["parent"]["digest"]:
            yield f"the ledger of {name} names another parent than its run.json"
        if (request["clients"], request["samples"]) != (list(asked.clients), list(asked.samples)):
            yield f"the ledger of {name} names another request than the plan of {case.run.path.name}"
        if child.ledger.events[0]["time"] < parent.ledger.time:
            yield f"{name} began, by its ledger, before {parent.path.name} was sealed"
        if child.by_editor:
            continue
        yield from _other_records(child, parent)
        if "edited_by" in parent.info and not _keeps_no_draw(child):
            yield f"{name} keeps draws of {parent.path.name}, which {parent.info['edited_by']!r} edited"
        (unlearning,) = child.ledger.of_kind("unlearning")
        if unlearning["kept_rounds"] != (kept := kept_rounds(case.run, child, parent)):
            told_kept = counted(unlearning["kept_rounds"], "round")
            yield f"the ledger of {name} keeps {told_kept}, its plan {kept} that are stored"
        elif tuple(p for p in platforms_of(child.ledger) if p.since < kept) != platforms_kept(parent.ledger, kept):
            yield f"the ledger of {name} names other platforms for the rounds that it keeps than {parent.path.name}"


def _other_records(child: Run | Tombstone, parent: Run | Tombstone) -> Iterator[str]:
    """Rounds that a child keeps of its parent, of which the two record other messages."""
    kept = range(1, min(child.own_rounds.start, parent.rounds_executed + 1))
    for number in sorted({*child.received_rounds, *parent.received_rounds}):
        name = of_round(RECEIVED, number)
        if number in kept and child.files.get(name) != parent.files.get(name):
            yield f"{child.path.name} keeps round {number} with other messages than {parent.path.name}"


def _keeps_no_draw(child: Run | Tombstone) -> bool:
    """Whether a child keeps no draw of its parent's rounds; of what was pruned its first change alone tells."""
    change = Position(*child.info["first_change"])
    return (child.plan.redrawn_from(change) if isinstance(child, Run) and not child.sealed else change) == START


def kept_rounds(run: Run, child: Run | Tombstone, parent: Run | Tombstone) -> int:
    """The last round that a child need not execute: stored, before its first change, and executed by its parent.

    ``run`` is of the same lineage, and so of the same config.
    """
    last: int = run.law.rounds
    before = min(max(int(child.info["first_change"][0]) - 1, 0), int(parent.info["rounds_executed"]))
    return before if before == last else before - before % run.config.run.checkpoint_every
