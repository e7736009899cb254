"""Rounds that came in messages: what a finding of replay says where some of them are entered at a record."""

from __future__ import annotations

from dataclasses import replace

from fuaudit.runs.run import Run
from fuaudit.text import span
from fuaudit.verification.finding import Finding, Verdict

NOT_OF_THE_DATA = " Nor does it show that what came in messages was made of the retained data, or what is in it."


def of_messages(finding: Finding, run: Run) -> Finding:
    """A finding of a run, with the rounds that rest on what was recorded; as it is where there are none."""
    if not (rounds := run.received_rounds):
        return finding
    rest = "Round {} rests" if len(rounds) == 1 else "Rounds {} rest"
    told = f"{rest.format(span(rounds))} on messages as they were recorded, which nothing regenerates."
    shows_not = finding.shows_not + NOT_OF_THE_DATA
    if finding.verdict is not Verdict.PASS:
        return replace(finding, shows_not=shows_not, details=(*finding.details, told))
    trusted = (*finding.assumptions, f"What was recorded is what clients sent: {told}")
    shows = f"{finding.shows} {told}"
    return replace(finding, shows=shows, shows_not=shows_not, assumptions=trusted, qualification=told)
