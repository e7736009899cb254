"""The terminal: progress bars on standard error, results on standard output."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fuaudit.progress import Progress, silent


@contextmanager
def bars(quiet: bool) -> Iterator[Progress]:
    """A progress callback that draws one bar for each kind of work; silent when asked, or without a terminal.

    Everything is imported by now: from here on Ctrl-C is an exception, so that work is left in good order.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description:>22}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Bars(*columns, console=Console(stderr=True), transient=True) as drawn:
        tasks = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = drawn.add_task(what, total=total)
            drawn.update(tasks[what], completed=done, total=total)

        yield show
