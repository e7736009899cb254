"""Messages of one opening: signed by who sends them, over the terms, and looked at before anything is parsed.

A party signs by Ed25519 under its key of the terms. It signs a *head* of 120 bytes, which names everything: step,
sender, receiver, round, buffer, digest of the terms, length and digest of the body. So who carries a message can drop
it and cannot alter it, and a signed message that is wrong is its sender's doing. The server has no key: what it says
can be computed again by everybody who is shown the messages that it got.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, Self, get_args

from fuaudit.secure.names import EVERYBODY, HOLDER, NAMES, SERVER, WITNESS
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import Terms

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Step = Literal[
    "lot", "columns", "terms", "context", "handout", "announce", "share", "send", "came",
    "unmask", "total", "witness", "receipt", "opened", "discard",
]  # fmt: skip
STEPS: tuple[Step, ...] = get_args(Step)
"""In the order in which they follow each other in a round."""

WAYS: Mapping[Step, tuple[int | None, int | None]] = MappingProxyType(
    {
        "lot": (None, EVERYBODY),
        "columns": (SERVER, EVERYBODY),
        "terms": (SERVER, EVERYBODY),
        "context": (HOLDER, EVERYBODY),
        "handout": (HOLDER, None),
        "announce": (None, EVERYBODY),
        "share": (None, EVERYBODY),
        "send": (None, SERVER),
        "came": (SERVER, EVERYBODY),
        "unmask": (None, SERVER),
        "total": (SERVER, WITNESS),
        "witness": (WITNESS, HOLDER),
        "receipt": (HOLDER, SERVER),
        "opened": (SERVER, SERVER),
        "discard": (SERVER, EVERYBODY),
    }
)
"""Step -> sender and receiver; None is a client.

The server passes on to the witness what clients send it, and to the key holder the sum with the witness's signature. A
sum is told to the server alone: a member of a buffer of two that is given it has the other's row. What the server opens
itself is its own note.
"""

OF_ROUND: tuple[Step, ...] = ("lot", "columns")
"""Steps of a whole round; all others are of a buffer."""

MAGIC = b"fuaudit\x01"
HEAD = struct.Struct("<8s8sqqqq32sQ32s")
DIGEST_BYTES = 32
ID_BYTES = 8
SIGNATURE_BYTES = 64
UNSIGNED = bytes(SIGNATURE_BYTES)
"""In the place of a signature of the server."""


class Agreed(Protocol):
    """What the parties of a message agreed on: :class:`fuaudit.secure.terms.Terms` of a buffer, or a ``Lot``."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""

    @property
    def round(self) -> int:
        """Number of the round."""

    @property
    def buffer(self) -> int:
        """Number of the buffer, or that of no buffer."""

    def signer(self, party: int) -> str | None:
        """The public key of a party; None for who has none here."""


class Identity:
    """A key that a party signs with; ``public`` (64 hexadecimal digits) stands in the roster.

    Args:
        seed: 32 bytes, the private key; None draws one from the operating system's generator.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        made = Ed25519PrivateKey.generate() if seed is None else Ed25519PrivateKey.from_private_bytes(seed)
        self._key: Ed25519PrivateKey | None = made
        self.public = made.public_key().public_bytes_raw().hex()

    @property
    def private(self) -> bytes:
        """The key itself, 32 bytes."""
        return self._held().private_bytes_raw()

    def signature(self, said: bytes) -> bytes:
        """Of some bytes, 64 bytes."""
        return self._held().sign(said)

    def _held(self) -> Ed25519PrivateKey:
        if self._key is None:
            raise RefusedError("a party's round has ended, and its keys are gone", "Start the buffer anew.")
        return self._key

    def end(self) -> None:
        """Drop the key."""
        self._key = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<identity {self.public[:8]}>"


@dataclass(frozen=True)
class Signers:
    """The identities of a run, by which its parties sign in all rounds. Who made them ends them."""

    clients: Mapping[int, Identity]
    witness: Identity
    holder: Identity


def is_signed(said: bytes, signature: bytes, public: str) -> bool:
    """Whether a signature is that of some bytes under a public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, said)
    except InvalidSignature:
        return False
    return True


def named(party: int) -> str:
    """A party in words: "client 3", "the witness"."""
    return NAMES.get(party, f"client {party}")


