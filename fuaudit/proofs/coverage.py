"""Coverage: how far some small federations go, and how far they must go to stand for those of a run.

Places and batches count where what is left after the requests can be drawn in two ways; see
:mod:`fuaudit.proofs.variation`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import combinations

from fuaudit.errors import FuauditError
from fuaudit.plans import Law, Population, UniformLaw
from fuaudit.proofs.toys import PLACES, Toy, federation
from fuaudit.proofs.variation import varying_batch, varying_places
from fuaudit.text import counted

PAIRED = ("rounds", "places", "steps", "batch")
"""What a method may be wrong for where two of them are above 1."""


@dataclass(frozen=True)
class Coverage:
    """The largest of every number among some federations, and which ids were requested in them.

    Attributes:
        places: the most places of which a cohort of the retained clients can come out in two ways; 0 for none.
        batch: the most samples of which a batch of a retained client can; 0 for none.
        together: how many of rounds, places, steps and batch are above 1 in one federation, at most.
        pairs: which two of them are, in one federation.
    """

    rounds: int
    places: int
    steps: int
    batch: int
    clients: int
    samples: int
    requests: int
    ids: tuple[str, ...] = ()
    together: int = 0
    pairs: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, toys: Iterable[Toy]) -> Coverage:
        """Of federations; 0 everywhere where there are none."""
        rows: list[tuple[int, ...]] = []
        ids, pairs = set[str](), set[tuple[str, str]]()
        for toy in toys:
            population = toy.population
            largest = max(map(len, population.samples.values()))
            numbers = varying_numbers(toy)
            above = [name for name, number in zip(PAIRED, numbers, strict=True) if number > 1]
            pairs |= {*combinations(above, 2)}
            rows.append((*numbers, len(population.clients), largest, len(toy.requests), len(above)))
            ids |= _places(toy)
        largest_of = map(max, zip(*(rows or [(0,) * 8]), strict=True))
        rounds, places, steps, batch, clients, samples, requests, together = largest_of
        found = tuple(place for place in PLACES if place in ids)
        return cls(rounds, places, steps, batch, clients, samples, requests, found, together, frozenset(pairs))

    def and_(self, other: Coverage) -> Coverage:
        """What both reach."""
        numbers = {f.name: min(getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.type == "int"}
        ids = tuple(place for place in self.ids if place in other.ids)
        return Coverage(**numbers, ids=ids, pairs=self.pairs & other.pairs)

    def __str__(self) -> str:
        ids = " and ".join([", ".join(self.ids[:-1]), *self.ids[-1:]] if len(self.ids) > 1 else self.ids)
        return (
            f"at most {counted(self.rounds, 'round')}, {self._drawn}, {counted(self.clients, 'client')}, "
            f"{counted(self.samples, 'sample')} of one, {counted(self.requests, 'request')} one after another; at most "
            f"{self.together} of rounds, places, steps and batch above 1 at once{self._never}; the {ids} ids requested"
        )

    @property
    def _drawn(self) -> str:
        """In words: places, steps and batch; where nothing was left to chance, that."""
        places = f"{counted(self.places, 'place')} in a round" if self.places else "rounds of which no cohort can vary"
        batch = f"batches of {self.batch}" if self.batch else "batches that cannot vary"
        return f"{places}, {counted(self.steps, 'step')}, {batch}"

    @property
    def _never(self) -> str:
        """In words: which two are above 1, and never at once."""
        above = [name for name in PAIRED if getattr(self, name) > 1]
        lacking = [f"{one} and {other}" for one, other in combinations(above, 2) if (one, other) not in self.pairs]
        return f", never {', nor '.join(lacking)}" if lacking else ""


def varying_numbers(toy: Toy) -> tuple[int, int, int, int]:
    """Rounds, places, steps and batch of a federation; places and batch where what is left of it can vary."""
    return toy.law.rounds, varying_places(toy.law, toy.retained), toy.law.steps, varying_batch(toy.law, toy.retained)


def _places(toy: Toy) -> set[str]:
    """Where ids that are requested stand among all clients, and among all samples."""
    clients, samples = toy.population.clients, tuple(toy.population.owner)
    asked = [(c, clients) for request in toy.requests for c in request.clients]
    asked += [(s, samples) for request in toy.requests for s in request.samples]
    return {"lowest" if i == min(among) else "highest" if i == max(among) else "middle" for i, among in asked}


FLOOR = {"rounds": 2, "places": 2, "steps": 2, "clients": 3}
"""How far small federations must go for a PASS, where those of the run go as far."""

FLOOR_OF_UNIFORM = {"rounds": 3, "places": 3, "steps": 2, "batch": 3, "clients": 4}
"""The same for uniform cohorts, which have fewer outcomes."""


STOPS = (1, 2)
"""How many rounds were executed when a request during training comes, in small federations."""

FLOOR_DURING = {1: {"rounds": 2, "places": 2}, 2: {"rounds": 3}}
"""How far they must go for requests during training, by the rounds executed then."""

FLOOR_OF_UNIFORM_DURING = {
    1: {"rounds": 2, "places": 2, "steps": 2, "batch": 2, "clients": 3},
    2: {"rounds": 3, "steps": 2, "clients": 3},
}
"""The same for uniform cohorts."""


def missing(found: Coverage, law: Law, population: Population, stop: int | None = None) -> list[str]:
    """What federations like those of a run must reach, and do not: in words, as "batch 3 (only 2)".

    Args:
        found: what they reach.
        law: of the run.
        population: of the run, before the request.
        stop: how many rounds were executed when the request came; None where training was over.
    """
    own = {
        "rounds": law.rounds,
        "places": _most_places(law, law.places(population)),
        "steps": law.steps,
        "batch": law.slots,
        "clients": len(population.clients),
    }
    uniform = type(law) is UniformLaw
    if stop is None:
        floor = FLOOR_OF_UNIFORM if uniform else FLOOR
    else:
        floor = (FLOOR_OF_UNIFORM_DURING if uniform else FLOOR_DURING)[stop]
    asked = {name: min(least, own[name]) for name, least in floor.items()}
    reached = {name: getattr(found, name) for name in asked}
    short = [f"{name} {least} (only {reached[name]})" for name, least in asked.items() if reached[name] < least]
    return short + [f"{place} ids" for place in PLACES if place not in found.ids]


def _most_places(law: Law, own: int) -> int:
    """The places of a round, but no more than vary under some small law like it: some have everybody in every round."""
    four, most = federation((1,) * 4), 0
    for small in law.smaller():
        try:
            most = max(most, varying_places(small, four))
        except FuauditError:  # a law of clients of its own
            return own
        if most >= min(own, 3):
            return own
    return min(own, most)
