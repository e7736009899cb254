"""Erased rows at hand: those that open their leaves, and those of which nobody can say that.

A folder may hold anything under the id of an erased row. The commitment says what was there: a row counts as the
erased one where its leaf opens under a salt of the run, of an ancestor at hand, or of a client's receipt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fuaudit.commitments.contents import Candidate, committed, row_digests
from fuaudit.data.dataset import Dataset
from fuaudit.errors import EvidenceError
from fuaudit.runs.receipts import Receipt, Row, held_by
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone

Place = tuple[int, int]
"""A client, and the number of one of her rows at training, from 0: a leaf."""


@dataclass(frozen=True)
class AtHand:
    """What lies under the ids of erased rows.

    Attributes:
        places: id -> place, of the rows that open their leaves.
        other: ids of rows that do not open their leaves under any salt at hand, ascending.
        unknown: ids of rows of which no salt is left to open them with, ascending.
        moved: ids that no client of the run has retained, under which an erased row lies that has another id.
    """

    places: dict[int, Place]
    other: tuple[int, ...]
    unknown: tuple[int, ...]
    moved: tuple[int, ...] = ()


MOST_TRIED = 2**22
"""Pairs of an erased row and a row of no retained client that are tried, at most: a few seconds."""


def at_hand(run: Run, above: Sequence[Run | Tombstone], receipts: Iterable[Receipt], dataset: Dataset) -> AtHand:
    """Open the leaves of all rows that any request up to this run took out, as far as rows and salts are at hand."""
    holders = [run, *(one for one in above if isinstance(one, Run) and _alike(one, run))]
    places, candidates, known = list[Place](), list[Candidate](), set[Row]()
    for client in sorted(run.contents.clients):
        erased = _erased_places(run, client)
        if not erased:
            continue
        leaves = run.contents.leaves_of(client)
        hers = [receipt.rows for receipt in receipts if receipt.client == client]
        salts = [[row.salt for row in rows] for rows in hers] + [_salts(one, client) for one in holders]
        ids = [[row.id for row in rows] for rows in hers] + [_ids(one, client) for one in holders]
        for place in erased:
            known |= {
                Row(row, salt, leaves[place])
                for numbers, column in zip(ids, salts, strict=True)
                if (row := numbers[place]) is not None and (salt := column[place]) is not None
            }
            given = tuple({column[place]: None for column in salts})
            for row in sorted({number for column in ids if (number := column[place]) is not None}):
                if row < dataset.size and row not in dataset.absent:
                    places.append((client, place))
                    candidates.append(Candidate(row, leaves[place], given))
    found = _sorted_out(places, candidates, committed(candidates, dataset))
    return replace(found, moved=_moved(run, known, dataset, found.places))


def _moved(run: Run, known: Collection[Row], dataset: Dataset, opened: Collection[int]) -> tuple[int, ...]:
    """Ids of no retained client under which an erased row lies that is ``known``; none where that are too many."""
    kept = run.plan.retained.owner
    left = [row for row in range(dataset.size) if not (row in dataset.absent or row in kept or row in opened)]
    if not left or len(left) * len(known) > MOST_TRIED:
        return ()
    digests = row_digests(dataset.inputs[left], dataset.targets[left])
    return tuple(sorted({row for row, _ in held_by(tuple(known), dict(zip(left, digests, strict=True)))}))


def of_nobody_retained(run: Run, opened: AtHand, dataset: Dataset) -> tuple[int, ...]:
    """Ids of rows at hand that may be erased ones, and that no leaf was opened for: no retained client has them.

    A prune takes the ids of erased rows out. Then each row that no retained client has may be one of them, but for
    those that do not open a leaf which they should.
    """
    kept, known = run.plan.retained.owner, {*opened.places, *opened.other, *opened.moved}
    erased = run.original.owner.keys() - kept.keys() - run.stand_ins
    return tuple(
        row
        for row in range(dataset.size)
        if row not in dataset.absent and row not in kept and row not in known and (run.stand_ins or row in erased)
    )


def _sorted_out(places: list[Place], candidates: list[Candidate], opened: list[bool | None]) -> AtHand:
    same = {c.row: place for place, c, opens in zip(places, candidates, opened, strict=True) if opens}
    rest = {c.row: opens for c, opens in zip(candidates, opened, strict=True) if c.row not in same}
    other = tuple(sorted(row for row, opens in rest.items() if opens is False))
    return AtHand(same, other, tuple(sorted(row for row, opens in rest.items() if opens is None)))


def _erased_places(run: Run, client: int) -> list[int]:
    """The places of a client's rows that some request took out; none where the partition is not that of the leaves."""
    ids = run.original.samples.get(client, ())
    if len(ids) != run.contents.sizes[run.contents.rank(client)]:
        return []
    kept = set(run.plan.retained.samples.get(client, ()))
    return [place for place, row in enumerate(ids) if row not in kept]


def _alike(above: Run, run: Run) -> bool:
    """Whether an ancestor has the leaves of a run, and as many rows a client."""
    sizes = {client: len(ids) for client, ids in run.original.samples.items()}
    return (
        above.contents.root == run.contents.root
        and {client: len(ids) for client, ids in above.original.samples.items()} == sizes
    )


def _ids(run: Run, client: int) -> list[int | None]:
    """The ids of a client's rows at training, None for those that a prune took out."""
    return [None if row in run.stand_ins else row for row in run.numbered(client)]


def _salts(run: Run, client: int) -> list[bytes | None]:
    where = run.contents.salts_of(client)
    return run.opening.salts.between(where.start + 1, where.stop)


def to_be_forgotten(run: Run, receipt: Receipt) -> list[tuple[Place, Row]]:
    """The rows of a receipt that some request took out, by the places that their leaves have in the commitment."""
    erased = _erased_places(run, receipt.client) if receipt.client in run.contents.clients else []
    return [((receipt.client, place), receipt.rows[place]) for place in erased]


def require_ids_of(run: Run, receipt: Receipt) -> None:
    """Raises EvidenceError where a receipt gives other ids than the partition, as far as that still has them.

    A commitment covers ids by leaves alone, which nobody can open without the row.
    """
    if receipt.client not in run.original.samples:
        raise EvidenceError(
            f"the receipt of {receipt.whose!r} is of client {receipt.client}, whom the run does not have"
        )
    known = _ids(run, receipt.client)
    given = [row.id for row in receipt.rows]
    if len(known) != len(given) or any(ours not in (None, theirs) for ours, theirs in zip(known, given, strict=True)):
        raise EvidenceError(
            f"the receipt of {receipt.whose!r} gives her rows other ids than the partition of {run.path}",
            "One of the two was altered: compare the receipt with her rows (fuaudit receipt --check).",
        )
