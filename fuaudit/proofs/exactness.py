"""Proof of exactness by enumeration: the law of the rewritten plan against the law of a fresh plan.

Training is a function of the retained data, the initial draw and the history of all later draws. So equal joint laws of
initial draw and history give equal laws of the model, and the total variation between models is at most that between
those. On a small federation both laws are computed by walking every draw with exact rational weights.

The initial draw is one bit: which of two halves of all initial models. Where nobody looked at an initial draw it is
uniform and independent of all else, so it is not branched.

Rewriters get their plans through the same door as in use: see :mod:`fuaudit.plans.veil`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import inf
from operator import or_
from typing import Any, Protocol

from fuaudit.draws import END, Draws, Enumeration, Position, Purpose, enumerate_law, estimate_leaves
from fuaudit.draws.enumerating import counted_law
from fuaudit.errors import UsageError
from fuaudit.plans.law import Law
from fuaudit.plans.plan import Plan
from fuaudit.plans.population import Population, Request
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.plans.veil import rewritten
from fuaudit.proofs.parts import OtherPlanError, estimated_in_parts, retraining_in_parts, unlearning_in_parts

Initial = int | None
"""The half that the initial model was drawn from; None where nobody looked."""

History = tuple[Initial, Hashable]
"""The initial draw, and cohorts, batches and what was cut from them (:meth:`fuaudit.plans.Plan.history`)."""

Laws = dict[History, Fraction]
DEFAULT_LEAVES = 200_000


class Rewrites(Protocol):
    """The part of a rewriter that a proof needs; see fuaudit.unlearning."""

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan: ...


@dataclass(frozen=True)
class Witness:
    """One history, and its probability after unlearning and after retraining.

    ``initial`` is the half that the initial model was drawn from, None where the laws differ without it.
    """

    history: Any
    unlearned: Fraction
    retrained: Fraction
    initial: Initial = None

    @property
    def draws(self) -> str:
        """The history in words."""
        half = [] if self.initial is None else [f"initial model of half {self.initial}"]
        rounds = (
            f"round {number}: clients {list(cohort)}, batches {[[list(batch) for batch in steps] for steps in places]}"
            + (f", cut from them {[[list(cut) for cut in steps] for steps in gone[0]]}" if gone else "")
            for number, (cohort, places, *gone) in enumerate(self.history, 1)
        )
        return "; ".join([*half, *rounds])

    def __str__(self) -> str:
        return f"{self.draws}; probability {self.unlearned} after unlearning, {self.retrained} after retraining"


@dataclass(frozen=True)
class Exactness:
    """The result of a proof: ``total_variation`` is 0 iff the two laws are equal.

    ``witness`` is the smallest history with different probabilities, None when there is none; ``histories``
    the number of distinct histories of either law, ``leaves`` how many paths were walked for both.
    """

    total_variation: Fraction
    witness: Witness | None
    histories: int
    leaves: int = 0

    @property
    def exact(self) -> bool:
        """Whether the two laws are equal."""
        return self.total_variation == 0


def compare(unlearned: Laws, retrained: Laws) -> Exactness:
    """The exact total variation between two laws, and the smallest history that tells them apart."""
    zero = Fraction(0)
    if any(initial is not None for law in (unlearned, retrained) for initial, _ in law):
        unlearned, retrained = _halved(unlearned), _halved(retrained)
    keys = unlearned.keys() | retrained.keys()
    different = [key for key in keys if unlearned.get(key, zero) != retrained.get(key, zero)]
    gaps = [unlearned.get(key, zero) - retrained.get(key, zero) for key in different]
    witness = None
    if different:
        smallest = min(different, key=repr)
        initial, history = smallest
        witness = Witness(history, unlearned.get(smallest, zero), retrained.get(smallest, zero), initial)
    return Exactness(sum(map(abs, gaps), zero) / 2, witness, len(keys))


def _halved(law: Laws) -> Laws:
    """The same law, with initial draws that nobody looked at written out: both halves, with half the weight each."""
    halves: Laws = defaultdict(Fraction)
    for (initial, history), weight in law.items():
        for half in (0, 1) if initial is None else (initial,):
            halves[half, history] += weight / 2 if initial is None else weight
    return halves


def drawn(draws: Enumeration, plan: Plan) -> History:
    """All that a plan draws, on one path."""
    history = plan.history()
    return (plan.initial_uniform(1)[0] if draws.looked_at(Purpose.INIT) else None), history


def unlearning(
    unlearner: Rewrites,
    law: Law,
    population: Population,
    requests: Sequence[Request],
    not_before: Sequence[Position] | None = None,
) -> Callable[[Enumeration], History]:
    """The procedure "train, then carry out the requests one after another", up to the expanded history."""
    moments = not_before or [END] * len(requests)
    name = type(unlearner).__name__

    def procedure(draws: Enumeration) -> History:
        plan = Plan.fresh(law, population, draws.source("training"))
        for number, (request, moment) in enumerate(zip(requests, moments, strict=True), 1):
            plan = rewritten(unlearner, name, plan, request, draws.source(f"request {number}"), moment)
        return drawn(draws, plan)

    return procedure


def retraining(law: Law, population: Population, requests: Sequence[Request]) -> Callable[[Enumeration], History]:
    """The procedure "train on the retained population", up to the expanded history."""
    retained = population.without(reduce(or_, requests))
    return lambda draws: drawn(draws, Plan.fresh(law, retained, draws.source("retraining")))


def exactness(
    unlearner: Rewrites,
    law: Law,
    population: Population,
    requests: Sequence[Request],
    not_before: Sequence[Position] | None = None,
    leaves: int = DEFAULT_LEAVES,
) -> Exactness:
    """Compare the law of the unlearned history with that of retraining, exactly.

    Args:
        requests: carried out in order; they do not depend on the draws (non-adaptive).
        not_before: for each request the first position not yet executed when it came; ``END`` (the default)
            means that training was over.
        leaves: the budget; at most this many paths are walked on either side.

    Raises:
        UsageError: no requests, or requests that do not fit the population.
        BudgetError: more leaves than the budget.
        KeyReuseError: the unlearner drew twice at one key and address over different populations.
        PluginError: the unlearner raised, or returned no plan over the retained population.
    """
    if not requests:
        raise UsageError("a proof of unlearning needs at least one request")
    moments = not_before or [END] * len(requests)
    whole = unlearning(unlearner, law, population, requests, moments), retraining(law, population, requests)
    if is_foreign(law):
        return _compared(*whole, leaves)
    try:
        parts = unlearning_in_parts(unlearner, law, population, requests, moments)
        return _compared(parts, retraining_in_parts(law, population, requests), leaves)
    except OtherPlanError:
        return _compared(*whole, leaves)


def _compared(
    unlearned: Callable[[Enumeration], Any], retrained: Callable[[Enumeration], Any], leaves: int
) -> Exactness:
    (one, walked), (other, more) = counted_law(unlearned, leaves), counted_law(retrained, leaves)
    return replace(compare(one, other), leaves=walked + more)


def estimated_leaves(
    unlearner: Rewrites,
    law: Law,
    population: Population,
    requests: Sequence[Request],
    not_before: Sequence[Position] | None = None,
    probes: int = 32,
    most: float = inf,
) -> float:
    """How many leaves a proof would walk, about; cheap, and reproducible. Above ``most`` it says only that it is."""
    retrained = estimated_retraining(law, population, requests, probes, most)
    if retrained > most:
        return retrained
    moments = not_before or [END] * len(requests)
    if is_foreign(law):
        procedure = unlearning(unlearner, law, population, requests, moments)
        return retrained + estimate_leaves(procedure, probes, most - retrained)
    return retrained + estimated_in_parts(unlearner, law, population, requests, moments, probes, most - retrained)


def estimated_retraining(
    law: Law, population: Population, requests: Sequence[Request], probes: int = 32, most: float = inf
) -> float:
    """How many of these leaves are those of retraining; see :func:`estimated_leaves`."""
    if is_foreign(law):
        return estimate_leaves(retraining(law, population, requests), probes, most)
    return estimated_in_parts(None, law, population, requests, (), probes, most)


def adaptive_exactness(
    unlearner: Rewrites,
    law: Law,
    population: Population,
    requester: Callable[[Plan], Request],
    leaves: int = DEFAULT_LEAVES,
) -> dict[Request, Exactness]:
    """For a requester that looks at the draws: given each request it can make, the exactness conditional on it.

    The guarantee of an exact unlearner is for requests that do not depend on the draws; this shows by how
    much it fails when they do (Gupta et al., "Adaptive machine unlearning", NeurIPS 2021).
    """

    def procedure(draws: Enumeration) -> tuple[Request, History]:
        plan = Plan.fresh(law, population, draws.source("training"))
        request = requester(plan)
        new = rewritten(unlearner, type(unlearner).__name__, plan, request, draws.source("request 1"), END)
        return request, drawn(draws, new)

    joint = enumerate_law(procedure, leaves)
    results = {}
    for request in sorted({request for request, _ in joint}, key=repr):
        mass = sum(weight for (asked, _), weight in joint.items() if asked == request)
        conditional: Laws = {history: weight / mass for (asked, history), weight in joint.items() if asked == request}
        results[request] = compare(conditional, enumerate_law(retraining(law, population, [request]), leaves))
    return results
