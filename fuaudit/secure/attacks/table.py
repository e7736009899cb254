"""Which attack must succeed on which suite, and on which it must not: the table of docs/secure-aggregation.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fuaudit.secure.attacks import buffers, keys, openings
from fuaudit.secure.attacks.opening import Got, Opening
from fuaudit.secure.names import EXACT, SCARY

HIDING = ("bfv+mask", "bfv", "mask")
"""Suites that hide rows from somebody."""


@dataclass(frozen=True)
class Attack:
    """An attack, and what must come of it.

    Attributes:
        by: who attacks, in words.
        play: what it gets of an opening of a suite.
        opens: the suites on which it must get the row: nothing there hides it from these attackers.
        closed: the suites on which it must not. Of others the question does not arise.
    """

    by: str
    play: Callable[[str, Opening], Got]
    opens: tuple[str, ...]
    closed: tuple[str, ...]


ATTACKS: Mapping[str, Attack] = {
    "key recovery": Attack("the server", keys.key_recovery, (SCARY,), ("bfv+mask", "bfv")),
    "single opening": Attack("the server, with the witness", openings.single_opening, (SCARY, "plain"), HIDING),
    "server with key holder": Attack(
        "the server, with the key holder", openings.key_holder_and_server, (SCARY, "bfv"), ("bfv+mask",)
    ),
    "copied ciphertext": Attack(
        "a client of a buffer of two, with the server", openings.copied_ciphertext, (SCARY,), HIDING
    ),
    "overflow": Attack("a client", openings.overflow, (SCARY,), HIDING),
    "faked dropouts": Attack("the server, with enough clients of a buffer", buffers.enough_colluders, HIDING, ()),
    "faked dropouts, one colluder less": Attack(
        "the server, with one client less", buffers.one_colluder_less, (), HIDING
    ),
    "invented clients": Attack("a server that makes the list of clients", buffers.invented_clients, EXACT, ()),
    "parent minus child": Attack("whoever has all sums of both", buffers.the_same_without_noise, EXACT, ()),
    "parent minus child, fresh noise": Attack("whoever has all sums of both", buffers.parent_minus_child, (), EXACT),
}
"""By their names. One that must succeed nowhere is the one before it under what hides a row."""


@dataclass(frozen=True)
class Played:
    """One attack on one suite: whether it got the row, and whether it had to."""

    attack: str
    suite: str
    due: bool
    got: bool


def played(suite: str, opening: Opening) -> Iterator[Played]:
    """All attacks on an opening of a suite of which the table says what must come of them."""
    for name, attack in ATTACKS.items():
        if suite in (*attack.opens, *attack.closed):
            yield Played(name, suite, suite in attack.opens, attack.play(suite, opening).succeeded)
