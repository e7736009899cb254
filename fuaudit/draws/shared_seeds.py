"""Shared seeds: what a stranger's file holds of a tree of seeds, whatever size it gives its own tree.

A seed is known by its way from the root: "0" for each left half that is taken, "1" for each right one. One root seed
gives equal seeds at equal ways in trees of all sizes, and a size can be edited. So ways are compared, and no leaves.

The file is a stranger's: what is computed of it has a limit. What lies beyond is not known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from fuaudit.draws.seeds import Part, Seeds, digest_under, half, middle_of, node_digest

MOST_PARTS = 2**14
"""Parts of a stranger's tree that are looked at, at most."""

MOST_HASHED = 2**16
"""Leaves below which digests of a stranger's tree are computed, at most: a tenth of a second."""


@dataclass(frozen=True)
class Ways:
    """Parts of a tree by their ways from the root, ascending: no way begins with another one."""

    ways: tuple[str, ...]
    parts: tuple[Part, ...] = field(repr=False)

    @classmethod
    def of(cls, parts: Iterable[Part], size: int) -> Ways:
        """Parts of a tree of this size, from left to right."""
        found = [(way, part) for part in parts if (way := way_to(part, size)) is not None]
        return cls(tuple(way for way, _ in found), tuple(part for _, part in found))

    def on(self, way: str) -> range:
        """Places of the parts that lie on a way: the one above its end or at it, or all below."""
        at = bisect_left(self.ways, way)
        if at and way.startswith(self.ways[at - 1]):
            return range(at - 1, at)
        return range(at, bisect_left(self.ways, way + "2"))


@dataclass(frozen=True)
class Shared:
    """What a stranger's tree has of another one.

    Attributes:
        same: whether it is that tree, also in part; None where the limits do not let it be known.
        ways: those of its seeds.
    """

    same: bool | None
    ways: tuple[str, ...] = ()


def shared(mine: Seeds, theirs: Seeds) -> Shared:
    """What a stranger's tree has of another one. One seed that fits makes it that tree, and so does one digest.

    Where no seeds can be compared, seeds of theirs lie below digests alone, which a prune has left.
    """
    if len(theirs.parts) > MOST_PARTS:
        return Shared(None)
    ours = Ways.of((part for part in mine.parts if part.seed is not None), mine.size)
    seeds = Ways.of((part for part in theirs.parts if part.seed is not None), theirs.size)
    places = [_place(ours, way, part, mine.size) for way, part in zip(seeds.ways, seeds.parts, strict=True)]
    ways = tuple(way if place is None else place for way, place in zip(seeds.ways, places, strict=True))
    if any(place is not None for place in places):
        return Shared(True, ways)
    same = _same_digests(mine, ours, Ways.of(theirs.parts, theirs.size))
    return Shared(same, ways if same else ())


def overlap(gone: Iterable[Part], size: int, ways: Iterable[str]) -> bool:
    """Whether a seed at one of the ways gives a seed inside one of the parts of a tree of this size."""
    there = Ways.of(gone, size)
    return any(there.on(way) for way in ways)


def way_to(part: Part, size: int) -> str | None:
    """The way from the root of a tree of this size to the leaves of a part; None where they are no subtree of it."""
    first, last, way = 0, size, ""
    while (first, last) != (part.first, part.last):
        if last - first == 1:
            return None
        middle = middle_of(first, last)
        right = part.first >= middle
        first, last = (middle, last) if right else (first, middle)
        way += "1" if right else "0"
    return way


def _along(seed: bytes, way: str) -> bytes:
    """The seed at the end of a way that begins at a seed."""
    for step in way:
        seed = half(seed, step == "1")
    return seed


def _place(ours: Ways, way: str, part: Part, size: int) -> str | None:
    """Where a seed of theirs stands in our tree: at its way, else at its leaves, else at the root; None for nowhere."""
    seed = part.seed or b""
    ways = dict.fromkeys((way, way_to(part, size), ""))
    return next((place for place in ways if place is not None and _fits(ours, place, seed)), None)


def _fits(ours: Ways, way: str, seed: bytes) -> bool:
    """Whether a seed is the one at a way: seeds above it and below are one-way functions of each other."""
    for place in ours.on(way)[:1]:  # a seed that is not ours fits none of those below, and ours fits all
        at, known = ours.ways[place], ours.parts[place].seed or b""
        return _along(seed, at[len(way) :]) == known if at.startswith(way) else _along(known, way[len(at) :]) == seed
    return False


def _same_digests(mine: Seeds, ours: Ways, theirs: Ways) -> bool | None:
    """Whether what theirs holds has one of our digests; None where none is seen and one would take too long.

    No seed of theirs fits one of ours. So a seed of theirs above one of ours is none of that tree, and nothing is
    computed below it. What one seed shows says nothing of the others, which may be genuine.
    """
    gone = sorted((part for part in mine.parts if part.seed is None), key=lambda part: part.last - part.first)
    left, beyond = MOST_HASHED, False
    for part in gone:
        way = way_to(part, mine.size) or ""
        seeds = [theirs.ways[place] for place in theirs.on(way) if theirs.parts[place].seed is not None]
        if any(ours.on(at) for at in seeds):
            continue
        leaves = part.last - part.first if seeds else 0  # where they hold digests alone, nothing is computed below them
        if leaves > left:
            beyond = True
            continue
        left -= leaves
        digest = _digest(theirs, way, part.first, part.last)
        if digest is not None and digest == part.digest:
            return True
    return None if beyond else False


def _digest(theirs: Ways, way: str, first: int, last: int) -> bytes | None:
    """The digest of leaves of ours as theirs gives it; None where theirs does not tell it."""
    places = theirs.on(way)
    if not places:
        return None
    at, part = theirs.ways[places[0]], theirs.parts[places[0]]
    if way.startswith(at):
        if part.seed is not None:
            return digest_under(_along(part.seed, way[len(at) :]), first, last)
        return part.digest if at == way else None
    if last - first == 1:
        return None
    middle = middle_of(first, last)
    left = _digest(theirs, way + "0", first, middle)
    right = None if left is None else _digest(theirs, way + "1", middle, last)
    return None if left is None or right is None else node_digest(left, right)
