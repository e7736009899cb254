"""Transcripts: a run keeps every message of its secure sums, and has its parties sign by what it committed to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fuaudit.commitments.identities import identity_of
from fuaudit.commitments.lots import Lots, context_of
from fuaudit.errors import EvidenceError, StorageError
from fuaudit.formats.files import append_bytes, read_bytes, storage, sync_folder, write_bytes
from fuaudit.plans import Plan
from fuaudit.plans.stage_draws import generation_of
from fuaudit.runs.layout import BODIES, CHAIN, mode_of, of_round
from fuaudit.runs.manifest import limit_of
from fuaudit.runs.run import Run
from fuaudit.runs.transcripts import names_of_transcript
from fuaudit.secure.messages import Identity, Message
from fuaudit.secure.suites import Kept, Signers
from fuaudit.secure.terms import Lot
from fuaudit.secure.transcript import ENDS, Chain, Transcript, read_chain

if TYPE_CHECKING:
    from fuaudit.workflow.writer import RunWriter


class Keeper:
    """The transcript of a run that is growing. What ends a buffer is on disk before anybody is told of its sum."""

    def __init__(self, folder: Path, chain: Chain) -> None:
        self._folder, self._durable, self._size = folder, False, len(chain.content)
        self._transcript, self.chain = Transcript(self._keep, chain), chain
        self._lots = chain.rounds[-1] if chain.rounds else 0

    @property
    def head(self) -> str:
        """SHA-256 of the last line, in hexadecimal."""
        return self._transcript.head

    def record(self, message: Message) -> None:
        """Keep a message; see :meth:`fuaudit.secure.transcript.Transcript.record`."""
        self._durable = message.step in ENDS
        self._transcript.record(message)

    def settle(self, number: int) -> None:
        """Flush all messages of a round to disk."""
        if (body := self._folder / of_round(BODIES, number)).exists():
            append_bytes(body, b"")
            append_bytes(self._folder / CHAIN, b"")

    def _keep(self, number: int, content: bytes, line: bytes) -> None:
        self._size += len(line) + 1
        if self._size > limit_of(CHAIN):
            raise StorageError(
                f"{self._folder / CHAIN} would be larger than can be read",
                "All rounds before are kept. Take fewer rounds, or larger buffers.",
            )
        body = self._folder / of_round(BODIES, number)
        new = not body.exists()
        append_bytes(body, content, self._durable)
        if new:
            with storage(body):
                sync_folder(body.parent)
        append_bytes(self._folder / CHAIN, line + b"\n", self._durable)


def begin_transcript(folder: Path) -> None:
    """A transcript without messages."""
    write_bytes(folder / CHAIN, b"", mode=mode_of(CHAIN))


def mend_transcript(folder: Path, done: int) -> None:
    """Cut what a kill left behind the last stored round: torn lines and envelopes, and rounds that are executed again.

    Raises:
        EvidenceError: a line before that is none, or a body is shorter than the chain tells.
    """
    path = folder / CHAIN
    content = read_bytes(path, limit_of(CHAIN))
    chain = read_chain(content[: content.rfind(b"\n") + 1], path).cut(done)
    if chain.content != content:
        write_bytes(path, chain.content, mode=mode_of(CHAIN))
    bodies = {of_round(BODIES, number): chain.size_of(number) for number in chain.rounds}
    for name in names_of_transcript(folder):
        if name == CHAIN:
            continue
        with storage(folder / name):
            if name not in bodies:
                (folder / name).unlink()
            elif (folder / name).stat().st_size != bodies[name]:
                raise EvidenceError(f"{folder / name} has another number of bytes than {CHAIN} tells")


def kept(writer: RunWriter, plan: Plan) -> Kept:
    """What a run that keeps a transcript brings to its openings; ``writer`` has one."""
    run, keeper = writer.run, writer.transcript
    secrets = run.secrets
    if keeper is None or secrets is None:
        raise EvidenceError(f"{run.path} has no transcript, or no secrets from which keys follow that sign in it")
    signers = Signers(_Identities(secrets.generations[0]), *map(identity_of, secrets.parties))
    return Kept(keeper.record, signers, _revealing(run, plan, keeper, signers))


class _Identities(dict[int, Identity]):
    """Client -> its identity, made when it is asked for first."""

    def __init__(self, secrets: Mapping[int, bytes]) -> None:
        super().__init__()
        self._secrets = secrets

    def __missing__(self, client: int) -> Identity:
        return self.setdefault(client, identity_of(self._secrets[client]))


def _revealing(run: Run, plan: Plan, keeper: Keeper, signers: Signers) -> Callable[[int, Sequence[int]], None]:
    """Has the clients of a round reveal their parts in its lot, where there is one."""
    lots: Lots | None = run.lots
    commitment, contexts = run.commitment, run.contexts

    def reveal(number: int, clients: Sequence[int]) -> None:
        if lots is None:
            return
        generation = generation_of(plan, number)
        roster = tuple(signers.clients[client].public for client in clients)
        lot = Lot(context_of(commitment, contexts[generation]), number, tuple(clients), roster)
        for client in clients:
            said = lots.contribution(client, generation, number)
            keeper.record(Message.signed("lot", client, said, lot, signers.clients[client]))

    return reveal


def copy_transcript(folder: Path, out: Path, bodies: bool = True) -> None:
    """The transcript of a run in another folder, or its chain alone; nothing where there is none."""
    for name in names_of_transcript(folder):
        if bodies or name == CHAIN:
            write_bytes(out / name, read_bytes(folder / name, limit_of(name)), mode=mode_of(name))
