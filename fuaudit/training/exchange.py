"""An exchange: what becomes of the updates of a round, from the clients to the one row that the server subtracts.

    local steps -> client stages -> transport -> server stages -> one row
                        ^               |             |
                        +---- settle: what was sent, what came of it

Up to the transport a row, one participation, belongs to its client. Behind it there is what the server sees. All three
are chains of stages. Most exchanges are plain: no client stage, and a transport that shows every row as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from math import nan
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from fuaudit.config import CLEAR, Config, build_stage, stage_kind
from fuaudit.declared import is_agreement, offers, says
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans.stage_draws import Place
from fuaudit.registry import build, called
from fuaudit.training.asking import COLUMNS, STATE, Kind, asked, is_tensor, proposals, rows_and_state
from fuaudit.training.events import Failed, Rejected
from fuaudit.training.rounds import (
    CLIENT,
    SERVER,
    Cohort,
    ExchangeContext,
    Outline,
    RoundContext,
    State,
    owner_of,
    prefix_of,
    rows_of,
    stripped,
    under,
    with_rows,
)
from fuaudit.training.stages import NO_STAGES, Chain, Stage, least_rows, require_form, require_one_row

if TYPE_CHECKING:
    from torch import Tensor

    from fuaudit.secure.suites import Books


class ClientStage(Stage, Protocol):
    """A registered client stage (group ``client_stages``): a frozen dataclass that maps each row alone.

    All that it keeps has one row a client, ``(*s, M, d)``, and the server is never given it. ``settle`` may be left
    out. What else it declares is in :data:`fuaudit.declared.WORDS`.
    """

    def settle(self, sent: Tensor, answer: Tensor, context: RoundContext, state: State) -> State:
        """The state after the round: from what was sent of each row ``(*s, n, c)`` and the aggregator's row."""


class Agreement(Protocol):
    """A client stage by which all agree on the coordinates of the rest of the round, before a value is sent."""

    def propose(self, updates: Tensor, context: RoundContext) -> list[Tensor]:
        """The columns that each row ``(n, c)`` proposes, ``(k,)`` each."""

    def agree(self, proposals: list[Tensor], context: RoundContext) -> Tensor:
        """The columns that are agreed on, ascending, ``(c',)``, of the c that there were."""


class Byzantine(Stage, Protocol):
    """A stage of Byzantine clients (group ``byzantine``), named by their ids ``clients``. It may look at every row.

    Only their rows are taken from what ``apply`` returns. ``proposals(found, updates, context)`` may be left out: what
    they propose in an agreement, where the honest stages propose ``found``.
    """

    clients: tuple[int, ...]


@dataclass(frozen=True)
class Delivery:
    """What came of a round's rows.

    Attributes:
        rows: what the server sees, ``(*s, b, c)``.
        cohort: who is behind them: as many places as there are rows.
        sent: what was sent of each participation, ``(*s, n, c)``; zero where nothing was.
        taken: which participations are behind the rows, bool ``(n,)``. None for those whom the cohort names; behind
            sums for all, or for none where no row is.
    """

    rows: Tensor
    cohort: Cohort
    sent: Tensor
    taken: Tensor | None = None

    @property
    def undone(self) -> Delivery:
        """The same where nothing came of it: what was sent of anybody is nothing."""
        taken = None if self.taken is None else self.taken & False
        return replace(self, sent=self.sent.new_zeros(self.sent.shape), taken=taken)


