"""Adders: foreign ciphertexts are read and added in a confined process, and nobody else holds one that is read.

The library that reads them is written in C++, and a client can sign any bytes. Bytes that end or hold up the process
cost their message: the buffer is refused, its sender is named, and a fresh process does the next. Whatever a process
answers after it was taken over is a sum that fits no check: the key holder opens nothing.

This is no pool of workers as :mod:`fuaudit.workers` has one: such a worker gets objects, has files and descriptors, and
its work is done again here where it dies. What this one does must not be done here.
"""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from subprocess import Popen
from threading import Lock
from weakref import finalize

from fuaudit.secure import bfv
from fuaudit.secure.adding import CPU_SECONDS, OPEN, READ, READY, SUM
from fuaudit.secure.lines import BrokenLineError, Line
from fuaudit.secure.processes import GRACE, ended, started
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import RINGS, Plaintexts

PROCESS = "fuaudit.secure.adding"

START_SECONDS = 120.0
"""Of imports, on a machine that does much else."""

ANSWER_SECONDS = 6 * CPU_SECONDS
"""By the clock, of one sum: a process whose own limit of time was taken off is killed then."""

WORDS = 16
"""An answer has no more parts."""


class Adder:
    """One process that adds, started at its first sum, and again after each that went wrong.

    Args:
        keyless: the context without keys, at most 86 bytes.
        ring: that of its ciphertexts.
        answer: seconds by the clock that one sum may take.

    Attributes:
        confined: what the process gave up, by :func:`fuaudit.secure.confinement.confine`; empty before the start.
    """

    def __init__(self, keyless: bytes, ring: Plaintexts, answer: float = ANSWER_SECONDS) -> None:
        if len(keyless) > bfv.KEYLESS_BYTES:
            raise RefusedError(f"a context of {len(keyless)} bytes has keys: {bfv.KEYLESS_BYTES} at most have none")
        self.confined: tuple[str, ...] = ()
        self._keyless, self._ring, self._answer, self._lock = keyless, ring, answer, Lock()
        self._running: tuple[Popen[bytes], Line] | None = None
        self._end: finalize[..., Adder] | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process; None where none runs."""
        return self._running[0].pid if self._running else None

    def sums(self, rows: Mapping[int, Sequence[bytes]]) -> tuple[bytes, ...]:
        """The sums of ciphertexts of two clients or more (client -> its ciphertexts), in bytes.

        Raises:
            RefusedError: ciphertexts of a client cannot be read, which is its doing; those of some cancel each other;
                or the process does not work.
        """
        clients = tuple(rows)
        with self._lock:
            return tuple(self._sum(clients, parts) for parts in zip(*rows.values(), strict=True))

    def _sum(self, clients: tuple[int, ...], parts: Sequence[bytes]) -> bytes:
        for client, part in zip(clients, parts, strict=True):
            if len(part) > bfv.CIPHERTEXT_BYTES:
                raise RefusedError(f"client {client}: a ciphertext has {len(part)} bytes", blamed=client)
        for _ in range(2):  # a process that somebody else ended costs nobody anything
            found = self._asked(parts, SUM)
            if found is not None:
                return found
            self._require_read(clients, parts)
            self._require_hidden(clients, parts)
        self.end(0)
        if self._asked([bfv.specimen(self._ring)] * len(parts), SUM) is not None:
            raise RefusedError(
                "ciphertexts that were sent give no sum, and as many that are known to be right do",
                "Nobody can be blamed: each can be read. The buffer is discarded.",
            )
        raise RefusedError(
            "the process that adds ciphertexts gives no sum, and reads each of them",
            "Nobody can be blamed. The buffer is discarded; see whether memory is short.",
            reason="broke",
        )

    def _require_read(self, clients: tuple[int, ...], parts: Sequence[bytes]) -> None:
        """RefusedError for the first that cannot be read, by two processes that read no other.

        A machine that ends a process at random ends two at one ciphertext seldom, and either had added a right one.
        """
        for client, part in zip(clients, parts, strict=True):
            if not any(self._reads(part) for _ in range(2)):
                raise RefusedError(
                    f"client {client}: bytes that were sent are no ciphertext of these terms",
                    "Two processes that read nothing else refused them, or broke off at them.",
                    blamed=client,
                )

    def _reads(self, part: bytes) -> bool:
        """Whether a new process reads a ciphertext."""
        self.end(0)
        return self._asked([part], READ) is not None

    def _require_hidden(self, clients: tuple[int, ...], parts: Sequence[bytes]) -> None:
        """RefusedError where those of the first clients add up to one that is open to everybody."""
        told = self._asked(parts, OPEN)
        if told is None:
            return
        rows = int.from_bytes(told, "little")
        self.end(0)
        # asked of them alone: bytes of another may have taken the process over that told it
        if 2 <= rows <= len(parts) and self._asked(parts[:rows], OPEN) == told:
            named = ", ".join(map(str, sorted(clients[:rows])))
            raise RefusedError(
                f"the ciphertexts of clients {named} add up to one that anybody reads without a key",
                "One of them was made from the others: who encrypts on his own does not come there.",
            )

    def _asked(self, parts: Sequence[bytes], due: bytes) -> bytes | None:
        """What the process answers, as is due; None where it does not, and it is ended then."""
        line = self._line()
        found = _answered(line, parts, due, self._answer)
        if found is None:
            self.end(0)
        return found

    def _line(self) -> Line:
        if self._running is None:
            process, line = _begun()
            self._running, self._end = (process, line), finalize(self, _ended, process, line, GRACE)
            self.confined = self._greeted(line)
        return self._running[1]

    def _greeted(self, line: Line) -> tuple[str, ...]:
        """What a new process gave up; it adds what is known to be right, so that no client is blamed for a machine."""
        told: list[bytes] = []
        try:
            line.send([self._keyless], START_SECONDS)
            told = line.receive(WORDS, 1024, START_SECONDS)
        except BrokenLineError:
            pass
        if told[:1] != [READY] or _answered(line, [bfv.specimen(self._ring)] * 2, SUM, self._answer) is None:
            self.end(0)
            raise RefusedError(
                "no process adds ciphertexts in the context that was sent",
                "It is no context without keys, or processes cannot be started here.",
                reason="broke",
            )
        return tuple(one.decode("ascii", "replace") for one in told[1:])

    def end(self, grace: float = GRACE) -> None:
        """End the process, after some seconds by force."""
        if self._running and self._end:
            self._end.detach()
            _ended(*self._running, grace)
        self._running = None


def _begun() -> tuple[Popen[bytes], Line]:
    """A new process and the line to it; where none can be started nothing is left open."""
    ours, theirs = socket.socketpair()
    with theirs, ExitStack() as failed:
        failed.callback(ours.close)
        process = started(PROCESS, {"line": theirs})
        failed.pop_all()
    return process, Line(ours, "the process that adds")


def _answered(line: Line, parts: Sequence[bytes], due: bytes, within: float) -> bytes | None:
    try:
        line.send(parts, within)
        told = line.receive(WORDS, bfv.CIPHERTEXT_BYTES + len(due), within)
    except BrokenLineError:  # no line, late, or too much
        return None
    fits = told[:1] == [due] and len(told) == 1 + (due != READ) and all(told)
    return b"".join(told[1:]) if fits else None


def _ended(process: Popen[bytes], line: Line, grace: float) -> None:
    line.close()
    ended(process, grace)


_held: dict[tuple[int, str, bytes], Adder] = {}
"""Those of this process, by process, role and context."""


def adder_of(role: str, keyless: bytes, ring: Plaintexts) -> Adder:
    """The adder of a role in this process, kept from buffer to buffer: a context without keys is that of its ring."""
    key = (os.getpid(), role, keyless)  # a forked child does not share the line of its parent
    if key not in _held:
        others = [one for one in _held if one[:2] == key[:2]]
        for one in others[: len(others) - len(RINGS) + 1]:
            _held.pop(one).end()
        _held[key] = Adder(keyless, ring)
    return _held[key]


def running() -> tuple[int, ...]:
    """The numbers of the processes that add for this one."""
    found = (one.pid for key, one in _held.items() if key[0] == os.getpid())
    return tuple(pid for pid in found if pid is not None)


def end_all() -> None:
    """End the adders of this process; another sum starts its own."""
    for key in [one for one in _held if one[0] == os.getpid()]:
        _held.pop(key).end()


atexit.register(end_all)
