"""Plans drawn, rewritten and scored by the ten thousand.

Every plan follows from the key of the audit and its own number, so results do not depend on how numbers are
grouped. The rewriter runs as it is installed, once a plan; what surrounds it is arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.audits.plan_law.plan_statistics import Probe, score
from fuaudit.commitments.keys import derive
from fuaudit.draws import END, Keyed, Position
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Law, Plan, Population, Request, UniformLaw
from fuaudit.plans.expanded import NONE
from fuaudit.plans.involvement import foreseeing
from fuaudit.plans.reference import Edited
from fuaudit.plans.stacked import Stack
from fuaudit.plans.veil import rewritten

Ids = NDArray[np.int64]
CHUNK = 2048
"""Plans worked on at once; about 60 MB with 150 places a plan."""

KEPT = -1
"""No round was restarted."""


@dataclass(frozen=True)
class Step:
    """One request: the rewriter that carries it out, its name, and the first position not yet executed then.

    Editors and who comes after them are given by :func:`fuaudit.plans.reference.in_turn`.
    """

    unlearner: Any
    name: str
    request: Request
    not_before: Position = END

    @property
    def edits(self) -> bool:
        """Whether an editor carries it out."""
        return isinstance(self.unlearner, Edited)

    def rewritten(self, plans: Sequence[Plan], fresh: Sequence[Keyed]) -> list[Plan]:
        """What the unlearner makes of plans, each with its own new draws."""
        pairs = zip(plans, fresh, strict=True)
        return [rewritten(self.unlearner, self.name, plan, self.request, f, self.not_before) for plan, f in pairs]


@dataclass(frozen=True)
class Trial:
    """What is repeated: training on a population under a law, then requests in order that do not depend on draws."""

    law: Law
    population: Population
    steps: tuple[Step, ...]

    @property
    def uniform(self) -> UniformLaw:
        """The law, of which laws of statistics are known.

        Raises:
            UsageError: it is another one.
        """
        if type(self.law) is not UniformLaw:
            raise UsageError(f"the law of no statistic is known for plans drawn by {self.law.name!r}")
        return self.law

    @property
    def rewriters(self) -> tuple[str, ...]:
        """The names of the methods in order, without editors."""
        return tuple(step.name for step in self.steps if not step.edits)

    @property
    def names(self) -> str:
        """The same, in words."""
        return ", then ".join(map(repr, self.rewriters))

    @property
    def behind_edit(self) -> bool:
        """Whether the last request came to an edited run, whose plan still names what the editor was to erase."""
        return len(self.steps) > 1 and self.steps[-2].edits

    @cached_property
    def drawn_over(self) -> Population:
        """The population that plans before the last request are drawn over: editors draw nothing."""
        done = list(self.steps[:-1])
        while done and done[-1].edits:
            done.pop()
        return reduce(Population.without, (step.request for step in done), self.population)

    @cached_property
    def before(self) -> Population:
        """The population before the last request."""
        return reduce(Population.without, (step.request for step in self.steps[:-1]), self.population)

    @cached_property
    def retained(self) -> Population:
        """The population after the last request."""
        return self.before.without(self.steps[-1].request)

    @cached_property
    def probe(self) -> Probe:
        """Where the statistics look, fixed by the requests."""
        earlier = [step.request for step in self.steps[:-1]]
        return Probe.of(self.before, self.steps[-1].request, reduce(or_, earlier) if earlier else None)


@dataclass(frozen=True, eq=False)
class Scores:
    """Numbers of ``n`` plans: see :func:`fuaudit.audits.plan_law.plan_statistics.score` for the columns.

    Attributes:
        unlearned: after the last request, ``(n, 5)``.
        first: the first round that draws the target of the first request in the training plan, from 0; R for none.
        touched: whether what was executed before the last request draws its target, ``(n,)``.
        redrawn: rounds that are not kept as a whole by each request, ``(n, w)``. Bookkeeping.
        restarted: whether the focus client is in the cohort of the first round that the last request did not keep,
            ``(n,)``: 1 or 0, ``KEPT`` where every round was. Bookkeeping.
    """

    unlearned: Ids
    first: Ids
    touched: NDArray[np.bool_]
    redrawn: Ids
    restarted: Ids

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """One after another."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__annotations__))


