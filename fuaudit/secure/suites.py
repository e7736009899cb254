"""Suites: five ways to one function of whole numbers, ``sums(rows (s, c), bits) -> (c,)``.

All give the same sums. What differs is who could have seen a row (docs/secure-aggregation.md has a table). Here all
parties are objects of one process, and a round is played between them: it shows sums and costs, and hides nothing from
whoever runs it. ``apart`` makes them processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fuaudit.errors import UsageError, nearest
from fuaudit.secure import bfv, ckks
from fuaudit.secure.apart import Apart
from fuaudit.secure.encrypted import Client, KeyHolder, Server, Witness, has_masks
from fuaudit.secure.envelope import terms_message, terms_of
from fuaudit.secure.masked import MaskClient, MaskServer
from fuaudit.secure.messages import Identity, Message, Signers, ids_bytes, list_digest, require_enough
from fuaudit.secure.names import (
    ANSWERS,
    ATTEMPTS,
    BITS,
    GIVES_THE_KEY_AWAY,
    HOLDER,
    SCARY,
    WITNESS,
    floor_of,
    has_key_holder,
)
from fuaudit.secure.plain import opened as plain_sum
from fuaudit.secure.plain import row_message
from fuaudit.secure.receipts import Receipt, step_of
from fuaudit.secure.refusal import ANEW, RefusedError, forgetting
from fuaudit.secure.silence import NOBODY, ORDER, is_here, unanswered
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import LIBRARY, Once, Opened, Terms, coordinates_digest, layout_of, new_attempt


@dataclass
class Books:
    """What every party of a run remembers from round to round, so that no buffer is opened twice.

    Attributes:
        kept: what the run brings to each opening; None where it keeps no transcript.
        attempts: round and buffer -> how often it was tried.
    """

    clients: dict[int, Once] = field(default_factory=dict)
    witness: Once = field(default_factory=Once)
    holder: Once = field(default_factory=Once)
    kept: Kept | None = None
    attempts: Counter[tuple[int, int]] = field(default_factory=Counter)

    def client(self, number: int) -> Once:
        """That of a client."""
        return self.clients.setdefault(number, Once())

    def try_(self, at: tuple[int, int]) -> None:
        """Remember an attempt of a buffer; RefusedError where it was tried as often as it may be."""
        if self.attempts[at] >= ATTEMPTS:
            raise RefusedError(
                f"buffer {at[1]} of round {at[0]} was tried {ATTEMPTS} times, and not opened",
                f"A transcript with more attempts is not one of honest parties. {ANEW}",
                reason="again",
            )
        self.attempts[at] += 1

    @cached_property
    def apart(self) -> Apart:
        """The parties as processes, started when they are needed; they remember on top of what is here."""
        return Apart()

    def of(self, party: int) -> Once:
        """That of a client, the witness or the key holder."""
        return {WITNESS: self.witness, HOLDER: self.holder}.get(party) or self.client(party)

    def end(self) -> None:
        """End the processes, where there are some. They end with this object, too."""
        if "apart" in vars(self):
            self.apart.end()


@contextmanager
def _of_one_opening() -> Iterator[Books]:
    books = Books()
    try:
        yield books
    finally:
        books.end()


def remembered(messages: Iterable[Message]) -> Books:
    """What the parties of a run remember who sent these messages: after a break nobody answers twice.

    Raises:
        RefusedError: they are none of one run.
    """
    books, suites = Books(), dict[bytes, str]()
    for message in messages:
        at = (message.round, message.buffer)
        if message.step == "terms":
            suites[message.terms] = terms_of(message).suite
            books.attempts[at] += 1
        elif message.step == ANSWERS.get(suites.get(message.terms, "")):
            books.client(message.sender).require_first(message.round)
        elif message.step in ("witness", "receipt"):
            (books.witness if message.step == "witness" else books.holder).require_first(*at)
    return books


Record = Callable[[Message], None]
"""Who is given every message of an opening, in the order in which they are sent."""


def _nobody(_: Message) -> None:
    """A record that nobody keeps."""


@dataclass(frozen=True)
class Kept:
    """What a run that keeps a transcript brings to each opening.

    Attributes:
        record: keeps every message.
        signers: its identities; None makes new ones for each buffer.
        reveal: has the clients of a round, by its number, reveal their parts in its lot; called before its buffers.
        tell: tells the clients of a round the columns that they agreed on, ``(c,)`` ascending; called before the first
            of its buffers, where there is one.
        told: round and buffer -> terms and sum of what was opened before a break; it is not opened again.
        begun: round and buffer -> terms of an attempt before a break; another one is of the same clients and columns.
        context: round -> digest of the run and generation that it belongs to, which stands in the terms of its buffers.
    """

    record: Record
    signers: Signers | None = None
    reveal: Callable[[int, Sequence[int]], None] = lambda number, clients: None
    tell: Callable[[int, Sequence[int], Ints], None] = lambda number, clients, columns: None
    told: Mapping[tuple[int, int], tuple[Terms, Opened]] = field(default_factory=dict)
    begun: Mapping[tuple[int, int], Terms] = field(default_factory=dict)
    context: Callable[[int], str] = lambda number: ""


@dataclass(frozen=True)
class Suite:
    """A way to add up rows.

    Attributes:
        name: "bfv+mask", "bfv", "mask" or "plain". CKKS is there to be attacked, under a name that says so.
        most: of how many clients the largest buffer of a round is; where that is one, or none, nothing is opened.
        apart: whether the parties are processes of their own; else they are objects of this one. Sums are the same.
    """

    name: str = "bfv+mask"
    most: int = 8
    apart: bool = False

    def __post_init__(self) -> None:
        if self.name == "ckks-demo":
            raise UsageError(
                GIVES_THE_KEY_AWAY,
                f'Use "bfv+mask". To attack it yourself, ask for it by its whole name: "{SCARY}".',
            )
        if self.name not in SUITES:
            raise UsageError(f"there is no suite {self.name!r}", nearest(self.name, SUITES))
        if self.apart and self.name == SCARY:
            raise UsageError(f"{SCARY} has no parties that could be processes")
        layout_of(2, max(2, self.most))

    def floor(self, members: int) -> int:
        """From how many rows on a buffer of so many members may open, at least; see ``smallest`` of :meth:`opened`."""
        return floor_of(members)

    def start(self, bits: int = BITS[0]) -> None:
        """The start-up test, once a process: the version of TenSEAL and the margin of noise for values of so many bits.

        Raises:
            UsageError: it fails, or there is no layout for such values.
        """
        ring = layout_of(bits, max(2, self.most)).ring
        if has_key_holder(self.name):
            bfv.require_margin(ring)

    def sums(self, rows: Ints, bits: int) -> Ints:
        """The sums ``(c,)`` of rows ``(s, c)`` int64, whose values have so many bits.

        Raises:
            UsageError: a value is outside its field, or there are too few or too many rows.
        """
        return self.opened(rows, bits).sums

    @forgetting
    def opened(
        self,
        rows: Ints,
        bits: int,
        clients: Sequence[int] | None = None,
        absent: Mapping[int, str] = NOBODY,
        smallest: int | None = None,
        at: tuple[int, int] = (0, 0),
        books: Books | None = None,
        signers: Signers | None = None,
        record: Record | None = None,
        coordinates: str | None = None,
        context: str = "",
    ) -> Opened:
        """A buffer of rows ``(s, c)``, opened once.

        Args:
            rows: int64, from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1.
            bits: of a value.
            clients: whose the rows are, each once; None is 0, 1, ...
            absent: client, witness or key holder -> the step from which on it is silent, one of :data:`ORDER`.
            smallest: from how many rows on the sum is opened, from 2 of 2 and from 3 of more; None is all of them.
            at: numbers of round and buffer.
            books: what the parties remember of the run; None is nothing.
            signers: identities of the run; None makes new ones for this buffer.
            record: is given every message but what is for one client's eyes; None is nobody.
            coordinates: digest of the columns that are summed; None is of columns 0 to c - 1.
            context: digest of the run and generation that it belongs to; empty is none, or that of ``books``.

        Raises:
            UsageError: a value is outside its field, or rows, absent or smallest do not fit.
            RefusedError: the buffer is discarded.
        """
        names = tuple(range(len(rows))) if clients is None else tuple(map(int, clients))
        if rows.ndim != 2 or len(names) != len(rows) or len(set(names)) != len(names):
            raise UsageError(f"a buffer is of rows (s, c) of s clients, and not {rows.shape} of {names}")
        if not set(absent.values()) <= set(ORDER) or not set(absent) <= {*names, WITNESS, HOLDER}:
            raise UsageError(f"who is absent is of the buffer, and so from one of the steps {', '.join(ORDER)}")
        if record is not None and self.name == SCARY:
            raise UsageError(f"{SCARY} has no messages that could be recorded")
        self.start()
        columns = rows.shape[1]
        summed = coordinates_digest(np.arange(columns)) if coordinates is None else coordinates
        if books is not None and books.kept is not None:
            signers, record = signers or books.kept.signers, record or books.kept.record
            context = context or books.kept.context(at[0])
            asked = (tuple(sorted(names)), columns, bits, summed)
            if at in books.kept.begun:
                _require_same(books.kept.begun[at], *asked)
            if at in books.kept.told:
                terms, opened = books.kept.told[at]
                _require_same(terms, *asked)
                return opened
        with ExitStack() as parties:
            members, keyed = tuple(sorted(names)), has_key_holder(self.name)
            signing = signers or _new_signers(members, parties)
            keys = tuple(signing.clients[one].public for one in members)
            few = len(rows) if smallest is None else smallest
            memory = parties.enter_context(_of_one_opening()) if books is None else books
            memory.try_(at)
            terms = Terms(
                self.name, members, columns, bits, self.most, few, keys, LIBRARY, *at, new_attempt(), summed,
                signing.witness.public if keyed else "", signing.holder.public if keyed else "", context,
            )  # fmt: skip
            play = Play(
                terms, dict(zip(names, rows, strict=True)), signing, absent, memory, parties,
                record or _nobody,
            )  # fmt: skip
            return play.played(_apart if self.apart else SUITES[self.name])


def _require_same(terms: Terms, members: tuple[int, ...], columns: int, bits: int, coordinates: str) -> None:
    """RefusedError where another sum of a buffer is asked for than before a break."""
    if (terms.members, terms.columns, terms.bits, terms.coordinates) != (members, columns, bits, coordinates):
        raise RefusedError(
            f"buffer {terms.buffer} of round {terms.round} was asked for before, of other clients or columns than now",
            f"A second sum over other values would tell what differs. {ANEW}",
        )


def _new_signers(members: Sequence[int], parties: ExitStack) -> Signers:
    """Identities for one buffer."""
    made = [parties.enter_context(Identity()) for _ in range(len(members) + 2)]
    return Signers(dict(zip(members, made, strict=False)), *made[len(members) :])


@dataclass(frozen=True)
class Play:
    """One buffer as it is played; rows by client. ``parties`` ends all of them, also after an error."""

    terms: Terms
    rows: Mapping[int, Ints]
    signers: Signers
    absent: Mapping[int, str]
    books: Books
    parties: ExitStack
    record: Record

    def here(self, step: str) -> list[int]:
        """Which clients are not silent yet."""
        return [one for one in self.terms.members if is_here(one, step, self.absent)]

    def require(self, party: int, step: str) -> None:
        """RefusedError where the witness or the key holder is silent."""
        if not is_here(party, step, self.absent):
            raise unanswered(party, step, self.terms)

    def said(self, message: Message) -> Message:
        """A message, recorded."""
        self.record(message)
        return message

    def told(self, total: bytes, opened: Opened) -> Opened:
        """What the server opened without a key holder, recorded; ``total`` is the digest of what it added up."""
        body = Receipt(total, opened.members, opened.sums).body()
        self.said(Message.unsigned("opened", body, self.terms))
        return opened

    def played(self, suite: Callable[[Play], Opened]) -> Opened:
        """What a suite opens; its end is recorded in either case.

        A sum that was told is the end, also where a party is gone after it.
        """
        if self.record is _nobody:
            return suite(self)
        told = list[Message]()

        def record(message: Message) -> None:
            self.record(message)
            told.extend([message] if message.step == step_of(self.terms) else [])

        record(terms_message(self.terms))
        try:
            return suite(replace(self, record=record))
        except RefusedError as error:
            if not told:
                record(Message.unsigned("discard", error.reason.encode(), self.terms))
            raise


def _apart(play: Play) -> Opened:
    """Any suite, played by processes."""
    record = None if play.record is _nobody else play.record
    return play.books.apart.opened(play.terms, play.rows, play.signers, play.absent, play.books.of, record)


def _plain(play: Play) -> Opened:
    """See :mod:`fuaudit.secure.plain`."""
    clients, terms, came = play.signers.clients, play.terms, play.here("send")
    rows = [row_message(play.rows[one], one, terms, clients[one]) for one in came]
    for one in came:
        play.books.client(one).require_first(terms.round)
    sent = [play.said(row) for row in rows]
    return play.told(list_digest(sent), plain_sum(sent, terms))


def _mask(play: Play) -> Opened:
    """See :mod:`fuaudit.secure.masked`."""
    clients = {
        one: play.parties.enter_context(
            MaskClient(play.terms, one, play.rows[one], play.signers.clients[one], play.books.client(one))
        )
        for one in play.terms.members
    }
    announced = [play.said(clients[one].announce()) for one in play.here("announce")]
    shared = [play.said(clients[one].share(announced)) for one in play.here("share")]
    sent = [play.said(clients[one].send(shared)) for one in play.here("send")]
    came = [message.sender for message in sent]
    if came:
        play.said(Message.unsigned("came", ids_bytes(came), play.terms))
    unmasked = [play.said(clients[one].unmask(came)) for one in play.here("unmask")]
    return play.told(list_digest(sent), MaskServer(play.terms).opened(announced, shared, sent, unmasked))


def _encrypted(play: Play) -> Opened:
    """See :mod:`fuaudit.secure.encrypted`."""
    terms, enter, signers = play.terms, play.parties.enter_context, play.signers
    play.require(HOLDER, "announce")
    holder = enter(KeyHolder(terms, signers.holder, play.books.holder))
    keyless = play.said(holder.context()).body
    clients = {
        one: enter(
            Client(terms, one, play.rows[one], signers.clients[one], holder.handout(one), play.books.client(one))
        )
        for one in terms.members
    }
    announced: list[Message] = []
    if has_masks(terms):
        announced = [play.said(clients[one].announce()) for one in play.here("announce")]
    sent = [play.said(clients[one].send(announced)) for one in play.here("send")]
    total = Server(terms, keyless).total(sent, announced)
    play.said(Message.unsigned("total", total.body(), terms))
    play.require(WITNESS, "witness")
    signature = play.said(
        Witness(terms, keyless, signers.witness, play.books.witness).signature(sent, total, announced)
    )
    play.require(HOLDER, "receipt")
    receipt = Receipt.of(play.said(holder.receipt(total, signature)), terms)
    return Opened(receipt.members, receipt.sums)


def _ckks(play: Play) -> Opened:
    """See :mod:`fuaudit.secure.ckks`; only sums of all."""
    came = play.here("send")
    require_enough(came, play.terms)
    for one in came:
        play.terms.require_values(play.rows[one], one)
    holder = play.parties.enter_context(ckks.DemoKeyHolder(play.terms.bits, play.terms.most))
    total = ckks.added(holder.keyless(), [ckks.encrypted(holder.public(), play.rows[one]) for one in came])
    decrypted = holder.opened(total)[: play.terms.columns]
    return Opened(tuple(came), np.rint(decrypted).astype(np.int64))


SUITES: Mapping[str, Callable[[Play], Opened]] = {
    "bfv+mask": _encrypted,
    "bfv": _encrypted,
    "mask": _mask,
    "plain": _plain,
    SCARY: _ckks,
}
