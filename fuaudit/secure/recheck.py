"""Recheck: what a transcript shows, by whoever has no key: chain, signatures, lots, counts, and every sum made again.

A pure function of a chain, of bodies, and of what the checker knows from elsewhere. Ciphertexts are added again bit for
bit, masked rows are unmasked by the shares that were told, rows in the open are added up. What is wrong is a finding.
What a transcript cannot show is said beside it, and no check of it can change that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np

from fuaudit.draws.chains import fits
from fuaudit.errors import FuauditError, UsageError, nearest
from fuaudit.secure import bfv, plain
from fuaudit.secure.adder import adder_of
from fuaudit.secure.encrypted import Summands, Total, summands_of
from fuaudit.secure.envelope import limits, terms_of
from fuaudit.secure.exposure import Buffer
from fuaudit.secure.masked import MaskServer, came_of, names_digest, threshold
from fuaudit.secure.messages import (
    DIGEST_BYTES,
    OF_ROUND,
    STEPS,
    Message,
    Step,
    list_digest,
    named,
    require_distinct,
    require_enough,
)
from fuaudit.secure.names import ANSWERS, ATTEMPTS, EXACT, NO_BUFFER, has_key_holder
from fuaudit.secure.receipts import Receipt, step_of
from fuaudit.secure.refusal import RefusedError, forgetting
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import (
    LIBRARY,
    LibraryError,
    Lot,
    Opened,
    Plaintexts,
    Terms,
    columns_of,
    coordinates_digest,
    installed,
    require_library,
)
from fuaudit.secure.transcript import ENDS, HIDDEN, Chain, Entry, messages_of
from fuaudit.text import counted

TOLD = ("receipt", "opened")
"""Steps that tell a sum."""

ONCE = ("total", "witness")
"""Steps that a buffer has once in a round, in whatever attempts: a key holder opens what a witness signed."""

Kind = Literal[
    # of a transcript
    "chain", "head", "roster", "body", "order", "lot", "buffer", "terms", "message", "sum", "receipt", "twice",
    # of the run that it belongs to
    "beginning", "context", "difference", "draws", "model", "rule", "suite", "told",
]  # fmt: skip
"""What something that is wrong is about."""

T = TypeVar("T")

Bodies = Callable[[int], bytes | None]
"""Round -> its envelopes one after the other; None where they were removed."""

Adder = Callable[[Summands, Plaintexts], Sequence[bytes]]
"""Adds the ciphertexts of clients. RefusedError for what is none."""


@dataclass(frozen=True)
class Known:
    """What a checker knows from elsewhere: from a commitment, a config and a ledger.

    Attributes:
        suite: its name.
        rounds: R, of the training: there is none before 1 or behind R.
        bits: of a value.
        most: of how many clients the largest buffer is at most, where ``sizes`` does not say it.
        clients: the roster: client -> public key, 64 hexadecimal digits.
        witness: its public key; empty in suites that have none.
        holder: that of the key holder, likewise.
        heads: round that was executed -> head of the chain after it, as a ledger tells; empty where none is known.
        context: of lots and terms, 64 hexadecimal digits: of a run and a generation of it.
        ends: client -> the end of its chain of contributions, 32 bytes; empty where no lots are drawn.
        earlier: how many contributions of each chain belong to earlier generations.
        cohort: round -> its clients, ascending, each once; None where that is not known.
        buffers: round and contributions by client -> the members of each buffer, ascending, by its number; None is not
            known.
        sizes: round -> its buffers, by their numbers: how many participations the lot puts into each, and from how
            many rows on it opens, as its terms have to say. None is not known: then each opens complete.
        columns: round -> how many columns are summed, and their digest, or None where nothing is summed in it; None is
            not known.
        agrees: whether clients agree on columns, so that the server has to tell them.
    """

    suite: str
    rounds: int
    bits: int
    most: int
    clients: Mapping[int, str]
    witness: str = ""
    holder: str = ""
    heads: Mapping[int, str] = field(default_factory=dict)
    context: str = ""
    ends: Mapping[int, bytes] = field(default_factory=dict)
    earlier: int = 0
    cohort: Callable[[int], tuple[int, ...]] | None = None
    buffers: Callable[[int, Mapping[int, bytes]], Sequence[tuple[int, ...]]] | None = None
    sizes: Callable[[int], Sequence[Buffer]] | None = None
    columns: Callable[[int], tuple[int, str] | None] | None = None
    agrees: bool = False

    def __post_init__(self) -> None:
        if self.suite not in EXACT:
            raise UsageError(f"there is no transcript of a suite {self.suite!r}", nearest(self.suite, EXACT))


@dataclass(frozen=True)
class Wrong:
    """One thing that is wrong.

    Attributes:
        kind: what it is about.
        sentence: what is wrong, and where.
        round: its number; None of the whole transcript.
        buffer: its number; None of a whole round.
    """

    kind: Kind
    sentence: str
    round: int | None = None
    buffer: int | None = None


@dataclass(frozen=True)
class Checked:
    """What a transcript shows.

    Attributes:
        wrong: what is wrong; none where everything fits.
        opened: round and buffer -> what was opened there, where all of its messages fit.
        discarded: rounds and buffers of which nothing was opened.
        unplayed: rounds and members of buffers that were drawn, and of which no sum was told, whether attempts at them
            were recorded or not. A training asks for no sum that is not finite, and for none where a round fails.
        unread: rounds whose envelopes are gone: there the chain alone was looked at.
        unmade: rounds, buffers, and why this machine could not make a sum of theirs again: nothing is known of it, and
            nothing of it is wrong.
        messages: how many there are.
        cannot: what no transcript shows, a sentence each.
        columns: round -> the columns that the server told, ``(c,)`` ascending, where it told some: all terms of the
            round have their digest.
    """

    wrong: tuple[Wrong, ...]
    opened: Mapping[tuple[int, int], Opened]
    discarded: tuple[tuple[int, int], ...]
    unplayed: tuple[tuple[int, tuple[int, ...]], ...]
    unread: tuple[int, ...]
    messages: int
    cannot: tuple[str, ...]
    columns: Mapping[int, Ints] = field(default_factory=dict)
    unmade: tuple[tuple[int, int, str], ...] = ()

    @property
    def liars(self) -> Sequence[tuple[int, int, int]]:
        """Rounds, buffers, and clients who signed shares there that were not dealt to them, and that no sum needed."""
        return [(*at, client) for at, one in sorted(self.opened.items()) for client in one.liars]

    def opened_of(self, number: int) -> Sequence[Opened]:
        """What was opened in a round, by ascending buffers."""
        return self._opened.get(number, ())

    @property
    def unmade_at(self) -> frozenset[tuple[int, int]]:
        """Rounds and buffers of which nothing is known."""
        return frozenset((number, buffer) for number, buffer, _ in self.unmade)

    def is_made(self, number: int) -> bool:
        """Whether every sum of a round was made again, as far as it was told."""
        return all(number != unmade for unmade, _, _ in self.unmade)

    def unplayed_of(self, number: int) -> Sequence[tuple[int, ...]]:
        """The members of the buffers of a round that were drawn, and of which no sum was told."""
        return self._unplayed.get(number, ())

    @cached_property
    def _opened(self) -> Mapping[int, Sequence[Opened]]:
        return _by_round((number, self.opened[number, buffer]) for number, buffer in sorted(self.opened))

    @cached_property
    def _unplayed(self) -> Mapping[int, Sequence[tuple[int, ...]]]:
        return _by_round(self.unplayed)


def _by_round(pairs: Iterable[tuple[int, T]]) -> Mapping[int, Sequence[T]]:
    """What belongs to each round, in the order in which it comes."""
    found: dict[int, list[T]] = {}
    for number, one in pairs:
        found.setdefault(number, []).append(one)
    return found


def added_apart(summands: Summands, ring: Plaintexts) -> Sequence[bytes]:
    """The sums of ciphertexts, read and added by a confined process: whoever made a transcript can write any bytes."""
    return adder_of("checker", bfv.keyless_part(ring), ring).sums(summands)


def recheck(chain: Chain, bodies: Bodies, known: Known, add: Adder = added_apart) -> Checked:
    """What a transcript shows.

    Args:
        chain: its lines, each of which follows from the one before.
        bodies: the envelopes of a round.
        known: what the checker knows from elsewhere.
        add: who adds ciphertexts up.
    """
    if strange := [number for number in chain.rounds if not 1 <= number <= known.rounds]:
        sentence = f"the chain tells of round {strange[0]}, and the training has rounds 1 to {known.rounds}"
        return Checked((Wrong("chain", sentence),), {}, (), (), (), 0, cannot(known, ()))
    found: list[Wrong] = [*_wrong_heads(chain, known), *_wrong_roster(known)]
    opened: dict[tuple[int, int], Opened] = {}
    unplayed: list[tuple[int, tuple[int, ...]]] = []
    unmade: list[tuple[int, int, str]] = []
    unread, lots, attempts, columns = list[int](), _Lots(known), set[str](), dict[int, Ints]()
    for number in _due_rounds(chain, known):
        entries = chain.of_round(number)
        body = bodies(number) if entries else b""
        found += [*_wrong_order(number, entries, known.agrees)]
        if body is None:
            unread.append(number)
            continue
        try:
            messages = messages_of(entries, body, Path(f"the envelopes of round {number}"))
        except FuauditError as error:
            found.append(Wrong("body", _sentence(error), number))
            continue
        buffers = _Buffers(number, messages, known, add, attempts)
        found += [*lots.wrong(number, messages), *buffers.wrong(lots)]
        if lots.columns is not None:
            columns[number] = lots.columns
        opened |= {(number, buffer): one for buffer, one in buffers.opened.items()}
        unplayed += [(number, members) for members in buffers.unplayed]
        unmade += [(number, *one) for one in buffers.unmade]
    return Checked(
        tuple(found), opened, _discarded(chain), tuple(unplayed), tuple(unread), len(chain.entries),
        cannot(known, unread), columns, tuple(unmade),
    )  # fmt: skip


def _due_rounds(chain: Chain, known: Known) -> tuple[int, ...]:
    """The rounds of the chain, and those that were executed with clients: one can be left out as a whole."""
    executed = set(known.heads) if known.cohort is None else {one for one in known.heads if known.cohort(one)}
    return tuple(sorted({*chain.rounds} | executed))


def _discarded(chain: Chain) -> tuple[tuple[int, int], ...]:
    """Rounds and buffers of which no sum was told."""
    ends = {kind: {(one.round, one.buffer) for one in chain.entries if one.step in kind} for kind in (ENDS, TOLD)}
    return tuple(sorted(ends[ENDS] - ends[TOLD]))


def _sentence(error: FuauditError) -> str:
    return str(error.args[0])


# what needs no envelope


def _wrong_heads(chain: Chain, known: Known) -> Iterator[Wrong]:
    """Where the chain is not the one of which heads were told."""
    for number, head in sorted(known.heads.items()):
        if chain.head_after(number) != head:
            yield Wrong("head", f"the chain after round {number} is not the one whose head was told", number)
            return
    if known.heads and chain.cut(max(known.heads)) != chain:
        yield Wrong("head", f"the chain goes on behind round {max(known.heads)}, after which its last head was told")


def _wrong_roster(known: Known) -> Iterator[Wrong]:
    """Where two parties have one key: one of them could speak for both."""
    keys = Counter([*known.clients.values(), *(key for key in (known.witness, known.holder) if key)])
    for key in sorted(key for key, times in keys.items() if times > 1):
        yield Wrong("roster", f"{keys[key]} parties have the key {key[:8]}... each")


def _wrong_order(number: int, entries: Sequence[Entry], agrees: bool) -> Iterator[Wrong]:
    """What lines alone tell of a round: all in the one order, each buffer ended, opened once and seldom tried."""
    told = {"terms", "columns"} & {entry.step for entry in entries}
    if agrees and told == {"terms"}:
        yield Wrong("order", "the server did not tell the columns that clients agreed on", number)
    if agrees and told == {"columns"}:
        yield Wrong("order", "the server told columns, and no sum was asked for", number)
    if not agrees and "columns" in told:
        yield Wrong("order", "the server told columns, and clients agree on none", number)
    open_: dict[int, list[Entry]] = {}
    ended: list[list[Entry]] = []
    before: Entry | None = None
    for entry in entries:
        if entry.step == HIDDEN:
            sentence = f"line {entry.number} has step {HIDDEN}, which is for the eyes of one client"
            yield Wrong("message", sentence, number, entry.buffer)
        if not _may_follow(before, entry):
            sentence = (
                f"line {entry.number} has step {entry.step} of {named(entry.sender)}, which does not follow there"
            )
            yield Wrong("order", sentence, number, None if entry.step in OF_ROUND else entry.buffer)
        before = entry
        if entry.step in OF_ROUND:
            continue
        attempt = open_.setdefault(entry.buffer, [])
        attempt.append(entry)
        if entry.step in ENDS:
            ended.append(open_.pop(entry.buffer))
    for buffer in open_:
        yield Wrong("order", "a buffer has no end: it was neither opened nor discarded", number, buffer)
    for attempt in (*ended, *open_.values()):
        for (step, sender), times in Counter((one.step, one.sender) for one in attempt).items():
            if times > 1:
                yield Wrong("twice", f"{named(sender)} sent step {step} {times} times", number, attempt[0].buffer)
    for buffer, times in Counter(one[-1].buffer for one in ended if one[-1].step in TOLD).items():
        if times > 1:
            yield Wrong("twice", f"a buffer was opened {times} times", number, buffer)
    yield from _wrong_attempts(number, [*ended, *open_.values()])
    sums = Counter((one.buffer, one.step) for one in entries if one.step in ONCE)
    for (buffer, step), times in sums.items():
        if times > 1:
            yield Wrong("twice", f"step {step} of a buffer came {times} times in one round", number, buffer)


def _wrong_attempts(number: int, attempts: Sequence[Sequence[Entry]]) -> Iterator[Wrong]:
    """Attempts of a buffer behind that which was opened, and more than honest parties make."""
    opened = set[int]()
    for buffer, last in ((one[-1].buffer, one[-1].step) for one in attempts):
        if buffer in opened:
            yield Wrong("order", "a buffer was tried again after it was opened", number, buffer)
        opened |= {buffer} if last in TOLD else set()
    for buffer, times in Counter(one[-1].buffer for one in attempts).items():
        if times > ATTEMPTS:
            yield Wrong("order", f"a buffer was tried {times} times, and {ATTEMPTS} are the most", number, buffer)


def _may_follow(one: Entry | None, other: Entry) -> bool:
    """Whether a line may stand behind another one of its round, or at its beginning.

    There is one order, so that nobody can write anything into another one: contributions, columns, then attempts one
    after the other with their buffers ascending, in each the steps as they follow each other, and in each step its
    senders ascending. That somebody sent a step twice is told elsewhere.
    """
    if (other.step in OF_ROUND) != (other.buffer == NO_BUFFER):
        return False
    if one is None:
        return other.step in (*OF_ROUND, "terms")
    if one.step == other.step and other.step not in ("columns", "terms", *ENDS):
        return one.buffer == other.buffer and one.sender <= other.sender
    if other.step in OF_ROUND:
        return (one.step, other.step) == OF_ROUND
    if other.step == "terms":
        return one.step in (*OF_ROUND, *ENDS) and one.buffer <= other.buffer
    return one.buffer == other.buffer and one.step not in ENDS and STEPS.index(one.step) < STEPS.index(other.step)


# lots


class _Lots:
    """Contributions to lots, round by round. Of each client the last right one is kept: it shortens the next check.

    Beside them the columns that the server told to the same clients.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._last = {client: (0, end) for client, end in known.ends.items()}
        self.right: dict[int, bytes] | None = None
        self.columns: Ints | None = None

    def wrong(self, number: int, messages: Sequence[Message]) -> Iterator[Wrong]:
        """What is wrong with those of a round; ``right`` are all of them afterwards, None where one is wrong.

        Then ``columns`` are those that were told, None where nobody told some, or others than they can be.
        """
        lots = [message for message in messages if message.step == "lot"]
        told = [message for message in messages if message.step == "columns"]
        self.right = self.columns = None
        if not self._known.ends:
            if lots or told:
                yield Wrong("lot", "there are contributions to a lot, and nobody committed to any", number)
            return
        found = [*self._wrong(number, lots)]
        if not found:
            self.right = {message.sender: message.body for message in lots}
            found += [*self._wrong_columns(number, told)]
        yield from found

    def _lot(self, number: int, clients: tuple[int, ...]) -> Lot:
        """What the clients of a round agreed on."""
        keys = self._known.clients
        return Lot(self._known.context, number, clients, tuple(keys.get(client, "") for client in clients))

    def _wrong_columns(self, number: int, told: Sequence[Message]) -> Iterator[Wrong]:
        if not told:
            return
        lot = self._lot(number, tuple(sorted(self.right or {})))
        try:
            columns = columns_of(_one(told, "columns").require("columns", *limits(lot)["columns"], lot))
        except RefusedError as error:
            yield Wrong("message", _sentence(error), number)
            return
        self.columns = columns

    def _wrong(self, number: int, lots: Sequence[Message]) -> Iterator[Wrong]:
        known, clients = self._known, tuple(sorted({message.sender for message in lots}))
        due = clients if known.cohort is None else known.cohort(number)
        if not due:
            yield Wrong("lot", "nobody contributed to the lot", number)
        for client in sorted({*due} - {*clients}):
            yield Wrong("lot", f"client {client} withheld its contribution to the lot", number)
        if strangers := sorted({*clients} - ({*due} & known.clients.keys())):
            yield Wrong("lot", f"client {strangers[0]} contributed to the lot of a round that it is not in", number)
            return
        lot = self._lot(number, due)
        try:
            require_distinct(lots)
            for message in lots:
                message.require("lot", *limits(lot)["lot"], lot)
        except RefusedError as error:
            yield Wrong("message", _sentence(error), number)
            return
        for message in lots:
            if not self._fits(message.sender, known.earlier + number, message.body):
                sentence = f"the contribution of client {message.sender} to the lot is not the one that it committed to"
                yield Wrong("lot", sentence, number)

    def _fits(self, client: int, place: int, contribution: bytes) -> bool:
        at, last = self._last.get(client, (place, b""))
        if place <= at or not fits(contribution, place - at, last):
            return False
        self._last[client] = (place, contribution)
        return True


