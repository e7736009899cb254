"""What a prune keeps of a run's own files, and what it destroys.

A child keeps draws of its parent. The seeds of positions that it does not keep give draws over the old population back,
and so does the key that dealt the partition. A prune destroys them.

It keeps the seeds that the plan is drawn from. It keeps those of the plan's cuts as well: there a draw names for the
first time what was to be forgotten. So it can still be checked that the kept draws follow from the commitment, and that
every cut is the first involvement. Ids of erased clients' rows leave the partition, and their names and salts the
opening; with them go the secrets that their stages drew with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fuaudit.commitments.contents import Opening
from fuaudit.commitments.secrets import ClientSecrets
from fuaudit.draws import END, Address, Noted, Position, Recorded, Stream
from fuaudit.draws.address import STREAM_OF
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Plan
from fuaudit.runs.ancestors import repeated
from fuaudit.runs.encoding import recorded_tensors
from fuaudit.runs.layout import FORMER, RECORDED, replaced
from fuaudit.runs.manifest import digest_of_files, entry_of, limit_of
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone

_NO_DRAWS = tensor_bytes(recorded_tensors({}))
"""Recorded draws of a rewriter that recorded none."""


def kept_leaves(run: Run, chain: Sequence[Run | Tombstone]) -> list[range]:
    """The seeds that a prune of a run keeps; the same set before the prune and after it.

    - Those of all generations to come.
    - Those that the plan draws from: of the initial draw, of retained clients' draws that last all rounds, and of every
      position, in the generation from which the plan draws there.
    - Those of cuts: all that :func:`repeated` asks for. They are kept where it finds the plan, and asks for no draw of
      an erased client that lasts all rounds.
    """
    plan, leaves = run.plan, run.leaves
    (initial,), begun = plan.streams[Stream.INITIAL], plan.streams[Stream.COHORTS][0].source
    later = range(leaves.generation(len(run.requests)).stop, run.keys.seeds.size)
    single = {leaves.initial(initial.source)} | {leaves.client(begun, client) for client in plan.retained.clients}
    single.update(_in_force(plan, run))
    asked = set[int]()
    try:
        same = repeated(run, chain, Noted(run.keys.seeds, asked)).streams == plan.streams
    except EvidenceError:
        same = False
    lasting = {leaves.client(g, client) for g in range(len(run.requests) + 1) for client in run.original.clients}
    if same and asked & lasting <= single:
        single |= asked
    return [later, *(range(number, number + 1) for number in single)]


def _in_force(plan: Plan, run: Run) -> Iterator[int]:
    """The leaves of all positions, each in the generation from which the plan draws there."""
    for stream, steps in ((Stream.COHORTS, range(1)), (Stream.BATCHES, range(1, plan.law.steps + 1))):
        segments = plan.streams[stream]
        ends = [*(segment.start for segment in segments[1:]), END]
        for segment, end in zip(segments, ends, strict=True):
            if isinstance(plan.sources[segment.source], Recorded):
                continue
            for round_number in range(max(segment.start.round, 1), min(end.round, plan.law.rounds) + 1):
                places = (Position(round_number, step) for step in steps)
                yield from (run.leaves.position(segment.source, at) for at in places if segment.start <= at < end)


def kept_records(plan: Plan) -> Plan:
    """The plan with only those recorded draws that it still has."""

    def kept(number: int, source: Recorded) -> Recorded:
        def here(at: Address) -> bool:
            return plan.segment(STREAM_OF[at.purpose], at.position).source == number

        return Recorded({at: answer for at, answer in source.answers.items() if here(at)})

    sources = (kept(n, s) if isinstance(s, Recorded) else s for n, s in enumerate(plan.sources))
    return replace(plan, sources=tuple(sources))


def retained_opening(run: Run) -> Opening:
    """Names and salts of what is retained."""
    kept = run.plan.retained
    return run.opening.without(run.contents, kept, {client: run.numbered(client) for client in kept.clients})


def retained_secrets(run: Run) -> ClientSecrets | None:
    """The secrets of retained clients; None where clients have none."""
    return run.secrets and run.secrets.among(run.plan.retained.samples)


def dropped_ids(run: Run) -> frozenset[int]:
    """The ids that a prune takes out of the partition: those of erased clients' rows that no request names."""
    named = {sample for request in run.requests for sample in request.samples}
    erased = run.original.samples.keys() - run.plan.retained.samples
    return frozenset(s for client in erased for s in run.original.samples[client] if s not in named)


def unspoiled(run: Run, chain: Sequence[Run | Tombstone]) -> bool:
    """Whether a pruned run holds nothing that a prune destroys: seeds, the key of the partition, ids, salts, names."""
    seeds = run.keys.seeds
    return (
        seeds == seeds.keeping(kept_leaves(run, chain))
        and run.keys.partition is None
        and dropped_ids(run) == run.stand_ins
        and run.opens_just(run.opening)
        and run.secrets == retained_secrets(run)
    )


def former_of(run: Run) -> dict[str, Any]:
    """The files of a pruned run as they were before the prune: path -> digest and size.

    Raises:
        EvidenceError: the manifest that it keeps of then is none, or is not that of a run that became this one.
    """
    table, last = run.document(FORMER), run.ledger.events[-1]
    files: dict[str, Any] = table["files"]
    kept = {name: entry for name, entry in run.files.items() if not replaced(name) and name != FORMER}
    if table["digest"] != digest_of_files(files) or table["digest"] != last["before"]:
        wrong = "it is not the manifest that the ledger names"
    elif table["ledger"] != last["previous"]:
        wrong = "it is not the manifest of the seal before the prune"
    elif {name: entry for name, entry in files.items() if not replaced(name)} != kept:
        wrong = "it names other files than are here"
    elif files.keys() - {RECORDED} != run.files.keys() - {RECORDED, FORMER}:
        wrong = "it names files that such a run does not have, or lacks some"
    elif RECORDED in files and RECORDED not in run.files and files[RECORDED] != entry_of(_NO_DRAWS):
        wrong = f"it names draws in {RECORDED}, of which a prune leaves the file"
    elif any(entry["size"] > limit_of(name) for name, entry in files.items()):
        wrong = "it names a file that is larger than such files are"
    else:
        return files
    raise EvidenceError(f"{run.path / FORMER} is not what the run was before it was pruned: {wrong}")