@dataclass(frozen=True)
class Message:
    """What one party sends at one step.

    Attributes:
        step: one of :data:`STEPS`.
        sender: a client from 0 on, or a party of :mod:`fuaudit.secure.names`.
        receiver: as the sender.
        round: number of the round.
        buffer: number of the buffer.
        terms: digest of what was agreed on, 32 bytes.
        body: bytes, by step.
        signature: of the head, 64 bytes; zeros of the server.
    """

    step: Step
    sender: int
    receiver: int
    round: int
    buffer: int
    terms: bytes
    body: bytes
    signature: bytes

    @classmethod
    def signed(
        cls, step: Step, sender: int, body: bytes, terms: Agreed, identity: Identity, receiver: int | None = None
    ) -> Message:
        """A message of a party that has a key; a receiver is named where the step does not say who it is."""
        return cls._made(step, sender, body, terms, identity, receiver)

    @classmethod
    def unsigned(cls, step: Step, body: bytes, terms: Agreed) -> Message:
        """A message of the server."""
        return cls._made(step, SERVER, body, terms, None, None)

    @classmethod
    def _made(
        cls, step: Step, sender: int, body: bytes, terms: Agreed, identity: Identity | None, receiver: int | None
    ) -> Message:
        to = WAYS[step][1]
        due = receiver if to is None else to
        if due is None:
            raise ValueError(f"a message of step {step} needs a receiver")
        bare = cls(step, sender, due, terms.round, terms.buffer, terms.digest, body, UNSIGNED)
        return bare if identity is None else replace(bare, signature=identity.signature(bare.head))

    @cached_property
    def head(self) -> bytes:
        """What is signed, 120 bytes."""
        step, digest = self.step.encode().ljust(8), hashlib.sha256(self.body).digest()
        where = (self.sender, self.receiver, self.round, self.buffer)
        return HEAD.pack(MAGIC, step, *where, self.terms, len(self.body), digest)

    def require(self, step: Step, least: int, most: int, terms: Agreed) -> bytes:
        """The body, if it is of this step and of these terms, of who may send it, of such a length, and signed.

        Raises:
            RefusedError: it is not. Nobody is blamed: without a signature anybody may have made it.
        """
        sender, receiver = WAYS[step]
        if self.step != step or not (_is(self.sender, sender, terms) and _is(self.receiver, receiver, terms)):
            raise RefusedError(
                f"a message of {named(self.sender)} at step {self.step}, where {step} of a member is due"
            )
        if (self.terms, self.round, self.buffer) != (terms.digest, terms.round, terms.buffer) or not self._fits(terms):
            raise RefusedError(
                f"the message of {named(self.sender)} at step {step} does not have its signature under these terms",
                "It was altered on its way, or its sender agreed on other terms. Nobody can be blamed for it.",
            )
        if not least <= len(self.body) <= most:
            raise RefusedError(
                f"{named(self.sender)} signed {len(self.body)} bytes at step {step}, where {least} to {most} are due",
                blamed=self.sender if self.sender >= 0 else None,
            )
        return self.body

    def _fits(self, terms: Agreed) -> bool:
        if self.sender == SERVER:
            return self.signature == UNSIGNED
        public = terms.signer(self.sender)
        return public is not None and is_signed(self.head, self.signature, public)


def _is(party: int, due: int | None, terms: Agreed) -> bool:
    """Whether a party is the one that is due, or a client of the terms where a client is."""
    return party == due if due is not None else party >= 0 and terms.signer(party) is not None


def ids_bytes(ids: Iterable[int]) -> bytes:
    """Ids one after the other, 8 bytes each."""
    return b"".join(one.to_bytes(ID_BYTES, "little") for one in ids)


def ids_of(content: bytes) -> tuple[int, ...]:
    """The inverse, of a multiple of 8 bytes."""
    return tuple(int.from_bytes(content[at : at + ID_BYTES], "little") for at in range(0, len(content), ID_BYTES))


def require_distinct(messages: Sequence[Message]) -> None:
    """RefusedError where a client sent two messages: one of them could be added twice."""
    counted = Counter(message.sender for message in messages)
    if twice := sorted(sender for sender, times in counted.items() if times > 1):
        raise RefusedError(f"two messages of {named(twice[0])} came at one step")


def list_digest(messages: Iterable[Message]) -> bytes:
    """SHA-256 of who sent what at a step, ascending by sender, 32 bytes: all have to see one list."""
    hasher = hashlib.sha256(b"fuaudit secure list")
    for message in sorted(messages, key=lambda each: each.sender):
        hasher.update(ids_bytes([message.sender]) + hashlib.sha256(message.body).digest())
    return hasher.digest()


def require_enough(senders: Iterable[int], terms: Terms, at_least: int = 0) -> None:
    """RefusedError where fewer clients are left than the terms allow to open."""
    left, fewest = len(set(senders)), max(terms.smallest, at_least)
    if left < fewest:
        raise RefusedError(
            f"{left} of {len(terms.members)} clients of buffer {terms.buffer} are left, where {fewest} are needed",
            "The buffer is discarded, and nothing of it was opened.",
            reason="few",
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
