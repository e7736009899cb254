"""The command line: parse, call one function, print, exit. Heavy imports happen inside the commands."""

from __future__ import annotations

import gc
import os
import signal
from typing import NoReturn

OBJECTS = 50_000
"""Newly made ones that are looked through for rubbish at once. By Python's 700 a sixth of a start goes into looking at
what was imported, which stays."""


def _leave(number: int, frame: object) -> NoReturn:
    """Ctrl-C while libraries are being imported: nothing was begun, and some of them abort on an exception."""
    os.write(2, b"\ninterrupted before anything was begun\n")
    os._exit(130)


def main() -> None:
    """Run the command line, on its guard against Ctrl-C before it imports anything."""
    gc.set_threshold(OBJECTS)
    usual = signal.signal(signal.SIGINT, _leave)  # until the work begins, see fuaudit.terminal.bars
    try:
        from fuaudit.cli.commands import run

        run()
    finally:
        signal.signal(signal.SIGINT, usual)
