"""The parties of an opening as processes: ``python -m fuaudit.secure.roles NAME LINE=DESCRIPTOR ...``.

Each process has a line to who started it and to the parties that it speaks with. Over the first come terms and the
secrets of this party alone; over the others envelopes and nothing else. What a party remembers of a run, so that it
answers nothing twice, is in its process, and is gone with it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from fuaudit.errors import FuauditError
from fuaudit.formats.forms import canonical_json, parse_canonical
from fuaudit.secure import bfv
from fuaudit.secure.encrypted import Client, Handout, KeyHolder, Server, Total, Witness, has_masks
from fuaudit.secure.envelope import envelope
from fuaudit.secure.lines import BrokenLineError, FloodedError, Line
from fuaudit.secure.masked import MaskClient, MaskServer, threshold
from fuaudit.secure.messages import Identity, Message, Step, ids_bytes, ids_of, list_digest, require_enough
from fuaudit.secure.names import HOLDER, WITNESS
from fuaudit.secure.plain import opened as plain_sum
from fuaudit.secure.plain import row_message
from fuaudit.secure.receipts import Receipt
from fuaudit.secure.silence import is_here, unanswered
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import RINGS, Once, Opened, Terms
from fuaudit.secure.turns import NOTHING, Due, ElsewhereError, Heard, Turn, played

BEAT, SAID, DONE, REFUSED, BROKE = b"beat", b"said", b"done", b"refused", b"broke"
"""First parts of frames to who started a party."""

MOST_PARTS = 4 + 2 * RINGS[-1].summands
MOST_BYTES = 1 << 33
"""Of a task, which comes from who started this process."""

Secrets = Mapping[int, tuple[bytes, Ints | None]]
"""Party -> its seed, and the row of a client."""


@dataclass(frozen=True)
class Task:
    """What a process is told of one opening.

    Attributes:
        terms: of the buffer.
        absent: party of this process -> step from which on it is silent.
        before: party of this process -> what it did before its process was started, as it would remember it.
        record: whether who started it is told every message that the server sees.
        within: seconds that it waits for another party.
        secrets: of the parties of this process.
    """

    terms: Terms
    absent: Mapping[int, str]
    before: Mapping[int, Sequence[Sequence[int]]]
    record: bool
    within: float
    secrets: Secrets = field(repr=False)

    def parts(self) -> list[bytes]:
        """All of it in bytes."""
        head = {
            "absent": sorted(self.absent.items()),
            "before": sorted(self.before.items()),
            "record": self.record,
            "within": self.within,
            "parties": sorted(self.secrets),
        }
        told = [
            part
            for _, (seed, row) in sorted(self.secrets.items())
            for part in (seed, b"" if row is None else row.astype("<i8").tobytes())
        ]
        return [canonical_json(head), self.terms.body, *told]

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Task:
        """The inverse."""
        head, terms, *told = parts
        table = parse_canonical(head, Path("task"))
        rows = (np.frombuffer(part, dtype="<i8").astype(np.int64) if part else None for part in told[1::2])
        secrets = dict(zip(table["parties"], zip(told[::2], rows, strict=True), strict=True))
        return cls(
            Terms.of(terms), dict(table["absent"]), dict(table["before"]), table["record"], table["within"], secrets
        )

    def once(self, party: int, remembered: Once) -> Once:
        """What a party of this process remembers, with what it did before."""
        remembered.remember(self.before[party])
        return remembered

    def here(self, step: str) -> list[int]:
        """The parties of this process that answer at a step, ascending."""
        return [party for party in sorted(self.secrets) if is_here(party, step, self.absent)]

    def identity(self, party: int) -> Identity:
        """That of a party of this process."""
        return Identity(self.secrets[party][0])

    def row(self, client: int) -> Ints:
        """That of a client of this process."""
        row = self.secrets[client][1]
        return np.empty(0, dtype=np.int64) if row is None else row


class Role(Protocol):
    """A party, or several clients, in one opening."""

    def turns(self) -> Sequence[Turn]:
        """What it does."""

    def end(self) -> None:
        """Drop all secrets."""


class Clients:
    """Several clients of one process. ``books`` is what each remembers of the run."""

    def __init__(self, task: Task, books: dict[int, Once]) -> None:
        self._task, self._books = task, books
        self._made: dict[int, Client | MaskClient] = {}
        self._identities = {one: task.identity(one) for one in sorted(task.secrets)}

    def turns(self) -> Sequence[Turn]:
        """See :class:`Role`."""
        many, suite = len(self._task.terms.members), self._task.terms.suite
        if suite == "plain":
            return [Turn({}, self._rows, ["server"])]
        if suite == "mask":
            return [
                Turn({}, self._announced, ["server"]),
                Turn({"server": {"announce": many}}, self._shared, ["server"]),
                Turn({"server": {"share": many}}, self._masked, ["server"]),
                Turn({"server": {"came": 1}}, self._unmasked, ["server"]),
            ]
        return [
            Turn({"holder": {"handout": len(self._task.secrets)}}, self._given, ["server"]),
            Turn(
                {"server": {"announce": many} if has_masks(self._task.terms) else NOTHING}, self._encrypted, ["server"]
            ),
        ]

    def _rows(self, _: Heard) -> Heard:
        terms, came = self._task.terms, self._task.here("send")
        rows = [row_message(self._task.row(n), n, terms, self._identities[n]) for n in came]
        for client in came:
            self._once(client).require_first(terms.round)
        return {"server": rows}

    def _once(self, client: int) -> Once:
        return self._task.once(client, self._books.setdefault(client, Once()))

    def _announced(self, _: Heard) -> Heard:
        terms = self._task.terms
        self._made = {
            n: MaskClient(terms, n, self._task.row(n), key, self._once(n)) for n, key in self._identities.items()
        }
        return {"server": [self._made[n].announce() for n in self._task.here("announce")]}

    def _shared(self, heard: Heard) -> Heard:
        return {"server": [self._masking(n).share(heard["server"]) for n in self._task.here("share")]}

    def _masked(self, heard: Heard) -> Heard:
        return {"server": [self._masking(n).send(heard["server"]) for n in self._task.here("send")]}

    def _unmasked(self, heard: Heard) -> Heard:
        came = ids_of(heard["server"][0].body) if heard["server"] else ()
        return {"server": [self._masking(n).unmask(came) for n in self._task.here("unmask")]}

    def _masking(self, client: int) -> MaskClient:
        made = self._made[client]
        if not isinstance(made, MaskClient):
            raise TypeError(client)
        return made

    def _given(self, heard: Heard) -> Heard:
        terms, given = self._task.terms, {message.receiver: message for message in heard["holder"]}
        if not given.keys() >= self._identities.keys():
            raise ElsewhereError("the key holder gave nothing out")
        self._made = {
            n: Client(terms, n, self._task.row(n), key, Handout.of(given[n], n, terms), self._once(n))
            for n, key in self._identities.items()
        }
        return {"server": [self._made[n].announce() for n in self._task.here("announce")] if has_masks(terms) else []}

    def _encrypted(self, heard: Heard) -> Heard:
        return {"server": [self._made[n].send(heard["server"]) for n in self._task.here("send")]}

    def end(self) -> None:
        """See :class:`Role`."""
        for made in (*self._made.values(), *self._identities.values()):
            made.end()


class Hub:
    """The server: all messages but handouts go through it. ``clients`` are the processes that clients live in."""

    def __init__(self, task: Task, clients: Sequence[str], control: Line) -> None:
        self._task, self._clients, self._control = task, clients, control
        self._lists: dict[str, list[Message]] = {}
        self._total: Total | None = None
        self.result: tuple[Message, tuple[int, ...]] | None = None

    def turns(self) -> Sequence[Turn]:
        """See :class:`Role`."""
        suite = self._task.terms.suite
        if suite == "plain":
            return [Turn(self._due("send"), self._summed)]
        if suite == "mask":
            return [
                Turn(self._due("announce"), self._passed_on, self._clients),
                Turn(self._due("share"), self._passed_on, self._clients),
                Turn(self._due("send"), self._named, self._clients),
                Turn(self._due("unmask"), self._unmasked),
            ]
        return [
            Turn({"holder": {"context": 1}}, self._begun),
            Turn(
                self._due("announce") if has_masks(self._task.terms) else dict.fromkeys(self._clients, NOTHING),
                self._passed_on,
                self._clients,
            ),
            Turn(self._due("send"), self._added, ["witness"]),
            Turn({"witness": {"witness": 1}}, self._witnessed, ["holder"]),
            Turn({"holder": {"receipt": 1}}, self._opened),
        ]

    def _due(self, step: Step) -> dict[str, Due]:
        return {process: {step: len(self._task.terms.members)} for process in self._clients}

    def _came(self, heard: Heard) -> list[Message]:
        """What all clients said in a turn, ascending by sender, and told to who started this."""
        found = sorted((one for messages in heard.values() for one in messages), key=lambda each: each.sender)
        return self._said(found)

    def _said(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            self._lists.setdefault(message.step, []).append(message)
            if self._task.record:
                self._control.send([SAID, envelope(message)])
        return messages

    def _passed_on(self, heard: Heard) -> Heard:
        return dict.fromkeys(self._clients, self._came(heard))

    def _list(self, step: str) -> list[Message]:
        return self._lists.get(step, [])

    def _told(self, total: bytes, opened: Opened) -> None:
        body = Receipt(total, opened.members, opened.sums).body()
        (message,) = self._said([Message.unsigned("opened", body, self._task.terms)])
        self.result = message, opened.liars

    def _summed(self, heard: Heard) -> Heard:
        sent = self._came(heard)
        self._told(list_digest(sent), plain_sum(sent, self._task.terms))
        return {}

    def _named(self, heard: Heard) -> Heard:
        came, terms = [message.sender for message in self._came(heard)], self._task.terms
        told = self._said([Message.unsigned("came", ids_bytes(came), terms)]) if came else []
        require_enough(came, terms, threshold(terms))
        return dict.fromkeys(self._clients, told)

    def _unmasked(self, heard: Heard) -> Heard:
        lists = self._list("announce"), self._list("share"), self._list("send"), self._came(heard)
        self._told(list_digest(lists[2]), MaskServer(self._task.terms).opened(*lists))
        return {}

    def _begun(self, heard: Heard) -> Heard:
        if not heard["holder"]:
            raise unanswered(HOLDER, "announce", self._task.terms)
        self._said(list(heard["holder"]))
        return {}

    def _added(self, heard: Heard) -> Heard:
        terms, announced, sent = self._task.terms, self._list("announce"), self._came(heard)
        (context,) = self._list("context")
        self._total = Server(terms, context.require("context", 1, bfv.KEYLESS_BYTES, terms)).total(sent, announced)
        total = self._said([Message.unsigned("total", self._total.body(), terms)])
        return {"witness": [context, *announced, *sent, *total]}

    def _witnessed(self, heard: Heard) -> Heard:
        if not heard["witness"]:
            raise unanswered(WITNESS, "witness", self._task.terms)
        return {"holder": [*self._list("total"), *self._said(list(heard["witness"]))]}

    def _opened(self, heard: Heard) -> Heard:
        if not heard["holder"]:
            raise unanswered(HOLDER, "receipt", self._task.terms)
        (receipt,) = self._said(list(heard["holder"]))
        self.result = receipt, ()
        return {}

    def end(self) -> None:
        """See :class:`Role`; it has none."""


class Watch:
    """The witness."""

    def __init__(self, task: Task, once: Once) -> None:
        self._task, self._once, self._identity = task, task.once(WITNESS, once), task.identity(WITNESS)

    def turns(self) -> Sequence[Turn]:
        """See :class:`Role`."""
        many = len(self._task.terms.members)
        lists: Due = {"announce": many} if has_masks(self._task.terms) else NOTHING
        return [Turn({"server": {"context": 1, **lists, "send": many, "total": 1}}, self._signed, ["server"])]

    def _signed(self, heard: Heard) -> Heard:
        if not self._task.here("witness"):
            return {}
        terms = self._task.terms
        announced, sent = ([one for one in heard["server"] if one.step == step] for step in ("announce", "send"))
        (context,) = [one for one in heard["server"] if one.step == "context"]
        (total,) = [Total.of(one, terms) for one in heard["server"] if one.step == "total"]
        keyless = context.require("context", 1, bfv.KEYLESS_BYTES, terms)
        return {"server": [Witness(terms, keyless, self._identity, self._once).signature(sent, total, announced)]}

    def end(self) -> None:
        """See :class:`Role`."""
        self._identity.end()


class Holder:
    """The key holder. Its handouts go to the processes of clients, past the server."""

    def __init__(self, task: Task, clients: Mapping[str, Sequence[int]], once: Once) -> None:
        self._task, self._clients, self._once = task, clients, task.once(HOLDER, once)
        self._identity = task.identity(HOLDER)
        self._made: KeyHolder | None = None

    def turns(self) -> Sequence[Turn]:
        """See :class:`Role`."""
        return [
            Turn({}, self._begun, ["server", *self._clients]),
            Turn({"server": {"total": 1, "witness": 1}}, self._receipt, ["server"]),
        ]

    def _begun(self, _: Heard) -> Heard:
        if not self._task.here("announce"):
            return {}
        made = self._made = KeyHolder(self._task.terms, self._identity, self._once)
        handouts = {name: [made.handout_message(one) for one in ids] for name, ids in self._clients.items()}
        return {"server": [made.context()], **handouts}

    def _receipt(self, heard: Heard) -> Heard:
        if self._made is None or not self._task.here("receipt"):
            return {}
        found = by_step(heard["server"])
        return {"server": [self._made.receipt(Total.of(found["total"], self._task.terms), found["witness"])]}

    def end(self) -> None:
        """See :class:`Role`."""
        self._identity.end()
        if self._made is not None:
            self._made.end()


class Bystander:
    """The witness or the key holder in a suite that needs none."""

    def turns(self) -> Sequence[Turn]:
        """See :class:`Role`."""
        return []

    def end(self) -> None:
        """See :class:`Role`; it has none."""


def by_step(messages: Iterable[Message]) -> dict[str, Message]:
    """Messages by their steps, one of each."""
    return {message.step: message for message in messages}


def process_of(client: int, processes: Sequence[str]) -> str:
    """In which process a client lives, in all rounds: what it remembers is there."""
    return processes[client % len(processes)]


class Memory:
    """What the parties of a process remember from opening to opening."""

    def __init__(self) -> None:
        self.clients: dict[int, Once] = {}
        self.once = Once()


def role_of(name: str, task: Task, lines: Mapping[str, Line], control: Line, memory: Memory) -> Role:
    """The party of a name in one opening."""
    processes = [other for other in lines if other.startswith("clients")]
    if name == "server":
        return Hub(task, processes, control)
    if name in ("witness", "holder") and not task.terms.holder:
        return Bystander()
    if name == "witness":
        return Watch(task, memory.once)
    if name == "holder":
        members = {one: [n for n in task.terms.members if process_of(n, processes) == one] for one in processes}
        return Holder(task, members, memory.once)
    return Clients(task, memory.clients)


def report(failed: FuauditError | None, role: Role) -> list[bytes]:
    """How an opening ended for a party: what it opened, or what made it break off."""
    if isinstance(failed, ElsewhereError | BrokenLineError) and not isinstance(failed, FloodedError):
        return [BROKE, str(failed.args[0]).encode()]
    if failed is not None:
        blamed = getattr(failed, "blamed", None)
        told = (type(failed).__name__, str(failed.args[0]), getattr(failed, "hint", ""), getattr(failed, "reason", ""))
        return [REFUSED, *(text.encode() for text in told), b"" if blamed is None else ids_bytes([blamed])]
    if isinstance(role, Hub) and role.result is not None:
        return [DONE, envelope(role.result[0]), ids_bytes(role.result[1])]
    return [DONE]


def serve(name: str, control: Line, lines: Mapping[str, Line]) -> None:
    """Take part in openings until who started this is gone."""
    memory = Memory()
    while True:
        task = Task.of(control.receive(MOST_PARTS, MOST_BYTES))
        role = role_of(name, task, lines, control, memory)
        try:
            failed = played(role.turns(), lines, task.terms, task.within, lambda: control.send([BEAT]))
            told = report(failed, role)
        finally:
            role.end()
        control.send(told)


def main(name: str, *places: str) -> None:
    """Serve as a party, with lines by name and descriptor."""
    from fuaudit.secure.confinement import guard

    guard()
    given = (place.split("=") for place in places)
    lines = {peer: Line(socket.socket(fileno=int(number)), peer) for peer, number in given}
    control = lines.pop("control")
    try:
        serve(name, control, lines)
    except BrokenLineError:
        return  # who started this is gone


if __name__ == "__main__":
    main(*sys.argv[1:])
