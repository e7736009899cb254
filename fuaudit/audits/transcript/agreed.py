"""On how many columns each client stage of a round works, by what its agreements tell: rows of a view are not there.

Each of several agreements leaves some of the columns before it. Clients propose no more than their config says, and of
the last agreement the server told the columns, where it asked for a sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuaudit.declared import is_agreement, says
from fuaudit.training.events import COORDINATES

COORDINATE_BYTES = 4
"""Of the number of a column."""


@dataclass(frozen=True)
class At:
    """A client stage in a round. Numbers are ranges of what they can be: of one number where it is known.

    Attributes:
        stage: it.
        given: on how many columns it works.
        most: how many it can leave.
        left: on how many those behind it work.
        tells: on how many clients agreed, as it tells; None where it tells of none.
    """

    stage: Any
    given: range
    most: int
    left: range
    tells: int | None = None


def stages_at(
    stages: Sequence[Any],
    dimension: int,
    event: Mapping[str, Any],
    clients: int,
    summed: int | None,
    outside: Collection[str],
) -> dict[str, At]:
    """The client stages of a round with so many clients, in order, by their names in the ledger.

    The first of them gets rows of the model's ``dimension``.
    ``summed`` is how many columns the server told, None where it told none: no sum was asked for. What agreements
    ``outside`` tell is as told: they may count otherwise, or say nothing.
    """
    left, found = just(dimension), dict[str, At]()
    last = max((number for number, stage in enumerate(stages) if is_agreement(stage)), default=-1)
    for number, stage in enumerate(stages):
        part, given = f"client.{number}", left
        if not is_agreement(stage):
            found[part] = At(stage, given, given[-1], left)
            continue
        few, tells = says(stage, "per_client"), _told(event, part)
        most = min(given[-1], clients * few) if few else given[-1]
        left = range(min(summed or 0, most), most + 1)
        if number == last and summed is not None:
            left = just(summed)
        elif part not in outside and tells is not None and tells in left:
            left = just(tells)
        found[part] = At(stage, given, most, left, tells)
    return found


def silent(event: Mapping[str, Any], places: Mapping[str, At], outside: Collection[str]) -> Iterator[str]:
    """Agreements that tell nothing of how many columns they leave, where a client stage tells of the round."""
    if any(one["part"] in places for one in event.get("told", ())):
        for part, at in places.items():
            if is_agreement(at.stage) and part not in outside and at.tells is None:
                yield part


def _told(event: Mapping[str, Any], part: str) -> int | None:
    """On how many columns clients agreed, as a part tells."""
    for one in event.get("told", ()):
        if (one["kind"], one["part"], one.get("what")) == ("answered", part, COORDINATES):
            return int(one["size"]) // COORDINATE_BYTES
    return None


def just(number: int) -> range:
    """What is known."""
    return range(number, number + 1)
