"""Transcript: every message of a training's secure sums, each in one line that holds the digest of the line before.

The chain is over digests of envelopes, and the envelopes of a round lie in one body, one after the other. So bodies can
be removed later, and the chain still shows how many messages there were, of whom, and in which order. A chain that
somebody wrote anew from a line on has another head; who keeps a head from elsewhere, as a ledger does, sees that.

Nothing makes a message that is not recorded visible, and ciphertexts can hold anything.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import canonical_json, parse_canonical
from fuaudit.secure.envelope import FRONT_BYTES, envelope, parsed, terms_of
from fuaudit.secure.messages import STEPS, Message, Step
from fuaudit.secure.names import ANSWERS, ATTEMPTS, EVERYBODY, NO_BUFFER
from fuaudit.secure.receipts import Receipt, step_of
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import MOST_NUMBER, Opened

GENESIS = "0" * 64
"""What stands in the first line in the place of the digest of the line before."""

LINE_BYTES = 512
"""Of a line of the chain, at most."""

CHAIN_BYTES = 2**30
"""Of a chain, at most: some three million messages."""

ENDS = ("receipt", "opened", "discard")
"""Steps with which a buffer ends."""

BROKE = b"broke"
"""What a discard says where a party was gone or a library failed."""

HIDDEN = "handout"
"""A step that is for the eyes of one client, and is not recorded."""

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """One line of the chain: an envelope.

    Attributes:
        number: of the line, from 1.
        round: as the message's, like the next four.
        size: bytes of the envelope.
        sha256: of the envelope, in hexadecimal.
        previous: SHA-256 of the line before.
    """

    number: int
    round: int
    buffer: int
    step: str
    sender: int
    receiver: int
    size: int
    sha256: str
    previous: str

    @classmethod
    def of(cls, message: Message, content: bytes, number: int, previous: str) -> Entry:
        """The entry of a message with this envelope."""
        where = (message.round, message.buffer, message.step, message.sender, message.receiver)
        return cls(number, *where, len(content), hashlib.sha256(content).hexdigest(), previous)

    @property
    def line(self) -> bytes:
        """Canonical JSON, without the end of a line."""
        return canonical_json(asdict(self))

    @property
    def digest(self) -> str:
        """SHA-256 of the line, in hexadecimal."""
        return hashlib.sha256(self.line).hexdigest()


@dataclass(frozen=True)
class Chain:
    """The entries of a transcript, in order; rounds do not descend."""

    entries: tuple[Entry, ...] = ()

    @property
    def content(self) -> bytes:
        """All lines, each with its end."""
        return b"".join(entry.line + b"\n" for entry in self.entries)

    @property
    def head(self) -> str:
        """SHA-256 of the last line, in hexadecimal; GENESIS of none."""
        return self.entries[-1].digest if self.entries else GENESIS

    @cached_property
    def _rounds(self) -> Mapping[int, range]:
        """Round -> the places of its entries."""
        found: dict[int, range] = {}
        for place, entry in enumerate(self.entries):
            found[entry.round] = range(found[entry.round].start if entry.round in found else place, place + 1)
        return found

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """The rounds of which there are entries, ascending."""
        return tuple(self._rounds)

    def of_round(self, number: int) -> tuple[Entry, ...]:
        """The entries of a round."""
        places = self._rounds.get(number, range(0))
        return self.entries[places.start : places.stop]

    def senders(self, number: int, step: Step) -> tuple[int, ...]:
        """Who sent a step in a round, ascending; a client once for each of its messages."""
        return tuple(sorted(entry.sender for entry in self.of_round(number) if entry.step == step))

    def size_of(self, number: int) -> int:
        """Bytes of the envelopes of a round: what is longer in its body was written, and not recorded."""
        return sum(entry.size for entry in self.of_round(number))

    def head_after(self, number: int) -> str:
        """The head after a round: what a ledger tells of it. A round without messages has the one before."""
        end = self._end(number)
        return self.entries[end - 1].digest if end else GENESIS

    def cut(self, number: int) -> Chain:
        """The chain up to the end of a round."""
        return Chain(self.entries[: self._end(number)])

    def _end(self, number: int) -> int:
        """How many entries there are up to the end of a round."""
        before = bisect_right(self.rounds, number)
        return self._rounds[self.rounds[before - 1]].stop if before else 0

    def ended(self) -> Chain:
        """The chain up to the last buffer that came to an end: what a break left open is cut off."""
        ends = [place + 1 for place, entry in enumerate(self.entries) if entry.step in ENDS]
        return Chain(self.entries[: max(ends, default=0)])


def read_chain(content: bytes, path: Path) -> Chain:
    """The chain of some lines.

    Raises:
        EvidenceError: a line is torn, in another form, or does not follow from the one before it.
    """
    if len(content) > CHAIN_BYTES:
        raise EvidenceError(f"{path} is larger than {CHAIN_BYTES} bytes")
    if content and not content.endswith(b"\n"):
        raise EvidenceError(f"{path}: the last line is torn")
    return Chain(tuple(_entries(content, path)))


def _entries(content: bytes, path: Path) -> Iterator[Entry]:
    head, last = GENESIS, -1
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        value = parse_canonical(line, path) if len(line) <= LINE_BYTES else None
        if value is None or not _is_entry(value):
            raise EvidenceError(f"{path}: line {number} is no line of a transcript")
        entry = Entry(**value)
        if (entry.previous, entry.number) != (head, number) or entry.round < last:
            raise EvidenceError(f"{path}: line {number} does not follow from the line before it")
        yield entry
        head, last = hashlib.sha256(line).hexdigest(), entry.round


def _is_entry(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != {each.name for each in fields(Entry)}:
        return False
    digests = all(isinstance(value[name], str) and _DIGEST.fullmatch(value[name]) for name in ("sha256", "previous"))
    least = dict.fromkeys(("number", "round"), 0) | dict.fromkeys(("sender", "receiver"), EVERYBODY)
    least |= {"buffer": NO_BUFFER, "size": FRONT_BYTES}
    whole = all(type(value[name]) is int and low <= value[name] <= MOST_NUMBER for name, low in least.items())
    return digests and whole and value["step"] in STEPS


class Sink(Protocol):
    """Who keeps a transcript. It returns when both are kept, the envelope first: a line without one is no evidence."""

    def __call__(self, number: int, content: bytes, line: bytes) -> None:
        """Keep an envelope at the end of the body of a round, and its line at the end of the chain."""


class Transcript:
    """A transcript as it is written; ``record`` is what a suite is given. It goes on behind a chain."""

    def __init__(self, sink: Sink, behind: Chain = Chain()) -> None:
        self._sink, self.head, self._count = sink, behind.head, len(behind.entries)
        self._round = behind.entries[-1].round if behind.entries else 0

    def record(self, message: Message) -> None:
        """Keep a message.

        Raises:
            RefusedError: it is of an earlier round, or for one client's eyes.
        """
        if message.step == HIDDEN or message.round < self._round:
            raise RefusedError(
                f"a message of step {message.step} and round {message.round} is not recorded in round {self._round}"
            )
        content = envelope(message)
        entry = Entry.of(message, content, self._count + 1, self.head)
        self._sink(message.round, content, entry.line)
        self._count, self.head, self._round = entry.number, entry.digest, message.round


def messages_of(entries: Sequence[Entry], content: bytes, path: Path) -> tuple[Message, ...]:
    """The messages of a round from its entries and its body.

    Raises:
        EvidenceError: the body is not that of the entries.
    """
    if len(content) != sum(entry.size for entry in entries):
        raise EvidenceError(f"{path} has {len(content)} bytes, where the chain tells of others")
    return tuple(_messages(entries, content, path))


def envelopes(entries: Iterable[Entry], content: bytes, path: Path) -> Iterator[tuple[Entry, bytes]]:
    """Each entry of a round with its envelope, which has its digest; none of them is parsed.

    Raises:
        EvidenceError: an envelope is not the one that was recorded.
    """
    at = 0
    for entry in entries:
        part, at = content[at : at + entry.size], at + entry.size
        if hashlib.sha256(part).hexdigest() != entry.sha256:
            raise EvidenceError(
                f"{path} was altered: the envelope of line {entry.number} of the chain is not the one that was recorded"
            )
        yield entry, part


def _messages(entries: Iterable[Entry], content: bytes, path: Path) -> Iterator[Message]:
    for entry, part in envelopes(entries, content, path):
        try:
            message = parsed(part)
        except RefusedError as error:
            raise EvidenceError(f"{path}: the envelope of line {entry.number}: {error.args[0]}") from None
        if Entry.of(message, part, entry.number, entry.previous) != entry:
            raise EvidenceError(f"{path}: line {entry.number} tells of another envelope than that which was recorded")
        yield message


def opened_in(messages: Iterable[Message]) -> Mapping[int, Opened]:
    """Buffer -> what was opened of it in a round, as its messages tell; RefusedError for what is none of its terms."""
    found, terms = {}, {}
    for message in messages:
        if message.step == "terms":
            terms[message.terms] = terms_of(message)
        elif message.step in ("receipt", "opened"):
            of = terms.get(message.terms)
            if of is None or message.step != step_of(of):
                raise RefusedError(f"a sum of buffer {message.buffer} was told under terms that nobody sent")
            receipt = Receipt.of(message, of)
            found[message.buffer] = Opened(receipt.members, receipt.sums)
    return found


def broke_off(message: Message) -> bool:
    """Whether a message ends an attempt in which a party was gone, or a library failed: nobody refused anything."""
    return message.step == "discard" and message.body == BROKE


def given_up(messages: Iterable[Message]) -> Message | None:
    """The discard behind which a buffer is not tried again, in the messages of one round; None where there is none.

    Its clients answered, or it was tried as often as it may be. An attempt that broke off is none: new parties may make
    the same sum.
    """
    suites, attempts, answered = dict[bytes, str](), Counter[int](), set[int]()
    found: Message | None = None
    for message in messages:
        if message.step == "terms":
            suites[message.terms] = terms_of(message).suite
            attempts[message.buffer] += 1
        elif message.step == ANSWERS.get(suites.get(message.terms, "")):
            answered.add(message.buffer)
        elif message.step == "discard" and not broke_off(message):
            is_last = message.buffer in answered or attempts[message.buffer] >= ATTEMPTS
            found = message if is_last else found
    return found
