"""CKKS as others sum by it, to show why nobody should: whoever sees the decrypted sum recovers the key.

Cheon, Kim, Kim, Song (ASIACRYPT 2017) decrypt to a rounded number with the noise of the ciphertext in it. From two sums
of ciphertexts and what they were decrypted to, the secret key follows by linear equations (Li, Micciancio: "On the
security of homomorphic encryption on approximate numbers", EUROCRYPT 2021). ``fuaudit.secure.attacks`` solves
them, and opens one client's ciphertext. One key for all, no masks, no checks, no witness: this protects nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fuaudit.secure import bfv
from fuaudit.secure.refusal import forgetting
from fuaudit.secure.streams import Ints, Party
from fuaudit.secure.terms import SLOTS, layout_of

MODULI = (60, 49)
SCALE_BITS = 30
"""Of the factor of a value; of larger ones the numbers that are opened do not have all bits of the noise."""

MOST_BITS = 58
"""Of a scaled sum, below the modulus."""


class DemoKeyHolder(Party):
    """Holds the key, and gives the server the decrypted numbers with their noise."""

    def __init__(self, bits: int, most: int) -> None:
        import tenseal

        super().__init__("open")
        context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, SLOTS, coeff_mod_bit_sizes=list(MODULI), n_threads=1)
        context.global_scale = 2.0 ** min(SCALE_BITS, MOST_BITS - layout_of(bits, most).width)
        self._vault.put("keys", context)

    def public(self) -> bytes:
        """The context for clients."""
        return bfv.serialized(self._vault.get("keys", object), public=True)

    def keyless(self) -> bytes:
        """The context for the server."""
        return bfv.serialized(self._vault.get("keys", object), public=False)

    @forgetting
    def opened(self, ciphertexts: Sequence[bytes]) -> NDArray[np.float64]:
        """What CKKS decrypts to, ``(n * 2048,)``: this is what gives the key away."""
        import tenseal

        self._turn("open", then="nothing")
        keys = self._vault.take("keys", object)
        return np.concatenate([tenseal.ckks_vector_from(keys, one).decrypt() for one in ciphertexts])


def encrypted(public: bytes, values: Ints) -> list[bytes]:
    """Ciphertexts of 2,048 values each."""
    import tenseal

    context, whole = tenseal.context_from(public, n_threads=1), np.zeros(-(-len(values) // HALF) * HALF)
    whole[: len(values)] = values
    return [tenseal.ckks_vector(context, row).serialize() for row in whole.reshape(-1, HALF).tolist()]


def added(keyless: bytes, rows: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The sums of several clients' ciphertexts."""
    import tenseal

    context = tenseal.context_from(keyless, n_threads=1)
    return bfv.added([[tenseal.ckks_vector_from(context, one) for one in row] for row in rows])


HALF = SLOTS // 2
"""CKKS has a number in two slots."""
