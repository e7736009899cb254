"""An exchange: what becomes of the updates of a round, from the clients to the one row that the server subtracts.

    local steps -> client stages -> transport -> server stages -> one row
                        ^               |             |
                        +---- settle: what was sent, what came of it

Up to the transport a row, one participation, belongs to its client. Behind it there is what the server sees. All three
are chains of stages. Most exchanges are plain: no client stage, and a transport that shows every row as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from fuaudit.config import CLEAR, Config, build_stage, stage_kind
from fuaudit.declared import says
from fuaudit.errors import FuauditError, PluginError
from fuaudit.training.events import Rejected
from fuaudit.training.rounds import Cohort, RoundContext, State, StateShape, part, under
from fuaudit.training.stages import Chain, joint_update, require_form, require_one_row

if TYPE_CHECKING:
    from torch import Tensor


class ClientStage(Protocol):
    """A registered client stage (group ``client_stages``): a frozen dataclass that maps each row alone.

    All that it keeps has one row a client, ``(*s, M, d)``, and is private: the server is never given it. ``settle`` may
    be left out. What else it declares is in :data:`fuaudit.declared.WORDS`.
    """

    per_client_state: ClassVar[frozenset[str]]

    def init(self, shape: StateShape) -> State:
        """The state before the first round."""
        ...

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """What clients pass on of their rows ``(*s, n, c)``, and the new state."""
        ...

    def settle(self, sent: Tensor, answer: Tensor, context: RoundContext, state: State) -> State:
        """The state after the round: from what was sent of each row ``(*s, n, c)`` and the aggregator's row."""
        ...


class Agreement(Protocol):
    """A client stage by which all agree on the coordinates of the rest of the round, before a value is sent."""

    def propose(self, updates: Tensor, context: RoundContext) -> list[Tensor]:
        """The coordinates that each row ``(n, c)`` proposes, ``(k,)`` each."""
        ...

    def agree(self, proposals: list[Tensor], context: RoundContext) -> Tensor:
        """Those that are agreed on, ascending, ``(c',)``; they count among the c of before."""
        ...


class Byzantine(Protocol):
    """Clients that deviate (group ``byzantine``), named by their ids ``clients``; a stage that may look at every row.

    Only their rows are taken from what ``apply`` returns. ``proposals(found, updates, context)`` may be left out: what
    they propose in an agreement, when ``found`` is what everybody's stages would.
    """

    clients: tuple[int, ...]

    def init(self, shape: StateShape) -> State:
        """The state before the first round."""
        ...

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """All rows, with those of its clients changed."""
        ...


@dataclass(frozen=True)
class Delivery:
    """What came of a round's rows.

    Attributes:
        rows: what the server sees, ``(*s, b, c)``.
        cohort: who is behind them: as many places as there are rows.
        sent: what was sent of each participation, ``(*s, n, c)``; zero where nothing was.
    """

    rows: Tensor
    cohort: Cohort
    sent: Tensor


class Transport(Protocol):
    """A registered transport (group ``transports``): a frozen dataclass that brings rows to the server.

    ``shows`` says what the server sees: the "rows" of clients, or "sums" of several. ``in_the_clear`` makes the same
    deliveries without cryptography; audits replay with it.
    """

    shows: ClassVar[Literal["rows", "sums"]]

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """Bring the rows of a round to the server."""
        ...

    def in_the_clear(self) -> Transport:
        """A transport with the same deliveries, without cryptography."""
        ...


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


def is_agreement(stage: Any) -> bool:
    """Whether a client stage is an agreement."""
    return hasattr(type(stage), "agree")


