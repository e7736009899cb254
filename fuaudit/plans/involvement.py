"""First involvement of many plans at once, handed to each plan as a look-up.

A rewriter asks its plan for the first involvement of the request, and finding it draw by draw takes most of the
time of a rewrite. Here it is found for all plans in arrays; each plan then answers this one question by look-up,
and any other by drawing. The rewriter runs as it is and cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fuaudit.draws import END, Position
from fuaudit.plans.attendance import Attendance
from fuaudit.plans.expanded import Ids
from fuaudit.plans.plan import Plan
from fuaudit.plans.population import Request
from fuaudit.plans.stacked import Stack


@dataclass(frozen=True)
class IndexedInvolvement:
    """An index with one entry: where ``request`` is first involved in ``plan``; other questions are drawn.

    Equal to drawing: ``plan`` has no index of its own.
    """

    request: Request
    position: Position | None
    plan: Plan = field(repr=False)

    def first(self, request: Request) -> Position | None:
        """The first position whose draw holds something requested, or None."""
        return self.position if request == self.request else self.plan.first_involvement(request)


def involvements(plans: Sequence[Plan], request: Request, cohorts: Ids | None = None) -> tuple[Ids, Ids]:
    """Rounds and steps of the first involvement of a request, ``(n,)`` each; those of ``END`` if there is none.

    ``cohorts (n, R, K)`` saves drawing them. Plans that cannot be stacked are looked through one by one.
    """
    kind = next((kind for kind in (Stack, Attendance) if kind.fits(plans)), None)
    if kind is not None:
        return kind(plans).first_involvement(request, cohorts)
    found = [replace(plan, index=None).first_involvement(request) or END for plan in plans]
    rounds, steps = np.array(found, dtype=np.int64).T
    return rounds, steps


def knowing(plan: Plan, request: Request, first: Position) -> Plan:
    """A plan that knows where a request is first involved in it; ``END`` for nowhere."""
    bare = replace(plan, index=None) if plan.index is not None else plan
    return replace(bare, index=IndexedInvolvement(request, None if first.round >= END.round else first, bare))
