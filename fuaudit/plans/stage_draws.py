"""Draws of a solver and of the stages of an exchange: each stands in the plan behind the steps of its round.

They are cut with these steps, so an unlearner decides nothing about them. Where it draws anything anew (the initial
model, a cohort, a batch), stages draw everything anew from there on: what was drawn once is never used over rows that
changed. The noise of all steps of a round stands there too: a round that is cut inside makes its first steps again,
with noise of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from fuaudit.draws import Address, Draws, Keyed, Labelled, Position, Purpose
from fuaudit.draws.keyed import derive
from fuaudit.errors import EvidenceError
from fuaudit.plans.plan import Plan


class Part(NamedTuple):
    """Where a part of a round stands: the solver, or in which chain of the exchange, and there as which, from 0."""

    chain: Literal["solver", "client", "transport", "server"]
    number: int = 0

    def __str__(self) -> str:
        return self.chain if self.chain in ("solver", "transport") else f"{self.chain}.{self.number}"

    def address(self, round_number: int, step: int) -> Address:
        """What a part draws in a round has positions from a step on; one more client stage shifts no server stage."""
        purpose = _PURPOSE_OF.get(self.chain, Purpose.STAGE)
        return Address(purpose, round_number, step + self.number + (self.chain == "server"))


OF_SOLVER = Part("solver")
"""Where a solver draws, and under which name a round tells of it."""

_PURPOSE_OF = {"solver": Purpose.SOLVER, "client": Purpose.CLIENT_STAGE}


class StageDraws(Protocol):
    """What the stages of one run draw in a round."""

    def own(self, number: int, part: Part, client: int, occurrence: int) -> Labelled:
        """What a client alone draws, for one of its participations in the round."""
        ...

    def shared(self, number: int, part: Part) -> Labelled:
        """What all draw together."""
        ...

    def lot(self, number: int, part: Part, clients: Sequence[int]) -> Labelled:
        """What the clients of a round, each once and ascending, draw together under a key that each has a part in."""
        ...


class PublicDraws:
    """Draws of stages that everybody knows: for canaries and contracts."""

    def own(self, number: int, part: Part, client: int, occurrence: int) -> Labelled:
        """See :class:`StageDraws`."""
        return Labelled(bytes(32), part.address(number, 0)._replace(client=client, occurrence=occurrence))

    def shared(self, number: int, part: Part) -> Labelled:
        """See :class:`StageDraws`."""
        return Labelled(bytes(32), part.address(number, 0))

    def lot(self, number: int, part: Part, clients: Sequence[int]) -> Labelled:
        """See :class:`StageDraws`."""
        return self.shared(number, part)


def _no_lot(number: int, clients: Sequence[int]) -> bytes:
    raise EvidenceError(f"nobody contributes to the lot of round {number}: its transport shows rows, or draws nothing")


@dataclass(frozen=True)
class Generation:
    """The keys, of 32 bytes, with which stages draw from one request to the next.

    Attributes:
        own: gives a client's key; it raises EvidenceError where the key was destroyed.
        shared: with what all draw together.
        lot: gives the key of a round's lot, from its number and its clients, each once and ascending; it raises
            EvidenceError where the secret of one was destroyed, or where there are no lots.
    """

    own: Callable[[int], bytes] = field(repr=False)
    shared: bytes = field(repr=False)
    lot: Callable[[int, Sequence[int]], bytes] = field(repr=False, default=_no_lot)

    @classmethod
    def flat(cls, key: bytes) -> Generation:
        """All keys from one: for plans of statistics."""
        return cls(
            lambda client: derive(key, "stages", str(client)),
            derive(key, "stages"),
            lambda number, clients: derive(key, "lot", str(number), *map(str, clients)),
        )


@dataclass(frozen=True)
class PlannedDraws:
    """The draws of the stages of one run, see :class:`StageDraws`."""

    plan: Plan
    generations: tuple[Generation, ...]

    @classmethod
    def flat(cls, plan: Plan, sources: Sequence[Draws]) -> PlannedDraws:
        """Of a plan of statistics that is drawn from these flat sources, also where a method recorded some."""
        return cls(plan, tuple(Generation.flat(source.secret) for source in sources if isinstance(source, Keyed)))

    def own(self, number: int, part: Part, client: int, occurrence: int) -> Labelled:
        """See :class:`StageDraws`."""
        generation, at = self._at(number, part)
        return Labelled(generation.own(client), at._replace(client=client, occurrence=occurrence))

    def shared(self, number: int, part: Part) -> Labelled:
        """See :class:`StageDraws`."""
        generation, at = self._at(number, part)
        return Labelled(generation.shared, at)

    def lot(self, number: int, part: Part, clients: Sequence[int]) -> Labelled:
        """See :class:`StageDraws`."""
        generation, at = self._at(number, part)
        return Labelled(generation.lot(number, clients), at)

    def _at(self, number: int, part: Part) -> tuple[Generation, Address]:
        at = part.address(number, self.plan.law.steps + 1)
        source, version = self.plan.latest(at.position)
        return self.generations[source], at._replace(version=version)


def generation_of(plan: Plan, number: int) -> int:
    """With the keys of which generation the stages of a round draw."""
    source, _ = plan.latest(Position(number, plan.law.steps + 1))
    return source


def not_drawn_anew(plan: Plan, rounds: Iterable[int], number: int) -> tuple[int, ...]:
    """Those of some rounds in which stages draw with other keys, or over others, than request ``number`` brought."""
    step = plan.law.steps + 1
    return tuple(one for one in rounds if plan.latest(Position(one, step)) != (number, number))


def keeps_draws(plan: Plan, number: int) -> bool:
    """Whether a stage still draws what it drew before request ``number``: then the first of round 1 does."""
    return generation_of(plan, 1) < number
