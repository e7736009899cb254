"""Level 2, stress plans: kept rounds must know nothing of erased data, also where one run's plan would not show it.

The run's own plan can miss a fault: if the owner of an erased sample took part in no kept round, weights by
sample counts look right. So keys are searched for plans in which the target sits in a kept round and the
restart is late or absent, and their kept rounds are executed twice: as training did, and on the retained data.

Rounds that are kept through several requests may know what one of them took, and nothing of the next. So each is tried
by itself, back to the one that drew everything anew. Rows that later requests took may be gone by now. Retained rows
stand in for these: the question is what a method keeps, and clients, sizes and laws stay those of the request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite
from typing import ClassVar

import torch

from fuaudit import registry
from fuaudit.audits.sides import Parted, Side, parted
from fuaudit.data.dataset import Dataset, padded
from fuaudit.declared import says
from fuaudit.draws import END, Draws, Position, Stream
from fuaudit.draws.columns import Column, Derived
from fuaudit.errors import UsageError
from fuaudit.plans import Plan, Population, Request
from fuaudit.plans.cuts import Carrier
from fuaudit.plans.involvement import involvements
from fuaudit.plans.many import Plans
from fuaudit.plans.telling import participations_of, telling
from fuaudit.runs.run import Run
from fuaudit.statistics.rounding import up
from fuaudit.text import counted
from fuaudit.training.engines import Engine, engine
from fuaudit.training.setup import Setup
from fuaudit.unlearning.protocol import is_editor
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import NO_REQUEST, Finding, Subject, Verdict
from fuaudit.verification.rerun import AT_ONCE
from fuaudit.verification.shared_steps import SharedSteps

SHOWS_NOT = "It shows nothing about plans that were not tried, nor about the law of the plans."

RARE = 0.05
"""Where no candidate keeps a round, a PASS needs that fewer than this share of plans can (59 candidates, by a
Clopper-Pearson limit at confidence .95): fewer candidates have looked at nothing. And the chance that the limit is
wrong."""

FEW = 64
"""The candidates of an earlier request, where one plan is tried: as many as let a PASS be given where none keeps."""

COMPARED = "bitwise comparison of the models after the kept rounds"


@dataclass(frozen=True)
class Step:
    """A request by itself: who was there before it and after it, and the child that carried it out.

    ``child`` is None where it is not at hand, or a prune left a tombstone, whose word for its method is not believed:
    then plans keep what comes before the first involvement.
    """

    number: int
    request: Request
    before: Population
    after: Population
    child: Run | None

    def carried_out(self, plans: Plans, fresh: Column) -> Plans:
        """The plans that its method makes, each with its own new draws."""
        method, name = (
            (_Keeping(), "keeping")
            if self.child is None
            else (self.child.unlearner, self.child.info["unlearner"]["use"])
        )
        rounds, steps = involvements(plans, self.request)
        return Carrier(method, name, self.request, END).carried_out(plans, fresh, rounds, steps)


@dataclass(frozen=True)
class _Keeping:
    """Keeps what comes before the first involvement, whatever the law."""

    by_first_involvement: ClassVar[bool] = True

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`fuaudit.unlearning.protocol.Rewriter`."""
        return plan.erase(request, fresh, plan.first_involvement(request) or END)


def steps_of(case: Case) -> list[Step]:
    """The last request, and before it those whose rounds the run may still keep; the last one first."""
    requests = case.run.requests
    chain = dict(zip(range(len(requests), 0, -1), (case.run, *case.evidence.ancestors), strict=False))
    (first,) = case.run.plan.streams[Stream.INITIAL]
    steps = list[Step]()
    for number in range(len(requests), min(first.source, len(requests) - 1), -1):
        run = chain.get(number)
        child = run if isinstance(run, Run) and not is_editor(run.unlearner) else None
        before, after = case.run.populations[number - 1 : number + 1]
        steps.append(Step(number, requests[number - 1], before, after, child))
    return steps


