"""BFV by TenSEAL: ciphertexts of whole numbers modulo a prime, and their sums.

Brakerski ("Fully homomorphic encryption without modulus switching", CRYPTO 2012), Fan and Vercauteren (ePrint
2012/144). Polynomials have degree 4096, and the moduli 100 bits together, of the 109 bits that a security of 128 bits
allows (HomomorphicEncryption.org). Decryption is exact, so what is opened holds no noise. In CKKS the noise is opened
too, and gives the key away.

What SEAL computes from the parameters alone takes longer than ten encryptions, and holds no key. It is made once a
process, with TenSEAL's context without keys. Keys and ciphertexts are made with it by ``tenseal.sealapi``, the same
library without TenSEAL's contexts, which would make it anew for every key. Ciphertexts are read by TenSEAL.

The library draws keys and noise from its own generator, whose seeds are of the operating system's. fuaudit gives it
none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from tempfile import NamedTemporaryFile
from typing import IO, Any

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
"""Of a public key, at most."""

CIPHERTEXT_BYTES = 2 * 8 * SLOTS + 1024
"""No ciphertext is longer."""

Context = Any
"""A context of TenSEAL, which has no types."""

Ciphertext = Any
"""A vector of TenSEAL with one ciphertext of all slots."""


class OpenError(RefusedError):
    """Ciphertexts add up to one that anybody reads without a key. ``rows``: the first so many do."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"the ciphertexts of the first {rows} clients add up to one that is open to everybody")
        self.rows = rows


@dataclass(frozen=True)
class Keys:
    """The keys of one opening. Only a key holder has them.

    Attributes:
        secret: SEAL's secret key, an object in memory. It is never put into bytes.
        public: the public key, by which clients encrypt, as :func:`encrypted` reads it.
    """

    secret: Any = field(repr=False)
    public: bytes = field(repr=False)


def new_keys(ring: Plaintexts) -> Keys:
    """New keys, from the library's generator."""
    from tenseal import sealapi as seal

    maker, public = seal.KeyGenerator(_shared(ring)), seal.PublicKey()
    maker.create_public_key(public)
    return Keys(maker.secret_key(), _saved(public))


@cache
def keyless_part(ring: Plaintexts) -> bytes:
    """The context without keys: ciphertexts can be added by it, and neither made nor opened."""
    import tenseal

    context = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, SLOTS, plain_modulus=ring.modulus, coeff_mod_bit_sizes=list(MODULI), n_threads=1
    )
    return serialized(context, public=False)  # the keys that TenSEAL made with it go


def serialized(context: Context, public: bool) -> bytes:
    """A context of TenSEAL in bytes, with the public key or without any key."""
    # TenSEAL's make_context_public leaves a decryptor in the context; bytes leave none.
    part: bytes = context.serialize(
        save_public_key=public, save_secret_key=False, save_galois_keys=False, save_relin_keys=False
    )
    return part


@lru_cache(maxsize=len(RINGS))
def loaded(part: bytes) -> Context:
    """The context without keys of its bytes, made once a process: nothing in it is of one opening.

    Raises:
        RefusedError: it has a key, or is too long for one without.
    """
    import tenseal

    if len(part) > KEYLESS_BYTES:
        raise RefusedError(f"a context of {len(part)} bytes has keys: {KEYLESS_BYTES} at most have none")
    context = tenseal.context_from(part, n_threads=1)
    if context.has_public_key() or context.has_secret_key() or context.has_galois_keys() or context.has_relin_keys():
        raise RefusedError("a context for others has a key")
    return context


def context_of(ring: Plaintexts) -> Context:
    """The context without keys of a ring."""
    return loaded(keyless_part(ring))


def _shared(ring: Plaintexts) -> Any:
    """What SEAL computes from the parameters of a ring: it is the same for all keys."""
    return context_of(ring).seal_context().data


def encrypted(public: bytes, slots: Ints, ring: Plaintexts) -> list[bytes]:
    """One ciphertext for each row of slots ``(n, 4096)``, of numbers modulo the prime.

    Their bytes are those that TenSEAL makes of a vector of all slots.

    Args:
        public: the public key, as :class:`Keys` has it.
        slots: numbers from 0 to t - 1.
        ring: that of the key.

    Raises:
        RefusedError: there is no public key in the bytes.
    """
    from tenseal import sealapi as seal

    shared = _shared(ring)
    encryptor, encoder = seal.Encryptor(shared, _public_key(public, shared)), seal.BatchEncoder(shared)
    plain, one, found = seal.Plaintext(), seal.Ciphertext(), []
    for row in slots.tolist():
        encoder.encode(row, plain)
        encryptor.encrypt(plain, one)
        found.append(_vector(_saved(one)))
    return found


def _public_key(content: bytes, shared: Any) -> Any:
    from tenseal import sealapi as seal

    found = seal.PublicKey()
    try:
        with _file() as (file, path):
            file.write(content)
            file.flush()
            found.load(shared, path)  # SEAL looks at parameters, size and every coefficient
    except Exception:  # whatever a library of C++ says to bytes that it cannot read
        found = None
    if found is None:
        raise RefusedError("what the key holder handed out is no public key of these terms")
    return found


def _saved(thing: Any) -> bytes:
    """Something public of SEAL in bytes: a ciphertext or a public key, never a secret one."""
    with _file() as (file, path):
        thing.save(path)
        return file.read()


