"""What a recheck shows: what is wrong, what was opened, and what nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from fuaudit.errors import FuauditError
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import Opened

Kind = Literal[
    # of a transcript
    "chain", "head", "roster", "body", "order", "lot", "buffer", "terms", "message", "sum", "receipt", "twice",
    # of the run that it belongs to
    "beginning", "context", "difference", "draws", "model", "rule", "suite", "told",
]  # fmt: skip
"""What something that is wrong is about."""

T = TypeVar("T")


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


def sentence_of(error: FuauditError) -> str:
    """What an error says, without its hint."""
    return str(error.args[0])
