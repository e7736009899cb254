"""Contributions to lots: each client's fits the end of the chain that she committed to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuaudit.draws.chains import fits
from fuaudit.secure.envelope import limits
from fuaudit.secure.messages import Message, require_distinct
from fuaudit.secure.recheck.known import Known
from fuaudit.secure.recheck.shown import Wrong, sentence_of
from fuaudit.secure.recheck.sums import one_of
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import Lot, columns_of


class Lots:
    """Contributions to lots, round by round. Of each client the last right one is kept: it shortens the next check.

    Beside them the columns that the server told to the same clients.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._last = {client: (0, end) for client, end in known.ends.items()}
        self.right: dict[int, bytes] | None = None
        self.columns: Ints | None = None

    def wrong(self, number: int, messages: Sequence[Message]) -> Iterator[Wrong]:
        """What is wrong with those of a round; ``right`` are all of them afterwards, None where one is wrong.

        Then ``columns`` are those that were told, None where nobody told some, or others than they can be.
        """
        lots = [message for message in messages if message.step == "lot"]
        told = [message for message in messages if message.step == "columns"]
        self.right = self.columns = None
        if not self._known.ends:
            if lots or told:
                yield Wrong("lot", "there are contributions to a lot, and nobody committed to any", number)
            return
        found = [*self._wrong(number, lots)]
        if not found:
            self.right = {message.sender: message.body for message in lots}
            found += [*self._wrong_columns(number, told)]
        yield from found

    def _lot(self, number: int, clients: tuple[int, ...]) -> Lot:
        """What the clients of a round agreed on."""
        keys = self._known.clients
        return Lot(self._known.context, number, clients, tuple(keys.get(client, "") for client in clients))

    def _wrong_columns(self, number: int, told: Sequence[Message]) -> Iterator[Wrong]:
        if not told:
            return
        lot = self._lot(number, tuple(sorted(self.right or {})))
        try:
            columns = columns_of(one_of(told, "columns").require("columns", *limits(lot)["columns"], lot))
        except RefusedError as error:
            yield Wrong("message", sentence_of(error), number)
            return
        self.columns = columns

    def _wrong(self, number: int, lots: Sequence[Message]) -> Iterator[Wrong]:
        known, clients = self._known, tuple(sorted({message.sender for message in lots}))
        due = clients if known.cohort is None else known.cohort(number)
        if not due:
            yield Wrong("lot", "nobody contributed to the lot", number)
        for client in sorted({*due} - {*clients}):
            yield Wrong("lot", f"client {client} withheld its contribution to the lot", number)
        if strangers := sorted({*clients} - ({*due} & known.clients.keys())):
            yield Wrong("lot", f"client {strangers[0]} contributed to the lot of a round that it is not in", number)
            return
        lot = self._lot(number, due)
        try:
            require_distinct(lots)
            for message in lots:
                message.require("lot", *limits(lot)["lot"], lot)
        except RefusedError as error:
            yield Wrong("message", sentence_of(error), number)
            return
        for message in lots:
            if not self._fits(message.sender, known.earlier + number, message.body):
                sentence = f"the contribution of client {message.sender} to the lot is not the one that it committed to"
                yield Wrong("lot", sentence, number)

    def _fits(self, client: int, place: int, contribution: bytes) -> bool:
        at, last = self._last.get(client, (place, b""))
        if place <= at or not fits(contribution, place - at, last):
            return False
        self._last[client] = (place, contribution)
        return True
