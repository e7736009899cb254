"""Equal rows: what was to be forgotten may lie among the retained rows once more, under another id or another owner.

Where erased rows are at hand and open their leaves, their inputs are compared as numbers, whatever the label. A
client's receipt is tried in any case: every retained row under each of her salts, one hash each, bits of inputs and
label together. Leaves alone cannot be compared with each other; that is what their salts are for. Near copies are not
looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fuaudit.audits.replay.judgement import Judgement
from fuaudit.commitments.contents import row_digests
from fuaudit.data.dataset import Dataset
from fuaudit.runs.receipts import Receipt, Row, held_by
from fuaudit.runs.run import Run
from fuaudit.text import counted, span
from fuaudit.verification.case import Case
from fuaudit.verification.erased_rows import AtHand, of_nobody_retained, to_be_forgotten
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Verdict
from fuaudit.verification.shared_steps import ROWS_AT_ONCE, bits_of

NEAR = "Near copies are not looked for; by receipts only equal bits are found."
NO_NEAR = "No retained row is a near copy of an erased one: they are not looked for."

HERS = "Salts and ids of the receipts are those that the clients were given: the commitment covers neither."
"""What a comparison by receipts assumes: with other salts no row fits."""

MOST_EQUAL = 20
"""How many equal rows a finding lists."""


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
        left: ids of rows at hand that may be erased ones, and were not opened.
        nobodys: how many other rows at hand are of no client of the run: nothing was committed to of them.
    """

    pairs: tuple[tuple[int, int], ...]
    compared: int
    opened: int
    known: int
    unknown: int
    others: AtHand
    left: tuple[int, ...] = ()
    nobodys: int = 0


def equal_rows(run: Run, dataset: Dataset, erased: AtHand, receipts: Sequence[Receipt]) -> Equal:
    """Compare all retained rows at hand with all rows that any request up to this run took out.

    Args:
        erased: what lies under the ids of erased rows in ``dataset``.
        receipts: under the commitment of the run.
    """
    size, absent = dataset.size, dataset.absent
    retained = [row for row in sorted(run.plan.retained.owner) if row < size and row not in absent]
    opened = [found for receipt in receipts for found in to_be_forgotten(run, receipt)]
    total = run.contents.rows.shape[0] - run.plan.retained.size
    by_receipt = {place for place, _ in opened}
    known = len(by_receipt | set(erased.places.values()))
    pairs = {
        *_by_inputs(dataset, retained, sorted(erased.places)),
        *_by_receipt(dataset, retained, [row for _, row in opened]),
    }
    left = of_nobody_retained(run, erased, dataset)
    nobodys = dataset.size - len(dataset.absent | run.original.owner.keys() | {*left, *erased.moved})
    compared = len(erased.places), len(by_receipt), known, total - known
    return Equal(tuple(sorted(pairs)), *compared, erased, left, nobodys)


def _by_inputs(dataset: Dataset, retained: list[int], erased: list[int]) -> Iterable[tuple[int, int]]:
    """Pairs with inputs that are equal as numbers, whatever their labels."""
    if not erased or not retained:
        return
    # sums sort out most rows at a tenth of the cost of digests: equal bits have equal sums
    alike = torch.isin(_sums(dataset, retained), _sums(dataset, erased))
    retained = torch.tensor(retained)[alike].tolist()
    if not retained:
        return

    def digests(rows: list[int]) -> list[bytes]:
        return row_digests(_one_zero(dataset.inputs[torch.tensor(rows)]), torch.zeros(len(rows), dtype=torch.int64))

    first = dict(zip(reversed(digests(erased)), reversed(erased), strict=True))
    for row, digest in zip(retained, digests(retained), strict=True):
        if digest in first:
            yield row, first[digest]


def _sums(dataset: Dataset, rows: list[int]) -> Tensor:
    """The sum of the bits of each row's inputs, read as whole numbers, ``(n,)``."""
    some = torch.tensor(rows).split(ROWS_AT_ONCE)
    bits = (bits_of(_one_zero(dataset.inputs[at])) for at in some)
    return torch.cat([each.flatten(1).sum(dim=1, dtype=torch.int64) for each in bits])


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