# a round


class _Buffers:
    """The buffers of one round, by their terms."""

    def __init__(self, number: int, messages: Sequence[Message], known: Known, add: Adder, attempts: set[str]) -> None:
        self.number, self._known, self._add, self._attempts = number, known, add, attempts
        self._played = [*_attempts(messages)]
        self.opened: dict[int, Opened] = {}
        self.unplayed: list[tuple[int, ...]] = []
        self.unmade: list[tuple[int, str]] = []

    def wrong(self, lots: _Lots) -> Iterator[Wrong]:
        """What is wrong; what was opened and fits is in ``opened`` afterwards, and in ``unmade`` what nobody knows."""
        all_terms: list[Terms] = []
        for messages in self._played:
            buffer = messages[0].buffer
            try:
                terms = _own_terms(messages)
            except RefusedError as error:
                yield Wrong("terms", _sentence(error), self.number, buffer)
                continue
            all_terms.append(terms)
            yield from (Wrong(*one, self.number, buffer) for one in self._wrong_buffer(terms, messages))
        yield from self._wrong_members(all_terms, lots)
        told = lots.columns
        if told is not None and all_terms:
            due = len(told), coordinates_digest(told)
            for terms in all_terms:
                if (terms.columns, terms.coordinates) != due:
                    sentence = "the terms have another set of columns than the server told"
                    yield Wrong("terms", sentence, self.number, terms.buffer)

    def _wrong_buffer(self, terms: Terms, messages: Sequence[Message]) -> Iterator[tuple[Kind, str]]:
        wrong: list[tuple[Kind, str]] = [
            ("terms", sentence) for sentence in wrong_terms(terms, self._known, self.number)
        ]
        if terms.attempt in self._attempts:
            wrong.append(("terms", "the terms have the attempt of other ones"))
        self._attempts.add(terms.attempt)
        wrong += [("message", sentence) for sentence in _wrong_messages(terms, messages)]
        yield from wrong or self._wrong_sum(terms, messages)

    def _wrong_sum(self, terms: Terms, messages: Sequence[Message]) -> Iterator[tuple[Kind, str]]:
        try:
            if not any(message.step in TOLD for message in messages):
                yield from _wrong_so_far(terms, messages, self._add)
                return
            opened, wrong = _again(terms, messages, self._add)
        except _UnmadeError as error:
            self.unmade.append((terms.buffer, str(error)))
            return
        if opened is not None and terms.buffer not in self.opened:
            self.opened[terms.buffer] = opened
        yield from wrong

    def _wrong_members(self, all_terms: Sequence[Terms], lots: _Lots) -> Iterator[Wrong]:
        """Who is with whom: as the lot says, and each client in one buffer, with one answer."""
        known, buffers = self._known, dict[int, tuple[int, ...]]()
        for terms in all_terms:
            if buffers.setdefault(terms.buffer, terms.members) != terms.members:
                yield Wrong("buffer", "a buffer was tried again with other clients", self.number, terms.buffer)
        for client, times in Counter(client for members in buffers.values() for client in members).items():
            if times > 1:
                yield Wrong("buffer", f"client {client} is in {times} buffers", self.number)
        answers = Counter(
            message.sender for messages in self._played for message in messages if message.step == ANSWERS[known.suite]
        )
        for client, times in answers.items():
            if times > 1:
                yield Wrong("twice", f"client {client} answered {times} times in one round", self.number)
        yield from self._wrong_sizes(buffers)
        for terms in all_terms:
            if lots.right is not None and (others := sorted({*terms.members} - lots.right.keys())):
                yield Wrong("buffer", f"client {others[0]} is in no lot of this round", self.number, terms.buffer)
        if known.buffers is None or (known.ends and lots.right is None):
            return
        drawn, told = [*known.buffers(self.number, lots.right or {})], self._told_of(all_terms)
        self.unplayed = sorted(members for buffer, members in enumerate(drawn) if (buffer, members) not in told)
        for terms in all_terms:
            if terms.members not in drawn:
                yield Wrong("buffer", f"clients {terms.members} were not drawn together", self.number, terms.buffer)
            elif not (terms.buffer < len(drawn) and drawn[terms.buffer] == terms.members):
                sentence = f"clients {terms.members} were drawn as buffer {drawn.index(terms.members)}"
                yield Wrong("buffer", sentence, self.number, terms.buffer)

    def _wrong_sizes(self, buffers: Mapping[int, tuple[int, ...]]) -> Iterator[Wrong]:
        """Buffers with more clients than the config puts into them, or with fewer than it opens."""
        if self._known.sizes is None:
            return
        sizes = [*self._known.sizes(self.number)]
        for buffer, members in sorted(buffers.items()):
            if not 0 <= buffer < len(sizes):
                yield Wrong("buffer", f"the round has {counted(len(sizes), 'buffer')}", self.number, buffer)
                continue
            due = sizes[buffer]
            if not due.smallest <= len(members) <= due.size:
                has = f"clients {members} are in a buffer of {due.size}"
                yield Wrong("buffer", f"{has}, which opens from {counted(due.smallest, 'row')} on", self.number, buffer)

    def _told_of(self, all_terms: Sequence[Terms]) -> set[tuple[int, tuple[int, ...]]]:
        """Numbers and members of the buffers of which a sum was told."""
        told = {messages[0].terms for messages in self._played if any(one.step in TOLD for one in messages)}
        return {(terms.buffer, terms.members) for terms in all_terms if terms.digest in told}


