"""Prune: remove what the store itself remembers of erased data, and leave a tombstone with digests.

A child keeps draws of its parent. The parent's key over the parent's population gives every erased draw back,
so keeping the key would keep the erased history. Prune therefore writes the kept draws down as a record,
destroys the keys of all earlier populations, removes the erased ids from the partition, and replaces every
ancestor by a tombstone: digests of its files, and the one key that lets the child's keys still be checked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fuaudit.draws import Address, Recorded, Recording, Stream
from fuaudit.draws.address import NOBODY
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Plan, Segment
from fuaudit.plans.plan import Segments
from fuaudit.runs.files import (
    TEMPORARY,
    locked,
    named,
    pretty_json,
    read_bytes,
    read_json,
    sha256,
    storage,
    sync_folder,
    tensor_bytes,
    write_bytes,
)
from fuaudit.runs.keys import commitment, digest_of_key, initial_key, leaf
from fuaudit.runs.ledger import NAME as LEDGER
from fuaudit.runs.ledger import read_ledger
from fuaudit.runs.manifest import MANIFEST, digest_of_files
from fuaudit.runs.run import RECORDED, Run, checked_info, load_run
from fuaudit.runs.tables import population_tensors, recorded_tensors
from fuaudit.runs.writer import RunWriter, plan_table

TOMBSTONE = "tombstone.json"


@dataclass(frozen=True)
class Tombstone:
    """What a prune left of a run: its digest, those of its files and keys, its ``run.json``, at most one key."""

    path: Path
    digest: str
    files: dict[str, Any]
    draws_digest: str
    children_digest: str
    initial_digest: str
    partition: str
    info: dict[str, Any]
    children: str | None

    @property
    def is_child(self) -> bool:
        """Whether unlearning wrote the run that was here."""
        return bool(self.info["kind"] == "unlearning")

    @property
    def commitment(self) -> str:
        """The commitment of the run that was here."""
        config = self.files["config.toml"]["sha256"]
        return commitment(self.draws_digest, self.children_digest, self.initial_digest, config, self.partition)


def read_tombstone(path: Path) -> Tombstone:
    """The tombstone in a pruned run's folder; EvidenceError when it is not one."""
    table = read_json(path / TOMBSTONE)
    try:
        stone = Tombstone(path, **{field.name: table[field.name] for field in fields(Tombstone)[1:]})
        checked_info(stone.info, path / TOMBSTONE)
        if digest_of_files(stone.files) != stone.digest or not isinstance(stone.commitment, str):
            raise ValueError("its files do not have its digest")
        if sha256(pretty_json(stone.info)) != stone.files["run.json"]["sha256"]:
            raise ValueError("its copy of run.json is another")
        if stone.children is not None and digest_of_key(bytes.fromhex(stone.children)) != stone.children_digest:
            raise ValueError("its key of children does not have its digest")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceError(f"{path / TOMBSTONE} is not a tombstone: {error!r}") from None
    return stone


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
    parent = read_tombstone(path) if (path / TOMBSTONE).exists() else load_run(path)
    if parent.digest != recorded["digest"]:
        raise EvidenceError(
            f"{path} is not the parent of {run.path}: its digest is {parent.digest[:16]}, "
            f"not {recorded['digest'][:16]}",
            "Give the right folder with --parent.",
        )
    return parent


def recorded_answers(plan: Plan) -> dict[Address, tuple[int, ...]]:
    """All draws of a plan that were made over earlier populations than the last one, but those of erased clients."""
    answers: dict[Address, tuple[int, ...]] = {}
    last = len(plan.populations) - 1
    replace(plan, sources=tuple(Recording(source, answers, last) for source in plan.sources)).history()
    kept = {NOBODY, *plan.retained.clients}
    return {at: answer for at, answer in answers.items() if at.client in kept}


def _own_record(plan: Plan) -> dict[int, Mapping[Address, tuple[int, ...]]]:
    """The draws that the last rewriter recorded itself, under the number of its source."""
    last = len(plan.sources) - 1
    source = plan.sources[last]
    return {last: source.answers} if isinstance(source, Recorded) else {}


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
        _clear(above, keep_children=not ancestors)
    for age, ancestor in reversed(list(enumerate(ancestors))):
        _clear(_tombstone(ancestor), keep_children=age == 0)
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
    """Folders beside a run with a key of its earlier populations, destroyed or not: prune leaves them alone.

    Then those whose keys cannot be read, which may hold one. The run itself, ancestors that still are runs, and
    folders that are ``passed_over`` are not looked into.

    Raises:
        EvidenceError: an ancestor does not check out, or another run lies under its name.
    """
    gone = set(_key_digests(run)[:-1])
    found, unread, above = list[Path](), list[Path](), parent_of(run)
    lineage = {run.path.resolve(), *passed_over}
    while isinstance(above, Run):
        lineage.add(above.path.resolve())
        above = parent_of(above)
    for folder in sorted(run.path.resolve().parent.iterdir()):
        path = folder / "keys.json"
        try:
            if folder.resolve() in lineage or not folder.is_dir() or not (path.is_symlink() or path.exists()):
                continue
            keys = read_json(path)
        except (EvidenceError, OSError):  # no permission to look inside is an answer too
            unread.append(folder)
            continue
        held = keys.get("draws") if isinstance(keys, dict) else None
        if isinstance(held, list) and any(_digest(key) in gone for key in held):
            found.append(folder)
    return found, unread


