"""The parties of one secure sum, each by itself, for tests that stand between them."""

from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from fuaudit.secure.encrypted import Client, KeyHolder, Server, Witness, has_masks
from fuaudit.secure.masked import MaskClient, MaskServer
from fuaudit.secure.messages import Identity
from fuaudit.secure.terms import LIBRARY, Once, Terms, coordinates_digest, new_attempt


def rows_of(clients, columns, bits=12, seed=1):
    """Rows (s, c) over the whole range."""
    largest = (1 << bits - 1) - 1
    return np.random.Generator(np.random.Philox(seed)).integers(-largest, largest + 1, (clients, columns))


@dataclass
class Parties:
    """Clients, witness and key holder of a buffer; ``ends`` all of them."""

    suite: str
    rows: np.ndarray
    bits: int = 12
    most: int = 8
    smallest: int | None = None
    changes: dict = field(default_factory=dict)

    def __post_init__(self):
        self.identities = [Identity() for _ in self.rows]
        self.witness_key, self.holder_key = Identity(), Identity()
        count = len(self.rows)
        self.terms = Terms(
            self.suite, tuple(range(count)), self.rows.shape[1], self.bits, self.most, self.smallest or count,
            tuple(one.public for one in self.identities), LIBRARY, *self.changes.get("at", (1, 0)), new_attempt(),
            coordinates_digest(np.arange(self.rows.shape[1])),
            *(one.public if self.suite != "mask" else "" for one in (self.witness_key, self.holder_key)),
        )  # fmt: skip
        self.ends, self.books = ExitStack(), [Once() for _ in self.rows]
        self.once = (Once(), Once())
        if self.suite == "mask":
            self.clients = [self.masked(number) for number in range(count)]
            return
        self.holder = KeyHolder(self.terms, self.holder_key, self.once[0])
        self.clients = [self.client(number) for number in range(count)]
        self.server = Server(self.terms, self.holder.keyless())
        self.witness = Witness(self.terms, self.holder.keyless(), self.witness_key, self.once[1])

    def masked(self, number, terms=None):
        return MaskClient(terms or self.terms, number, self.rows[number], self.identities[number], self.books[number])

    def client(self, number, terms=None):
        handout = self.holder.handout(number)
        return Client(
            terms or self.terms, number, self.rows[number], self.identities[number], handout, self.books[number]
        )

    def announced(self):
        return [one.announce() for one in self.clients] if self.suite == "mask" or has_masks(self.terms) else []

    def sent(self):
        """All messages up to the rows."""
        announced = self.announced()
        if self.suite != "mask":
            return announced, [one.send(announced) for one in self.clients]
        shared = [one.share(announced) for one in self.clients]
        return announced, shared, [one.send(shared) for one in self.clients]

    def opened(self, sent, announced=()):
        """What a key holder opens, signed by the witness."""
        total = self.server.total(sent, announced)
        return self.holder.opened(total, self.witness.signature(sent, total, announced))

    def unmasked(self, announced, shared, sent, clients=None):
        came = [message.sender for message in sent]
        answers = [one.unmask(came) for one in (clients or [self.clients[number] for number in came])]
        return MaskServer(self.terms).opened(announced, shared, sent, answers)