class Transport(Protocol):
    """A registered transport (group ``transports``): a frozen dataclass that brings rows to the server.

    ``shows`` says what the server sees: the "rows" of clients, or "sums" of several. ``in_the_clear`` makes the same
    deliveries without cryptography; audits replay with it. Some methods may be left out. Two are asked with how many
    participations a round has at most, and how many of them can be of clients with samples: ``require_places(places,
    trained)`` raises UsageError where such rounds could deliver nothing; ``rows_left(places, trained)`` says how many
    rows come at most, else one a participation, or one of two with samples as sums. ``buffers(places)`` is of a
    transport that puts so many participations into buffers by a uniform lot: how many are in each, and from how many
    rows on it opens. ``fails(counted, known)`` says whether a round fails in which so many sums are left, and so many
    bad clients were found: then it opens none. ``members(places, lot)`` of such a one says which clients, of those at
    the places of a round, are in each sum; the place of a sum is the number that its terms have. ``secured(suite,
    before, books, apart)`` is a transport with the same deliveries, whose sums a suite of :mod:`fuaudit.secure` makes,
    behind the client stages ``before``, and raises UsageError where it cannot; ``books`` is what its parties remember,
    ``apart`` says whether these are processes, and its ``suite`` and the ``bits`` of a value can be read. Its
    ``mean_of(total, rows, like)`` is what the server is shown of an opened sum of so many rows: without that nobody can
    tell models from sums alone.
    """

    shows: ClassVar[Literal["rows", "sums"]]

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """Bring the rows of a round to the server."""

    def in_the_clear(self) -> Transport:
        """A transport with the same deliveries, without cryptography."""


@dataclass(frozen=True)
class Clear:
    """Shows the server every row as it is."""

    shows: ClassVar[Literal["rows", "sums"]] = "rows"
    vectorised: ClassVar[bool] = True

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """See :class:`Transport`."""
        return Delivery(rows, context.cohort, rows)

    def in_the_clear(self) -> Clear:
        """Itself."""
        return self


NOT_FINITE, TOO_FEW, LOST = "not finite", "too few rows", "a memory that is not finite"
"""Why an exchange rejects a row itself, why a round fails, and why a memory is set to zero."""
OF_ITS_OWN = NOT_FINITE, TOO_FEW, LOST
"""What it tells of a round itself, in this order."""

REJECTED_FOR = (
    "no numbers",
    "wrong length",
    NOT_FINITE,
    "twice",
    "late",
    "not in the round",
    "too many coordinates",
    "coordinates twice",
    "coordinates out of range",
)
"""Why a message of a real federation is not taken. Records name these by their places here: new ones come at the end.
"""

BUFFERS = Kind(
    "a list of pairs of whole numbers",
    lambda answer: (
        isinstance(answer, list)
        and all(isinstance(pair, tuple) and [*map(type, pair)] == [int, int] and pair[0] > 0 for pair in answer)
    ),
)
A_FAILURE = Kind("True or False", lambda answer: type(answer) is bool)
A_TRANSPORT = Kind("a transport", lambda answer: offers(answer, "deliver"))


