"""The partition dealt again, from the rows at hand, where these can show it.

A leaf binds a row to its client, so who owned an erased row is what was committed to, whatever the folder says that
holds it now. A partition that comes out otherwise convicts only where the rows it was dealt from open their leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from fuaudit import registry
from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.commitments.contents import compare
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import by_owners, names_of, partition
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Population
from fuaudit.runs.run import Run
from fuaudit.text import counted
from fuaudit.verification.case import Case

TAKEN = "The partition was not dealt again, but taken from the commitment"


def with_key(case: Case) -> Run | None:
    """The oldest run of the lineage that holds the key of the partition; None where prunes destroyed all copies."""
    runs = (run for run in reversed((case.run, *case.evidence.ancestors)) if isinstance(run, Run))
    return next((run for run in runs if run.keys.partition is not None), None)


def dealt_again(case: Case, root: Run, key: bytes) -> CheckResult:
    """Whether a lineage has the partition that its key deals; the data is at hand.

    Args:
        root: the oldest run that holds the key: the training run, or, where that was pruned, a child.
    """
    data, dealer = case.evidence.rows, registry.build("partitions", root.config.partition)
    whole = f"The parent of {name_of(root)} was pruned" if root.is_child else f"{name_of(root)} was drawn as a whole"
    if data.absent:
        return holds(f"{whole}.", f"{TAKEN}: {counted(len(data.absent), 'row is', 'rows are')} not at hand.")
    if by_owners(dealer) and data.owners is None:
        return holds(f"{whole}.", f"{TAKEN}: nothing at hand says whose the rows are.")
    doubtful = len(case.evidence.at_hand.other) + len(case.evidence.at_hand.unknown)
    try:
        dealt = [partition(dealer, rows, Keyed(key)) for rows in _owned(case, root, dealer)]
    except UsageError:
        if not doubtful:
            raise
        dealt = []
    if any(found.samples == root.original.samples for found in dealt):
        if root.opening.names is None and names_of(dealer, data, root.original) is not None:
            return fails(f"Clients of {name_of(root)} have other names than the owners of their rows.")
        return holds(f"{whole}; the partition follows from its key.")
    told = any(_opens(root, found, data) for found in dealt)
    if doubtful and not told:
        rows = counted(doubtful, "row at hand under an erased id is", "rows at hand under erased ids are")
        return holds(f"{whole}.", f"{TAKEN}: {rows} not known to be what was committed to.")
    if case.known.erased and not told:
        return unclear(
            f"From the rows at hand the key of {name_of(root)} deals another partition; rows that no client had may be "
            "missing beside those of --erased: give the whole data."
        )
    return fails(f"The partition of {name_of(root)} is not the one that its key deals.")


def _opens(root: Run, dealt: Population, data: Dataset) -> bool:
    """Whether the rows at hand are those committed to if this was the partition: then the run tells another one."""
    same = dealt.clients == root.contents.clients
    return same and not compare(root.contents, root.opening, dealt, dealt.samples, data).rows


def _owned(case: Case, root: Run, dealer: Any) -> Iterator[Dataset]:
    """The rows at hand with their owners: by the numbers that the data gives them, then by those of their names."""
    data = case.evidence.rows
    if not by_owners(dealer) or data.owners is None:
        yield data
        return
    yield _as_committed(case, data)
    owners, clients = data.owners, {name: client for client, name in (root.opening.names or {}).items()}
    numbers = [clients.get(name, -1) for name in data.owner_names]
    used = owners[owners >= 0].unique().tolist()
    if numbers and all(owner < len(numbers) and numbers[owner] >= 0 for owner in used):
        renumbered = owners.new_tensor([*numbers, -1])[owners]  # -1, for nobody, finds the last
        yield _as_committed(case, replace(data, owners=renumbered))


def _as_committed(case: Case, data: Dataset) -> Dataset:
    """The dataset with the owners committed to where it names none, for erased rows that open their leaves."""
    owners = torch.as_tensor(data.owners).clone()
    for row, (client, _) in case.evidence.at_hand.places.items():
        if owners[row] < 0:
            owners[row] = client
    return replace(data, owners=owners)
