"""Sizes: how many bytes each party of a buffer sends at most, by what suites put into messages.

They follow from the terms. Ciphertexts are compressed, so they are a little shorter. What frames a message on its way
is not counted, its signature is. A transcript holds whole envelopes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.secure import shamir
from fuaudit.secure.bfv import CIPHERTEXT_BYTES, KEYLESS_BYTES, MODULI
from fuaudit.secure.encrypted import LENGTH_BYTES
from fuaudit.secure.envelope import FRONT_BYTES, limits
from fuaudit.secure.masked import KEYS_BYTES, WORDS, dealt_bytes
from fuaudit.secure.messages import DIGEST_BYTES, SIGNATURE_BYTES, WAYS
from fuaudit.secure.names import has_key_holder
from fuaudit.secure.pairs import PUBLIC_BYTES
from fuaudit.secure.streams import KEY_BYTES
from fuaudit.secure.terms import LIBRARY, MOST_NUMBER, SLOTS, Terms, layout_of

PUBLIC_KEY_BYTES = 2 * len(MODULI) * 8 * SLOTS + 1024
"""Of a context with a public key, at most: two polynomials for each prime."""

VALUE_BYTES = 8
"""Of a sum that is opened."""

ENTRY_BYTES = 320
"""Of a line of the chain of a transcript, with numbers of up to eleven digits."""

UNRECORDED = ("discard", "handout", "terms")
"""Steps of no message in the transcript of a buffer that opens, and the terms, which are counted by themselves."""


@dataclass(frozen=True)
class Sent:
    """How many bytes a party sends to another one in a buffer, at most; of clients each."""

    party: str
    to: str
    size: int


def sent(suite: str, members: int, columns: int, bits: int, most: int) -> tuple[Sent, ...]:
    """What parties send in a buffer of so many members with rows of so many values; none in ``plain``.

    Args:
        bits: of a value.
        most: of how many clients the largest buffer is.

    Raises:
        UsageError: there is no layout for them.
    """
    if suite == "mask":
        return (Sent("client", "server", _of_masks(members, columns)),)
    if not has_key_holder(suite):
        return ()
    parts = layout_of(bits, most).ciphertexts(columns)
    row = parts * (LENGTH_BYTES + CIPHERTEXT_BYTES)
    key = PUBLIC_BYTES + SIGNATURE_BYTES if suite == "bfv+mask" else 0
    return (
        Sent("client", "server and witness", key + DIGEST_BYTES + SIGNATURE_BYTES + row),
        Sent("server", "witness and key holder", parts * CIPHERTEXT_BYTES),
        Sent("witness", "key holder", SIGNATURE_BYTES),
        Sent("key holder", "each client", DIGEST_BYTES + PUBLIC_KEY_BYTES + 2 * KEY_BYTES),
        Sent("key holder", "server", KEYLESS_BYTES + VALUE_BYTES * columns),
    )


def _of_masks(members: int, columns: int) -> int:
    """Keys, shares, a masked row, and shares again, each signed."""
    row = DIGEST_BYTES + 4 * (columns + WORDS)
    told = DIGEST_BYTES + shamir.SHARE_BYTES * members
    return KEYS_BYTES + dealt_bytes(members) + row + told + 4 * SIGNATURE_BYTES


def recorded(suite: str, members: int, columns: int, bits: int, most: int) -> int:
    """Bytes of a transcript that the messages of a buffer which opens take at most, with their lines.

    Args:
        members: how many clients are in it; arguments else as those of :func:`sent`.
    """
    keys = tuple(f"{number:064x}" for number in range(members + 2))
    witness, holder = keys[members:] if has_key_holder(suite) else ("", "")
    terms = Terms(
        suite, tuple(range(members)), columns, bits, most, members, keys[:members], LIBRARY, MOST_NUMBER, MOST_NUMBER,
        "0" * 32, "0" * 64, witness, holder, "0" * 64,
    )  # fmt: skip
    bodies = {step: largest for step, (_, largest) in limits(terms).items() if step not in UNRECORDED}
    counts = {step: members if WAYS[step][0] is None else 1 for step in bodies}
    frame = FRONT_BYTES + ENTRY_BYTES
    return frame + len(terms.body) + sum(counts[step] * (frame + size) for step, size in bodies.items())


def lot_bytes(clients: int) -> int:
    """Bytes of a transcript that the contributions of so many clients to the lot of a round take, with their lines."""
    return clients * (FRONT_BYTES + DIGEST_BYTES + ENTRY_BYTES)
