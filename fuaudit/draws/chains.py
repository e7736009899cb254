"""Hash chains: numbers that were committed to at once and are revealed one by one, and the key that they make together.

The end of a chain is published first. Each element is the hash of the next one, so who knows one knows all before it,
and none after it. In a round everybody's next element enters one key: nobody can choose the key, and nobody can know it
before the last element was revealed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import isqrt

ELEMENT_BYTES = 32


def before(element: bytes) -> bytes:
    """The element before one of a chain, 32 bytes each: SHA-256 of ``fuaudit lot`` and the element."""
    return hashlib.sha256(b"fuaudit lot" + element).digest()


def back(element: bytes, steps: int) -> bytes:
    """The element so many steps before one; a hash a step."""
    for _ in range(steps):
        element = before(element)
    return element


def fits(element: bytes, number: int, end: bytes) -> bool:
    """Whether ``element`` is the one of this number, from 0, in the chain with this end; a hash for each before it."""
    return back(element, number) == end


class Chain:
    """A chain of ``length`` elements behind its end, made from its last element, 32 bytes. It is not in ``repr``.

    It keeps one element of a segment of about the root of its length, and the segment that was asked for last. So it
    takes 64 bytes times that root, and elements in turn cost a hash each; any other costs as many as a segment has.
    """

    def __init__(self, last: bytes, length: int) -> None:
        self._length, self._size = length, isqrt(length) + 1
        self._firsts, self._segment, self._at = bytearray(), bytearray(), -1
        element = last
        for place in range(length):
            if place % self._size == 0:
                self._firsts += element
            element = before(element)
        self.end = element

    def element(self, number: int) -> bytes:
        """The element of a number from 0, which is the end; the one of ``length`` is the last. IndexError beyond."""
        if not 0 <= number <= self._length:
            raise IndexError(f"a chain of {self._length} elements has no number {number}")
        if number == 0:
            return self.end
        segment, place = divmod(self._length - number, self._size)
        if segment != self._at:
            self._at, self._segment = segment, self._made(segment)
        return _of(self._segment, place)

    def _made(self, segment: int) -> bytearray:
        """The elements of a segment, the last of the chain first."""
        made = bytearray(_of(self._firsts, segment))
        for place in range(min(self._size, self._length - segment * self._size) - 1):
            made += before(_of(made, place))
        return made


def _of(elements: bytearray, place: int) -> bytes:
    return bytes(elements[place * ELEMENT_BYTES : (place + 1) * ELEMENT_BYTES])


def lot_key(commitment: str, context: str, number: int, contributions: Mapping[int, bytes]) -> bytes:
    """The key, 32 bytes, of what all draw together in a round by lot.

    Args:
        commitment: of the lineage, 64 hexadecimal digits.
        context: of the generation whose draws the round has; empty, or 64 hexadecimal digits.
        number: of the round, from 1.
        contributions: client id -> its contribution, 32 bytes, of all clients of the round, each once.
    """
    said = b"fuaudit key of a lot" + commitment.encode() + len(context).to_bytes(8, "little") + context.encode()
    each = (client.to_bytes(8, "little") + contribution for client, contribution in sorted(contributions.items()))
    return hashlib.sha256(said + number.to_bytes(8, "little") + b"".join(each)).digest()
