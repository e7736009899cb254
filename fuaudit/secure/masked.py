"""The suite ``mask``: sums without a key holder (Bonawitz and others, "Practical Secure Aggregation", CCS 2017).

1. *announce*: each client announces two X25519 keys, one for messages and one for masks.
2. *share*: it deals shares of the second key and of a seed of its own to all who announced.
3. *send*: it adds to its row one mask of each pair, and one of the seed. Both always, so that a late row stays hidden
   after the masks of its pairs were told.
4. *unmask*: of each client either a share of the seed or one of the key is told, never both, and once a round.

Rows are words modulo 2**32. More than two thirds of the buffer are needed in every step. So two groups of clients who
were shown two lists cannot both go on, and a server with less than a third of the clients does not get both shares of
anybody. The digest of the list is in every mask: rows of clients who were shown two lists add up to noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fuaudit.secure import pairs, shamir
from fuaudit.secure.messages import (
    DIGEST_BYTES,
    ID_BYTES,
    Identity,
    Message,
    Step,
    by_sender,
    ids_bytes,
    ids_of,
    list_digest,
    require_distinct,
    require_enough,
    require_one_list,
)
from fuaudit.secure.names import least_rows_of
from fuaudit.secure.pairs import PairKey
from fuaudit.secure.refusal import RefusedError, forgetting
from fuaudit.secure.slots import weighted
from fuaudit.secure.streams import Ints, Party, below, derived, fresh, stream
from fuaudit.secure.terms import Once, Opened, Terms

KEYS_BYTES = 2 * pairs.PUBLIC_BYTES
DEALT_BYTES = 2 * shamir.SHARE_BYTES
SEALED_BYTES = DEALT_BYTES + 16
NONCE = bytes(12)
"""Each key closes one message."""

KINDS = (b"seed", b"key")
RING = (1 << 32) - 1
PRIME = 134217689
"""The largest prime below 2**27: the sum of 32 numbers below it is below 2**32."""

WORDS = 2
"""How many check words a row has: a sum that is not that of rows passes with probability 2**-53."""


def threshold(terms: Terms) -> int:
    """How many clients must answer at every step: more than two thirds of the buffer."""
    return least_rows_of("mask", len(terms.members))


@dataclass(frozen=True)
class Dealt:
    """The body of a message of step *share*.

    Attributes:
        agreed: digest of the announced keys that the dealer was shown.
        seed: SHA-256 of the seed.
        commitments: holder -> SHA-256 of its shares of seed and key.
        sealed: holder -> both shares, for its eyes; the dealer's own is not sent.
    """

    agreed: bytes
    seed: bytes
    commitments: Mapping[int, tuple[bytes, bytes]]
    sealed: Mapping[int, bytes]

    def body(self) -> bytes:
        """All of it in bytes, holders ascending."""
        told = [part for _, parts in sorted(self.commitments.items()) for part in parts]
        return b"".join([self.agreed, self.seed, *told, *(sealed for _, sealed in sorted(self.sealed.items()))])

    @classmethod
    def of(cls, message: Message, holders: Sequence[int], terms: Terms) -> Dealt:
        """The inverse, for a message with shares for these holders, ascending."""
        told, others = 2 * DIGEST_BYTES * (1 + len(holders)), [one for one in holders if one != message.sender]
        size = dealt_bytes(len(holders))
        body = message.require("share", size, size, terms)
        agreed, seed, *rest = (body[at : at + DIGEST_BYTES] for at in range(0, told, DIGEST_BYTES))
        sealed = (body[at : at + SEALED_BYTES] for at in range(told, size, SEALED_BYTES))
        commitments = dict(zip(holders, zip(rest[::2], rest[1::2], strict=True), strict=True))
        return cls(agreed, seed, commitments, dict(zip(others, sealed, strict=True)))


def dealt_bytes(holders: int) -> int:
    """Of shares for so many holders, of whom one is their dealer."""
    return 2 * DIGEST_BYTES * (1 + holders) + SEALED_BYTES * (holders - 1)


def row_bytes(terms: Terms) -> int:
    """Of a masked row with its check words and the digest of a list."""
    return DIGEST_BYTES + 4 * (terms.columns + WORDS)


def came_of(message: Message, terms: Terms) -> tuple[int, ...]:
    """Whose rows came, as the server says. RefusedError for what is no list of clients."""
    body = message.require("came", ID_BYTES, ID_BYTES * len(terms.members), terms)
    came = ids_of(body)
    if len(body) % ID_BYTES or list(came) != sorted(set(came)):
        raise RefusedError("the server's list of who sent a row is none: it has each client once, ascending")
    return came


def commitment(share: bytes, what: bytes, dealer: int, holder: int, terms: Terms) -> bytes:
    """SHA-256 of a share and of whose it is; a share is a uniform number, so this tells nothing of it."""
    names = dealer.to_bytes(8, "little") + holder.to_bytes(8, "little")
    return hashlib.sha256(b"fuaudit secure share " + what + terms.digest + names + share).digest()


def committed(shares: tuple[bytes, bytes], dealer: int, holder: int, terms: Terms) -> tuple[bytes, bytes]:
    """The commitments to shares of seed and key."""
    of_seed, of_key = (commitment(s, kind, dealer, holder, terms) for s, kind in zip(shares, KINDS, strict=True))
    return of_seed, of_key


def announced_keys(announced: Sequence[Message], terms: Terms) -> dict[int, bytes]:
    """Client -> its two public keys, ascending, of who announced them. RefusedError for what is wrong or too little."""
    require_distinct(announced)
    keys = {m.sender: m.require("announce", KEYS_BYTES, KEYS_BYTES, terms) for m in announced}
    require_enough(keys, terms, threshold(terms))
    return dict(sorted(keys.items()))


def words_of(key: bytes, count: int) -> Ints:
    """Uniform words of 32 bits, ``(count,)``."""
    return np.frombuffer(stream(key, 4 * count), dtype="<u4").astype(np.int64)


def check_words(values: Ints, agreed: bytes, terms: Terms) -> Ints:
    """The check words ``(2,)`` of a row, or of a sum of rows, of values from 0 on; weights are public."""
    weights = below(PRIME, derived(terms.digest, b"public weights", agreed), WORDS * len(values))
    return weighted(values, weights.reshape(WORDS, -1), PRIME)


class MaskClient(Party):
    """One client. Each step is taken once, in order; ``once`` is its memory of the run."""

    def __init__(self, terms: Terms, number: int, values: Ints, identity: Identity, once: Once) -> None:
        super().__init__("announce")
        terms.require_values(values, number)
        self.terms, self.number, self._identity, self._once = terms, number, identity, once
        self._vault.put("row", values + terms.largest)

    def _signed(self, step: Step, body: bytes) -> Message:
        return Message.signed(step, self.number, body, self.terms, self._identity)

    @forgetting
    def announce(self) -> Message:
        """Two public keys, made now."""
        self._turn("announce", then="share")
        channel, mask = PairKey(), PairKey()
        self._vault.put("channel", channel)
        self._vault.put("mask", mask)
        return self._signed("announce", channel.public + mask.public)

    @forgetting
    def share(self, announced: Sequence[Message]) -> Message:
        """Shares of seed and mask key, for all who announced."""
        self._turn("share", then="send")
        keys, agreed = announced_keys(announced, self.terms), list_digest(announced)
        channel, mask = self._vault.get("channel", PairKey), self._vault.get("mask", PairKey)
        if keys.get(self.number) != channel.public + mask.public:
            raise RefusedError(f"client {self.number} is not in the list of keys with what it announced")
        seed, few = fresh(), threshold(self.terms)
        of_seed, of_key = (shamir.shares(secret, few, len(keys)) for secret in (seed, mask.private))
        parts = dict(zip(keys, zip(of_seed, of_key, strict=True), strict=True))
        others = [peer for peer in keys if peer != self.number]
        held = {"seed": seed, "shares": {self.number: parts[self.number]}, "keys": keys, "agreed": agreed}
        for name, value in held.items():
            self._vault.put(name, value)
        dealt = Dealt(
            agreed,
            hashlib.sha256(seed).digest(),
            {holder: committed(part, self.number, holder, self.terms) for holder, part in parts.items()},
            {peer: self._box(peer, self.number, peer).encrypt(NONCE, b"".join(parts[peer]), None) for peer in others},
        )
        return self._signed("share", dealt.body())

    def _box(self, peer: int, dealer: int, holder: int) -> ChaCha20Poly1305:
        """What closes and opens the shares of a dealer for a holder, of whom one is this client and one the peer."""
        public = self._vault.get("keys", dict)[peer][: pairs.PUBLIC_BYTES]
        secret = self._vault.get("channel", PairKey).shared(peer, public)
        key = pairs.pair_key(secret, b"shares", dealer, holder, self._vault.get("agreed", bytes))
        return ChaCha20Poly1305(key)

    @forgetting
    def send(self, shared: Sequence[Message]) -> Message:
        """The masked row; the pairs are those who dealt shares."""
        self._turn("send", then="unmask")
        keys = self._vault.get("keys", dict)
        dealt = dealt_by(shared, keys, self._vault.get("agreed", bytes), self.terms)
        if self.number not in dealt:
            raise RefusedError(f"client {self.number} is not in the list of shares")
        shares = self._vault.get("shares", dict)
        for peer, their in dealt.items():
            if peer != self.number:
                shares[peer] = self._share_of(peer, their)
        agreed = list_digest(shared)
        row = self._vault.take("row", np.ndarray)
        values = np.concatenate([row, check_words(row, agreed, self.terms)])
        peers = {peer: keys[peer][pairs.PUBLIC_BYTES :] for peer in dealt if peer != self.number}
        own, numbers = self._vault.take("mask", PairKey), partial(words_of, count=len(values))
        masks = pairs.pair_masks(own, self.number, peers, agreed, numbers)
        masked = values + masks + own_mask(self._vault.take("seed", bytes), agreed, len(values))
        self._vault.put("dealers", tuple(dealt))
        return self._signed("send", agreed + (masked & RING).astype("<u4").tobytes())

    def _share_of(self, peer: int, dealt: Dealt) -> tuple[bytes, bytes]:
        """The shares that a peer dealt to this client; they are what the peer committed to."""
        try:
            opened = self._box(peer, peer, self.number).decrypt(NONCE, dealt.sealed[self.number], None)
        except InvalidTag:
            opened = b""
        part = opened[: shamir.SHARE_BYTES], opened[shamir.SHARE_BYTES :]
        if committed(part, peer, self.number, self.terms) != dealt.commitments[self.number]:
            raise RefusedError(
                f"client {peer} dealt shares to client {self.number} that are not what it committed to",
                "That is the word of the client that was to have them.",
                blamed=peer,
            )
        return part

    @forgetting
    def unmask(self, survivors: Sequence[int]) -> Message:
        """One share of each dealer: of the seed where its row came, of the mask key where it did not."""
        self._turn("unmask", then="nothing")
        dealers, came = self._vault.get("dealers", tuple), tuple(sorted(set(survivors)))
        if self.number not in came or not set(came) <= set(dealers):
            raise RefusedError(f"client {self.number} is asked to unmask a sum of others: {came}")
        require_enough(came, self.terms, threshold(self.terms))
        self._once.require_first(self.terms.round)
        shares = self._vault.take("shares", dict)
        parts = [shares[dealer][0 if dealer in came else 1] for dealer in dealers]
        return self._signed("unmask", names_digest(came) + b"".join(parts))


def dealt_by(shared: Sequence[Message], holders: Mapping[int, bytes], agreed: bytes, terms: Terms) -> dict[int, Dealt]:
    """Client -> what it dealt, ascending. RefusedError for what is wrong, too little or under another list."""
    require_distinct(shared)
    if strange := {message.sender for message in shared} - holders.keys():
        raise RefusedError(f"shares came from client {min(strange)}, which announced no keys")
    dealt = {message.sender: Dealt.of(message, sorted(holders), terms) for message in shared}
    for client, one in dealt.items():
        require_one_list(client, one.agreed, agreed)
    require_enough(dealt, terms, threshold(terms))
    return dict(sorted(dealt.items()))


def names_digest(clients: Sequence[int]) -> bytes:
    """SHA-256 of ids, 32 bytes."""
    return hashlib.sha256(ids_bytes(clients)).digest()


def own_mask(seed: bytes, agreed: bytes, count: int) -> Ints:
    """The mask of a client's own seed, ``(count,)``."""
    return words_of(derived(seed, b"own mask", agreed), count)


