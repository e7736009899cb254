"""BFV by TenSEAL: ciphertexts of whole numbers modulo a prime, and their sums.

Brakerski ("Fully homomorphic encryption without modulus switching", CRYPTO 2012), Fan and Vercauteren (ePrint
2012/144). Polynomials have degree 4096, and the moduli 100 bits together, of the 109 bits that a security of 128 bits
allows (HomomorphicEncryption.org). Decryption is exact, so what is opened holds no noise. In CKKS the noise is opened
too, and gives the key away.

TenSEAL draws keys and noise from its own generator, whose seeds are of the operating system's. fuaudit gives it none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from fuaudit.errors import UsageError
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.streams import Ints, fresh, words
from fuaudit.secure.terms import RINGS, SLOTS, Plaintexts, installed, require_library

MODULI = (60, 40)
"""Bits of the ciphertexts' modulus, and of the special prime that TenSEAL's contexts cannot do without."""

MARGIN = 3
"""Bits of noise budget that are left after the most summands, at least."""

KEYLESS_BYTES = 86
"""Of a context without any key, at most."""

PUBLIC_BYTES = 2 * 2 * 8 * SLOTS + 2048
"""Of a context with the public key, at most."""

CIPHERTEXT_BYTES = 2 * 8 * SLOTS + 1024
"""No ciphertext is longer."""

Context = Any
"""A context of TenSEAL, which has no types."""

Ciphertext = Any
"""A vector of TenSEAL with one ciphertext of all slots."""


def new_keys(ring: Plaintexts) -> Context:
    """A context with a new secret key. Only a key holder has one."""
    import tenseal

    return tenseal.context(
        tenseal.SCHEME_TYPE.BFV, SLOTS, plain_modulus=ring.modulus, coeff_mod_bit_sizes=list(MODULI), n_threads=1
    )


def public_part(context: Context) -> bytes:
    """The context with the public key alone, by which clients encrypt."""
    return _part(context, public=True)


def keyless_part(context: Context) -> bytes:
    """The context without any key: ciphertexts can be added by it, and neither made nor opened."""
    return _part(context, public=False)


def _part(context: Context, public: bool) -> bytes:
    # TenSEAL's make_context_public leaves a decryptor in the context; bytes leave none.
    part: bytes = context.serialize(
        save_public_key=public, save_secret_key=False, save_galois_keys=False, save_relin_keys=False
    )
    return part


def loaded(part: bytes, keyless: bool) -> Context:
    """The context of a part of one.

    Raises:
        RefusedError: it has a secret key, or another key where it shall have none.
    """
    return _keyless(part) if keyless else _checked(part, keyless=False)


@lru_cache(maxsize=len(RINGS))
def _keyless(part: bytes) -> Context:
    """Made once for a ring: it holds no key, and making it costs more than most additions."""
    return _checked(part, keyless=True)


def _checked(part: bytes, keyless: bool) -> Context:
    import tenseal

    context = tenseal.context_from(part, n_threads=1)
    if context.has_secret_key() or context.has_galois_keys() or context.has_relin_keys():
        raise RefusedError("a context for others has keys that only the key holder may have")
    if context.has_public_key() == keyless or (keyless and len(part) > KEYLESS_BYTES):
        due = f"no key, and {KEYLESS_BYTES} bytes at most" if keyless else "a public key"
        raise RefusedError(f"a context of {len(part)} bytes came, where one with {due} is due")
    return context


def encrypted(context: Context, slots: Ints, ring: Plaintexts) -> list[bytes]:
    """One ciphertext for each row of slots ``(n, 4096)``, of numbers modulo the prime."""
    import tenseal

    centred = np.where(slots > ring.modulus // 2, slots - ring.modulus, slots)
    return [tenseal.bfv_vector(context, row).serialize() for row in centred.tolist()]


@cache
def specimen(ring: Plaintexts) -> bytes:
    """A ciphertext of zeros under a key that nobody has kept."""
    return encrypted(new_keys(ring), np.zeros((1, SLOTS), dtype=np.int64), ring)[0]


def parsed(context: Context, ciphertext: bytes) -> Ciphertext:
    """A ciphertext of all slots. RefusedError for bytes that are none."""
    import tenseal

    if len(ciphertext) > CIPHERTEXT_BYTES:
        raise RefusedError(f"a ciphertext has {len(ciphertext)} bytes, above {CIPHERTEXT_BYTES}")
    try:
        vector = tenseal.bfv_vector_from(context, ciphertext)
        fits = vector.size() == SLOTS and len(vector.ciphertext()) == 1 and vector.ciphertext()[0].size() == 2
    except Exception:  # whatever a library of C++ says to bytes that it cannot read
        fits = False
    if not fits:
        raise RefusedError("bytes that were sent are no ciphertext of these terms")
    return vector


def added(rows: Sequence[Sequence[Ciphertext]]) -> list[bytes]:
    """The sums of two clients' ciphertexts or more; the order of clients does not change their bytes."""
    sums = []
    for first, second, *others in zip(*rows, strict=True):
        total = first + second  # a new one; TenSEAL's copy() of what was read from bytes ends the process
        for one in others:
            total.add_(one)
        sums.append(total.serialize())
    return sums


def decrypted(context: Context, ciphertexts: Sequence[bytes], ring: Plaintexts) -> Ints:
    """Slots ``(n, 4096)`` from 0 to t - 1."""
    slots = [parsed(context, one).decrypt() for one in ciphertexts]
    return np.array(slots, dtype=np.int64) % ring.modulus


@cache
def require_margin(ring: Plaintexts) -> int:
    """The start-up test: the noise budget in bits after the most summands, and an exact round trip.

    One ciphertext of numbers over the whole range is added to itself: noises of one sign are the worst case. A budget
    is asked of a key and a ciphertext of this test alone: asked of others' ciphertexts it tells of the key.

    Raises:
        UsageError: another version of TenSEAL, or too little is left.
    """
    require_library(installed())
    left, slots = _budget(ring), (words(fresh(), SLOTS) % np.uint64(ring.modulus)).astype(np.int64)
    keys = new_keys(ring)
    one = parsed(loaded(keyless_part(keys), keyless=True), encrypted(keys, slots[None], ring)[0])
    (total,) = added([[one]] * ring.summands)
    found = decrypted(keys, [total], ring)[0]
    if left < MARGIN or (found != sum(slots for _ in range(ring.summands)) % ring.modulus).any():
        raise UsageError(
            f"{left} bits of noise budget are left after {ring.summands} summands modulo {ring.modulus}, where "
            f"{MARGIN} are needed, or a sum is wrong",
            "The installed tenseal does not compute as it should: do not use encrypted sums with it.",
        )
    return left


def _budget(ring: Plaintexts) -> int:
    from tenseal import sealapi as seal

    parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    parameters.set_poly_modulus_degree(SLOTS)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(SLOTS, list(MODULI)))
    parameters.set_plain_modulus(seal.Modulus(ring.modulus))
    context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
    if not context.parameters_set():
        return -1  # the library takes them for less than 128 bits of security
    maker, public, plain = seal.KeyGenerator(context), seal.PublicKey(), seal.Plaintext()
    maker.create_public_key(public)
    one, total = seal.Ciphertext(context), seal.Ciphertext(context)
    seal.BatchEncoder(context).encode((words(fresh(), SLOTS) % np.uint64(ring.modulus)).tolist(), plain)
    seal.Encryptor(context, public).encrypt(plain, one)
    seal.Evaluator(context).add_many([one] * ring.summands, total)
    return int(seal.Decryptor(context, maker.secret_key()).invariant_noise_budget(total))
