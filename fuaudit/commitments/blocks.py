"""SHA-256 from the middle: the state after the first block of a text, and the digest of a text from there on.

Who is given the state after a block, and what follows, can compute the digest, and learns nothing of a block that
holds something nobody can guess. It binds as a digest does: whoever finds two texts behind two states with one digest
has a collision of the compression function, whose absence is what SHA-256 as a whole rests on (Merkle, Damgard).

By FIPS 180-4. Only hashing what others told goes this way; everything else uses the library.
"""

from __future__ import annotations

import struct
from functools import cache
from math import isqrt

BLOCK_BYTES, STATE_BYTES = 64, 32
_WORD = 2**32 - 1


def state_after(block: bytes) -> bytes:
    """The state after a first block of 64 bytes: 32 bytes."""
    return _compressed(_initial(), block)


def digest_from(state: bytes, done: int, rest: bytes) -> bytes:
    """SHA-256 of a text of which ``done`` bytes, a multiple of 64, led to a state, and ``rest`` is what follows."""
    size = done + len(rest)
    text = rest + b"\x80" + bytes(-(size + 9) % BLOCK_BYTES) + (8 * size).to_bytes(8, "big")
    for at in range(0, len(text), BLOCK_BYTES):
        state = _compressed(state, text[at : at + BLOCK_BYTES])
    return state


def _compressed(state: bytes, block: bytes) -> bytes:
    words = [*struct.unpack(">16I", block)]
    for at in range(16, 64):
        low, high = words[at - 15], words[at - 2]
        small = _turned(low, 7) ^ _turned(low, 18) ^ low >> 3
        large = _turned(high, 17) ^ _turned(high, 19) ^ high >> 10
        words.append(words[at - 16] + small + words[at - 7] + large & _WORD)
    before = struct.unpack(">8I", state)
    a, b, c, d, e, f, g, h = before
    for constant, word in zip(_constants(), words, strict=True):
        first = h + (_turned(e, 6) ^ _turned(e, 11) ^ _turned(e, 25)) + (e & f ^ ~e & g) + constant + word
        second = (_turned(a, 2) ^ _turned(a, 13) ^ _turned(a, 22)) + (a & b ^ a & c ^ b & c)
        a, b, c, d, e, f, g, h = first + second & _WORD, a, b, c, d + first & _WORD, e, f, g
    return struct.pack(">8I", *(one + new & _WORD for one, new in zip(before, (a, b, c, d, e, f, g, h), strict=True)))


def _turned(word: int, places: int) -> int:
    return (word >> places | word << 32 - places) & _WORD


@cache
def _initial() -> bytes:
    """The first 32 bits behind the point of the square roots of the first 8 primes."""
    return struct.pack(">8I", *(isqrt(prime << 64) & _WORD for prime in _primes()[:8]))


@cache
def _constants() -> tuple[int, ...]:
    """Those of the cube roots of the first 64 primes."""
    return tuple(_cube_root(prime << 96) & _WORD for prime in _primes())


@cache
def _primes() -> tuple[int, ...]:
    return tuple(n for n in range(2, 312) if all(n % one for one in range(2, n)))


def _cube_root(number: int) -> int:
    """The whole part, by bisection."""
    low, high = 0, 1 << number.bit_length() // 3 + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle)
    return low
