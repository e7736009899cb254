"""The process that adds ciphertexts: ``python -m fuaudit.secure.adding line=DESCRIPTOR``, started by an ``Adder``.

It has no key, no file and no descriptor but its line. It reads one ciphertext of each client, answers their sum, and
forgets them. It answers a part that it cannot read with the place of that part, and parts whose sum is open to
everybody with how many of the first they are.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Sequence

from fuaudit.secure import bfv
from fuaudit.secure.lines import NUMBER, BrokenLineError, Line
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import RINGS

DESCRIPTOR = 3
"""The line, behind input, output and errors, which are nowhere."""

ROOM = 1 << 28
"""Bytes of memory beyond what the libraries take: some hundred ciphertexts."""

CPU_SECONDS = 10.0
"""Of one request; it takes a few thousandths of a second for each ciphertext."""

MOST_PARTS = RINGS[-1].summands
MOST_BYTES = MOST_PARTS * bfv.CIPHERTEXT_BYTES
READY, SUM, READ, BAD, OPEN = b"ready", b"sum", b"read", b"bad", b"open"
"""First parts of answers."""


def answer(context: bfv.Context, parts: Sequence[bytes]) -> list[bytes]:
    """The sum of parts, each of one client; of one alone whether it can be read."""
    found = []
    for place, part in enumerate(parts):
        try:
            found.append([bfv.parsed(context, part)])
        except RefusedError:
            return [BAD, NUMBER.pack(place)]
    try:
        return [SUM, *bfv.added(found)] if len(found) > 1 else [READ]
    except bfv.OpenError as error:
        return [OPEN, NUMBER.pack(error.rows)]


def serve(line: Line) -> None:
    """Answer until the other end is gone."""
    from fuaudit.secure.confinement import confine

    (keyless,) = line.receive(1, bfv.KEYLESS_BYTES)
    try:
        context = bfv.loaded(keyless)
    except Exception:  # whatever a library of C++ says to bytes that it cannot read
        line.send([BAD])
        return
    line.send([READY, *(word.encode() for word in confine(ROOM, DESCRIPTOR + 1))])
    while True:
        parts = line.receive(MOST_PARTS, MOST_BYTES)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal ends the process
        told = answer(context, parts)
        signal.setitimer(signal.ITIMER_PROF, 0)
        line.send(told)


def main(place: str) -> None:
    """Serve on the line of a descriptor, ``line=5``, and end when the other end is gone."""
    os.dup2(int(place.removeprefix("line=")), DESCRIPTOR)
    os.closerange(DESCRIPTOR + 1, 256)
    with Line(socket.socket(fileno=DESCRIPTOR), "the caller") as line:
        try:
            serve(line)
        except BrokenLineError:
            return


if __name__ == "__main__":
    main(sys.argv[1])
