"""A run as evidence: opened only when every byte of it is accounted for.

The format is documented byte by byte in docs/run-format.md. Opening a run imports nothing that its files
name except installed entry points, and executes nothing from it.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from fuaudit import registry
from fuaudit.config import Config, resolve
from fuaudit.draws import Draws, Keyed, Position, Recorded, Stream
from fuaudit.draws.address import Address, Purpose
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Plan, Population, Request, Segment
from fuaudit.plans.schedule import Involvement
from fuaudit.runs.files import TEMPORARY, canonical_json, pretty_json, read_bytes, read_json, read_tensors, sha256
from fuaudit.runs.keys import RunKeys
from fuaudit.runs.ledger import NAME as LEDGER
from fuaudit.runs.ledger import Ledger, read_ledger

FORMAT = "fuaudit run 1"
MANIFEST = "manifest.json"
RECORDED = "recorded.safetensors"
_FIRST_FILES = {"config.toml", "partition.safetensors", RECORDED, "plan.json", "keys.json", LEDGER, "run.json"}
_RECORDABLE = (Purpose.COHORT, Purpose.BATCH, Purpose.AVAILABILITY, Purpose.PERMUTATION)
"""Purposes as numbers in the file of recorded draws; new ones are added at the end."""
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
        return _table(self.path / "plan.json")

    @cached_property
    def keys(self) -> dict[str, Any]:
        """``keys.json``: per source the key of its draws (None when destroyed), and the key of children."""
        path = self.path / "keys.json"
        table = _table(path)
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

    @property
    def committed_partition(self) -> str:
        """The digest of the partition that the commitment is about; a prune replaces the file but keeps this."""
        kept = self.keys.get("partition")
        return str(kept or self.files["partition.safetensors"]["sha256"])

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
    def plan(self) -> Plan:
        """The plan, from its segments and keys; EvidenceError when they do not fit together."""
        try:
            return read_plan(self)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, UsageError) as error:
            raise EvidenceError(f"{self.path / 'plan.json'} is not a plan: {error!r}") from None

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

    def before(self, rows: int) -> Population:
        """The population before the last request, in a dataset of so many rows.

        After a prune only sizes and owners are known: the ids of an erased client's samples are then stand-ins,
        rows that nobody owns.
        """
        if not self.pruned:
            return self.plan.populations[-2]
        samples = dict(self.original.samples)
        for sample in self.request.samples:
            owner = self._plan_table["erased_owners"][str(sample)]
            samples[owner] = tuple(sorted((*samples[owner], sample)))
        owned = {s for group in samples.values() for s in group}
        free = iter(row for row in range(rows) if row not in owned)
        for client, size in self._plan_table["erased_sizes"].items():
            samples[int(client)] = tuple(next(free) for _ in range(size))
        return Population(samples)

    @cached_property
    def learner(self) -> Any:
        """The learner plugin."""
        return registry.build("learners", self.config.learner)

    @cached_property
    def client_digests(self) -> dict[int, str]:
        """Client -> digest of its retained rows."""
        try:
            return {int(k): v for k, v in _table(self.path / "data.json")["clients"].items()}
        except (KeyError, ValueError, AttributeError) as error:
            raise EvidenceError(f"{self.path / 'data.json'} holds no digests of clients: {error!r}") from None

    @cached_property
    def test_digest(self) -> object:
        """The digest of the test rows that its figures were measured on."""
        return _table(self.path / "data.json").get("test")

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
        names = {"round", "test_loss", "test_accuracy"}
        if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) and names <= r.keys() for r in rows):
            raise EvidenceError(f"{path} holds no metrics")
        return rows


def _span(ids: tuple[int, ...]) -> str:
    return f"{ids[0]} to {ids[-1]}" if ids and ids == tuple(range(ids[0], ids[-1] + 1)) else ", ".join(map(str, ids))


def _table(path: Path) -> dict[str, Any]:
    table = read_json(path)
    if not isinstance(table, dict):
        raise EvidenceError(f"{path} does not hold a table")
    return table


def _is_key(text: object) -> bool:
    return text is None or (isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) is not None)


def checkpoint_name(round: int) -> str:
    """The path of a stored round inside a run."""
    return f"checkpoints/{round:06d}.safetensors"


def read_checkpoint(path: Path, round: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Model and server state after a stored round of a run that may still be growing."""
    tensors = read_tensors(path / checkpoint_name(round))
    if "vector" not in tensors or tensors["vector"].ndim != 1:
        raise EvidenceError(f"{path / checkpoint_name(round)} holds no model")
    return tensors["vector"], {k.removeprefix("state."): v for k, v in tensors.items() if k.startswith("state.")}


