"""Gather: from what an auditor gives to the evidence. The files that he gives are read here."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fuaudit.commitments.keys import beacon_of
from fuaudit.config import Config
from fuaudit.data.adversaries import turned
from fuaudit.data.dataset import Dataset, padded, require_sound
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import read_bytes, read_json, sha256
from fuaudit.runs.ancestors import lineage, parent_of
from fuaudit.runs.receipts import Receipt, opens_erased, read_receipt
from fuaudit.runs.roster import Roster, committed_keys, read_roster
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.training.setup import load_dataset
from fuaudit.verification.erased_rows import require_ids_of
from fuaudit.verification.evidence import Before, Evidence, Known
from fuaudit.verification.finding import require_findings
from fuaudit.verification.given import Given
from fuaudit.verification.model_in_use import read_model_in_use

T = TypeVar("T")
Above = Run | Tombstone | None


def gather(run: Run, given: Given) -> Evidence:
    """The evidence: the lineage, the rows and what the auditor knows.

    Raises:
        EvidenceError: the parent, a receipt, a model or findings from before cannot be what they are said to be.
        UsageError: data that cannot be read, or something that has nothing to do with the run.
    """
    parent = parent_of(run, as_path(given.get("parent")))
    chain = (run, *lineage(parent))
    known_rows = max((one.rows for one in chain if isinstance(one, Run) and not one.sealed), default=0)
    model, before, beacon = given.get("model"), given.get("before"), given.get("beacon")
    commitment, head = digest_of(given.get("commitment")), digest_of(given.get("ledger_head"))
    roster = given.get("roster")
    receipts = receipts_in(run, [Path(path) for path in given.get("receipts", ())], commitment)
    # no row could be compared with what a sealed view was committed to, so none is at hand for it
    read = None if run.sealed else rows_at_hand(run.config, given, known_rows, _clients_rows(chain[-1]))
    dataset = read and turned(read, run.config.adversary, owners_known(chain, receipts))
    known = Known(
        commitment,
        given.get("request"),
        None if beacon is None else beacon_of(beacon),
        receipts,
        None if model is None else read_model_in_use(Path(model), run),
        None if before is None else findings_before(Path(before), run, parent),
        None if roster is None else roster_for(run, Path(roster)),
        given.get("erased") is not None,
        isinstance(given.get("data"), Dataset),
        isinstance(given.get("data"), Path | str),
        head,
    )
    return Evidence(run, parent, dataset, known)


def roster_for(run: Run, path: Path) -> Roster:
    """A list of parties and keys to compare a run with; UsageError where nobody signs in its rounds."""
    committed_keys(run)
    return read_roster(path)


def digest_of(told: str | None) -> str | None:
    """A digest as it is written in ledgers, however it was copied; None for none."""
    return None if told is None else told.strip().lower()


def as_path(given: Path | str | None) -> Path | None:
    """A path that may be missing."""
    return None if given is None else Path(given)


def owners_known(chain: Sequence[Run | Tombstone], receipts: Sequence[Receipt]) -> dict[int, int]:
    """Row -> client when training started, by the runs of a lineage; of rows that these lack, by receipts."""
    found = {row.id: receipt.client for receipt in receipts for row in receipt.rows}
    for run in chain:
        found |= run.owner if isinstance(run, Run) and not run.sealed else {}
    return found


def _clients_rows(oldest: Run | Tombstone) -> Container[int] | None:
    """The ids of all rows that a client had when training began; None where they are not known."""
    whole = isinstance(oldest, Run) and not oldest.is_child and not oldest.pruned and not oldest.sealed
    return oldest.original.owner if isinstance(oldest, Run) and whole else None


def rows_at_hand(config: Config, given: Given, rows: int, clients: Container[int] | None) -> Dataset | None:
    """The rows at hand, of so many at least; None when the dataset needs a folder and none was given.

    Where the rows of all clients are known, the folder of erased rows adds no others: nothing was committed to of them.
    """
    data, erased = given.get("data"), as_path(given.get("erased"))
    if isinstance(data, Dataset):
        require_sound(data)
        return padded(data, rows)
    try:
        found = load_dataset(config, as_path(data))
    except UsageError:
        if data is not None or erased is not None:
            raise
        return None
    found = padded(found, rows)
    return found if erased is None else with_erased(found, load_dataset(config, erased), clients)


def with_erased(data: Dataset, other: Dataset, clients: Container[int] | None = None) -> Dataset:
    """The dataset with the rows that it lacks taken from another, whose owners are not believed.

    Raises:
        UsageError: the two are not of one kind.
    """
    other = padded(other, data.size)
    data = padded(data, other.size)
    if (other.shape, other.inputs.dtype) != (data.shape, data.inputs.dtype):
        raise UsageError("--erased holds another dataset than --data: their inputs differ in shape or type")
    found = [row for row in sorted(data.absent - other.absent) if clients is None or row in clients]
    data.inputs[found], data.targets[found] = other.inputs[found], other.targets[found]
    return replace(data, absent=data.absent.difference(found))


def receipts_in(run: Run, paths: Sequence[Path], commitment: str | None) -> tuple[Receipt, ...]:
    """The receipts in some files that are of the run.

    One that is under the commitment which the auditor received, where the run is not, is left out: the run is a FAIL.

    Raises:
        UsageError: one is of somebody of whom nothing was to be forgotten.
        EvidenceError: one is under another commitment, or gives other ids than the partition.
    """
    found = tuple(map(read_receipt, paths))
    for path, receipt in zip(paths, found, strict=True):
        if not opens_erased(receipt, run):
            raise UsageError(
                f"{path} is the receipt of {receipt.whose!r}, client {receipt.client}, whom no request names",
                "Give receipts of those whom the requests of this run name.",
            )
        if receipt.commitment == run.commitment:
            require_ids_of(run, receipt)
        elif receipt.commitment != commitment:
            raise EvidenceError(
                f"{path} is a receipt under another commitment than {run.path}: {receipt.commitment}, "
                f"not {run.commitment}; it shows nothing of this run",
                "Leave it out. Which of the two was published before training is compared with --commitment HEX.",
            )
    return tuple(receipt for receipt in found if receipt.commitment == run.commitment)


def findings_before(path: Path, run: Run, above: Above) -> Before:
    """Findings from before a prune of a run of the lineage; EvidenceError when the file holds none.

    Raises:
        UsageError: no run at hand was pruned.
    """
    document = require_findings(read_json(path), path)
    if not any(isinstance(one, Run) and one.pruned for one in (run, *lineage(above))):
        raise UsageError(f"{run.path} was never pruned, nor was an ancestor at hand", "Leave --before out.")
    return Before(document, sha256(read_bytes(path)))
