"""Events: what a stage tells of a round, beside what it does. They stand in the round's line of the ledger.

Accounts of privacy and of traffic read them. Replay makes them again, so a run cannot tell another tale. Sizes are
those of the plain form: how long a ciphertext is, the transcript of its transport says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, TypeAlias

from fuaudit.errors import PluginError

COORDINATES, VALUES = "coordinates", "values"
"""What stages call the numbers of coordinates, and what stands there: accounts of traffic read these words.

All else that is sent counts as values.
"""


@dataclass(frozen=True)
class Sent:
    """A client sent something: ``what``, in words of letters and hyphens, of so many bytes in the plain form."""

    client: int
    what: str
    size: int


@dataclass(frozen=True)
class Answered:
    """Every participation of the round is sent something: ``what`` in words, of so many bytes in the plain form.

    A round that delivers nothing has no values to answer with: whoever accounts for traffic reads that from ``Summed``.
    """

    what: str
    size: int


@dataclass(frozen=True)
class Summed:
    """A transport summed rows: how many in each buffer, how many buffers it discarded, whether it delivered none."""

    rows: tuple[int, ...]
    discarded: int
    failed: bool


@dataclass(frozen=True)
class Released:
    """Something came out under a mechanism that limits what it tells of anybody, with parameters: numbers and words.

    Accounts of privacy charge it for every participation of the round. Without such an event nothing is private.
    """

    mechanism: str
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rejected:
    """What a client sent was not taken; ``why`` in a few words."""

    client: int
    why: str


NO_NUMBERS, WRONG_LENGTH, NOT_FINITE = "no numbers", "wrong length", "not finite"
"""Why a row is not taken."""
TWICE, LATE, NOT_IN_ROUND = "twice", "late", "not in the round"
"""Why another message than the one of this round is not taken."""
TOO_MANY_COORDINATES, COORDINATES_TWICE, COORDINATES_OUTSIDE = (
    "too many coordinates",
    "coordinates twice",
    "coordinates out of range",
)
"""Why a proposal of coordinates is not taken."""
REJECTED_FOR = (
    NO_NUMBERS,
    WRONG_LENGTH,
    NOT_FINITE,
    TWICE,
    LATE,
    NOT_IN_ROUND,
    TOO_MANY_COORDINATES,
    COORDINATES_TWICE,
    COORDINATES_OUTSIDE,
)
"""Why a message of a real federation is not taken. Records name these by their places here: new ones come at the end.
"""


@dataclass(frozen=True)
class Suspected:
    """A sum was not taken, ``why`` in a few words: one of these ``clients`` at least, ascending, sent what it broke on.

    Behind sums nobody can know which one.
    """

    clients: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Failed:
    """A round delivered rows and applied none of them; ``why`` in a few words. An exchange tells it, and no part."""

    why: str


_WORDS = re.compile(r"[A-Za-z][A-Za-z -]{0,59}")
LIMIT = 2**63
"""What whole numbers of events stay below."""

Event = Sent | Answered | Summed | Released | Rejected | Suspected | Failed

Told: TypeAlias = list[tuple[str, Event]]
"""Events, each with the part of the round that told it."""


def require_event(event: object) -> None:
    """Raises PluginError for what no part tells, or has other values than whole and finite numbers, and words."""
    if not isinstance(event, Event) or isinstance(event, Failed):
        raise PluginError(
            f"a stage told {event!r}, which is no event",
            "There are Sent, Answered, Summed, Released, Rejected and Suspected.",
        )
    if isinstance(event, Summed) and not (isinstance(event.rows, tuple) and type(event.failed) is bool):
        raise PluginError(f"a stage told {event}: rows are a tuple of whole numbers, and failed is True or False")
    if isinstance(event, Suspected) and not (isinstance(event.clients, tuple) and event.clients):
        raise PluginError(f"a stage told {event}: clients are a tuple of ids, one at least")
    values = _values(event)
    if any(type(value) is int and abs(value) >= LIMIT for value in values):
        raise PluginError("a stage told a whole number of more than 64 bits")
    told = vars(event)
    counts = [told.get(name, 0) for name in ("client", "size", "discarded")]
    counts += _listed(event)
    if any(type(count) is not int or count < 0 for count in counts):
        raise PluginError(f"a stage told {event}: clients, sizes and numbers of rows are whole numbers from 0")
    named = [told.get(name, "none") for name in ("what", "why", "mechanism")]
    if not all(isinstance(word, str) and _WORDS.fullmatch(word) for word in named):
        raise PluginError(f"a stage told {event}: what, why and mechanism are a few words, of letters and hyphens")
    for value in values:
        if type(value) not in (int, str) and not (type(value) is float and isfinite(value)):
            raise PluginError(f"a stage told {value!r}: events hold whole and finite numbers, and words")


def _listed(event: Event) -> tuple[int, ...]:
    """The numbers of an event that has a list of them."""
    return event.rows if isinstance(event, Summed) else event.clients if isinstance(event, Suspected) else ()


def _values(event: Event) -> list[object]:
    """The numbers and words of an event."""
    if isinstance(event, Summed):
        return [*event.rows, event.discarded]
    if isinstance(event, Suspected):
        return [*event.clients, event.why]
    return [*(event.parameters.values() if isinstance(event, Released) else vars(event).values())]


def as_table(part: str, event: Event) -> dict[str, Any]:
    """For JSON: an event, and the part of the round that told it."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(event).items()}
    return {"kind": type(event).__name__.lower(), "part": part, **values}


def fails(event: Mapping[str, Any]) -> bool:
    """Whether an event, as a table, says that its round failed."""
    return event["kind"] == "failed" or (event["kind"] == "summed" and event["failed"] is True)
