"""Identities: the keys that parties of secure sums sign with. The commitment fixes them before training.

An identity is an Ed25519 key whose seed follows from the first secret of a client, or from the secret of one of the two
parties that are no clients. Its public key stands in the client's node of the contents, or at their root.
"""

from __future__ import annotations

from fuaudit.commitments.keys import derive
from fuaudit.secure.messages import Identity

PARTIES = "witness", "key holder"
"""Who takes part in secure sums beside clients and server, in the order in which runs hold their keys."""


def identity_of(secret: bytes) -> Identity:
    """The key that a party with this secret of 32 bytes signs with."""
    return Identity(derive(secret, "identity"))


def public_key(secret: bytes) -> bytes:
    """Its public key, 32 bytes."""
    with identity_of(secret) as own:
        return bytes.fromhex(own.public)
