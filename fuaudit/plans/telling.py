"""How much the kept rounds of many plans have of a request: in how many batches, and how often its owners take part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fuaudit.plans.expanded import NONE, Ids
from fuaudit.plans.plan import Plan, occurrences
from fuaudit.plans.population import Request
from fuaudit.plans.stacked import PLACES, Stack, isin


def telling(plans: Sequence[Plan], request: Request, kept: Sequence[int]) -> tuple[Ids, Ids]:
    """Of each plan's first ``kept`` rounds: the batches with a target sample, and the target's participations, (n,).

    Plans that cannot be stacked are looked through one by one.
    """
    if Stack.fits(plans):
        return _in_arrays(Stack(plans), request, np.asarray(kept, dtype=np.int64))
    cohorts = [[plan.cohort(number) for number in range(1, last + 1)] for plan, last in zip(plans, kept, strict=True)]
    pairs = list(zip(plans, cohorts, strict=True))
    return (
        np.array([batches_of(plan, request, drawn) for plan, drawn in pairs]),
        np.array([participations_of(plan, request, drawn) for plan, drawn in pairs]),
    )


def _in_arrays(stack: Stack, request: Request, kept: Ids) -> tuple[Ids, Ids]:
    """The same, rounds of all plans at once: as many as memory allows."""
    held, present = (np.zeros(len(kept), dtype=np.int64) for _ in range(2))
    owners = sorted({stack.plans.retained.owner[sample] for sample in request.samples})
    anyone = sorted({*owners, *request.clients})
    for rounds in stack.blocks(PLACES):
        if rounds.start > kept.max():
            break
        cohorts = stack.cohorts(rounds)
        cohorts[np.asarray(rounds)[None, :] > kept[:, None]] = NONE
        present += isin(cohorts, anyone).sum(axis=(1, 2))
        for run, _, drawn in stack.batches_of_owners(cohorts, owners, rounds.start) if owners else ():
            np.add.at(held, run, isin(drawn, request.samples).any(axis=2).sum(axis=1))
    return held, present


def batches_of(plan: Plan, request: Request, cohorts: Iterable[tuple[int, ...]]) -> int:
    """How many batches of the rounds of these cohorts, from the first on, hold a target sample."""
    owners = {plan.retained.owner[sample] for sample in request.samples}
    wanted = set(request.samples)
    return sum(
        bool(wanted.intersection(plan.batch(number, step, client, occurrence)))
        for number, cohort in enumerate(cohorts, 1)
        for client, occurrence in occurrences(cohort)
        if client in owners
        for step in range(1, plan.law.steps + 1)
    )


def participations_of(plan: Plan, request: Request, cohorts: Iterable[tuple[int, ...]]) -> int:
    """How often the target, or the owner of a target sample, is in one of these cohorts."""
    owners = {plan.retained.owner[s] for s in request.samples} | set(request.clients)
    return sum(client in owners for cohort in cohorts for client in cohort)
