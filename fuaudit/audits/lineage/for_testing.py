"""Test rows: no request removes them, and some may be of whoever was to be forgotten. They are counted where known."""

from __future__ import annotations

from fuaudit.data.dataset import Dataset
from fuaudit.runs.run import Run
from fuaudit.text import counted
from fuaudit.verification.case import Case

IN_USE = "Figures are measured on test rows, which no request removes; some may be of whoever was to be forgotten."
READ = "The method read the test rows (server data)"


def hers(case: Case) -> str:
    """How many test rows are of clients that were to be forgotten, in words; "" where there is none or nobody knows."""
    clients = sorted({client for request in case.run.requests for client in request.clients})
    if case.dataset is None or not clients or not _are_owners(case.run, case.dataset):
        return ""
    owners = [] if case.dataset.test_owners is None else case.dataset.test_owners.tolist()
    count = sum(owner in clients for owner in owners)
    were = "was" if len(clients) == 1 else "were"
    whose = f"{', '.join(map(case.run.called, clients))}, who {were} to be forgotten"
    return (
        f"{count:,} of {counted(len(owners), 'test row')} {'is' if count == 1 else 'are'} of {whose}" if count else ""
    )


def _are_owners(run: Run, data: Dataset) -> bool:
    """Whether clients have the numbers of the owners of their rows, as far as these are at hand."""
    if data.owners is None:
        return False
    owners = data.owners.tolist()
    retained = run.plan.retained.owner.items()
    return all(owners[row] in (client, -1) for row, client in retained if row < data.size)


def read_by(case: Case) -> tuple[str, ...]:
    """What is said of an editor that was given the test rows."""
    if not case.evidence.is_editor or "server data" not in case.evidence.unlearner.needs:
        return ()
    return (f"{READ}: {hers(case) or 'whose they are is not known'}.",)
