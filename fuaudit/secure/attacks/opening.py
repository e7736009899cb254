"""A small opening to attack, and what came of an attack on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fuaudit.secure.streams import Ints

VICTIM = 0
"""The client whose row is wanted; those after it collude, as many as an attack says."""


@dataclass(frozen=True)
class Opening:
    """What an attack is tried on.

    Attributes:
        rows: ``(s, c)`` int64, of values of so many ``bits``.
        noise: ``(2, s, c)`` int64, what clients add in two trainings; zeros for no noise.
        most: of how many clients the largest buffer is.
        size: how many of the clients are in a buffer that may open with fewer; None is all of them.
        smallest: from how many rows on that buffer opens; None is all of them.
    """

    rows: Ints = field(repr=False)
    noise: Ints = field(repr=False)
    bits: int = 12
    most: int = 8
    size: int | None = None
    smallest: int | None = None

    @property
    def buffer(self) -> Ints:
        """The rows of the buffer that may open with fewer."""
        return self.rows[: self.size]

    @property
    def row(self) -> Ints:
        """The row that is wanted."""
        victim: Ints = self.rows[VICTIM]
        return victim

    @property
    def largest(self) -> int:
        """L, the largest value."""
        return (1 << self.bits - 1) - 1


@dataclass(frozen=True)
class Got:
    """What an attack got, None where it was refused, and what it wanted, of one shape."""

    found: Ints | None = field(repr=False)
    due: Ints = field(repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether more than a tenth of the values is right: of noise hardly any is."""
        return self.found is not None and float(np.mean(self.found == self.due)) > 0.1