@dataclass(frozen=True)
class Exchange:
    """The places of a round behind the local steps; ``deviating`` are those at which Byzantine stages stand."""

    server: Chain
    clients: tuple[Any, ...] = ()
    transport: Any = field(default_factory=Clear)
    deviating: frozenset[int] = frozenset()

    @property
    def plain(self) -> bool:
        """Whether the server's stages get every row as the solver leaves it."""
        return not self.clients and type(self.transport) is Clear

    def whose(self, place: int) -> Collection[int] | None:
        """Whose own draws the client stage at a place can make: those of the clients that deviate there; None: all."""
        clients: Collection[int] | None = self.clients[place].clients if place in self.deviating else None
        return clients

    @property
    def parts(self) -> tuple[Any, ...]:
        """Every stage, and the transport, in the order of places."""
        return (*self.clients, self.transport, *self.server.stages)

    @property
    def downloads(self) -> int:
        """How many vectors of the model's size a participation is sent besides those of the solver."""
        return int(any(says(stage, "answered") for stage in self.clients))

    @property
    def agrees(self) -> bool:
        """Whether the rows of a round have fewer columns than the model."""
        return any(map(is_agreement, self.clients))

    @property
    def vectorised(self) -> bool:
        """Whether all parts are, so that runs are treated together."""
        return not (self.agrees or self.deviating or self.draws) and all(
            says(part, "vectorised") for part in self.parts
        )

    @property
    def remembering(self) -> tuple[tuple[str, Any], ...]:
        """The client stages that keep something, by the prefix of their state."""
        return tuple((f"{place}.", stage) for place, stage in enumerate(self.clients) if not is_agreement(stage))

    @property
    def remembers(self) -> bool:
        """Whether clients keep something from round to round."""
        return any(says(stage, "per_client_state") for _, stage in self.remembering)

    @property
    def draws(self) -> bool:
        """Whether a part of it draws."""
        return any(says(part, "draws") for part in self.parts)

    @property
    def private(self) -> bool:
        """Whether clients keep or draw something, so that each of them has a secret."""
        return self.remembers or self.draws

    @property
    def per_client_state(self) -> frozenset[str]:
        """The names of what client stages keep."""
        return frozenset(
            prefix + name for prefix, stage in self.remembering for name in says(stage, "per_client_state")
        )

    def init(self, shape: StateShape) -> State:
        """What client stages keep, before the first round."""
        state: State = {}
        for prefix, stage in self.remembering:
            state |= under(prefix, stage.init(shape))
        return state


def exchange_of(config: Config) -> Exchange:
    """The exchange that a config names."""
    kinds = [stage_kind(stage, "client") for stage in config.client]
    return Exchange(
        Chain(tuple(build_stage(stage) for stage in config.server)),
        tuple(build_stage(stage, "client") for stage in config.client),
        build_stage(config.transport or CLEAR, "transport"),
        frozenset(place for place, kind in enumerate(kinds) if kind == "byzantine"),
    )


@dataclass(frozen=True)
class Exchanged:
    """What an exchange leaves: the row that is subtracted, ``(*s, 1, d)``, and what clients and server keep."""

    row: Tensor
    private: State
    server: State


def exchanged(exchange: Exchange, updates: Tensor, context: RoundContext, private: State, server: State) -> Exchanged:
    """The exchange of a round, of many runs at once: updates ``(r, n, d)``; states have a leading axis of runs.

    Raises:
        PluginError: a stage breaks its word; see :func:`_through` and :func:`~fuaudit.training.stages.joint_update`.
    """
    import torch

    if exchange.plain or exchange.vectorised:
        if exchange.plain:
            context = replace(context, place=1) if context.draws else context
            rows, after = joint_update(exchange.server, updates, context, server)
            made = Exchanged(rows.unsqueeze(-2), {}, after)
        else:
            made = _through(exchange, updates, context, private, server)
        sound = _sound(updates, context.cohort.present)
        if bool(sound.all()):
            return made
        return replace(made, row=made.row.masked_fill(~sound[:, None, None], float("nan")))
    found = [
        _of_one(exchange, updates[run], context[run], _of(private, run), _of(server, run))
        for run in range(updates.shape[0])
    ]

    def together(states: list[State]) -> State:
        return {name: torch.stack([state[name] for state in states]) for name in states[0]}

    return Exchanged(
        torch.stack([one.row for one in found]),
        together([one.private for one in found]),
        together([one.server for one in found]),
    )


