"""Secrets of one opening, and the numbers that follow from them.

Every secret here comes from the operating system's generator (``secrets``, or a key of ``cryptography``), never from
:mod:`fuaudit.draws`: what a run can draw again would be no secret. HKDF-SHA256 derives keys, AES-256 in counter mode
makes numbers of a key; each key makes one stream.
"""

from __future__ import annotations

import secrets
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fuaudit.secure.refusal import RefusedError

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
KEY_BYTES = 32
T = TypeVar("T")


class Vault:
    """What one party holds until the round ends, by name. It is shown in no text.

    ``end`` drops everything. CPython frees an object when nothing refers to it; it does not overwrite the memory.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, object] | None = {}

    def put(self, name: str, value: object) -> None:
        """Hold a value."""
        self._open()[name] = value

    def get(self, name: str, kind: type[T]) -> T:
        """What is held under a name. RefusedError after the end, and for what was not put there."""
        value = self._open().get(name)
        if not isinstance(value, kind):
            raise RefusedError(f"a party has no {name} at this step", "Take the steps of a suite in their order.")
        return value

    def take(self, name: str, kind: type[T]) -> T:
        """As :meth:`get`, once: it is held no more."""
        value = self.get(name, kind)
        del self._open()[name]
        return value

    def _open(self) -> dict[str, object]:
        if self._held is None:
            raise RefusedError("a party's round has ended, and its keys are gone", "Start the buffer anew.")
        return self._held

    def end(self) -> None:
        """Drop everything."""
        self._held = None

    def __repr__(self) -> str:
        return "<secrets>"


class Party:
    """One role in one opening; as a context manager it holds no secret after the block, also after an error."""

    def __init__(self, first: str) -> None:
        self._vault, self._next = Vault(), first

    def _turn(self, step: str, then: str) -> None:
        """Begin a step, once and in order: a step that broke off is not taken again."""
        if self._next != step:
            raise RefusedError(
                f"step {step} of a party is not due: {self._next} is",
                "Each step is taken once. A buffer that broke off is discarded, and started anew with other keys.",
            )
        self._next = then

    def end(self) -> None:
        """Drop all keys, masks and values."""
        self._vault.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def fresh() -> bytes:
    """A new secret of 32 bytes from the operating system's generator."""
    return secrets.token_bytes(KEY_BYTES)


def derived(secret: bytes, about: bytes, salt: bytes) -> bytes:
    """A key of 32 bytes by HKDF-SHA256, of a secret, what it is for, and what all agreed on."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt, b"fuaudit secure sum " + about).derive(secret)


def stream(key: bytes, size: int) -> bytes:
    """``size`` bytes of AES-256 in counter mode, from counter 0: a key is used for one stream alone."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    return Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(size))


def words(key: bytes, count: int) -> Words:
    """Uniform words of 64 bits, ``(count,)``."""
    return np.frombuffer(stream(key, 8 * count), dtype="<u8").astype(np.uint64, copy=False)


def below(modulus: int, key: bytes, count: int) -> Ints:
    """Uniform numbers from 0 to ``modulus`` - 1, ``(count,)``, for a modulus below 2**63.

    Words are cut to the bits of the modulus, and those from the modulus on are left out: a remainder of whole words
    would be biased.
    """
    mask, drawn = np.uint64((1 << modulus.bit_length()) - 1), count + 16
    while True:
        found = words(key, drawn) & mask
        if found.max() >= modulus:  # seldom, where the modulus is close to a power of two
            found = found[found < modulus]
        if len(found) >= count:
            return found[:count].view(np.int64)
        drawn *= 2  # the first words of many are those of few, so it starts with the same numbers
