"""Transcripts: a run keeps every message of its secure sums, and has its parties sign by what it committed to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from fuaudit.commitments.identities import identity_of
from fuaudit.commitments.lots import Lots, context_of
from fuaudit.errors import EvidenceError, PluginError, StorageError
from fuaudit.formats.files import append_bytes, read_bytes, storage, sync_folder, write_bytes
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json, parse_canonical
from fuaudit.plans import Plan
from fuaudit.plans.stage_draws import Part, generation_of
from fuaudit.registry import called
from fuaudit.runs.layout import BEGUN, BODIES, CHAIN, LEDGER, mode_of, of_round
from fuaudit.runs.ledger import Ledger
from fuaudit.runs.manifest import limit_of
from fuaudit.runs.run import Run
from fuaudit.runs.transcripts import body_of, names_of_transcript
from fuaudit.secure.envelope import parsed, terms_of
from fuaudit.secure.messages import OF_ROUND, Identity, Message, Signers
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.streams import Ints
from fuaudit.secure.suites import Kept
from fuaudit.secure.terms import Lot, Opened, Terms, columns_bytes
from fuaudit.secure.transcript import ENDS, Chain, Transcript, broke_off, envelopes, messages_of, opened_in, read_chain


class Keeper:
    """The transcript of a run that is growing. What ends a buffer is on disk before anybody is told of its sum.

    What is begun is on disk before anything of it is sent. Of a round that broke off ``messages`` are those that stay,
    and ``begun`` are terms of attempts that were there before it was mended, by round and buffer.
    """

    def __init__(
        self,
        folder: Path,
        chain: Chain,
        begun: Mapping[tuple[int, int], Terms] = MappingProxyType({}),
        messages: tuple[Message, ...] = (),
    ) -> None:
        self._folder, self._durable, self._size = folder, False, len(chain.content)
        self._transcript, self.chain, self.begun, self.messages = Transcript(self._keep, chain), chain, begun, messages

    @property
    def head(self) -> str:
        """SHA-256 of the last line, in hexadecimal."""
        return self._transcript.head

    def record(self, message: Message) -> None:
        """Keep a message; see :meth:`fuaudit.secure.transcript.Transcript.record`."""
        self._durable = message.step in (*ENDS, "terms")
        self._transcript.record(message)

    def settle(self, number: int) -> None:
        """Flush all messages of a round to disk: nothing of it is begun any more."""
        if (body := self._folder / of_round(BODIES, number)).exists():
            append_bytes(body, b"")
            append_bytes(self._folder / CHAIN, b"")
        _forget_begun(self._folder)

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


def has_messages(folder: Path) -> bool:
    """Whether a run that broke off began sums: there is a whole line in its chain."""
    return b"\n" in read_bytes(folder / CHAIN, limit_of(CHAIN))


@dataclass(frozen=True)
class Mending:
    """What stays of the transcript of a run that broke off. Nothing is written before :func:`keeper_behind`.

    Attributes:
        chain: what stays of it.
        begun: round and buffer -> terms of the last attempt, in the round behind the last stored one.
        lost: those of which the chain tells no longer. They lie beside it until the round is stored.
        messages: those that stay of that round.
    """

    chain: Chain
    begun: Mapping[tuple[int, int], Terms]
    lost: Mapping[tuple[int, int], Terms]
    messages: tuple[Message, ...]

    def keeper(self, folder: Path) -> Keeper:
        """The transcript as it goes on, once it is mended."""
        return Keeper(folder, self.chain, self.begun, self.messages)


def mending_of(folder: Path, ledger: Ledger, done: int) -> Mending:
    """What a kill left behind the last stored round, and what of it stays: buffers of the next one that came to an end.

    What was begun and not opened goes, with torn lines and envelopes: nobody was told of it. So does an attempt that
    broke off, where a party was gone. Others that were discarded stay. All of it is looked at, and nothing is written.

    Raises:
        EvidenceError: a line is none, an envelope that stays or terms of what was begun are not those of the chain, the
            ledger names another head after a stored round, or what lies beside the chain are no terms.
    """
    left = _left(folder)
    chain = _mended(folder, left, done)
    _require_told(folder, chain.cut(done), {
        event["round"]: event["transcript"] for event in ledger.of_kind("round") if event["round"] <= done
    })  # fmt: skip
    for number in chain.cut(done).rounds:
        for _ in envelopes(chain.of_round(number), _recorded(folder, chain, number), folder / of_round(BODIES, number)):
            pass
    last, stays = done + 1, chain.of_round(done + 1)
    messages = messages_of(stays, _recorded(folder, chain, last), folder / of_round(BODIES, last)) if stays else ()
    begun = {**_beside(folder, done), **_begun(folder, left, done)}
    kept = _begun(folder, chain, done)
    return Mending(chain, begun, {at: terms for at, terms in begun.items() if at not in kept}, messages)


def _require_told(folder: Path, chain: Chain, told: Mapping[int, str]) -> None:
    """Raises EvidenceError where the chain of stored rounds is not the one whose heads the ledger tells."""
    if not {*chain.rounds} <= told.keys():
        raise EvidenceError(f"{folder / CHAIN} has messages of other rounds than {LEDGER} tells of")
    for number in sorted(told):
        if told[number] != chain.head_after(number):
            raise EvidenceError(f"{folder / CHAIN} has another head after round {number} than {LEDGER} names")


def _recorded(folder: Path, chain: Chain, number: int) -> bytes:
    """The envelopes of a round of which a chain tells, without what was written behind them; EvidenceError for less."""
    content, size = body_of(folder, number) or b"", chain.size_of(number)
    if len(content) < size:
        raise EvidenceError(f"{folder / of_round(BODIES, number)} has fewer bytes than {CHAIN} tells")
    return content[:size]


def keeper_behind(folder: Path, mending: Mending) -> Keeper:
    """The transcript of a run that goes on behind its last stored round: what does not stay is cut.

    Terms of what is cut are written beside it first. They stay until the round is stored: a kill at any instant leaves
    them there, or in the chain.
    """
    if lost := mending.lost:
        write_bytes(folder / BEGUN, canonical_json([asdict(lost[at]) for at in sorted(lost)]), mode=mode_of(BEGUN))
    _cut(folder, mending.chain)
    if not lost:
        _forget_begun(folder)
    return mending.keeper(folder)


def _forget_begun(folder: Path) -> None:
    """Remove what lies beside the chain: all of it is in the chain again, or of a round that is over."""
    if (path := folder / BEGUN).exists():
        with storage(path):
            path.unlink()
            sync_folder(path.parent)


def _left(folder: Path) -> Chain:
    """The chain as a kill left it, as far as its lines are whole."""
    content = read_bytes(folder / CHAIN, limit_of(CHAIN))
    return read_chain(content[: content.rfind(b"\n") + 1], folder / CHAIN)


def begun_in(folder: Path, done: int) -> Mapping[tuple[int, int], Terms]:
    """Round and buffer -> terms of its last attempt, in the round behind the last stored one, as breaks left them."""
    return {**_beside(folder, done), **_begun(folder, _left(folder), done)}


def _beside(folder: Path, done: int) -> dict[tuple[int, int], Terms]:
    """What lies beside the chain, of the round behind the last stored one. EvidenceError where that are no terms."""
    if not (path := folder / BEGUN).exists():
        return {}
    told = parse_canonical(read_bytes(path, MAX_JSON_BYTES), path)
    try:
        found = [Terms.of(canonical_json(one)) for one in told]
    except (RefusedError, TypeError):
        raise EvidenceError(f"{path} holds no terms of buffers", "Its run wrote it: take it from a copy.") from None
    return {(terms.round, terms.buffer): terms for terms in found if terms.round == done + 1}


def _begun(folder: Path, chain: Chain, done: int) -> dict[tuple[int, int], Terms]:
    """Terms of the last attempts that a chain tells of, in the round behind the last stored one.

    Terms are on disk before their line is. So EvidenceError where they are not there: what was begun is to be known.
    """
    path, at = folder / of_round(BODIES, done + 1), 0
    body = body_of(folder, done + 1) or b""
    found: dict[tuple[int, int], Terms] = {}
    for entry in chain.of_round(done + 1):
        part, at = body[at : at + entry.size], at + entry.size
        if entry.step == "terms":
            (message,) = messages_of([entry], part, path)
            found[entry.round, entry.buffer] = _terms(message, path)
    return found


def _terms(message: Message, path: Path) -> Terms:
    """The terms in a message of a body; EvidenceError for what is none."""
    try:
        return terms_of(message)
    except RefusedError as error:
        raise EvidenceError(f"{path} holds no terms of buffers: {error.args[0]}") from None


def _mended(folder: Path, left: Chain, done: int) -> Chain:
    """What stays of a chain; see :func:`mending_of`."""
    whole = left.cut(done + 1)
    return max(whole.cut(done), _gone_on_with(folder, whole.ended()), key=lambda one: len(one.entries))


def _cut(folder: Path, chain: Chain) -> None:
    """Cut a transcript to a chain that stays, and its bodies to what that tells of."""
    path = folder / CHAIN
    if chain.content != read_bytes(path, limit_of(CHAIN)):
        write_bytes(path, chain.content, mode=mode_of(CHAIN))
    bodies = {of_round(BODIES, number): chain.size_of(number) for number in chain.rounds}
    for name in {*names_of_transcript(folder, torn=True)} - {CHAIN, BEGUN}:
        body = folder / name
        if name not in bodies:
            with storage(body):
                body.unlink()
        elif body.stat().st_size > bodies[name]:
            write_bytes(body, read_bytes(body, limit_of(name))[: bodies[name]], mode=mode_of(name))


def _gone_on_with(folder: Path, chain: Chain) -> Chain:
    """A chain up to the last buffer that came to an end, without attempts behind it that broke off."""
    while chain.entries and chain.entries[-1].step == "discard" and _broke_off(folder, chain):
        chain = Chain(chain.entries[:-1]).ended()
    return chain


def _broke_off(folder: Path, chain: Chain) -> bool:
    """Whether the last message of a chain says that an attempt broke off."""
    last = chain.entries[-1]
    end = chain.size_of(last.round)
    content = (body_of(folder, last.round) or b"")[end - last.size : end]
    return hashlib.sha256(content).hexdigest() == last.sha256 and broke_off(parsed(content))


def _told(messages: Sequence[Message]) -> dict[tuple[int, int], tuple[Terms, Opened]]:
    """What was opened, with its terms."""
    terms = {message.terms: terms_of(message) for message in messages if message.step == "terms"}
    opened = opened_in(messages)
    ends = [message for message in messages if message.step in ENDS and message.buffer in opened]
    return {(end.round, end.buffer): (terms[end.terms], opened[end.buffer]) for end in ends if end.step != "discard"}


def kept(run: Run, keeper: Keeper, plan: Plan) -> Kept:
    """What a run brings to its openings, of which a keeper keeps the messages.

    Raises:
        EvidenceError: the run has no secrets.
        RefusedError: a sum that was opened before it broke off is none of its terms.
    """
    messages = keeper.messages
    secrets = run.secrets
    if secrets is None:
        raise EvidenceError(f"{run.path} has no secrets from which keys follow that sign in its transcript")
    signers = Signers(_Identities(secrets.generations[0]), *map(identity_of, secrets.parties))
    done = {step: {message.round for message in messages if message.step == step} for step in OF_ROUND}
    reveal = _revealing(run, plan, keeper, signers, done["lot"])
    tell = _telling(run, plan, keeper, signers, done["columns"])
    record = _recording(run, plan, keeper)
    return Kept(record, signers, reveal, tell, _told(messages), keeper.begun, _contexts(run, plan))


def _recording(run: Run, plan: Plan, keeper: Keeper) -> Callable[[Message], None]:
    """Keeps every message, but for terms of a sum of other clients than the transport says: nothing of it is sent."""
    exchange = run.exchange

    @cache
    def drawn(number: int) -> list[tuple[int, ...]]:
        (draws,), cohort = run.stage_draws(plan), plan.cohort(number)
        return exchange.members(cohort, draws.lot(number, Part("transport"), sorted({*cohort})))

    def record(message: Message) -> None:
        if message.step == "terms" and run.lots is not None:
            _require_drawn(exchange.transport, terms_of(message), drawn(message.round))
        keeper.record(message)

    return record


def _require_drawn(transport: object, terms: Terms, drawn: Sequence[tuple[int, ...]]) -> None:
    """PluginError where a buffer is of other clients than its lot gives it, as the transport says it by ``members``."""
    if drawn[terms.buffer : terms.buffer + 1] != [terms.members]:
        there = drawn[terms.buffer] if terms.buffer < len(drawn) else "nobody"
        raise PluginError(
            f"{called(transport)}, members, says that buffer {terms.buffer} of round {terms.round} is of {there}, and "
            f"its sum is asked for of {terms.members}",
            "An audit would blame clients for it. Draw in members as in deliver, and say at=(context.number, n), where "
            "n counts the buffers from 0: check_transport tells which of both is wrong.",
        )


def _contexts(run: Run, plan: Plan) -> Callable[[int], str]:
    """Round -> the digest of the run and of the generation with whose keys it draws: under every signature."""
    commitment, contexts = run.commitment, run.contexts
    return lambda number: context_of(commitment, contexts[generation_of(plan, number)])


class _Identities(dict[int, Identity]):
    """Client -> its identity, made when it is asked for first."""

    def __init__(self, secrets: Mapping[int, bytes]) -> None:
        super().__init__()
        self._secrets = secrets

    def __missing__(self, client: int) -> Identity:
        return self.setdefault(client, identity_of(self._secrets[client]))


def _lot_of(run: Run, plan: Plan, signers: Signers) -> Callable[[int, Sequence[int]], Lot]:
    """Round and its clients -> what these agree on."""
    context = _contexts(run, plan)

    def lot(number: int, clients: Sequence[int]) -> Lot:
        return Lot(context(number), number, tuple(clients), tuple(signers.clients[one].public for one in clients))

    return lot


def _revealing(
    run: Run, plan: Plan, keeper: Keeper, signers: Signers, revealed: Collection[int]
) -> Callable[[int, Sequence[int]], None]:
    """Has the clients of a round reveal their parts in its lot, where there is one, and they have not ``revealed``."""
    lots: Lots | None = run.lots
    lot_of = _lot_of(run, plan, signers)

    def reveal(number: int, clients: Sequence[int]) -> None:
        if lots is None or number in revealed:
            return
        generation, lot = generation_of(plan, number), lot_of(number, clients)
        for client in clients:
            said = lots.contribution(client, generation, number)
            keeper.record(Message.signed("lot", client, said, lot, signers.clients[client]))

    return reveal


def _telling(
    run: Run, plan: Plan, keeper: Keeper, signers: Signers, told: Collection[int]
) -> Callable[[int, Sequence[int], Ints], None]:
    """Has the server tell the columns that clients agreed on, in rounds in which it has not ``told`` any.

    Whoever has no rows cannot find them. Where no sum is asked for nobody could compare them, so none are told.
    """
    lot_of = _lot_of(run, plan, signers)

    def tell(number: int, clients: Sequence[int], columns: Ints) -> None:
        if run.lots is not None and number not in told:
            keeper.record(Message.unsigned("columns", columns_bytes(columns), lot_of(number, clients)))

    return tell
