"""Equal rows: what was to be forgotten may lie among the retained rows once more, under another id or another owner.

Where erased rows are at hand and open their leaves, their inputs are compared as numbers, whatever the label. A
client's receipt is tried in any case: every retained row under each of her salts, one hash each, bits of inputs and
label together. Leaves alone cannot be compared with each other; that is what their salts are for. Near copies are not
looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fuaudit.commitments.contents import row_digests
from fuaudit.data.dataset import Dataset
from fuaudit.runs.receipts import Receipt, Row, held_by
from fuaudit.runs.run import Run
from fuaudit.verification.athand import AtHand, to_be_forgotten

NEAR = "Near copies are not looked for; by receipts only equal bits are found."
NO_NEAR = "No retained row is a near copy of an erased one: they are not looked for."

HERS = "Salts and ids of the receipts are those that the clients were given: the commitment covers neither."
"""What a comparison by receipts assumes: with other salts no row fits."""


@dataclass(frozen=True)
class Equal:
    """What a comparison of retained rows with erased ones found.

    Attributes:
        pairs: ids of retained rows, with those of the erased rows that they equal.
        compared: how many erased rows at hand were compared: those that open their leaves.
        opened: how many were compared by receipts, at hand or not.
        known: how many were compared one way or the other.
        unknown: how many erased rows were not compared.
        others: rows at hand under erased ids that were not compared: not known to be what was committed to.
    """

    pairs: tuple[tuple[int, int], ...]
    compared: int
    opened: int
    known: int
    unknown: int
    others: AtHand


def equal_rows(run: Run, dataset: Dataset, erased: AtHand, receipts: Sequence[Receipt]) -> Equal:
    """Compare all retained rows at hand with all rows that any request up to this run took out.

    Args:
        erased: what lies under the ids of erased rows in ``dataset``.
        receipts: under the commitment of the run.
    """
    retained = [row for row in sorted(run.plan.retained.owner) if row < dataset.size and row not in dataset.absent]
    opened = [found for receipt in receipts for found in to_be_forgotten(run, receipt)]
    total = run.contents.rows.shape[0] - run.plan.retained.size
    by_receipt = {place for place, _ in opened}
    known = len(by_receipt | set(erased.places.values()))
    pairs = {
        *_by_inputs(dataset, retained, sorted(erased.places)),
        *_by_receipt(dataset, retained, [row for _, row in opened]),
    }
    return Equal(tuple(sorted(pairs)), len(erased.places), len(by_receipt), known, total - known, erased)


def _by_inputs(dataset: Dataset, retained: list[int], erased: list[int]) -> Iterable[tuple[int, int]]:
    """Pairs with inputs that are equal as numbers, whatever their labels."""
    if not erased:
        return

    def digests(rows: list[int]) -> list[bytes]:
        return row_digests(_one_zero(dataset.inputs[torch.tensor(rows)]), torch.zeros(len(rows), dtype=torch.int64))

    first = dict(zip(reversed(digests(erased)), reversed(erased), strict=True))
    for row, digest in zip(retained, digests(retained) if retained else [], strict=True):
        if digest in first:
            yield row, first[digest]


def _one_zero(inputs: Tensor) -> Tensor:
    """Inputs with 0.0 for -0.0: two numbers are equal where their bits are, but for these."""
    return inputs + 0 if inputs.is_floating_point() else inputs


def _by_receipt(dataset: Dataset, retained: list[int], opened: Sequence[Row]) -> Iterable[tuple[int, int]]:
    """Pairs of a retained row and a row of a receipt that hold the same."""
    if not opened or not retained:
        return
    at = torch.tensor(retained)
    digests = row_digests(dataset.inputs[at], dataset.targets[at])
    yield from held_by(opened, dict(zip(retained, digests, strict=True)))
