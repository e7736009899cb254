"""Prune: remove what the store itself remembers of erased data, and leave a tombstone with digests.

A child keeps draws of its parent. The seeds of positions that it does not keep give draws over the old population back,
and so does the key that dealt the partition. Prune destroys them: of the tree of seeds it keeps those that the plan is
drawn from, and those of its cuts, where a draw names what was to be forgotten for the first time. So the draws that are
kept still follow from the commitment, and so does that every cut is the first involvement. It takes the ids of erased
clients' rows out of the partition, and replaces every ancestor by a tombstone: digests of its files, and no key.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fuaudit.commitments.contents import Opening
from fuaudit.commitments.keys import Keys
from fuaudit.config import Config
from fuaudit.draws import END, Address, Noted, Position, Recorded, Seeds, Stream
from fuaudit.draws.address import STREAM_OF
from fuaudit.draws.seeds import Part
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import (
    TEMPORARY,
    locked,
    named,
    read_bytes,
    read_json,
    sha256,
    storage,
    sync_folder,
    write_bytes,
)
from fuaudit.formats.forms import pretty_json, tensor_bytes
from fuaudit.plans import Plan
from fuaudit.plans.reference import resampled
from fuaudit.plans.stacked import LazySchedule
from fuaudit.runs.encoding import population_tensors, recorded_tensors
from fuaudit.runs.layout import (
    CHECKPOINT,
    CLIENTS,
    CONFIG,
    FILES,
    FORMER,
    KEYS,
    LEDGER,
    MANIFEST,
    PARTITION,
    RECORDED,
    RUN,
    TOMBSTONE,
    When,
    checkpoint_name,
    file_of,
    form_of,
    names_in,
    rounds_in,
    stored_rounds,
)
from fuaudit.runs.ledger import read_ledger, wrong_course
from fuaudit.runs.manifest import digest_of_files, entry_of, limit_of
from fuaudit.runs.run import Run, load_run, named_plugins
from fuaudit.runs.writer import RunWriter, recorded_bytes

REPLACED = frozenset({LEDGER, MANIFEST, RECORDED, CLIENTS, PARTITION, KEYS})
"""What a prune writes anew, of the files of a run."""


_NO_DRAWS = tensor_bytes(recorded_tensors({}))
"""Recorded draws of a rewriter that recorded none."""


@dataclass(frozen=True)
class Tombstone:
    """What a prune left of a run: its digest, those of its files, its ``run.json``; no key."""

    path: Path
    digest: str
    files: dict[str, Any]
    info: dict[str, Any]
    config: Config | None = field(default=None, repr=False, compare=False)
    """That of its child, which is its own."""

    @property
    def is_child(self) -> bool:
        """Whether unlearning wrote the run that was here."""
        return bool(self.info["kind"] == "unlearning")

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """See :attr:`fuaudit.runs.run.Run.checkpoints`."""
        return rounds_in(self.files)

    @property
    def rounds_executed(self) -> int:
        """See :attr:`fuaudit.runs.run.Run.executed`."""
        return int(self.info["rounds_executed"])


def read_tombstone(path: Path, config: Config | None = None) -> Tombstone:
    """The tombstone in a pruned run's folder, of a run with a config; EvidenceError when it is not one."""
    if strange := [name for name in names_in(path, torn=True) if file_of(name) is None]:
        raise EvidenceError(f"{path} holds what neither a run nor a tombstone has: {', '.join(strange[:5])}")
    at = path / TOMBSTONE
    stone = Tombstone(path, **form_of(TOMBSTONE).parse(read_bytes(at, limit_of(TOMBSTONE)), at), config=config)
    if not {RUN, CONFIG} <= stone.files.keys() or digest_of_files(stone.files) != stone.digest:
        raise EvidenceError(f"{at} is not a tombstone: its files do not have its digest")
    if sha256(pretty_json(stone.info)) != stone.files[RUN]["sha256"]:
        raise EvidenceError(f"{at} is not a tombstone: its copy of {RUN} is another")
    ledger = read_ledger(path)
    if ledger.events[-1].get("digest") != stone.digest or wrong_course(ledger, stone.info, stone.checkpoints):
        raise EvidenceError(f"the ledger of {path} is not that of the run that its tombstone names")
    if wrong := _wrong_files(stone, ledger.kinds[-1] == "pruned") or _wrong_info(stone):
        raise EvidenceError(f"{at} is not that of a run: {wrong}")
    return stone


