"""The contract of transports whose sums a suite makes: what its messages show is what the transport says.

Rounds are played by the suite "plain", beside the same ones in the clear, and rechecked as an audit rechecks them. It
takes no library of a suite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fuaudit.declared import offers
from fuaudit.draws import Address, Labelled, Purpose
from fuaudit.draws.chains import Chain as Contributions
from fuaudit.errors import UsageError
from fuaudit.plans.stage_draws import Part, PublicDraws
from fuaudit.secure.envelope import terms_of
from fuaudit.secure.exposure import Buffer, buffers_under
from fuaudit.secure.messages import Identity, Message, Signers
from fuaudit.secure.recheck.known import Known
from fuaudit.secure.recheck.transcripts import recheck
from fuaudit.secure.streams import Ints
from fuaudit.secure.suites import Books, Kept
from fuaudit.secure.terms import RINGS, Lot, Opened, Terms, columns_bytes, coordinates_digest
from fuaudit.secure.transcript import Transcript, opened_in, read_chain
from fuaudit.testing.contexts import CPU, DIMENSION
from fuaudit.testing.problems import Problems
from fuaudit.testing.tiny import key_of
from fuaudit.text import counted
from fuaudit.training.asking import asked
from fuaudit.training.contracts import Delivery
from fuaudit.training.events import Event, Summed, Suspected, Told
from fuaudit.training.exchange import A_FAILURE, Exchange, Summation
from fuaudit.training.federation import NOTHING
from fuaudit.training.grid import Grid
from fuaudit.training.one_round import Sending, delivered
from fuaudit.training.rounds import ARRAYS, Cohort, ExchangeContext, RoundContext, State
from fuaudit.training.stages import Chain, Mean, Stateless, rows_left

SUITE, CONTEXT, PATH = "plain", "c" * 64, Path("transcript")
TRANSPORT, LARGEST = Part("transport"), RINGS[-1].summands
AGREED = torch.tensor([0, 2, 3])
"""The columns that clients agree on, where they agree on some."""

COUNTS = (0, 1, 2, 3, 4, 5, 7, 8, 11)
"""How many clients rounds have, beside as many as the largest buffer can hold, one more, and twice as many and one."""

EVERYBODY = 67
"""How many clients there are: a prime, so that a multiple of a place names each client once."""

TRIED = range(2, EVERYBODY)
"""Of how many clients a round is looked for that can succeed."""

UNKEPT = 3
"""Each so many-th round is played where nobody keeps messages, too."""


@dataclass(frozen=True)
class Whole(Stateless):
    """A client stage that leaves whole numbers, as large as any: sums of them round in float32."""

    bits: ClassVar[int] = 24

    def step_of(self, columns: int) -> float:
        """Another one behind an agreement."""
        return 2.0**-columns

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        return updates, state


@dataclass(frozen=True)
class TooMany(Mean):
    """A rule that needs more rows than come: every round fails."""

    least_rows: ClassVar[int] = 99


@dataclass(frozen=True)
class Round:
    """A round that is tried.

    Attributes:
        number: from 1.
        clients: who stands at its places, in no order.
        empty: every so many-th place has no samples; 0 for none.
        broken: whether the first row is infinite.
        fails: whether the server's rule has too few rows.
    """

    number: int
    clients: tuple[int, ...]
    empty: int = 0
    broken: bool = False
    fails: bool = False

    @property
    def ascending(self) -> tuple[int, ...]:
        """Its clients, ascending."""
        return tuple(sorted(self.clients))

    @property
    def words(self) -> str:
        """What it is, for people."""
        few = f", one in {self.empty} without samples" * bool(self.empty)
        return f"a round of {counted(len(self.clients), 'client')}{few}{', which fails' * self.fails}"

    def cohort(self) -> Cohort:
        """Its places."""
        ids = torch.tensor(self.clients)
        places = torch.arange(len(ids))
        sizes = 1 + places % 4
        if self.empty:
            sizes[places % self.empty == self.empty - 1] = 0
        return Cohort(ids, ids, sizes, 2 * (sizes > 0), ids >= 0, EVERYBODY, 3 * EVERYBODY)

    def rows(self, columns: int, dtype: torch.dtype) -> Tensor:
        """Whole numbers of the step ``(n, c)``; the last column holds zeros with a sign."""
        grid = Grid(Whole(), Whole.bits)
        uniform = key_of(4).uniform(Address(Purpose.AUDIT, round=self.number), len(self.clients) * columns)
        whole = torch.from_numpy((2 * uniform - 1) * grid.largest).round().reshape(-1, columns)
        whole[:, -1] = -0.0
        rows = (whole * grid.step_of(columns)).to(dtype)
        rows[:1] = torch.inf if self.broken else rows[:1]
        return rows


def rounds_tried(counts: Sequence[int]) -> tuple[Round, ...]:
    """Rounds of several numbers of clients, with samples and without."""
    made = [Round(0, tuple(range(count)), empty) for empty in (0, 5, 2) for count in counts if count >= empty]
    for count in counts[-2:]:
        made += [Round(0, tuple(range(count)), broken=True), Round(0, tuple(range(count)), fails=True)]
    return tuple(
        replace(one, number=number, clients=tuple((7 * place + number) % EVERYBODY for place in one.clients))
        for number, one in enumerate(made, 1)
    )


class Table(PublicDraws):
    """The parties of some rounds and their transcript, in memory. It hears what a transport asks for, and when."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        everybody = range(EVERYBODY)
        keys = [Identity(bytes(31) + bytes([client])) for client in range(EVERYBODY + 2)]
        self.signers = Signers(dict(zip(everybody, keys, strict=False)), *keys[EVERYBODY:])
        self.chains = {one: Contributions(bytes(31) + bytes([one]), len(rounds)) for one in everybody}
        self.keys = {client: self.signers.clients[client].public for client in everybody}
        self.lines, self.bodies = list[bytes](), dict[int, bytes]()
        self.transcript = Transcript(self._keep)
        self.books = Books(kept=Kept(self.record, self.signers, self._reveal, self._tell, context=lambda _: CONTEXT))
        self.begin(rounds[0])

    def begin(self, one: Round) -> None:
        """Nothing of a round was heard yet."""
        self.round, self.steps, self.messages = one, list[str](), list[Message]()
        self.revealed, self.told = list[tuple[int, tuple[int, ...]]](), list[tuple[int, tuple[int, ...], list[int]]]()

    def _keep(self, number: int, content: bytes, line: bytes) -> None:
        self.bodies[number] = self.bodies.get(number, b"") + content
        self.lines.append(line + b"\n")

    def record(self, message: Message) -> None:
        """Keep a message; one of another round is heard alone, for rounds of a transcript do not descend."""
        self.steps.append(message.step)
        self.messages.append(message)
        if message.round == self.round.number:
            self.transcript.record(message)

    def lot(self, number: int, part: Part, clients: Sequence[int]) -> Labelled:
        """See :class:`~fuaudit.plans.stage_draws.StageDraws`."""
        self.steps.append("draws")
        return super().lot(number, part, clients)

    def _agreed(self) -> Lot:
        clients = self.round.ascending
        return Lot(CONTEXT, self.round.number, clients, tuple(self.keys[client] for client in clients))

    def _reveal(self, number: int, clients: Sequence[int]) -> None:
        self.revealed.append((number, tuple(clients)))
        lot = self._agreed()
        for client in self.round.ascending:
            said = self.chains[client].element(self.round.number)
            self.record(Message.signed("lot", client, said, lot, self.signers.clients[client]))

    def _tell(self, number: int, clients: Sequence[int], columns: Ints) -> None:
        self.told.append((number, tuple(clients), [*map(int, columns)]))
        self.record(Message.unsigned("columns", columns_bytes(columns), self._agreed()))


