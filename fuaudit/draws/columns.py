"""The sources of many plans side by side: each plan has one of every column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws.address import Position, Purpose
from fuaudit.draws.keyed import Keyed, derivation, digest_of_purpose, prefixed
from fuaudit.draws.philox import Words
from fuaudit.draws.protocol import Draws
from fuaudit.draws.recorded import Recorded
from fuaudit.draws.seeded import Seeded

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Derived(Sequence[Draws]):
    """``Keyed(derive(key, label, str(number), *parts))`` for each of some numbers, made when it is asked for."""

    key: bytes = field(repr=False)
    label: str
    numbers: Sequence[int]
    parts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Keyed: ...
    @overload
    def __getitem__(self, place: slice) -> Derived: ...
    def __getitem__(self, place: int | slice) -> Keyed | Derived:
        if isinstance(place, slice):
            return replace(self, numbers=self.numbers[place])
        return Keyed(self.secret(place))

    @cached_property
    def _secrets(self) -> dict[int, bytes]:
        return {}

    @cached_property
    def _derive(self) -> tuple[Callable[[bytes], bytes], bytes]:
        return derivation(self.key, self.label), prefixed(*self.parts)

    def secret(self, place: int) -> bytes:
        """The secret of the source at a place, 32 bytes."""
        if (known := self._secrets.get(place)) is not None:
            return known
        derived, rest = self._derive
        return self._secrets.setdefault(place, derived(prefixed(str(self.numbers[place])) + rest))

    def kinds(self) -> set[type]:
        """The classes of the sources."""
        return {Keyed}

    def words(self, purpose: Purpose, places: Sequence[int]) -> Words:
        """The Philox keys of a purpose at some places, ``(m, 2)``."""
        return _words([self.secret(place) for place in places], purpose)


@dataclass(frozen=True, eq=False)
class Listed(Sequence[Draws]):
    """Sources of any class, one a plan."""

    sources: Sequence[Draws]

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, place: int) -> Draws: ...
    @overload
    def __getitem__(self, place: slice) -> Listed: ...
    def __getitem__(self, place: int | slice) -> Draws | Listed:
        return Listed(self.sources[place]) if isinstance(place, slice) else self.sources[place]

    def kinds(self) -> set[type]:
        """The classes of the sources."""
        return set(map(type, self.sources))

    def words(self, purpose: Purpose, places: Sequence[int]) -> Words:
        """The Philox keys of a purpose at some places, ``(m, 2)``; 0 where a source has none, or several."""
        sources = [self.sources[place] for place in places]
        keyed = [row for row, source in enumerate(sources) if type(source) is Keyed]
        result = np.zeros((len(sources), 2), dtype=np.uint64)
        result[keyed] = _words([source.secret for source in sources if type(source) is Keyed], purpose)
        return result


Column = Derived | Listed


def _words(secrets: Sequence[bytes], purpose: Purpose) -> Words:
    """The Philox keys of a purpose under some secrets, ``(m, 2)``; equal to ``philox_key`` of each."""
    digests = b"".join([digest_of_purpose(secret, purpose) for secret in secrets])
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64).reshape(-1, 2)


def some(column: Column, places: Ids) -> Column:
    """The sources at some places."""
    if isinstance(column, Derived):
        return replace(column, numbers=[column.numbers[place] for place in places.tolist()])
    return Listed([column[place] for place in places.tolist()])


def keys_at(
    column: Column, purpose: Purpose, run: Ids, round_number: Ids, step: Ids
) -> tuple[Words, NDArray[np.bool_]]:
    """The Philox keys of draws, each of one run at one position: ``(m, 2)``, and which are recorded, ``(m,)``.

    Three arrays ``(m,)`` in. Words of recorded draws are 0.
    """
    asked, row = np.unique(run, return_inverse=True)
    words, recorded = column.words(purpose, asked.tolist())[row], np.zeros(len(run), dtype=np.bool_)
    if column.kinds() == {Keyed}:
        return words, recorded
    for place, number in enumerate(asked.tolist()):
        source = column[number]
        if type(source) is Recorded:
            recorded[row == place] = True
        elif type(source) is Seeded:
            (here,) = np.nonzero(row == place)
            at, inverse = np.unique(np.stack([round_number[here], step[here]]), axis=1, return_inverse=True)
            words[here] = source.words(purpose, [Position(r, e) for r, e in at.T.tolist()])[inverse.reshape(-1)]
    return words, recorded
