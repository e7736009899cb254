"""The contract of client stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import says
from fuaudit.draws import Labelled
from fuaudit.testing.contexts import (
    ROUNDS,
    SIZES,
    Step,
    clients_of,
    context_of,
    described,
    elsewhere,
    same,
    shape_of,
    stacks_differ,
    updates_of,
)
from fuaudit.testing.problems import Problems
from fuaudit.training.rounds import PublicDraws, RoundContext, State


def check_client_stage(stage: Any) -> None:
    """Check that a client stage keeps its contract.

    Over rounds with the state carried on, in float32 and float64: as many rows and columns as it gets, dtype kept,
    finite in finite out, the same bits when repeated, inputs and old state left alone, a state of constant names,
    shapes and dtypes with one row a client, of which only those of participants change. **A row, and what its client
    keeps, depend on this client alone**: with rows, memories and draws of all others changed they stay as they are.
    What it does not declare has no effect: draws, how many clients and samples there are, the aggregator's row. No
    global generator is touched.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(stage, "client_stages")
    if says(stage, "vectorised") and not says(stage, "draws"):
        with problems.during("several runs at once"):
            differ = stacks_differ(_step(stage), stage.init(shape_of(torch.float32)), True, 4, torch.float32)
            problems.require(not differ, "it declares vectorised, but several runs in one tensor give other bits")
    for dtype in (torch.float32, torch.float64):
        with problems.during(f"rounds of {dtype}"):
            _check_rounds(stage, dtype, problems)
    problems.conclude()


def _step(stage: Any) -> Step:
    """A round of it, by names."""

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        rows, new = stage.apply(updates, context, state)
        if hasattr(stage, "settle"):
            new = stage.settle(rows, rows.mean(dim=-2, keepdim=True), context, new)
        return {"rows": rows}, new

    return step


def _round(stage: Any, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
    """What is sent, and the state after the round is settled: all of it was sent, and the server took the mean."""
    rows, new = stage.apply(updates, context, state)
    if hasattr(stage, "settle"):
        new = stage.settle(rows, rows.mean(dim=0, keepdim=True), context, new)
    return rows, new


def _check_rounds(stage: Any, dtype: torch.dtype, problems: Problems) -> None:
    state = stage.init(shape_of(dtype))
    form = described(state)
    problems.require(
        state.keys() == set(says(stage, "per_client_state")), "all that it keeps must be named in per_client_state"
    )
    problems.require(
        all(tensor.shape[0] == len(SIZES) for tensor in state.values()), "its state must have one row a client"
    )
    for number in range(ROUNDS):
        clients = clients_of(True, number, 4)
        context = replace(
            context_of(clients, dtype, number + 1), draws=(PublicDraws(),) if says(stage, "draws") else ()
        )
        updates = updates_of(number, 4, dtype)
        given, kept = updates.clone(), {name: tensor.clone() for name, tensor in state.items()}
        rows, new = _round(stage, given, context, state)
        repeated, _ = _round(stage, given, context, state)
        problems.require(rows.shape == updates.shape, f"it made {tuple(rows.shape)} of {tuple(updates.shape)}")
        problems.require(rows.dtype == dtype, f"it turns {dtype} into {rows.dtype}")
        problems.require(bool(torch.isfinite(rows).all()), "finite updates become infinite or NaN")
        problems.require(torch.equal(rows, repeated), "it gives other bits when repeated with the same state")
        problems.require(torch.equal(given, updates), "it changes the updates that it was given, in place")
        problems.require(same(state, kept), "it changes the old state in place")
        problems.require(described(new) == form, "names, shapes or dtypes of its state change from round to round")
        _check_alone(stage, updates, context, state, rows, problems)
        _check_declared(stage, updates, context, state, problems)
        away = [client for client in range(len(SIZES)) if client not in clients]
        problems.require(
            all(torch.equal(new[name][away], state[name][away]) for name in new),
            "it changes what clients keep who do not take part",
        )
        state = new


def _check_alone(
    stage: Any, updates: Tensor, context: RoundContext, state: State, rows: Tensor, problems: Problems
) -> None:
    """The row of each place, and what its client keeps, with rows, memories and draws of all others changed."""
    _, new = _round(stage, updates, context, state)
    places = torch.arange(len(updates))
    for place in range(len(updates)):
        own = int(context.cohort.rows[place])
        changed = torch.where((places != place).unsqueeze(1), updates.flip(1) - 0.5, updates)
        memories = {
            name: torch.where((torch.arange(len(t)) != own).unsqueeze(1), t + 1, t) for name, t in state.items()
        }
        mine = int(context.cohort.clients[place])
        elsewhere_drawn = replace(context, draws=tuple(_Others(mine) for _ in context.draws))
        alone, after = stage.apply(changed, elsewhere_drawn, memories)
        told = (
            "the row of a client depends on the rows, memories or draws of others: a client knows nothing but its own"
        )
        problems.require(torch.equal(alone[place], rows[place]), told)
        if hasattr(stage, "settle"):
            sent = torch.where((places != place).unsqueeze(1), alone - 1, rows)
            after = stage.settle(sent, rows.mean(dim=0, keepdim=True), elsewhere_drawn, after)
        told = "what a client keeps depends on the rows, memories or draws of others"
        problems.require(all(torch.equal(after[name][own], new[name][own]) for name in new), told)


def _check_declared(stage: Any, updates: Tensor, context: RoundContext, state: State, problems: Problems) -> None:
    """What it says of counts and of the aggregator's row, and what is so."""
    rows, new = stage.apply(updates, context, state)
    for kind in sorted({"clients", "samples"} - says(stage, "depends_on")):
        other, _ = stage.apply(updates, elsewhere(context, kind), state)
        told = f"its rows depend on how many {kind} there are: declare it in depends_on"
        problems.require(torch.equal(other, rows), told)
    if hasattr(stage, "settle") and not says(stage, "answered"):
        answers = rows.mean(dim=0, keepdim=True), rows.sum(dim=0, keepdim=True) + 1
        settled = [stage.settle(rows, answer, context, new) for answer in answers]
        problems.require(same(*settled), "it uses the aggregator's row: declare answered = True")


class _Others(PublicDraws):
    """Draws of which those of one client are as before, and those of all others are not."""

    def __init__(self, client: int) -> None:
        self._client = client

    def own(self, number: int, place: int, client: int, occurrence: int) -> Labelled:
        """See :class:`~fuaudit.training.rounds.StageDraws`."""
        drawn = super().own(number, place, client, occurrence)
        return drawn if client == self._client else replace(drawn, key=bytes(range(32)))
