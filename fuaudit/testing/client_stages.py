"""The contract of client stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import is_agreement, offers, says
from fuaudit.testing.contexts import (
    CPU,
    DIMENSION,
    FIRST,
    SIZES,
    Step,
    near,
    others_changed,
    same,
    updates_of,
    where_not,
    wide_context,
)
from fuaudit.testing.problems import Problems
from fuaudit.testing.trials import (
    DTYPES,
    Trial,
    initial,
    is_stacked,
    require_places,
    require_stacks,
    require_untouched,
    trials,
    wide_trials,
)
from fuaudit.training.events import Event, Rejected, Sent, Suspected, Told
from fuaudit.training.grid import grid_of, whole_numbers
from fuaudit.training.rounds import ExchangeContext, RoundContext, State, StateShape, telling
from fuaudit.training.stages import Mean

ALONE = "depends on the rows, memories or draws of others, or on who they are: a client knows nothing but its own"


def check_client_stage(stage: object) -> None:
    """Check that a client stage keeps its contract.

    Over rounds with the state carried on, in float32 and float64: as many rows and columns as it gets, dtype kept,
    finite in finite out, the same bits when repeated, inputs and old state left alone, a state of constant names,
    shapes and dtypes with one row a client, of which only those of participants change. **A row, and what its client
    keeps, depend on this client alone**: with rows, memories and draws of all others changed, and other clients in
    their places, of sizes far apart, they stay as they are. So they do, up to rounding, where the client lives all
    rounds without any other, also of rounds with twelve rows of 40 columns, two of them equal, from number 1000 on.
    What is told of the client, and what is told of nobody, follows from the client alone, too. A mechanism is told of
    only by a stage whose clients' draws change rows. Where it declares ``bits`` it tells the size of each update, and
    where it has ``step_of`` too, rows are whole numbers of that step within so many bits: of 1, 5 and 1000 columns,
    and where rows are a million times as large, or as small. What it does not declare has no effect: draws of its
    context, how many clients and samples there are, the aggregator's row. Where ``vectorised`` is claimed, several runs
    in one tensor give the bits of each run by itself, and unused places of a cohort do not count. No global generator
    is touched.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(stage, "client_stages")
    problems.require(not is_agreement(stage), "it is an agreement: check_agreement is for those")
    problems.conclude()
    step = round_of(stage)
    for dtype in DTYPES:
        if is_stacked(stage):
            require_stacks(stage, step, 4, dtype, problems)
            require_places(stage, step, 4, dtype, problems)
        with problems.during(f"rounds of {dtype}"):
            require_rows(stage, initial(stage, dtype), problems)
            lived = list(trials(stage, step, 4, dtype, problems, own=None))
            _check_history(stage, lived, problems)
            for trial in lived:
                require_untouched(trial, trial.new.keys(), problems)
                _check_alone(stage, trial, problems)
                _check_answer(stage, trial, problems)
    problems.conclude()
    with problems.during("whole numbers"):
        _check_whole(stage, problems)
    problems.conclude()
    with problems.during("wide rounds"):
        _check_history(stage, wide_trials(stage, step, own=None), problems)
    problems.conclude()


def round_of(stage: Any) -> Step:
    """A round of a stage: what is sent, and the state when all of it was sent, and the server took the mean."""

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        rows, new = stage.apply(updates, context, state)
        if rows.shape != updates.shape:
            raise TypeError(f"apply made {tuple(rows.shape)} of {tuple(updates.shape)}")
        if offers(stage, "settle"):
            answer = Mean().apply(rows, context, {})[0]
            sent, came = rows.clone(), answer.clone()
            new = stage.settle(sent, came, context, new)
            if not (torch.equal(sent, rows) and torch.equal(came, answer)):
                raise ValueError("settle changes what was sent, or the aggregator's row, in place")
        return {"rows": rows}, new

    return step


def require_rows(stage: object, state: State, problems: Problems) -> None:
    """All that a stage in front of the transport keeps has one row a client, ``(M, d)``, and is named."""
    named = state.keys() == set(says(stage, "per_client_state"))
    problems.require(named, "all that it keeps must be named in per_client_state")
    rows = all(tensor.ndim == 2 and len(tensor) == len(SIZES) for tensor in state.values())
    problems.require(rows, "its state must have one row a client, (M, d)")