@dataclass(frozen=True)
class Stress:
    """Tries ``plans`` plans of the last request, the most telling ones among ``candidates`` keys, and one of others.

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
        steps = steps_of(case)
        chosen = [
            (step, plan, kept_rounds_of(plan, after)) for step in steps for plan, after in self._choose(case, step)
        ]
        tried = list[_Tried]()
        for step, some in _abreast(case, chosen):
            tried += _tried(case, step, some)
            case.effort.progress("stress plans", len(tried), len(chosen))
        details = tuple(f"plan {number}, {one}" for number, one in enumerate(tried, 1))
        whole = [one for one in tried if not one.end.overflows]
        kept_total, faults = sum(one.kept for one in whole), sum(one.end.differs != 0 for one in whole)
        if not faults and (lost := _keeping(tried) - _keeping(whole)):
            return self._not_compared(case, tried, next(step for step in steps if step.number == max(lost)), details)
        unseen = _unseen(whole)
        compared = sum(one.kept > 0 for one in whole)
        few = any(_rate(self._effort(case, number)[0]) > RARE for number in unseen)
        if not faults and unseen and (few or not kept_total):
            return self._nothing_kept(case, len(whole), kept_total, unseen, details)
        shows = (
            f"In {faults} of {counted(len(whole), 'plan')}, kept rounds depend on the erased data."
            if faults
            else f"In {counted(compared, 'stress plan')} all kept rounds ({kept_total:,}) are the same "
            "without the erased data."
        )
        silent = () if faults else unseen
        shows += "".join(f" {self._unkept(case, number, True)}" for number in silent)
        return Finding(
            "stress",
            Subject.ALGORITHM,
            Verdict.FAIL if faults else Verdict.PASS,
            shows,
            SHOWS_NOT,
            (
                *_figures(len(whole), kept_total),
                Figure("faults", "Plans with a difference", faults, COMPARED),
            ),
            bounds_rate=min(1.0, RARE * len(silent)),
            assumptions=(
                *case.evidence.unopened(case.run.populations[steps[-1].number - 1]),
                *_said_of_stand_ins(case, steps),
            ),
            details=details,
        )

    def _not_compared(self, case: Case, tried: Sequence[_Tried], step: Step, details: tuple[str, ...]) -> Finding:
        """All plans of a request that keep rounds end in numbers that nothing can be compared with."""
        which = "" if all(one.kept for one in tried if one.request == step.number) else " and keeps a round"
        shows = f"In every plan that was tried of request {step.number}{which}, training with all data overflows."
        if lacking := len(_absent(case, step.after)) - len(_gone(case, step)):
            rows = counted(lacking, "row that it retained is", "rows that it retained are")
            shows = f"Nothing was compared of request {step.number}: {rows} not at hand."
        figures = _figures(len(tried), 0)
        return Finding("stress", Subject.ALGORITHM, Verdict.INCONCLUSIVE, shows, SHOWS_NOT, figures, details=details)

    def _nothing_kept(
        self, case: Case, plans: int, kept: int, unseen: Sequence[int], details: tuple[str, ...]
    ) -> Finding:
        """There was nothing to compare: PASS where a method that often keeps rounds would have shown one."""
        tried = min(self._effort(case, number)[0] for number in unseen)
        named = bool(kept) or len(unseen) > 1
        shows = " ".join(self._unkept(case, number, named) for number in unseen)
        return Finding(
            "stress",
            Subject.ALGORITHM,
            Verdict.PASS if _rate(tried) <= RARE else Verdict.INCONCLUSIVE,
            shows,
            SHOWS_NOT,
            _figures(plans, kept),
            bounds_rate=min(1.0, RARE * len(unseen)),
            details=details,
        )

    def _unkept(self, case: Case, number: int, named: bool) -> str:
        """In words: no candidate of a request keeps a round, and how many plans may."""
        tried, whose = self._effort(case, number)[0], f" of request {number}" if named else ""
        return (
            f"None of {tried} candidate plans{whose} keeps a round, so nothing was compared. That is no proof that "
            f"none ever does: at most {up(_rate(tried))} of plans do, at confidence .95."
        )

    def _effort(self, case: Case, number: int) -> tuple[int, int]:
        """The candidates of a request, and how many of them are tried."""
        return (self.candidates, self.plans) if number == len(case.run.requests) else (min(self.candidates, FEW), 1)

    def _choose(self, case: Case, step: Step) -> list[tuple[Plan, Plan]]:
        """The candidate plans whose kept rounds read the target most often, then have it take part, then are most."""
        candidates, plans = self._effort(case, step.number)
        keys, fresh = (Derived(case.key.secret, of, range(candidates)) for of in ("stress", "stress request"))
        drawn = Plans.fresh(case.run.plan.law, step.before, keys)
        after = step.carried_out(drawn, fresh)
        kept = [kept_rounds_of(*pair) for pair in zip(drawn, after, strict=True)]
        held, present = (found.tolist() for found in telling(drawn, step.request, kept))
        order = sorted(range(candidates), key=lambda each: (held[each], present[each], kept[each], -each), reverse=True)
        return [(drawn[each], after[each]) for each in order[:plans]]


def _abreast(case: Case, chosen: Sequence[tuple[Step, Plan, int]]) -> Iterator[tuple[Step, list[tuple[Plan, int]]]]:
    """Plans of one request with the rounds that they keep, as many as are executed side by side."""
    for _, of_one in groupby(chosen, key=lambda each: each[0].number):
        (step, *_), *_ = plans = [*of_one]
        size = _at_once(case, step)
        for first in range(0, len(plans), size):
            yield step, [(plan, kept) for _, plan, kept in plans[first : first + size]]


def _at_once(case: Case, step: Step) -> int:
    """How many plans are executed side by side, so that memory is bounded whatever the federation's size."""
    procedure, law, before = case.rerun.ready.procedure, case.run.plan.law, step.before
    of_one = procedure.initial_memory(len(before.clients), torch.device("cpu"))
    noise = law.steps if says(procedure.solver, "draws") else 0
    rows = law.places(before.of_laws) * (1 + noise)
    return max(1, AT_ONCE // (rows * procedure.layout.dimension + sum(t.numel() for t in of_one.values())))


def _tried(case: Case, step: Step, plans: Sequence[tuple[Plan, int]]) -> list[_Tried]:
    """Plans whose kept rounds are executed as training did, and on the retained data, until the two part."""
    ready, gone, law = case.rerun.ready, _gone(case, step), case.run.plan.law
    counts = {"lacking": len(_absent(case, step.after)) - len(gone), "stood_in": len(gone)}
    given = _on_stand_ins(case, gone) if gone else ready
    full, retained = (Side(population, given.client_problem(population)) for population in (step.before, step.after))
    executed, rounds = [plan for plan, _ in plans], [kept for _, kept in plans]
    ends = parted(ready.procedure, full, retained, executed, rounds, stepping(ready))
    return [
        _Tried(
            step.number,
            kept,
            law.rounds,
            participations_of(plan, step.request, map(plan.cohort, range(1, kept + 1))),
            end,
            **counts,
        )
        for (plan, kept), end in zip(plans, ends, strict=True)
    ]


def stepping(ready: Setup) -> Engine:
    """What takes the local steps of both sides: each once where they are given equal bits.

    Any engine will do, as long as both sides have the same: it is that of many runs, or the run's own where no other is
    faster for many. A model of another package may keep something from call to call, so it is asked for both sides.
    """
    if not registry.find("models", ready.config.model["use"]).own:
        return ready.engine
    name = ready.engine_of_many
    return SharedSteps(ready.engine if name == "threads" else engine(name))


@dataclass(frozen=True)
class _Tried:
    """What the kept rounds of one plan gave.

    Attributes:
        request: its number.
        kept: how many of the ``rounds`` of the plan are kept.
        participations: of the target, in the kept rounds.
        end: how the two sides parted.
        lacking: how many rows that the run retains are not at hand.
        stood_in: how many others that the request retained are not, for later ones took them.
    """

    request: int
    kept: int
    rounds: int
    participations: int
    end: Parted
    lacking: int = 0
    stood_in: int = 0

    def __str__(self) -> str:
        how = "equal bits"
        if self.end.differs:
            how = f"after round {self.end.differs} {_apart(self.end.gap)}"
        elif self.end.overflows and self.lacking:
            how = f"not counted: {counted(self.lacking, 'retained row is', 'retained rows are')} not at hand"
        elif self.end.overflows:
            how = f"not counted: training with all data overflows in round {self.end.overflows}"
        others = f", with others for {counted(self.stood_in, 'row')} that later ones took" if self.stood_in else ""
        return (
            f"request {self.request}{others}: {counted(self.kept, 'round')} kept of {self.rounds}, "
            f"{self.participations} participations of the target in them; {how}"
        )


def _apart(gap: float) -> str:
    """In words: by how much models differ."""
    one = "a model is NaN on one side alone: it reads erased rows, which are marked by NaN, or they make it overflow"
    return f"models differ by {gap:.3g}" if isfinite(gap) else one


def _rate(candidates: int) -> float:
    """The largest share of plans that can keep a round where no candidate does."""
    return 1.0 - float(RARE ** (1 / candidates))


def _figures(plans: int, kept: int) -> tuple[Figure, ...]:
    return (
        Figure(
            "plans",
            "Stress plans",
            plans,
            "those of many candidate keys that keep most rounds, first with the target in them where there are such",
        ),
        Figure("kept_rounds", "Kept rounds", kept, "counted over all stress plans; each executed on both sets of data"),
    )


def _unseen(tried: Sequence[_Tried]) -> list[int]:
    """The numbers of the requests of which no plan that was tried keeps a round."""
    seen = {one.request for one in tried if one.kept}
    return list(dict.fromkeys(one.request for one in tried if one.request not in seen))


def _keeping(tried: Sequence[_Tried]) -> set[int]:
    """The numbers of the requests of which some plan keeps a round."""
    return {one.request for one in tried if one.kept}


def _absent(case: Case, population: Population) -> set[int]:
    """The rows of a population that are not at hand."""
    size, absent = case.evidence.rows.size, case.evidence.rows.absent
    return {row for row in population.owner if row >= size or row in absent}


def _gone(case: Case, step: Step) -> set[int]:
    """The rows that later requests took, and that are not at hand."""
    return _absent(case, step.after) - case.run.plan.retained.owner.keys()


def _on_stand_ins(case: Case, gone: Collection[int]) -> Setup:
    """The run's setup with retained rows in the place of those that are gone."""
    ready = case.rerun.ready
    return replace(ready, dataset=_stood_in(ready.dataset, gone, case.run.plan.retained))


def _stood_in(dataset: Dataset, gone: Collection[int], retained: Population) -> Dataset:
    """The dataset with retained rows in the place of some that are gone, one after the other."""
    there = [row for row in sorted(retained.owner) if row < dataset.size and row not in dataset.absent]
    if not gone or not there:
        return dataset
    data, places = padded(dataset, max(gone) + 1), sorted(gone)
    rows = [there[number % len(there)] for number in range(len(places))]
    inputs, targets = data.inputs.clone(), data.targets.clone()
    inputs[places], targets[places] = data.inputs[rows], data.targets[rows]
    return replace(data, inputs=inputs, targets=targets, absent=data.absent.difference(gone))


def _said_of_stand_ins(case: Case, steps: Sequence[Step]) -> list[str]:
    """Which requests were tried with other rows than those of their time."""
    return [
        f"Kept rounds of request {step.number} know no more beside {counted(len(gone), 'row')} that later requests "
        "took: as they are not at hand, it was tried with retained rows in their place."
        for step in steps
        if (gone := _gone(case, step))
    ]


def kept_rounds_of(plan: Plan, after: Plan) -> int:
    """How many whole rounds at the beginning a rewrite has kept, with the initial model."""
    return max(0, min(after.first_change(plan).round - 1, plan.law.rounds))
