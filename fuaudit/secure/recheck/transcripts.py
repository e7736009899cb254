"""Recheck: what a transcript shows, by whoever has no key: chain, signatures, lots, counts, and every sum made again.

A pure function of a chain, of bodies, and of what the checker knows from elsewhere. Ciphertexts are added again bit for
bit, masked rows are unmasked by the shares that were told, rows in the open are added up. What is wrong is a finding.
What a transcript cannot show is said beside it, and no check of it can change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fuaudit.errors import FuauditError
from fuaudit.secure import bfv
from fuaudit.secure.adder import adder_of
from fuaudit.secure.encrypted import Summands
from fuaudit.secure.recheck.buffers import Buffers
from fuaudit.secure.recheck.known import Adder, Bodies, Known
from fuaudit.secure.recheck.limits import cannot
from fuaudit.secure.recheck.lots import Lots
from fuaudit.secure.recheck.order import TOLD, wrong_heads, wrong_order, wrong_roster
from fuaudit.secure.recheck.shown import Checked, Wrong, sentence_of
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import Opened, Plaintexts
from fuaudit.secure.transcript import ENDS, Chain, messages_of


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
    found: list[Wrong] = [*wrong_heads(chain, known), *wrong_roster(known)]
    opened: dict[tuple[int, int], Opened] = {}
    unplayed: list[tuple[int, tuple[int, ...]]] = []
    unmade: list[tuple[int, int, str]] = []
    unread, lots, attempts, columns = list[int](), Lots(known), set[str](), dict[int, Ints]()
    for number in _due_rounds(chain, known):
        entries = chain.of_round(number)
        body = bodies(number) if entries else b""
        found += [*wrong_order(number, entries, known)]
        if body is None:
            unread.append(number)
            continue
        try:
            messages = messages_of(entries, body, Path(f"the envelopes of round {number}"))
        except FuauditError as error:
            found.append(Wrong("body", sentence_of(error), number))
            continue
        buffers = Buffers(number, messages, known, add, attempts)
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
