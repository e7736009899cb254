"""Partitions: which client owns which training rows. Drawn once, recorded, never drawn again by a deletion.

A partition may look at the labels: it describes the world that the audit takes as given, it is no part of
learning. Its draws come from the run's key, through NumPy's Generator over Philox, and only the recorded
result counts afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from fuaudit.draws import Keyed, Purpose
from fuaudit.draws.keyed import philox_key
from fuaudit.errors import UsageError
from fuaudit.plans import Population

Labels = NDArray[np.int64]


class Partition(Protocol):
    """A registered partition: a frozen dataclass that deals rows to clients 0 .. clients - 1."""

    def deal(self, targets: Labels, draws: Generator) -> list[list[int]]:
        """The rows of every client; ``targets (N,)`` are the labels. UsageError if they cannot be dealt so."""
        ...


def partition(plugin: Partition, targets: Labels, source: Keyed) -> Population:
    """Deal all rows, and check that no row has two owners.

    Raises:
        UsageError: more clients than rows, or a row that was dealt twice.
    """
    key = np.array(philox_key(source.secret, Purpose.PARTITION), dtype=np.uint64)
    hands = plugin.deal(targets, Generator(Philox(key=key)))
    rows = [row for hand in hands for row in hand]
    if len(set(rows)) != len(rows):
        raise UsageError("the partition gave one sample to two clients")
    return Population({client: tuple(sorted(map(int, hand))) for client, hand in enumerate(hands)})


def _require_clients(clients: int, rows: int) -> None:
    if not 1 <= clients <= rows:
        raise UsageError(f"{clients} clients cannot share {rows} samples", "Choose from 1 client to one a sample.")


@dataclass(frozen=True)
class Iid:
    """Rows in random order, dealt out evenly."""

    clients: int

    def deal(self, targets: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        _require_clients(self.clients, len(targets))
        return [hand.tolist() for hand in np.array_split(draws.permutation(len(targets)), self.clients)]


@dataclass(frozen=True)
class OneHolder:
    """Client 0 alone holds one class ("the one clinic with this condition"); the others share the rest evenly."""

    clients: int
    label: int = 9

    def deal(self, targets: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        held = np.flatnonzero(targets == self.label)
        rest = draws.permutation(np.flatnonzero(targets != self.label))
        if not len(held) or self.clients < 2:
            raise UsageError(f"one client shall hold class {self.label} alone: that needs such rows and 2 clients")
        _require_clients(self.clients - 1, len(rest))
        return [held.tolist(), *(hand.tolist() for hand in np.array_split(rest, self.clients - 1))]


@dataclass(frozen=True)
class Dirichlet:
    """Equal numbers of rows, class mixtures drawn per client.

    Convention: every client draws class proportions from Dirichlet(concentration, ..., concentration) and
    takes its N // clients rows one by one, each from a class drawn by these proportions among the classes not
    yet used up (Hsu, Qi, Brown, arXiv 1909.06335, "LDA"). Sizes are equal; rows that do not divide stay unused.
    The other convention, a Dirichlet per class over clients, gives unequal sizes and is not this one.
    """

    clients: int
    concentration: float = 0.5

    def deal(self, targets: Labels, draws: Generator) -> list[list[int]]:
        """See :class:`Partition`."""
        _require_clients(self.clients, len(targets))
        if not self.concentration > 0:
            raise UsageError("the concentration of a Dirichlet partition must be above 0")
        classes = np.unique(targets)
        pools = [draws.permutation(np.flatnonzero(targets == label)).tolist() for label in classes]
        hands: list[list[int]] = []
        for _ in range(self.clients):
            mixture = draws.dirichlet(np.full(len(classes), self.concentration)) + 1e-12  # never all zero
            hand = []
            for _ in range(len(targets) // self.clients):
                left = mixture * np.array([bool(pool) for pool in pools])
                place = int(np.searchsorted(np.cumsum(left), draws.random() * left.sum(), side="right"))
                hand.append(pools[place].pop())
            hands.append(hand)
        return hands
