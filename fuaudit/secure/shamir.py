"""Shamir's sharing of a secret of 32 bytes (CACM 1979): any ``threshold`` shares give it, fewer tell nothing of it.

Over the field of 2**521 - 1 elements. The share of place i is the value at i + 1 of a random polynomial.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from fuaudit.secure.streams import KEY_BYTES

PRIME = 2**521 - 1
SHARE_BYTES = 66


def shares(secret: bytes, threshold: int, places: int) -> list[bytes]:
    """A share of 66 bytes for each place; coefficients come from the operating system's generator."""
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    values = []
    for place in range(1, places + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % PRIME
        values.append(value.to_bytes(SHARE_BYTES, "big"))
    return values


def reconstructed(parts: Mapping[int, bytes]) -> bytes | None:
    """The secret from shares by place, as many as the threshold; None where they are of no secret of 32 bytes."""
    total = 0
    for place, share in parts.items():
        top = bottom = 1
        for other in parts.keys() - {place}:
            top, bottom = top * (other + 1) % PRIME, bottom * (other - place) % PRIME
        total = (total + int.from_bytes(share, "big") * top * pow(bottom, -1, PRIME)) % PRIME
    return total.to_bytes(KEY_BYTES, "big") if total < 1 << (8 * KEY_BYTES) else None