def population_tensors(population: Population) -> dict[str, Tensor]:
    """A population as three flat int64 tensors: client ids, where each client's samples end, sample ids."""
    counts = [len(population.samples[c]) for c in population.clients]
    return {
        "clients": torch.tensor(population.clients, dtype=torch.int64),
        "ends": torch.tensor(counts, dtype=torch.int64).cumsum(0),
        "samples": torch.tensor([s for c in population.clients for s in population.samples[c]], dtype=torch.int64),
    }


def read_population(path: Path) -> Population:
    """The inverse of :func:`population_tensors`; EvidenceError when it is not one."""
    tensors = read_tensors(path)
    try:
        clients, ends, samples = (_integers(tensors, name, 1) for name in ("clients", "ends", "samples"))
    except ValueError as error:
        raise EvidenceError(f"{path} is not a partition: {error}") from None
    starts = [0, *ends][:-1]
    if (
        len(clients) != len(ends)
        or starts + ends[-1:] != sorted(starts + ends[-1:])
        or (ends[-1] if ends else 0) != len(samples)
        or len(set(samples)) != len(samples)
        or len(set(clients)) != len(clients)
    ):
        raise EvidenceError(f"{path} is not a partition: clients, ends and samples do not fit together")
    return Population({c: tuple(samples[a:b]) for c, a, b in zip(clients, starts, ends, strict=True)})


def _integers(tensors: dict[str, Tensor], name: str, axes: int) -> list[Any]:
    """A tensor of int64 with so many axes as a list; ValueError when it is not one."""
    tensor = tensors.get(name)
    if tensor is None or tensor.dtype is not torch.int64 or tensor.ndim != axes:
        raise ValueError(f"{name} is not a tensor of int64 with {axes} axes")
    rows: list[Any] = tensor.tolist()
    return rows


def _segments(rows: list[list[int]], sources: int, versions: int) -> tuple[Segment, ...]:
    if any(type(number) is not int for row in rows for number in row):
        raise ValueError("segments are rows of whole numbers")
    segments = tuple(Segment(Position(r, e), source, version) for r, e, source, version in rows)
    starts = [s.start for s in segments]
    if not segments or starts != sorted(set(starts)) or starts[0] != Position(0, 0):
        raise ValueError("segments are not in order from the start")
    if any(not 0 <= s.source < sources or not 0 <= s.version < versions for s in segments):
        raise ValueError("a segment names an unknown source or version")
    return segments


def segment_rows(segments: tuple[Segment, ...]) -> list[list[int]]:
    """Segments as rows (round, step, source, version)."""
    return [[*s.start, s.source, s.version] for s in segments]


def recorded_tensors(answers: dict[Address, tuple[int, ...]]) -> dict[str, Tensor]:
    """Recorded draws as int64 tensors: one row of addresses a draw, where its ids end, ids."""
    items = sorted(answers.items())
    rows = [[_RECORDABLE.index(at.purpose), at.round, at.step, at.client, at.occurrence] for at, _ in items]
    return {
        "addresses": torch.tensor(rows, dtype=torch.int64).reshape(-1, 5),
        "ends": torch.tensor([len(ids) for _, ids in items], dtype=torch.int64).cumsum(0),
        "ids": torch.tensor([i for _, ids in items for i in ids], dtype=torch.int64),
    }


