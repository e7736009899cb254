"""Unused draws: recorded draws of a run that its plan does not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fuaudit.audits.replay.judgement import Judgement
from fuaudit.draws import Address, Recorded
from fuaudit.draws.recorded import Watched
from fuaudit.plans.expanded import expand
from fuaudit.runs.layout import RECORDED
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.verification.case import Case
from fuaudit.verification.finding import Verdict


def unused_draws(run: Run, all_of_them: bool = False) -> list[Address]:
    """The recorded draws of a run that its plan does not read, ascending.

    Those of earlier requests stay as they were recorded, also where a later request put others in their place. The
    audit provenance asks whether they are the parent's. A prune leaves only what is read.

    Args:
        all_of_them: those of earlier requests too.
    """
    last, every = len(run.plan.sources) - 1, run.pruned or all_of_them
    watched = {
        n: Watched(s.answers)
        for n, s in enumerate(run.plan.sources)
        if isinstance(s, Recorded) and (n == last or every)
    }
    if not watched:
        return []
    sources = tuple(Recorded(watched[n]) if n in watched else s for n, s in enumerate(run.plan.sources))
    expand(replace(run.plan, sources=sources))
    return sorted({at for answers in watched.values() for at in answers.keys() - answers.asked})


def unread(draws: Iterable[Address]) -> Iterator[str]:
    """Recorded draws that nothing reads, in words."""
    return (f"{RECORDED} holds a draw that the plan does not make: {at}" for at in draws)


def with_records_of_before(case: Case, judged: Judgement) -> Judgement:
    """The judgement, where an ancestor was pruned and the run holds draws of earlier requests that nobody reads.

    Elsewhere they are compared with the parent's. With a tombstone nothing can be compared.
    """
    if judged.verdict is not Verdict.PASS or not any(isinstance(above, Tombstone) for above in case.evidence.ancestors):
        return judged
    if not (unused := unused_draws(case.run, all_of_them=True)):
        return judged
    shows = (
        f"{RECORDED} holds {counted(len(unused), 'draw')} of earlier requests that the plan does not "
        "read; an ancestor was pruned, so nothing shows that a method recorded them."
    )
    advice = f"The first of them is {unused[0]}. A prune of this run takes them out."
    return replace(judged, verdict=Verdict.INCONCLUSIVE, shows=shows, details=(*judged.details, advice))
