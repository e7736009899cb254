"""Findings: what an audit saw, how strong it is, and what it does not show. And verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError
from fuaudit.formats.versions import require_format
from fuaudit.verification.figure import Figure, Value

FORMAT = "fuaudit findings 2"
"""What documents of findings name themselves."""

NO_REQUEST = "The run carries out no request."
"""Why an audit of a training run has nothing to judge."""

NON_ADAPTIVE = "Requests depend neither on the draws nor on models published from them (non-adaptive)."
"""What every statement about laws assumes, and no run can show."""


class Verdict(StrEnum):
    """The outcome of an audit.

    ``PASS``: what was asked holds, within the scope that the finding states. ``FAIL``: it does not, shown by a
    counterexample or at the stated error rate. ``INCONCLUSIVE``: evidence or power is missing. ``NOT_APPLICABLE``:
    the question does not arise for this run. ``ERROR``: the audit itself broke.
    """

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    ERROR = "ERROR"


class Subject(StrEnum):
    """What a finding is about: the unlearning algorithm, or this very run."""

    ALGORITHM = "algorithm"
    RUN = "run"


@dataclass(frozen=True)
class Control:
    """A subject whose verdict is known beforehand, and whether the audit gave it."""

    name: str
    expected: str
    observed: str

    @property
    def held(self) -> bool:
        """Whether the audit said what it had to say."""
        return self.expected == self.observed


@dataclass(frozen=True)
class ResidualCopy:
    """A place beyond the run that may hold what was learnt from erased data, or that held it once.

    ``holds`` is False where nothing of it is left: there ``why`` says what became of it.
    """

    place: str
    why: str
    holds: bool = True

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@dataclass(frozen=True)
class Finding:
    """What one audit found. Holds no wall-clock times, so that equal evidence gives equal bytes.

    Attributes:
        audit: the registered name.
        subject: algorithm or run.
        figures: its numbers, each with a key of its own.
        detectable: the smallest violation of a stated kind that would have shown a difference; empty for proofs.
        shows, shows_not: one sentence each.
        assumptions: what was taken on trust.
        details: lines for an engineer: witnesses, first differences, files.
        series: named sequences of numbers for figures.
        copies: other places that the audit came upon; named, not judged.
        error_rate: what its tests have spent: the chance that any of them rejects what it should not, at most.
        bounds_rate: the chance that any bound which it states is wrong, at most.
        qualification: one sentence that a PASS of the whole has to say because of how this one came about; empty
            where nothing is to be added.
        plainly: one sentence for the person concerned that a whole of the same verdict has to say; empty for none.
    """

    audit: str
    subject: Subject
    verdict: Verdict
    shows: str
    shows_not: str
    figures: tuple[Figure, ...] = ()
    detectable: str = ""
    controls: tuple[Control, ...] = ()
    assumptions: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    series: dict[str, list[float]] = field(default_factory=dict)
    copies: tuple[ResidualCopy, ...] = ()
    error_rate: float = 0.0
    bounds_rate: float = 0.0
    qualification: str = ""
    plainly: str = ""

    @property
    def values(self) -> dict[str, Value]:
        """The values of its figures by key."""
        return {figure.key: figure.value for figure in self.figures}

    def figure(self, key: str) -> Figure:
        """The figure with this key; KeyError without one."""
        for figure in self.figures:
            if figure.key == key:
                return figure
        raise KeyError(key)


def require_findings(document: object, path: Path) -> dict[str, Any]:
    """The document, where it names the format of findings that is read here; asked before any field is.

    Raises:
        EvidenceError: it names another format, or none.
    """
    require_format(document, FORMAT, path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise EvidenceError(f"{path} does not hold findings")
    return document


EXIT_CODES = {
    Verdict.PASS: 0,
    Verdict.FAIL: 1,
    Verdict.INCONCLUSIVE: 3,
    Verdict.NOT_APPLICABLE: 3,
    Verdict.ERROR: 70,
}
"""Of the command line, by combined verdict. 2 is usage, 4 rejected evidence, 5 a failed plugin, 130 interrupted."""