@dataclass(frozen=True)
class Exchange:
    """The parts of a round behind the local steps.

    Attributes:
        server: the server's stages.
        client_stages: what stands before the transport.
        transport: how rows come to the server.
        byzantine: which of the client stages, counted from 0, are those of Byzantine clients.
        private_solver: whether the clients keep what the solver does, which stands in front of all.
        drawing_solver: whether the solver adds noise to their steps.
        received: whether rounds of the run came in messages: then what clients keep is with them, and nothing of it is
            here.
    """

    server: Chain
    client_stages: Chain = NO_STAGES
    transport: Any = Clear()
    byzantine: frozenset[int] = frozenset()
    private_solver: bool = False
    drawing_solver: bool = False
    received: bool = False

    @property
    def parts(self) -> tuple[Any, ...]:
        """Client stages, transport and server stages."""
        return (*self.client_stages.stages, self.transport, *self.server.stages)

    @property
    def plain(self) -> bool:
        """Whether the server's stages get every row as the solver leaves it."""
        return not self.client_stages.stages and type(self.transport) is Clear

    @property
    def downloads(self) -> int:
        """How many vectors of the model's size each participation is sent, beside those that the solver counts."""
        return int(any(says(stage, "answered") for stage in self.client_stages.stages))

    @property
    def vectorised(self) -> bool:
        """Whether many runs are treated together; where a rule needs some rows, each run may fail by itself."""
        choosy = self.draws or any(least_rows(stage) > 1 for stage in self.server.stages)
        run_by_run = self.byzantine or choosy or self.agrees
        return not run_by_run and all(says(part, "vectorised") for part in self.parts)

    @property
    def abrupt(self) -> tuple[str, ...]:
        """Its parts that rank, round or choose, in words: one last bit of a row can become another model there."""
        return tuple(called(part) for part in self.parts if says(part, "abrupt"))

    @property
    def clients_keep(self) -> bool:
        """Whether clients keep something from round to round."""
        return self.private_solver or bool(self.client_stages.per_client_state)

    @property
    def remembers(self) -> bool:
        """Whether a run holds what clients keep."""
        return self.clients_keep and not self.received

    @property
    def agrees(self) -> bool:
        """Whether clients agree on coordinates."""
        return any(map(is_agreement, self.client_stages.stages))

    @property
    def draws(self) -> bool:
        """Whether a part of a round draws: of it, or the solver."""
        return self.drawing_solver or any(says(part, "draws") for part in self.parts)

    @property
    def signs(self) -> bool:
        """Whether the server sees sums: then each client has an identity, whoever makes the sums."""
        return bool(self.transport.shows == "sums")

    @property
    def casts_lots(self) -> bool:
        """Whether a lot says who is with whom in sums: then each client has a part in it."""
        return self.signs and bool(says(self.transport, "draws"))

    @property
    def has_secrets(self) -> bool:
        """Whether clients keep, draw or sign something: then each of them has a secret."""
        return self.clients_keep or self.draws or self.signs

    @property
    def telling(self) -> frozenset[str]:
        """The parts that may tell of a round: fuaudit's own tell nothing, and neither do Byzantine clients.

        Of a solver that draws is told what it releases.
        """
        honest = (n for n in range(len(self.client_stages.stages)) if n not in self.byzantine)
        named = {f"client.{n}": self.client_stages.stages[n] for n in honest} | {"transport": self.transport}
        named |= {f"server.{n}": stage for n, stage in enumerate(self.server.stages)}
        told = {name for name, part in named.items() if type(part).__module__.partition(".")[0] != "fuaudit"}
        return frozenset(told | ({"solver"} if self.drawing_solver else set()))

    def may_tell(self, event: Mapping[str, Any]) -> bool:
        """Whether an event, as a table, may be one of its rounds.

        Of itself it tells that rounds fail, where rules need rows, and what of Byzantine clients is not finite; of
        their memories in the clear alone. Of a round that came in messages the record tells why some were not taken.
        """
        kind, part, why = event["kind"], event["part"], event.get("why")
        if self.received and ((kind, part) == ("summed", "transport") or (part == "exchange" and why in REJECTED_FOR)):
            return True
        if part != "exchange":
            return part in self.telling
        if kind == "failed":
            return why == TOO_FEW and any(least_rows(stage) > 1 for stage in self.server.stages)
        memories = bool(self.client_stages.per_client_state) and self.transport.shows == "rows"
        whys = (NOT_FINITE, LOST) if memories else (NOT_FINITE,)
        return kind == "rejected" and why in whys and event["client"] in self.deviating

    @property
    def deviating(self) -> frozenset[int]:
        """The clients of its Byzantine stages."""
        stages: list[Any] = [self.client_stages.stages[number] for number in self.byzantine]
        return frozenset(client for stage in stages for client in stage.clients)

    def in_the_clear(self) -> Exchange:
        """The same without cryptography."""
        return replace(self, transport=asked(self.transport, "in_the_clear", A_TRANSPORT))

    def secured(self, suite: str, books: Books, apart: bool = False) -> Exchange:
        """The same with sums by a suite of :mod:`fuaudit.secure`, whose parties are objects, or processes ``apart``.

        Who made ``books``, what the parties remember, ends them.

        Raises:
            UsageError: the transport adds up nothing, or rows are not whole numbers there.
        """
        if not offers(self.transport, "secured"):
            raise UsageError(
                f"{called(self.transport)} has no sums that a suite could make",
                'Use the transport "secure-sum", with the client stage "quantise" or "skellam-noise" in front.',
            )
        transport = asked(self.transport, "secured", A_TRANSPORT, suite, self.client_stages.stages, books, apart)
        return replace(self, transport=transport)

    def seen_by(self, number: int, context: ExchangeContext) -> RoundContext:
        """The round as a client stage sees it; a Byzantine one draws for its own clients alone, and tells nothing."""
        stage: Any = self.client_stages.stages[number]
        if number in self.byzantine:
            return context.at(Place("client", number), stage, stage.clients).muted().apart()
        return context.at(Place("client", number), stage, None).apart()


