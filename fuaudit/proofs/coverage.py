"""Coverage: how far some small federations go, and how far they must go to stand for those of a run.

Rounds, places, steps and batches count where what is left after the requests can be drawn in two ways; see
:mod:`fuaudit.proofs.variation`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import combinations

from fuaudit.errors import FuauditError
from fuaudit.plans import Law, Population, UniformLaw
from fuaudit.plans.strange_laws import places_of
from fuaudit.proofs.toys import PLACES, Toy, federation
from fuaudit.proofs.variation import Variation, variation
from fuaudit.text import counted

PAIRED = {name: name for name in Variation._fields} | {"drawing": "batches of two clients"}
"""What a method may be wrong for where two of them are above 1, with their names in words.

"batches of two clients" is the last of them: a cohort of which two clients each have a batch that can vary.
"""


NUMBERS = (*PAIRED, "clients", "samples", "requests", "together")
"""What is told of one federation; the largest of each is told of several."""


@dataclass(frozen=True)
class Coverage:
    """The largest of every number among some federations, and which ids were requested in them.

    Attributes:
        rounds, places, steps, batch, drawing: see :class:`fuaudit.proofs.variation.Variation`.
        together: how many of these are above 1 in one federation, at most.
        pairs: which two of them are, in one federation.
    """

    rounds: int
    places: int
    steps: int
    batch: int
    drawing: int
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
            numbers = variation(toy.law, toy.retained)
            above = [name for name, number in zip(PAIRED, numbers, strict=True) if number > 1]
            pairs |= {*combinations(above, 2)}
            rows.append((*numbers, len(population.clients), largest, len(toy.requests), len(above)))
            ids |= _places(toy)
        largest_of = dict(zip(NUMBERS, map(max, zip(*(rows or [(0,) * len(NUMBERS)]), strict=True)), strict=True))
        return cls(**largest_of, ids=tuple(place for place in PLACES if place in ids), pairs=frozenset(pairs))

    def and_(self, other: Coverage) -> Coverage:
        """What both reach."""
        numbers = {f.name: min(getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.type == "int"}
        ids = tuple(place for place in self.ids if place in other.ids)
        return Coverage(**numbers, ids=ids, pairs=self.pairs & other.pairs)

    def __str__(self) -> str:
        return f"{self._sizes}, {self._in_turn}; {self._together}; {self._requested}"

    def sentences(self, when: str = "") -> str:
        """The same for a reader, in short sentences; ``when`` the requests came, in words."""
        asked = f"With {self._in_turn}{when and f', {when}'}"
        return f"{asked}: {self._sizes}; {self._requested}. In one federation {self._together}."

    @property
    def _in_turn(self) -> str:
        return counted(self.requests, "request") + (", one after another" if self.requests > 1 else "")

    @property
    def _sizes(self) -> str:
        return f"at most {self._drawn}, {counted(self.clients, 'client')}, {counted(self.samples, 'sample')} of one"

    @property
    def _together(self) -> str:
        above = "is above 1" if self.together == 1 else f"are above 1{self._never}"
        return f"at most {self.together} of rounds, places, steps, batch and drawing clients {above}"

    @property
    def _requested(self) -> str:
        ids = " and ".join([", ".join(self.ids[:-1]), *self.ids[-1:]] if len(self.ids) > 1 else self.ids)
        return f"the {ids} ids requested"

    @property
    def _drawn(self) -> str:
        """In words: what can vary; where nothing was left to chance, that."""
        rounds = counted(self.rounds, "round") if self.rounds else "rounds that cannot vary"
        places = f"{counted(self.places, 'place')} in a round" if self.places else "rounds of which no cohort can vary"
        batch = f"{counted(self.steps, 'step')}, batches of {self.batch}" if self.batch else "batches that cannot vary"
        drawing = f", {counted(self.drawing, 'drawing client')} in a round" if self.batch else ""
        return f"{rounds}, {places}, {batch}{drawing}"

    @property
    def _never(self) -> str:
        """In words: which two are above 1, and never at once; batches of two clients also by themselves."""
        above = [name for name in PAIRED if getattr(self, name) > 1]
        pairs = [pair for pair in combinations(above, 2) if pair not in self.pairs]
        lacking = [f"{PAIRED[one]} and {PAIRED[other]}" for one, other in pairs]
        if self.drawing < 2 and max(self.places, self.clients) > 1:
            lacking.append(PAIRED["drawing"])
        return f", never {', nor '.join(lacking)}" if lacking else ""


def _places(toy: Toy) -> set[str]:
    """Where ids that are requested stand among all clients, and among all samples."""
    clients, samples = toy.population.clients, tuple(toy.population.owner)
    asked = [(c, clients) for request in toy.requests for c in request.clients]
    asked += [(s, samples) for request in toy.requests for s in request.samples]
    return {"lowest" if i == min(among) else "highest" if i == max(among) else "middle" for i, among in asked}


FLOOR = {"rounds": 2, "places": 2, "steps": 2, "drawing": 2, "clients": 3}
"""How far small federations must go for a PASS, where those of the run go as far."""

FLOOR_OF_UNIFORM = {"rounds": 3, "places": 3, "steps": 2, "batch": 3, "drawing": 2, "clients": 4}
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
        "places": places_of(law, population.of_laws),
        "steps": law.steps,
        "batch": law.slots,
        "drawing": min(places_of(law, population.of_laws), len(population.clients)),
        "clients": len(population.clients),
    }
    uniform = type(law) is UniformLaw
    if stop is None:
        floor = FLOOR_OF_UNIFORM if uniform else FLOOR
    else:
        floor = (FLOOR_OF_UNIFORM_DURING if uniform else FLOOR_DURING)[stop]
    asked = {name: min(least, own[name]) for name, least in floor.items()}
    low = [name for name, least in asked.items() if getattr(found, name) < least]
    asked |= {name: _most(law, name, asked[name]) for name in low if name in PAIRED}
    short = [
        f"{'drawing clients' if name == 'drawing' else name} {asked[name]} (only {reached})"
        for name in low
        if (reached := getattr(found, name)) < asked[name]
    ]
    return short + [f"{place} ids" for place in PLACES if place not in found.ids]


def _most(law: Law, name: str, least: int) -> int:
    """A number, but no more than varies under some small law like it: some laws have everybody in every round."""
    most = None
    for small in law.smaller():
        two = small.slots + 1  # a batch can vary
        for sizes in ((two, two, 1, 1), (1,) * 4):
            try:
                most = max(most or 0, getattr(variation(small, federation(sizes)), name))
            except FuauditError:  # clients of its own, or no room for as many samples
                continue
            if most >= least:
                return least
    return least if most is None else most