def with_equal_rows(case: Case, judged: Judgement, fails: bool) -> Judgement:
    """The judgement, and what is known of retained rows that equal erased ones; with ``fails`` one makes a FAIL."""
    if not case.run.is_child:
        return judged
    if case.dataset is None:
        return replace(judged, details=(*judged.details, "Retained rows were not compared with erased ones."))
    found = equal_rows(case.run, case.dataset, case.evidence.at_hand, case.known.receipts)
    return _with_verdict(_with_words(case, judged, found), found, fails)


def _with_words(case: Case, judged: Judgement, found: Equal) -> Judgement:
    """The judgement with the figures, lines and assumptions of a comparison."""
    unknown = (
        f"No retained row equals one of {found.unknown} erased rows, which nothing opens: "
        f"{counted(len(found.left), 'row')} at hand may be of them."
        if found.left
        else f"No retained row equals one of {found.unknown} erased rows, which are neither at hand under their ids "
        "nor opened."
    )
    assumed = ((unknown,) if found.unknown else ()) + ((HERS,) if found.opened else ()) + (NO_NEAR,)
    return replace(
        judged,
        figures=(*_figures(found), *judged.figures),
        assumptions=(*judged.assumptions, *assumed),
        details=(
            *(_equal_in_words(case, *pair) for pair in found.pairs[:MOST_EQUAL]),
            *judged.details,
            f"Retained rows were compared with {found.compared} erased rows at hand and {found.opened} by receipts. "
            + NEAR,
            *_not_compared(found),
        ),
    )


def _with_verdict(judged: Judgement, found: Equal, fails: bool) -> Judgement:
    """The judgement with what equal rows do to its verdict, or to the sentence of its PASS."""
    if not found.pairs and found.unknown and fails and judged.verdict is Verdict.PASS:
        # a spec that refuses equal rows has to know that there are none: what was not looked at shows nothing
        rows = counted(found.unknown, "row that was to be forgotten is", "rows that were to be forgotten are")
        shows = (
            f"{rows} opened by nothing: none was compared. {counted(len(found.left), 'row')} at hand may be of them."
            if found.left
            else f"{rows} neither at hand under their ids nor opened: none was compared."
        )
        return replace(judged, verdict=Verdict.INCONCLUSIVE, shows=shows)
    if not found.pairs:
        return judged
    equal = len({kept for kept, _ in found.pairs})
    shows = f"{counted(equal, 'retained row equals rows', 'retained rows equal rows')} that were to be forgotten."
    if fails:
        return replace(judged, verdict=Verdict.FAIL, shows=shows)
    unasked = f"{shows} Their owners did not ask, and models follow from them."
    return replace(judged, qualification=f"{unasked} {judged.qualification}".strip())


def _figures(found: Equal) -> tuple[Figure, ...]:
    return (
        Figure(
            "equal_rows",
            "Retained rows that equal rows in question",
            len(found.pairs),
            "by their inputs where those at hand open their leaves, and by receipts; near copies are not looked for",
        ),
        Figure(
            "compared_rows",
            "Rows in question that retained ones were compared with",
            found.known,
            "those at hand that open their leaves, and those of receipts; each counted once",
        ),
    )


def _not_compared(found: Equal) -> Iterator[str]:
    """Rows at hand under erased ids that were not compared, in words."""
    for rows, why in (
        (found.others.other, "open no leaf of the commitment: they are other rows"),
        (found.others.unknown, "cannot be told from other rows: no salt is left that opens their leaves"),
    ):
        if rows:
            yield f"{len(rows)} rows at hand under erased ids {why}, and were not compared: {span(rows)}"
    if found.others.moved:
        copies = counted(len(found.others.moved), "copy", "copies")
        yield f"{copies} of erased rows at hand under ids of no retained client: {span(found.others.moved)}"
    if found.nobodys:
        rows_are = counted(found.nobodys, "row at hand is", "rows at hand are")
        yield f"{rows_are} of no client of the run, and may hold anything: nothing was committed to of them"


def _equal_in_words(case: Case, kept: int, erased: int) -> str:
    owner = case.run.called(case.run.plan.retained.owner[kept])
    return f"row {kept} of {owner} equals the erased row {erased}"