def check_sums(transport: Any, problems: Problems) -> None:
    """Play rounds of a transport that has ``secured`` by the suite "plain"; see :func:`check_transport`."""
    exchange = Exchange(Chain((Mean(),)), Chain((Whole(),)), transport)
    with problems.during(f'secured("{SUITE}", ...)'):
        sums = _summation(exchange)
        if sums is None:
            return
        rounds = rounds_tried(_counts(transport, sums.most))
        for coordinates in (None, AGREED):
            if not problems.found:
                _check_run(_Run(exchange, sums, coordinates, rounds), problems)


def _summation(exchange: Exchange) -> Summation | None:
    """What a suite is asked to add up; None where no suite opens buffers as large as the transport says."""
    transport: Any = exchange.transport
    if offers(transport, "summable") and transport.summable(SUITE, exchange.client_stages.stages).most > LARGEST:
        return None
    return exchange.summation(SUITE)


def _counts(transport: object, most: int) -> list[int]:
    """Of how many clients rounds are, the fewest among them of which the transport says that one can succeed."""
    return sorted({*COUNTS, most, most + 1, 2 * most + 1, *islice(filter(partial(_succeeds, transport), TRIED), 1)})


def _succeeds(transport: object, count: int) -> bool:
    """Whether a round of so many clients, all with samples, may deliver something."""
    try:
        if offers(transport, "require_places"):
            asked(transport, "require_places", NOTHING, count, count)
    except UsageError:
        return False
    return True


