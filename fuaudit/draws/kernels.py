"""Philox, sequences and subsets compiled by numba: the same bits as :mod:`fuaudit.draws.philox` and ``keyed`` (tested).

Imported by :func:`fuaudit.draws.philox.kernels` alone, because numba may be absent and takes time to load. What is
compiled is cached beside this file, or in the user's cache where that folder cannot be written.

All numbers are 64-bit words without sign: numba makes floats where signs are mixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, uint64
from numba.extending import intrinsic

ROUNDS = 10
M0, M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
W0, W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
HALF = np.uint64(32)
ONE, FOUR, LARGEST = np.uint64(1), np.uint64(4), np.uint64(0xFFFFFFFFFFFFFFFF)


@intrinsic
def _high(typing: Any, a: Any, b: Any) -> Any:
    """The high word of a product: one instruction of the processor, which numba has no name for."""

    def generate(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        wide = ir.IntType(128)
        left, right = (builder.zext(operand, wide) for operand in operands)
        return builder.trunc(builder.lshr(builder.mul(left, right), wide(64)), ir.IntType(64))

    return uint64(uint64, uint64), generate


@njit(cache=True, inline="always")
def _block(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    for _ in range(ROUNDS):
        h0, l0, h1, l1 = _high(M0, c0), M0 * c0, _high(M1, c2), M1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = k0 + W0, k1 + W1
    return c0, c1, c2, c3


@njit(cache=True)
def blocks(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, out: Any) -> None:
    """Many blocks: six arrays ``(n,)`` of words in, ``out (n, 4)``."""
    for i in range(len(c0)):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = _block(c0[i], c1[i], c2[i], c3[i], k0[i], k1[i])


@njit(cache=True, inline="always")
def _below(bound: Any, word: Any, place: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """A word below a bound; one that is rejected is drawn anew, at the next attempt in its place."""
    if word <= LARGEST - bound:  # what may be rejected lies in the topmost words: most need one division alone
        return word % bound
    accepted = LARGEST - (LARGEST % bound + ONE) % bound
    attempt = uint64(0)
    while word > accepted:
        attempt += ONE
        four = _block(attempt << HALF | place // FOUR, c1, c2, c3, k0, k1)
        slot = place % FOUR
        word = four[0] if slot == 0 else four[1] if slot == 1 else four[2] if slot == 2 else four[3]
    return word % bound


@njit(cache=True)
def ranks(distinct: bool, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, sizes: Any, out: Any) -> None:
    """Ranks of many draws: five arrays ``(n,)`` of words and ``sizes (n,)`` in, ``out (n, count)``.

    With replacement, in drawn order; ``distinct`` ones by Floyd's method, sorted.
    """
    count = out.shape[1]
    for i in range(len(sizes)):
        size = uint64(sizes[i])
        w0 = w1 = w2 = w3 = uint64(0)
        for j in range(count):
            place = uint64(j)
            if j % 4 == 0:
                w0, w1, w2, w3 = _block(place // FOUR, c1[i], c2[i], c3[i], k0[i], k1[i])
            word = w0 if j % 4 == 0 else w1 if j % 4 == 1 else w2 if j % 4 == 2 else w3
            bound = size - uint64(count) + place + ONE if distinct else size
            drawn = np.int64(_below(bound, word, place, c1[i], c2[i], c3[i], k0[i], k1[i]))
            if not distinct:
                out[i, j] = drawn
                continue
            for before in range(j):
                if out[i, before] == drawn:
                    drawn = np.int64(bound - ONE)
                    break
            # those before are sorted already, and Floyd's method asks only whether it is among them
            at = j
            while at > 0 and out[i, at - 1] > drawn:
                out[i, at] = out[i, at - 1]
                at -= 1
            out[i, at] = drawn
