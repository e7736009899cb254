"""Sums once more, from the messages of an attempt, and what came before an attempt broke off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fuaudit.errors import FuauditError
from fuaudit.secure import bfv, plain
from fuaudit.secure.encrypted import Total, summands_of
from fuaudit.secure.masked import MaskServer, came_of, names_digest, threshold
from fuaudit.secure.messages import DIGEST_BYTES, STEPS, Message, Step, list_digest, named, require_enough
from fuaudit.secure.receipts import Receipt, step_of
from fuaudit.secure.recheck.known import Adder
from fuaudit.secure.recheck.shown import Kind, sentence_of
from fuaudit.secure.refusal import RefusedError, forgetting
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import LibraryError, Opened, Terms, installed, require_library


class UnmadeError(Exception):
    """A sum was not made again, for this machine broke off: it is no statement about the messages."""


def judged(error: FuauditError) -> str:
    """What an error says of messages.

    Raises:
        UnmadeError: it says nothing of them, but of this machine: a process or library that broke off or is missing.
    """
    if isinstance(error, LibraryError) or (isinstance(error, RefusedError) and error.broke):
        raise UnmadeError(" ".join(filter(None, (f"{sentence_of(error)}.", error.hint)))) from None
    return sentence_of(error)


def again(terms: Terms, messages: Sequence[Message], add: Adder) -> tuple[Opened | None, list[tuple[Kind, str]]]:
    """What was opened, if it is of these messages; otherwise why it is not, with its kind.

    Raises:
        UnmadeError: this machine broke off.
    """
    said = {step: [message for message in messages if message.step == step] for step in STEPS}
    kind: Kind = "sum"
    try:
        due = _due(terms, said, add)
        kind = "receipt"
        receipt = Receipt.of(one_of(said[step_of(terms)], step_of(terms)), terms)
        if (receipt.total, receipt.members) != (due.total, due.members):
            raise RefusedError(f"what was opened is not the sum of the rows of {due.members} that came")
        if due.sums is not None and not np.array_equal(due.sums, receipt.sums):
            raise RefusedError("what the server says that it opened is not the sum of the rows that came")
    except FuauditError as error:
        return None, [(kind, judged(error))]
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


def wrong_so_far(terms: Terms, messages: Sequence[Message], add: Adder) -> Iterator[tuple[Kind, str]]:
    """What is wrong with an attempt that broke off, with its kind: what came before its end is that of the protocol.

    Raises:
        UnmadeError: this machine broke off.
    """
    said = {step: [message for message in messages if message.step == step] for step in STEPS}
    try:
        _require_so_far(terms, said, add)
        has_all = _can_be_opened(terms, said)
    except FuauditError as error:
        yield "sum", judged(error)
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
    came = came_of(one_of(said["came"], "came"), terms)
    if [*came] != sorted(message.sender for message in said["send"]):
        raise RefusedError("the server named other clients than those whose rows came")
    return came


def _require_keyless(terms: Terms, said: Mapping[Step, Sequence[Message]]) -> None:
    require_library(installed())  # another version may add otherwise
    if one_of(said["context"], "context").body != bfv.keyless_part(terms.layout.ring):
        raise RefusedError("server and witness had another context than the one without any key")


def _require_witnessed(terms: Terms, said: Mapping[Step, Sequence[Message]], total: Total) -> None:
    if one_of(said["witness"], "witness").body != total.said(terms):
        raise RefusedError("the witness signed another sum than that of the ciphertexts that came")


def _total_of(terms: Terms, said: Mapping[Step, Sequence[Message]], add: Adder) -> Total:
    """The sum of what came, which is the server's."""
    _require_keyless(terms, said)
    summands = summands_of(said["send"], said["announce"], terms)
    total = Total(tuple(summands), tuple(add(summands, terms.layout.ring)))
    if Total.of(one_of(said["total"], "total"), terms) != total:
        raise RefusedError("the server's sum is not that of the ciphertexts that came")
    return total


def one_of(messages: Sequence[Message], step: str) -> Message:
    """The only one of some messages of a step. RefusedError where there are none or more."""
    if len(messages) != 1:
        raise RefusedError(f"{len(messages)} messages of step {step} came, where one is due")
    return messages[0]