@dataclass(frozen=True)
class _Run:
    """Rounds with all columns, or with those that were agreed on."""

    exchange: Exchange
    sums: Summation
    coordinates: Tensor | None
    rounds: tuple[Round, ...]

    @property
    def columns(self) -> Ints:
        """Which columns are summed."""
        return np.arange(DIMENSION) if self.coordinates is None else self.coordinates.numpy()

    def members(self, one: Round) -> list[tuple[int, ...]]:
        """The clients of each buffer of a round, as the transport says it."""
        return self.exchange.members(one.clients, PublicDraws().lot(one.number, TRANSPORT, one.ascending))

    def buffers(self, one: Round) -> tuple[Buffer, ...]:
        """The buffers of a round, as the transport says it."""
        return buffers_under(SUITE, self.exchange.buffers(len(one.clients)))

    def played(self, exchange: Exchange, one: Round, draws: PublicDraws) -> tuple[Delivery, Told]:
        """What a transport delivers and tells in a round, in float32 or float64."""
        dtype, told = (torch.float32, torch.float64)[one.number % 2], list[tuple[str, Event]]()
        model = torch.linspace(-1, 1, DIMENSION, dtype=dtype, device=CPU)
        context = ExchangeContext(one.number, one.cohort(), model, 0.1, self.coordinates, draws=(draws,), told=told)
        exchange = replace(exchange, server=Chain((TooMany(),))) if one.fails else exchange
        return delivered(exchange, Sending(one.rows(len(self.columns), dtype), context, {}, {})), told


@dataclass(frozen=True)
class _Seen:
    """What a round showed: in the clear, by the suite, and by the suite where nobody keeps its messages."""

    one: Round
    members: list[tuple[int, ...]]
    buffers: tuple[Buffer, ...]
    terms: tuple[Terms, ...]
    opened: Mapping[int, Opened]
    clear: tuple[Delivery, Told]
    came: tuple[Delivery, Told]
    alone: tuple[Delivery, Told] | None

    @property
    def sizes(self) -> list[int]:
        """How many clients each buffer has, as ``buffers`` says it."""
        return [buffer.size for buffer in self.buffers]


def _check_run(run: _Run, problems: Problems) -> None:
    """Play rounds up to the first that is wrong; where none is, recheck their messages."""
    table = Table(run.rounds)
    secured, alone = (run.exchange.secured(SUITE, books) for books in (table.books, Books()))
    for one in run.rounds:
        table.begin(one)
        came = run.played(secured, one, table)
        clear = run.played(run.exchange.in_the_clear(), one, PublicDraws())
        apart = None if one.number % UNKEPT else run.played(alone, one, PublicDraws())
        terms = tuple(terms_of(message) for message in table.messages if message.step == "terms")
        members, buffers = (run.members(one), run.buffers(one)) if one.clients else ([], ())
        seen = _Seen(one, members, buffers, terms, opened_in(table.messages), clear, came, apart)
        checks = [_wrong_lot(table), _wrong_buffers(run, seen), _wrong_columns(run, table), _wrong_sums(run, seen)]
        for found in checks if one.clients else [_wrong_deliveries(seen)]:
            for sentence in islice(found, 1):  # what follows from a fault is not told as another
                problems.require(False, f"{sentence} ({one.words})")
                return
    for wrong in islice(_rechecked(run, table), 1):
        problems.require(False, f"secured: an audit of its messages finds wrong: {wrong}")


