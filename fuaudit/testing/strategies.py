"""Hypothesis strategies for federations, laws, requests and plans, small enough to enumerate."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from fuaudit.draws import END, Keyed, Position
from fuaudit.errors import BudgetError, UsageError
from fuaudit.plans import Plan, Population, Request, UniformLaw
from fuaudit.proofs.exactness import Rewrites, estimated_leaves
from fuaudit.proofs.toys import Toy, federation
from fuaudit.unlearning.baselines import Retrain
from fuaudit.unlearning.protocol import KINDS


def keys() -> st.SearchStrategy[Keyed]:
    """Keys of 32 bytes."""
    return st.binary(min_size=32, max_size=32).map(Keyed)


def federations(max_clients: int = 3, max_samples: int = 3) -> st.SearchStrategy[Population]:
    """Two or more clients with 1 to ``max_samples`` samples each, ragged."""
    sizes = st.lists(st.integers(1, max_samples), min_size=2, max_size=max_clients)
    return sizes.map(lambda chosen: federation(tuple(chosen)))


@st.composite
def laws(
    draw: st.DrawFn, max_rounds: int = 2, max_cohort: int = 2, max_steps: int = 2, max_batch: int = 2
) -> UniformLaw:
    """Uniform laws, with and without replacement."""
    return UniformLaw(
        draw(st.integers(1, max_rounds)),
        draw(st.integers(1, max_cohort)),
        draw(st.integers(1, max_steps)),
        draw(st.integers(1, max_batch)),
        replacement=draw(st.booleans()),
    )


@st.composite
def requests(draw: st.DrawFn, population: Population, kinds: tuple[str, ...] = KINDS) -> Request:
    """A request that fits a population and leaves something to train on."""
    kind = draw(st.sampled_from(kinds))
    clients: list[int] = []
    samples: list[int] = []
    if kind != "sample":
        clients = draw(st.lists(st.sampled_from(population.clients), min_size=1, max_size=2, unique=True))
    if kind != "client":
        owned = [s for client in population.clients if client not in clients for s in population.samples[client]]
        assume(owned)
        samples = draw(st.lists(st.sampled_from(owned), min_size=1, max_size=2, unique=True))
    request = Request.of(clients, samples)
    try:
        population.without(request)
    except UsageError:  # nothing would be left
        assume(False)
    return request


@st.composite
def streams(
    draw: st.DrawFn, population: Population, at_most: int = 2, kinds: tuple[str, ...] = KINDS
) -> tuple[Request, ...]:
    """One to ``at_most`` requests, each fitting what the earlier ones leave."""
    asked: list[Request] = []
    left = population
    for _ in range(draw(st.integers(1, at_most))):
        asked.append(draw(requests(left, kinds)))
        left = left.without(asked[-1])
    return tuple(asked)


@st.composite
def moments(draw: st.DrawFn, law: UniformLaw) -> Position:
    """The first position not yet executed when a request comes; ``END`` is as likely as all others together."""
    if draw(st.booleans()):
        return END
    return Position(draw(st.integers(1, law.rounds)), draw(st.integers(0, law.steps)))


@st.composite
def plans(draw: st.DrawFn, max_clients: int = 5, max_samples: int = 6, rewrites: int = 3) -> Plan:
    """Plans under true keys, rewritten up to ``rewrites`` times.

    A rewrite cuts before anything erased is drawn, starts again as a whole, or (the last one) keeps everything.
    """
    plan = Plan.fresh(draw(laws(4, 4, 3, 4)), draw(federations(max_clients, max_samples)), draw(keys()))
    for request in draw(streams(plan.retained, rewrites)) if rewrites and draw(st.booleans()) else ():
        fresh = draw(keys())
        assume(fresh not in plan.sources)
        at = min(plan.first_involvement(request) or END, draw(moments(plan.law)))  # type: ignore[arg-type]
        manner = draw(st.integers(0, 5))
        if manner == 1:  # as noop does; what was erased is still drawn, so it comes last
            return plan.erase(request, fresh, END)
        plan = plan.restart(request, fresh) if manner == 0 else plan.erase(request, fresh, at)
    return plan


@st.composite
def trials(
    draw: st.DrawFn,
    /,
    leaves: int = 4000,
    kinds: tuple[str, ...] = KINDS,
    unlearner: Rewrites | None = None,
    **sizes: Any,
) -> Toy:
    """Federations with requests whose proof for ``unlearner`` has about ``leaves`` leaves at most.

    ``sizes`` are passed on to :func:`laws`. Only the first request of a stream may come during training.
    """
    population = draw(federations())
    law = draw(laws(**sizes))
    asked = draw(streams(population, kinds=kinds))
    not_before = (draw(moments(law)), *[END] * (len(asked) - 1))
    try:
        small = estimated_leaves(unlearner or Retrain(), law, population, asked) <= leaves
    except BudgetError:
        small = False
    assume(small)
    return Toy(law, population, asked, not_before)
