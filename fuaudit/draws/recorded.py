"""Draws read from a record: what remains of a key that was destroyed, or of a plan made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuaudit.draws.address import Address, Purpose
from fuaudit.draws.keyed import uniform_numbers
from fuaudit.draws.protocol import Draws
from fuaudit.errors import EvidenceError


@dataclass(frozen=True)
class Recorded:
    """Answers by address; the population version is left out of the look-up, for a record belongs to one plan.

    ``initial`` is what prune keeps of a destroyed key for the initial model: the Philox key of that purpose
    alone, from which no other draw can be computed, and the population version of the draw.

    Raises:
        EvidenceError: the record holds no such draw, or one with members outside the population asked for.
    """

    answers: Mapping[Address, tuple[int, ...]]
    initial: tuple[tuple[int, int], int] | None = None

    def _read(self, at: Address, population: Sequence[int], count: int, distinct: bool) -> tuple[int, ...]:
        try:
            answer = self.answers[at._replace(version=0)]
        except KeyError:
            raise EvidenceError(f"the recorded plan holds no draw at {at}") from None
        if len(answer) != count or not set(answer) <= set(population) or (distinct and len(set(answer)) != count):
            raise EvidenceError(f"the recorded draw at {at} does not fit its population")
        return answer

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, population, count, distinct=False)

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, population, count, distinct=True)

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, population, count, distinct=True)

    def permutation(self, at: Address, population: Sequence[int]) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._read(at, population, len(population), distinct=True)

    def uniform(self, at: Address, count: int) -> Any:
        """The initial draw, from the key kept for it; no other continuous draw is recorded."""
        if self.initial is None or at.purpose is not Purpose.INIT:
            raise EvidenceError(f"a recorded plan holds no continuous draw at {at}")
        key, version = self.initial
        return uniform_numbers(key, at._replace(version=version), count)


@dataclass(frozen=True)
class Recording:
    """A source whose finite answers over populations before ``version`` are written down as they are asked for."""

    source: Draws
    answers: MutableMapping[Address, tuple[int, ...]]
    version: int

    def _write(self, at: Address, answer: tuple[int, ...]) -> tuple[int, ...]:
        if at.version < self.version:
            self.answers[at._replace(version=0)] = answer
        return answer

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._write(at, self.source.sequence(at, population, count))

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._write(at, self.source.subset(at, population, count))

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._write(at, self.source.weighted(at, population, weights, count))

    def permutation(self, at: Address, population: Sequence[int]) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        return self._write(at, self.source.permutation(at, population))

    def uniform(self, at: Address, count: int) -> Any:
        """See :class:`~fuaudit.draws.protocol.Draws`; not written down."""
        return self.source.uniform(at, count)
