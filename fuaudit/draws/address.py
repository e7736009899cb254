"""Where a draw stands: its address, and the one total order in which draws are made.

An address says what a draw is for and *whom* it concerns (client and occurrence). It never names a slot in an array,
so removing a client shifts nobody else's random numbers. The population version is part of the address, so a key that
is used again over a smaller population cannot repeat old numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

NOBODY = -1
"""The client of a draw that concerns the whole federation."""


class Purpose(StrEnum):
    """What a draw decides. The value is part of the key of the draw, so it never changes its meaning."""

    INIT = "init"
    COHORT = "cohort"
    AVAILABILITY = "availability"
    COUPLING = "coupling"
    BATCH = "batch"
    CUT = "cut"
    PERMUTATION = "permutation"
    PARTITION = "partition"
    AUDIT = "audit"
    STAGE = "stage"
    CLIENT_STAGE = "client stage"
    SOLVER = "solver"


class Stream(StrEnum):
    """Draws of a plan that an unlearner keeps or draws anew together, each from a position on."""

    INITIAL = "initial"
    COHORTS = "cohorts"
    BATCHES = "batches"


STREAM_OF: Mapping[Purpose, Stream] = {
    Purpose.INIT: Stream.INITIAL,
    Purpose.COHORT: Stream.COHORTS,
    Purpose.AVAILABILITY: Stream.COHORTS,
    Purpose.COUPLING: Stream.COHORTS,
    Purpose.BATCH: Stream.BATCHES,
    Purpose.CUT: Stream.BATCHES,
    Purpose.PERMUTATION: Stream.BATCHES,
}
"""The stream of every purpose that plans use."""

OPEN = frozenset(purpose for purpose, stream in STREAM_OF.items() if stream is not Stream.INITIAL)
"""What laws of strangers and rewriters may draw: cohorts and batches, and what lies behind them."""


class Position(NamedTuple):
    """A moment of training: rounds count from 1; step 0 draws the cohort, steps 1..E draw batches.

    Tuples compare in the declared total order of draws, which defines "first changed position".
    """

    round: int
    step: int


START = Position(0, 0)
"""Before the first round: the initial model is drawn here."""

LARGEST = 2**31
"""Above every number of an address. Larger ones, and numbers below zero, would be other addresses to a key."""

END = Position(LARGEST - 1, 0)
"""After every round that a plan can have."""


class Address(NamedTuple):
    """The name of one draw under one key.

    ``round`` and ``step`` as in :class:`Position`; ``client`` is a stable client id or ``NOBODY``;
    ``occurrence`` counts the places of that client in the cohort, from 0; ``version`` counts the requests
    carried out before this draw, from 0. All are below 2**31.
    """

    purpose: Purpose
    round: int = 0
    step: int = 0
    client: int = NOBODY
    occurrence: int = 0
    version: int = 0

    @property
    def position(self) -> Position:
        """When the draw is made."""
        return Position(self.round, self.step)


def is_address(at: Any) -> bool:
    """Whether it is an address of plain numbers, each in its range. All other questions have answers that differ.

    A key makes one counter of five numbers, so some that are no address would be one draw to it, and two in a proof.
    """
    if type(at) is not Address:
        return False
    purpose, t, step, client, occurrence, version = at
    plain = type(t) is type(step) is type(client) is type(occurrence) is type(version) is int
    if not plain or type(purpose) is not Purpose:
        return False
    when = 0 <= t < LARGEST and 0 <= step < LARGEST
    return when and NOBODY <= client < LARGEST and 0 <= occurrence < LARGEST and 0 <= version < LARGEST
