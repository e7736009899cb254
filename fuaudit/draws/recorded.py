"""Draws read from a record: what remains of a key that was destroyed, or of a plan made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuaudit.draws.address import Address
from fuaudit.errors import EvidenceError


@dataclass(frozen=True)
class Recorded:
    """Answers by address; the population version is left out of the look-up, for a record belongs to one plan.

    Raises:
        EvidenceError: the record holds no such draw, or one with members outside the population asked for.
    """

    answers: Mapping[Address, tuple[int, ...]]

    def _read(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        try:
            answer = self.answers[at._replace(version=0)]
        except KeyError:
            raise EvidenceError(f"the recorded plan holds no draw at {at}") from None
        if len(answer) != count or not set(answer) <= set(population):
            raise EvidenceError(f"the recorded draw at {at} does not fit its population")
        return answer

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, population, count)

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, population, count)

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, population, count)

    def uniform(self, at: Address, count: int) -> Any:
        """Continuous draws are stored as arrays beside the plan, never in this record."""
        raise EvidenceError(f"a recorded plan holds no continuous draws, asked for at {at}")
