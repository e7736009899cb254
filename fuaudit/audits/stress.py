"""Level 2, stress plans: kept rounds must know nothing of erased data, also where one run's plan would not show it.

The run's own plan can miss a fault: if the owner of an erased sample took part in no kept round, weights by
sample counts look right. So keys are searched for plans in which the target sits in a kept round and the
restart is late or absent, and their kept rounds are executed twice: as training did, and on the retained data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import ClassVar

import torch

from fuaudit.commitments.keys import derive
from fuaudit.draws import END, Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Plan, Request
from fuaudit.plans.plan import occurrences
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import PlannedDraws
from fuaudit.plans.veil import rewritten
from fuaudit.statistics.rounding import up
from fuaudit.text import counted
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.execute import execute, initial_state
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import NO_REQUEST, Finding, Subject, Verdict

SHOWS_NOT = "It shows nothing about plans that were not tried, nor about the law of the plans."

RARE = 0.05
"""Where no candidate keeps a round, a PASS needs that fewer than this share of plans can (59 candidates, by a
Clopper-Pearson limit at confidence .95): fewer candidates have looked at nothing."""

COMPARED = "bitwise comparison of the models after the kept rounds"


@dataclass(frozen=True)
class Stress:
    """Tries ``plans`` plans, the most telling ones among ``candidates`` keys.

    Attributes:
        plans: how many plans are tried.
        candidates: how many keys the most telling plans are chosen from.

    Raises:
        UsageError: no plan would be tried.
    """

    evidence: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[frozenset[str]] = frozenset({"data", "erased"})
    recomputes: ClassVar[str] = "kept rounds of other plans, with and without the data in question"

    plans: int = 3
    candidates: int = 256

    def __post_init__(self) -> None:
        if not 1 <= self.plans <= self.candidates:
            raise UsageError("stress needs plans >= 1 and candidates >= plans: it looks at nothing otherwise")

    def examine(self, case: Case) -> Finding:
        """FAIL when kept rounds differ between full and retained data; PASS when none does."""
        if case.request is None or case.evidence.is_editor:
            reason = NO_REQUEST if case.request is None else "An editor keeps no rounds of a plan."
            return Finding("stress", Subject.ALGORITHM, Verdict.NOT_APPLICABLE, reason, SHOWS_NOT)
        if case.dataset is None:
            return Finding(
                "stress",
                Subject.ALGORITHM,
                Verdict.INCONCLUSIVE,
                "The retained data is not at hand.",
                SHOWS_NOT,
                details=("Give --data ROOT.",),
            )
        chosen = self._choose(case, case.request)
        ready = case.rerun.ready
        problems = ready.client_problem(case.run.before), ready.client_problem(case.run.plan.retained)
        details, faults, kept_total = [], 0, 0
        for number, (plan, after) in enumerate(chosen, 1):
            kept = kept_rounds_of(plan, after)
            kept_total += kept
            round_number, gap = self._gap(case, plan, kept, problems) if kept else (0, 0.0)
            faults += round_number != 0
            case.effort.progress("stress plans", number, len(chosen))
            details.append(
                f"plan {number}: {counted(kept, 'round')} kept of {plan.law.rounds}, "
                f"{_participations(plan, case.request, kept)} participations of the target in them; "
                + (f"models differ by {gap:.3g} after round {round_number}" if round_number else "equal bits")
            )
        if not kept_total:
            return self._nothing_kept(tuple(details))
        shows = (
            f"In {faults} of {counted(len(chosen), 'plan')}, kept rounds depend on the erased data."
            if faults
            else f"In {len(chosen)} stress plans all {kept_total} kept rounds are the same without the erased data."
        )
        return Finding(
            "stress",
            Subject.ALGORITHM,
            Verdict.FAIL if faults else Verdict.PASS,
            shows,
            SHOWS_NOT,
            (
                *_figures(len(chosen), kept_total),
                Figure("faults", "Plans with a difference", faults, COMPARED),
            ),
            assumptions=case.evidence.unopened,
            details=tuple(details),
        )

    def _nothing_kept(self, details: tuple[str, ...]) -> Finding:
        """There was nothing to compare: PASS where a method that often keeps rounds would have shown one."""
        rate = 1 - 0.05 ** (1 / self.candidates)
        shows = (
            f"None of {self.candidates} candidate plans keeps a round, so nothing was compared. That is no proof that "
            f"none ever does: at most {up(rate)} of plans do, at confidence .95."
        )
        return Finding(
            "stress",
            Subject.ALGORITHM,
            Verdict.PASS if rate <= RARE else Verdict.INCONCLUSIVE,
            shows,
            SHOWS_NOT,
            _figures(min(self.plans, self.candidates), 0),
            details=details,
        )

    def _choose(self, case: Case, request: Request) -> list[tuple[Plan, Plan]]:
        """The candidate plans whose kept rounds read the target most often, then have it take part, then are most."""
        law, before = case.run.plan.law, case.run.before
        scored = []
        for number in range(self.candidates):
            source = Keyed(derive(case.key.secret, "stress", str(number)))
            plan = Plan.fresh(law, before, source)
            fresh = Keyed(derive(case.key.secret, "stress request", str(number)))
            after = rewritten(case.evidence.unlearner, case.run.info["unlearner"]["use"], plan, request, fresh, END)
            kept = kept_rounds_of(plan, after)
            telling = _draws(plan, request, kept), _participations(plan, request, kept), kept
            scored.append((*telling, -number, plan, after))
        scored.sort(key=lambda row: row[:4], reverse=True)
        return [(plan, after) for *_, plan, after in scored[: self.plans]]

    def _gap(
        self, case: Case, plan: Plan, kept: int, problems: tuple[ClientProblem, ClientProblem]
    ) -> tuple[int, float]:
        """The first kept round after which full and retained data give other models or states, and by how much.

        Both sides are executed round by round, so that a faulty method is not followed further; (0, 0.0) if none.
        """
        ready = case.rerun.ready
        schedule, draws = LazySchedule([plan], kept), PlannedDraws.flat(plan, plan.sources)
        sides = [
            execute(
                ready.procedure,
                problem,
                population,
                schedule,
                initial_state(ready.procedure, [plan], population, ready.device),
                ready.engine,
                draws=(draws,),
            )
            for problem, population in zip(problems, (case.run.before, case.run.plan.retained), strict=True)
        ]
        for (round_number, everything), (_, retained) in zip(*sides, strict=True):
            full = everything.without(ready.procedure, case.run.before, case.run.plan.retained)
            pairs = [(full.vectors, retained.vectors), *((full.state[k], retained.state[k]) for k in full.state)]
            if not all(torch.equal(a, b) for a, b in pairs):
                gaps = [float((a - b).abs().max()) for a, b in pairs if a.numel()]
                return round_number, float("inf") if any(isnan(gap) for gap in gaps) else max(gaps)
        return 0, 0.0


def _figures(plans: int, kept: int) -> tuple[Figure, ...]:
    return (
        Figure(
            "plans",
            "Stress plans",
            plans,
            "those of many candidate keys that keep most rounds with the target in them",
        ),
        Figure("kept_rounds", "Kept rounds", kept, "counted over all stress plans; each executed on both sets of data"),
    )


def kept_rounds_of(plan: Plan, after: Plan) -> int:
    """How many whole rounds at the beginning a rewrite has kept, with the initial model."""
    return max(0, min(after.first_change(plan).round - 1, plan.law.rounds))


def _draws(plan: Plan, request: Request, kept: int) -> int:
    """How many batches of the kept rounds hold a target sample: where all take part, all participations are equal."""
    owners = {plan.retained.owner[sample] for sample in request.samples}
    wanted = set(request.samples)
    return sum(
        bool(wanted.intersection(plan.batch(number, step, client, occurrence)))
        for number in range(1, kept + 1)
        for client, occurrence in occurrences(plan.cohort(number))
        if client in owners
        for step in range(1, plan.law.steps + 1)
    )


def _participations(plan: Plan, request: Request, kept: int) -> int:
    """How often the target, or the owner of a target sample, takes part in the kept rounds."""
    owners = {plan.retained.owner[s] for s in request.samples} | set(request.clients)
    return sum(client in owners for round_number in range(1, kept + 1) for client in plan.cohort(round_number))