LOT = "Call books.kept.reveal(context.number, clients), where books.kept is not None, with all clients of the round"


def _wrong_lot(table: Table) -> Iterator[str]:
    """Where clients do not reveal their parts in the lot, once and before anything is drawn by it."""
    due = table.round.number, table.round.ascending
    if not table.revealed:
        yield f"secured: its deliver has no client reveal her part in the lot. {LOT}, before anything is drawn"
    elif table.revealed != [due]:
        yield f"secured: its deliver has {table.revealed} reveal their parts in the lot. {LOT}, ascending, once: {due}"
    elif "draws" in table.steps[: table.steps.index("lot")]:
        yield f"secured: its deliver draws by context.shared before clients reveal their parts. {LOT} first"


def _wrong_buffers(run: _Run, seen: _Seen) -> Iterator[str]:
    """Where buffers are opened of other clients, under other numbers or by other terms than is said."""
    one, members, sizes = seen.one, seen.members, seen.sizes
    if sorted(client for some in members for client in some) != [*one.ascending]:
        yield f"members: it puts {members} together, and not each of {one.ascending} once"
    for terms in seen.terms:
        if terms.round != one.number:
            yield f"secured: a sum of round {one.number} is opened as one of {terms.round}: say at=(context.number, n)"
        if terms.members not in members:
            yield (
                f"members: it says {members}, and secured opens a sum of {terms.members}. Draw with the label of "
                "deliver, and put who stands at the drawn places together"
            )
        elif (due := members.index(terms.members)) != terms.buffer:
            yield (
                f"secured: buffer {due} of members is opened under the number {terms.buffer}. Say at=(context.number, "
                "n), where n counts all buffers of the round from 0, also those that are not opened"
            )
    if [*map(len, members)] != sizes:
        yield (
            f"buffers: it says sizes {sizes}, and members puts {[*map(len, members)]} together. Say each buffer at its "
            "place"
        )
    largest = max(sizes)
    if largest > run.sums.most:
        yield f"summable: it says that a buffer has {run.sums.most} clients at most, and one has {largest}"
    for terms in seen.terms:
        yield from _wrong_terms(run, seen, terms, largest)


def _wrong_terms(run: _Run, seen: _Seen, terms: Terms, largest: int) -> Iterator[str]:
    """Where terms are others than an audit takes from the transport."""
    at, columns = f"buffer {terms.buffer}", run.columns
    smallest = seen.buffers[terms.buffer].smallest
    if terms.most != largest:
        yield (
            f"secured: {at} is opened as one of {terms.most} clients at most, and the largest of the round has "
            f"{largest}. Take replace(suite, most=largest) in each round"
        )
    if terms.smallest != smallest:
        yield (
            f"buffers: it says that {at} opens from {smallest} rows on, and secured opens it from {terms.smallest} on "
            "(smallest of suite.opened; None is all of them)"
        )
    if terms.bits != run.sums.bits:
        yield f"secured: {at} is opened with {terms.bits} bits of a value, and summable says {run.sums.bits}"
    if (terms.columns, terms.coordinates) != (len(columns), coordinates_digest(columns)):
        yield (
            f"secured: {at} is opened of other columns than the round has. Say coordinates=coordinates_digest(columns) "
            "of context.coordinates, or None where that is None"
        )


def _wrong_columns(run: _Run, table: Table) -> Iterator[str]:
    """Where the columns that clients agreed on are not told in front of the first sum, or are told without one."""
    asked_for = [step for step in table.steps if step in ("columns", "terms")]
    due = [(table.round.number, table.round.ascending, run.columns.tolist())]
    due = due if run.coordinates is not None and "terms" in asked_for else []
    if table.told != due or (due and asked_for[0] != "columns"):
        yield (
            f"secured: its deliver tells columns {table.told}, and {due} are due. Where clients agreed on some "
            "(context.coordinates), a sum is opened and books.kept is not None, call books.kept.tell(context.number, "
            "clients, columns), once and before the first sum: all clients of the round ascending, columns in numpy"
        )