def exchange_of(config: Config, received: bool = False) -> Exchange:
    """The exchange that a config names; ``received`` as in :class:`Exchange`."""
    kinds, solver = [stage_kind(stage, "client") for stage in config.client], build("solvers", config.solver)
    return Exchange(
        Chain(tuple(build_stage(stage) for stage in config.server)),
        Chain(tuple(build_stage(stage, "client") for stage in config.client)),
        build_stage(config.transport or CLEAR, "transport"),
        frozenset(part for part, kind in enumerate(kinds) if kind == "byzantine"),
        bool(says(solver, "private")),
        bool(says(solver, "draws")),
        received,
    )


def first_state(solver: Any, exchange: Exchange, shape: Any) -> State:
    """What solver, clients and server keep before the first round, each under its prefix; what a run holds of it.

    Raises:
        PluginError: what stands in front of the transport keeps what it does not name, or the other way round; or what
            is named as one row a client is no such table.
    """
    state, parts, server = asked(solver, "init", STATE, shape), exchange.client_stages, exchange.server.init(shape)
    clients = parts.init(shape)
    own, kept = [(solver, state)], [*_by_stage(parts, clients)]
    for part, its in kept + own * says(solver, "private"):
        _require_named(part, its, says(part, "per_client_state"))
    for part, its in [*own, *kept, *_by_stage(exchange.server, server)]:
        _require_rows(part, its, shape.clients)
        _require_stored(part, its)
    whole = under(prefix_of(solver), state) | under(CLIENT, clients) | under(SERVER, server)
    return {name: one for name, one in whole.items() if not (exchange.received and owner_of(name) == CLIENT)}


def _by_stage(chain: Chain, state: State) -> list[tuple[Any, State]]:
    return [(stage, stripped(f"{number}.", state)) for number, stage in enumerate(chain.stages)]


def _require_named(part: object, state: State, named: frozenset[str]) -> None:
    if strange := sorted(state.keys() ^ named):
        what = "keeps what it does not name" if strange[0] in state else "lacks what it names"
        told = f"{called(part)} {what} in per_client_state: {strange[0]!r}"
        raise PluginError(told, "All that it keeps is what its clients keep: name it there, and make it in init.")


def _require_rows(part: object, state: State, clients: int) -> None:
    """PluginError unless what has one row a client is a table ``(M, k)``: an erased client's row is cut from it."""
    for name in sorted(says(part, "per_client_state")):
        form = tuple(state[name].shape) if name in state else ()
        if len(form) != 2 or form[0] != clients:
            told = f"{called(part)} names {name!r} in per_client_state, and keeps {form} there: that is no row a client"
            raise PluginError(told, f"With {clients} clients it is ({clients}, k); one number a client is (M, 1).")


def _require_stored(part: object, state: State) -> None:
    """PluginError where a run has no form for the numbers that a part keeps."""
    for name, tensor in sorted(state.items()):
        kind = "" if isinstance(tensor, Outline) else str(tensor.dtype)
        if kind in ("torch.bfloat16", "torch.complex64", "torch.complex128"):
            raise PluginError(f"{called(part)} keeps {name!r} as {kind}, and a run cannot hold it", "Keep float32.")


@dataclass(frozen=True)
class Exchanged:
    """What an exchange leaves: the row that is subtracted, ``(*s, 1, d)``, and what clients and server keep."""

    row: Tensor
    memories: State
    server: State


def exchanged(
    exchange: Exchange, updates: Tensor, context: ExchangeContext, memories: State, server: State
) -> Exchanged:
    """The exchange of a round, of many runs at once: updates ``(r, n, d)``; states have a leading axis of runs.

    Raises:
        PluginError: a stage breaks its word, see :func:`_through`.
    """
    import torch

    sound = _sound(updates, context.cohort.present)
    if exchange.vectorised:
        made = _through(exchange, updates, context, memories, server)
    else:
        runs = [
            _of_one(exchange, updates[run], context[run], _of(memories, run), _of(server, run), bool(sound[run]))
            for run in range(len(updates))
        ]
        row = torch.stack([one.row for one in runs])
        made = Exchanged(row, _together([one.memories for one in runs]), _together([one.server for one in runs]))
    if bool(sound.all()):
        return made
    return replace(made, row=made.row.masked_fill(~sound[:, None, None], float("nan")))


