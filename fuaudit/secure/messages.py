"""Messages of one opening: signed by who sends them, over the terms, and looked at before anything is parsed.

A client signs by Ed25519 under its key of the roster. So who carries a message can drop it and cannot alter it, and a
signed message that is wrong is its sender's doing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import Terms

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Step = Literal["announce", "share", "send", "unmask"]
DIGEST_BYTES = 32
SIGNATURE_BYTES = 64


class Identity:
    """A key that a party signs with; ``public`` (64 hexadecimal digits) stands in the roster.

    It follows from a ``seed`` of 32 bytes; without one it is new.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as Key

        self._key: Ed25519PrivateKey | None = Key.generate() if seed is None else Key.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw().hex()

    def signature(self, said: bytes) -> bytes:
        """Of some bytes, 64 bytes."""
        if self._key is None:
            raise RefusedError("a party's round has ended, and its keys are gone", "Start the buffer anew.")
        return self._key.sign(said)

    def end(self) -> None:
        """Drop the key."""
        self._key = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<identity {self.public[:8]}>"


def is_signed(said: bytes, signature: bytes, public: str) -> bool:
    """Whether a signature is that of some bytes under a public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, said)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True)
class Message:
    """What one client sends at one step; ``body`` is bytes."""

    step: Step
    sender: int
    body: bytes
    signature: bytes

    @classmethod
    def signed(cls, step: Step, sender: int, body: bytes, terms: Terms, identity: Identity) -> Message:
        """A message of a client."""
        return cls(step, sender, body, identity.signature(_said(step, sender, body, terms)))

    def require(self, step: Step, least: int, most: int, terms: Terms) -> bytes:
        """The body, if it is of this step, of a member, of a length in this range and signed.

        Raises:
            RefusedError: it is not. Nobody is blamed: without a signature anybody may have made it.
        """
        public = terms.signer(self.sender)
        if self.step != step or public is None:
            raise RefusedError(
                f"a message of client {self.sender} at step {self.step}, where {step} of a member is due"
            )
        if not is_signed(_said(step, self.sender, self.body, terms), self.signature, public):
            raise RefusedError(
                f"the message of client {self.sender} at step {step} does not have its signature under these terms",
                "It was altered on its way, or its sender agreed on other terms. Nobody can be blamed for it.",
            )
        if not least <= len(self.body) <= most:
            raise RefusedError(
                f"client {self.sender} signed {len(self.body)} bytes at step {step}, where {least} to {most} are due",
                blamed=self.sender,
            )
        return self.body


def _said(step: Step, sender: int, body: bytes, terms: Terms) -> bytes:
    head = b"fuaudit secure message " + terms.digest + step.encode().ljust(8) + sender.to_bytes(8, "little")
    return head + hashlib.sha256(body).digest()


def require_distinct(messages: Sequence[Message]) -> None:
    """RefusedError where a client sent two messages: one of them could be added twice."""
    senders = [message.sender for message in messages]
    if twice := sorted({sender for sender in senders if senders.count(sender) > 1}):
        raise RefusedError(f"two messages of client {twice[0]} came at one step")


def list_digest(messages: Iterable[Message]) -> bytes:
    """SHA-256 of who sent what at a step, ascending by sender, 32 bytes: all have to see one list."""
    hasher = hashlib.sha256(b"fuaudit secure list")
    for message in sorted(messages, key=lambda each: each.sender):
        hasher.update(message.sender.to_bytes(8, "little") + hashlib.sha256(message.body).digest())
    return hasher.digest()


def require_enough(senders: Iterable[int], terms: Terms, at_least: int = 0) -> None:
    """RefusedError where fewer clients are left than the terms allow to open."""
    left, fewest = len(set(senders)), max(terms.smallest, at_least)
    if left < fewest:
        raise RefusedError(
            f"{left} of {len(terms.members)} clients of buffer {terms.buffer} are left, where {fewest} are needed",
            "The buffer is discarded, and nothing of it was opened.",
        )


def by_sender(messages: Iterable[Message]) -> Mapping[int, Message]:
    """Messages by their senders, ascending."""
    return {message.sender: message for message in sorted(messages, key=lambda each: each.sender)}


def require_one_list(client: int, seen: bytes, agreed: bytes) -> None:
    """RefusedError where a client was shown another list than others: masks under two lists do not cancel."""
    if seen != agreed:
        raise RefusedError(
            f"client {client} names another list of clients than this one",
            "Who carries lists showed two of them, or the client lies. Nobody can be blamed for it.",
        )
