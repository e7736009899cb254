"""Seal: what the server may be given of a run, and what opens its commitment to the server. An auditor can be given it.

It holds no key, no row, no name, and no partition. It has the manifest and the digest of the run. Contexts of requests
that name samples have no salt: whoever tries clients and places finds whose these were.
"""

from __future__ import annotations

from pathlib import Path

from fuaudit.commitments.view import View
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import claimed, read_bytes, write_bytes
from fuaudit.runs.layout import LEDGER, MANIFEST, PARTITION, VIEW, form_of, is_withheld, mode_of
from fuaudit.runs.manifest import limit_of
from fuaudit.runs.run import Run, load_run
from fuaudit.workflow.writer import copy_transcript, require_new


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
    require_new(out)
    with claimed(out):
        for name in whole.files:
            if not is_withheld(name):
                write_bytes(out / name, whole.read(name), mode=mode_of(name))
        copy_transcript(whole.path, out)
        view = View.of(whole.contents, whole.keys, whole.contexts[1:])
        write_bytes(out / VIEW, form_of(VIEW).write(view.table()), mode=mode_of(VIEW))
        # the manifest last: without it a folder is no run
        for name in (LEDGER, MANIFEST):
            write_bytes(out / name, read_bytes(whole.path / name, limit_of(name)), mode=mode_of(name))
    return load_run(out)
