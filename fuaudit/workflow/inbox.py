"""Inbox: the messages of one round of a real federation. What cannot be used is rejected with a reason, by name."""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuaudit.errors import UsageError
from fuaudit.text import counted
from fuaudit.training.asking import are_columns
from fuaudit.training.events import (
    LATE,
    NO_NUMBERS,
    NOT_FINITE,
    NOT_IN_ROUND,
    REJECTED_FOR,
    TWICE,
    WRONG_LENGTH,
    Rejected,
)
from fuaudit.training.received import Received

OF_ANOTHER = TWICE, LATE, NOT_IN_ROUND
"""Reasons that are about another message than the one of this round that was taken."""


def whole(given: Any) -> int | None:
    """A whole number of whatever kind, as int; None for anything else: a truth value is none, and neither is 3.0."""
    if isinstance(given, bool | np.bool_) or (isinstance(given, Tensor) and given.dtype is torch.bool):
        return None
    try:
        return operator.index(given)
    except Exception:  # whatever came in a message: it may be of any class
        return None


@dataclass
class Inbox:
    """What came of one round so far.

    Attributes:
        cohort: the clients of its places.
        known: all clients of the federation who are left: of nobody else a rejected message is recorded.
        dimension: of the model.
        dtype: of its rows.
        sums: whether the transport shows sums.
        agreeing: whether clients agree on coordinates.
        rows: by places, where rows are shown.
        means: of sums, each with its number.
        discarded: how many sums were not taken; more than clients take part are not counted.
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

    def reject(self, client: Any, why: str) -> Rejected:
        """Note that the server does not take a client's message, and drop the rows of the client that were taken.

        They stay where the reason is about another message.

        Raises:
            UsageError: the reason is none of ``REJECTED_FOR``.
        """
        if why not in REJECTED_FOR:
            raise UsageError(f"{why!r} is no reason to reject a message", f"There are: {', '.join(REJECTED_FOR)}.")
        for place, one in enumerate(self.cohort if why not in OF_ANOTHER else ()):
            if one == whole(client):
                self.rows.pop(place, None)
        return self._note(client, why)

    def _note(self, client: Any, why: str) -> Rejected:
        """Note that a message is not taken; whom the federation does not know is not noted."""
        number = whole(client)
        if number is None or number not in self.known:
            return Rejected(client, why)
        self.rejected.add((number, why))
        self.answered.add(number)
        return Rejected(number, why)

    def stray(self, client: Any, why: str) -> Rejected:
        """Note a message of another round: who sends nothing else did not answer in this one."""
        answered = whole(client) in self.answered
        found = self._note(client, why)
        self.answered -= set() if answered else {whole(client)}
        return found

    def agree(self, coordinates: Any) -> None:
        """Take the columns that all agreed on, ``(c,)``, before any row comes.

        Raises:
            UsageError: the config has no agreement, rows have come, or they are no ascending columns of the model.
        """
        if not self.agreeing or self.rows or self.means:
            told = "rows have come already" if self.agreeing else "the clients of this config agree on no coordinates"
            raise UsageError(f"coordinates cannot be agreed on: {told}")
        found = _columns_of(coordinates)
        if found is None or not are_columns(found, self.dimension):
            raise UsageError(f"coordinates must ascend, each once, as whole numbers from 0 to {self.dimension - 1}")
        self.coordinates = found

    def row(self, client: Any, update: Any) -> Rejected | None:
        """Take the row ``(c,)`` of a client, for the first of its places that has none.

        Raises:
            UsageError: the transport shows sums, or coordinates were not agreed on.
        """
        self._require(sums=False)
        places = [place for place, one in enumerate(self.cohort) if one == whole(client)]
        free = [place for place in places if place not in self.rows]
        if not places:
            return self._note(client, NOT_IN_ROUND)
        if not free:
            return self._note(client, TWICE)
        found = self._numbers(update)
        if isinstance(found, str):
            return self._note(client, found)
        self.rows[free[0]] = found
        return None

    def total(self, total: Any, count: Any) -> str:
        """Take the sum ``(c,)`` of so many rows; why it is not taken, in words, empty where it is.

        Raises:
            UsageError: the transport shows rows, coordinates were not agreed on, or a sum is of fewer than two, or of
                more than are left.
        """
        self._require(sums=True)
        left, rows = len(self.cohort) - sum(number for _, number in self.means), whole(count)
        if rows is None or not 2 <= rows <= left:
            raise UsageError(f"a sum of {count} rows cannot be of this round: it is of 2 to {left}")
        found = self._numbers(total, rows)
        if isinstance(found, str):
            self.discarded = min(self.discarded + 1, len(self.cohort))
            return found
        self.means.append((found, rows))
        return ""

    def closed(self, absent: Collection[int] = ()) -> Received:
        """What came, when the round is over.

        Args:
            absent: behind sums the clients who did not answer. Where rows are shown they are known.

        Raises:
            UsageError: coordinates were not agreed on, others than clients of the round are said to be absent, or a
                record of it could not be opened.
        """
        found = self._closed(absent)
        for wrong in found.wrong(self.cohort, self.dimension, self.agreeing, self.sums):
            raise UsageError(f"what came of the round has {wrong}")
        return found

    def _closed(self, absent: Collection[int]) -> Received:
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

    def _place(self, client: Any) -> int:
        number = whole(client)
        if number is None or number not in self.cohort:
            raise UsageError(f"client {client} does not take part in this round")
        return self.cohort.index(number)

    @property
    def _columns(self) -> int:
        return self.dimension if self.coordinates is None else len(self.coordinates)

    def _table(self, rows: list[Tensor]) -> Tensor:
        return torch.stack(rows) if rows else torch.zeros(0, self._columns, dtype=self.dtype)

    def _numbers(self, given: Any, count: int = 1) -> Tensor | str:
        """A row in the run's type, divided by a number; or why it is none."""
        try:
            found = _dense(given)
            if found is None or found.is_complex() or found.dtype is torch.bool:
                return NO_NUMBERS
            if found.shape != (self._columns,):
                return WRONG_LENGTH
            mean = (found.to(torch.float64) / count if count > 1 else found).to(self.dtype, copy=True)
            return mean if bool(mean.isfinite().all()) else NOT_FINITE
        except Exception:  # whatever came in a message: it may be of any class, and of kinds that torch only stores
            return NO_NUMBERS


def _dense(given: Any) -> Tensor | None:
    """A tensor on the CPU, a place for each number; None for what is packed otherwise. Raises what torch raises."""
    if isinstance(given, np.ma.MaskedArray):
        return None
    if isinstance(given, np.ndarray) and given.dtype.kind in "Oiuf":  # in the order of bytes, and of places, of torch
        given = given.tolist() if given.dtype.kind == "O" else _native(given)
    found = torch.as_tensor(given).detach().cpu().as_subclass(Tensor)
    packed = found.layout is not torch.strided or found.is_quantized or found.is_nested
    return None if packed else found


def _native(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """An array with the bytes of each number, and the numbers, in the machine's order."""
    wide = array.dtype.kind == "f" and array.dtype.itemsize > 8  # a kind that torch has not
    return np.ascontiguousarray(array, dtype=np.float64 if wide else array.dtype.newbyteorder("="))


def _columns_of(given: Any) -> Tensor | None:
    """Columns ``(c,)`` of one's own, int64; None for what are no whole numbers of 64 bits."""
    try:
        found = _dense(given)
        if found is None or (len(found) and (found.is_floating_point() or found.dtype is torch.bool)):
            return None
        return found.to(torch.int64, copy=True).reshape(-1)
    except Exception:  # as for rows
        return None
