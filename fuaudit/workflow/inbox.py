"""Inbox: the messages of one round of a real federation. What cannot be used is rejected with a reason, by name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fuaudit.errors import UsageError
from fuaudit.text import counted
from fuaudit.training.events import Rejected
from fuaudit.training.exchange import NOT_FINITE, REJECTED_FOR
from fuaudit.training.received import Received


@dataclass
class Inbox:
    """What came of one round so far.

    Attributes:
        cohort: the clients of its places.
        known: all clients of the federation: of nobody else a rejected message is recorded.
        dimension: of the model.
        dtype: of its rows.
        sums: whether the transport shows sums.
        agreeing: whether clients agree on coordinates.
        rows: by places, where rows are shown.
        means: of sums, each with its number.
        discarded: how many sums were not taken.
        rejected: whose messages were not taken, and why.
        answered: who of them sent one of this round.
        coordinates: those that were agreed on, ``(c,)``.
    """

    cohort: tuple[int, ...]
    known: Collection[int]
    dimension: int
    dtype: torch.dtype
    sums: bool
    agreeing: bool
    rows: dict[int, Tensor] = field(default_factory=dict)
    means: list[tuple[Tensor, int]] = field(default_factory=list)
    discarded: int = 0
    rejected: set[tuple[int, str]] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    coordinates: Tensor | None = None

    def reject(self, client: int, why: str) -> Rejected:
        """Note that a message of a client is not taken; a client whom the federation does not know is not noted.

        Raises:
            UsageError: the reason is none of ``REJECTED_FOR``.
        """
        if why not in REJECTED_FOR:
            raise UsageError(f"{why!r} is no reason to reject a message", f"There are: {', '.join(REJECTED_FOR)}.")
        if client in self.known:
            self.rejected.add((client, why))
            self.answered.add(client)
        return Rejected(client, why)

    def stray(self, client: int, why: str) -> Rejected:
        """Note a message of another round: who sends nothing else did not answer in this one."""
        answered = client in self.answered
        found = self.reject(client, why)
        self.answered -= set() if answered else {client}
        return found

    def agree(self, coordinates: Any) -> None:
        """Take the columns that all agreed on, ``(c,)``, before any row comes.

        Raises:
            UsageError: the config has no agreement, rows have come, or they are no ascending columns of the model.
        """
        if not self.agreeing or self.rows or self.means:
            told = "rows have come already" if self.agreeing else "the clients of this config agree on no coordinates"
            raise UsageError(f"coordinates cannot be agreed on: {told}")
        found = torch.as_tensor(coordinates, dtype=torch.int64).reshape(-1)
        inside = not len(found) or 0 <= int(found[0]) <= int(found[-1]) < self.dimension
        if not inside or not bool((found[1:] > found[:-1]).all()):
            raise UsageError(f"coordinates must ascend, each once, from 0 to {self.dimension - 1}")
        self.coordinates = found

    def row(self, client: int, update: Any) -> Rejected | None:
        """Take the row ``(c,)`` of a client, for the first of its places that has none.

        Raises:
            UsageError: the transport shows sums, or coordinates were not agreed on.
        """
        self._require(sums=False)
        places = [place for place, one in enumerate(self.cohort) if one == client]
        free = [place for place in places if place not in self.rows]
        if not places:
            return self.reject(client, "not in the round")
        if not free:
            return self.reject(client, "twice")
        found = self._numbers(update)
        if isinstance(found, str):
            return self.reject(client, found)
        self.rows[free[0]] = found
        return None

    def total(self, total: Any, count: int) -> str:
        """Take the sum ``(c,)`` of so many rows; why it is not taken, in words, empty where it is.

        Raises:
            UsageError: the transport shows rows, coordinates were not agreed on, or a sum is of fewer than two, or of
                more than are left.
        """
        self._require(sums=True)
        left = len(self.cohort) - sum(number for _, number in self.means)
        if not 2 <= count <= left:
            raise UsageError(f"a sum of {count} rows cannot be of this round: it is of 2 to {left}")
        found = self._numbers(total, count)
        if isinstance(found, str):
            self.discarded += 1
            return found
        self.means.append((found, count))
        return ""

    def closed(self, absent: Collection[int] = ()) -> Received:
        """What came, when the round is over.

        Args:
            absent: behind sums the clients who did not answer. Where rows are shown they are known.

        Raises:
            UsageError: coordinates were not agreed on, or others than clients of the round are said to be absent.
        """
        self._require(self.sums)
        rejected = tuple(sorted(self.rejected))
        if self.sums:
            places = tuple(sorted({self._place(client) for client in absent}))
            summed = sum(number for _, number in self.means) + len(places)
            if summed > len(self.cohort):
                raise UsageError(f"{summed} are summed or absent, and {counted(len(self.cohort), 'client')} take part")
            rows, counts = [row for row, _ in self.means], tuple(number for _, number in self.means)
            return Received(self._table(rows), None, counts, places, rejected, self.discarded, self.coordinates)
        if absent:
            raise UsageError("where rows are shown nobody has to be said to be absent")
        silent = (n for n, client in enumerate(self.cohort) if n not in self.rows and client not in self.answered)
        came = tuple(sorted(self.rows))
        rows = [self.rows[place] for place in came]
        return Received(self._table(rows), came, None, tuple(silent), rejected, 0, self.coordinates)

    def _require(self, sums: bool) -> None:
        if sums != self.sums:
            told = "sums alone" if self.sums else "the row of each client"
            raise UsageError(f"the transport of this config shows {told}")
        if self.agreeing and self.coordinates is None:
            raise UsageError("clients of this config agree on coordinates", "Give these first: agree(coordinates).")

    def _place(self, client: int) -> int:
        if client not in self.cohort:
            raise UsageError(f"client {client} does not take part in this round")
        return self.cohort.index(client)

    @property
    def _columns(self) -> int:
        return self.dimension if self.coordinates is None else len(self.coordinates)

    def _table(self, rows: list[Tensor]) -> Tensor:
        return torch.stack(rows) if rows else torch.zeros(0, self._columns, dtype=self.dtype)

    def _numbers(self, given: Any, count: int = 1) -> Tensor | str:
        """A row in the run's type, divided by a number; or why it is none."""
        try:
            whole = torch.as_tensor(given).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            return "no numbers"
        if whole.is_complex() or whole.dtype is torch.bool:
            return "no numbers"
        if whole.shape != (self._columns,):
            return "wrong length"
        mean = (whole.to(torch.float64) / count if count > 1 else whole).to(self.dtype, copy=True)
        return mean if bool(mean.isfinite().all()) else NOT_FINITE
