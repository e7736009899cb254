"""The suites ``bfv`` and ``bfv+mask``: sums under a key that the server does not have.

1. *announce* (``bfv+mask`` alone): each client announces an X25519 key.
2. *send*: it packs its row, adds a check, in ``bfv+mask`` adds masks that cancel in the sum of all, and encrypts.
3. The server adds ciphertexts. The witness adds them again, and signs what came of it: the bytes are the same.
4. The key holder opens what the witness signed, once, if the checks fit, and drops its key whatever comes of it.

Server and witness have a context without keys. In ``bfv`` the key holder could open one client's ciphertext if it got
one, so it must not collude with whoever carries them. In ``bfv+mask`` every smaller sum is noise to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fuaudit.secure import bfv, pairs
from fuaudit.secure.adder import Adder, adder_of
from fuaudit.secure.messages import (
    DIGEST_BYTES,
    ID_BYTES,
    Identity,
    Message,
    by_sender,
    ids_bytes,
    ids_of,
    list_digest,
    require_distinct,
    require_enough,
    require_one_list,
)
from fuaudit.secure.names import HOLDER, WITNESS, least_rows_of
from fuaudit.secure.pairs import PairKey
from fuaudit.secure.receipts import Receipt
from fuaudit.secure.refusal import RefusedError, forgetting
from fuaudit.secure.slots import checks, offset_key, packed, unpacked, weight_key
from fuaudit.secure.streams import KEY_BYTES, Ints, Party, fresh
from fuaudit.secure.terms import CHECKS, SLOTS, Once, Opened, Terms

NO_LIST = bytes(DIGEST_BYTES)
"""What a client of ``bfv`` says of a list of keys: it saw none."""

LENGTH_BYTES = 4


def has_masks(terms: Terms) -> bool:
    """Whether masks lie inside the ciphertexts."""
    return terms.suite == "bfv+mask"


@dataclass(frozen=True)
class Handout:
    """What the key holder gives one client, on a way that nobody else sees.

    Attributes:
        terms: their digest.
        public: the public key.
        weights: the key of weights of checks, 32 bytes; all clients have it.
        offsets: the key of its own offsets, 32 bytes.
    """

    terms: bytes
    public: bytes = field(repr=False)
    weights: bytes = field(repr=False)
    offsets: bytes = field(repr=False)

    def body(self) -> bytes:
        """All of it but the digest of the terms, in bytes."""
        return self.weights + self.offsets + self.public

    @classmethod
    def of(cls, message: Message, client: int, terms: Terms) -> Handout:
        """The inverse, for the client that it is for."""
        body = message.require("handout", 2 * KEY_BYTES, 2 * KEY_BYTES + bfv.PUBLIC_BYTES, terms)
        if message.receiver != client:
            raise RefusedError(f"client {client} was given what the key holder made for client {message.receiver}")
        return cls(terms.digest, body[2 * KEY_BYTES :], body[:KEY_BYTES], body[KEY_BYTES : 2 * KEY_BYTES])


@dataclass(frozen=True)
class Total:
    """The sum of some clients' ciphertexts: nothing but bytes and ids."""

    members: tuple[int, ...]
    ciphertexts: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """All of it in bytes: the number of members, their ids, and the ciphertexts, each behind its length."""
        return ids_bytes((len(self.members), *self.members)) + framed(self.ciphertexts)

    @classmethod
    def of(cls, message: Message, terms: Terms) -> Total:
        """The inverse. RefusedError for what is no sum of this buffer."""
        due = terms.layout.ciphertexts(terms.columns)
        body = message.require("total", ID_BYTES, total_bytes(terms), terms)
        count = int.from_bytes(body[:ID_BYTES], "little")
        start = ID_BYTES * (1 + min(count, len(terms.members)))
        members, parts = ids_of(body[ID_BYTES:start]), unframed(body[start:])
        if parts is None or len(parts) != due or len(members) != count:
            raise RefusedError("what the server sent as a sum of ciphertexts is none")
        return cls(members, parts)

    def said(self, terms: Terms) -> bytes:
        """Its digest, which the witness signs: 32 bytes."""
        hasher = hashlib.sha256(b"fuaudit secure total" + terms.digest + ids_bytes(self.members))
        for ciphertext in self.ciphertexts:
            hasher.update(hashlib.sha256(ciphertext).digest())
        return hasher.digest()


