"""Slots: fields packed side by side, and a check in every ciphertext.

**Check.** Ciphertext n of member p holds in its last slot

    r(n, p) + sum over its other slots i of w(n, i) x(i)   modulo t

with weights w that clients and key holder know, and offsets r that the key holder and the member alone know. The server
knows neither. Checks add up like the slots do. So a sum opens only if each of its ciphertexts has every expected member
once, at its own place, with nothing added: anything else passes with probability 1 / t a ciphertext, below 2**-43. A
member who knows the weights can change its own row and nobody's else. It cannot send a copy of another member's
ciphertext as its own, nor one that was made to look different, for it does not know that member's offset. It is the
homomorphic authenticator of Agrawal and Boneh ("Homomorphic MACs", ACNS 2009) with an offset for each member.

One flipped bit of a ciphertext adds a power of one root to every slot. A plain sum over all slots is blind to that: the
roots add up to zero.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fuaudit.secure.streams import Ints, below, derived
from fuaudit.secure.terms import CHECKS, SLOTS, Layout, Terms

LIMB = 16
"""Bits that are multiplied at once: a product of 46 and 16 bits, twice, stays below 2**63."""


def packed(values: Ints, layout: Layout) -> Ints:
    """Values ``(c,)`` from 0 to 2 L, as slots ``(n, 4095)`` of the ciphertexts; what is left over is 0."""
    slots = layout.ciphertexts(len(values)) * (SLOTS - CHECKS)
    fields = np.zeros(slots * layout.fields, dtype=np.int64)
    fields[: len(values)] = values
    whole = np.zeros(slots, dtype=np.int64)
    for number, field in enumerate(fields.reshape(slots, layout.fields).T):
        whole |= field << (number * layout.width)
    return whole.reshape(-1, SLOTS - CHECKS)


def unpacked(slots: Ints, layout: Layout, columns: int) -> Ints:
    """The inverse of :func:`packed` ``(c,)``, of sums too."""
    shifts = np.arange(layout.fields, dtype=np.int64) * layout.width
    fields = (slots.reshape(-1, 1) >> shifts) & ((1 << layout.width) - 1)
    return fields.reshape(-1)[:columns]


def weighted(values: Ints, weights: Ints, modulus: int) -> Ints:
    """The sum over the last axis of values times weights, modulo a modulus below 2**46; both from 0 to modulus - 1."""
    product = np.zeros(np.broadcast_shapes(values.shape, weights.shape), dtype=np.int64)
    for limb in range(modulus.bit_length() // LIMB, -1, -1):
        piece = (values >> (LIMB * limb)) & ((1 << LIMB) - 1)
        product = ((product << LIMB) + weights * piece) % modulus
    # 2**16 numbers below 2**46 add up to less than 2**63
    starts = np.arange(0, values.shape[-1], 1 << LIMB)
    parts: Ints = np.add.reduceat(product, starts, axis=-1) % modulus
    total: Ints = parts.sum(axis=-1) % modulus
    return total


def offset_key(check: bytes, member: int) -> bytes:
    """The key of a member's offsets, from the key holder's key of checks."""
    return derived(check, b"offsets", member.to_bytes(8, "little"))


def weight_key(check: bytes) -> bytes:
    """The key of weights, which all members have."""
    return derived(check, b"weights", b"")


def checks(slots: Ints, weights: bytes, offsets: Iterable[bytes], terms: Terms) -> Ints:
    """The checks ``(n,)`` of slots ``(n, 4095)``, or of their sums, by the keys of weights and of members' offsets."""
    modulus = terms.layout.ring.modulus
    factors = below(modulus, derived(weights, b"numbers", terms.digest), slots.size)
    sums = weighted(slots, factors.reshape(slots.shape), modulus)
    for key in offsets:
        sums = (sums + below(modulus, derived(key, b"numbers", terms.digest), len(slots))) % modulus
    return sums
