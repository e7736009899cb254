"""Plans, partitions and stored rounds as the tensors and rows of a run's files, and back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, filterfalse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fuaudit.draws import END, Address, Position, Purpose
from fuaudit.errors import EvidenceError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import Array, as_tensors, tensor_bytes
from fuaudit.plans import Population, Segment
from fuaudit.plans.participation import Involvement
from fuaudit.runs.layout import CHECKPOINT, MEMORIES, of_round
from fuaudit.runs.manifest import read_form
from fuaudit.training.events import REJECTED_FOR
from fuaudit.training.received import Received
from fuaudit.training.rounds import CLIENT, State, owner_of

if TYPE_CHECKING:
    from torch import Tensor

RECORDABLE = (Purpose.COHORT, Purpose.BATCH, Purpose.AVAILABILITY, Purpose.PERMUTATION, Purpose.CUT)
"""Purposes as numbers in the file of recorded draws; new ones are added at the end."""

Answers = Mapping[Address, tuple[int, ...]]


def digest_of_vector(vector: Tensor) -> str:
    """SHA-256 over the bytes of a model ``(d,)``: what the ledger keeps of every stored round."""
    return sha256(vector.detach().cpu().contiguous().numpy().tobytes())


def files_of_round(number: int, vector: Tensor, state: State, salt: bytes | None) -> dict[str, bytes]:
    """Path -> content of the files of one stored round. ``salt`` is None where clients keep nothing.

    What clients keep comes first: a resumed run takes a round for stored when its checkpoint is there.
    """
    kept = {f"state.{name}": tensor for name, tensor in state.items()}
    own = {name: kept.pop(name) for name in list(kept) if owner_of(name.removeprefix("state.")) == CLIENT}
    checkpoint = {of_round(CHECKPOINT, number): tensor_bytes({"vector": vector, **kept})}
    if salt is None:
        return checkpoint
    memories: dict[str, Tensor | Array] = {"salt": np.frombuffer(salt, dtype=np.uint8), **own}
    return {of_round(MEMORIES, number): tensor_bytes(memories)} | checkpoint


def salted(tensors: dict[str, Array], salt: str | None) -> dict[str, Array]:
    """Tensors with a salt of 32 bytes, given in hexadecimal; as they are where clients have no secrets."""
    return tensors if salt is None else {**tensors, "salt": np.frombuffer(bytes.fromhex(salt), dtype=np.uint8)}


def same_round(a: tuple[Tensor, State], b: tuple[Tensor, State]) -> bool:
    """Whether two stored rounds, model and all that is kept, have the same bytes."""
    salt = bytes(32)
    return files_of_round(0, *a, salt) == files_of_round(0, *b, salt)


def read_checkpoint(path: Path, round_number: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Model and state after a stored round of a run that is still growing."""
    memories = of_round(MEMORIES, round_number)
    found = as_tensors(read_form(path, of_round(CHECKPOINT, round_number)))
    return model_and_state(found | (as_tensors(read_form(path, memories)) if (path / memories).exists() else {}))


