"""Effort: how much an auditor spends, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fuaudit.progress import Progress, silent
from fuaudit.workers import IN_PROCESS, Executor

Stopping = Literal["fixed", "decided"]


@dataclass(frozen=True)
class Effort:
    """What repeated sampling and replay may cost. None leaves it to the spec.

    Attributes:
        budget: the most training runs that may be executed.
        spot_check: how many stretches of rounds to replay instead of all.
        stopping: "fixed" for the pairs of the spec; "decided" stops where the test rejects, and goes on for want of
            power.
        cache: the folder in which finished parts of repeated sampling are kept.
        executor: what computes repeated sampling.
    """

    budget: int | None = None
    spot_check: int | None = None
    stopping: Stopping = "fixed"
    cache: Path | None = None
    executor: Executor = IN_PROCESS
    progress: Progress = silent
