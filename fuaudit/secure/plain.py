"""The suite ``plain``: rows in the open, signed. It shows what the other suites must give, and hides nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuaudit.secure.messages import Identity, Message, by_sender, require_distinct, require_enough
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import Opened, Terms

VALUE_BYTES = 4


def row_message(row: Ints, client: int, terms: Terms, identity: Identity) -> Message:
    """A client's row ``(c,)``. UsageError for values outside their field."""
    terms.require_values(row, client)
    return Message.signed("send", client, row.astype("<i4").tobytes(), terms, identity)


def row_of(message: Message, terms: Terms) -> Ints:
    """The inverse; RefusedError for what is no row of these terms."""
    size = VALUE_BYTES * terms.columns
    row = np.frombuffer(message.require("send", size, size, terms), dtype="<i4").astype(np.int64)
    if (abs(row) > terms.largest).any():
        raise RefusedError(f"client {message.sender} signed values outside their field", blamed=message.sender)
    return row


def opened(sent: Sequence[Message], terms: Terms) -> Opened:
    """The sum of what came. RefusedError for what is wrong or too little."""
    require_distinct(sent)
    rows = {client: row_of(message, terms) for client, message in by_sender(sent).items()}
    require_enough(rows, terms)
    return Opened(tuple(rows), np.sum(list(rows.values()), axis=0, dtype=np.int64))
