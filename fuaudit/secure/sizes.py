"""Sizes: how many bytes each party of a buffer sends at most, by what suites put into messages.

They follow from the terms, as whole envelopes. Ciphertexts are compressed, so they are a little shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.secure.envelope import FRONT_BYTES, limits
from fuaudit.secure.messages import DIGEST_BYTES, WAYS
from fuaudit.secure.names import NAMES, has_key_holder
from fuaudit.secure.terms import COLUMN_BYTES, LIBRARY, MOST_NUMBER, Terms

ENTRY_BYTES = 320
"""Of a line of the chain of a transcript, with numbers of up to eleven digits."""

UNRECORDED = ("discard", "handout", "terms")
"""Steps of no message in the transcript of a buffer that opens, and the terms, which are counted by themselves."""


@dataclass(frozen=True)
class Sent:
    """How many bytes a party sends to another one for a buffer, at most; a client those of her own."""

    party: str
    to: str
    size: int


def sent(suite: str, members: int, columns: int, bits: int, most: int, agreed: bool = False) -> tuple[Sent, ...]:
    """What parties send for a buffer of so many members with rows of so many values, in whole envelopes.

    Contributions to the lot of a round are in it, and columns, where clients ``agreed`` on them. What a server passes
    on is not counted again.

    Args:
        bits: of a value.
        most: of how many clients the largest buffer is.

    Raises:
        UsageError: there is no layout for them.
    """
    terms = _terms(suite, members, columns, bits, most)
    bodies = {step: largest for step, (_, largest) in limits(terms).items() if step != "discard"}
    bodies["terms"], bodies["lot"] = len(terms.body), DIGEST_BYTES
    if agreed:
        bodies["columns"] = COLUMN_BYTES * columns
    found: dict[tuple[int | None, int | None], int] = {}
    for step, largest in bodies.items():
        found[WAYS[step]] = found.get(WAYS[step], 0) + FRONT_BYTES + largest
    return tuple(
        Sent(_called(way[0], "client"), _called(way[1], "each client"), found[way])
        for way in sorted(found, key=lambda way: [-(party or 0) for party in way])
        if way[0] != way[1]  # what a party notes it sends to nobody
    )


def _called(party: int | None, client: str) -> str:
    return client if party is None else NAMES[party].removeprefix("the ")


def recorded(suite: str, members: int, columns: int, bits: int, most: int) -> int:
    """Bytes of a transcript that the messages of a buffer which opens take at most, with their lines.

    Args:
        members: how many clients are in it; arguments else as those of :func:`sent`.
    """
    terms = _terms(suite, members, columns, bits, most)
    bodies = {step: largest for step, (_, largest) in limits(terms).items() if step not in UNRECORDED}
    counts = {step: members if WAYS[step][0] is None else 1 for step in bodies}
    frame = FRONT_BYTES + ENTRY_BYTES
    return frame + len(terms.body) + sum(counts[step] * (frame + size) for step, size in bodies.items())


def _terms(suite: str, members: int, columns: int, bits: int, most: int) -> Terms:
    """Terms of such a buffer that are as long as any."""
    keys = tuple(f"{number:064x}" for number in range(members + 2))
    witness, holder = keys[members:] if has_key_holder(suite) else ("", "")
    return Terms(
        suite, tuple(range(members)), columns, bits, most, members, keys[:members], LIBRARY, MOST_NUMBER, MOST_NUMBER,
        "0" * 32, "0" * 64, witness, holder, "0" * 64,
    )  # fmt: skip


def lot_bytes(clients: int) -> int:
    """Bytes of a transcript that the contributions of so many clients to the lot of a round take, with their lines."""
    return clients * (FRONT_BYTES + DIGEST_BYTES + ENTRY_BYTES)