def read_recorded(path: Path, initial: dict[str, Any] | None) -> Recorded:
    """The inverse of :func:`recorded_tensors`; ``initial`` is what ``keys.json`` keeps of the initial draw."""
    tensors = read_tensors(path)
    addresses, ends, ids = (
        _integers(tensors, "addresses", 2),
        _integers(tensors, "ends", 1),
        _integers(tensors, "ids", 1),
    )
    return Recorded(
        {
            Address(_RECORDABLE[p], r, e, c, o): tuple(ids[a:b])
            for (p, r, e, c, o), a, b in zip(addresses, [0, *ends][:-1], ends, strict=True)
        },
        _initial(initial),
    )


def _initial(kept: dict[str, Any] | None) -> tuple[tuple[int, int], int] | None:
    if kept is None:
        return None
    key = bytes.fromhex(kept["key"])
    if len(key) != 16 or type(kept["version"]) is not int:
        raise ValueError("the key kept for the initial draw is not one")
    return (int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")), kept["version"]


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
    recorded = read_recorded(run.path / RECORDED, run.keys.get("initial")) if None in secrets else None
    sources: list[Draws] = [Keyed(bytes.fromhex(secret)) if secret else recorded for secret in secrets]  # type: ignore[misc]
    counts = len(sources), len(populations)
    streams = table["streams"]
    if set(streams) != set(Stream) or len(streams[Stream.INITIAL]) != 1:
        raise ValueError(f"streams are not {', '.join(Stream)}, with one initial segment")
    return Plan(
        run.learner.law,
        tuple(populations),
        tuple(sources),
        {stream: _segments(streams[stream], *counts) for stream in Stream},
        index=read_involvement(index) if (index := run.path / "involvement.safetensors").exists() else None,
    )


def involvement_tensors(involvement: Involvement) -> dict[str, Tensor]:
    """First involvements as int64 tensors: rows (client, round) and (sample, round, step), sorted."""
    clients = sorted(involvement.clients.items())
    samples = sorted((s, at.round, at.step) for s, at in involvement.samples.items())
    return {
        "clients": torch.tensor(clients, dtype=torch.int64).reshape(-1, 2),
        "samples": torch.tensor(samples, dtype=torch.int64).reshape(-1, 3),
    }


def read_involvement(path: Path) -> Involvement:
    """The inverse of :func:`involvement_tensors`."""
    tensors = read_tensors(path)
    return Involvement(
        dict(_integers(tensors, "clients", 2)), {s: Position(r, e) for s, r, e in _integers(tensors, "samples", 2)}
    )


def digest_of_files(files: dict[str, dict[str, Any]]) -> str:
    """The identity of a run: SHA-256 of the canonical list of its files."""
    return sha256(canonical_json(files))


def files_of(path: Path) -> dict[str, dict[str, Any]]:
    """Digest and size of every file of a run but the manifest and the ledger; EvidenceError for links."""
    found = {}
    for item in sorted(path.rglob("*")):
        if item.is_symlink() or not (item.is_file() or item.is_dir()):
            raise EvidenceError(f"{item} is a link or a device; a run holds regular files only")
        name = item.relative_to(path).as_posix()
        if item.is_file() and name not in (MANIFEST, LEDGER):
            content = read_bytes(item)
            found[name] = {"sha256": sha256(content), "size": len(content)}
    return found


def manifest_bytes(digest: str, files: dict[str, dict[str, Any]], head: str) -> bytes:
    """The manifest: the list of files, its digest, and the last line of the ledger. It has one form only."""
    return pretty_json({"format": FORMAT, "digest": digest, "files": files, "ledger": head})


def load_run(path: str | Path) -> Run:
    """Open a run, checking every byte of it.

    Raises:
        EvidenceError: there is no run, it is incomplete, or a file is missing, surplus or altered.
    """
    folder = Path(path)
    if folder.name in ("", ".."):
        folder = folder.resolve()
    if not folder.is_dir():
        half = folder.with_name(folder.name + ".before-prune").is_dir()
        raise EvidenceError(
            f"there is no run at {folder}", f"Finish its prune with: fuaudit prune {folder}" if half else ""
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
    manifest = read_json(folder / MANIFEST)
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or not isinstance(manifest.get("files"), dict)
    ):
        raise EvidenceError(f"{folder / MANIFEST} is not a manifest of the format {FORMAT!r}")
    found = files_of(folder)
    _compare(folder, manifest["files"], found)
    digest = digest_of_files(found)
    ledger = read_ledger(folder)
    last = ledger.events[-1]
    if last["event"] not in ("sealed", "pruned") or last.get("digest") != digest:
        raise EvidenceError(f"the ledger of {folder} does not end with the digest of its files")
    if read_bytes(folder / MANIFEST) != manifest_bytes(digest, found, ledger.head):
        raise EvidenceError(f"the manifest and the ledger of {folder} name different runs")
    strange = [name for name in found if name.startswith("checkpoints/") and not _CHECKPOINT.fullmatch(name)]
    if strange or not any(name.startswith("checkpoints/") for name in found):
        raise EvidenceError(f"{folder} stores no models, or under strange names: {', '.join(strange) or 'none'}")
    run = Run(folder, digest, read_info(folder), found, ledger, read_config_of(folder))
    if not 1 <= run.executed <= run.learner.law.rounds:
        raise EvidenceError(f"{folder} claims {run.executed} rounds of a learner with {run.learner.law.rounds}")
    return run


def read_config_of(folder: Path) -> Config:
    """The config of a run that may still be growing.

    Raises:
        EvidenceError: it is no TOML.
        UsageError: it names a plugin that is not installed, or options that it does not have.
    """
    path = folder / "config.toml"
    try:
        return resolve(tomllib.loads(read_bytes(path).decode()), str(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"{path} cannot be read: {error}") from None


def _compare(folder: Path, listed: dict[str, Any], found: dict[str, Any]) -> None:
    missing, surplus = sorted(listed.keys() - found.keys()), sorted(found.keys() - listed.keys())
    changed = sorted(name for name in listed.keys() & found.keys() if listed[name] != found[name])
    problems = [f"missing: {', '.join(missing)}"] if missing else []
    problems += [f"not listed: {', '.join(surplus)}"] if surplus else []
    problems += [f"altered: {', '.join(changed)}"] if changed else []
    if problems:
        torn = (
            " Files ending in " + TEMPORARY + " are torn writes." if any(s.endswith(TEMPORARY) for s in surplus) else ""
        )
        raise EvidenceError(f"the files of {folder} do not match its manifest; {'; '.join(problems)}.{torn}")


def read_info(folder: Path) -> dict[str, Any]:
    """``run.json``; EvidenceError when a field is missing or of the wrong kind."""
    info = read_json(folder / "run.json")
    if not isinstance(info, dict) or info.get("format") != FORMAT or info.get("kind") not in ("training", "unlearning"):
        raise EvidenceError(f"{folder / 'run.json'} does not describe a run of the format {FORMAT!r}")
    needed: dict[str, type] = {"executed_rounds": int, "engine": str, "device": str, "versions": dict}
    if info["kind"] == "unlearning":
        needed |= {"parent": dict, "unlearner": dict, "first_change": list}
    wrong = _wrong(info, needed)
    if not wrong and info["kind"] == "unlearning":
        wrong = _wrong(info["parent"], {"digest": str, "name": str})
        wrong += _wrong(
            info["unlearner"], {"use": str, "options": dict, "kind": str, "distribution": str, "version": str}
        )
        wrong += ["parent name"] if len(str(info["parent"].get("name"))) > 255 else []
    if wrong:
        raise EvidenceError(f"{folder / 'run.json'}: missing or wrong: {', '.join(wrong)}")
    table: dict[str, Any] = info
    return table


def _wrong(table: dict[str, Any], needed: dict[str, type]) -> list[str]:
    return [name for name, kind in needed.items() if not isinstance(table.get(name), kind)]