def _sound(updates: Tensor, present: Tensor) -> Tensor:
    """Whether all updates of a round are finite, ``(*s)``; unused places do not count.

    Those that read an erased row are not, and then no coordinate of the model is: rounding, sorting and robust rules
    would hide the mark.
    """
    # a sum is finite only if its terms are, unless it overflows: one pass, a twentieth of what asking each costs
    sound = (updates.sum(dim=-1).isfinite() | ~present).all(dim=-1)
    return sound if bool(sound.all()) else (updates.isfinite().all(dim=-1) | ~present).all(dim=-1)


def _of(state: State, run: int) -> State:
    return {name: tensor[run] for name, tensor in state.items()}


def _of_one(exchange: Exchange, updates: Tensor, context: RoundContext, private: State, server: State) -> Exchanged:
    """The exchange of one run, ``(n, d)``, over the places that are used."""
    present = context.cohort.present
    rows, context = updates[present], replace(context, cohort=context.cohort.among(present))
    if not bool(_sound(updates, present)):
        return Exchanged(updates.new_full((1, updates.shape[-1]), float("nan")), private, server)
    return _through(exchange, rows, context, private, server)


def _through(exchange: Exchange, updates: Tensor, context: RoundContext, private: State, server: State) -> Exchanged:
    """From updates ``(*s, n, d)`` to the row that is subtracted.

    Raises:
        PluginError: a client stage changes how many rows or columns there are, or the form of its state; an agreement
            names no columns; the server's stages leave more than one row.
    """
    # 1. every client's own stages; an agreement leaves fewer columns for the rest of the round
    rows, kept = updates, dict[str, State]()
    for place, stage in enumerate(exchange.clients):
        here = context.at(place, stage, exchange.whose(place))
        if is_agreement(stage):
            rows, coordinates = _agreed(exchange, stage, rows, context, here)
            context = replace(context, coordinates=coordinates)
            continue
        before = part(private, f"{place}.")
        changed, kept[f"{place}."] = _asked(stage, stage.apply, rows, here, before)
        require_form(stage, before, kept[f"{place}."])
        if (changed.shape, changed.dtype) != (rows.shape, rows.dtype):
            made = f"{tuple(changed.shape)} of {changed.dtype}"
            raise PluginError(f"{type(stage).__name__} made {made} of rows {tuple(rows.shape)} of {rows.dtype}")
        rows = _theirs(stage, context.cohort, changed, rows) if place in exchange.deviating else changed
    # 2. the way to the server, without the rows that no honest client would send
    delivery = _delivered(exchange, rows, context)
    # 3. the server's stages: up to the aggregator on the columns that were sent, behind it on all of them
    stages = exchange.server
    seen = replace(context, cohort=delivery.cohort, place=len(exchange.clients) + 1)
    if delivery.rows.shape[-2]:
        answer, new = stages.apply(delivery.rows, seen, server, slice(stages.aggregating))
        require_one_row(stages, answer, rows.shape[-1])
        row, last = stages.apply(context.on_all(answer), seen, server, slice(stages.aggregating, None))
        after = new | last
    else:  # nothing came, so nothing is applied, and the server remembers what it did
        answer, after = rows.new_zeros(*rows.shape[:-2], 1, rows.shape[-1]), server
        row = context.on_all(answer)
    # 4. back up: what was sent of each row, and what came of all
    for place, stage in enumerate(exchange.clients):
        if hasattr(stage, "settle"):
            prefix = f"{place}."
            here = context.at(place, stage, exchange.whose(place))
            settled = _asked(stage, stage.settle, delivery.sent, answer, here, kept[prefix])
            require_form(stage, kept[prefix], settled)
            kept[prefix] = settled
    theirs = {prefix + name: tensor for prefix, own in kept.items() for name, tensor in own.items()}
    return Exchanged(row, theirs, after)


