"""The parties of a run as processes of their own, from the side of who starts them.

``Apart`` starts a server, a witness, a key holder and some processes of clients, connects each to those that it speaks
with, and keeps them from buffer to buffer. It hands a process the secrets of its own parties, and gets the opened sum
and the messages. A process that dies, or in which nothing happens for long, ends all of them: what each remembers of
the run, so that it answers nothing twice, is gone with it, so nothing more is opened by these.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from multiprocessing.connection import wait
from subprocess import Popen
from weakref import finalize

import numpy as np

from fuaudit.errors import FuauditError, UsageError
from fuaudit.secure.envelope import FRONT_BYTES, limits, parsed
from fuaudit.secure.lines import BrokenLineError, Line
from fuaudit.secure.messages import Identity, Message, Signers, ids_of
from fuaudit.secure.names import HOLDER, WITNESS
from fuaudit.secure.processes import GRACE, ended, started
from fuaudit.secure.receipts import Receipt
from fuaudit.secure.refusal import REASONS, Reason, RefusedError
from fuaudit.secure.roles import BEAT, BROKE, DONE, REFUSED, SAID, Task, process_of
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import Once, Opened, Terms

PROCESS = "fuaudit.secure.roles"

PROCESSES = 2
"""Of clients: several live in one."""

PATIENCE = 300.0
"""Seconds in which some party takes a turn; the largest rows take one or two."""

TEXT_BYTES = 1 << 16
"""Of a refusal."""

Running = Mapping[str, tuple[Popen[bytes], Line]]


class Apart:
    """The processes of a run, started at the first opening.

    Args:
        processes: of clients.
        patience: seconds in which some party takes a turn.
    """

    def __init__(self, processes: int = PROCESSES, patience: float = PATIENCE) -> None:
        self._clients = [f"clients-{number}" for number in range(processes)]
        self._patience, self._running = patience, dict[str, tuple[Popen[bytes], Line]]()
        self._end: finalize[..., Apart] | None = None
        self._gone = ""

    @property
    def pids(self) -> Mapping[str, int]:
        """Process -> its number."""
        return {name: process.pid for name, (process, _) in self._running.items()}

    def opened(
        self,
        terms: Terms,
        rows: Mapping[int, Ints],
        signers: Signers,
        absent: Mapping[int, str],
        before: Callable[[int], Once],
        record: Callable[[Message], None] | None,
    ) -> Opened:
        """A buffer of rows by client, opened once; arguments as those of ``Suite.opened``.

        ``before`` gives what a party remembers of the run.

        Raises:
            UsageError: a client's row does not fit, or the system has no such processes.
            RefusedError: the buffer is discarded.
        """
        if self._gone:
            raise RefusedError(
                f"the parties of this run have ended: {self._gone}",
                "What they opened they no longer know, so they open nothing more. Go on with new ones: in a training, "
                "`fuaudit resume`.",
                reason="broke",
            )
        for client, row in rows.items():
            if row.dtype != np.int64:
                terms.require_values(row, client)
        try:
            self._start()
            for name, (_, line) in self._running.items():
                line.send(
                    self._task(name, terms, rows, signers, absent, before, record is not None).parts(), self._patience
                )
            reports = self._reports(terms, record)
        except BrokenLineError as error:
            gone = error.args[0]
        except BaseException:  # an interrupt too: a buffer that was left in the middle is not gone on with
            self._break("an opening was interrupted")
            raise
        else:
            return _result(reports, terms)
        self._break(gone)
        raise RefusedError(
            f"{gone}: buffer {terms.buffer} is discarded",
            "All parties of this run were ended. A training goes on with new ones: `fuaudit resume`.",
            reason="broke",
        )

    def _task(
        self,
        name: str,
        terms: Terms,
        rows: Mapping[int, Ints],
        signers: Signers,
        absent: Mapping[int, str],
        before: Callable[[int], Once],
        record: bool,
    ) -> Task:
        parties: dict[int, tuple[Identity, Ints | None]] = {}
        if name.startswith("clients"):
            own = [one for one in terms.members if process_of(one, self._clients) == name]
            parties = {one: (signers.clients[one], rows[one]) for one in own}
        elif terms.holder and name in ("witness", "holder"):
            parties = {WITNESS: (signers.witness, None)} if name == "witness" else {HOLDER: (signers.holder, None)}
        secrets = {party: (key.private, row) for party, (key, row) in parties.items()}
        silent = {party: step for party, step in absent.items() if party in secrets}
        done = {party: before(party).done for party in secrets}
        return Task(terms, silent, done, record and name == "server", 2 * self._patience, secrets)

    def _start(self) -> None:
        if self._running:
            return
        pairs = [("server", "witness"), ("server", "holder")]
        pairs += [(role, clients) for clients in self._clients for role in ("server", "holder")]
        names = ["server", "witness", "holder", *self._clients]
        ends: dict[str, dict[str, socket.socket]] = {name: {} for name in names}
        with ExitStack() as theirs:
            for one, other in pairs:
                ends[one][other], ends[other][one] = map(theirs.enter_context, socket.socketpair())
            for name in names:
                ours, control = socket.socketpair()
                theirs.enter_context(control)
                line = Line(ours, f"the process {name}")
                self._running[name] = started(PROCESS, {"control": control, **ends[name]}, name), line
        self._end = finalize(self, _ended, dict(self._running), GRACE)

    def _reports(self, terms: Terms, record: Callable[[Message], None] | None) -> dict[str, list[bytes]]:
        """Process -> how the opening ended for it."""
        lines = {line.fileno(): (name, line) for name, (_, line) in self._running.items()}
        pending, reports = set(lines), dict[str, list[bytes]]()
        most = TEXT_BYTES + FRONT_BYTES + max(most for _, most in limits(terms).values())
        while pending:
            ready = [one for one in wait(list(pending), self._patience) if isinstance(one, int)]
            if not ready:
                late = ", ".join(sorted(lines[one][0] for one in pending))
                raise BrokenLineError(f"nothing happens among the processes {late}")
            for one in ready:
                name, line = lines[one]
                word, *parts = line.receive(8, most, self._patience) or [b""]
                if word == SAID and record and len(parts) == 1:
                    record(parsed(parts[0]))
                elif word != BEAT:
                    pending.remove(one)
                    reports[name] = [word, *parts]
        return reports

    def _break(self, why: str) -> None:
        self._gone = why
        self.end(0)

    def end(self, grace: float = GRACE) -> None:
        """End all processes, after some seconds by force."""
        if self._end:
            self._end.detach()
        _ended(self._running, grace)
        self._running = {}
        self._gone = self._gone or "their run is over"


def _ended(running: Running, grace: float) -> None:
    for _, line in running.values():
        line.close()
    for process, _ in running.values():
        ended(process, grace)


def _result(reports: Mapping[str, list[bytes]], terms: Terms) -> Opened:
    """What the server was told, if every party came to its end."""
    order = sorted(reports, key=lambda name: (name in ("server", "witness"), not name.startswith("holder"), name))
    for name in order:
        if (refusal := _refusal(reports[name])) is not None:
            raise refusal
    word, *parts = reports["server"]
    if {report[0] for report in reports.values()} != {DONE} or word != DONE or len(parts) != 2:
        heard = [
            f"{name} says: {told[0].decode('utf-8', 'replace')}"
            for name, (end, *told) in reports.items()
            if end == BROKE and told
        ]
        raise RefusedError(
            f"the parties broke off, and none says why ({'; '.join(sorted(heard))})",
            "Nothing was opened. Start the buffer anew.",
            reason="broke",
        )
    message = parsed(parts[0])
    receipt = Receipt.of(message, terms)
    return Opened(receipt.members, receipt.sums, ids_of(parts[1]))


def _refusal(report: list[bytes]) -> FuauditError | None:
    """What made a party break off; None where nothing did, or another's breaking off."""
    word, *parts = report
    if word in (DONE, BROKE):
        return None
    if word != REFUSED or len(parts) != 5:
        return RefusedError("a party answers what is no report", "Nothing was opened.")
    kind, text, hint, why = (part.decode("utf-8", "replace") for part in parts[:4])
    if kind == UsageError.__name__:
        return UsageError(text, hint)
    reason: Reason = next((one for one in REASONS if one == why), "wrong")
    return RefusedError(text, hint, next(iter(ids_of(parts[4])), None), reason)
