"""Philox4x64-10, a counter-based generator: block ``c`` under key ``k`` is a pure function of both.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. NumPy ships the same
generator as a stream; here it is a function of addresses, once for single draws (Python integers) and once
for many draws at a time (arrays). Both are tested against NumPy's ``Philox.random_raw``, whose raw stream is
covered by NumPy's compatibility promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_MASK = (1 << 64) - 1
_MULTIPLIER = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10


def block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The four 64-bit words at ``counter`` under ``key``; all words are integers in [0, 2**64)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0 = _MULTIPLIER[0] * c0
        p1 = _MULTIPLIER[1] * c2
        c0, c1, c2, c3 = (p1 >> 64) ^ c1 ^ k0, p1 & _MASK, (p0 >> 64) ^ c3 ^ k1, p0 & _MASK
        k0 = (k0 + _WEYL[0]) & _MASK
        k1 = (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def _multiply(constant: int, x: Words, high: Words, low: Words, spare: Words) -> None:
    """High and low 64 bits of ``constant * x``, from four products of 32-bit halves; ``spare (3, n)`` is scratch."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high = np.uint64(constant & 0xFFFFFFFF), np.uint64(constant >> 32)
    cross, upper, carry = spare
    np.bitwise_and(x, mask, out=cross)
    np.right_shift(x, half, out=upper)
    np.multiply(cross, a_low, out=low)
    np.right_shift(low, half, out=low)
    np.multiply(cross, a_high, out=cross)
    np.add(cross, low, out=cross)
    np.multiply(upper, a_low, out=carry)
    np.bitwise_and(cross, mask, out=low)
    np.add(carry, low, out=carry)
    np.multiply(upper, a_high, out=high)
    for part in (cross, carry):
        np.right_shift(part, half, out=part)
        np.add(high, part, out=high)
    np.multiply(x, np.uint64(constant), out=low)


_CHUNK = 4096
"""Blocks computed at once: about 400 kB of scratch, so that passes stay in a cache."""


PAYS = 3_000_000
"""Blocks after which compiled code is loaded: by then arrays have taken as long as loading does, about."""

_made = [0]
"""How many blocks this process has made in arrays."""


def kernels(count: int) -> Any:
    """The module :mod:`fuaudit.draws.kernels` for so many blocks more; None where it does not pay, or numba is absent.

    Both give the same bits, so when it comes in changes nothing but time.
    """
    if _made[0] < PAYS:
        _made[0] += count
        return None
    return compiled()


@cache
def compiled() -> Any:
    """The compiled form; None where numba is absent, or cannot keep what it compiles."""
    try:
        return import_module("fuaudit.draws.kernels")
    except (ImportError, RuntimeError):
        return None


def blocks(counters: tuple[Words, Words, Words, Words], keys: tuple[Words, Words]) -> Words:
    """Many blocks at once: counters and keys are arrays of one broadcast shape ``s``; returns ``(*s, 4)``."""
    spread = np.broadcast_arrays(*counters, *keys)
    flat = [words.reshape(-1) for words in spread]
    if (fast := kernels(flat[0].size)) is None:
        return in_arrays(flat).reshape(*spread[0].shape, 4)
    result = np.empty((flat[0].size, 4), dtype=np.uint64)
    fast.blocks(*map(np.ascontiguousarray, flat), result)
    return result.reshape(*spread[0].shape, 4)


def in_arrays(flat: Sequence[Words]) -> Words:
    """Blocks ``(n, 4)`` by NumPy alone: four arrays of counters and two of keys, ``(n,)`` each."""
    count = flat[0].size
    result = np.empty((count, 4), dtype=np.uint64)
    scratch = np.empty((12, min(_CHUNK, count)), dtype=np.uint64)
    for first in range(0, count, _CHUNK):
        many = min(_CHUNK, count - first)
        spare = scratch[9:, :many]
        for words, source in zip(scratch, flat, strict=False):
            words[:many] = source[first : first + many]
        c0, c1, c2, c3, k0, k1, high0, low0, high1 = scratch[:9, :many]
        for _ in range(_ROUNDS):  # arithmetic modulo 2**64 is meant; arrays wrap without a warning
            _multiply(_MULTIPLIER[0], c0, high0, low0, spare)
            np.bitwise_xor(high0, c3, out=high0)
            np.bitwise_xor(high0, k1, out=high0)
            _multiply(_MULTIPLIER[1], c2, high1, c3, spare)  # c3 has been used: it takes the low half
            np.bitwise_xor(high1, c1, out=high1)
            np.bitwise_xor(high1, k0, out=high1)
            c0, c1, c2, c3, high0, low0, high1 = high1, c3, high0, low0, c0, c1, c2
            np.add(k0, np.uint64(_WEYL[0]), out=k0)
            np.add(k1, np.uint64(_WEYL[1]), out=k1)
        for place, words in enumerate((c0, c1, c2, c3)):
            result[first : first + many, place] = words
    return result


def stream(counter: tuple[int, int, int, int], key: tuple[int, int], count: int) -> Words:
    """The first ``count`` words of the blocks at ``counter``, ``counter + 1`` and so on, by NumPy's generator."""
    # NumPy counts up before each block
    before = (sum(word << 64 * place for place, word in enumerate(counter)) - 1) % (1 << 256)
    words = np.array([before >> 64 * place & _MASK for place in range(4)], dtype=np.uint64)
    generator = np.random.Philox(counter=words, key=np.array(key, dtype=np.uint64))
    return np.asarray(generator.random_raw(count), dtype=np.uint64)