class Client(Party):
    """One client. It holds the public key, and the keys of its checks; ``once`` is its memory of the run.

    It sends its row once a round. Of two attempts with other lists a key holder that colludes could open both sums, and
    their difference is a row.
    """

    def __init__(
        self, terms: Terms, number: int, values: Ints, identity: Identity, handout: Handout, once: Once
    ) -> None:
        super().__init__("announce" if has_masks(terms) else "send")
        terms.require_values(values, number)
        if handout.terms != terms.digest:
            raise RefusedError(f"client {number} and the key holder did not agree on the same terms")
        self.terms, self.number, self._identity, self._once = terms, number, identity, once
        self._vault.put("row", values + terms.largest)
        self._vault.put("handout", handout)

    @forgetting
    def announce(self) -> Message:
        """A public key, made now."""
        self._turn("announce", then="send")
        key = PairKey()
        self._vault.put("key", key)
        return Message.signed("announce", self.number, key.public, self.terms, self._identity)

    @forgetting
    def send(self, announced: Sequence[Message] = ()) -> Message:
        """The encrypted row; its masks are with all who announced a key."""
        self._turn("send", then="nothing")
        layout, handout = self.terms.layout, self._vault.take("handout", Handout)
        slots = packed(self._vault.take("row", np.ndarray), layout)
        own = checks(slots, handout.weights, [handout.offsets], self.terms)
        slots, agreed = np.concatenate([slots, own[:, None]], axis=1), NO_LIST
        if has_masks(self.terms):
            keys, agreed = announced_keys(announced, self.terms), list_digest(announced)
            masks = self._masks(keys, agreed, slots.shape)
            slots = (slots + masks) % layout.ring.modulus
        self._once.require_first(self.terms.round)
        parts = bfv.encrypted(handout.public, slots, layout.ring)
        return Message.signed("send", self.number, agreed + framed(parts), self.terms, self._identity)

    def _masks(self, keys: Mapping[int, bytes], agreed: bytes, shape: tuple[int, ...]) -> Ints:
        own = self._vault.take("key", PairKey)
        if keys.get(self.number) != own.public:
            raise RefusedError(f"client {self.number} is not in the list of keys with what it announced")
        peers = {peer: public for peer, public in keys.items() if peer != self.number}
        numbers = pairs.modular(self.terms.layout.ring.modulus, shape)
        return pairs.pair_masks(own, self.number, peers, agreed, numbers)


def announced_keys(announced: Sequence[Message], terms: Terms) -> dict[int, bytes]:
    """Client -> its public key, ascending. RefusedError for what is wrong, or for less than half of the buffer.

    More than half: two groups that were shown two lists cannot both go on.
    """
    require_distinct(announced)
    size = pairs.PUBLIC_BYTES
    keys = {message.sender: message.require("announce", size, size, terms) for message in announced}
    require_enough(keys, terms, least_rows_of(terms.suite, len(terms.members)))
    return dict(sorted(keys.items()))


def ciphertexts_of(message: Message, terms: Terms) -> tuple[bytes, tuple[bytes, ...]]:
    """The list that a client saw, and its ciphertexts. RefusedError for what is wrong with its message."""
    due = terms.layout.ciphertexts(terms.columns)
    body = message.require("send", DIGEST_BYTES, DIGEST_BYTES + framed_bytes(terms), terms)
    parts = unframed(body[DIGEST_BYTES:])
    if parts is None or len(parts) != due:
        raise RefusedError(f"client {message.sender} sent no {due} ciphertexts", blamed=message.sender)
    return body[:DIGEST_BYTES], parts


def framed(parts: Sequence[bytes]) -> bytes:
    """Ciphertexts one after the other, each behind its length of 4 bytes."""
    return b"".join(len(part).to_bytes(LENGTH_BYTES, "little") + part for part in parts)


def unframed(content: bytes) -> tuple[bytes, ...] | None:
    """The inverse; None for bytes that are not so framed."""
    at, parts = 0, []
    while at < len(content):
        end = at + LENGTH_BYTES + int.from_bytes(content[at : at + LENGTH_BYTES], "little")
        parts.append(content[at + LENGTH_BYTES : end])
        at = end
    return tuple(parts) if at == len(content) else None


def framed_bytes(terms: Terms) -> int:
    """Of the ciphertexts of a row, framed, at most."""
    return terms.layout.ciphertexts(terms.columns) * (LENGTH_BYTES + bfv.CIPHERTEXT_BYTES)


def total_bytes(terms: Terms) -> int:
    """Of a sum of ciphertexts, at most."""
    return ID_BYTES * (1 + len(terms.members)) + framed_bytes(terms)


Summands = Mapping[int, tuple[bytes, ...]]
"""Client -> its ciphertexts, ascending."""


def summands_of(sent: Sequence[Message], announced: Sequence[Message], terms: Terms) -> Summands:
    """The ciphertexts of what came, each client once, not yet parsed. RefusedError for what is wrong or too little.

    With masks everybody who announced a key has to come: masks of the others would be left in the sum.
    """
    require_distinct(sent)
    masked = has_masks(terms)
    due, due_list = (announced_keys(announced, terms), list_digest(announced)) if masked else ({}, NO_LIST)
    bodies = {client: ciphertexts_of(message, terms) for client, message in by_sender(sent).items()}
    require_enough(bodies, terms)
    for client, (agreed, _) in bodies.items():
        require_one_list(client, agreed, due_list)
    if masked and (gone := sorted(due.keys() ^ bodies.keys())):
        raise RefusedError(
            f"client {gone[0]} announced a key and sent nothing, or the other way round: masks would not cancel",
            "The buffer is discarded, and nothing of it was opened.",
        )
    summands = {client: parts for client, (_, parts) in bodies.items()}
    ciphertexts = [part for parts in summands.values() for part in parts]
    if len(set(ciphertexts)) < len(ciphertexts):
        raise RefusedError(
            "a ciphertext came twice", "One client sent what another one sent, and who copied it cannot be told."
        )
    return summands


