"""A law is tried over a population before anybody trains with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from typing import Any

from fuaudit.declared import offers, says
from fuaudit.draws import Address, Keyed, Position, Stream
from fuaudit.draws.address import STREAM_OF
from fuaudit.errors import PluginError
from fuaudit.plans.availability import (
    AvailabilityLaw,
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.law import Law, UniformLaw, WeightedLaw
from fuaudit.plans.plan import Plan, occurrences
from fuaudit.plans.population import Population
from fuaudit.plans.strange_laws import SEE, is_foreign, otherwise_than_said, require_unbroken


def require_law(law: Law, population: Population) -> None:
    """Try a law over a population, under a key that nothing else uses.

    Raises:
        PluginError: it raises, says what cannot be, has the name of a law of fuaudit, draws at addresses where
            nobody will look for the draw, or does not draw again what it drew before.
    """
    require_own_name(law)
    for what, problem in _problems(law, population):
        raise PluginError(f"the law {type(law).__name__}, {what}, {problem}", SEE)


def require_own_name(law: Law) -> None:
    """Rewriters claim exactness for a law by its name, so a law of a stranger takes none of fuaudit's.

    Raises:
        PluginError: it does.
    """
    if is_foreign(law) and law.name in _names():
        raise PluginError(
            f"the law {type(law).__name__} is called {law.name!r}, which is a law of fuaudit", "Give it its own name."
        )


@cache
def _names() -> frozenset[str]:
    """What fuaudit calls its laws."""
    half = Fraction(1, 2)
    weighted = TimeVaryingWeights(number=1, largest=2), TimeVaryingWeights(share=half, largest=2)
    who = BoundedRoundRobin(2), StaticProbability(half), *weighted
    batches = FreshBatches(1, 1), PermutedEpochs(1, 1, 1), PoissonBatches(1, half, 1, 1)
    laws: tuple[Law, ...] = (
        *(UniformLaw(1, 1, 1, 1, replacement) for replacement in (True, False)),
        WeightedLaw(1, 1, 1, 1, ((0, 1),)),
        *(AvailabilityLaw(1, one, other) for one in who for other in batches),
    )
    return frozenset(law.name for law in laws)


def _problems(law: Law, population: Population) -> Iterator[tuple[str, str]]:
    """What is wrong, and with which member."""
    if not isinstance(_asked(law, "name", lambda: law.name), str):
        yield "name", "is no text"
    if offers(law, "included") and type(law) is not AvailabilityLaw and not says(law, "cuts"):
        yield "included", "is never asked for: a law whose batches can be cut says so by cuts = True"
    for member in ("rounds", "steps", "slots"):
        if not _is_count(found := _asked(law, member, partial(getattr, law, member))):
            yield member, f"is {found!r}, and not a whole number from 1"
    if not _is_count(places := _asked(law, "places", lambda: law.places(population.of_laws))):
        yield "places", f"returned {places!r}, and not a whole number from 1"
    for step in range(min(law.steps, 3) + 1):
        at = _asked(law, "drawn_at", partial(law.drawn_at, step))
        if type(at) is not int or not min(step, 1) <= at <= step:
            yield f"drawn_at of step {step}", f"returned {at!r}, and not this step or an earlier one"
    noting = Noting(Keyed(bytes(32)))
    plan = Plan.fresh(law, population, noting)
    for number in range(1, min(law.rounds, 2) + 1):
        what, cohort = f"cohort of round {number}", plan.cohort(number)
        yield from ((what, problem) for problem in _cohort_problems(law, cohort, population, places))
        yield from ((what, problem) for problem in noting.elsewhere(Stream.COHORTS, Position(number, 0)))
        for client, occurrence in list(occurrences(cohort))[:2]:
            yield from _batch_problems(plan, noting, number, client, occurrence)
    if (again := _asked_again(law, population)) != noting.every:
        first, now = len(noting.every), len(again)
        missing = f": where it asked {first} times for a draw, it now asked {now} times" if first != now else ""
        yield "asked again", f"draws at other addresses{missing}. It must keep nothing of what it drew, in no module"


def _asked_again(law: Law, population: Population) -> list[Address]:
    """The addresses at which a law draws what :func:`_problems` looked at, from an equal source that it never met."""
    noting = Noting(Keyed(bytes(32)))
    plan = Plan.fresh(law, population, noting)
    for number in range(1, min(law.rounds, 2) + 1):
        for client, occurrence in list(occurrences(plan.cohort(number)))[:2]:
            for step in range(1, min(law.steps, 2) + 1):
                plan.batch(number, step, client, occurrence)
                if says(law, "cuts"):
                    plan.included(number, step, client, occurrence)
    return noting.every


def _batch_problems(plan: Plan, noting: Noting, number: int, client: int, occurrence: int) -> Iterator[tuple[str, str]]:
    """What is wrong with the first batches of a participation."""
    law, owned = plan.law, plan.retained.samples[client]
    for step in range(1, min(law.steps, 2) + 1):
        batch = plan.batch(number, step, client, occurrence)
        what = f"batch of round {number}, step {step}, client {client}"
        if type(batch) is not tuple or sorted({*batch} & {*owned}) != list(batch):
            yield what, f"returned {batch!r}, and not a sorted tuple of this client's samples, each once"
        elif len(batch) > law.slots:
            yield what, f"returned {len(batch)} samples, and slots says {law.slots}"
        elif says(law, "cuts"):
            whole = plan.included(number, step, client, occurrence)
            if sorted({*whole} & {*owned}) != list(whole) or not {*batch} <= {*whole}:
                yield what, f"is {batch!r}, cut from {whole!r}, which holds not all of it, or others than this client's"
        at = Position(number, law.drawn_at(step))
        yield from ((what, problem) for problem in noting.elsewhere(Stream.BATCHES, at, (client, occurrence)))


def _cohort_problems(law: Law, cohort: Any, population: Population, places: int) -> Iterator[str]:
    if type(cohort) is not tuple or not {*cohort} <= {*population.clients}:
        yield f"returned {cohort!r}, and not a tuple of clients of the population"
    elif told := otherwise_than_said(law, cohort, places):
        yield told


def _asked(law: object, what: str, answer: Callable[[], Any]) -> Any:
    try:
        return answer()
    except Exception as error:
        require_unbroken(law, what, error)
        raise


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


@dataclass(frozen=True)
class Noting:
    """Draws that note the addresses at which they are asked.

    Attributes:
        asked: those since :meth:`elsewhere` was called.
        every: all of them.
    """

    source: Keyed
    asked: list[Address] = field(default_factory=list)
    every: list[Address] = field(default_factory=list)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def drawn(at: Address, *rest: Any) -> Any:
            self.asked.append(at)
            self.every.append(at)
            return getattr(self.source, method)(at, *rest)

        return drawn

    def elsewhere(self, stream: Stream, latest: Position, whose: tuple[int, int] | None = None) -> Iterator[str]:
        """What was asked since the last call that is of another stream, later than it is used, or of others."""
        asked = [*self.asked]
        self.asked.clear()
        for at in asked:
            if STREAM_OF[at.purpose] is not stream:
                yield f"draws at {at}: that purpose is of the {STREAM_OF[at.purpose]}"
            elif at.position != latest if whose else at.position > latest:
                yield f"draws at {at}: that is not round {latest.round}, step {latest.step}"
            elif whose and (at.client, at.occurrence) != whose:
                yield f"draws at {at}: that is not client {whose[0]}, occurrence {whose[1]}"
