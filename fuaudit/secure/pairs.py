"""Pairs of clients: keys that two of them share, and masks that cancel in the sum of all.

Two clients agree by X25519 on a secret. HKDF makes keys of it with the digest of the *list* in it: who takes part, with
which public keys. Clients who were shown two lists so have no key in common, and their masks do not cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.streams import Ints, below, derived

PUBLIC_BYTES = 32


class PairKey:
    """A key by which a client shares a secret with each peer; ``public`` is 32 bytes. It is made now, or of bytes."""

    def __init__(self, private: bytes | None = None) -> None:
        made = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        self._key, self.public = made, made.public_key().public_bytes_raw()

    @property
    def private(self) -> bytes:
        """The key itself, 32 bytes."""
        return self._key.private_bytes_raw()

    def shared(self, peer: int, public: bytes) -> bytes:
        """The secret that a client shares with a peer, 32 bytes.

        Raises:
            RefusedError: the peer's public key is one with which everybody has the same secret.
        """
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            pass
        raise RefusedError(f"client {peer} announced a public key with which no secret can be shared", blamed=peer)

    def __repr__(self) -> str:
        return f"<pair key {self.public.hex()[:8]}>"


def pair_key(secret: bytes, about: bytes, one: int, other: int, agreed: bytes) -> bytes:
    """The key of 32 bytes of a pair for one purpose, under the digest of the list that both agreed on."""
    names = b" ".join(client.to_bytes(8, "little") for client in (one, other))
    return derived(secret, about + b" " + names, agreed)


def pair_masks(
    own: PairKey, client: int, peers: Mapping[int, bytes], agreed: bytes, numbers: Callable[[bytes], Ints]
) -> Ints:
    """The sum of a client's masks with all peers (id -> public key); over all clients these add up to zero.

    Of each pair the one with the lower id adds what the other subtracts. ``numbers`` makes the mask of a key.
    """
    total = np.zeros((), dtype=np.int64)
    for peer, public in sorted(peers.items()):
        low, high = sorted((client, peer))
        mask = numbers(pair_key(own.shared(peer, public), b"mask", low, high, agreed))
        total = total + mask if client == low else total - mask
    return total


def modular(modulus: int, shape: tuple[int, ...]) -> Callable[[bytes], Ints]:
    """Masks of a shape, uniform modulo a modulus."""
    return lambda key: below(modulus, key, int(np.prod(shape))).reshape(shape)
