"""Draws under the leaves of a tree of seeds: every position of every plan of a lineage has a secret of its own.

A lineage is training and the requests after it. Each of them is a *generation*, from 0. A leaf that is revealed shows
the draws of one position, or one client's draws that last all rounds, in one generation. It shows nothing else.
Under its leaf a draw comes from the flat generator (:class:`~fuaudit.draws.keyed.Keyed`), by the same address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws.address import NOBODY, Address, Position, Purpose
from fuaudit.draws.keyed import Keyed, derive, philox_key
from fuaudit.draws.philox import Words
from fuaudit.draws.protocol import Draws
from fuaudit.draws.seeds import MOST_LEAVES, Seeds
from fuaudit.errors import EvidenceError, UsageError

AT_HAND = 2**16
"""Keys of leaves that a source remembers, at most: about 20 MB."""


@dataclass(frozen=True)
class Leaves:
    """Which leaf serves which draw, for M ``clients`` (ascending), R ``rounds`` and E ``steps``.

    A generation has 1 + M + R (E + 1) leaves: one for the initial draw, one a client for its draws that last all rounds
    (addresses in round 0), one a position.
    """

    clients: tuple[int, ...] = field(repr=False)
    rounds: int
    steps: int

    @property
    def size(self) -> int:
        """Leaves of one generation, L."""
        return 1 + len(self.clients) + self.rounds * (self.steps + 1)

    def in_all(self, requests: int, shared: bool = False) -> int:
        """Leaves of a tree with room for so many requests, and for what stages draw together where they do.

        Raises:
            UsageError: they are more than a tree may have.
        """
        found = self.size * (requests + 1) + shared
        if found > MOST_LEAVES:
            raise UsageError(
                f"{self.rounds:,} rounds of {self.steps:,} steps and {requests} requests need {found:,} seeds; "
                f"{MOST_LEAVES:,} is the most",
                "Leave room for fewer requests: requests = N in the table [run].",
            )
        return found

    @cached_property
    def _rank(self) -> dict[int, int]:
        return {client: place for place, client in enumerate(self.clients)}

    def generation(self, number: int) -> range:
        """All leaves of a generation."""
        return range(number * self.size, (number + 1) * self.size)

    def initial(self, generation: int) -> int:
        """The leaf of the initial draw."""
        return generation * self.size

    def client(self, generation: int, client: int) -> int:
        """The leaf of one client's draws that last all rounds."""
        return generation * self.size + 1 + self._rank[client]

    def position(self, generation: int, at: Position) -> int:
        """The leaf of a position of a round, from 1 to R, and a step, from 0 to E."""
        return generation * self.size + 1 + len(self.clients) + (at.round - 1) * (self.steps + 1) + at.step

    def of(self, generation: int, at: Address) -> int | None:
        """The leaf of an address; None beyond the last round, or the last step of one."""
        if at.round == 0:
            return self.initial(generation) if at.client == NOBODY else self.client(generation, at.client)
        if at.round > self.rounds or at.step > self.steps:
            return None
        return self.position(generation, at.position)


class Tree(Protocol):
    """Where seeds come from: :class:`~fuaudit.draws.seeds.Seeds`, or :class:`Noted` ones."""

    def leaf(self, number: int) -> bytes: ...


@dataclass(frozen=True)
class Noted:
    """A tree of seeds that notes which leaves it is ``asked`` for."""

    seeds: Seeds
    asked: set[int]

    def leaf(self, number: int) -> bytes:
        """See :meth:`~fuaudit.draws.seeds.Seeds.leaf`."""
        self.asked.add(number)
        return self.seeds.leaf(number)


@dataclass(frozen=True)
class Seeded(Draws):
    """The draws of one generation: those of ``Keyed(derive(leaf, "draws", context))``.

    ``context`` is what the draws depend on besides the tree (:func:`fuaudit.commitments.keys.contexts`). What lies
    beyond the last round (an editor that trains further) has one key, ``derive(leaf of the initial draw, "beyond",
    context)``.

    Raises:
        EvidenceError: a draw is asked for whose seed was destroyed, or of a client that the tree has no leaf for.
    """

    seeds: Tree = field(repr=False)
    leaves: Leaves
    generation: int
    context: str

    @cached_property
    def _keys(self) -> dict[int | None, Keyed]:
        """Keys of leaves that were asked for lately."""
        return {}

    def at(self, at: Address) -> Keyed:
        """The flat generator that makes the draw at an address."""
        try:
            number = self.leaves.of(self.generation, at)
        except KeyError:
            raise EvidenceError(
                f"the plan draws for client {at.client}, who was not there when training began"
            ) from None
        if (known := self._keys.get(number)) is not None:
            return known
        if len(self._keys) >= AT_HAND:
            self._keys.clear()
        if number is None:
            secret = derive(self.seeds.leaf(self.leaves.initial(self.generation)), "beyond", self.context)
        else:
            secret = derive(self.seeds.leaf(number), "draws", self.context)
        return self._keys.setdefault(number, Keyed(secret))

    def words(self, purpose: Purpose, positions: Sequence[Position]) -> Words:
        """The Philox keys of a purpose at some positions, ``(n, 2)``."""
        found = [philox_key(self.at(Address(purpose, *position)).secret, purpose) for position in positions]
        return np.array(found, dtype=np.uint64).reshape(-1, 2)

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self.at(at).sequence(at, population, count)

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self.at(at).subset(at, population, count)

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self.at(at).weighted(at, population, weights, count)

    def independent(self, at: Address, population: Sequence[int], probability: Fraction) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self.at(at).independent(at, population, probability)

    def permutation(self, at: Address, population: Sequence[int]) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self.at(at).permutation(at, population)

    def uniform(self, at: Address, count: int) -> NDArray[np.float64]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self.at(at).uniform(at, count)
