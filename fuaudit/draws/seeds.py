"""A tree of seeds: many keys from one. Some can be destroyed, and the commitment still holds for all.

Leaf i of n is a key of 32 bytes. A seed gives the seeds of its two halves, one-way, as in the puncturable generator of
Goldreich, Goldwasser and Micali ("How to construct random functions", J. ACM 1986). The digests of the leaves make a
hash tree of the same shape, with leaves and nodes hashed apart (as in RFC 6962), whose root can be published before a
leaf is used.

To destroy a leaf, the seeds on its path are replaced by what they give beside it: seeds where everything below is kept,
digests where everything below is gone. The root can still be computed. So the kept leaves are those that were committed
to, and a leaf that is gone cannot be computed again. A tree has one form for each set of kept leaves.

Where no root is compared, a digest could be any 32 bytes. Such a tree is kept bare: zeros stand where digests would.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from fuaudit.errors import EvidenceError, UsageError

SEED_BYTES = 32
MOST_LEAVES = 2**27
"""Leaves of a tree, at most: its root takes a few minutes then."""

GONE = bytes(SEED_BYTES)
"""What stands in a bare tree where digests would."""

AT_HAND = 2**16
"""Seeds of subtrees that a tree remembers, at most: about 20 MB."""


def half(seed: bytes, right: bool) -> bytes:
    """The seed of one half of what a seed stands for."""
    return hashlib.blake2b(
        b"\1" if right else b"\0", key=seed, digest_size=SEED_BYTES, person=b"fuaudit seeds"
    ).digest()


def middle_of(first: int, last: int) -> int:
    """Where the leaves ``first`` to ``last - 1`` are halved: the left half is the largest power of two below."""
    return first + (1 << (last - first - 1).bit_length() - 1)


def leaf_digest(seed: bytes) -> bytes:
    """The digest of a leaf, 32 bytes."""
    return hashlib.sha256(b"\0" + seed).digest()


def node_digest(left: bytes, right: bytes) -> bytes:
    """The digest of an inner node, 32 bytes."""
    return hashlib.sha256(b"\1" + left + right).digest()


@dataclass(frozen=True)
class Part:
    """The leaves ``first`` to ``last - 1`` of a tree: their common seed, or, where they are destroyed, their digest."""

    first: int
    last: int
    seed: bytes | None = field(default=None, repr=False)
    digest: bytes | None = None


@dataclass(frozen=True)
class Seeds:
    """A tree of seeds, whole or with leaves destroyed: its parts from left to right, each a whole subtree.

    Raises:
        UsageError: more than ``MOST_LEAVES`` leaves, or none.
        EvidenceError: the parts are not those of such a tree.
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, seed: bytes, leaves: int) -> Seeds:
        """The whole tree of so many leaves under a seed of 32 bytes."""
        if not 1 <= leaves <= MOST_LEAVES:
            raise UsageError(f"a tree of seeds has 1 to {MOST_LEAVES:,} leaves, not {leaves:,}")
        return cls((Part(0, leaves, seed),))

    def __post_init__(self) -> None:
        ends = [0, *(part.last for part in self.parts)]
        if not self.parts or [part.first for part in self.parts] != ends[:-1] or sorted(set(ends)) != ends:
            raise EvidenceError("the parts of a tree of seeds do not lie side by side")
        if self.size > MOST_LEAVES:
            raise EvidenceError(f"a tree of seeds has at most {MOST_LEAVES:,} leaves, not {self.size:,}")
        for part in self.parts:
            held = [value for value in (part.seed, part.digest) if value is not None]
            if len(held) != 1 or len(held[0]) != SEED_BYTES:
                raise EvidenceError("a part of a tree of seeds holds either a seed or a digest, of 32 bytes")
        if len(list(self._walk(0, self.size))) != len(self.parts):
            raise EvidenceError("the parts of a tree of seeds are not its subtrees in their shortest form")

    @property
    def size(self) -> int:
        """The number of leaves, n."""
        return self.parts[-1].last

    @cached_property
    def _starts(self) -> list[int]:
        return [part.first for part in self.parts]

    @cached_property
    def _expanded(self) -> dict[tuple[int, int], bytes]:
        """Seeds of subtrees that were computed on the way to a leaf."""
        return {}

    def part_of(self, leaf: int) -> Part:
        """The part in which a leaf lies. IndexError when there is no such leaf."""
        if not 0 <= leaf < self.size:
            raise IndexError(f"there is no leaf {leaf} of {self.size}")
        return self.parts[bisect_right(self._starts, leaf) - 1]

    def holds(self, leaf: int) -> bool:
        """Whether a leaf is there and not destroyed."""
        return 0 <= leaf < self.size and self.part_of(leaf).seed is not None

    def leaf(self, number: int) -> bytes:
        """The seed of one leaf, 32 bytes.

        Raises:
            EvidenceError: it was destroyed.
        """
        part = self.part_of(number)
        if part.seed is None:
            raise EvidenceError("a seed that this draw needs was destroyed by a prune")
        first, last, seed = part.first, part.last, part.seed
        while last - first > 1:
            middle = middle_of(first, last)
            right = number >= middle
            first, last = (middle, last) if right else (first, middle)
            known = self._expanded.get((first, last))
            if known is None:
                known = half(seed, right)
                if last - first > 1:  # leaves themselves are asked for once, mostly
                    if len(self._expanded) >= AT_HAND:
                        self._expanded.clear()
                    self._expanded[first, last] = known
            seed = known
        return seed

    def between(self, first: int, last: int) -> list[bytes | None]:
        """The seeds of the leaves ``first`` to ``last - 1``, each made once; None where it was destroyed."""
        found: list[bytes | None] = []
        for part in self.parts[bisect_right(self._starts, first) - 1 :]:
            if part.first >= last:
                break
            if part.seed is None:
                found += [None] * (min(last, part.last) - max(first, part.first))
            else:
                _leaves_under(part.seed, part.first, part.last, range(first, last), found)
        return found

    @cached_property
    def root(self) -> str:
        """The digest of the whole tree, in hexadecimal: the same whatever was destroyed."""
        return self._digest(0, self.size).hex()

    def _digest(self, first: int, last: int) -> bytes:
        part = self.part_of(first)
        if (part.first, part.last) == (first, last):
            return part.digest or _digest_of_part(part.seed or b"", first, last)
        middle = middle_of(first, last)
        return node_digest(self._digest(first, middle), self._digest(middle, last))

    def holds_just(self, kept: Iterable[range]) -> bool:
        """Whether the leaves inside the ranges are there, and all others are destroyed."""
        held = (range(part.first, part.last) for part in self.parts if part.seed is not None)
        return _merged(held, self.size) == _merged(kept, self.size)

    def keeping(self, kept: Iterable[range]) -> Seeds:
        """The tree without the leaves outside the ranges; leaves that are gone already stay gone."""
        wanted = _merged(kept, self.size)
        return Seeds(tuple(self._kept(0, self.size, None, wanted)))

    @property
    def bare(self) -> Seeds:
        """The tree with zeros for digests: for one whose root is compared with nothing."""
        return Seeds(tuple(replace(part, digest=GONE) if part.seed is None else part for part in self.parts))

    def _kept(self, first: int, last: int, seed: bytes | None, wanted: Sequence[range]) -> Iterator[Part]:
        """The parts of a subtree; ``seed`` is its own where a part above it holds one."""
        part = self.part_of(first)
        if (part.first, part.last) == (first, last):
            if part.seed is None:
                yield part
                return
            seed = part.seed
        overlap = [r for r in wanted if r.start < last and r.stop > first]
        if seed is not None and not overlap:
            yield Part(first, last, digest=digest_under(seed, first, last))
        elif seed is not None and overlap[0].start <= first and last <= overlap[0].stop:
            yield Part(first, last, seed)
        else:
            middle = middle_of(first, last)
            left = None if seed is None else half(seed, False)
            right = None if seed is None else half(seed, True)
            yield from _joined([*self._kept(first, middle, left, overlap)], [*self._kept(middle, last, right, overlap)])

    def _walk(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The subtrees that the parts must be; two halves that are both gone, or both kept, count as one.

        Else whoever makes a tree could choose the seed of every leaf that is kept, and hide 32 bytes in each.
        """
        part = self.part_of(first)
        if part.first == first and part.last == last:
            yield first, last
            return
        if part.first != first or part.last > last or last - first < 2:
            raise EvidenceError("a part of a tree of seeds is none of its subtrees")
        middle = middle_of(first, last)
        left, right = [*self._walk(first, middle)], [*self._walk(middle, last)]
        kinds = {self.part_of(at).seed is None for at in (first, middle)}
        if len(left) == len(right) == len(kinds) == 1:
            yield first, last
        else:
            yield from left
            yield from right

    def as_rows(self) -> list[list[Any]]:
        """For JSON: rows of first leaf, end, "seed" or "digest", and 64 hexadecimal digits."""
        return [
            [part.first, part.last, "seed", part.seed.hex()]
            if part.seed is not None
            else [part.first, part.last, "digest", (part.digest or b"").hex()]
            for part in self.parts
        ]

    @classmethod
    def of_rows(cls, rows: Any) -> Seeds:
        """The inverse of :meth:`as_rows`; EvidenceError for anything else."""
        try:
            parts = []
            for first, last, kind, text in rows:
                if type(first) is not int or type(last) is not int or kind not in ("seed", "digest"):
                    raise ValueError("a row is not first, last, seed or digest, text")
                value = bytes.fromhex(text)
                if value.hex() != text:
                    raise ValueError("a seed is not written in small hexadecimal digits")
                parts.append(Part(first, last, **{kind: value}))
            return cls(tuple(parts))
        except (TypeError, ValueError) as error:
            raise EvidenceError(f"this is no tree of seeds: {error}") from None


def _joined(left: list[Part], right: list[Part]) -> list[Part]:
    """Two halves side by side; as one digest where both are gone."""
    if len(left) == len(right) == 1 and left[0].digest and right[0].digest:
        return [Part(left[0].first, right[0].last, digest=node_digest(left[0].digest, right[0].digest))]
    return left + right


def _merged(ranges: Iterable[range], size: int) -> list[range]:
    """Ranges inside 0 to ``size``, ascending, none touching another."""
    merged: list[range] = []
    for item in sorted((max(r.start, 0), min(r.stop, size)) for r in ranges):
        if item[0] >= item[1]:
            continue
        if merged and item[0] <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, item[1]))
        else:
            merged.append(range(*item))
    return merged


def _leaves_under(seed: bytes, first: int, last: int, wanted: range, found: list[bytes | None]) -> None:
    """Append the leaves of a whole subtree that are wanted, from left to right."""
    if last <= wanted.start or first >= wanted.stop:
        return
    if last - first == 1:
        found.append(seed)
        return
    middle = middle_of(first, last)
    _leaves_under(half(seed, False), first, middle, wanted, found)
    _leaves_under(half(seed, True), middle, last, wanted, found)


@lru_cache(maxsize=4096)  # runs of one lineage hold one tree, or parts of it
def _digest_of_part(seed: bytes, first: int, last: int) -> bytes:
    """See :func:`digest_under`, for what a tree holds as one part."""
    return digest_under(seed, first, last)


def digest_under(seed: bytes, first: int, last: int) -> bytes:
    """The digest of a whole subtree from its seed."""
    if last - first == 1:
        return leaf_digest(seed)
    middle = middle_of(first, last)
    return node_digest(digest_under(half(seed, False), first, middle), digest_under(half(seed, True), middle, last))