def total_of(sent: Sequence[Message], announced: Sequence[Message], adder: Adder, terms: Terms) -> Total:
    """The sum of what came, added elsewhere. RefusedError as :func:`summands_of`, and for what is no ciphertext."""
    summands = summands_of(sent, announced, terms)
    return Total(tuple(summands), adder.sums(summands))


class Server:
    """The server: it has ciphertexts added, and has no key at all."""

    def __init__(self, terms: Terms, keyless: bytes) -> None:
        self.terms, self._adder = terms, adder_of("server", keyless, terms.layout.ring)

    @forgetting
    def total(self, sent: Sequence[Message], announced: Sequence[Message] = ()) -> Total:
        """The sum of what came."""
        return total_of(sent, announced, self._adder, self.terms)


class Witness:
    """The witness: it has them added again, and signs one sum for each buffer of a round. It has no key that opens."""

    def __init__(self, terms: Terms, keyless: bytes, identity: Identity, once: Once) -> None:
        self.terms, self._identity, self._once = terms, identity, once
        self._adder = adder_of("witness", keyless, terms.layout.ring)

    @forgetting
    def signature(self, sent: Sequence[Message], total: Total, announced: Sequence[Message] = ()) -> Message:
        """Its signed digest of the server's sum, if that is the sum of the messages of these clients, each once."""
        if total_of(sent, announced, self._adder, self.terms) != total:
            raise RefusedError("the server's sum is not that of the clients' messages", "Do not open it.")
        self._once.require_first(self.terms.round, self.terms.buffer)
        return Message.signed("witness", WITNESS, total.said(self.terms), self.terms, self._identity)


class KeyHolder(Party):
    """The key holder: a key for one opening, and nobody's ciphertext but the sum."""

    def __init__(self, terms: Terms, identity: Identity, once: Once) -> None:
        super().__init__("open")
        self.terms, self._identity, self._once = terms, identity, once
        bfv.require_margin(terms.layout.ring)
        self._vault.put("keys", bfv.new_keys(terms.layout.ring))
        self._vault.put("check", fresh())

    def handout(self, client: int) -> Handout:
        """For one client."""
        keys, check = self._vault.get("keys", bfv.Keys), self._vault.get("check", bytes)
        return Handout(self.terms.digest, keys.public, weight_key(check), offset_key(check, client))

    def handout_message(self, client: int) -> Message:
        """A handout, signed. It is for the eyes of this client, so it is in no transcript."""
        return Message.signed(
            "handout", HOLDER, self.handout(client).body(), self.terms, self._identity, receiver=client
        )

    def keyless(self) -> bytes:
        """For server and witness, 86 bytes."""
        return bfv.keyless_part(self.terms.layout.ring)

    def context(self) -> Message:
        """The context without keys, signed."""
        return Message.signed("context", HOLDER, self.keyless(), self.terms, self._identity)

    @forgetting
    def receipt(self, total: Total, signature: Message) -> Message:
        """What it opened, signed: see :meth:`opened`."""
        opened = self.opened(total, signature)
        receipt = Receipt(total.said(self.terms), opened.members, opened.sums)
        return Message.signed("receipt", HOLDER, receipt.body(), self.terms, self._identity)

    @forgetting
    def opened(self, total: Total, signature: Message) -> Opened:
        """The sum; the key is gone afterwards.

        Raises:
            RefusedError: the witness did not sign it, too few rows, or a check does not fit. Nothing is told then.
        """
        self._turn("open", then="nothing")
        try:
            return self._opened(total, signature)
        finally:
            self.end()

    def _opened(self, total: Total, signature: Message) -> Opened:
        terms, ring = self.terms, self.terms.layout.ring
        if signature.require("witness", DIGEST_BYTES, DIGEST_BYTES, terms) != total.said(terms):
            raise RefusedError("the witness did not sign this sum")
        if not set(total.members) <= set(terms.members) or len(set(total.members)) != len(total.members):
            raise RefusedError(f"a sum of {total.members} is none of this buffer")
        require_enough(total.members, terms)
        self._once.require_first(terms.round, terms.buffer)
        if len(total.ciphertexts) != terms.layout.ciphertexts(terms.columns):
            raise RefusedError("a sum does not have as many ciphertexts as its rows")
        slots = bfv.decrypted(self._vault.get("keys", bfv.Keys), total.ciphertexts, ring)
        values, own = slots[:, : SLOTS - CHECKS], slots[:, SLOTS - CHECKS]
        check = self._vault.get("check", bytes)
        due = checks(values, weight_key(check), (offset_key(check, one) for one in total.members), terms)
        sums = unpacked(values, terms.layout, terms.columns)
        if (own != due).any() or (sums > 2 * terms.largest * len(total.members)).any():
            raise RefusedError(
                "a sum does not fit its checks",
                "It is not of the rows of these clients, each once. Who made it so cannot be told; nothing was opened.",
            )
        return Opened(total.members, sums - terms.largest * len(total.members))
