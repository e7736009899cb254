"""Draws of the stages of an exchange: each stands in the plan behind the steps of its round, and is cut with them.

So an unlearner decides nothing about them. Where it draws anything anew (the initial model, a cohort, a batch), stages
draw everything anew from there on: what was drawn once is never used over rows that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuaudit.draws import Address, Draws, Keyed, Labelled, Position, Purpose
from fuaudit.draws.address import NOBODY
from fuaudit.draws.keyed import derive
from fuaudit.plans.plan import Plan


@dataclass(frozen=True)
class Generation:
    """The keys, of 32 bytes, with which stages draw from one request to the next.

    Attributes:
        own: gives a client's key; it raises EvidenceError where the key was destroyed.
        shared: with what all draw together.
    """

    own: Callable[[int], bytes] = field(repr=False)
    shared: bytes = field(repr=False)

    @classmethod
    def flat(cls, key: bytes) -> Generation:
        """All keys from one: for plans of statistics."""
        return cls(lambda client: derive(key, "stages", str(client)), derive(key, "stages"))


@dataclass(frozen=True)
class PlannedDraws:
    """The draws of the stages of one run; see :class:`fuaudit.training.rounds.StageDraws`."""

    plan: Plan
    generations: tuple[Generation, ...]

    @classmethod
    def flat(cls, plan: Plan, sources: Sequence[Draws]) -> PlannedDraws:
        """Of a plan of statistics that is drawn from these flat sources, also where a method recorded some."""
        return cls(plan, tuple(Generation.flat(source.secret) for source in sources if isinstance(source, Keyed)))

    def own(self, number: int, part: int, client: int, occurrence: int) -> Labelled:
        """See :class:`~fuaudit.training.rounds.StageDraws`."""
        generation, at = self._at(number, part)
        return Labelled(generation.own(client), at._replace(client=client, occurrence=occurrence))

    def shared(self, number: int, part: int) -> Labelled:
        """See :class:`~fuaudit.training.rounds.StageDraws`."""
        generation, at = self._at(number, part)
        return Labelled(generation.shared, at)

    def _at(self, number: int, part: int) -> tuple[Generation, Address]:
        position = Position(number, self.plan.law.steps + 1 + part)
        source, version = self.plan.latest(position)
        return self.generations[source], Address(Purpose.STAGE, *position, NOBODY, version=version)


def keeps_draws(plan: Plan, number: int) -> bool:
    """Whether a stage still draws what it drew before request ``number``: then the first of round 1 does."""
    source, _ = plan.latest(Position(1, plan.law.steps + 1))
    return source < number