def _asked(stage: Any, method: Any, *arguments: Any) -> Any:
    """What a stage answers. PluginError where it raises."""
    try:
        return method(*arguments)
    except FuauditError:
        raise
    except Exception as error:
        raise PluginError(f"{type(stage).__name__} raised in {method.__name__}: {error!r}") from error


def _theirs(stage: Any, cohort: Cohort, changed: Tensor, rows: Tensor) -> Tensor:
    """Rows of which those of a stage's clients were changed."""
    import torch

    return torch.where(_named(stage, cohort).unsqueeze(-1), changed, rows)


def _named(stage: Any, cohort: Cohort) -> Tensor:
    """The places of a cohort ``(n,)`` at which the clients of a stage stand."""
    import torch

    return torch.isin(cohort.clients, torch.tensor(stage.clients, device=cohort.clients.device))


def _agreed(
    exchange: Exchange, stage: Any, rows: Tensor, context: RoundContext, here: RoundContext
) -> tuple[Tensor, Tensor]:
    """The columns of the rows that all agree on, and which coordinates these are. ``here`` is what the stage sees."""
    found = _asked(stage, stage.propose, rows, here)
    for place, other in enumerate(exchange.clients):
        if place in exchange.deviating and hasattr(other, "proposals"):
            said = _asked(other, other.proposals, found, rows, context.at(place, other, exchange.whose(place)))
            theirs = _named(other, context.cohort).tolist()
            found = [said[row] if deviates else found[row] for row, deviates in enumerate(theirs)]
    agreed, columns = _asked(stage, stage.agree, found, here), rows.shape[-1]
    fits = getattr(agreed, "ndim", 0) == 1 and not agreed.is_floating_point()
    ascending = fits and bool((agreed[1:] > agreed[:-1]).all())
    if not ascending or (len(agreed) and not 0 <= int(agreed[0]) <= int(agreed[-1]) < columns):
        raise PluginError(f"{type(stage).__name__} agreed on what are no ascending columns of {columns}")
    return rows[..., agreed], agreed if context.coordinates is None else context.coordinates[agreed]


def _delivered(exchange: Exchange, rows: Tensor, context: RoundContext) -> Delivery:
    """What the transport brings: all rows, but those of deviating clients that are not finite, which are rejected."""
    here = context.at(len(exchange.clients), exchange.transport)
    if not exchange.deviating:
        return _checked(exchange, _asked(exchange.transport, exchange.transport.deliver, rows, here), rows)
    finite = rows.isfinite().all(dim=-1)
    deviating = [_named(exchange.clients[place], context.cohort) for place in exchange.deviating]
    if not bool(reduce(or_, deviating, finite).all()):
        raise PluginError("a client stage made a row that is not finite of one that is")
    for client in context.cohort.clients[~finite].tolist():
        context.tell(Rejected(client, "not finite"))
    taken = replace(here, cohort=context.cohort.among(finite))
    came = _asked(exchange.transport, exchange.transport.deliver, rows[finite], taken)
    delivery = _checked(exchange, came, rows[finite])
    sent = rows.new_zeros(rows.shape)
    sent[finite] = delivery.sent
    return replace(delivery, sent=sent)


def _checked(exchange: Exchange, delivery: Delivery, rows: Tensor) -> Delivery:
    """Raises PluginError for a delivery that is none, or does not fit the rows."""
    if not isinstance(delivery, Delivery):
        raise PluginError(f"the transport {type(exchange.transport).__name__} delivered {type(delivery).__name__}")
    fits = delivery.rows.shape[-1] == rows.shape[-1] and delivery.sent.shape == rows.shape
    if not fits or delivery.cohort.present.shape != delivery.rows.shape[:-1]:
        name = type(exchange.transport).__name__
        raise PluginError(f"the transport {name} delivered {tuple(delivery.rows.shape)} of {tuple(rows.shape)}")
    return delivery
