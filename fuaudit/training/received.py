"""Received: the delivery of a round that came in messages of a real federation, and who did not answer.

A round is entered at its delivery: local steps and client stages were the clients' own, and the server's stages work on
what came. Nothing regenerates what came. So a record says what a transport shows, and no more: rows and who sent them,
or means of sums and how many are in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fuaudit.training.asking import are_columns
from fuaudit.training.contracts import Delivery
from fuaudit.training.events import Event, Rejected, Summed
from fuaudit.training.rounds import Cohort, ExchangeContext

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Received:
    """What came of one round, of n places.

    Attributes:
        rows: what the server sees, ``(b, c)``; behind sums each is a sum over its number.
        places: whose rows they are, as places of the round's cohort, ascending; None behind sums.
        counts: of how many participations each row is the mean; None where rows are shown.
        absent: the places of those who did not answer, ascending.
        rejected: whose messages were not taken and why, a pair of client and reason each, ascending; reasons are of
            :data:`~fuaudit.training.events.REJECTED_FOR`.
        discarded: how many sums were not taken.
        coordinates: which columns all agreed on, ``(c,)``, ascending; None for all.
    """

    rows: Tensor
    places: tuple[int, ...] | None
    counts: tuple[int, ...] | None
    absent: tuple[int, ...] = ()
    rejected: tuple[tuple[int, str], ...] = ()
    discarded: int = 0
    coordinates: Tensor | None = None

    @property
    def events(self) -> Iterator[tuple[str, Event]]:
        """What the round tells of its messages, each with the part that tells it."""
        for client, why in self.rejected:
            yield "exchange", Rejected(client, why)
        if self.counts is not None:
            yield "transport", Summed(self.counts, self.discarded, not self.counts)

    def without_sums(self, drawn: int) -> Received:
        """The same where no sum was taken: all count as discarded, of so many places as many at most."""
        discarded = min(self.discarded + len(self.counts or ()), drawn)
        return replace(self, rows=self.rows[:0], counts=(), discarded=discarded)

    def entered(self, context: ExchangeContext) -> tuple[Delivery, ExchangeContext]:
        """The delivery, and the round of one run behind the transport."""
        device, cohort = context.vectors.device, context.cohort
        rows = self.rows.to(device)
        came = cohort.counted(len(rows)) if self.places is None else cohort.among(_at(cohort, self.places))
        agreed = None if self.coordinates is None else self.coordinates.to(device)
        return Delivery(rows, came, rows), replace(context, coordinates=agreed)

    def wrong(self, cohort: tuple[int, ...], dimension: int, agreeing: bool, sums: bool) -> Iterator[str]:
        """What of it cannot be of a round with such a cohort, in words.

        Args:
            cohort: the clients of the places.
            dimension: of the model.
            agreeing: whether its clients agree on coordinates.
            sums: whether its transport shows sums.
        """
        every = set(range(len(cohort)))
        if (self.coordinates is not None) != agreeing:
            yield "coordinates that nobody agreed on" if not agreeing else "no coordinates that all agreed on"
            return
        if self.coordinates is not None and not are_columns(self.coordinates, dimension):
            yield "coordinates that are none of the model, or not in order"
        columns = dimension if self.coordinates is None else self.coordinates.numel()
        if self.rows.ndim != 2 or self.rows.shape[1] != columns:
            yield "rows of another length"
        if (self.counts is not None) != sums or (self.places is None) != sums:
            yield "rows of clients behind sums" if sums else "sums where rows are shown"
            return
        if len(self.rows) != len(self.places if self.counts is None else self.counts):  # type: ignore[arg-type]
            yield "another number of rows than of those who sent them"
        if not _ascending(self.absent) or not {*self.absent, *(self.places or ())} <= every:
            yield "places that the round has not, or not in order"
        if not _ascending(self.rejected):
            yield "rejected messages that are not in order"
        yield from self._of_sums(len(cohort)) if sums else self._of_rows(cohort)

    def _of_rows(self, cohort: tuple[int, ...]) -> Iterator[str]:
        places, named = self.places or (), {client for client, _ in self.rejected}
        if not _ascending(places) or {*places} & {*self.absent}:
            yield "rows that are not in order, or of somebody who did not answer"
        if self.discarded:
            yield "sums that were not taken, where rows are shown"
        silent = {*range(len(cohort))} - {*places, *self.absent}
        if any(cohort[place] not in named for place in silent if place < len(cohort)):
            yield "nothing of somebody who was drawn"

    def _of_sums(self, drawn: int) -> Iterator[str]:
        counts = self.counts or ()
        if any(count < 2 for count in counts):
            yield "a sum of fewer than two participations"
        if sum(counts) + len(self.absent) > drawn or self.discarded not in range(drawn + 1):
            yield "sums of more participations than were drawn"


NONE_RECEIVED: Mapping[int, Received] = {}
"""Where every round is simulated."""


def _ascending(values: Iterable[Any]) -> bool:
    """Whether values ascend, each once."""
    return all(one < other for one, other in pairwise(values))


def _at(cohort: Cohort, places: tuple[int, ...]) -> Tensor:
    """Places of a cohort ``(b,)``; unused ones, which stand behind all others, are none of them."""
    import torch

    return torch.tensor(places, dtype=torch.int64, device=cohort.clients.device)