def model_and_state(tensors: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Model and state from the tensors of a stored round."""
    return tensors["vector"], {k.removeprefix("state."): v for k, v in tensors.items() if k.startswith("state.")}


UNKNOWN = -1
"""In the place of the id of a row that a prune took out."""


def population_tensors(population: Population, unknown: frozenset[int] = frozenset()) -> dict[str, Array]:
    """A population as three flat int64 arrays: client ids, where each client's samples end, sample ids.

    Ids that are ``unknown`` are stand-ins, and are written as ``UNKNOWN``.
    """
    counts = [len(population.samples[c]) for c in population.clients]
    samples = [UNKNOWN if s in unknown else s for c in population.clients for s in population.samples[c]]
    return {
        "clients": np.array(population.clients, dtype=np.int64),
        "ends": np.array(counts, dtype=np.int64).cumsum(),
        "samples": np.array(samples, dtype=np.int64),
    }


def population_of(tensors: Mapping[str, Array], path: Path) -> tuple[Population, frozenset[int]]:
    """The inverse of :func:`population_tensors`: a population, and which of its ids stand in for unknown ones.

    Stand-ins are the smallest ids that no client has, in order.

    Raises:
        EvidenceError: it is not one.
    """
    clients, ends, samples = (tensors[name].tolist() for name in ("clients", "ends", "samples"))
    starts = [0, *ends][:-1]
    known = [sample for sample in samples if sample != UNKNOWN]
    if (
        len(clients) != len(ends)
        or starts + ends[-1:] != sorted(starts + ends[-1:])
        or (ends[-1] if ends else 0) != len(samples)
        or len(set(known)) != len(known)
        or min(samples, default=0) < UNKNOWN  # would name a row from the end, which has an id already
        or clients != sorted(set(clients))
        or min(clients, default=0) < 0
    ):
        raise EvidenceError(f"{path} is not a partition: clients, ends and samples do not fit together")
    free = filterfalse(set(known).__contains__, count())
    ids = [next(free) if sample == UNKNOWN else sample for sample in samples]
    population = Population({c: tuple(ids[a:b]) for c, a, b in zip(clients, starts, ends, strict=True)})
    return population, frozenset(i for i, sample in zip(ids, samples, strict=True) if sample == UNKNOWN)


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


def recorded_tensors(sources: Mapping[int, Answers]) -> dict[str, Array]:
    """Recorded draws by the number of their source, as int64 arrays: one row a draw, where its ids end, ids."""
    items = [(number, at, ids) for number, answers in sorted(sources.items()) for at, ids in sorted(answers.items())]
    rows = [
        [number, RECORDABLE.index(at.purpose), at.round, at.step, at.client, at.occurrence] for number, at, _ in items
    ]
    return {
        "addresses": np.array(rows, dtype=np.int64).reshape(-1, 6),
        "ends": np.array([len(ids) for _, _, ids in items], dtype=np.int64).cumsum(),
        "ids": np.array([i for _, _, ids in items for i in ids], dtype=np.int64),
    }


def recorded_of(tensors: Mapping[str, Array]) -> dict[int, dict[Address, tuple[int, ...]]]:
    """The inverse of :func:`recorded_tensors`; ValueError when it is not one."""
    addresses, ends, ids = (tensors[name].tolist() for name in ("addresses", "ends", "ids"))
    sources: dict[int, dict[Address, tuple[int, ...]]] = {}
    for (number, purpose, *at), start, end in zip(addresses, [0, *ends][:-1], ends, strict=True):
        sources.setdefault(number, {})[Address(RECORDABLE[purpose], *at)] = tuple(ids[start:end])
    again = recorded_tensors(sources)
    if any(not np.array_equal(tensors[name], again[name]) for name in again):
        raise ValueError("recorded draws are not in order, or occur twice")
    return sources


def involvement_tensors(involvement: Involvement) -> dict[str, Array]:
    """First involvements as int64 arrays: rows (client, round) and (sample, round, step), sorted."""
    clients = sorted(involvement.clients.items())
    samples = sorted((s, at.round, at.step) for s, at in involvement.samples.items())
    return {
        "clients": np.array(clients, dtype=np.int64).reshape(-1, 2),
        "samples": np.array(samples, dtype=np.int64).reshape(-1, 3),
    }


def involvement_of(tensors: Mapping[str, Array]) -> Involvement:
    """The inverse of :func:`involvement_tensors`; ValueError when it is not one."""
    found = Involvement(
        dict(tensors["clients"].tolist()), {s: Position(r, e) for s, r, e in tensors["samples"].tolist()}
    )
    again = involvement_tensors(found)
    if any(not np.array_equal(tensors[name], again[name]) for name in again):
        raise ValueError("first involvements are not in order, or occur twice")
    return found


def received_tensors(received: Received) -> dict[str, Tensor | Array]:
    """What came of a round in messages; reasons are written as their places in ``REJECTED_FOR``."""

    def numbers(*values: int) -> Array:
        return np.array(values, dtype=np.int64)

    if received.counts is None:
        behind = {"places": numbers(*(received.places or ()))}
    else:
        behind = {"counts": numbers(*received.counts), "discarded": numbers(received.discarded)}
    rejected = [[client, REJECTED_FOR.index(why)] for client, why in received.rejected]
    agreed = {} if received.coordinates is None else {"coordinates": received.coordinates}
    return {
        "rows": received.rows,
        **behind,
        "absent": numbers(*received.absent),
        "rejected": np.array(rejected, dtype=np.int64).reshape(-1, 2),
        **agreed,
    }


def received_of(arrays: Mapping[str, Array], path: Path) -> Received:
    """The inverse of :func:`received_tensors`; EvidenceError where it is no record of a round."""
    tables = {name: array.tolist() for name, array in arrays.items() if name not in ("rows", "coordinates")}
    reasons, discarded = range(len(REJECTED_FOR)), tables.get("discarded", [0])
    if any(len(row) != 2 or row[1] not in reasons for row in tables["rejected"]) or len(discarded) != 1:
        raise EvidenceError(f"{path} names no known reason, or says twice how many sums were not taken")
    tensors = as_tensors({name: arrays[name] for name in ("rows", "coordinates") if name in arrays})
    return Received(
        tensors["rows"],
        tuple(tables["places"]) if "places" in tables else None,
        tuple(tables["counts"]) if "counts" in tables else None,
        tuple(tables["absent"]),
        tuple((client, REJECTED_FOR[why]) for client, why in tables["rejected"]),
        discarded[0],
        tensors.get("coordinates"),
    )