def _sound(updates: Tensor, present: Tensor) -> Tensor:
    """Whether all updates of a round are finite, ``(*s)``; unused places do not count.

    An update from an erased row is NaN. Rounding, sorting and robust rules would hide that, so one such update makes
    the whole model NaN.
    """
    # a sum is finite only if its terms are: one pass, a twentieth of what asking each costs
    if bool(updates.sum().isfinite()):
        return present.new_ones(present.shape[:-1])
    return (updates.isfinite().all(dim=-1) | ~present).all(dim=-1)


def _of(state: State, run: int) -> State:
    return {name: tensor[run] for name, tensor in state.items()}


def _together(states: list[State]) -> State:
    """The state of several runs, of one state each."""
    import torch

    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _of_one(
    exchange: Exchange, updates: Tensor, context: ExchangeContext, memories: State, server: State, sound: bool
) -> Exchanged:
    """The exchange of one run, ``(n, d)``; client stages and transports get no unused places and no NaN."""
    if not exchange.plain:
        if not sound:
            return Exchanged(updates.new_full((1, updates.shape[-1]), float("nan")), memories, server)
        present = context.cohort.present
        updates, context = updates[present], replace(context, cohort=context.cohort.among(present))
    return _through(exchange, updates, context, memories, server)


def _through(
    exchange: Exchange, updates: Tensor, context: ExchangeContext, memories: State, server: State
) -> Exchanged:
    """From updates ``(*s, n, d)`` to the row that is subtracted.

    Raises:
        PluginError: a client stage changes how many rows or columns there are, or the form of its state; an agreement
            names no columns; the server's stages leave more than one row.
    """
    # 1. every client's own stages; an agreement leaves fewer columns for the rest of the round
    sending = client_half(exchange, updates, context, memories)
    # 2. the way to the server, without the rows, or the sums, that no honest client would send
    delivery = delivered(exchange, sending)
    # 3. the server's stages; where clients still have to settle the round, they leave nothing of theirs changed
    back = delivery if exchange.plain else replace(delivery, sent=delivery.sent.clone())
    served = server_half(exchange, delivery, sending.context, server)
    # 4. back up: what was sent of each row, and what came of all
    back = back.undone if served.failed else back
    return Exchanged(served.row, settled(exchange, sending, back, served.answer), served.state)


@dataclass(frozen=True)
class Sending:
    """What clients send: rows ``(*s, n, c)``, the round with the columns that are left, and what clients keep so far.

    What they keep is complete when the round is :func:`settled`. ``meant`` has, by the numbers of Byzantine stages, the
    rows ``(n, d)`` that came to them. A row that was not finite on its way is NaN.
    """

    rows: Tensor
    context: ExchangeContext
    kept: State
    meant: Mapping[int, Tensor]


def client_half(exchange: Exchange, updates: Tensor, context: ExchangeContext, memories: State) -> Sending:
    """The round up to the transport: of updates ``(*s, n, d)`` what clients send.

    A row of a Byzantine client that is no longer finite counts as such from there on. Stages behind see zeros, which
    they can neither remember as infinite nor clip to something finite; what is sent is NaN, which a sum cannot hide.
    """
    rows, kept, meant = updates, State(), {}
    sound = context.cohort.present
    for number, stage in enumerate(exchange.client_stages.stages):
        if is_agreement(stage):
            rows, coordinates = _agreed(exchange, number, rows, context)
            context = replace(context, coordinates=coordinates)
        else:
            if number in exchange.byzantine:
                meant[number] = context.on_all(rows)
            rows, after = _applied(exchange, number, rows, context, stripped(f"{number}.", memories))
            kept |= under(f"{number}.", after)
            if exchange.byzantine:  # then none of these rows is an honest one's
                sound = sound & rows.isfinite().all(dim=-1)
                rows = _in_place_of(rows, ~sound, 0.0)
    return Sending(_in_place_of(rows, ~sound, nan) if exchange.byzantine else rows, context, kept, meant)


