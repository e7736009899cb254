"""Turns: what a party that is a process of its own does in one opening, in fixed order.

In a turn a party hears a frame of each of some others, works, and tells a frame to each of some. A frame holds
envelopes, none where somebody is silent. Who fails goes on in all its turns and says that it *broke off*, and so does
who hears of it. So every line carries as many frames in every opening, whatever happens: nobody waits in vain, and no
frame is left for the next one. Reasons do not cross from party to party. A line has one other end, so who sends a frame
that is not due is named by who hears it, in this opening or in those behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fuaudit.errors import FuauditError
from fuaudit.secure.envelope import FRONT_BYTES, Front, envelope, limits
from fuaudit.secure.lines import Line
from fuaudit.secure.messages import Message, Step
from fuaudit.secure.refusal import RefusedError, forgetting
from fuaudit.secure.terms import Terms

HERE, BROKE = b"here", b"broke"
"""How frames between parties begin; behind it stands of which terms they are."""

Due = Mapping[Step, int]
"""Step -> how many envelopes of it at most."""

NOTHING: Due = MappingProxyType({})

Heard = Mapping[str, Sequence[Message]]
"""Party -> what it said in a turn."""


class ElsewhereError(RefusedError):
    """Another party broke off, which is named; it says why to whoever started it."""


@dataclass(frozen=True)
class Turn:
    """One turn of a party.

    Attributes:
        hears: party -> what is due from it.
        work: from what was heard to what is told.
        tells: to whom.
    """

    hears: Mapping[str, Due]
    work: Callable[[Heard], Heard]
    tells: Sequence[str] = ()


def played(
    turns: Sequence[Turn], lines: Mapping[str, Line], terms: Terms, within: float, done: Callable[[], None]
) -> FuauditError | None:
    """Take all turns; ``done`` is called after each. What made this party break off, or None."""
    failed: FuauditError | None = None
    for turn in turns:
        heard: dict[str, Sequence[Message]] = {}
        told: Heard = {}
        for peer, due in turn.hears.items():
            try:
                heard[peer] = _heard(peer, lines[peer], due, terms, within)
            except RefusedError as error:
                failed = failed or error
        if failed is None:
            try:
                told = forgetting(turn.work)(heard)
            except FuauditError as error:
                failed = error
        for peer in turn.tells:
            parts = [_first(BROKE, terms)] if failed else [_first(HERE, terms), *map(envelope, told.get(peer, ()))]
            try:
                lines[peer].send(parts, within)
            except RefusedError as error:
                failed = failed or error
        done()
    return failed


def _first(word: bytes, terms: Terms) -> bytes:
    """The first part of a frame: one that is left of another opening is seen by it, also where it is empty."""
    return word + terms.digest


def _heard(peer: str, line: Line, due: Due, terms: Terms, within: float) -> list[Message]:
    """The messages of a frame. RefusedError for what is not due; signatures are looked at where they are used."""
    most = sum(count * (FRONT_BYTES + limits(terms)[step][1]) for step, count in due.items())
    broke, here = _first(BROKE, terms), _first(HERE, terms)
    word, *contents = line.receive(1 + sum(due.values()), len(broke) + most, within) or [b""]
    if word == broke:
        raise ElsewhereError(f"{peer} broke off")
    try:
        if word != here:
            raise RefusedError("it is of another opening, or of none")
        return _messages(contents, due, terms)
    except RefusedError as error:
        wrong = error.args[0]
    raise RefusedError(f"{peer} sends a frame that is not due: {wrong}")


def _messages(contents: Sequence[bytes], due: Due, terms: Terms) -> list[Message]:
    """The messages of envelopes. RefusedError for those of other terms, or of steps that are not due."""
    found = []
    for content in contents:
        front = Front.of(content)
        front.require(terms)
        found.append(front.message(content[FRONT_BYTES:]))
    counted = Counter(message.step for message in found)
    if any(count > due.get(step, 0) for step, count in counted.items()):
        raise RefusedError(
            f"messages of steps {', '.join(sorted(counted))} came, where {', '.join(sorted(due))} are due"
        )
    return found
