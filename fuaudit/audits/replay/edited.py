"""Edited runs: no plan makes such a model, so the one that was edited is made again; the audit provenance edits it."""

from __future__ import annotations

from dataclasses import replace

from fuaudit.audits.replay.judgement import Judgement
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.finding import Finding, Verdict

OTHER_BEFORE = "The model that was edited is not the one that the recorded training gives."
"""What a FAIL says to the person concerned."""


def before_edits(case: Case) -> Case | Judgement:
    """The case of the nearest ancestor that no editor made, or why its plan cannot be executed here."""
    run = case.evidence.planned
    if run is None:
        return _unclear("not all runs before are at hand")
    if isinstance(run, Tombstone):
        return _unclear(f"{run.path.name} was pruned")
    found = replace(case, evidence=_evidence(case.evidence, run))
    return _missing(found) or found


def of_edited(finding: Finding, case: Case) -> Finding:
    """What was found of the run that was edited, as a finding of the edited one."""
    shows = f"Of {case.run.path.name}, whose model was edited: {finding.shows}"
    shows_not = f"{finding.shows_not} Nor is the edit made again: see provenance."
    return replace(finding, shows=shows, shows_not=shows_not, plainly=finding.plainly and OTHER_BEFORE)


def _evidence(given: Evidence, run: Run) -> Evidence:
    """What is known of an ancestor."""
    above = given.ancestors[given.ancestors.index(run) + 1 :]
    return replace(given, run=run, parent=above[0] if above else None)


def _missing(case: Case) -> Judgement | None:
    """Rows of the run that are not at hand as it had them: erased ones, so whoever gave them refutes nothing."""
    found = case.evidence.differences
    if count := sum(map(len, (*found.absent.values(), *found.rows.values()))):
        told = "is not at hand as it was" if count == 1 else "are not at hand as they were"
        return _unclear(f"{counted(count, 'row')} of {case.run.path.name} {told} committed to")
    return None


def _unclear(why: str) -> Judgement:
    shows = f"The model was edited, and the one before cannot be made again: {why}."
    return Judgement(Verdict.INCONCLUSIVE, shows, details=("Give --erased ROOT with the erased rows, and --parent.",))
