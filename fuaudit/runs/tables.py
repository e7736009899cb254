"""Plans, partitions and stored rounds as the tensors and rows of a run's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fuaudit.draws import END, Address, Position, Purpose
from fuaudit.errors import EvidenceError
from fuaudit.plans import Population, Segment
from fuaudit.plans.schedule import Involvement
from fuaudit.runs.files import read_json, read_tensors

RECORDABLE = (Purpose.COHORT, Purpose.BATCH, Purpose.AVAILABILITY, Purpose.PERMUTATION)
"""Purposes as numbers in the file of recorded draws; new ones are added at the end."""

Answers = Mapping[Address, tuple[int, ...]]


def read_table(path: Path) -> dict[str, Any]:
    """A JSON file that holds a table; EvidenceError when it does not."""
    table = read_json(path)
    if not isinstance(table, dict):
        raise EvidenceError(f"{path} does not hold a table")
    return table


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
        or min(samples, default=0) < 0  # would name a row from the end, which has an id already
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


def read_segments(rows: list[list[int]], sources: int, versions: int) -> tuple[Segment, ...]:
    """The inverse of :func:`segment_rows`; ValueError when they are not in order, or name what is not there."""
    if any(type(number) is not int for row in rows for number in row):
        raise ValueError("segments are rows of whole numbers")
    segments = tuple(Segment(Position(r, e), source, version) for r, e, source, version in rows)
    if any(not (0 <= number <= END.round) for s in segments for number in s.start):
        raise ValueError("a segment starts at no position that a plan can have")
    starts = [s.start for s in segments]
    if not segments or starts != sorted(set(starts)) or starts[0] != Position(0, 0):
        raise ValueError("segments are not in order from the start")
    if any(not 0 <= s.source < sources or not 0 <= s.version < versions for s in segments):
        raise ValueError("a segment names an unknown source or version")
    return segments


def segment_rows(segments: tuple[Segment, ...]) -> list[list[int]]:
    """Segments as rows (round, step, source, version)."""
    return [[*s.start, s.source, s.version] for s in segments]


def recorded_tensors(sources: Mapping[int, Answers]) -> dict[str, Tensor]:
    """Recorded draws by the number of their source, as int64 tensors: one row a draw, where its ids end, ids."""
    items = [(number, at, ids) for number, answers in sorted(sources.items()) for at, ids in sorted(answers.items())]
    rows = [
        [number, RECORDABLE.index(at.purpose), at.round, at.step, at.client, at.occurrence] for number, at, _ in items
    ]
    return {
        "addresses": torch.tensor(rows, dtype=torch.int64).reshape(-1, 6),
        "ends": torch.tensor([len(ids) for _, _, ids in items], dtype=torch.int64).cumsum(0),
        "ids": torch.tensor([i for _, _, ids in items for i in ids], dtype=torch.int64),
    }


def read_recorded(path: Path) -> dict[int, dict[Address, tuple[int, ...]]]:
    """The inverse of :func:`recorded_tensors`; ValueError when it is not one."""
    tensors = read_tensors(path)
    addresses, ends, ids = (
        _integers(tensors, name, axes) for name, axes in (("addresses", 2), ("ends", 1), ("ids", 1))
    )
    sources: dict[int, dict[Address, tuple[int, ...]]] = {}
    for (number, purpose, *at), start, end in zip(addresses, [0, *ends][:-1], ends, strict=True):
        sources.setdefault(number, {})[Address(RECORDABLE[purpose], *at)] = tuple(ids[start:end])
    return sources


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
