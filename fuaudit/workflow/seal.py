"""Seal: what the server may be given of a run, and what opens its commitment to the server. An auditor can be given it.

It holds no key, no row, no name, and no partition. It has the manifest and the digest of the run. Contexts of requests
that name samples have no salt: whoever tries clients and places finds whose these were.
"""

from __future__ import annotations

from pathlib import Path

from fuaudit.commitments.view import View
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.runs.layout import PARTITION, VIEW, form_of, is_withheld
from fuaudit.runs.run import Run, load_run
from fuaudit.workflow.writer import copy_without


def seal(run: Run | Path | str, out: Path | str) -> Run:
    """Write what the server may be given of a run to another folder. It has the same manifest and the same digest.

    Raises:
        UsageError: it is a sealed view already, rounds of it came in messages, its clients have no secrets, or the
            folder exists or lies in a run.
        EvidenceError: the run does not check out, or its ledger names another commitment than it holds.
    """
    whole, out = run if isinstance(run, Run) else load_run(run), Path(out)
    if whole.sealed:
        raise UsageError(f"{whole.path} is a sealed view already", "Copy its folder.")
    if whole.received_rounds:
        raise UsageError(
            f"rounds of {whole.path} came in messages, and who was drawn for them is not in a sealed view",
            "Give an auditor the redacted run: fuaudit redact.",
        )
    if not whole.exchange.has_secrets:
        raise UsageError(
            f"clients of {whole.path} have no secrets, so the digest of {PARTITION} in its manifest has no salt: "
            "whoever has it can try who has which rows",
            "Runs whose clients have secrets are sealed, as all behind sums are. Give an auditor who may know who has "
            "which rows the redacted run: fuaudit redact.",
        )
    if whole.commitment != whole.ledger.events[0]["commitment"]:
        raise EvidenceError(f"the ledger of {whole.path} names another commitment than its keys and contents make")
    view = View.of(whole.contents, whole.keys, whole.contexts[1:])
    copy_without(whole, out, is_withheld, {VIEW: form_of(VIEW).write(view.table())})
    return load_run(out)
