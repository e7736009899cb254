"""A head of a ledger that an auditor kept: whether a line still has it, and which rounds it holds fast.

Every line holds the digest of the line before. So whoever kept the digest of one line sees whether any line up to it is
another one now: rounds, their models, and the heads of the transcript of messages. Lines behind it are as told.
"""

from __future__ import annotations

from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.verification.case import Case

KEPT_IN_TIME = (
    "The head given by --ledger-head was kept when its line was written: one that was received later shows only that "
    "nothing was changed since."
)


def head(case: Case) -> CheckResult:
    """A line of the ledger, or of that of an ancestor, has the head that the auditor kept."""
    if case.known.ledger_head is None:
        return holds("No head of the ledger from outside was given.")
    if (found := _line(case)) is not None:
        run, line = found
        lines = f"{line} of {len(run.ledger.events)}"
        return holds(f"Line {lines} of the ledger of {name_of(run)} has the head given by --ledger-head.", KEPT_IN_TIME)
    whose = f"{name_of(case.run)}{' or of an ancestor' * case.run.is_child}"
    if not case.evidence.complete_lineage:
        return unclear(
            f"No line of the ledger of {whose} at hand has the head given by --ledger-head, and an ancestor is "
            "missing: give the parent's folder with --parent."
        )
    return fails(
        f"No line of the ledger of {whose} has the head given by --ledger-head: it was written anew after that was "
        "kept, or its end was cut off, or the head is of another run."
    )


def held_rounds(case: Case) -> int:
    """How many of the rounds that the run executed itself, from its first on, are told by lines up to the kept head."""
    found = _line(case)
    if found is None or found[0] is not case.run:
        return 0
    return sum(event["event"] == "round" for event in case.run.ledger.events[: found[1]])


def _line(case: Case) -> tuple[Run | Tombstone, int] | None:
    """Whose ledger has a line with the kept head, and its number; None for none."""
    if (kept := case.known.ledger_head) is not None:
        for run in (case.run, *case.evidence.ancestors):
            if line := run.ledger.line_with(kept):
                return run, line
    return None