def _in_place_of(rows: Tensor, places: Tensor, number: float) -> Tensor:
    """Rows ``(n, c)`` with one number at some places ``(n,)``."""
    return rows.masked_fill(places.unsqueeze(-1), number) if bool(places.any()) else rows


def _applied(
    exchange: Exchange, part: int, rows: Tensor, context: ExchangeContext, before: State
) -> tuple[Tensor, State]:
    """What a client stage makes of the rows, and its new state; of a Byzantine one the rows of its own clients."""
    import torch

    stage = exchange.client_stages.stages[part]
    here = exchange.seen_by(part, context)
    changed, after = asked(stage, "apply", rows_and_state(rows), rows.clone(), here, before)
    require_form(stage, before, after)
    if part in exchange.byzantine:
        changed = torch.where(_named(stage, context.cohort).unsqueeze(-1), changed, rows)
    if not bool(changed.isfinite().all()):
        _require_finite(exchange, stage, rows, changed, context)
    return changed, after


def _require_finite(exchange: Exchange, stage: object, rows: Tensor, changed: Tensor, context: RoundContext) -> None:
    """PluginError where a client stage turned a finite row of honest clients into one that is not finite."""
    lost = context.cohort.present & rows.isfinite().all(dim=-1) & ~changed.isfinite().all(dim=-1)
    for part in exchange.byzantine:
        lost &= ~_named(exchange.client_stages.stages[part], context.cohort)
    if bool(lost.any()):
        raise PluginError(
            f"{called(stage)}, apply in round {context.number}, turned a finite row into one that is not finite",
            "Where updates grew from round to round, lower the step size.",
        )


def _named(stage: Any, cohort: Cohort) -> Tensor:
    """At which places of a cohort, ``(n,)``, the clients of a Byzantine stage stand."""
    import torch

    return torch.isin(cohort.clients, torch.tensor(stage.clients, device=cohort.clients.device))


def _agreed(exchange: Exchange, part: int, rows: Tensor, context: ExchangeContext) -> tuple[Tensor, Tensor]:
    """The columns of the rows that all agree on, and which coordinates these are."""
    stages, here, columns = exchange.client_stages.stages, exchange.seen_by(part, context), rows.shape[-1]
    each = proposals(len(rows))
    found = asked(stages[part], "propose", each, rows.clone(), here)
    for other in sorted(exchange.byzantine):
        if offers(stages[other], "proposals"):
            theirs = exchange.seen_by(other, context)
            said = asked(stages[other], "proposals", each, deepcopy(found), rows.clone(), theirs)
            named = _named(stages[other], context.cohort).tolist()
            found = [said[row] if is_named else found[row] for row, is_named in enumerate(named)]
    agreed = asked(stages[part], "agree", COLUMNS, found, here.without_own())
    ascending = bool((agreed[1:] > agreed[:-1]).all())
    if not ascending or (len(agreed) and not 0 <= int(agreed[0]) <= int(agreed[-1]) < columns):
        raise PluginError(
            f"{called(stages[part])}, agree in round {context.number}, must return ascending columns from 0 to "
            f"{columns - 1}, each once, and not {agreed.tolist()[:8]}",
            "Columns in ascending order, each once: columns.unique().",
        )
    agreed = agreed.to(rows.device, copy=True)
    return rows[..., agreed], agreed if context.coordinates is None else context.coordinates[agreed]