class MaskServer:
    """The server: it holds no secret before the last step, and then seeds and keys of masks that it takes away."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    @forgetting
    def opened(
        self,
        announced: Sequence[Message],
        shared: Sequence[Message],
        sent: Sequence[Message],
        unmasked: Sequence[Message],
    ) -> Opened:
        """The sum of the rows that came.

        Raises:
            RefusedError: what came is wrong or too little.
        """
        return self._checked(*self._unmasked(announced, shared, sent, unmasked))

    def has_enough(
        self,
        announced: Sequence[Message],
        shared: Sequence[Message],
        sent: Sequence[Message],
        unmasked: Sequence[Message],
    ) -> bool:
        """Whether masks can be taken away from what came, be it a sum of rows or not.

        Raises:
            RefusedError: this machine broke off, so nobody knows.
        """
        try:
            self._unmasked(announced, shared, sent, unmasked)
        except RefusedError as error:
            if error.broke:
                raise
            return False
        return True

    @forgetting
    def _unmasked(
        self,
        announced: Sequence[Message],
        shared: Sequence[Message],
        sent: Sequence[Message],
        unmasked: Sequence[Message],
    ) -> tuple[Ints, tuple[int, ...], bytes, tuple[int, ...]]:
        """The sum without masks ``(c + 2,)``, of whom, the list that they saw, and who lied."""
        keys = announced_keys(announced, self.terms)
        dealt = dealt_by(shared, keys, list_digest(announced), self.terms)
        agreed, rows = list_digest(shared), self._rows(sent, dealt)
        for client, (their, _) in rows.items():
            require_one_list(client, their, agreed)
        require_enough(rows, self.terms, threshold(self.terms))
        places = {client: place for place, client in enumerate(keys)}
        told, liars = self._told(unmasked, dealt, tuple(rows), places)
        total: Ints = np.sum([row for _, row in rows.values()], axis=0, dtype=np.int64)
        for dealer, one in dealt.items():
            secret = shamir.reconstructed(told[dealer])
            if dealer in rows:
                total = total - own_mask(_seed(secret, dealer, one), agreed, len(total))
            else:
                peers = {peer: keys[peer][pairs.PUBLIC_BYTES :] for peer in rows}
                mask_key = _mask_key(secret, dealer, keys[dealer][pairs.PUBLIC_BYTES :])
                numbers = partial(words_of, count=len(total))
                total = total + pairs.pair_masks(mask_key, dealer, peers, agreed, numbers)
        return total & RING, tuple(rows), agreed, liars

    def _rows(self, sent: Sequence[Message], dealt: Mapping[int, Dealt]) -> dict[int, tuple[bytes, Ints]]:
        """Client -> the list that it saw, and its masked row ``(c + 2,)``; ascending."""
        require_distinct(sent)
        if strange := {message.sender for message in sent} - dealt.keys():
            raise RefusedError(f"a row came from client {min(strange)}, which dealt no shares")
        size, rows = row_bytes(self.terms), {}
        for client, message in by_sender(sent).items():
            body = message.require("send", size, size, self.terms)
            rows[client] = (body[:DIGEST_BYTES], np.frombuffer(body[DIGEST_BYTES:], dtype="<u4").astype(np.int64))
        return rows

    def _told(
        self,
        unmasked: Sequence[Message],
        dealt: Mapping[int, Dealt],
        came: tuple[int, ...],
        places: Mapping[int, int],
    ) -> tuple[dict[int, dict[int, bytes]], tuple[int, ...]]:
        """Dealer -> shares by place, as many as are needed; and holders whose shares are not what was dealt to them."""
        require_distinct(unmasked)
        size = DIGEST_BYTES + shamir.SHARE_BYTES * len(dealt)
        told: dict[int, dict[int, bytes]] = {dealer: {} for dealer in dealt}
        liars = set()
        for holder, message in by_sender(unmasked).items():
            body = message.require("unmask", size, size, self.terms)
            if holder not in came or body[:DIGEST_BYTES] != names_digest(came):
                raise RefusedError(f"client {holder} unmasks another sum than that of {came}")
            for number, (dealer, one) in enumerate(dealt.items()):
                at = DIGEST_BYTES + shamir.SHARE_BYTES * number
                share, which = body[at : at + shamir.SHARE_BYTES], 0 if dealer in came else 1
                due = one.commitments[holder][which]
                if commitment(share, KINDS[which], dealer, holder, self.terms) == due:
                    told[dealer][places[holder]] = share
                else:
                    liars.add(holder)
        few = threshold(self.terms)
        if min(map(len, told.values())) < few:
            raise RefusedError(
                f"too few right shares came: {few} of each client are needed",
                "The buffer is discarded, and not tried again: shares were told already.",
                blamed=min(liars, default=None),
            )
        return {dealer: dict(list(parts.items())[:few]) for dealer, parts in told.items()}, tuple(sorted(liars))

    def _checked(self, total: Ints, came: tuple[int, ...], agreed: bytes, liars: tuple[int, ...]) -> Opened:
        """The sum without what was added to make rows positive, if it is one of rows."""
        sums, words = total[: self.terms.columns], total[self.terms.columns :]
        most = 2 * self.terms.largest * len(came)
        if (check_words(sums, agreed, self.terms) != words % PRIME).any() or (sums > most).any():
            raise RefusedError(
                "the masked rows do not add up to a sum of rows",
                "A client sent what is no row. Which one cannot be told. The buffer is discarded, and not tried again.",
            )
        return Opened(came, sums - self.terms.largest * len(came), liars)


def _seed(secret: bytes | None, dealer: int, dealt: Dealt) -> bytes:
    """The seed of a dealer, if it is the one of which it told the digest."""
    if secret is None or hashlib.sha256(secret).digest() != dealt.seed:
        raise RefusedError(f"the shares that client {dealer} dealt do not give its seed", blamed=dealer)
    return secret


def _mask_key(secret: bytes | None, dealer: int, public: bytes) -> PairKey:
    """The mask key of a dealer, if it is the one that it announced."""
    key = None if secret is None else PairKey(secret)
    if key is None or key.public != public:
        raise RefusedError(f"the shares that client {dealer} dealt do not give its mask key", blamed=dealer)
    return key
