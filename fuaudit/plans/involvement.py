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


def foreseeing(plans: Sequence[Plan], request: Request, cohorts: Ids | None = None) -> tuple[list[Plan], Ids, Ids]:
    """The same plans with first involvement of ``request`` known, and its rounds and steps ``(n,)`` (see ``END``).

    ``cohorts (n, R, K)`` saves drawing them. Plans that cannot be stacked look by themselves, once.
    """
    kind = next((kind for kind in (Stack, Attendance) if kind.fits(plans)), None)
    if kind is not None:
        rounds, steps = kind(plans).first_involvement(request, cohorts)
    else:
        found = [replace(plan, index=None).first_involvement(request) or END for plan in plans]
        rounds, steps = np.array(found, dtype=np.int64).T
    indexed = []
    for plan, round_number, step in zip(plans, rounds.tolist(), steps.tolist(), strict=True):
        bare = replace(plan, index=None) if plan.index is not None else plan
        position = None if round_number >= END.round else Position(round_number, step)
        indexed.append(replace(bare, index=IndexedInvolvement(request, position, bare)))
    return indexed, rounds, steps
