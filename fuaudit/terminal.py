"""The terminal: progress bars on standard error, results on standard output."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fuaudit.progress import Progress, silent, while_it_shows

EVERY = 20.0
"""Seconds between two lines of progress in a log, so that nobody takes a long audit for one that hangs."""


@contextmanager
def bars(quiet: bool) -> Iterator[Progress]:
    """A progress callback that draws one bar for each kind of work; lines now and then where there is no terminal.

    Everything is imported by now: from here on Ctrl-C is an exception, so that work is left in good order.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if quiet or sys.stderr is None:
        yield silent
        return
    if not sys.stderr.isatty():
        yield while_it_shows(lines())
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description:>22}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    drawn = Bars(*columns, console=Console(stderr=True), transient=True)
    tasks = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = drawn.add_task(what, total=total)
        drawn.update(tasks[what], completed=done, total=total)

    while_it_shows(drawn.start)()
    try:
        yield while_it_shows(show)
    finally:
        while_it_shows(drawn.stop)()


def lines(clock: Callable[[], float] = time.monotonic) -> Progress:
    """A progress callback that prints a line on standard error when ``EVERY`` seconds went by without one."""
    last = clock()

    def show(what: str, done: int, total: int) -> None:
        nonlocal last
        if clock() - last >= EVERY:
            last = clock()
            print(f"{what}: {done:,} of {total:,}", file=sys.stderr, flush=True)

    return show
