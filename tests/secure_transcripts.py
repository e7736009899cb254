"""Transcripts of small trainings, with their lots, for tests that alter them."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from secure_parties import rows_of

from fuaudit.draws.chains import Chain as Contributions
from fuaudit.errors import EvidenceError
from fuaudit.secure.envelope import terms_of
from fuaudit.secure.exposure import Buffer
from fuaudit.secure.messages import Identity, Message, Signers
from fuaudit.secure.receipts import Receipt
from fuaudit.secure.recheck.known import Known
from fuaudit.secure.recheck.shown import Checked, Wrong
from fuaudit.secure.recheck.transcripts import added_apart, recheck
from fuaudit.secure.suites import Suite
from fuaudit.secure.terms import Lot, coordinates_digest
from fuaudit.secure.transcript import Chain, Transcript, messages_of, read_chain

PATH = Path("transcript")
SUITES = ("plain", "mask", "bfv", "bfv+mask")
CONTEXT = "c" * 64
COLUMNS = 5


def rechecked(content, bodies, known, add=added_apart):
    """What the bytes of a transcript show; none that are no chain get as far as a check."""
    try:
        chain = read_chain(content, PATH)
    except EvidenceError as error:
        return Checked((Wrong("chain", str(error)),), {}, (), (), (), 0, ())
    return recheck(chain, bodies, known, add)


class Kept:
    """A transcript in memory."""

    def __init__(self, behind=Chain()):  # noqa: B008
        self.lines, self.bodies = [entry.line for entry in behind.entries], {}
        self.transcript = Transcript(self.keep, behind)

    def keep(self, number, content, line):
        self.bodies[number] = self.bodies.get(number, b"") + content
        self.lines.append(line)

    @property
    def content(self):
        return b"".join(line + b"\n" for line in self.lines)

    def chain(self):
        return read_chain(self.content, PATH)

    def messages(self):
        """All of them, in order."""
        chain = self.chain()
        return [one for n in chain.rounds for one in messages_of(chain.of_round(n), self.bodies[n], PATH)]


def written(messages):
    """A transcript of messages, as an operator can write it anew."""
    found = Kept()
    for message in messages:
        found.transcript.record(message)
    return found


def signers(clients=3):
    keys = [Identity(bytes([number]) * 32) for number in range(clients + 2)]
    return Signers(dict(enumerate(keys[:clients])), *keys[clients:])


def drawn(size):
    """Buffers of a size as a lot gives them: by the digests of all contributions and a client."""

    def buffers(number, contributions):
        lot = b"".join(contributions[client] for client in sorted(contributions))
        order = sorted(contributions, key=lambda client: hashlib.sha256(lot + bytes([number, client])).digest())
        return [tuple(sorted(order[at : at + size])) for at in range(0, len(order), size)]

    return buffers


@dataclass
class Training:
    """Rounds of secure sums of all clients, in buffers of three, and what a checker knows of them."""

    suite: str
    rounds: int = 1
    clients: int = 3
    smallest: int | None = None
    rows: dict = field(default_factory=dict)

    def __post_init__(self):
        self.kept, self.signers = Kept(), signers(self.clients)
        self.contributions = [Contributions(bytes([client]) * 32, 9) for client in range(self.clients)]
        self.keys = {client: one.public for client, one in self.signers.clients.items()}
        for number in range(1, self.rounds + 1):
            self.round(number)

    def round(self, number, absent=()):
        """Play a round; who is absent is so from the step on that is given by client."""
        record, lot = self.kept.transcript.record, self.lot(number)
        contributions = {client: one.element(2 + number) for client, one in enumerate(self.contributions)}
        for client, one in contributions.items():
            record(Message.signed("lot", client, one, lot, self.signers.clients[client]))
        for buffer, members in enumerate(drawn(3)(number, contributions)):
            rows = self.rows[number, buffer] = rows_of(len(members), COLUMNS, seed=10 * number + buffer)
            gone = {party: step for party, step in dict(absent).items() if party < 0 or party in members}
            self.open(rows, members, (number, buffer), gone, record)

    def open(self, rows, members, at, absent, record):
        return Suite(self.suite).opened(
            rows, 12, members, absent, self.smallest, at=at, signers=self.signers, record=record, context=CONTEXT
        )

    def lot(self, number):
        return Lot(CONTEXT, number, tuple(self.keys), tuple(self.keys.values()))

    def sizes(self):
        """The buffers of each round, where they need not be complete; there is room for eight clients in one."""
        own = [Buffer(self.clients, self.smallest or 0)] * self.clients
        return None if self.smallest is None else lambda _: [*own, Buffer(8, 8)]

    def known(self, kept=None, **others):
        """What a checker knows; heads are those of a transcript."""
        chain = (kept or self.kept).chain()
        keyed = self.suite.startswith("bfv")
        found = Known(
            self.suite, self.rounds, 12, 8, self.keys,
            self.signers.witness.public if keyed else "", self.signers.holder.public if keyed else "",
            {number: chain.head_after(number) for number in chain.rounds}, CONTEXT,
            {client: one.end for client, one in enumerate(self.contributions)}, 2, lambda _: tuple(self.keys),
            drawn(3), self.sizes(), lambda _: (COLUMNS, coordinates_digest(np.arange(COLUMNS))),
        )  # fmt: skip
        return replace(found, **others)

    def checked(self, kept=None, anchored=False, **others):
        """What a transcript shows; ``anchored`` by the heads of the honest one."""
        kept = kept or self.kept
        return rechecked(kept.content, kept.bodies.get, self.known(None if anchored else kept, **others))


def with_another_sum(messages, signers):
    """The messages of a run, in which one opened number is one more, signed by whoever signs it."""
    terms = {}
    for one in messages:
        if one.step == "terms":
            terms[one.terms] = terms_of(one)
        if one.step in ("receipt", "opened") and (one.round, one.buffer) == (1, 0):
            of = terms[one.terms]
            receipt = Receipt.of(one, of)
            body = replace(receipt, sums=receipt.sums + (np.arange(of.columns) == 0)).body()
            if one.step == "opened":
                yield Message.unsigned("opened", body, of)
            else:
                yield Message.signed("receipt", one.sender, body, of, signers.holder)
        else:
            yield one
