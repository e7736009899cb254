"""Plans drawn, rewritten and scored by the ten thousand.

Every plan follows from the key of the audit and its own number, so results do not depend on how numbers are
grouped. The rewriter runs as it is installed, once a plan, or once for each cut that it declares to go by
(:mod:`fuaudit.plans.cuts`); what surrounds it is arrays.
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
from fuaudit.declared import says
from fuaudit.draws import END, Position
from fuaudit.draws.columns import Derived
from fuaudit.errors import UsageError
from fuaudit.plans import Law, Population, Request, UniformLaw
from fuaudit.plans.cuts import Carrier
from fuaudit.plans.expanded import NONE
from fuaudit.plans.involvement import involvements
from fuaudit.plans.many import Plans, Streams
from fuaudit.plans.plan import first_change
from fuaudit.plans.reference import REFERENCES, Edited
from fuaudit.plans.stacked import PLACES, Stack

Ids = NDArray[np.int64]
CHUNK = 2048
"""Plans worked on at once, at most."""

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

    @cached_property
    def carrier(self) -> Carrier:
        """What carries it out on many plans, and remembers what came of each cut."""
        return Carrier(self.unlearner, self.name, self.request, self.not_before)


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
    def _references(self) -> dict[tuple[int, str], Carrier]:
        return {}

    def reference(self, place: int, name: str) -> Carrier:
        """What carries out one step of :attr:`steps` by a reference of this name; one object for all plans."""
        step = self.steps[place]
        made = Carrier(REFERENCES[name], name, step.request, step.not_before)
        return self._references.setdefault((place, name), made)

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


def chunks(trial: Trial, numbers: range) -> Iterator[range]:
    """Numbers of plans, in parts that are worked on at once: fewer where plans have more places."""
    size = max(1, min(CHUNK, PLACES // (trial.law.rounds * max(1, says(trial.law, "cohort_size")))))
    return (range(start, min(start + size, numbers.stop)) for start in range(numbers.start, numbers.stop, size))


def trained(trial: Trial, key: bytes, numbers: range, label: str = "plan law training") -> Plans:
    """The training plans with these numbers."""
    return Plans.fresh(trial.law, trial.population, Derived(key, label, numbers))


def fresh_for(key: bytes, label: str, numbers: range, place: int) -> Derived:
    """The new draws of plans with these numbers for one request of a trial."""
    return Derived(key, label, numbers, (str(place),))


def simulate(trial: Trial, key: bytes, numbers: range) -> Scores:
    """Draw, rewrite and score the plans with these numbers.

    Raises:
        PluginError: an unlearner raised, or returned no plan over the retained population.
    """
    return Scores.joined([_chunk(trial, key, chunk) for chunk in chunks(trial, numbers)])


def _chunk(trial: Trial, key: bytes, numbers: range) -> Scores:
    plans, rounds = trained(trial, key, numbers), trial.law.rounds
    # of plans that are too large to be held, the cohorts are drawn some at a time, and again where they are needed
    cohorts = Stack(plans).cohorts() if len(plans) * rounds * trial.uniform.cohort_size <= PLACES else None
    touched = np.zeros(len(plans), dtype=np.bool_)
    first, redrawn = np.empty(0, dtype=np.int64), np.empty((len(plans), len(trial.steps)), dtype=np.int64)
    for place, step in enumerate(trial.steps):
        involved, at_step = involvements(plans, step.request, cohorts)
        if place == 0:
            first = np.minimum(involved - 1, rounds)
        fresh = fresh_for(key, "plan law request", numbers, place)
        after = step.carrier.carried_out(plans, fresh, involved, at_step)
        changes = after.by_form(plans, _first_change)
        redrawn[:, place] = np.clip(rounds + 1 - np.maximum(changes, 1), 0, None)
        plans = after
        if cohorts is not None:
            cohorts = _cohorts(plans, changes, cohorts)
        touched = (involved < step.not_before.round) | (
            (involved == step.not_before.round) & (at_step < step.not_before.step)
        )
    stack, restarted = Stack(plans), np.full(len(plans), KEPT, dtype=np.int64)
    changed = np.flatnonzero(redrawn[:, -1])
    drawn = stack.cohorts_at(changed, rounds + 1 - redrawn[changed, -1])
    restarted[changed] = (drawn == trial.probe.client).any(axis=1)
    return Scores(score(stack, trial.probe, cohorts), first, touched, redrawn, restarted)


def retrained(trial: Trial, key: bytes, numbers: range) -> Ids:
    """The numbers of plans drawn on the retained population, ``(n, 5)``: what the known laws describe."""
    parts = []
    for chunk in chunks(trial, numbers):
        plans = Plans.fresh(trial.law, trial.retained, Derived(key, "plan law retraining", chunk))
        parts.append(score(Stack(plans), replace(trial.probe, target=Request()), None))
    return np.concatenate(parts)


def _first_change(new: Streams, old: Streams) -> int:
    """The first round that is not kept."""
    return first_change(new, old).round


def _cohorts(plans: Plans, changes: Ids, known: Ids) -> Ids:
    """The cohorts of rewritten plans, ``(n, R, K)``: those of rounds before ``changes (n,)`` are as ``known``."""
    run, column = np.nonzero(np.arange(1, plans.law.rounds + 1) >= changes[:, None])
    if not len(run):
        return known
    drawn = Stack(plans).cohorts_at(run, column + 1)
    cohorts = np.pad(known, [(0, 0), (0, 0), (0, drawn.shape[1] - known.shape[2])], constant_values=NONE)
    cohorts[run, column] = drawn
    return cohorts
