"""How many places of a round, and samples of a batch, a law leaves to chance: asked of the law, by all its draws.

A cohort that is everybody, and a batch that is all of its owner's samples, come out in one way. No method can be wrong
in them, so a proof there shows nothing about so many places, or so large a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain, product

from fuaudit.draws import Enumeration
from fuaudit.draws.enumerating import paths
from fuaudit.plans import Law, Plan, Population
from fuaudit.plans.strange_laws import is_foreign

LEAVES = 1_000_000
"""One draw has fewer outcomes than the histories that were walked, so this many are enough."""

Drawn = tuple[int, ...]


def varying_places(law: Law, population: Population) -> int:
    """The most places of which a round has two different cohorts; 0 where every cohort of its size is the same one."""
    rounds = range(1, law.rounds + 1)
    return _known(law, population, "cohort", tuple((number,) for number in rounds), law.places(population))


def varying_batch(law: Law, population: Population) -> int:
    """The most samples of which a client has two different batches; 0 where every batch is all that there is."""
    clients = {len(samples): client for client, samples in population.samples.items()}.values()
    at = product(range(1, law.rounds + 1), range(1, law.steps + 1), clients, (0,))
    return _known(law, population, "batch", tuple(at), law.slots)


def _known(law: Law, population: Population, what: str, places: tuple[Drawn, ...], most: int) -> int:
    """What is asked once of laws that are values; of those of strangers each time."""
    ask = _asked if is_foreign(law) else _kept
    return ask(law, tuple(population.samples.items()), what, places, most)


def _asked(law: Law, samples: tuple[tuple[int, Drawn], ...], what: str, places: tuple[Drawn, ...], most: int) -> int:
    population, largest = Population(dict(samples)), 0
    for size in chain.from_iterable(_sizes(_draw(law, population, what, at)) for at in places):
        largest = max(largest, size)
        if largest >= most:
            break
    return largest


_kept: Callable[..., int] = lru_cache(maxsize=4096)(_asked)


def _draw(law: Law, population: Population, what: str, at: Drawn) -> Callable[[Enumeration], Drawn]:
    """One cohort, or one batch, of a plan over a population."""

    def procedure(draws: Enumeration) -> Drawn:
        drawn: Drawn = getattr(Plan.fresh(law, population, draws.source("retraining")), what)(*at)
        return drawn

    return procedure


def _sizes(draw: Callable[[Enumeration], Drawn]) -> Iterator[int]:
    """The sizes of which two different outcomes occur, as they are found."""
    first = dict[int, Drawn]()
    for outcome, _ in paths(draw, LEAVES):
        if first.setdefault(len(outcome), outcome) != outcome:
            yield len(outcome)
