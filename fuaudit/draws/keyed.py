"""Draws under a secret key: any draw can be computed alone, in any order, on any machine.

The key of a purpose is BLAKE2b of the secret and the purpose; the counter is the address. Integers are
unbiased: a 64-bit word at or above the largest multiple of the bound is rejected, and the next attempt reads a
word of its own, so no draw depends on another's rejections. Committed runs and statistics use the same
generator. :func:`sequences` and :func:`subsets` do for arrays what :meth:`Keyed.sequence` and :meth:`Keyed.subset` do
for one draw, with the same bits (tested).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws.address import Address, Purpose
from fuaudit.draws.asked import for_independent, for_permutation, for_sequence, for_subset, for_subsets, for_weighted
from fuaudit.draws.philox import Words, block, blocks, kernels, stream
from fuaudit.errors import UsageError

_WORD = 1 << 64
Ids = NDArray[np.int64]


def prefixed(*texts: str) -> bytes:
    """Texts one after the other, each with its length before it."""
    data = [text.encode() for text in texts]
    return b"".join([len(one).to_bytes(8, "little") + one for one in data])


def derive(key: bytes, label: str, *parts: str) -> bytes:
    """A key of 32 bytes from another: BLAKE2b keyed by ``key`` over length-prefixed text."""
    return derivation(key, label)(prefixed(*parts))


def derivation(key: bytes, label: str) -> Callable[[bytes], bytes]:
    """:func:`derive` under one key and label, as a function of the other texts: many keys share the beginning."""
    begun = hashlib.blake2b(prefixed(label), key=key, digest_size=32, person=b"fuaudit keys")

    def derived(rest: bytes) -> bytes:
        hasher = begun.copy()
        hasher.update(rest)
        return hasher.digest()

    return derived


def digest_of_purpose(secret: bytes, purpose: Purpose) -> bytes:
    """The Philox key of one purpose under a secret of 32 bytes, as 16 bytes: two words, the lowest byte first."""
    return hashlib.blake2b(purpose.encode(), key=secret, digest_size=16, person=b"fuaudit draws").digest()


@lru_cache(maxsize=4096)
def philox_key(secret: bytes, purpose: Purpose) -> tuple[int, int]:
    """The 128-bit Philox key of one purpose under a secret of 32 bytes."""
    digest = digest_of_purpose(secret, purpose)
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


_block = lru_cache(maxsize=64)(block)
"""Words that are asked for one by one stand four in a block."""


def _counter(at: Address) -> tuple[int, int, int]:
    """Counter words 1 to 3 of an address; word 0 counts blocks inside the draw."""
    return at.round << 32 | at.step, (at.client + 1) % _WORD, at.occurrence << 32 | at.version


@dataclass(frozen=True)
class Keyed:
    """Draws under a secret of 32 bytes. Equal secrets give equal draws; the secret is not shown in ``repr``.

    Raises:
        UsageError: the secret does not have 32 bytes.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != 32:
            raise UsageError(f"a key has 32 bytes, this one has {len(self.secret)}")

    def _word(self, at: Address, index: int, attempt: int) -> int:
        """Word ``index`` of the draw at ``at``; attempts after the first have blocks of their own."""
        w1, w2, w3 = _counter(at)
        return _block((attempt << 32 | index // 4, w1, w2, w3), philox_key(self.secret, at.purpose))[index % 4]

    def integer(self, at: Address, index: int, bound: int) -> int:
        """The ``index``-th integer of the draw at ``at``, uniform in [0, bound).

        Raises:
            UsageError: the bound is above 2**64, the number of words.
        """
        if bound > _WORD:
            raise UsageError(f"a draw cannot choose among {bound} numbers: 2**64 is the most")
        limit = _WORD - _WORD % bound
        attempt = 0
        while (word := self._word(at, index, attempt)) >= limit:
            attempt += 1
        return word % bound

    def _integers(self, at: Address, bounds: Sequence[int]) -> list[int]:
        """Integers of the draw at ``at``, one below each bound; every block of words is computed once."""
        key, words = philox_key(self.secret, at.purpose), _counter(at)
        drawn: list[int] = []
        for index in range((len(bounds) + 3) // 4):
            for word, bound in zip(block((index, *words), key), bounds[4 * index : 4 * index + 4], strict=False):
                kept = word < _WORD - _WORD % bound
                drawn.append(word % bound if kept else self.integer(at, len(drawn), bound))
        return drawn

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        among = for_sequence(population, count)
        return tuple(among[rank] for rank in self._integers(at, [len(among)] * count))

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`. Floyd's method: one integer an element, no rejection."""
        among = for_subset(population, count)
        size = len(among)
        chosen: set[int] = set()
        first = size - count
        for last, rank in enumerate(self._integers(at, range(first + 1, size + 1)), first):
            chosen.add(last if rank in chosen else rank)
        return tuple(among[rank] for rank in sorted(chosen))

    def many_subsets(
        self, places: Sequence[Address], populations: Sequence[Sequence[int]], counts: Sequence[int]
    ) -> list[tuple[int, ...]]:
        """:meth:`subset` at many addresses of one purpose at once, equal to one after another."""
        drawn: list[tuple[int, ...]] = [()] * len(places)
        populations = [among for _, among, _ in for_subsets(places, populations, counts)]
        asked = np.array(counts)
        columns = np.array([at[1:] for at in places], dtype=np.int64).reshape(len(places), 5)
        sizes = np.array([len(population) for population in populations])
        for count in np.unique(asked[asked > 0]).tolist():
            rows = np.flatnonzero(asked == count)
            words = np.array(philox_key(self.secret, places[rows[0]].purpose), dtype=np.uint64)
            round_number, step, client, occurrence, version = columns[rows].T
            at = Addresses((words[0], words[1]), round_number, step, client, occurrence, version)
            for row, ranks in zip(rows.tolist(), subsets(at, sizes[rows], count).tolist(), strict=True):
                drawn[row] = tuple(map(populations[row].__getitem__, ranks))
        return drawn

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`."""
        left = list(zip(*for_weighted(population, weights, count), strict=True))
        drawn = []
        for index in range(count):
            ticket = self.integer(at, index, sum(weight for _, weight in left))
            for place, (_, weight) in enumerate(left):
                if ticket < weight:
                    drawn.append(left.pop(place)[0])
                    break
                ticket -= weight
        return tuple(drawn)

    def independent(self, at: Address, population: Sequence[int], probability: Fraction) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`. One integer for each id, by its place."""
        among, ratio = for_independent(population, probability)
        return tuple(map(among.__getitem__, _included(self, at, len(among), ratio)))

    def permutation(self, at: Address, population: Sequence[int]) -> tuple[int, ...]:
        """See :class:`~fuaudit.draws.protocol.Draws`. The order of distinct 64-bit words; equal ones are drawn anew."""
        among = for_permutation(population)
        return tuple(map(among.__getitem__, _order(philox_key(self.secret, at.purpose), at, len(among))))

    def uniform(self, at: Address, count: int) -> NDArray[np.float64]:
        """See :class:`~fuaudit.draws.protocol.Draws`; multiples of 2**-53, the same on every platform."""
        return uniform_numbers(philox_key(self.secret, at.purpose), at, count)


@lru_cache(maxsize=256)  # a permutation serves all batches of an epoch
def _order(key: tuple[int, int], at: Address, count: int) -> tuple[int, ...]:
    attempt = 0
    while True:
        words = stream((attempt << 32, *_counter(at)), key, count)
        order = np.argsort(words, kind="stable")
        # without equal words every order is equally likely; with them it would depend on the places
        if (np.diff(words[order]) > 0).all():
            return tuple(order.tolist())
        attempt += 1


@lru_cache(maxsize=256)  # whoever looks at all that was included, and at what is left of it, asks twice
def _included(source: Keyed, at: Address, count: int, ratio: tuple[int, int]) -> tuple[int, ...]:
    yes, bound = ratio
    words = stream((0, *_counter(at)), philox_key(source.secret, at.purpose), count)
    limit = _WORD - _WORD % bound
    ranks = words if bound == _WORD else words % np.uint64(bound)
    if limit < _WORD:
        for index in np.flatnonzero(words >= np.uint64(limit)).tolist():
            ranks[index] = source.integer(at, index, bound)
    return tuple(range(count)) if yes == bound else tuple(np.flatnonzero(ranks > np.uint64(bound - yes - 1)).tolist())


def uniform_numbers(key: tuple[int, int], at: Address, count: int) -> NDArray[np.float64]:
    """``count`` numbers in [0, 1) at an address under the Philox key of its purpose."""
    words = stream((0, *_counter(at)), key, count)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Addresses:
    """Many addresses of one purpose, each under a key of its own: arrays that broadcast to one shape ``s``."""

    keys: tuple[Words, Words]
    round: Ids
    step: Ids
    client: Ids
    occurrence: Ids
    version: Ids

    def words(self, index: int, attempt: int = 0) -> Words:
        """Words ``4 * index`` to ``4 * index + 3`` of every draw, shape ``(*s, 4)``."""
        return blocks((np.array(attempt << 32 | index, dtype=np.uint64), *self.counters), self.keys)

    @property
    def counters(self) -> tuple[Words, Words, Words]:
        """Counter words 1 to 3 of every draw, of shapes that broadcast to ``s``; as those of a single address."""
        unsigned, half = np.uint64, np.uint64(32)
        return (
            self.round.astype(unsigned) << half | self.step.astype(unsigned),
            (self.client + 1).astype(unsigned),
            self.occurrence.astype(unsigned) << half | self.version.astype(unsigned),
        )

    def integer(self, index: int, bounds: Ids) -> Ids:
        """The ``index``-th integer of every draw: ``bounds``, below 2**63, and the result have shape ``s``."""
        drawn: Ids = self._below(index, np.asarray(bounds).astype(np.uint64)).astype(np.int64)
        return drawn

    def happens(self, index: int, share: Fraction) -> NDArray[np.bool_]:
        """Whether the ``index``-th integer of every draw brings about what has this chance, above 0: shape ``s``.

        As :meth:`Keyed.weighted` and :meth:`Keyed.independent` have it: of ``denominator`` integers the last ones do.
        """
        yes, bound = share.as_integer_ratio()
        drawn = self.words(index // 4)[..., index % 4] if bound == _WORD else self._below(index, np.uint64(bound))
        return drawn >= np.uint64(bound - yes)

    def _below(self, index: int, bound: Words | np.uint64) -> Words:
        """The ``index``-th integer of every draw, below ``bound``, unsigned."""
        largest = np.uint64(_WORD - 1) - (np.uint64(_WORD - 1) % bound + np.uint64(1)) % bound
        words, attempt = self.words(index // 4)[..., index % 4], 0
        while (rejected := words > largest).any():
            attempt += 1
            words = np.where(rejected, self.words(index // 4, attempt)[..., index % 4], words)
        return words % bound

    def integers(self, count: int, bounds: Ids) -> Ids:
        """``count`` integers of every draw: ``bounds`` broadcasts to ``(*s, count)``, and so does the result."""
        words = np.concatenate([self.words(i) for i in range((count + 3) // 4)], axis=-1)[..., :count]
        bound = np.asarray(bounds).astype(np.uint64)
        largest = np.uint64(_WORD - 1)
        if (words > largest - bound.max(initial=0)).any():  # what may be rejected lies in the topmost ``bound`` words
            # the largest accepted word is 2**64 - 1 - (2**64 mod bound)
            with np.errstate(over="ignore"):
                accepted = words <= largest - (largest % bound + np.uint64(1)) % bound
            attempt = 0
            while not accepted.all():  # about one word in 2**64 / bound
                attempt += 1
                again = np.concatenate([self.words(i, attempt) for i in range((count + 3) // 4)], axis=-1)[..., :count]
                words = np.where(accepted, words, again)
                accepted = words <= largest - (largest % bound + np.uint64(1)) % bound
        np.remainder(words, bound, out=words)
        return words.view(np.int64)


def sequences(at: Addresses, sizes: Ids, count: int) -> Ids:
    """Ranks drawn with replacement: ``sizes`` has shape ``s``, the result ``(*s, count)``."""
    found = _compiled(at, sizes, count, distinct=False)
    return sequences_in_arrays(at, sizes, count) if found is None else found


def sequences_in_arrays(at: Addresses, sizes: Ids, count: int) -> Ids:
    """:func:`sequences` by NumPy."""
    return at.integers(count, np.asarray(sizes)[..., None])


def subsets(at: Addresses, sizes: Ids, count: int) -> Ids:
    """Sorted ranks of uniform subsets of ``count`` elements: ``sizes`` has shape ``s``, the result ``(*s, count)``.

    Every size must be at least ``count``.
    """
    found = _compiled(at, sizes, count, distinct=True)
    return subsets_in_arrays(at, sizes, count) if found is None else found


def subsets_in_arrays(at: Addresses, sizes: Ids, count: int) -> Ids:
    """:func:`subsets` by NumPy."""
    last = np.asarray(sizes)[..., None] - count + np.arange(count)
    ranks = at.integers(count, last + 1)
    for index in range(1, count):
        taken = (ranks[..., :index] == ranks[..., index : index + 1]).any(axis=-1)
        ranks[..., index] = np.where(taken, last[..., index], ranks[..., index])
    return np.sort(ranks, axis=-1)


def _compiled(at: Addresses, sizes: Ids, count: int, distinct: bool) -> Ids | None:
    """Ranks by compiled code; None where there is none, or it does not pay. The array form then counts its blocks."""
    fast = kernels(0)
    return None if fast is None else ranks_by(fast, at, sizes, count, distinct)


def ranks_by(fast: Any, at: Addresses, sizes: Ids, count: int, distinct: bool) -> Ids:
    """:func:`subsets`, or :func:`sequences`, by the module :mod:`fuaudit.draws.kernels`."""
    *words, spread = np.broadcast_arrays(*at.counters, *at.keys, np.asarray(sizes))
    flat = [np.ascontiguousarray(one.reshape(-1)) for one in words]
    result = np.empty((spread.size, count), dtype=np.int64)
    fast.ranks(distinct, *flat, np.ascontiguousarray(spread.reshape(-1)).astype(np.int64), result)
    return result.reshape(*spread.shape, count)