def delivered(exchange: Exchange, sending: Sending) -> Delivery:
    """What the transport brings. Rows of Byzantine clients that are not finite are rejected, where rows are seen.

    Behind sums nobody sees them: they go into their sums, which the transport discards.

    Raises:
        PluginError: the transport's answer does not fit the rows, or what it ``shows``.
    """
    rows, context, transport = sending.rows, sending.context, exchange.transport
    here = replace(context.at(Place("transport"), transport), enough=exchange.server.enough)
    here = here if exchange.plain else here.apart()
    finite = rows.isfinite().all(dim=-1) if exchange.byzantine and transport.shows == "rows" else None
    if finite is not None:
        for client in sorted(context.cohort.clients[~finite].tolist()):
            context.bare("exchange").tell(Rejected(client, NOT_FINITE))
        rows, here = rows[finite], replace(here, cohort=here.cohort.among(finite), accepted=finite.clone())
    delivery: Delivery = asked(transport, "deliver", _delivery_of(rows), rows, here)
    if wrong := _misfit(transport, delivery, rows, here) or _broken(exchange, delivery):
        raise PluginError(f"{called(transport)}, deliver in round {context.number}, {wrong[0]}", wrong[1])
    if not exchange.byzantine:
        return delivery
    taken = _taken(transport, delivery, here.cohort)
    if finite is None:
        return replace(delivery, taken=taken)
    sent, of_all = sending.rows.new_zeros(sending.rows.shape), finite.new_zeros(finite.shape)
    sent[finite], of_all[finite] = delivery.sent, taken
    return replace(delivery, sent=sent, taken=of_all)


def _taken(transport: Any, delivery: Delivery, given: Cohort) -> Tensor:
    """Which participations are behind the rows that a transport delivered, bool ``(n,)``."""
    import torch

    if delivery.taken is not None:
        return delivery.taken
    if transport.shows == "rows":
        return torch.isin(given.clients, delivery.cohort.clients)
    return torch.full_like(given.present, len(delivery.rows) > 0)


def _broken(exchange: Exchange, delivery: Delivery) -> tuple[str, str] | None:
    """What is wrong with what sums bring of Byzantine clients, and what to do."""
    if not exchange.byzantine or (bool(delivery.rows.isfinite().all()) and bool(delivery.sent.isfinite().all())):
        return None
    return "shows a sum that is not finite", "Discard it, tell Suspected, and say that nothing of its rows was sent."


def _misfit(transport: Any, delivery: Delivery, rows: Tensor, here: RoundContext) -> tuple[str, str] | None:
    """What is wrong with a delivery of the rows of a round, and what to do."""
    cohort, came, given = delivery.cohort, delivery.rows.shape, rows.shape
    if came[-1] != given[-1] or delivery.sent.shape != given or cohort.present.shape != came[:-1]:
        made = f"rows {tuple(came)}, sent {tuple(delivery.sent.shape)} and {tuple(cohort.present.shape)} places"
        return f"made {made} of rows {tuple(given)}", "Of rows (n, c) it makes rows (b, c), sent (n, c) and b places."
    if delivery.taken is not None and delivery.taken.shape != given[:-1]:
        return f"says of {tuple(delivery.taken.shape)} participations which are taken", "Of rows (n, c) say it of n."
    if transport.shows == "rows":
        named = not bool((cohort.present & (cohort.clients < 0)).any())
        return None if named else ("shows rows of nobody", 'Name the clients, or add up rows and say shows = "sums".')
    if came[-2] and 2 * came[-2] > (trained := int(here.cohort.trained.sum(dim=-1).min())):
        told = f"shows {came[-2]} rows as sums of {trained} participations with samples"
        return told, "Put two or more of these (context.cohort.trained) into each sum: others hide nobody."
    if came[-2] and not here.enough(came[-2]):
        told = f"shows {came[-2]} sums, and the round fails with so few: the next one would show others over one model"
        return told, "Deliver nothing where context.enough(b) is False, and open no sum."
    if any(bool(told.any()) for told in (cohort.clients + 1, cohort.rows + 1, cohort.sizes, cohort.steps)):
        return "names who is in its sums", "Deliver: context.cohort.counted(b)."
    return None


def _delivery_of(rows: Tensor) -> Kind:
    """What a transport must deliver of such rows."""
    return Kind(
        f"a Delivery of a Cohort, with rows and sent of {rows.dtype}",
        lambda came: (
            isinstance(came, Delivery)
            and isinstance(came.cohort, Cohort)
            and all(is_tensor(tensor, rows) for tensor in (came.rows, came.sent))
            and (came.taken is None or (is_tensor(came.taken) and str(came.taken.dtype) == "torch.bool"))
        ),
    )