def _wrong_files(stone: Tombstone, pruned: bool) -> str:
    """What a tombstone lists that such a run did not have, or lacks; empty for nothing."""
    editor = stone.is_child and stone.info["unlearner"]["kind"] == "editor"
    held = {When.ALWAYS, *[When.EDITED] * editor, *[When.PRUNED] * pruned}
    fixed = {file.name for file in FILES if file.when in held} - {MANIFEST, LEDGER, CHECKPOINT}
    others = stone.files.keys() - {checkpoint_name(round_number) for round_number in stone.checkpoints}
    if others - ({RECORDED} if stone.is_child else set()) != fixed:
        return "it lists other files than such a run has"
    if any(entry["size"] > limit_of(name) for name, entry in stone.files.items()):
        return "it lists a file that is larger than such files are"
    if stone.files[RUN]["size"] != len(pretty_json(stone.info)):
        return f"its copy of {RUN} has another size"
    every, last = stone.config.run.checkpoint_every if stone.config else 0, stone.rounds_executed
    if editor and stone.checkpoints != (last,):
        return "it lists models of other rounds than an editor stores"
    # counted before they are listed: the last round may be any number
    if every and not editor and (last // every > len(stone.files) or stone.checkpoints != stored_rounds(every, last)):
        return "it lists models of other rounds than its config stores"
    return ""


def _wrong_info(stone: Tombstone) -> str:
    """What the ``run.json`` in a tombstone says otherwise than its config; empty for nothing."""
    config, info = stone.config, stone.info
    if config is None:
        return ""
    if (info["engine"], info["device"]) != (config.run.engine, config.run.device):
        return f"it names another engine or device in {RUN} than in {CONFIG}"
    if [(row["kind"], row["use"]) for row in info["plugins"]] != named_plugins(config):
        return f"it names other plugins in {RUN} than in {CONFIG}"
    return ""


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
    parent = read_tombstone(path, run.config) if (path / TOMBSTONE).exists() else load_run(path)
    if parent.digest != recorded["digest"]:
        raise EvidenceError(
            f"{path} is not the parent of {run.path}: its digest is {parent.digest[:16]}, "
            f"not {recorded['digest'][:16]}",
            "Give the right folder with --parent.",
        )
    return parent


def lineage(run: Run) -> tuple[Run | Tombstone, ...]:
    """A run and its ancestors beside it, youngest first, as far as they are there."""
    found: list[Run | Tombstone] = [run]
    while (above := parent_of(found[-1])) is not None:
        found.append(above)
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


def kept_leaves(run: Run, chain: Sequence[Run | Tombstone]) -> list[range]:
    """The seeds that a prune of a run keeps; one set for one run, whether it was pruned or not.

    Those of all generations to come; of the initial draw, of draws that last all rounds for retained clients, and of
    every position, each in the generation from which the plan draws there; and those of cuts, where the plan is what
    :func:`repeated` finds without the draws of erased clients that last all rounds.
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


def prune(given: Run | Path | str) -> tuple[Run, list[Path]]:
    """Prune a child run in place, and all its ancestors beside it. Returns the pruned run and the new tombstones.

    Killed at any instant, it can be called again and finishes; on a pruned run it does nothing more.

    Raises:
        UsageError: the run is no child, was edited, or still holds erased data in a draw; or another prune is at work
            in the folder that holds it.
        EvidenceError: an ancestor is missing or does not check out; nothing was changed.
    """
    path = named(given.path if isinstance(given, Run) else Path(given))
    with _alone(path):
        recover(path)
        return _pruned(load_run(path))  # anew: before the lock was held another prune may have changed it


def _pruned(run: Run) -> tuple[Run, list[Path]]:
    """What :func:`prune` returns, for one that is alone."""
    if not run.is_child:
        raise UsageError(f"{run.path} is a training run: there is no request after which to prune")
    if "edited_by" in run.info:
        raise UsageError(
            f"the model of {run.path} was edited: its draws still hold the erased data",
            "Unlearn its parent with a method that rewrites plans (such as fats or retrain), and prune that child.",
        )
    if run.plan.first_involvement(run.request) is not None:
        raise UsageError(
            f"{run.path} still draws what it was asked to forget", "Unlearn with a method that works first."
        )
    ancestors: list[Run] = []
    above = _parent_to_prune(run)
    while isinstance(above, Run):
        ancestors.append(above)
        above = _parent_to_prune(above)
    if not ancestors and above is None and not run.pruned:
        raise EvidenceError(f"the parent of {run.path} is not at hand", "Prune where the parent lies beside the run.")
    pruned = run if run.pruned else _rewrite(run)
    # the oldest first: until its child is buried too, the chain leads here again after a kill
    if above is not None:
        _clear(above)
    for ancestor in reversed(ancestors):
        _clear(Tombstone(ancestor.path, ancestor.digest, ancestor.files, ancestor.info))
    return pruned, [ancestor.path for ancestor in ancestors]


def _parent_to_prune(run: Run) -> Run | Tombstone | None:
    """The parent beside a run, after removing what a killed prune left half-written in it."""
    if run.is_child:
        torn = run.path.resolve().parent / Path(run.info["parent"]["name"]).name / (TOMBSTONE + TEMPORARY)
        with storage(torn):
            torn.unlink(missing_ok=True)
    return parent_of(run)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the folder in which a run and its ancestors lie as its only prune; the run's own folder is exchanged.

    Raises:
        UsageError: another prune is at work there.
        EvidenceError: there is no such folder.
    """
    folder = path.resolve().parent
    if not folder.is_dir():
        raise EvidenceError(f"there is no run at {path}")
    with locked(folder, f"another prune is at work in {folder}"):
        yield


def leftovers(path: Path) -> tuple[Path, Path]:
    """Where a prune that is at work, or was killed, has the run that it writes, and the one that was there before."""
    home = path.resolve()
    return home.with_name(home.name + ".pruning"), home.with_name(home.name + ".before-prune")


def standing(path: Path) -> Path:
    """Where a run can be read: at its path, or where a killed prune left it. Changes nothing."""
    staging, old = leftovers(path)
    if path.exists() or not old.is_dir():
        return path
    return staging if (staging / MANIFEST).exists() else old


def recover(path: Path) -> None:
    """Finish or undo the exchange of folders of a prune that was killed; for one that is :func:`_alone`.

    Raises:
        EvidenceError: there is no run at the path after that, or it is not the one whose former self lies beside it;
            nothing was removed.
    """
    staging, old = leftovers(path)
    if (found := standing(path)) != path:
        with storage(path):
            os.rename(found, path.resolve())
            sync_folder(old.parent)
    if not staging.is_dir() and not old.is_dir():
        return
    here = load_run(path)  # what a prune left goes only where the run stands
    if old.is_dir() and not here.pruned:
        raise EvidenceError(
            f"{old} is what a killed prune left of a run, and {path} holds another one, which was never pruned",
            "Move one of the two away; a folder named .before-prune holds keys that should be destroyed.",
        )
    with storage(path):
        for rest in (staging, old):
            if rest.is_dir():
                shutil.rmtree(rest)


def other_holders(run: Run, passed_over: Collection[Path] = ()) -> tuple[list[Path], list[Path]]:
    """Folders beside a run with seeds that its prune destroys, or has destroyed: prune leaves them alone.

    Then those whose keys cannot be read, which may hold some. The run itself, ancestors that still are runs, and
    folders that are ``passed_over`` are not looked into.

    Raises:
        EvidenceError: an ancestor does not check out, or another run lies under its name.
    """
    chain, mine = lineage(run), run.keys.seeds
    found, unread = list[Path](), list[Path]()
    passed = {ancestor.path.resolve() for ancestor in chain if isinstance(ancestor, Run)}.union(passed_over)
    trees: list[tuple[Path, Seeds]] = []
    for folder in sorted(run.path.resolve().parent.iterdir()):
        path = folder / KEYS
        try:
            if folder.resolve() in passed or not folder.is_dir() or not (path.is_symlink() or path.exists()):
                continue
            tree = _tree(read_json(path))  # not as strictly as a run is opened: a holder is one in whatever form
        except (EvidenceError, OSError):  # no permission to look inside is an answer too
            unread.append(folder)
            continue
        if tree is not None and _same_tree(mine, tree):
            trees.append((folder, tree))
    if trees:
        gone = [part for part in mine.keeping(kept_leaves(run, chain)).parts if part.seed is None]
        found = [folder for folder, tree in trees if any(_overlap(part, tree) for part in gone)]
    return found, unread


def orphans(run: Run) -> list[Path]:
    """Runs beside a run whose parent its prune would bury, and which it would not prune: they can be judged less then.

    None are named where the lineage cannot be read as it is: a prune that was killed has begun to bury it.
    """
    try:
        chain = [ancestor for ancestor in lineage(run) if isinstance(ancestor, Run)]
    except EvidenceError:
        return []
    buried, passed = {ancestor.digest for ancestor in chain[1:]}, {ancestor.path.resolve() for ancestor in chain}
    return [
        folder
        for folder in sorted(run.path.resolve().parent.iterdir())
        if folder.resolve() not in passed and _parent_in(folder, buried)
    ]


def _parent_in(folder: Path, digests: Collection[str]) -> bool:
    """Whether a folder holds a run with one of these parents; not, where it cannot be read."""
    try:
        return (folder / MANIFEST).is_file() and read_json(folder / RUN)["parent"]["digest"] in digests
    except (EvidenceError, OSError, TypeError, KeyError):
        return False


def _same_tree(mine: Seeds, theirs: Seeds) -> bool:
    """Whether two trees are one. By a seed that both hold, where there is one: roots take long to compute."""
    if mine.size != theirs.size:
        return False
    both = next((part.first for part in mine.parts if part.seed is not None and theirs.holds(part.first)), None)
    return mine.root == theirs.root if both is None else mine.leaf(both) == theirs.leaf(both)


def _overlap(gone: Part, tree: Seeds) -> bool:
    """Whether a tree holds a seed inside a part."""
    return any(part.seed is not None and part.first < gone.last and gone.first < part.last for part in tree.parts)


def _tree(table: Any) -> Seeds | None:
    """The tree of seeds in a neighbour's file; None where there is none."""
    try:
        return Seeds.of_rows(table["seeds"])
    except (EvidenceError, TypeError, KeyError):
        return None


def _rewrite(run: Run) -> Run:
    """The run without seeds and ids of earlier populations: written beside it, then put in its place.

    Raises:
        UsageError: the law of the run draws what cannot be kept apart.
        EvidenceError: what was written is not the whole run, because something else wrote there too; the run is as it
            was.
    """
    home, (staging, old) = run.path.resolve(), leftovers(run.path)
    seeds = run.keys.seeds.keeping(kept_leaves(run, lineage(run)))
    copied = run.files.keys() - REPLACED
    for name in copied:
        write_bytes(staging / name, run.read(name))
    write_bytes(staging / LEDGER, read_bytes(run.path / LEDGER))
    write_bytes(staging / FORMER, read_bytes(run.path / MANIFEST))
    writer = RunWriter(staging, read_ledger(staging))
    if recorded := recorded_bytes(_kept_records(run.plan)):
        write_bytes(staging / RECORDED, recorded)
    writer.write(PARTITION, population_tensors(run.original, _unknown(run)))
    writer.write(CLIENTS, _opened(run).table())
    writer.write(KEYS, Keys(seeds, None, run.keys.partition_digest).as_table())
    writer.close("pruned", before=run.digest)
    staged = load_run(staging)
    whole = staged.files.keys() - {RECORDED} == (run.files.keys() | {FORMER}) - {RECORDED}
    if not whole or any(staged.files[name] != run.files[name] for name in copied):
        raise EvidenceError(f"{staging} is not the whole run: something else wrote there; {run.path} is as it was")
    _require_drawn(staged, run)
    with storage(run.path):
        os.rename(home, old)
        os.rename(staging, home)
        sync_folder(home.parent)
        shutil.rmtree(old)
    return replace(staged, path=run.path)


def _require_drawn(pruned: Run, run: Run) -> None:
    """Raises UsageError where a pruned run does not have the draws that it had."""
    rounds = range(1, run.plan.law.rounds + 1)
    try:
        found, before = LazySchedule([pruned.plan]), LazySchedule([run.plan])
        pairs = ((found.round(number), before.round(number)) for number in rounds)
        same = all(np.array_equal(a.batches, b.batches) and np.array_equal(a.cohorts, b.cohorts) for a, b in pairs)
        same = same and bool((pruned.plan.initial_uniform(1) == run.plan.initial_uniform(1)).all())
    except EvidenceError:
        same = False
    if not same:
        raise UsageError(
            f"{run.path} cannot be pruned: draws that it keeps need seeds of erased clients; nothing was changed",
            "A law with draws that last all rounds has to say so (lasting), and a client's must not bear on others.",
        )


def _kept_records(plan: Plan) -> Plan:
    """The plan with only those recorded draws that it still has."""

    def kept(number: int, source: Recorded) -> Recorded:
        def here(at: Address) -> bool:
            return plan.segment(STREAM_OF[at.purpose], at.position).source == number

        return Recorded({at: answer for at, answer in source.answers.items() if here(at)})

    sources = (kept(n, s) if isinstance(s, Recorded) else s for n, s in enumerate(plan.sources))
    return replace(plan, sources=tuple(sources))


def unspoiled(run: Run, chain: Sequence[Run | Tombstone]) -> bool:
    """Whether a pruned run holds nothing that a prune destroys: seeds, the key of the partition, ids, salts, names."""
    seeds = run.keys.seeds
    return (
        seeds == seeds.keeping(kept_leaves(run, chain))
        and run.keys.partition is None
        and _unknown(run) == run.stand_ins
        and run.opens_just(run.opening)
    )


def former_of(run: Run) -> dict[str, Any]:
    """The files of a pruned run as they were before the prune: path -> digest and size.

    Raises:
        EvidenceError: the manifest that it keeps of then is none, or is not that of a run that became this one.
    """
    table, last = run.document(FORMER), run.ledger.events[-1]
    files: dict[str, Any] = table["files"]
    kept = {name: entry for name, entry in run.files.items() if name not in REPLACED | {FORMER}}
    if table["digest"] != digest_of_files(files) or table["digest"] != last["before"]:
        wrong = "it is not the manifest that the ledger names"
    elif table["ledger"] != last["previous"]:
        wrong = "it is not the manifest of the seal before the prune"
    elif {name: entry for name, entry in files.items() if name not in REPLACED} != kept:
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


def _opened(run: Run) -> Opening:
    """Names and salts of what is retained."""
    kept = run.plan.retained
    return run.opening.without(run.contents, kept, {client: run.numbered(client) for client in kept.clients})


def _erased(run: Run) -> list[int]:
    """The clients that were erased, here or in an ancestor."""
    return [client for client in run.original.clients if client not in run.plan.retained.samples]


def _unknown(run: Run) -> frozenset[int]:
    """The ids that a prune takes out of the partition: those of erased clients' rows that no request names."""
    named = {sample for request in run.requests for sample in request.samples}
    return frozenset(s for client in _erased(run) for s in run.original.samples[client] if s not in named)


def _clear(stone: Tombstone) -> None:
    """Replace a run by its tombstone: written first, then everything else but the ledger is removed."""
    content = pretty_json({"digest": stone.digest, "files": stone.files, "info": stone.info})
    path = stone.path / TOMBSTONE
    if not path.exists() or read_bytes(path) != content:
        write_bytes(path, content)
    with storage(stone.path):
        (stone.path / MANIFEST).unlink(missing_ok=True)
        for item in stone.path.iterdir():
            if item.name not in (TOMBSTONE, LEDGER):
                shutil.rmtree(item) if item.is_dir() else item.unlink()
        sync_folder(stone.path)
