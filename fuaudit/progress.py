"""Progress of long work: a callback that a terminal may draw, and that costs nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def silent(what: str, done: int, total: int) -> None:
    """Shows nothing."""
