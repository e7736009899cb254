"""What every check of provenance gives, and words that several of them use."""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.verification.finding import Verdict

BEFORE = "before the prune, by the findings given with --before"
"""Words for what rests on such findings."""

NOT_SHOWN = "It was not shown before the prune"
"""Words for what would rest on such findings, which are missing or do not fit."""


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one question of this audit.

    Attributes:
        trusts: what it takes on trust, where it does.
        before: whether findings from before a prune show it, and nothing in the run does.
    """

    verdict: Verdict
    text: str
    trusts: str = ""
    before: bool = False


def holds(text: str, trusts: str = "") -> CheckResult:
    """Yes, and what that takes on trust."""
    return CheckResult(Verdict.PASS, text, trusts)


def not_compared(text: str) -> CheckResult:
    """Nothing was there to compare with: neither yes nor no, and no verdict hangs on it."""
    return CheckResult(Verdict.NOT_APPLICABLE, text)


def fails(text: str) -> CheckResult:
    """No."""
    return CheckResult(Verdict.FAIL, text)


def unclear(text: str) -> CheckResult:
    """Something is missing that could tell."""
    return CheckResult(Verdict.INCONCLUSIVE, text)


def name_of(run: Run | Tombstone) -> str:
    """The folder of a run, without those above it."""
    return run.path.name
