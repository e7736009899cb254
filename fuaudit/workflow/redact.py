"""Redact: a run without what is the clients' own. It still has keys and partition: it is for archives and auditors."""

from __future__ import annotations

from pathlib import Path

from fuaudit.errors import UsageError
from fuaudit.runs.layout import CLIENTS, KEYS, is_clients_own
from fuaudit.runs.run import Run, load_run
from fuaudit.workflow.writer import copy_without


def redact(run: Run | Path | str, out: Path | str) -> Run:
    """Write a run to another folder without what is the clients' own. It has the same manifest and the same digest.

    Raises:
        UsageError: there is nothing to leave out, or the folder exists or lies in a run.
        EvidenceError: the run does not check out.
    """
    whole, out = run if isinstance(run, Run) else load_run(run), Path(out)
    if not any(map(is_clients_own, whole.files)):
        raise UsageError(
            f"in the rounds of {whole.path} clients keep and draw nothing, so there is nothing to leave out",
            f"It holds the seeds of draws ({KEYS}) and who is who ({CLIENTS}): these are for an auditor, not a server.",
        )
    copy_without(whole, out, is_clients_own)
    return load_run(out)
