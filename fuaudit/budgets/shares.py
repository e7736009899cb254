"""Noise in shares: every client adds its part, and whoever sees a sum faces the shares in it that it does not know.

Each of K clients adds noise of variance z^2 / K. A sum with h shares that the reader does not know has noise of
variance h z^2 / K, so the multiplier is z sqrt(h / K). A client's own share always counts: who colludes with all others
does not know hers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import nextafter, sqrt

from fuaudit.errors import UsageError
from fuaudit.text import counted

SIMULATION = "simulation only: the clients' secrets lie with the run, and who has them knows the noise"
SHARED = "every client adds its own share of the noise, and keeps its secret to itself"
SUMS_ALONE = (
    "a client takes part once in a round, of rows nothing but sums is seen, and no client sends again what its noise "
    "took away. So no coordinates are agreed on, and no error-feedback stands in front of the noise: with it the noise "
    "cancels from round to round, and there is no account of sums"
)
"""What accounts of sums assume beside."""


@dataclass(frozen=True)
class Shares:
    """How noise is divided, and who may be against a client.

    Args:
        clients: K, into how many shares the noise was divided.
        buffer: how many clients the smallest opened buffer has; 1 without buffers.
        colluding: how many other clients tell a reader their shares.
        absent: how many did not come, and took their share with them.
    """

    clients: int
    buffer: int
    colluding: int = 0
    absent: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.buffer <= self.clients:
            raise UsageError(f"a buffer of {self.clients} clients has 1 to {self.clients} of them, not {self.buffer}")
        if min(self.colluding, self.absent) < 0 or self.colluding + self.absent >= self.clients:
            raise UsageError(
                f"of {self.clients} clients {self.colluding} cannot collude and {self.absent} be absent: one is the "
                "client that is protected"
            )

    def unknown(self, size: int) -> int:
        """Shares in a sum of so many clients that a reader does not know, at least: the worst are all in it."""
        return max(1, size - self.colluding - self.absent)


@dataclass(frozen=True)
class Face:
    """What somebody sees: a sum with so many unknown shares, and the multiplier of its noise, rounded down."""

    seen: str
    unknown: int
    noise: float

    def trust(self, secrets_beside: bool) -> str:
        """Who is trusted with what, where the clients' secrets lie with the run, or do not."""
        who = SIMULATION if secrets_beside else SHARED
        return f"{who}. Assumed: {SUMS_ALONE}" if self.unknown > 1 else who


def faces(noise: float, shares: Shares) -> tuple[Face, Face, Face]:
    """Of the total, of a buffer, and of a row: from most noise to least; ``noise`` is that of all shares together."""
    sums = (
        (f"the sum of all {counted(shares.clients, 'client')}", shares.clients),
        (f"the sum of a buffer of {counted(shares.buffer, 'client')}", shares.buffer),
        ("the row of a client", 1),
    )
    return tuple(_face(seen, shares.unknown(size), noise, shares) for seen, size in sums)  # type: ignore[return-value]


def _face(seen: str, unknown: int, noise: float, shares: Shares) -> Face:
    less = noise * sqrt(Fraction(unknown, shares.clients))
    told = f"{seen}, of whose noise it does not know {counted(unknown, 'share')} of {shares.clients:,}"
    return Face(told, unknown, noise if unknown == shares.clients else nextafter(less, 0.0) * (1 - 2.0**-50))