def chunks(numbers: range) -> Iterator[range]:
    """Numbers of plans, in parts that are worked on at once."""
    return (range(start, min(start + CHUNK, numbers.stop)) for start in range(numbers.start, numbers.stop, CHUNK))


def trained(trial: Trial, key: bytes, numbers: range, label: str = "plan law training") -> list[Plan]:
    """The training plans with these numbers."""
    secrets = (derive(key, label, str(number)) for number in numbers)
    return [Plan.fresh(trial.law, trial.population, Keyed(secret)) for secret in secrets]


def simulate(trial: Trial, key: bytes, numbers: range) -> Scores:
    """Draw, rewrite and score the plans with these numbers.

    Raises:
        PluginError: an unlearner raised, or returned no plan over the retained population.
    """
    return Scores.joined([_chunk(trial, key, chunk) for chunk in chunks(numbers)])


def _chunk(trial: Trial, key: bytes, numbers: range) -> Scores:
    plans, rounds = trained(trial, key, numbers), trial.law.rounds
    cohorts = Stack(plans).cohorts()
    touched = np.zeros(len(plans), dtype=np.bool_)
    first, redrawn = np.empty(0, dtype=np.int64), np.empty((len(plans), len(trial.steps)), dtype=np.int64)
    for place, step in enumerate(trial.steps):
        indexed, involved, at_step = foreseeing(plans, step.request, cohorts)
        if place == 0:
            first = np.minimum(involved - 1, rounds)
        fresh = [Keyed(derive(key, "plan law request", str(number), str(place))) for number in numbers]
        after = step.rewritten(indexed, fresh)
        changes = np.array([_first_change(new, old) for new, old in zip(after, plans, strict=True)])
        redrawn[:, place] = np.clip(rounds + 1 - np.maximum(changes, 1), 0, None)
        plans = sharing(after, plans)
        cohorts = _cohorts(plans, np.flatnonzero(changes <= rounds), cohorts)
        touched = (involved < step.not_before.round) | (
            (involved == step.not_before.round) & (at_step < step.not_before.step)
        )
    kept = redrawn[:, -1] == 0
    column = np.where(kept, 0, rounds - redrawn[:, -1])
    present = (cohorts[np.arange(len(plans)), column] == trial.probe.client).any(axis=1)
    restarted = np.where(kept, KEPT, present)
    return Scores(score(Stack(plans), trial.probe, cohorts), first, touched, redrawn, restarted)


def retrained(trial: Trial, key: bytes, numbers: range) -> Ids:
    """The numbers of plans drawn on the retained population, ``(n, 5)``: what the known laws describe."""
    parts = []
    for chunk in chunks(numbers):
        sources = (Keyed(derive(key, "plan law retraining", str(number))) for number in chunk)
        plans = [Plan.fresh(trial.law, trial.retained, source) for source in sources]
        parts.append(score(Stack(plans), replace(trial.probe, target=Request()), None))
    return np.concatenate(parts)


def _first_change(new: Plan, old: Plan) -> int:
    """The first round that is not kept; most plans are kept as a whole, which is quicker to see."""
    return END.round if new.streams == old.streams else new.first_change(old).round


def _cohorts(plans: list[Plan], changed: Ids, known: Ids) -> Ids:
    """The cohorts of rewritten plans, of which only those at the places ``changed`` are not drawn as before."""
    if not len(changed):
        return known
    drawn = Stack([plans[place] for place in changed]).cohorts()
    places = max(drawn.shape[2], known.shape[2])
    cohorts = np.full((*known.shape[:2], places), NONE, dtype=np.int64)
    cohorts[..., : known.shape[2]] = known
    cohorts[changed] = NONE
    cohorts[changed, :, : drawn.shape[2]] = drawn
    return cohorts


def sharing(plans: Sequence[Plan], before: Sequence[Plan]) -> list[Plan]:
    """Rewritten plans over one and the same history of populations, so that they can be stacked.

    Args:
        before: the plans that were rewritten; these share their history already.

    Raises:
        PluginError: a plan was given another history of populations.
    """
    earlier, last = before[0].populations, plans[0].retained
    shared = (*earlier, last)
    made = []
    for plan in plans:
        if any(a is not b for a, b in zip(plan.populations, shared, strict=True)):
            if plan.populations != shared:
                raise PluginError("an unlearner returned a plan over another history of populations")
            plan = replace(plan, populations=shared)
        made.append(plan)
    return made
