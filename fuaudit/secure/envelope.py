"""Envelopes: messages in bytes, as they cross from one party to another and stand in a transcript.

An envelope is the head (120 bytes), the signature (64 bytes) and the body. All numbers are little-endian:

    magic 8 | step 8 | sender 8 | receiver 8 | round 8 | buffer 8 | terms 32 | length 8 | body's SHA-256 32

Lengths are looked at before anything is parsed, by what the terms allow at a step. What is unknown is refused. One
message has one envelope: what is read is written again in the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from fuaudit.secure import bfv, masked, pairs, shamir
from fuaudit.secure.encrypted import framed_bytes, has_masks, total_bytes
from fuaudit.secure.messages import DIGEST_BYTES, HEAD, ID_BYTES, MAGIC, SIGNATURE_BYTES, Agreed, Message, Step
from fuaudit.secure.plain import VALUE_BYTES
from fuaudit.secure.receipts import receipt_bytes
from fuaudit.secure.refusal import REASONS, RefusedError
from fuaudit.secure.streams import KEY_BYTES
from fuaudit.secure.terms import COLUMN_BYTES, MOST_COLUMNS, Lot, Terms

FRONT_BYTES = HEAD.size + SIGNATURE_BYTES
"""Of head and signature: what is read before it is known how long the body is."""

TERMS_BYTES = 8192
"""Of terms in bytes, at most: those of 32 clients have less than half of it."""

Range = tuple[int, int]


@dataclass(frozen=True)
class Front:
    """Head and signature of an envelope whose body was not read yet; fields as those of a message.

    Attributes:
        size: bytes of the body.
        digest: SHA-256 of the body.
    """

    step: Step
    sender: int
    receiver: int
    round: int
    buffer: int
    terms: bytes
    size: int
    digest: bytes
    signature: bytes

    @classmethod
    def of(cls, content: bytes) -> Front:
        """From the first 184 bytes, or more. RefusedError for what is no envelope of this version."""
        if len(content) < FRONT_BYTES:
            raise RefusedError(f"an envelope has {FRONT_BYTES} bytes or more, and {len(content)} came")
        magic, word, sender, receiver, round_, buffer, terms, size, digest = HEAD.unpack_from(content)
        if magic != MAGIC:
            raise RefusedError(
                "what came is no envelope of this version", "All parties need the same version of fuaudit."
            )
        step = _WORDS.get(word)
        if step is None:
            raise RefusedError("an envelope names a step that there is not")
        return cls(step, sender, receiver, round_, buffer, terms, size, digest, content[HEAD.size : FRONT_BYTES])

    def require(self, terms: Agreed) -> int:
        """Bytes of the body, if it is of these terms and as long as they allow.

        Raises:
            RefusedError: it is not. Nobody is blamed: no signature was looked at.
        """
        if (self.terms, self.round, self.buffer) != (terms.digest, terms.round, terms.buffer):
            raise RefusedError(
                f"an envelope of round {self.round}, buffer {self.buffer} came, where round {terms.round}, buffer "
                f"{terms.buffer} are due, or it is under other terms",
                "It was altered on its way, belongs elsewhere, or its sender agreed on other terms.",
            )
        range_ = limits(terms).get(self.step)
        if range_ is None:
            raise RefusedError(f"step {self.step} is none of these terms")
        if not range_[0] <= self.size <= range_[1]:
            raise RefusedError(
                f"an envelope of step {self.step} holds {self.size} bytes, where {range_[0]} to {range_[1]} are due"
            )
        return self.size

    def message(self, body: bytes) -> Message:
        """The message with its body. RefusedError where that is another one, or tells no reason that there is."""
        if len(body) != self.size or hashlib.sha256(body).digest() != self.digest:
            raise RefusedError(
                f"the body of an envelope of step {self.step} is not the one that its head names",
                "It was cut off or altered on its way.",
            )
        if self.step == "discard" and body not in _REASONS:
            raise RefusedError("a buffer is discarded for a reason that there is not", f"One is {', '.join(REASONS)}.")
        where = (self.sender, self.receiver, self.round, self.buffer)
        return Message(self.step, *where, self.terms, body, self.signature)


def envelope(message: Message) -> bytes:
    """A message in bytes."""
    return message.head + message.signature + message.body


def parsed(content: bytes) -> Message:
    """The message of an envelope, whose length its reader has bounded. RefusedError for what is none.

    Neither signature nor terms are looked at.
    """
    return Front.of(content).message(content[FRONT_BYTES:])


def terms_message(terms: Terms) -> Message:
    """What the server sends first: all others sign under the digest of it."""
    return Message.unsigned("terms", terms.body, terms)


def terms_of(message: Message) -> Terms:
    """Terms that the server sent. RefusedError for what is none."""
    if len(message.body) > TERMS_BYTES:
        raise RefusedError(f"terms have {len(message.body)} bytes, above {TERMS_BYTES}")
    terms = Terms.of(message.body)
    message.require("terms", 0, TERMS_BYTES, terms)
    return terms


def limits(terms: Agreed) -> Mapping[Step, Range]:
    """Step -> bytes of a body, least and most; no other step belongs to such terms."""
    if isinstance(terms, Lot):
        return {"lot": (DIGEST_BYTES, DIGEST_BYTES), "columns": (COLUMN_BYTES, COLUMN_BYTES * MOST_COLUMNS)}
    if not isinstance(terms, Terms):
        raise TypeError(f"{terms!r} are no terms")
    common: dict[Step, Range] = {"terms": (0, TERMS_BYTES), "discard": _REASON_BYTES}
    if terms.suite == "plain":
        return common | {"send": _exactly(VALUE_BYTES * terms.columns), "opened": receipt_bytes(terms)}
    return common | (_of_masks(terms) if terms.suite == "mask" else _of_ciphertexts(terms))


def _of_masks(terms: Terms) -> dict[Step, Range]:
    few, many = masked.threshold(terms), len(terms.members)
    return {
        "announce": _exactly(masked.KEYS_BYTES),
        "share": (masked.dealt_bytes(few), masked.dealt_bytes(many)),
        "send": _exactly(masked.row_bytes(terms)),
        "came": (ID_BYTES, many * ID_BYTES),
        "unmask": (DIGEST_BYTES + few * shamir.SHARE_BYTES, DIGEST_BYTES + many * shamir.SHARE_BYTES),
        "opened": receipt_bytes(terms),
    }


def _of_ciphertexts(terms: Terms) -> dict[Step, Range]:
    announce: dict[Step, Range] = {"announce": _exactly(pairs.PUBLIC_BYTES)} if has_masks(terms) else {}
    return announce | {
        "context": (1, bfv.KEYLESS_BYTES),
        "handout": (2 * KEY_BYTES, 2 * KEY_BYTES + bfv.PUBLIC_BYTES),
        "send": (DIGEST_BYTES, DIGEST_BYTES + framed_bytes(terms)),
        "total": (ID_BYTES, total_bytes(terms)),
        "witness": _exactly(DIGEST_BYTES),
        "receipt": receipt_bytes(terms),
    }


_REASONS = frozenset(reason.encode() for reason in REASONS)
_REASON_BYTES = min(map(len, _REASONS)), max(map(len, _REASONS))


def _exactly(size: int) -> Range:
    return size, size


_WORDS: Mapping[bytes, Step] = {step.encode().ljust(8): step for step in get_args(Step)}