def _check_alone(stage: Any, trial: Trial, problems: Problems) -> None:
    """The row of each place, and what its client keeps, with other clients in all other places."""
    rows, answer = trial.made["rows"], Mean().apply(trial.made["rows"], trial.context, {})[0]
    told: Told
    clients = trial.context.cohort.clients.tolist()
    for place, own in enumerate(clients):
        updates, whole = others_changed(trial.updates, trial.whole, place)
        context = replace(whole.at(FIRST, stage, None), tell=telling(told := []))
        memories = {name: where_not(own, table + 1, table) for name, table in trial.state.items()}
        alone, after = stage.apply(updates, context, memories)
        problems.require(torch.equal(alone[place], rows[place]), f"the row of a client {ALONE}")
        if offers(stage, "settle"):
            after = stage.settle(where_not(place, alone - 1, rows), answer, context, after)
        kept = all(torch.equal(after[name][own], trial.new[name][own]) for name in trial.new)
        problems.require(kept, f"what a client keeps {ALONE}")
        heard = [_heard(events, own if clients.count(own) == 1 else -1) for events in (told, trial.told)]
        problems.require(heard[0] == heard[1], f"what it tells, of a client or of nobody, {ALONE}")


def _heard(told: Told, client: int) -> list[Event]:
    """The events of a client, and those that name nobody."""
    return [event for _, event in told if client in _named(event, client)]


def _named(event: Event, nobody: int) -> tuple[int, ...]:
    """Whom an event names; who is asked for where it names nobody."""
    if isinstance(event, Sent | Rejected):
        return (event.client,)
    return event.clients if isinstance(event, Suspected) else (nobody,)


def _check_history(stage: Any, lived: list[Trial], problems: Problems) -> None:
    """All rounds of each client again, without anybody else."""

    def again(trial: Trial, own: Tensor, whole: ExchangeContext, state: State) -> tuple[State, State]:
        context, sent = whole.at(FIRST, stage, None), trial.made["rows"]
        rows, new = stage.apply(trial.updates[own], context, state)
        if offers(stage, "settle"):
            new = stage.settle(sent[own], Mean().apply(sent, trial.context, {})[0], context, new)
        return {"rows": rows}, new

    require_lives_alone(
        again, lived, f"with other rounds before, the row of a client or what it keeps {ALONE}", problems
    )


COLUMNS = 1, DIMENSION, 1000
"""Of how many columns rows are, in which whole numbers are looked at: those behind an agreement are of any number."""

FAR = 1e-6, 1.0, 1e6
"""What rows in [-1, 1) are multiplied by there."""


UNTOLD = (
    "it declares bits, and does not tell how large the update of each client is: traffic counts whole numbers of the "
    'run\'s type then. Tell Sent(client, "update", bytes)'
)


def _check_whole(stage: Any, problems: Problems) -> None:
    """It leaves the whole numbers that it declares by bits and step_of, whatever the rows are, and tells of sizes."""
    grid = grid_of(stage)
    for dtype, columns in product(DTYPES, COLUMNS):
        state = stage.init(StateShape(columns, len(SIZES), dtype, CPU))
        for number, far in enumerate(FAR, 1):
            told: Told = []
            whole = wide_context(clients := [0, 2, 3, 5], dtype, number, columns)
            context = replace(whole.at(FIRST, stage, None), tell=telling(told))
            given = updates_of(number, len(clients), dtype, columns) * far
            rows, state = stage.apply(given, context, state)
            sent = {event.client for _, event in told if isinstance(event, Sent)}
            problems.require(not says(stage, "bits") or sent == {*clients}, UNTOLD)
            if grid is not None:
                whole_numbers(rows, grid, clients, number)


Again = Callable[[Trial, Tensor, ExchangeContext, State], tuple[State, State]]
"""A round again at some places ``(n,)``: what is made, and the new state."""


def require_lives_alone(again: Again, lived: list[Trial], text: str, problems: Problems) -> None:
    """Each client makes and keeps what it did if it goes through its rounds without the others, up to rounding."""
    for client in range(lived[0].whole.cohort.members) if lived else ():
        state = lived[0].state
        for trial in lived:
            own = trial.whole.cohort.clients == client
            if bool(own.any()):
                alone = replace(trial.whole, cohort=trial.whole.cohort.among(own))
                made, state = again(trial, own, alone, state)
                rows = all(near(made[name], tensor[own]) for name, tensor in trial.made.items())
                kept = all(near(state[name][client], tensor[client]) for name, tensor in trial.new.items())
                problems.require(rows and kept, text)


def _check_answer(stage: Any, trial: Trial, problems: Problems) -> None:
    """The aggregator's row has no effect where it is not asked for: its download would not be counted."""
    if offers(stage, "settle") and not says(stage, "answered"):
        rows, new = stage.apply(trial.updates, trial.context, trial.state)
        settled = stage.settle(rows, rows.sum(dim=0, keepdim=True) + 1, trial.context, new)
        problems.require(same(settled, trial.new), "it uses the aggregator's row: declare answered = True")
