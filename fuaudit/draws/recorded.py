"""Draws read from a record, for rewriters whose plans segments cannot express."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fuaudit.draws.address import Address
from fuaudit.draws.asked import for_independent, for_permutation, for_sequence, for_subset, for_weighted
from fuaudit.draws.protocol import Draws
from fuaudit.errors import EvidenceError


class Watched(dict[Address, tuple[int, ...]]):
    """Answers, and which of them were asked for."""

    def __init__(self, answers: Mapping[Address, tuple[int, ...]]) -> None:
        super().__init__(answers)
        self.asked: set[Address] = set()

    def __getitem__(self, at: Address) -> tuple[int, ...]:
        self.asked.add(at)
        return super().__getitem__(at)


@dataclass(frozen=True)
class Recorded(Draws):
    """Answers by address. A record belongs to one plan, so the population version plays no part in the look-up.

    Raises:
        EvidenceError: the record holds no such draw, or one with members outside the population asked for.
    """

    answers: Mapping[Address, tuple[int, ...]]

    def _read(self, at: Address, population: Sequence[int], count: int | None, distinct: bool) -> tuple[int, ...]:
        try:
            answer = self.answers[Address(*at[:5])]
        except KeyError:
            raise EvidenceError(f"the recorded plan holds no draw at {at}") from None
        count = len(answer) if count is None else count
        if len(answer) != count or not set(answer) <= set(population) or (distinct and len(set(answer)) != count):
            raise EvidenceError(f"the recorded draw at {at} does not fit its population")
        return answer

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, for_sequence(population, count), count, distinct=False)

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, for_subset(population, count), count, distinct=True)

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        among, _ = for_weighted(population, weights, count)
        return self._read(at, among, count, distinct=True)

    def independent(self, at: Address, population: Sequence[int], probability: Fraction) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        among, _ = for_independent(population, probability)
        return self._read(at, among, None, distinct=True)

    def permutation(self, at: Address, population: Sequence[int]) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        among = for_permutation(population)
        return self._read(at, among, len(among), distinct=True)

    def uniform(self, at: Address, count: int) -> Any:
        """No continuous draw is recorded."""
        raise EvidenceError(f"a recorded plan holds no continuous draw at {at}")
