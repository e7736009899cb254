"""Prune: remove what the store itself remembers of erased data, and leave a tombstone with digests of every ancestor.

The run is written anew with what ``runs/pruned_contents.py`` keeps, and takes its own place (``swap.py``). Then every
ancestor becomes a tombstone (``runs/tombstone.py``). Folders beside them are left alone (``runs/neighbours.py``).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from fuaudit.commitments.keys import Keys
from fuaudit.errors import EvidenceError, FuauditError, RedactedError, UsageError
from fuaudit.formats.files import TEMPORARY, homes, named, read_bytes, storage, sync_folder, write_bytes
from fuaudit.formats.forms import pretty_json
from fuaudit.plans.stacked import LazySchedule
from fuaudit.runs.ancestors import lineage, parent_of
from fuaudit.runs.drawn import first_involved
from fuaudit.runs.encoding import population_tensors, salted
from fuaudit.runs.layout import (
    FORMER,
    KEYS,
    LEDGER,
    MANIFEST,
    PARTITION,
    RECORDED,
    TOMBSTONE,
    mode_of,
    replaced,
    stays,
)
from fuaudit.runs.ledger import read_ledger
from fuaudit.runs.neighbours import children
from fuaudit.runs.pruned_contents import (
    dropped_ids,
    kept_leaves,
    kept_records,
    retained_opening,
    retained_secrets,
)
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import command
from fuaudit.workflow.swap import alone, leftovers, put_in_place, recover
from fuaudit.workflow.writer import RunWriter, copy_transcript, recorded_bytes


def prune(given: Run | Path | str, allow_orphans: bool = False) -> tuple[Run, list[Path]]:
    """Prune a child run in place, and all its ancestors beside it. Returns the pruned run and the new tombstones.

    Killed at any instant, it can be called again and finishes; on a pruned run it does nothing more.

    Args:
        allow_orphans: also where a run beside it was made of it, which then can be neither verified nor pruned.

    Raises:
        UsageError: the run is no child, was edited, or still holds erased data in a draw; without ``allow_orphans``, it
            has a child beside it; or another prune is at work in the folder that holds it.
        EvidenceError: an ancestor is missing or does not check out, or the run is redacted; nothing was changed.
    """
    # what lies beside a link to the run is looked at too, so the links are kept
    path, lies_in = (given.path, given.homes) if isinstance(given, Run) else (named(Path(given)), homes(Path(given)))
    with alone(path):
        recover(path)
        # opened anew: before the lock was held another prune may have changed it
        run = replace(load_run(path), homes=lies_in)
        require_forgotten(run)
        _require_whole(run)
        if not run.pruned and not allow_orphans:
            _require_childless(run)
        pruned, tombstones = _pruned(run)
        return replace(pruned, homes=lies_in), tombstones


def _require_whole(run: Run) -> None:
    """Raises RedactedError where a prune would have to write what is not there."""
    if run.redacted and not run.pruned:
        raise RedactedError(
            f"{run.path} is redacted: a prune writes the clients' own files anew", "Prune the whole run."
        )


def _require_childless(run: Run) -> None:
    """Raises UsageError where a run beside it has this one as its parent."""
    if of_it := children(run):
        first = first_to_prune(run)
        then = f"of {run.path.name} a tombstone is left then"
        raise UsageError(
            f"{of_it[0]} was made of {run.path}, and could be neither verified nor pruned any more",
            (f"Prune it first, {then}: {command('prune', first)}. Or say " if first else "Say ")
            + "--allow-orphans (in Python allow_orphans=True) where that is meant.",
        )


def first_to_prune(run: Run) -> Path | None:
    """The one run beside it that was made of this one, where it can be pruned; then this one is pruned with it.

    None where there are several: a prune of each would take the parent of the others.
    """
    of_it = children(run)
    if len(of_it) != 1:
        return None
    try:
        require_prunable(load_run(of_it[0]))
    except FuauditError:
        return None
    return of_it[0]


def _pruned(run: Run) -> tuple[Run, list[Path]]:
    """What :func:`prune` returns. The caller holds the lock."""
    ancestors: list[Run] = []
    above = _parent_to_prune(run)
    while isinstance(above, Run):
        ancestors.append(above)
        above = _parent_to_prune(above)
    if not ancestors and above is None and not run.pruned:
        raise _no_parent(run)
    pruned = run if run.pruned else _rewrite(run)
    # the oldest first: until its child is buried too, the chain leads here again after a kill
    if above is not None:
        _bury(above)
    for ancestor in reversed(ancestors):
        _bury(Tombstone(ancestor.path, ancestor.digest, ancestor.files, ancestor.info))
    return pruned, [ancestor.path for ancestor in ancestors]


def _bury(stone: Tombstone) -> None:
    """Replace a run by its tombstone. Called again after a kill, it finishes."""
    content = pretty_json({"digest": stone.digest, "files": stone.files, "info": stone.info})
    path = stone.path / TOMBSTONE
    if not path.exists() or read_bytes(path) != content:
        write_bytes(path, content)
    with storage(stone.path):
        (stone.path / MANIFEST).unlink(missing_ok=True)
        for item in stone.path.iterdir():
            if not stays(item.name):
                shutil.rmtree(item) if item.is_dir() else item.unlink()
        sync_folder(stone.path)


def require_prunable(run: Run) -> None:
    """Raises what :func:`prune` raises where it would refuse a run, whatever was made of it. Nothing is changed."""
    require_forgotten(run)
    _require_whole(run)
    if len(lineage(run)) < 2 and not run.pruned:
        raise _no_parent(run)


def _no_parent(run: Run) -> EvidenceError:
    return EvidenceError(f"the parent of {run.path} is not at hand", "Prune where the parent lies beside the run.")


def require_forgotten(run: Run) -> None:
    """Raises UsageError for a run that is no child, or whose draws still hold what was to be forgotten."""
    if not run.is_child:
        raise UsageError(f"{run.path} is a training run: there is no request after which to prune")
    if "edited_by" in run.info:
        raise UsageError(
            f"the model of {run.path} was edited: its draws still hold the erased data",
            "Unlearn its parent with a method that rewrites plans (such as fats or retrain), and prune that child.",
        )
    # of earlier requests too: what a method left in the parent may be in kept rounds
    if any(first_involved(run, request) is not None for request in run.requests):
        raise UsageError(
            f"{run.path} still draws what it was asked to forget", "Unlearn with a method that works first."
        )


def _parent_to_prune(run: Run) -> Run | Tombstone | None:
    """The parent beside a run, after removing what a killed prune left half-written in it."""
    if run.is_child:
        torn = run.path.resolve().parent / Path(run.info["parent"]["name"]).name / (TOMBSTONE + TEMPORARY)
        with storage(torn):
            torn.unlink(missing_ok=True)
    return parent_of(run)


def _rewrite(run: Run) -> Run:
    """The run without seeds and ids of earlier populations: written beside it, then put in its place.

    Raises:
        UsageError: the law of the run draws what cannot be kept apart.
        EvidenceError: what was written is not the whole run, because something else wrote there too; the run is as it
            was.
    """
    staging, _ = leftovers(run.path)
    seeds = run.keys.seeds.keeping(kept_leaves(run, lineage(run)))
    copied = {name for name in run.files if not replaced(name)}
    for name in copied:
        write_bytes(staging / name, run.read(name), mode=mode_of(name))
    write_bytes(staging / LEDGER, read_bytes(run.path / LEDGER))
    copy_transcript(run.path, staging, bodies=False)  # the chain is over digests, so it can be checked without them
    write_bytes(staging / FORMER, read_bytes(run.path / MANIFEST))
    writer = RunWriter(staging, read_ledger(staging))
    salt = run.participation_salt
    if recorded := recorded_bytes(kept_records(run.plan), salt):
        write_bytes(staging / RECORDED, recorded)
    writer.write(PARTITION, salted(population_tensors(run.original, dropped_ids(run)), salt))
    writer.open(retained_opening(run), retained_secrets(run))
    writer.write(KEYS, Keys(seeds, None, run.keys.partition_digest).as_table())
    writer.close("pruned", before=run.digest)
    staged = load_run(staging)
    whole = staged.files.keys() - {RECORDED} == (run.files.keys() | {FORMER}) - {RECORDED}
    if not whole or any(staged.files[name] != run.files[name] for name in copied):
        raise EvidenceError(f"{staging} is not the whole run: something else wrote there; {run.path} is as it was")
    try:
        _require_drawn(staged, run)
    except UsageError:
        with storage(staging):
            shutil.rmtree(staging)
        raise
    put_in_place(run.path)
    return replace(staged, path=run.path)


def _require_drawn(pruned: Run, run: Run) -> None:
    """Raises UsageError where a pruned run does not have the draws that it had."""
    rounds = range(1, run.plan.law.rounds + 1)
    try:
        found, before = LazySchedule([pruned.plan]), LazySchedule([run.plan])
        pairs = ((found.round(number), before.round(number)) for number in rounds)
        same = all(a.same(b) for a, b in pairs)
        same = same and bool((pruned.plan.initial_uniform(1) == run.plan.initial_uniform(1)).all())
    except EvidenceError:
        same = False
    if not same:
        raise UsageError(
            f"{run.path} cannot be pruned: draws that it keeps need seeds of erased clients; nothing was changed",
            "A law with draws that last all rounds has to say so (lasting), and a client's must not bear on others.",
        )
