"""Differences: sums of two runs that tell a row together, though neither tells one alone.

All buffers of a round add up to the sum of all rows, whoever was in which. Where a run and an ancestor both opened a
round from one model, and clients send what they sent before, the difference of the two totals is the row of who was
erased between them. Noise that each request draws anew covers it.

Within one run no two sums are of nearly the same rows: buffers of a round have no client in common, and each is opened
once, as the recheck asks; rounds have batches of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuaudit.audits.transcript.known import told_rounds
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.released import has_noise
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.secure.recheck import Finding
from fuaudit.verification.case import Case

NO_NOISE = ", without noise that was drawn anew: their difference is the row of who was erased"


def telling_differences(case: Case) -> Iterator[Finding]:
    """Rounds that the run and an ancestor at hand both opened from one model, without noise that was drawn anew.

    A child takes its suite from its parent. One whose ancestor names none, or another, is shown beside another training
    of the same digest, whose transcript tells nothing of what was opened.
    """
    suite, runs = suite_of(case.run.ledger), [one for one in case.evidence.ancestors if isinstance(one, Run)]
    for ancestor in runs:
        if (other := suite_of(ancestor.ledger)) != suite:
            named = "no suite" if other is None else repr(other)
            said = f"the ledger of {ancestor.path.name} names {named}, and {suite!r} made the sums of this run"
            yield Finding("another suite", f"{said}: a child takes it from its parent")
    if not case.run.is_child or has_noise(case.run):
        return
    for ancestor in runs:
        if suite_of(ancestor.ledger) == suite:
            for number in sorted(_rounds(case.run) & _rounds(ancestor)):
                if _before(case.run, number) == _before(ancestor, number):
                    where = f"sums of this round were opened here and in {ancestor.path.name} from one model"
                    yield Finding("difference", where + NO_NOISE, number)


def unseen_ancestors(case: Case) -> bool:
    """Whether sums of an ancestor can have been opened that nothing here tells of."""
    gone = any(isinstance(ancestor, Tombstone) for ancestor in case.evidence.ancestors)
    return not has_noise(case.run) and (gone or not case.evidence.complete_lineage)


def _rounds(run: Run) -> set[int]:
    return {event["round"] for event in told_rounds(run)}


def _before(run: Run, number: int) -> str:
    """The digest of the model before a round."""
    return digest_of_vector(run.checkpoint(number - 1)[0])
