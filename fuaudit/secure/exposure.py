"""Exposure: with which chance a client's row is open to a server that has colluders among the clients.

Clients are put into buffers by a uniform lot. Whoever has the sum of a buffer and all of its rows but one has that one.
So a row is open where everybody else behind its sum colludes. From a buffer that opens with fewer rows than it has the
server leaves out honest clients: it says that they did not come.

All chances are fractions: hypergeometric sums over the lot, and no approximation. They are over the lot alone. Who
colludes is fixed before it, and takes part in every round: fewer expose less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, expm1, log1p

from fuaudit.secure.names import EXACT, floor_of, least_rows_of


@dataclass(frozen=True)
class Buffer:
    """A buffer of a round.

    Attributes:
        size: n, how many participations the lot puts into it, from 1.
        smallest: from how many rows on it is opened; n where it has to be complete, more where it never is.
        trained: how many of these are of clients with samples at least; 1 where the noise of others counts as a row.
    """

    size: int
    smallest: int
    trained: int = 2


def buffers_under(suite: str | None, pairs: Iterable[tuple[int, int]], trained: int = 2) -> tuple[Buffer, ...]:
    """Buffers of a round as the terms of a suite have them, of what a transport says of each: its two numbers.

    None is the simulator, which has no terms.
    """
    return tuple(Buffer(n, max(few, floor_of(n)) if suite in EXACT else few, trained) for n, few in pairs)


def fewest(suite: str | None, buffer: Buffer) -> int:
    """From how many rows on a buffer opens under a suite, from 2, where the server says who did not come.

    None is a sum that nobody can look into, by whatever means. ``docs/secure-aggregation.md`` has these bounds.
    """
    return max(buffer.smallest, least_rows_of(suite, buffer.size))


def partners_needed(suite: str | None, buffer: Buffer) -> int:
    """How many colluding partners in a buffer open a row of it; its size where no number of them does.

    In ``plain`` none is needed, of a buffer that opens. Behind ``mask`` there is a second way: as many clients as have
    to answer hold shares enough of both secrets of anybody. From a buffer that need not be complete fewer do: the
    server tells some clients that a row came, and the others that it did not, and each tells a share of one secret.
    """
    few = fewest(suite, buffer)
    if few > buffer.size:
        return buffer.size
    if suite == "plain":
        return 0
    if suite != "mask":
        return few - 1
    shares = fewest("mask", Buffer(buffer.size, 2))
    return max(1, min(few - 1, shares if few == buffer.size else 2 * shares - buffer.size))


def exposed(suite: str | None, buffers: Sequence[Buffer], colluders: int, empty: int = 0) -> Fraction:
    """With which chance the row of an honest client who takes part is open to the server in a round.

    Who has no samples hides nobody: her row is taken as known, also where it is noise. She counts in no sum, but for
    noise, and nobody has secrets of hers.

    Args:
        buffers: those of the round, m participations of m clients in all.
        colluders: f, how many of these collude with the server, from 0.
        empty: how many others have no samples in the round, from 0.

    Raises:
        ValueError: there are not as many others.
    """
    places = sum(buffer.size for buffer in buffers)
    if min(colluders, empty) < 0 or colluders + empty >= places:
        raise ValueError(f"of {places} clients {colluders} collude and {empty} are empty, and one has a row")
    return sum(
        (
            number * Fraction(one.size, places) * _opened(suite, one, places - 1, colluders, empty)
            for one, number in Counter(buffers).items()
        ),
        Fraction(0),
    )


def _opened(suite: str | None, buffer: Buffer, others: int, colluders: int, empty: int) -> Fraction:
    """The chance that the partners of a client in a buffer, drawn from so many others, open her row."""
    few, needed, partners = fewest(suite, buffer), partners_needed(suite, buffer), buffer.size - 1
    honest = others - colluders - empty
    ways = sum(
        comb(colluders, bad) * comb(empty, known) * comb(honest, partners - bad - known)
        for bad in range(partners + 1)
        for known in range(partners - bad + 1)
        if (bad >= needed and buffer.size - known >= buffer.trained)
        or (bad + known >= few - 1 and bad >= buffer.trained - 1)
    )
    return Fraction(ways, comb(others, partners))


def within_all(chances: Iterable[tuple[Fraction, int]]) -> float:
    """With which chance it happens at least once where each chance is that of so many rounds.

    A fraction would have as many digits as all of the rounds together. So logarithms are added up: they keep their
    relative precision also where chances are far below that of 1.
    """
    never = 0.0
    for chance, rounds in chances:
        if rounds and float(chance) == 1:
            return 1.0
        never += rounds and rounds * log1p(-float(chance))
    return 0.0 - expm1(never)  # never -0.0


def meeting(buffers: Sequence[Buffer]) -> Fraction:
    """With which chance two given clients who take part are in one buffer; times R it is how often they meet."""
    places = sum(buffer.size for buffer in buffers)
    return Fraction(sum(buffer.size * (buffer.size - 1) for buffer in buffers), max(1, places * (places - 1)))
