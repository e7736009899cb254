"""Philox4x64-10, a counter-based generator: block ``c`` under key ``k`` is a pure function of both.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. NumPy ships the same
generator as a stream; here it is a function of addresses, once for single draws (Python integers) and once
for many draws at a time (arrays). Both are tested against NumPy's ``Philox.random_raw``, whose raw stream is
covered by NumPy's compatibility promise.
"""

from __future__ import annotations

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


def _multiply(constant: int, x: Words) -> tuple[Words, Words]:
    """High and low 64 bits of ``constant * x``, from four products of 32-bit halves."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high = np.uint64(constant & 0xFFFFFFFF), np.uint64(constant >> 32)
    b_low, b_high = x & low, x >> half
    cross_low, cross_high = a_low * b_high, a_high * b_low
    middle = ((a_low * b_low) >> half) + (cross_low & low) + (cross_high & low)
    high = a_high * b_high + (cross_low >> half) + (cross_high >> half) + (middle >> half)
    return high, np.uint64(constant) * x


def blocks(counters: tuple[Words, Words, Words, Words], keys: tuple[Words, Words]) -> Words:
    """Many blocks at once: counters and keys are arrays of one broadcast shape ``s``; returns ``(*s, 4)``."""
    c0, c1, c2, c3 = counters
    k0, k1 = keys
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        for _ in range(_ROUNDS):
            high0, low0 = _multiply(_MULTIPLIER[0], c0)
            high1, low1 = _multiply(_MULTIPLIER[1], c2)
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0 = k0 + np.uint64(_WEYL[0])
            k1 = k1 + np.uint64(_WEYL[1])
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1)
