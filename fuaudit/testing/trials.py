"""Rounds in which a part is tried, and what is required of every part of a round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import offers, says
from fuaudit.testing.contexts import (
    DIMENSION,
    FIRST,
    MORE,
    ROUNDS,
    SIZES,
    Step,
    among_more,
    clients_of,
    context_of,
    described,
    draws_changed,
    elsewhere,
    same,
    shape_of,
    stacked,
    stacks_differ,
    updates_of,
    updates_tried,
    values_changed,
    wide_rounds,
    wide_shape,
)
from fuaudit.testing.problems import Problems
from fuaudit.training.events import Answered, Event, Released, Sent, Told
from fuaudit.training.rounds import ExchangeContext, RoundContext, State, mute, telling

DTYPES = torch.float32, torch.float64


@dataclass(frozen=True)
class Trial:
    """A round that was tried: what a part was given, the tensors that it ``made`` by name, and its ``new`` state.

    ``whole`` is the round as an exchange leads it, ``context`` what the part sees of it, ``told`` what it told.
    """

    updates: Tensor
    whole: ExchangeContext
    context: RoundContext
    state: State
    made: State
    new: State
    told: Told


def trials(
    part: object,
    step: Step,
    count: int,
    dtype: torch.dtype,
    problems: Problems,
    own: Collection[int] | None = (),
    makes: torch.dtype | None = None,
    tells: bool = True,
) -> Iterator[Trial]:
    """Rounds of ``count`` rows with the state carried on: drawn updates, then zeros, tiny and huge ones.

    Required of every part: finite in finite out, dtype kept, the same bits and events when repeated, inputs, the
    round and old state left alone, a state of constant form, no effect of what it does not name in ``depends_on``,
    events that stay when values change, and no mechanism told of but by who draws, where draws change what is made.

    Args:
        own: whose own draws it can make; see :meth:`~fuaudit.training.rounds.ExchangeContext.at`.
        makes: the dtype of what it makes, where that is not the one of updates.
        tells: whether it may tell of a round.
    """
    state = other = initial(part, dtype)
    form, chance = described(state), list[bool]()
    _require_first(part, state, dtype, problems)
    for number, updates in updates_tried(count, dtype):
        clients = clients_of(bool(says(part, "per_client_state")), number, count)
        whole = context_of(clients, dtype, number + 1)
        context, elsehow = (one.at(FIRST, part, own) for one in (whole, draws_changed(whole)))
        if not tells:
            context, elsehow = context.muted(), elsehow.muted()
        if (trial := _tried(step, updates, whole, context, state, problems)) is None:
            return
        for kind in sorted({"clients", "samples"} - says(part, "depends_on")):
            moved = _moved(part) if kind == "clients" else dict
            made, after = step(updates, elsewhere(context, kind), moved(state))
            alike = same(made, trial.made) and same(after, moved(trial.new))
            depends = f"it depends on how many {kind} there are, or which: {_remedy(part, kind, state)}"
            problems.require(alike, depends)
        _require_rows_by_place(part, step, trial, problems)
        for tensor in trial.made.values():
            problems.require(tensor.dtype == (makes or dtype), f"it turns {dtype} into {tensor.dtype}")
        problems.require(
            described(trial.new) == form, "names, shapes or dtypes of its state change from round to round"
        )
        made, other, told = _told(step, values_changed(updates, number), elsehow, other)
        _require_plain(trial, made, told, problems)
        if any(isinstance(event, Released) for _, event in trial.told) and not any(chance):
            # what is at the clients has to rest on draws of theirs, which nobody else can make
            drawn = draws_changed(whole, together=own is not None).at(FIRST, part, own)
            chance.append(makes is not None or not same(step(updates, drawn, state)[0], trial.made))
        yield trial
        state = trial.new
    if chance:
        problems.require(says(part, "draws"), f"it tells of a mechanism and declares no draws: {_MECHANISM}")
        problems.require(any(chance), f"it tells of a mechanism, and no draw changes what it makes: {_MECHANISM}")


_MECHANISM = "Released is for what chance limits, by draws of the context, those of clients where it is theirs"


def _moved(part: object) -> Callable[[State], State]:
    """What puts a state of a part into the federation with more clients."""
    named = says(part, "per_client_state")

    def moved(state: State) -> State:
        rows = {name for name in named & state.keys() if len(state[name]) == len(SIZES)}
        return {name: among_more(table) if name in rows else table for name, table in state.items()}

    return moved


def _require_rows_by_place(part: object, step: Step, trial: Trial, problems: Problems) -> None:
    """A part that may look at how many clients there are finds their rows by place all the same, and not by id."""
    if "clients" not in says(part, "depends_on"):
        return
    context, old = elsewhere(trial.context, "clients"), _moved(part)(trial.state)
    away = [row for row in range(MORE) if row not in context.cohort.rows]
    new = step(trial.updates, context, old)[1]
    for name in sorted(says(part, "per_client_state") & new.keys() & old.keys()):
        untouched = new[name].shape != old[name].shape or torch.equal(new[name][away], old[name][away])
        told = f"{name!r} changes in rows of others where ids are no places: use rows_of and with_rows"
        problems.require(untouched, told)


def _require_first(part: Any, state: State, dtype: torch.dtype, problems: Problems) -> None:
    """The first state among more clients is the same, but for their rows."""
    if offers(part, "init") and "clients" not in says(part, "depends_on"):
        more = part.init(replace(shape_of(dtype), clients=MORE))
        rows = says(part, "per_client_state")
        alike = same(state, {name: table[: len(SIZES)] if name in rows else table for name, table in more.items()})
        told = f"its first state depends on how many clients there are: {_remedy(part, 'clients', state)}"
        problems.require(alike, told)


def _remedy(part: object, kind: str, state: State) -> str:
    """What to do about a dependence: rows a client are no reason to declare one."""
    named = says(part, "per_client_state")
    tables = [name for name, table in state.items() if table.ndim > 0 and len(table) == len(SIZES)]
    if kind == "clients" and (unnamed := sorted({*tables} - named)):
        return f"name {unnamed[0]!r}, which has one row a client, in per_client_state"
    if kind == "clients" and named:
        return (
            "read and write its rows by rows_of and with_rows, for they are places among the retained clients "
            "(cohort.rows) and no ids; where that is done, declare it in depends_on"
        )
    return "declare it in depends_on"


def _tried(
    step: Step, updates: Tensor, whole: ExchangeContext, context: RoundContext, state: State, problems: Problems
) -> Trial | None:
    """A round that is repeated, from inputs that must be as they were.

    None where something is wrong from which other complaints would follow.
    """
    given, kept, shown = updates.clone(), _copies(state), _copies(context.tensors)
    made, new, told = _told(step, given, context, state)
    finite = all(bool(torch.isfinite(tensor).all()) for tensor in (*made.values(), *new.values()))
    holds = {
        "it changes the updates that it was given, in place": torch.equal(given, updates),
        "it changes the old state in place: recorded rounds would change with it": same(state, kept),
        "it changes the round that it is shown, in place: cohort or vectors": same(context.tensors, shown),
        f"finite updates become infinite or NaN in round {context.number}, {_case(updates, context)}": finite,
    }
    if all(holds.values()):
        again, repeated, retold = _told(step, given, context, state)
        equal = same(made, again) and same(new, repeated) and told == retold
        holds["it gives other bits or events when repeated with the same state"] = equal
    for text, held in holds.items():
        problems.require(held, text)
    return Trial(updates, whole, context, state, made, new, told) if all(holds.values()) else None


def _case(updates: Tensor, context: RoundContext) -> str:
    """What a round is tried with."""
    largest, ids = max(updates.abs().flatten().tolist(), default=0.0), context.cohort.clients.tolist()
    told = "zero" if largest == 0 else "tiny" if largest < 1e-9 else "huge" if largest > 1e3 else "below 1"
    return f"where rows are {told} and clients {ids} have {context.cohort.sizes.tolist()} samples"


def _require_plain(trial: Trial, made: State, told: Told, problems: Problems) -> None:
    """With other values, memories and draws the same is told, but for sizes of what clients send more or less of."""
    clients = trial.context.cohort.clients.tolist()
    free = {client for place, client in enumerate(clients) if _amounts(made, place) != _amounts(trial.made, place)}
    resized = [*map(len, made.values())] != [*map(len, trial.made.values())]  # as where other columns are agreed on

    def plain(event: Event) -> Event:
        if isinstance(event, Sent) and event.client in free:
            return replace(event, size=0)
        return replace(event, size=0) if isinstance(event, Answered) and resized else event

    heard = [[plain(event) for _, event in events] for events in (told, trial.told)]
    follows = "what it tells follows from values: tell of sizes, mechanisms and public parameters"
    problems.require(heard[0] == heard[1], follows)


def _amounts(made: State, place: int) -> list[int]:
    """How many numbers there are of a place: of a row those that are not zero."""
    return [
        int(tensor[place].count_nonzero()) if tensor.ndim == 2 and place < len(tensor) else len(tensor)
        for tensor in made.values()
    ]


def wide_trials(part: Any, step: Step, own: Collection[int] | None = (), tells: bool = True) -> list[Trial]:
    """Late rounds of more clients and columns, with rows of sizes far apart; see :func:`trials`."""
    dtype, lived = DTYPES[0], list[Trial]()
    state = part.init(wide_shape(dtype)) if offers(part, "init") else {}
    for updates, whole in wide_rounds(dtype):
        context = whole.at(FIRST, part, own)
        context = context if tells else context.muted()
        made, new, told = _told(step, updates, context, state)
        lived.append(Trial(updates, whole, context, state, made, new, told))
        state = new
    return lived


VALUES = -9.0, 0.0, 9.0
"""What a row is changed to: where one value of several is chosen, some of these change which."""


def require_mixed(step: Step, trial: Trial, named: Set[str], problems: Problems) -> None:
    """What is kept of all together holds no numbers of each client by itself, which would be its row in disguise."""
    shared, clients = sorted(trial.new.keys() - named), trial.context.cohort.clients
    bears = []
    for client in clients.unique() if shared else ():
        rows = [trial.updates.masked_fill((clients == client).unsqueeze(1), value) for value in VALUES]
        others = [_numbers(step(changed, trial.context, trial.state)[1], shared) for changed in rows]
        bears.append((torch.stack(others) != _numbers(trial.new, shared)).any(dim=0))
    bearing = [one for one in bears if one.any()]
    alone = [bool((one & (torch.stack(bearing).sum(dim=0) == 1)).any()) for one in bearing]
    told = (
        "what it keeps of all holds numbers that follow from one client each: keep sums or counts over the clients, or "
        "name such rows in per_client_state"
    )
    problems.require(len(alone) < 2 or not all(alone), told)


def _numbers(state: State, names: list[str]) -> Tensor:
    """All numbers of some tensors, ``(k,)``."""
    return torch.cat([state[name].reshape(-1) for name in names])


def _copies(tensors: State) -> State:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _told(step: Step, updates: Tensor, context: RoundContext, state: State) -> tuple[State, State, Told]:
    """What is made in a round, the new state, and the events that are told."""
    told: Told = []
    tell = mute if context.tell is mute else telling(told)
    return *step(updates, replace(context, tell=tell), state), told


def initial(part: Any, dtype: torch.dtype) -> State:
    """The state of a part before the first round; agreements and transports have none."""
    state: State = part.init(shape_of(dtype)) if offers(part, "init") else {}
    return state


def is_stacked(part: object) -> bool:
    """Whether a part says that runs are treated together; none that draws is."""
    return bool(says(part, "vectorised") and not says(part, "draws"))


def require_untouched(trial: Trial, names: Set[str], problems: Problems) -> None:
    """What is kept of clients that do not take part stays as it is, in tensors with one row a client."""
    away = [row for row in range(len(SIZES)) if row not in trial.context.cohort.rows]
    for name in names & trial.new.keys() & trial.state.keys():
        new, old = trial.new[name], trial.state[name]
        untouched = new.shape != old.shape or torch.equal(new[away], old[away])
        problems.require(untouched, f"{name!r} changes in the rows of clients that do not take part")


def require_stacks(
    part: object, step: Step, count: int, dtype: torch.dtype, problems: Problems, tells: bool = True
) -> None:
    """The bits of a run do not depend on the runs beside it, and a run in a stack tells what it tells by itself."""
    keeps, state = bool(says(part, "per_client_state")), initial(part, dtype)
    with problems.during("several runs at once"):
        differ = stacks_differ(step, state, keeps, count, dtype)
        problems.require(not differ, "several runs in one tensor give other bits than each run by itself")
    with problems.during("a run in a stack"):
        whole, updates = context_of(clients_of(keeps, 0, count), dtype), updates_of(0, count, dtype)
        contexts = [one.bare() if tells else one.bare().muted() for one in (whole, stacked([whole]))]
        alone = _told(step, updates, contexts[0], state)[2]
        together = _told(step, updates[None], contexts[1], {name: tensor[None] for name, tensor in state.items()})[2]
        problems.require(alone == together, "a run in a stack tells otherwise than by itself")


def require_places(part: object, step: Step, count: int, dtype: torch.dtype, problems: Problems) -> None:
    """What lies in unused places of a cohort changes nothing."""
    narrow = wide = initial(part, dtype)
    with problems.during("unused places"):
        for number in range(ROUNDS):
            clients = clients_of(bool(says(part, "per_client_state")), number, count)
            updates = updates_of(number, count, dtype)
            noisy = torch.cat([updates, torch.full((2, DIMENSION), 9.0, dtype=dtype)])
            made, narrow = step(updates, context_of(clients, dtype, number + 1).bare(), narrow)
            padded, wide = step(noisy, context_of([*clients, -1, -1], dtype, number + 1).bare(), wide)
            equal = same(made, {name: rows[:count] for name, rows in padded.items()}) and same(narrow, wide)
            problems.require(equal, "unused places of a cohort (present is False) change its result")