@contextmanager
def _file() -> Iterator[tuple[IO[bytes], str]]:
    """A file and its path: SEAL reads and writes files alone. On Linux it is memory, and in no folder."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("fuaudit"), "r+b") as file:
            yield file, f"/proc/self/fd/{file.fileno()}"
    else:
        with NamedTemporaryFile() as file:
            yield file, file.name


def _vector(ciphertext: bytes) -> bytes:
    """A ciphertext as TenSEAL writes a vector: field 1 has the number of slots, field 2 the ciphertext of SEAL."""
    return VECTOR + _varint(len(ciphertext)) + ciphertext


def _varint(number: int) -> bytes:
    """A number as protocol buffers have it: seven bits a byte, the lowest first."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def _is_vector(content: bytes) -> bool:
    """Whether bytes have the one form of :func:`_vector`."""
    rest = content.removeprefix(VECTOR)
    return any(_vector(rest[length:]) == content for length in range(1, 5))


VECTOR = b"\x0a\x02" + _varint(SLOTS) + b"\x12"
"""How a vector of all slots begins."""


@cache
def specimen(ring: Plaintexts) -> bytes:
    """A ciphertext of zeros under a key that nobody has kept."""
    return encrypted(new_keys(ring).public, np.zeros((1, SLOTS), dtype=np.int64), ring)[0]


def parsed(context: Context, ciphertext: bytes) -> Ciphertext:
    """A ciphertext of all slots. RefusedError for bytes that are none."""
    import tenseal

    if len(ciphertext) > CIPHERTEXT_BYTES:
        raise RefusedError(f"a ciphertext has {len(ciphertext)} bytes, above {CIPHERTEXT_BYTES}")
    if not _is_vector(ciphertext):  # TenSEAL reads other forms, of which a sum can have any number of bytes
        raise RefusedError("bytes that were sent are no ciphertext of these terms")
    try:
        vector = tenseal.bfv_vector_from(context, ciphertext)
        (part,) = vector.ciphertext()
        fits = vector.size() == SLOTS and part.size() == 2 and not (part.is_ntt_form() or part.is_transparent())
    except Exception:  # whatever a library of C++ says to bytes that it cannot read
        fits = False
    if not fits:
        raise RefusedError("bytes that were sent are no ciphertext of these terms")
    return vector


def added(rows: Sequence[Sequence[Ciphertext]]) -> list[bytes]:
    """The sums of two clients' ciphertexts or more; the order of clients does not change their bytes.

    Raises:
        OpenError: those of some clients cancel each other but for what is open. Of honest clients none ever do.
    """
    sums = []
    for first, second, *others in zip(*rows, strict=True):
        # a new one; TenSEAL's copy() of what was read from bytes ends the process
        total = _hidden(first.__add__, second, 2)
        for rows_added, one in enumerate(others, 3):
            _hidden(total.add_, one, rows_added)
        sums.append(total.serialize())
    return sums


def _hidden(add: Callable[[Ciphertext], Ciphertext], one: Ciphertext, rows: int) -> Ciphertext:
    """What an addition gives; OpenError where SEAL refuses it, for anybody could read it."""
    try:
        return add(one)
    except RuntimeError as error:
        if "transparent" not in str(error):
            raise
    raise OpenError(rows)


def decrypted(keys: Keys, ciphertexts: Sequence[bytes], ring: Plaintexts) -> Ints:
    """Slots ``(n, 4096)`` from 0 to t - 1. RefusedError for bytes that are no ciphertext."""
    from tenseal import sealapi as seal

    decryptor, encoder = seal.Decryptor(_shared(ring), keys.secret), seal.BatchEncoder(_shared(ring))
    plain, slots = seal.Plaintext(), []
    for one in ciphertexts:
        decryptor.decrypt(parsed(context_of(ring), one).ciphertext()[0], plain)
        slots.append(encoder.decode_uint64(plain))
    return np.array(slots, dtype=np.int64)


@cache
def require_margin(ring: Plaintexts) -> int:
    """The start-up test: the noise budget in bits after the most summands, and an exact round trip.

    One ciphertext of numbers over the whole range is added to itself: noises of one sign are the worst case. A budget
    is asked of a key and a ciphertext of this test alone: asked of others' ciphertexts it tells of the key.

    Raises:
        UsageError: no TenSEAL, another version of it, or too little is left.
    """
    require_library(installed())
    from tenseal import sealapi as seal

    keys, slots = new_keys(ring), (words(fresh(), SLOTS) % np.uint64(ring.modulus)).astype(np.int64)
    one = parsed(context_of(ring), encrypted(keys.public, slots[None], ring)[0])
    (total,) = added([[one]] * ring.summands)
    (bare,) = parsed(context_of(ring), total).ciphertext()
    left = int(seal.Decryptor(_shared(ring), keys.secret).invariant_noise_budget(bare))
    due = sum(slots for _ in range(ring.summands)) % ring.modulus
    if left < MARGIN or (decrypted(keys, [total], ring)[0] != due).any():
        raise UsageError(
            f"{left} bits of noise budget are left after {ring.summands} summands modulo {ring.modulus}, where "
            f"{MARGIN} are needed, or a sum is wrong",
            "The installed tenseal does not compute as it should: do not use encrypted sums with it.",
        )
    return left
