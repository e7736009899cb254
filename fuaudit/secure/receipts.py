"""Receipts: what an opened sum is told as, by the key holder under its signature, or by the server where there is none.

The server of ``mask`` and ``plain`` has no key to sign with. Everybody can compute its sum again from the messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fuaudit.secure.messages import DIGEST_BYTES, ID_BYTES, Message, Step, ids_bytes, ids_of
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import Terms

SUM_BYTES = 4
"""Of a sum: 32 values of 24 bits have fewer bits than 32."""


@dataclass(frozen=True)
class Receipt:
    """An opened sum.

    Attributes:
        total: digest of what was opened, 32 bytes: of the sum of ciphertexts, or of the list of rows that came.
        members: whose rows were added up, ascending.
        sums: ``(c,)`` int64.
    """

    total: bytes
    members: tuple[int, ...]
    sums: Ints = field(repr=False)

    def body(self) -> bytes:
        """All of it in bytes."""
        return self.total + ids_bytes(self.members) + self.sums.astype("<i4").tobytes()

    @classmethod
    def of(cls, message: Message, terms: Terms) -> Receipt:
        """The inverse. RefusedError for what is no sum of two clients or more of this buffer."""
        least, most = receipt_bytes(terms)
        body = message.require(step_of(terms), least, most, terms)
        start = len(body) - SUM_BYTES * terms.columns
        members, left = ids_of(body[DIGEST_BYTES:start]), (start - DIGEST_BYTES) % ID_BYTES
        sums = np.frombuffer(body[start:], dtype="<i4").astype(np.int64)
        if left or list(members) != sorted(set(members) & set(terms.members)):
            raise RefusedError(f"a receipt is of {members}, which are not clients of this buffer, each once, ascending")
        if (abs(sums) > len(members) * terms.largest).any():
            raise RefusedError("a receipt tells sums that no rows of these terms have")
        return cls(body[:DIGEST_BYTES], members, sums)


def step_of(terms: Terms) -> Step:
    """At which step a sum is told: by the key holder, or by the server where there is none."""
    return "receipt" if terms.holder else "opened"


def receipt_bytes(terms: Terms) -> tuple[int, int]:
    """Of a receipt, least and most."""
    fixed = DIGEST_BYTES + SUM_BYTES * terms.columns
    return fixed + 2 * ID_BYTES, fixed + ID_BYTES * len(terms.members)
