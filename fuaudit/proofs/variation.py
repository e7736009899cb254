"""What a law leaves to chance: asked of the law, by its draws.

A cohort that is everybody, and a batch that is all of its owner's samples, come out in one way. No method can be wrong
in them, so a proof there shows nothing about so many places, or so large a batch. Nor does it show anything about a
round, or a step, of which nothing can come out in two ways.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from fuaudit.draws import Enumeration
from fuaudit.draws.enumerating import paths
from fuaudit.plans import Law, Plan, Population
from fuaudit.plans.strange_laws import is_foreign, places_of

LEAVES = 1_000_000
"""One draw has fewer outcomes than the histories that were walked, so this many are enough."""

Drawn = tuple[int, ...]


class Variation(NamedTuple):
    """How much of a plan over a population can come out in two ways; 0 for what never can.

    Attributes:
        rounds: of how many rounds the cohort, or a batch, can.
        places: the most places of which a cohort can.
        steps: in how many steps a batch can.
        batch: the most samples of which a batch can.
        drawing: the most clients of one cohort of whom each has a batch that can, in one step. A method that makes
            batches of two clients depend on each other is right where only one can.
    """

    rounds: int = 0
    places: int = 0
    steps: int = 0
    batch: int = 0
    drawing: int = 0


def variation(law: Law, population: Population) -> Variation:
    """What can come out in two ways. Laws that are values are asked once, those of strangers each time."""
    ask = _asked if is_foreign(law) else _kept
    return ask(law, tuple(population.samples.items()))


def varying_places(law: Law, population: Population) -> int:
    """The most places of which a round has two different cohorts; 0 where every cohort of its size is the same one."""
    return variation(law, population).places


def _asked(law: Law, samples: tuple[tuple[int, Drawn], ...]) -> Variation:
    population = Population(dict(samples))
    rounds, places, drawing, batch, steps = 0, 0, 0, 0, set[int]()
    for number in range(1, law.rounds + 1):
        sizes = _varying_batches(law, population, number)
        found = _round(law, population, number, sizes)
        rounds += found.varies
        places, drawing = max(places, found.places), max(drawing, found.drawing)
        drawn = [(step, size) for (step, client), size in sizes.items() if client in found.clients]
        steps |= {step for step, _ in drawn}
        batch = max([batch, *(size for _, size in drawn)])
    return Variation(rounds, places, len(steps), batch, drawing)


_kept: Callable[..., Variation] = lru_cache(maxsize=4096)(_asked)


class _Round(NamedTuple):
    """One round: whether it varies, places and drawing as in :class:`Variation`, and who can take part."""

    varies: bool
    places: int
    drawing: int
    clients: frozenset[int]


def _round(law: Law, population: Population, number: int, sizes: dict[tuple[int, int], int]) -> _Round:
    """All cohorts of a round, as far as another one could still add something."""
    who = {step: {client for at, client in sizes if at == step} for step, _ in sizes}
    able = set[int]().union(*who.values())
    most = places_of(law, population.of_laws)
    enough = min(most, max(map(len, who.values()), default=0))
    first, cohorts, places, drawing, clients = dict[int, Drawn](), set[Drawn](), 0, 0, set[int]()
    for cohort, _ in paths(_draw(law, population, "cohort", (number,)), LEAVES):
        if cohort in cohorts:
            continue
        cohorts.add(cohort)
        clients |= {*cohort}
        if first.setdefault(len(cohort), cohort) != cohort:
            places = max(places, len(cohort))
        drawing = max([drawing, *(len(drawn.intersection(cohort)) for drawn in who.values())])
        if places >= most and drawing >= enough and able <= clients:
            break
    return _Round(len(cohorts) > 1 or bool(able & clients), places, drawing, frozenset(clients))


def _varying_batches(law: Law, population: Population, number: int) -> dict[tuple[int, int], int]:
    """The largest batch of a round that can come out in two ways, by step and client; without those that cannot.

    Of clients with as many samples one is asked for all.
    """
    alike, found = dict[int, list[int]](), dict[tuple[int, int], int]()
    for client, samples in population.samples.items():
        alike.setdefault(len(samples), []).append(client)
    for step in range(1, law.steps + 1):
        for count, clients in alike.items():
            draw = _draw(law, population, "batch", (number, step, clients[0], 0))
            size = _largest_of_two(draw, min(law.slots, count))
            found |= {(step, client): size for client in clients if size}
    return found


def _draw(law: Law, population: Population, what: str, at: Drawn) -> Callable[[Enumeration], Drawn]:
    """One cohort, or one batch, of a plan over a population."""

    def procedure(draws: Enumeration) -> Drawn:
        drawn: Drawn = getattr(Plan.fresh(law, population, draws.source("retraining")), what)(*at)
        return drawn

    return procedure


def _largest_of_two(draw: Callable[[Enumeration], Drawn], most: int) -> int:
    """The largest size of which two different outcomes occur, at most ``most``; 0 where none do."""
    first, largest = dict[int, Drawn](), 0
    for outcome, _ in paths(draw, LEAVES):
        if first.setdefault(len(outcome), outcome) != outcome:
            largest = max(largest, len(outcome))
        if largest >= most:
            break
    return largest
