"""A hash tree over digests: its root, and the path by which one of them is shown to be in it.

Pairs are joined; a last one without a neighbour goes up as it is. So is the shape of :mod:`fuaudit.draws.seeds`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuaudit.draws.seeds import node_digest
from fuaudit.errors import EvidenceError

DIGEST_BYTES = 32


def _above(level: list[bytes]) -> list[bytes]:
    """The nodes above a level of a tree: pairs are joined, a last one without a neighbour goes up as it is."""
    pairs = [node_digest(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    return pairs + level[len(pairs) * 2 :]


def tree_root(digests: Sequence[bytes]) -> bytes:
    """The root of a tree over digests: the left half has the largest power of two below all; of none 32 zeros."""
    level = list(digests)
    while len(level) > 1:
        level = _above(level)
    return level[0] if level else bytes(DIGEST_BYTES)


def tree_path(digests: Sequence[bytes], place: int) -> list[bytes]:
    """What lies beside the way from one digest to the root, from below."""
    level, path = list(digests), list[bytes]()
    while len(level) > 1:
        if place ^ 1 < len(level):
            path.append(level[place ^ 1])
        level, place = _above(level), place // 2
    return path


def root_over(digest: bytes, place: int, count: int, path: Sequence[bytes]) -> bytes:
    """The root of a tree of ``count`` from one digest and its path; EvidenceError where the path has another length."""
    left = list(path)
    while count > 1:
        if place ^ 1 < count:
            if not left:
                raise EvidenceError("a path to the root of contents is too short")
            beside = left.pop(0)
            digest = node_digest(beside, digest) if place % 2 else node_digest(digest, beside)
        place, count = place // 2, (count + 1) // 2
    if left:
        raise EvidenceError("a path to the root of contents is too long")
    return digest