def _digest(key: Any) -> str | None:
    """The digest of a key as a neighbour's file has it; None where it is none."""
    try:
        return digest_of_key(bytes.fromhex(key))
    except (TypeError, ValueError):
        return None


def _rewrite(run: Run) -> Run:
    """The run without keys and ids of earlier populations: written beside it, then put in its place.

    Raises:
        EvidenceError: what was written is not the whole run, because something else wrote there too; the run is as it
            was.
    """
    home, (staging, old) = run.path.resolve(), leftovers(run.path)
    plan, last = run.plan, len(run.plan.populations) - 1
    before, request = plan.populations[-2], run.request
    # the key of the last request's draws stays; the keys of all earlier populations go
    secrets = [None] * (len(plan.sources) - 1) + run.keys["draws"][-1:]
    owners = {str(sample): before.owner[sample] for sample in request.samples}
    left = {
        "pruned": len(run.requests),
        "erased_owners": {**_earlier_owners(run), **owners},
        "erased_sizes": {str(client): len(before.samples[client]) for client in request.clients},
    }
    replaced = {LEDGER, RECORDED, "partition.safetensors", "plan.json", "keys.json"}
    copied = run.files.keys() - replaced
    for name in copied | {LEDGER}:
        write_bytes(staging / name, read_bytes(run.path / name))
    writer = RunWriter(staging, read_ledger(staging))
    write_bytes(staging / RECORDED, tensor_bytes(recorded_tensors({0: recorded_answers(plan), **_own_record(plan)})))
    writer.write_tensors("partition.safetensors", population_tensors(plan.retained))
    writer.write_json("plan.json", plan_table(_with_recorded(plan, last), run.requests, left))
    keys = {"draws": secrets, "children": run.keys["children"], "digests": _key_digests(run)}
    writer.write_keys({**keys, "initial": _initial(run), "partition": _leaves(run)})
    writer.close("pruned", before=run.digest)
    staged = load_run(staging)
    whole = staged.files.keys() == run.files.keys() | {RECORDED} and staged.plan.retained == plan.retained
    if not whole or any(staged.files[name] != run.files[name] for name in copied):
        raise EvidenceError(f"{staging} is not the whole run: something else wrote there; {run.path} is as it was")
    with storage(run.path):
        os.rename(home, old)
        os.rename(staging, home)
        sync_folder(home.parent)
        shutil.rmtree(old)
    return replace(staged, path=run.path)


def _leaves(run: Run) -> dict[str, str]:
    """The leaves of all clients that were erased, here or in an ancestor."""
    gone = [client for client in run.original.clients if client not in run.plan.retained.samples]
    leaves = {**run.erased_leaves, **{client: leaf(client, run.numbered(client)) for client in gone}}
    return {str(client): digest for client, digest in sorted(leaves.items())}


def _initial(run: Run) -> dict[str, Any] | None:
    """The key of the initial draw alone, where the key that made it is to be destroyed."""
    (segment,) = run.plan.streams[Stream.INITIAL]
    secret = run.keys["draws"][segment.source]
    if segment.source == len(run.plan.sources) - 1:
        return None
    if secret is None:  # destroyed by an earlier prune, which kept this
        kept: dict[str, Any] | None = run.keys.get("initial")
        return kept
    return {"key": initial_key(bytes.fromhex(secret)).hex(), "version": segment.version, "source": segment.source}


def _earlier_owners(run: Run) -> dict[str, int]:
    """The owners of the samples that earlier requests erased one by one."""
    owners: dict[str, int] = dict(run.pruned_table.get("erased_owners", {}))
    for population, request in zip(run.plan.populations, run.requests[:-1], strict=False):
        owners |= {str(s): population.owner[s] for s in request.samples if s in population.owner}
    return owners


def _key_digests(run: Run) -> list[str]:
    """Digests of the keys of all sources; those of destroyed keys were kept when they were destroyed."""
    kept = run.keys.get("digests", [])
    return [
        digest_of_key(bytes.fromhex(secret)) if secret else kept[place]
        for place, secret in enumerate(run.keys["draws"])
    ]


def _with_recorded(plan: Plan, last: int) -> Plan:
    """The same segments, every one over the retained population."""

    def moved(segments: Segments) -> Segments:
        return tuple(s if s.version == last else Segment(s.start, 0, last) for s in segments)

    return replace(plan, streams={name: moved(segments) for name, segments in plan.streams.items()})


def _tombstone(run: Run) -> Tombstone:
    """What is to be left of a run."""
    return Tombstone(
        run.path,
        run.digest,
        run.files,
        _key_digests(run)[-1],
        digest_of_key(bytes.fromhex(run.keys["children"])),
        digest_of_key(initial_key(bytes.fromhex(run.keys["draws"][-1]))),
        run.committed_partition,
        run.info,
        run.keys["children"],
    )


def _clear(stone: Tombstone, keep_children: bool) -> None:
    """Replace a run by its tombstone: written first, then everything else but the ledger is removed."""
    table = {k: v for k, v in asdict(stone).items() if k != "path"}
    if not keep_children:  # it would give back the keys of the next generation, which are to be destroyed
        table["children"] = None
    content = pretty_json(table)
    path = stone.path / TOMBSTONE
    if not path.exists() or read_bytes(path) != content:
        write_bytes(path, content)
    with storage(stone.path):
        (stone.path / MANIFEST).unlink(missing_ok=True)
        for item in stone.path.iterdir():
            if item.name not in (TOMBSTONE, LEDGER):
                shutil.rmtree(item) if item.is_dir() else item.unlink()
        sync_folder(stone.path)
