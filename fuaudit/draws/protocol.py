"""What every source of draws can do."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

from fuaudit.draws.address import Address
from fuaudit.draws.asked import for_subsets


class Draws(Protocol):
    """A source of random draws under one key.

    Asking twice at one address gives the same answer. Answers are stable ids taken from the population that
    is passed in, never positions in an array. Draws at different addresses are independent.
    """

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """``count`` ids, independent and uniform over ``population`` (with replacement), in drawn order."""
        ...

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """A uniform set of ``count`` distinct ids of ``population``, sorted by place in ``population``."""
        ...

    def many_subsets(
        self, places: Sequence[Address], populations: Sequence[Sequence[int]], counts: Sequence[int]
    ) -> list[tuple[int, ...]]:
        """:meth:`subset` at many addresses of one purpose, one after another; a source may be faster."""
        return [self.subset(*asked) for asked in for_subsets(places, populations, counts)]

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        """``count`` distinct ids in drawn order, each proportional to its integer weight among those left."""
        ...

    def independent(self, at: Address, population: Sequence[int], probability: Fraction) -> tuple[int, ...]:
        """Each id of ``population`` by itself with a probability, sorted by place in ``population``."""
        ...

    def permutation(self, at: Address, population: Sequence[int]) -> tuple[int, ...]:
        """All ids of ``population`` in a uniform order."""
        ...

    def uniform(self, at: Address, count: int) -> Any:
        """``count`` numbers in [0, 1), float64 ``(count,)``; a symbolic token where all draws are enumerated."""
        ...