def _wrong_sums(run: _Run, seen: _Seen) -> Iterator[str]:
    """Where other sums are opened or delivered than in the clear, or where others are told."""
    clear, told = seen.clear[0], seen.came[1]
    opened = [seen.opened[buffer] for buffer in sorted(seen.opened)]
    if len(seen.terms) != len(clear.rows):
        yield f"secured: it opens {len(seen.terms)} sums, and {len(clear.rows)} come. Open those that are delivered"
    if run.sums.shows_means:
        for number, one in enumerate(opened):
            mean = run.sums.mean_of(one.sums, len(one.members), clear.rows)
            if not _same([mean], [clear.rows[number]]):
                yield (
                    f"mean_of: of a sum of {len(one.members)} rows it makes {mean.tolist()}, and in the clear row "
                    f"{number} of the delivery is {clear.rows[number].tolist()}, bit for bit. Take the sum times the "
                    "step in float64, divide it by the number of rows, then turn it into the kind of rows; deliver "
                    "means by ascending buffers, and add up in float64 in the clear too"
                )
    yield from _wrong_deliveries(seen)
    summed = [event for _, event in told if isinstance(event, Summed)]
    if [[*event.rows] for event in summed] != [seen.sizes]:
        yield f"deliver: it tells {summed}, and buffers says sizes {seen.sizes}. Tell Summed once, of all buffers"
    if sum((len(event.rows) - event.discarded) * (not event.failed) for event in summed) != len(opened):
        yield f"deliver: it tells {summed}, and {len(opened)} sums were opened. Tell how many were discarded"
    yield from _wrong_word(run, seen, opened, sum(isinstance(event, Suspected) for _, event in told))


def _wrong_deliveries(seen: _Seen) -> Iterator[str]:
    """Where a suite changes what is delivered or told, also where nobody keeps its messages."""
    clear, said = seen.clear
    for played, where in ((seen.came, ""), (seen.alone, " where books.kept is None")):
        if played is None:
            continue
        if not _same(_tensors(clear), _tensors(played[0])):
            yield f"secured: it makes other deliveries than in_the_clear{where}, bit for bit"
        if played[1] != said:
            yield f"secured: it tells {played[1]}{where}, and in_the_clear {said}"


def _wrong_word(run: _Run, seen: _Seen, opened: Sequence[Opened], suspects: int) -> Iterator[str]:
    """Where sums are opened though the transport says that none should be."""
    transport = run.exchange.transport
    if opened and offers(transport, "fails") and asked(transport, "fails", A_FAILURE, len(opened), suspects):
        yield f"fails: with {len(opened)} sums left and {suspects} known it says that a round fails, and these are open"
    cohort = seen.one.cohort()
    for one in opened:
        trained = int(cohort.trained[cohort.named(one.members)].sum())
        if trained < len(one.members) and not rows_left(transport, 1, len(one.members), trained):
            yield (
                f"rows_left: it says that no row comes of {len(one.members)} participations, {trained} with samples, "
                "and a sum of such ones is opened"
            )


def _tensors(came: Delivery) -> list[Tensor | None]:
    return [came.rows, came.sent, came.taken, *(getattr(came.cohort, name) for name in ARRAYS)]


def _same(some: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> bool:
    """Whether all bits are equal, a sign of zero among them."""
    return [*map(_bits, some)] == [*map(_bits, others)]


def _bits(tensor: Tensor | None) -> tuple[object, ...] | None:
    return None if tensor is None else (tensor.shape, tensor.dtype, tensor.contiguous().numpy().tobytes())


def _rechecked(run: _Run, table: Table) -> Iterator[str]:
    """What is wrong with the messages of all rounds, by whoever knows what the transport says."""
    chain, rounds = read_chain(b"".join(table.lines), PATH), {one.number: one for one in run.rounds}
    summed = len(run.columns), coordinates_digest(run.columns)
    known = Known(
        SUITE,
        len(rounds),
        run.sums.bits,
        run.sums.most,
        table.keys,
        heads={number: chain.head_after(number) for number in rounds},
        context=CONTEXT,
        ends={client: one.end for client, one in table.chains.items()},
        cohort=lambda number: rounds[number].ascending,
        buffers=lambda number, _: run.members(rounds[number]),
        sizes=lambda number: run.buffers(rounds[number]),
        columns=lambda _: summed,
        agrees=run.coordinates is not None,
    )
    for wrong in recheck(chain, table.bodies.get, known).wrong:
        yield f"round {wrong.round}, {wrong.kind}: {wrong.sentence}"
