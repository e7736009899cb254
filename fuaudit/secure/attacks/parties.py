"""The parties of one opening, each by itself, for whoever stands between them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

import numpy as np

from fuaudit.secure import bfv
from fuaudit.secure.encrypted import Client, KeyHolder, Server, Total, Witness, has_masks
from fuaudit.secure.masked import MaskClient, MaskServer
from fuaudit.secure.messages import Identity, Message
from fuaudit.secure.names import WITNESS
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import LIBRARY, Once, Opened, Terms, coordinates_digest, new_attempt


class Parties:
    """Clients 0, 1, ... of a buffer, and in ``bfv`` and ``bfv+mask`` a server, a witness and a key holder.

    As a context manager they hold no secret after the block.
    """

    def __init__(
        self,
        suite: str,
        rows: Ints,
        bits: int = 12,
        most: int = 8,
        smallest: int | None = None,
        at: tuple[int, int] = (1, 0),
    ) -> None:
        """Rows are ``(s, c)``; ``at`` is the numbers of round and buffer."""
        self.rows, count, self._ends = rows, len(rows), ExitStack()
        self.identities = [self._ends.enter_context(Identity()) for _ in rows]
        self.witness_key, self.holder_key = (self._ends.enter_context(Identity()) for _ in range(2))
        keys, columns = tuple(one.public for one in self.identities), rows.shape[1]
        others = () if suite == "mask" else (self.witness_key.public, self.holder_key.public)
        self.terms = Terms(
            *(suite, tuple(range(count)), columns, bits, most, smallest or count, keys, LIBRARY, *at, new_attempt()),
            *(coordinates_digest(np.arange(columns)), *others),
        )
        self.books = [Once() for _ in rows]
        if suite == "mask":
            self.mask_clients = [self.mask_client(number) for number in range(count)]
            return
        self.holder = self._ends.enter_context(KeyHolder(self.terms, self.holder_key, Once()))
        self.clients = [self.client(number) for number in range(count)]
        self.server = Server(self.terms, self.holder.keyless())
        self.witness = Witness(self.terms, self.holder.keyless(), self.witness_key, Once())

    def mask_client(self, number: int, terms: Terms | None = None) -> MaskClient:
        """A client of ``mask``, perhaps of other terms."""
        own = MaskClient(terms or self.terms, number, self.rows[number], self.identities[number], self.books[number])
        return self._ends.enter_context(own)

    def client(self, number: int, terms: Terms | None = None) -> Client:
        """A client of ``bfv`` or ``bfv+mask``, perhaps of other terms."""
        handout, identity = self.holder.handout(number), self.identities[number]
        made = Client(terms or self.terms, number, self.rows[number], identity, handout, self.books[number])
        return self._ends.enter_context(made)

    def announced(self) -> list[Message]:
        """The keys that clients announce; none in ``bfv``."""
        if self.terms.suite == "mask":
            return [one.announce() for one in self.mask_clients]
        return [one.announce() for one in self.clients] if has_masks(self.terms) else []

    def sent(self) -> tuple[list[Message], list[Message]]:
        """What clients of ``bfv`` or ``bfv+mask`` announce and send."""
        announced = self.announced()
        return announced, [one.send(announced) for one in self.clients]

    def masked_rows(self) -> tuple[list[Message], list[Message], list[Message]]:
        """What clients of ``mask`` announce, share and send."""
        announced = self.announced()
        shared = [one.share(announced) for one in self.mask_clients]
        return announced, shared, [one.send(shared) for one in self.mask_clients]

    def opened(self, sent: Sequence[Message], announced: Sequence[Message] = ()) -> Opened:
        """What a key holder opens, signed by the witness."""
        total = self.server.total(sent, announced)
        return self.holder.opened(total, self.witness.signature(sent, total, announced))

    def signed(self, total: Total) -> Opened:
        """What the key holder opens although the witness colludes: it signs whatever the server likes."""
        said = Message.signed("witness", WITNESS, total.said(self.terms), self.terms, self.witness_key)
        return self.holder.opened(total, said)

    def unmasked(
        self,
        announced: Sequence[Message],
        shared: Sequence[Message],
        sent: Sequence[Message],
        clients: Sequence[MaskClient] | None = None,
    ) -> Opened:
        """What the server of ``mask`` opens; ``clients`` tell shares, by default all that sent a row."""
        came = [message.sender for message in sent]
        answers = [one.unmask(came) for one in (clients or [self.mask_clients[number] for number in came])]
        return MaskServer(self.terms).opened(announced, shared, sent, answers)

    def resigned(self, message: Message, body: bytes) -> Message:
        """A message that its client signed, with another body."""
        return Message.signed(message.step, message.sender, body, self.terms, self.identities[message.sender])

    def parsed(self, parts: Sequence[bytes]) -> list[bfv.Ciphertext]:
        """Ciphertexts as the server reads them."""
        return [bfv.parsed(bfv.context_of(self.terms.layout.ring), part) for part in parts]

    def end(self) -> None:
        """Drop all secrets."""
        self._ends.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
