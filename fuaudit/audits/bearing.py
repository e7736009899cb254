"""Which steps of a lineage bear on the run under audit: those from the last one that started over."""

from __future__ import annotations

from fuaudit import registry
from fuaudit.declared import says
from fuaudit.draws import Stream
from fuaudit.plans import Plan
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.verification.case import Case, made_by_another

KEEPING_NOTHING = "retrain"
"""The one unlearner whose plan starts over whatever was drawn."""


def by_the_reference(run: Run | Tombstone) -> bool:
    """Whether a run was made by an unlearner of fuaudit, as installed here, that says its plans are the reference's.

    Others are not asked: a subclass would say it too, by inheritance.
    """
    if made_by_another(run):
        return False
    entry = registry.find("unlearners", run.info["unlearner"]["use"])
    return entry.own and says(entry.load(), "follows_reference") is True


def starts_over(run: Run | Tombstone) -> bool:
    """Whether a run was made by the method that starts over, always."""
    return bool(run.info["unlearner"]["use"] == KEEPING_NOTHING and by_the_reference(run))


def bearing(case: Case) -> list[Run | Tombstone]:
    """The children of the lineage at hand that bear on the run, youngest first.

    Those before a step that starts over do not. The plan says that it did: nothing in it is of an older source. That it
    would have done so whatever was drawn, only the method can say.
    """
    found: list[Run | Tombstone] = []
    plan = case.run.plan
    for child in (case.run, *case.evidence.ancestors):
        if not child.is_child:
            break
        plan, number = child.plan if isinstance(child, Run) else plan, len(case.run.requests) - len(found)
        found.append(child)
        if starts_over(child) and _oldest(plan) == number:
            break
    return found


def _oldest(plan: Plan) -> int:
    """The number of the request that brought the initial model, where nothing in a plan is older; else -1."""
    (first,) = plan.streams[Stream.INITIAL]
    sources = {segment.source for segments in plan.streams.values() for segment in segments}
    return first.source if first.source == min(sources) else -1