def _attempts(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages of each attempt, in order: those under one digest of terms up to an end.

    Behind that end the same terms are another attempt: what was discarded is not gone on with.
    """
    open_, found = dict[bytes, list[Message]](), list[list[Message]]()
    for message in messages:
        if message.step in OF_ROUND:
            continue
        if message.terms not in open_:
            found.append(open_.setdefault(message.terms, []))
        open_[message.terms].append(message)
        if message.step in ENDS:
            del open_[message.terms]
    yield from found


def _own_terms(messages: Sequence[Message]) -> Terms:
    """The terms under which messages stand. RefusedError where they do not stand first among them."""
    if messages[0].step != "terms":
        raise RefusedError(f"{named(messages[0].sender)} sent step {messages[0].step} under terms that nobody sent")
    return terms_of(messages[0])


def _due_sizes(terms: Terms, known: Known, number: int) -> tuple[int, int]:
    """Of how many clients the largest buffer of a round is, and from how many rows on that of some terms opens."""
    if known.sizes is None:
        return min(terms.most, known.most), len(terms.members)
    sizes = known.sizes(number)
    there = 0 <= terms.buffer < len(sizes)
    return max((one.size for one in sizes), default=0), sizes[terms.buffer].smallest if there else 0


def wrong_terms(terms: Terms, known: Known, number: int) -> Iterator[str]:
    """How terms differ from what is known of a training and its round; a sentence each."""
    most, few = _due_sizes(terms, known, number)
    due = {
        "suite": (terms.suite, known.suite),
        "bits of a value": (terms.bits, known.bits),
        "largest buffer": (terms.most, most),
        "fewest rows": (terms.smallest, few),
        "version of the library": (terms.library, LIBRARY),
        "key of the witness": (terms.witness, known.witness),
        "key of the key holder": (terms.holder, known.holder),
        "context": (terms.context, known.context),
        "keys of clients": (terms.roster, tuple(known.clients.get(client, "no key") for client in terms.members)),
    }
    if known.columns is not None:
        columns = known.columns(number)
        if columns is None:
            yield "there are terms in a round that has no sums"
        else:
            due["set of columns"] = ((terms.columns, terms.coordinates), columns)
    for what, (found, expected) in due.items():
        if found != expected:
            yield f"the terms have another {what} than this training"


def _wrong_messages(terms: Terms, messages: Sequence[Message]) -> Iterator[str]:
    """Which messages are not signed, or not of these terms; a sentence each."""
    allowed = limits(terms)
    for message in messages:
        if message.step not in allowed:
            yield f"{named(message.sender)} sent step {message.step}, which suite {terms.suite} does not have"
            continue
        try:
            message.require(message.step, *allowed[message.step], terms)
        except RefusedError as error:
            yield _sentence(error)


# sums, again


class _UnmadeError(Exception):
    """A sum was not made again, for this machine broke off: it is no statement about the messages."""


def _judged(error: FuauditError) -> str:
    """What an error says of messages.

    Raises:
        _UnmadeError: it says nothing of them, but of this machine: a process or library that broke off or is missing.
    """
    if isinstance(error, LibraryError) or (isinstance(error, RefusedError) and error.broke):
        raise _UnmadeError(" ".join(filter(None, (f"{_sentence(error)}.", error.hint)))) from None
    return _sentence(error)


def _again(terms: Terms, messages: Sequence[Message], add: Adder) -> tuple[Opened | None, list[tuple[Kind, str]]]:
    """What was opened, if it is of these messages; otherwise why it is not, with its kind.

    Raises:
        _UnmadeError: this machine broke off.
    """
    said = {step: [message for message in messages if message.step == step] for step in STEPS}
    kind: Kind = "sum"
    try:
        due = _due(terms, said, add)
        kind = "receipt"
        receipt = Receipt.of(_one(said[step_of(terms)], step_of(terms)), terms)
        if (receipt.total, receipt.members) != (due.total, due.members):
            raise RefusedError(f"what was opened is not the sum of the rows of {due.members} that came")
        if due.sums is not None and not np.array_equal(due.sums, receipt.sums):
            raise RefusedError("what the server says that it opened is not the sum of the rows that came")
    except FuauditError as error:
        return None, [(kind, _judged(error))]
    return Opened(receipt.members, receipt.sums, due.liars), []


@dataclass(frozen=True)
class _Due:
    """What a receipt has to say; ``sums`` are None where only a key holder can tell. Beside it who signed wrongly."""

    total: bytes
    members: tuple[int, ...]
    sums: Ints | None = None
    liars: tuple[int, ...] = ()


@forgetting
def _due(terms: Terms, said: Mapping[Step, Sequence[Message]], add: Adder) -> _Due:
    if terms.suite == "plain":
        opened = plain.opened(said["send"], terms)
    elif terms.suite == "mask":
        _came(terms, said)
        opened = MaskServer(terms).opened(said["announce"], said["share"], said["send"], said["unmask"])
    else:
        return _due_of_ciphertexts(terms, said, add)
    return _Due(list_digest(said["send"]), opened.members, opened.sums, opened.liars)


def _due_of_ciphertexts(terms: Terms, said: Mapping[Step, Sequence[Message]], add: Adder) -> _Due:
    total = _total_of(terms, said, add)
    _require_witnessed(terms, said, total)
    return _Due(total.said(terms), total.members)


def _wrong_so_far(terms: Terms, messages: Sequence[Message], add: Adder) -> Iterator[tuple[Kind, str]]:
    """What is wrong with an attempt that broke off, with its kind: what came before its end is that of the protocol.

    Raises:
        _UnmadeError: this machine broke off.
    """
    said = {step: [message for message in messages if message.step == step] for step in STEPS}
    try:
        _require_so_far(terms, said, add)
        has_all = _can_be_opened(terms, said)
    except FuauditError as error:
        yield "sum", _judged(error)
        return
    if has_all:
        yield "sum", "all came that the server needs to open the buffer, and it says that it discarded it"


def _can_be_opened(terms: Terms, said: Mapping[Step, Sequence[Message]]) -> bool:
    """Whether whoever has these messages has the sum: one that was discarded then is told of to nobody.

    Of ciphertexts the key holder alone knows.
    """
    if terms.suite == "mask":
        steps: tuple[Step, ...] = ("announce", "share", "send", "unmask")
        return bool(said["unmask"]) and MaskServer(terms).has_enough(*(said[step] for step in steps))
    return terms.suite == "plain" and _opens(terms, said["send"])


def _opens(terms: Terms, sent: Sequence[Message]) -> bool:
    """Whether a server adds up rows in the open: it refuses what is no row, though all of it came."""
    try:
        plain.opened(sent, terms)
    except RefusedError:
        return False
    return True


@forgetting
def _require_so_far(terms: Terms, said: Mapping[Step, Sequence[Message]], add: Adder) -> None:
    if terms.suite == "mask" and (said["came"] or said["unmask"]):
        came = _came(terms, said)
        for message in said["unmask"]:
            if message.sender not in came or message.body[:DIGEST_BYTES] != names_digest(came):
                raise RefusedError(f"{named(message.sender)} unmasks another sum than that of {came}")
        if said["unmask"]:
            require_enough(came, terms, threshold(terms))
    if said["context"]:
        _require_keyless(terms, said)
    if said["total"] or said["witness"]:
        total = _total_of(terms, said, add)
        if said["witness"]:
            _require_witnessed(terms, said, total)


def _came(terms: Terms, said: Mapping[Step, Sequence[Message]]) -> tuple[int, ...]:
    """Whose rows came, ascending, as the server named them."""
    came = came_of(_one(said["came"], "came"), terms)
    if [*came] != sorted(message.sender for message in said["send"]):
        raise RefusedError("the server named other clients than those whose rows came")
    return came


def _require_keyless(terms: Terms, said: Mapping[Step, Sequence[Message]]) -> None:
    require_library(installed())  # another version may add otherwise
    if _one(said["context"], "context").body != bfv.keyless_part(terms.layout.ring):
        raise RefusedError("server and witness had another context than the one without any key")


def _require_witnessed(terms: Terms, said: Mapping[Step, Sequence[Message]], total: Total) -> None:
    if _one(said["witness"], "witness").body != total.said(terms):
        raise RefusedError("the witness signed another sum than that of the ciphertexts that came")


def _total_of(terms: Terms, said: Mapping[Step, Sequence[Message]], add: Adder) -> Total:
    """The sum of what came, which is the server's."""
    _require_keyless(terms, said)
    summands = summands_of(said["send"], said["announce"], terms)
    total = Total(tuple(summands), tuple(add(summands, terms.layout.ring)))
    if Total.of(_one(said["total"], "total"), terms) != total:
        raise RefusedError("the server's sum is not that of the ciphertexts that came")
    return total


def _one(messages: Sequence[Message], step: str) -> Message:
    if len(messages) != 1:
        raise RefusedError(f"{len(messages)} messages of step {step} came, where one is due")
    return messages[0]


# what it cannot show


def cannot(known: Known, unread: Sequence[int]) -> tuple[str, ...]:
    """What a transcript of a suite does not show, a sentence each."""
    found = [*_ALWAYS, _OF_SUITE[known.suite]]
    found += [_FILLED] if known.suite != "plain" else []
    found += [_WORD] if has_key_holder(known.suite) else []
    found += [] if known.heads else [_NO_HEAD]
    found += [] if known.ends else [_NO_LOT]
    if unread:
        found.append(
            f"The envelopes of {len(unread)} rounds are gone, first of round {unread[0]}: no sum is made again."
        )
    return tuple(found)


_ALWAYS = (
    "Messages that nobody recorded are not in it: parties can have told each other anything beside it.",
    "It shows no party's memory, and not who colluded with whom.",
    "It shows that keys signed, and not who held them: invented clients sign like others.",
)
_FILLED = "Ciphertexts and masked rows can hold anything: nothing makes them again."
_WORD = "The opened numbers are the key holder's word: its key is gone, so no sum of ciphertexts is opened again."
_NO_HEAD = "No head of the chain was given: lines that were cut off at its end, or written anew, are not seen."
_NO_LOT = "No ends of chains were given: who is with whom is the word of who made the buffers."
_OF_SUITE: Mapping[str, str] = MappingProxyType(
    {
        "plain": "Rows lie open in it, for everybody who has it.",
        "mask": "A third of a buffer's clients who tell the server their shares give it rows, and leave no trace.",
        "bfv": "A key holder who was given one client's ciphertext opened it, and left no trace.",
        "bfv+mask": "All other clients of a buffer, with server and key holder, know a row, and leave no trace.",
    }
)
