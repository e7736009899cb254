"""Shapes of values in the JSON of a run: what a field may hold. Asked once, where a file is read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from fuaudit.draws import END

Shape = Callable[[Any], bool]
"""Whether a value of JSON, which is finite and holds no half characters, can stand in a field."""

EXACT = 2**53
"""Whole numbers below it are exact as floats of 64 bits, which is how many programs read JSON."""

MAX_NAME = 255
"""Bytes in the name of a folder, on common file systems."""


def is_text(value: Any) -> bool:
    """Any text."""
    return isinstance(value, str)


def is_digest(value: Any) -> bool:
    """64 hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def is_count(value: Any) -> bool:
    """A whole number from 0 (true and false are none)."""
    return type(value) is int and value >= 0


def are_ids(value: Any) -> bool:
    """A list of ids."""
    return isinstance(value, list) and all(map(is_count, value))


def is_position(value: Any) -> bool:
    """A pair of round and step, no later than ``END``."""
    return are_ids(value) and len(value) == 2 and max(value) <= END.round


def is_table(value: Any) -> bool:
    """Any table."""
    return isinstance(value, dict)


def are_texts(value: Any) -> bool:
    """A table of texts."""
    return isinstance(value, dict) and all(map(is_text, value.values()))


def are_tables_of_texts(value: Any) -> bool:
    """A list of tables of texts."""
    return isinstance(value, list) and all(map(are_texts, value))


def is_id_text(value: str) -> bool:
    """An id as text, in the one way in which it is written."""
    return re.fullmatch("0|[1-9][0-9]{0,15}", value) is not None and int(value) < EXACT


def are_counts_by_id(value: Any) -> bool:
    """A table from ids, written as text, to whole numbers."""
    return isinstance(value, dict) and all(is_id_text(k) and is_count(v) for k, v in value.items())


def are_lines(value: Any) -> bool:
    """A list of texts."""
    return isinstance(value, list) and all(map(is_text, value))


def is_folder_name(value: Any) -> bool:
    """The name of a folder beside a run: one that leads nowhere else and that a file system can hold."""
    return (
        isinstance(value, str)
        and value not in ("", ".", "..")
        and not {"/", "\0"} & set(value)
        and len(os.fsencode(value)) <= MAX_NAME
    )


def is_share(value: Any) -> bool:
    """A number in [0, 1]."""
    return type(value) is float and 0 <= value <= 1


def are_shares_by_id(value: Any) -> bool:
    """A table from ids, written as text, to numbers in [0, 1], or None where there was nothing to measure."""
    return isinstance(value, dict) and all(is_id_text(k) and (v is None or is_share(v)) for k, v in value.items())


def are_cohorts(value: Any) -> bool:
    """A list of lists of ids that every reader of JSON keeps exactly."""
    return isinstance(value, list) and all(are_ids(ids) and max(ids, default=0) < EXACT for ids in value)


def are_sums(value: Any) -> bool:
    """A list of whole numbers that never fall and that every reader of JSON keeps exactly."""
    return are_ids(value) and value == sorted(value) and max(value, default=0) < EXACT


def is_loss(value: Any) -> bool:
    """A number, or None where it was not finite."""
    return value is None or type(value) is float


PARTICIPATION: dict[str, Shape] = {
    "gaps": are_counts_by_id,
    "largest_gap": is_count,
    "cohorts": are_cohorts,
    "uploads": are_sums,
    "own_accuracy": are_shares_by_id,
}
"""What every run tells of who took part; its learner may add what it concludes."""


def wrong_fields(table: Mapping[str, Any], needed: Mapping[str, Shape]) -> list[str]:
    """The names of fields that are missing or have another shape."""
    return [name for name, shape in needed.items() if name not in table or not shape(table[name])]
