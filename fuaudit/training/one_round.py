"""One round of an exchange: what becomes of the updates, from the clients to the one row that the server subtracts.

The steps are numbered where they meet, in :func:`_through`. A round of messages enters at its delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from math import nan
from typing import TYPE_CHECKING, Any

from fuaudit.declared import is_agreement, offers, says
from fuaudit.errors import AnswerError, PluginError
from fuaudit.plans.stage_draws import Part
from fuaudit.registry import called
from fuaudit.training.asking import (
    COLUMNS,
    STATE,
    Kind,
    are_columns,
    asked,
    is_tensor,
    is_tried,
    proposals,
    rows_and_state,
)
from fuaudit.training.contracts import Delivery, Transport
from fuaudit.training.events import NOT_FINITE, Failed, Rejected, Sent
from fuaudit.training.exchange import LOST, TOO_FEW, Exchange
from fuaudit.training.grid import grid_of, whole_numbers
from fuaudit.training.rounds import (
    Cohort,
    ExchangeContext,
    RoundContext,
    State,
    rows_of,
    stripped,
    under,
    with_rows,
)
from fuaudit.training.stages import require_form, require_one_row

if TYPE_CHECKING:
    from torch import Tensor


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

    stage: Any = exchange.client_stages.stages[part]
    here = exchange.seen_by(part, context)
    changed, after = asked(stage, "apply", rows_and_state(rows), rows.clone(), here, before)
    require_form(stage, before, after)
    if part in exchange.byzantine:
        changed = torch.where(context.cohort.named(stage.clients).unsqueeze(-1), changed, rows)
    if not bool(changed.isfinite().all()):
        _require_finite(exchange, stage, rows, changed, context)
    if is_tried() and part not in exchange.byzantine:
        _require_word(stage, part, changed, context)
    return changed, after


def _require_word(stage: Any, part: int, rows: Tensor, context: ExchangeContext) -> None:
    """AnswerError where an honest stage says bits, and does not tell what is sent, or leaves other whole numbers.

    Of many runs at once nothing is told.
    """
    clients = context.cohort.clients
    if grid := grid_of(stage):
        finite = rows.isfinite().all(dim=-1)
        whole_numbers(rows[finite], grid, clients[finite].tolist(), context.number)
    if not says(stage, "bits") or context.told is None:
        return
    own = [event for who, event in context.told if who == str(Part("client", part))]
    if untold := sorted({*clients.tolist()} - {event.client for event in own if isinstance(event, Sent)}):
        raise AnswerError(
            f"{called(stage)}, apply in round {context.number}, declares bits, and does not tell how large the update "
            f"of client {untold[0]} is",
            'Traffic cannot know it else. Tell Sent(client, "update", bytes) of each client.',
        )


def _require_finite(exchange: Exchange, stage: object, rows: Tensor, changed: Tensor, context: RoundContext) -> None:
    """PluginError where a client stage turned a finite row of honest clients into one that is not finite."""
    lost = context.cohort.present & rows.isfinite().all(dim=-1) & ~changed.isfinite().all(dim=-1)
    for part in exchange.byzantine:
        byzantine: Any = exchange.client_stages.stages[part]
        lost &= ~context.cohort.named(byzantine.clients)
    if bool(lost.any()):
        raise PluginError(
            f"{called(stage)}, apply in round {context.number}, turned a finite row into one that is not finite",
            "Where updates grew from round to round, lower the step size.",
        )


def _agreed(exchange: Exchange, part: int, rows: Tensor, context: ExchangeContext) -> tuple[Tensor, Tensor]:
    """The columns of the rows that all agree on, and which coordinates these are."""
    stages: tuple[Any, ...] = exchange.client_stages.stages
    here, columns = exchange.seen_by(part, context), rows.shape[-1]
    each = proposals(len(rows))
    found = asked(stages[part], "propose", each, rows.clone(), here)
    for other in sorted(exchange.byzantine):
        if offers(stages[other], "proposals"):
            theirs = exchange.seen_by(other, context)
            said = asked(stages[other], "proposals", each, deepcopy(found), rows.clone(), theirs)
            named = context.cohort.named(stages[other].clients).tolist()
            found = [said[row] if is_named else found[row] for row, is_named in enumerate(named)]
    agreed = asked(stages[part], "agree", COLUMNS, found, here.without_own())
    if not are_columns(agreed, columns):
        wrong = _wrong_column(agreed, columns)
        there = 0 <= wrong < columns
        whose = [client for client, one in zip(context.cohort.clients.tolist(), found, strict=True) if wrong in one]
        proposed = f", proposed by {' and '.join(f'client {one}' for one in whose)}" if whose and not there else ""
        raise AnswerError(
            f"{called(stages[part])}, agree in round {context.number}, must return ascending columns from 0 to "
            f"{columns - 1}, each once, and not {wrong}{proposed}",
            "Columns in ascending order, each once: columns.unique()."
            if there
            else "Leave out proposals of columns that there are not, and tell Rejected: clients may propose anything.",
        )
    agreed = agreed.to(rows.device, copy=True)
    return rows[..., agreed], agreed if context.coordinates is None else context.coordinates[agreed]


def _wrong_column(agreed: Tensor, columns: int) -> int:
    """The first of agreed columns that there is not, or that does not ascend."""
    right = (agreed >= 0) & (agreed < columns)
    right[1:] &= agreed[1:] > agreed[:-1]
    return int(agreed[~right][0])


def delivered(exchange: Exchange, sending: Sending) -> Delivery:
    """What the transport brings. Rows of Byzantine clients that are not finite are rejected, where rows are seen.

    Behind sums nobody sees them: they go into their sums, which the transport discards.

    Raises:
        PluginError: the transport's answer does not fit the rows, or what it ``shows``.
    """
    rows, context, transport = sending.rows, sending.context, exchange.transport
    here = replace(context.at(Part("transport"), transport), enough=exchange.server.enough)
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


def _taken(transport: Transport, delivery: Delivery, given: Cohort) -> Tensor:
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


def _misfit(transport: Transport, delivery: Delivery, rows: Tensor, here: RoundContext) -> tuple[str, str] | None:
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
    theirs = cohort.named(stage.clients) & (True if taken is None else taken)
    return sent.where(~theirs.unsqueeze(-1), meant if columns is None else meant[:, columns])


def _finite(exchange: Exchange, context: ExchangeContext, kept: State) -> State:
    """What clients keep, with zeros in the place of each row of a Byzantine client that is not finite.

    No update made it so, for those are finite here; so no mark of an erased row is lost. It is told in the clear alone:
    behind sums nobody is named for a value.
    """
    cohort, sound, lost = context.cohort, State(), set[int]()
    theirs = cohort.named(exchange.deviating)
    for name, table in kept.items():
        rows = rows_of(table, cohort)
        gone = theirs & ~rows.isfinite().all(dim=-1)
        lost |= {*cohort.clients[gone].tolist()}
        sound[name] = with_rows(table, cohort, rows.masked_fill(gone.unsqueeze(-1), 0)) if bool(gone.any()) else table
    for client in sorted(lost) if exchange.transport.shows == "rows" else ():
        context.bare("exchange").tell(Rejected(client, LOST))
    return sound