@dataclass(frozen=True)
class Served:
    """What the server makes of a delivery.

    Attributes:
        answer: the aggregator's row on the columns that were sent, ``(*s, 1, c)``.
        row: what is subtracted, on all columns, ``(*s, 1, d)``.
        state: what the server keeps.
        failed: whether a stage had fewer rows than it needs, so that nothing counts as sent.
    """

    answer: Tensor
    row: Tensor
    state: State
    failed: bool = False


def server_half(exchange: Exchange, delivery: Delivery, context: ExchangeContext, state: State) -> Served:
    """The round from the transport on; ``context`` is that of what was sent (:class:`Sending`).

    Where nothing came, or too few rows for a stage, nothing is applied, and the server remembers what it did.
    """
    rows, chain, context = delivery.rows, exchange.server, replace(context, cohort=delivery.cohort)
    nothing = rows.new_zeros(*rows.shape[:-2], 1, rows.shape[-1])
    if 0 in rows.shape[-2:]:
        return Served(nothing, context.on_all(nothing), state)
    context = context if exchange.plain else context.apart()
    answer, new = chain.apply(rows, context, state, slice(chain.aggregating))
    if not answer.shape[-2]:
        if context.told is not None:
            context.told.append(("exchange", Failed(TOO_FEW)))
        return Served(nothing, context.on_all(nothing), state, failed=True)
    require_one_row(chain, answer, rows.shape[-1])
    whole = context.on_all(answer.clone())
    row, last = chain.apply(whole, context, state, slice(chain.aggregating, None))
    require_one_row(chain, row, whole.shape[-1])
    return Served(answer, row, new | last)


def settled(exchange: Exchange, sending: Sending, delivery: Delivery, answer: Tensor) -> State:
    """What clients keep when they know what was sent of their rows ``(*s, n, c)``, and the aggregator's row.

    Byzantine clients lie to the server, not to themselves: their stages in front of the attack are told that what they
    left was sent, where anything of the client's came.
    """
    kept, sent = sending.kept, delivery.sent
    for number, stage in reversed([*enumerate(exchange.client_stages.stages)]):
        if offers(stage, "settle"):
            before, here = stripped(f"{number}.", kept), exchange.seen_by(number, sending.context)
            after = asked(stage, "settle", STATE, sent.clone(), answer.clone(), here, before)
            require_form(stage, before, after)
            kept = kept | under(f"{number}.", after)
        if number in exchange.byzantine:
            sent = _as_meant(stage, sending, replace(delivery, sent=sent), sending.meant[number])
    return _finite(exchange, sending.context, kept) if exchange.byzantine else kept


def _as_meant(stage: Any, sending: Sending, delivery: Delivery, meant: Tensor) -> Tensor:
    """What was sent ``(n, c)``, with the rows of a Byzantine stage's clients as they came to it."""
    columns, cohort, sent, taken = sending.context.coordinates, sending.context.cohort, delivery.sent, delivery.taken
    theirs = _named(stage, cohort) & (True if taken is None else taken)
    return sent.where(~theirs.unsqueeze(-1), meant if columns is None else meant[:, columns])


def _finite(exchange: Exchange, context: ExchangeContext, kept: State) -> State:
    """What clients keep, with zeros in the place of each row of a Byzantine client that is not finite.

    No update made it so, for those are finite here; so no mark of an erased row is lost. It is told in the clear alone:
    behind sums nobody is named for a value.
    """
    import torch

    cohort, sound, lost = context.cohort, State(), set[int]()
    theirs = torch.isin(cohort.clients, cohort.clients.new_tensor(sorted(exchange.deviating)))
    for name, table in kept.items():
        rows = rows_of(table, cohort)
        gone = theirs & ~rows.isfinite().all(dim=-1)
        lost |= {*cohort.clients[gone].tolist()}
        sound[name] = with_rows(table, cohort, rows.masked_fill(gone.unsqueeze(-1), 0)) if bool(gone.any()) else table
    for client in sorted(lost) if exchange.transport.shows == "rows" else ():
        context.bare("exchange").tell(Rejected(client, LOST))
    return sound
