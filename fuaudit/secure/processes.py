"""Processes: this program's own code in another process, which has one line to here and nothing else of this one."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from subprocess import DEVNULL, Popen, TimeoutExpired

from fuaudit.errors import UsageError

KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG", "LC_ALL")
"""Variables of the environment that a process gets. Others may hold what is not for it."""

GRACE = 5.0
"""Seconds in which a process that lost its line ends by itself."""


def started(module: str, ends: Mapping[str, socket.socket], *words: str) -> Popen[bytes]:
    """``python -m module``, with some words and ``name=descriptor`` of each socket as its arguments.

    It inherits no other descriptor, no input and no output, and few variables. Ctrl-C does not reach it: it ends when
    its lines do.

    Raises:
        UsageError: this system has no such processes.
    """
    if os.name != "posix":
        raise UsageError(
            "processes with lines of their own need a Unix system",
            "Use the suite mask or plain, with parties as objects.",
        )
    places = [f"{name}={end.fileno()}" for name, end in ends.items()]
    return Popen(
        [sys.executable, "-P", "-m", module, *words, *places],
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        pass_fds=[end.fileno() for end in ends.values()],
        env=_environment(),
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    places = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
    return kept | {"PYTHONPATH": places, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def ended(process: Popen[bytes], grace: float = GRACE) -> None:
    """Wait for a process whose lines are closed; one that does not end is killed."""
    try:
        process.wait(grace)
    except TimeoutExpired:
        process.kill()
        process.wait()
