"""What a run draws, by its draws and not by what it has recorded of them."""

from __future__ import annotations

from dataclasses import replace

from fuaudit.draws import Position
from fuaudit.plans import Plan, Request
from fuaudit.runs.run import Run


def drawn_plan(run: Run) -> Plan:
    """The plan of a run without its recorded index: an audit reads draws, not what a run says of them."""
    return replace(run.plan, index=None)


def first_involved(run: Run, request: Request) -> Position | None:
    """The first position of a run's plan whose draw holds something requested, or None.

    What the run was itself asked to forget is looked for too: its method may have kept draws with it.
    """
    plan = drawn_plan(run)
    # a prune takes the ids of samples that are in no draw
    there = Request.of(request.clients, run.original.owner.keys() & {*request.samples})
    # the last population knows whose every sample is, and no draw is over it
    return replace(plan, populations=(*plan.populations, run.original)).first_involvement(there)


def first_drawn(run: Run, request: Request) -> Position | None:
    """The same, of positions that the run executed."""
    found = first_involved(run, request)
    return found if found and found.round <= run.rounds_executed else None
