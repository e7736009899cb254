"""Shapes of values in the JSON of a run: what a field may hold. Asked once, where a file is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeGuard

from fuaudit.draws import END
from fuaudit.text import is_printable, plain

Shape = Callable[[Any], bool]
"""Whether a value of JSON, which is finite and holds no half characters, can stand in a field."""

EXACT = 2**53
"""Whole numbers below it are exact as floats of 64 bits, which is how many programs read JSON."""

MAX_NAME = 255
"""Bytes in the name of a folder, on common file systems."""


MAX_DOUBTS, MAX_DOUBT = 64, 700
"""Doubts of a run, and characters of each: a sentence has the names of a method and of a law in it."""

MAX_WORD, MAX_TEXT = 200, 2000
"""Characters of a name or a version, and of a sentence."""


@dataclass(frozen=True)
class Fields:
    """The shape of a table: the fields that it must have, those that it may have, and no others."""

    needed: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict)

    def __call__(self, value: object) -> bool:
        return not self.wrong(value)

    def wrong(self, value: object, above: str = "") -> list[str]:
        """The names of fields that are missing, of another shape, or unknown; "" where it is no table."""
        if not isinstance(value, dict):
            return [above.rstrip(".")]
        shapes = {**self.optional, **self.needed}  # what must be there has its own shape, whatever else may be
        found = [f"{above}{name}" for name in self.needed if name not in value]
        for name, inner in value.items():
            shape = shapes.get(name)
            if isinstance(shape, Fields):
                found += shape.wrong(inner, f"{above}{name}.")
            elif shape is None or not shape(inner):
                found.append(f"{above}{name}")
        return found


def is_beacon(value: object) -> bool:
    """16 to 64 bytes in small hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("(?:[0-9a-f]{2}){16,64}", value) is not None


def is_text(value: object) -> TypeGuard[str]:
    """A line that people read: bounded, every character of it to be seen."""
    return isinstance(value, str) and len(value) <= MAX_TEXT and is_printable(value)


def is_word(value: object) -> TypeGuard[str]:
    """A short line that is not empty: the name of something, or its version."""
    return is_text(value) and 1 <= len(value) <= MAX_WORD


def is_version(value: object) -> bool:
    """A version, or the name of an installed distribution, as package indexes know them."""
    return isinstance(value, str) and re.fullmatch("[A-Za-z0-9][A-Za-z0-9.+!_-]{0,63}", value) is not None


EARLIEST, LATEST = "1970-01-01T00:00:00Z", "2099-12-31T23:59:59Z"
"""Of the seconds of UTC that can be told: about 2**32 of them. Clocks that nobody set begin with the first."""


def is_machine(value: object) -> bool:
    """The name of a system or a processor: a word of plain characters, see :func:`fuaudit.text.plain`."""
    return is_word(value) and plain(value) == value


def is_time(value: object) -> bool:
    """A second of UTC that a calendar has. Times that are texts of this form are ordered as texts are."""
    form = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
    if not (isinstance(value, str) and re.fullmatch(form, value)):
        return False
    try:
        written = datetime.fromisoformat(value[:-1]).isoformat() + "Z"
    except ValueError:
        return False
    return value == written and EARLIEST <= value <= LATEST  # newer Pythons read 24:00 as the day after


def among(*words: str) -> Shape:
    """One of some words."""
    return lambda value: isinstance(value, str) and value in words


def listed(shape: Shape) -> Shape:
    """A list of values of one shape."""
    return lambda value: isinstance(value, list) and all(map(shape, value))


def either(*options: Shape) -> Shape:
    """What has one of some shapes."""
    return lambda value: any(shape(value) for shape in options)


def is_nothing(value: object) -> bool:
    """Null."""
    return value is None


def is_flag(value: object) -> bool:
    """True or false."""
    return type(value) is bool


def are_options(value: object) -> bool:
    """The options of a plugin: a table from words to plain values, or lists or tables of these, nested no deeper."""
    return isinstance(value, dict) and all(is_word(name) and _is_plain(inner, 4) for name, inner in value.items())


def _is_plain(value: object, levels: int) -> bool:
    if isinstance(value, list):
        return levels > 0 and all(_is_plain(inner, levels - 1) for inner in value)
    if isinstance(value, dict):
        return levels > 0 and all(is_word(name) and _is_plain(inner, levels - 1) for name, inner in value.items())
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return value is None or type(value) in (bool, float) or is_text(value)


def is_digest(value: object) -> bool:
    """64 hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def is_count(value: object) -> TypeGuard[int]:
    """A whole number from 0 (true and false are none) that every reader of JSON keeps exactly."""
    return type(value) is int and 0 <= value < EXACT


def are_ids(value: object) -> TypeGuard[list[int]]:
    """A list of ids."""
    return isinstance(value, list) and all(map(is_count, value))


def is_position(value: object) -> bool:
    """A pair of round and step, no later than ``END``."""
    return are_ids(value) and len(value) == 2 and max(value) <= END.round


def is_id_text(value: str) -> bool:
    """An id as text, in the one way in which it is written."""
    return re.fullmatch("0|[1-9][0-9]{0,15}", value) is not None and int(value) < EXACT


def by_id(shape: Shape) -> Shape:
    """A table from ids, written as text, to values of one shape."""
    return lambda value: isinstance(value, dict) and all(is_id_text(k) and shape(v) for k, v in value.items())


def are_lines(value: object) -> TypeGuard[list[str]]:
    """A list of texts."""
    return isinstance(value, list) and all(map(is_text, value))


def are_doubts(value: object) -> bool:
    """A short list of sentences."""
    return are_lines(value) and len(value) <= MAX_DOUBTS and all(len(line) <= MAX_DOUBT for line in value)


def is_folder_name(value: object) -> bool:
    """The name of a folder beside a run: one that leads nowhere else and that a file system can hold."""
    return (
        isinstance(value, str)
        and is_printable(value)
        and value not in ("", ".", "..")
        and "/" not in value
        and len(value.encode()) <= MAX_NAME
    )


def is_share(value: object) -> bool:
    """A number in [0, 1]."""
    return type(value) is float and 0 <= value <= 1


def text_of_share(share: float) -> str:
    """A number in [0, 1] as text of six decimals: of one length, so that no size of a file tells it."""
    return f"{share:.6f}"


def is_text_of_share(value: object) -> bool:
    """As :func:`text_of_share` writes one."""
    return isinstance(value, str) and re.fullmatch(r"0\.[0-9]{6}|1\.0{6}", value) is not None


def are_sums(value: object) -> bool:
    """A list of whole numbers that never fall."""
    return are_ids(value) and value == sorted(value)


def is_loss(value: object) -> bool:
    """A number, or None where it was not finite."""
    return value is None or type(value) is float


PARTICIPATION: dict[str, Shape] = {
    "gaps": by_id(is_count),
    "largest_gap": is_count,
    "cohorts": listed(are_ids),
    "uploads": are_sums,
    "own_accuracy": by_id(either(is_nothing, is_text_of_share)),  # null where there was nothing to measure
}
"""What every run tells of who took part; its learner may add what it concludes."""

SALT = "salt"
"""What it holds besides where clients have secrets: its digest, which everybody may read, confirms no guess then."""
