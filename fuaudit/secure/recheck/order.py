"""What lines of a chain tell without any envelope: heads, roster, and the one order of a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from fuaudit.secure.messages import OF_ROUND, STEPS, named
from fuaudit.secure.names import ANSWERS, ATTEMPTS, NO_BUFFER
from fuaudit.secure.recheck.known import Known
from fuaudit.secure.recheck.shown import Wrong
from fuaudit.secure.transcript import ENDS, HIDDEN, Chain, Entry

TOLD = ("receipt", "opened")
"""Steps that tell a sum."""

ONCE = ("total", "witness")
"""Steps that a buffer has once in a round, in whatever attempts: a key holder opens what a witness signed."""


def wrong_heads(chain: Chain, known: Known) -> Iterator[Wrong]:
    """Where the chain is not the one of which heads were told."""
    for number, head in sorted(known.heads.items()):
        if chain.head_after(number) != head:
            yield Wrong("head", f"the chain after round {number} is not the one whose head was told", number)
            return
    if known.heads and chain.cut(max(known.heads)) != chain:
        yield Wrong("head", f"the chain goes on behind round {max(known.heads)}, after which its last head was told")


def wrong_roster(known: Known) -> Iterator[Wrong]:
    """Where two parties have one key: one of them could speak for both."""
    keys = Counter([*known.clients.values(), *(key for key in (known.witness, known.holder) if key)])
    for key in sorted(key for key, times in keys.items() if times > 1):
        yield Wrong("roster", f"{keys[key]} parties have the key {key[:8]}... each")


def wrong_order(number: int, entries: Sequence[Entry], known: Known) -> Iterator[Wrong]:
    """What lines alone tell of a round: all in the one order, each buffer ended, opened once and seldom tried."""
    yield from _wrong_columns(number, entries, known.agrees)
    for before, entry in pairwise([None, *entries]):
        if entry is not None:
            yield from _wrong_line(number, before, entry)
    ended, open_ = _attempts(entries)
    for attempt in open_:
        sentence = "a buffer has no end: it was neither opened nor discarded"
        yield Wrong("order", sentence, number, attempt[0].buffer)
    yield from _twice(number, ended, open_)
    yield from _wrong_attempts(number, [*ended, *open_], ANSWERS[known.suite])
    sums = Counter((one.buffer, one.step) for one in entries if one.step in ONCE)
    for (buffer, step), times in sums.items():
        if times > 1:
            yield Wrong("twice", f"step {step} of a buffer came {times} times in one round", number, buffer)


def _wrong_columns(number: int, entries: Sequence[Entry], agrees: bool) -> Iterator[Wrong]:
    """Columns that are told where none are due, or the other way round."""
    told = {"terms", "columns"} & {entry.step for entry in entries}
    if agrees and told == {"terms"}:
        yield Wrong("order", "the server did not tell the columns that clients agreed on", number)
    if agrees and told == {"columns"}:
        yield Wrong("order", "the server told columns, and no sum was asked for", number)
    if not agrees and "columns" in told:
        yield Wrong("order", "the server told columns, and clients agree on none", number)


def _wrong_line(number: int, before: Entry | None, entry: Entry) -> Iterator[Wrong]:
    """A line that stands in no transcript, or not behind the one before it."""
    if entry.step == HIDDEN:
        sentence = f"line {entry.number} has step {HIDDEN}, which is for the eyes of one client"
        yield Wrong("message", sentence, number, entry.buffer)
    if not _may_follow(before, entry):
        sentence = f"line {entry.number} has step {entry.step} of {named(entry.sender)}, which does not follow there"
        yield Wrong("order", sentence, number, None if entry.step in OF_ROUND else entry.buffer)


def _attempts(entries: Sequence[Entry]) -> tuple[list[list[Entry]], list[list[Entry]]]:
    """The lines of each attempt at a buffer: of those that ended, and of those that did not."""
    open_: dict[int, list[Entry]] = {}
    ended: list[list[Entry]] = []
    for entry in entries:
        if entry.step in OF_ROUND:
            continue
        open_.setdefault(entry.buffer, []).append(entry)
        if entry.step in ENDS:
            ended.append(open_.pop(entry.buffer))
    return ended, [*open_.values()]


def _twice(number: int, ended: Sequence[Sequence[Entry]], open_: Sequence[Sequence[Entry]]) -> Iterator[Wrong]:
    """Steps that a sender sent twice in one attempt, and buffers that were opened twice."""
    for attempt in (*ended, *open_):
        for (step, sender), times in Counter((one.step, one.sender) for one in attempt).items():
            if times > 1:
                yield Wrong("twice", f"{named(sender)} sent step {step} {times} times", number, attempt[0].buffer)
    for buffer, times in Counter(one[-1].buffer for one in ended if one[-1].step in TOLD).items():
        if times > 1:
            yield Wrong("twice", f"a buffer was opened {times} times", number, buffer)


def _wrong_attempts(number: int, attempts: Sequence[Sequence[Entry]], answer: str) -> Iterator[Wrong]:
    """Attempts of a buffer behind one that was opened or answered, and more than honest parties make.

    Who answered told of one sum. Of another one, of other clients, the others would tell: the difference is a row.
    """
    opened, answered = set[int](), set[int]()
    for attempt in attempts:
        buffer, last = attempt[-1].buffer, attempt[-1].step
        if buffer in opened:
            yield Wrong("order", "a buffer was tried again after it was opened", number, buffer)
        elif buffer in answered:
            yield Wrong("order", "a buffer was tried again after clients answered in it", number, buffer)
        opened |= {buffer} if last in TOLD else set()
        answered |= {buffer} if any(one.step == answer for one in attempt) else set()
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
