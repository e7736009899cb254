"""Judgements: what an audit of this run makes of stored models or files, up to its name and what it does not show."""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Control, Finding, ResidualCopy, Subject, Verdict

OTHER_MODEL = "The model is not the one that the recorded training gives from the remaining data."
"""What a replay that fails means for the person concerned."""

UNKNOWN_KEY = "The key of the audit was not known to anybody before the run was sealed, and nobody chose it."
"""What an audit assumes that looks at what its key chooses."""


@dataclass(frozen=True)
class Judgement:
    """What stored models or files amount to: the fields of a finding that depend on them."""

    verdict: Verdict
    shows: str
    figures: tuple[Figure, ...] = ()
    detectable: str = ""
    controls: tuple[Control, ...] = ()
    assumptions: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    qualification: str = ""
    plainly: str = ""

    def finding(self, audit: str, shows_not: str, copies: tuple[ResidualCopy, ...] = ()) -> Finding:
        """The finding of an audit of this run."""
        return Finding(
            audit,
            Subject.RUN,
            self.verdict,
            self.shows,
            shows_not,
            self.figures,
            detectable=self.detectable,
            controls=self.controls,
            assumptions=self.assumptions,
            details=self.details,
            copies=copies,
            qualification=self.qualification if self.verdict is Verdict.PASS else "",
            plainly=self.plainly,
        )
