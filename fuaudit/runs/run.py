"""A run as evidence: opened only when every byte of it is accounted for.

The format is documented byte by byte in docs/run-format.md. Opening a run imports nothing that its files
name except installed entry points, and executes nothing from it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from torch import Tensor

from fuaudit import registry
from fuaudit.config import Config, parse_toml, resolve
from fuaudit.draws import END, Draws, Keyed, Position, Recorded, Stream
from fuaudit.errors import EvidenceError, UsageError, nearest_beside
from fuaudit.plans import Plan, Population, Request
from fuaudit.plans.plan import Segments
from fuaudit.runs.files import TEMPORARY, named, read_bytes, read_json
from fuaudit.runs.keys import RunKeys, digest_of_partition, leaf
from fuaudit.runs.ledger import NAME as LEDGER
from fuaudit.runs.ledger import Ledger, wrong_course
from fuaudit.runs.manifest import FORMAT, MANIFEST, check_files, digest_of_files
from fuaudit.runs.shapes import (
    PARTICIPATION,
    Shape,
    are_counts_by_id,
    are_lines,
    are_tables_of_texts,
    are_texts,
    is_count,
    is_digest,
    is_folder_name,
    is_loss,
    is_position,
    is_share,
    is_table,
    is_text,
    wrong_fields,
)
from fuaudit.runs.tables import (
    read_checkpoint,
    read_involvement,
    read_population,
    read_recorded,
    read_segments,
    read_table,
)

RECORDED = "recorded.safetensors"
_FIRST_FILES = {"config.toml", "partition.safetensors", RECORDED, "plan.json", "keys.json", LEDGER, "run.json"}
_CHECKPOINT = re.compile(r"checkpoints/\d{6}\.safetensors")


@dataclass(frozen=True)
class Run:
    """A complete run whose manifest, digests and ledger agree.

    Attributes:
        path: the folder.
        digest: of the manifest's list of files: the identity of the run. The ledger, which holds times, is
            tied to it by its last event, and is not part of it.
        info: ``run.json``: kind, parent, unlearner, versions, engine, device.
        files: path -> digest and size of every file.
    """

    path: Path
    digest: str
    info: dict[str, Any]
    files: dict[str, dict[str, Any]]
    ledger: Ledger
    config: Config = field(repr=False)

    @property
    def is_child(self) -> bool:
        """Whether unlearning wrote this run."""
        return bool(self.info["kind"] == "unlearning")

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests carried out up to this run, in order."""
        try:
            rows = [Request(tuple(r["clients"]), tuple(r["samples"])) for r in self._plan_table["requests"]]
            if any(type(i) is not int for row in rows for i in (*row.clients, *row.samples)):
                raise ValueError("an id is no integer")
            if any(row != Request.of(row.clients, row.samples) for row in rows):
                raise ValueError("ids are not sorted, or occur twice")
            return tuple(rows)
        except (KeyError, TypeError, ValueError) as error:
            raise EvidenceError(f"{self.path / 'plan.json'} holds no requests: {error!r}") from None

    @property
    def request(self) -> Request:
        """The last request; UsageError for a training run."""
        if not self.is_child:
            raise UsageError(f"{self.path} is a training run: it carries out no request")
        return self.requests[-1]

    @property
    def executed(self) -> int:
        """How many rounds were executed; less than the learner's rounds when training was stopped for a request."""
        return int(self.info["executed_rounds"])

    @cached_property
    def _plan_table(self) -> dict[str, Any]:
        path = self.path / "plan.json"
        table = read_table(path)
        requests = table.get("requests")
        # a child of a pruned run knows the owners only; the pruned run itself everything
        whole = isinstance(requests, list) and bool(requests) and table.get("pruned") == len(requests)
        if wrong := wrong_fields(table, {name: shape for name, shape in _PRUNED.items() if whole or name in table}):
            raise EvidenceError(f"{path}: of the wrong kind: {', '.join(wrong)}")
        return table

    @cached_property
    def keys(self) -> dict[str, Any]:
        """``keys.json``: per source the key of its draws (None when destroyed), and the key of children."""
        path = self.path / "keys.json"
        table = read_table(path)
        draws = table.get("draws")
        if (
            not isinstance(draws, list)
            or not draws
            or not all(map(_is_key, draws))
            or not _is_key(table.get("children", ""))
        ):
            raise EvidenceError(f"{path} does not hold keys of 64 hexadecimal digits")
        return table

    @property
    def run_keys(self) -> RunKeys | None:
        """The two keys of this run; None when one of them was destroyed."""
        draws, children = self.keys["draws"][-1], self.keys["children"]
        return RunKeys(bytes.fromhex(draws), bytes.fromhex(children)) if draws and children else None

    @cached_property
    def committed_partition(self) -> str:
        """The digest of the partition that the commitment is about, from what the run holds of it.

        After a prune that is the leaves of erased clients, the ids of erased samples, and the retained rest.
        """
        leaves = {client: leaf(client, self.numbered(client)) for client in self.original.clients}
        return digest_of_partition({**self.erased_leaves, **leaves})

    @property
    def erased_leaves(self) -> dict[int, str]:
        """What a prune kept of clients that it took out of the partition: their leaves."""
        kept = self.keys.get("partition", {})
        try:
            return {int(client): str(digest) for client, digest in kept.items()}
        except (AttributeError, ValueError) as error:
            raise EvidenceError(f"{self.path / 'keys.json'} holds no leaves of clients: {error!r}") from None

    @property
    def commitment(self) -> str | None:
        """The commitment, computed from what the run holds; None when its keys were destroyed."""
        keys = self.run_keys
        return keys.commitment(self.files["config.toml"]["sha256"], self.committed_partition) if keys else None

    @cached_property
    def original(self) -> Population:
        """The population that training started from (without what a prune removed)."""
        return read_population(self.path / "partition.safetensors")

    @cached_property
    def rows(self) -> int:
        """How many training rows there were at least: ids below it are rows, at hand or erased.

        After a prune the ids of erased clients are unknown; there are rows enough for as many as there were.
        """
        named = [s for group in self.original.samples.values() for s in group]
        named += [sample for request in self.requests for sample in request.samples]
        erased = (
            len(self.request.samples) + sum(self._plan_table.get("erased_sizes", {}).values()) if self.pruned else 0
        )
        return max(max(named, default=-1) + 1, self.original.size + erased)

    @cached_property
    def plan(self) -> Plan:
        """The plan, from its segments and keys; EvidenceError when they do not fit together."""
        try:
            plan = read_plan(self)
            _require_present(plan)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, UsageError) as error:
            raise EvidenceError(f"{self.path / 'plan.json'} is not a plan: {error!r}") from None
        return plan

    @property
    def pruned(self) -> bool:
        """Whether keys and ids of all earlier populations were destroyed."""
        return bool(self.requests) and self._plan_table.get("pruned") == len(self.requests)

    @property
    def pruned_table(self) -> dict[str, Any]:
        """What a prune left, here or in an ancestor: how many requests it covered, and who owned erased samples."""
        return {name: self._plan_table[name] for name in ("pruned", "erased_owners") if name in self._plan_table}

    def numbered(self, client: int) -> tuple[int, ...]:
        """The samples of a client when training started, erased ones included: what CLIENT:INDEX counts.

        Raises:
            UsageError: there is no such client.
        """
        samples = self.original.samples
        if client not in samples:
            raise UsageError(f"this federation has no client {client}", f"Clients are {_span(self.original.clients)}.")
        gone = self._plan_table.get("erased_owners", {})
        return tuple(sorted((*samples[client], *(int(sample) for sample, owner in gone.items() if owner == client))))

    def sample(self, client: int, index: int) -> int:
        """The id of a client's sample by its number, from 0, among those it had when training started.

        Raises:
            UsageError: there is no such client or sample.
        """
        owned = self.numbered(client)
        if not 0 <= index < len(owned):
            raise UsageError(f"client {client} has samples 0 to {len(owned) - 1}, not {index}")
        return owned[index]

    def before(self, rows: int) -> Population:
        """The population before the last request, in a dataset of so many rows.

        After a prune only sizes and owners are known: the ids of an erased client's samples are then stand-ins,
        rows that nobody owns.
        """
        if not self.pruned:
            return self.plan.populations[-2]
        samples = dict(self.original.samples)
        owners, sizes = (self._plan_table.get(name, {}) for name in ("erased_owners", "erased_sizes"))
        if {*map(str, self.request.clients)} != sizes.keys() or any(
            owners.get(str(sample)) not in samples for sample in self.request.samples
        ):
            raise EvidenceError(f"{self.path / 'plan.json'} does not tell who owned what the last request erased")
        for sample in self.request.samples:
            owner = owners[str(sample)]
            samples[owner] = tuple(sorted((*samples[owner], sample)))
        owned = {s for group in samples.values() for s in group}
        free = [row for row in range(rows) if row not in owned]
        if sum(sizes.values()) > len(free):
            raise EvidenceError(f"{self.path / 'plan.json'} names more erased samples than the dataset has rows for")
        for client, size in sizes.items():
            samples[int(client)], free = tuple(free[:size]), free[size:]
        return Population(samples)

    @cached_property
    def learner(self) -> Any:
        """The learner plugin."""
        return registry.build("learners", self.config.learner)

    @cached_property
    def unlearner(self) -> Any:
        """The unlearner plugin of a child run, with the options that are recorded."""
        recorded = self.info["unlearner"]
        return registry.build("unlearners", {**recorded["options"], "use": recorded["use"]})

    @property
    def next_position(self) -> Position:
        """The first position that was not executed; ``END`` when training was over."""
        return Position(self.executed + 1, 0) if self.executed < self.plan.law.rounds else END

    @property
    def models(self) -> dict[int, Tensor]:
        """Round -> model ``(d,)`` of every stored round, read now."""
        return {round: self.checkpoint(round)[0] for round in self.checkpoints}

    @cached_property
    def client_digests(self) -> dict[int, str]:
        """Client -> digest of its retained rows."""
        try:
            return {int(k): v for k, v in read_table(self.path / "data.json")["clients"].items()}
        except (KeyError, ValueError, AttributeError) as error:
            raise EvidenceError(f"{self.path / 'data.json'} holds no digests of clients: {error!r}") from None

    @cached_property
    def test_digest(self) -> object:
        """The digest of the test rows that its figures were measured on."""
        return read_table(self.path / "data.json").get("test")

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The rounds after which model and state are stored, ascending; 0 is before the first."""
        return tuple(sorted(int(PurePosixPath(f).stem) for f in self.files if f.startswith("checkpoints/")))

    def checkpoint(self, round: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Model ``(d,)`` and server state after a stored round."""
        return read_checkpoint(self.path, round)

    @property
    def model(self) -> Tensor:
        """The final model, ``(d,)``."""
        return self.checkpoint(self.checkpoints[-1])[0]

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Test loss and accuracy at every stored round."""
        path = self.path / "metrics.json"
        rows: list[dict[str, Any]] = read_json(path)
        plain = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
        if not plain or not rows or any(wrong_fields(row, _METRICS) for row in rows):
            raise EvidenceError(f"{path} holds no metrics")
        return rows

    @cached_property
    def participation(self) -> dict[str, Any]:
        """Who took part in each round, what had been uploaded by then, and how the final model serves each client."""
        path = self.path / "participation.json"
        if path.name not in self.files:
            raise EvidenceError(
                f"{self.path} has no {path.name}", "Runs of earlier versions have none: train it again."
            )
        table: dict[str, Any] = read_json(path)
        if not isinstance(table, dict) or wrong_fields(table, PARTICIPATION):
            raise EvidenceError(f"{path} does not tell who took part")
        return table


_METRICS: dict[str, Shape] = {"round": is_count, "test_loss": is_loss, "test_accuracy": is_share}
_PRUNED: dict[str, Shape] = {"pruned": is_count, "erased_owners": are_counts_by_id, "erased_sizes": are_counts_by_id}
_INFO: dict[str, Shape] = {
    "executed_rounds": is_count,
    "engine": is_text,
    "device": is_text,
    "versions": are_texts,
    "plugins": are_tables_of_texts,
}
_CHILD: dict[str, Shape] = {
    "parent": is_table,
    "unlearner": is_table,
    "first_change": is_position,
    "doubts": are_lines,
}
_PARENT: dict[str, Shape] = {"digest": is_digest, "name": is_folder_name}
_UNLEARNER: dict[str, Shape] = {
    "use": is_text,
    "options": is_table,
    "kind": lambda word: word in ("rewriter", "editor"),
    "distribution": is_text,
    "version": is_text,
    "guarantee": is_text,
    "cite": is_text,
}
"""The fields of the files of a run, and what each may hold."""


def _require_present(plan: Plan) -> None:
    """Raises ValueError where a round names a client of a population that its batches are not drawn over.

    Only where the two streams are drawn over different populations can that be. A stream changes only in rounds in
    which a segment starts, and what lies between two of those is judged once: a config may name any number of rounds.
    """
    starts = {segment.start.round for name in (Stream.COHORTS, Stream.BATCHES) for segment in plan.streams[name]}
    after = plan.law.rounds + 1
    bounds = sorted({1, after, *(round for start in starts for round in (start, start + 1) if 1 <= round < after)})
    for first, end in pairwise(bounds):
        begin, last = Position(first, 0), Position(first, plan.law.steps)
        batches = _versions(plan.streams[Stream.BATCHES], begin, last)
        if batches <= _versions(plan.streams[Stream.COHORTS], begin, begin):
            continue
        for round in range(first, end):
            named = set(plan.cohort(round))
            if any(not named <= plan.populations[version].samples.keys() for version in batches):
                raise ValueError(f"round {round} draws batches of a client that is gone by then")


def _versions(segments: Segments, first: Position, last: Position) -> set[int]:
    """The populations that a stream is drawn over from one position to another, both included."""
    begin, end = (bisect_right(segments, at, key=lambda segment: segment.start) for at in (first, last))
    return {segment.version for segment in segments[begin - 1 : end]}


def _span(ids: tuple[int, ...]) -> str:
    return f"{ids[0]} to {ids[-1]}" if ids and ids == tuple(range(ids[0], ids[-1] + 1)) else ", ".join(map(str, ids))


def read_plan(run: Run) -> Plan:
    """The plan of a run: law from the config, populations from partition and requests, sources from keys."""
    table = run._plan_table
    populations = [run.original]
    for number, request in enumerate(run.requests, 1):
        gone = number <= table.get("pruned", 0)
        populations.append(populations[-1] if gone else populations[-1].without(request))
    secrets = run.keys["draws"]
    if None in secrets and not table.get("pruned"):
        raise ValueError("a key is missing, and the run was not pruned")
    recorded = read_recorded(run.path / RECORDED) if (run.path / RECORDED).exists() else {}
    # what a prune recorded of all destroyed keys lies under number 0; a rewriter's own record under its own number
    destroyed = Recorded(recorded.get(0, {}), _initial(run.keys.get("initial")))
    sources: list[Draws] = [
        destroyed if not secret else Recorded(recorded[number]) if number in recorded else Keyed(bytes.fromhex(secret))
        for number, secret in enumerate(secrets)
    ]
    counts = len(sources), len(populations)
    streams = table["streams"]
    if set(streams) != set(Stream) or len(streams[Stream.INITIAL]) != 1:
        raise ValueError(f"streams are not {', '.join(Stream)}, with one initial segment")
    return Plan(
        run.learner.law,
        tuple(populations),
        tuple(sources),
        {stream: read_segments(streams[stream], *counts) for stream in Stream},
        index=read_involvement(index) if (index := run.path / "involvement.safetensors").exists() else None,
    )


def _initial(kept: dict[str, Any] | None) -> tuple[tuple[int, int], int] | None:
    if kept is None:
        return None
    key = bytes.fromhex(kept["key"])
    if len(key) != 16 or type(kept["version"]) is not int:
        raise ValueError("the key kept for the initial draw is not one")
    return (int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")), kept["version"]


def _is_key(text: object) -> bool:
    return text is None or is_digest(text)


def load_run(path: str | Path) -> Run:
    """Open a run, checking every byte of it.

    Raises:
        EvidenceError: there is no run, it is incomplete, or a file is missing, surplus or altered.
    """
    folder = named(Path(path))
    if not folder.is_dir():
        half = folder.with_name(folder.name + ".before-prune").is_dir()
        near = nearest_beside(folder, lambda item: (item / MANIFEST).is_file()) or "Make one with: fuaudit train CONFIG"
        raise EvidenceError(
            f"there is no run at {folder}", f"Finish its prune with: fuaudit prune {folder}" if half else near
        )
    if not (folder / MANIFEST).exists():
        if (folder / "tombstone.json").exists():
            raise EvidenceError(f"{folder} was pruned: only its tombstone is left")
        if (folder / "run.json").exists():
            raise EvidenceError(f"the run {folder} is incomplete", f"Finish it with: fuaudit resume {folder}")
        if {item.name.removesuffix(TEMPORARY) for item in folder.iterdir()} <= _FIRST_FILES:
            raise EvidenceError(
                f"{folder} is empty, or its run was interrupted before it began", "Remove the folder and start again."
            )
        raise EvidenceError(f"{folder} is not a run: it has no {MANIFEST}")
    found, ledger = check_files(folder)
    strange = [name for name in found if name.startswith("checkpoints/") and not _CHECKPOINT.fullmatch(name)]
    if strange or not any(name.startswith("checkpoints/") for name in found):
        raise EvidenceError(f"{folder} stores no models, or under strange names: {', '.join(strange) or 'none'}")
    run = Run(folder, digest_of_files(found), read_info(folder), found, ledger, read_config_of(folder))
    if not 1 <= run.executed <= run.learner.law.rounds:
        raise EvidenceError(f"{folder} claims {run.executed} rounds of a learner with {run.learner.law.rounds}")
    if wrong := wrong_course(ledger, run.info):
        raise EvidenceError(f"the ledger of {folder} is not that of such a run: {wrong}")
    if (run.info["engine"], run.info["device"]) != (run.config.run.engine, run.config.run.device):
        raise EvidenceError(f"{folder} names another engine or device in run.json than in config.toml")
    return run


def read_config_of(folder: Path) -> Config:
    """The config of a run that may still be growing.

    Raises:
        EvidenceError: it is no TOML.
        UsageError: it names a plugin that is not installed, or options that it does not have.
    """
    path = folder / "config.toml"
    try:
        table = parse_toml(read_bytes(path).decode())
    except ValueError as error:
        raise EvidenceError(f"{path} cannot be read: {error}") from None
    return resolve(table, str(path))


def read_info(folder: Path) -> dict[str, Any]:
    """``run.json``; EvidenceError when a field is missing or of the wrong kind."""
    path = folder / "run.json"
    return checked_info(read_json(path), path)


def checked_info(info: Any, path: Path) -> dict[str, Any]:
    """What ``run.json``, or a copy of it at ``path``, holds; EvidenceError as for :func:`read_info`."""
    if not isinstance(info, dict) or info.get("format") != FORMAT or info.get("kind") not in ("training", "unlearning"):
        raise EvidenceError(f"{path} does not describe a run of the format {FORMAT!r}")
    is_child = info["kind"] == "unlearning"
    wrong = wrong_fields(info, _INFO | (_CHILD if is_child else {}))
    if not wrong and is_child:
        wrong = [f"parent.{name}" for name in wrong_fields(info["parent"], _PARENT)]
        wrong += [f"unlearner.{name}" for name in wrong_fields(info["unlearner"], _UNLEARNER)]
    wrong += [] if is_text(info.get("edited_by", "")) else ["edited_by"]
    if is_child and not wrong and info["unlearner"]["kind"] == "editor":
        wrong += [] if info.get("edited_by") == info["unlearner"]["use"] else ["edited_by"]
    if not is_child and "edited_by" in info:
        wrong.append("edited_by")
    if wrong:
        raise EvidenceError(f"{path}: missing or wrong: {', '.join(wrong)}")
    return info
