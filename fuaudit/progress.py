"""Progress of long work: a callback that a terminal may draw, and that costs nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def silent(what: str, done: int, total: int) -> None:
    """Shows nothing."""


def while_it_shows(show: Callable[P, object]) -> Callable[P, None]:
    """A callback until it cannot show anything, such as into a closed pipe or a full log; then it is not called again.

    What nobody can read must not break the work that it tells of.
    """
    lost = False

    def shown(*arguments: P.args, **options: P.kwargs) -> None:
        nonlocal lost
        if lost:
            return
        try:
            show(*arguments, **options)
        except OSError:
            lost = True

    return shown
