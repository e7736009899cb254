"""The contract of local solvers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import says
from fuaudit.testing.contexts import (
    DIMENSION,
    ROUNDS,
    SIZES,
    clients_of,
    context_of,
    described,
    elsewhere,
    same,
    shape_of,
    stacks_differ,
    updates_of,
    updates_tried,
)
from fuaudit.testing.problems import Problems
from fuaudit.training.rounds import RoundContext, State
from fuaudit.training.solvers import Outcome, Steps


def check_solver(solver: Any, places: tuple[int, ...] = (1, 4)) -> None:
    """Check that a solver keeps its contract.

    Over six rounds with the state carried on, in float32 and float64: dtype kept, finite in finite out (zeros, tiny
    and huge updates, an emptied client), terms of steps and uploads with one row a participation, state of constant
    names, shapes and dtypes, one row a client where ``per_client_state`` says so, rows of clients that do not take part
    left as they are, inputs and old state left alone, the same bits when repeated, unused places without effect, a
    stack of runs with the bits of the runs one by one, no global generator; what it does not name in ``depends_on``,
    the number of all clients and of samples, has no effect.

    Args:
        solver: the solver.
        places: the numbers of participations that are tried.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(solver, "solvers")
    for word in ("uploads", "downloads"):
        count = says(solver, word)
        problems.require(isinstance(count, int) and count >= 1, f"{word} must be a whole number from 1")
    problems.require_rows_declared(solver)
    for dtype in (torch.float32, torch.float64):
        with problems.during("its first state"):
            _check_init(solver, dtype, problems)
        for count in places:
            with problems.during(f"{count} participations of {dtype}"):
                _check_rounds(solver, count, dtype, problems)
            with problems.during("several runs at once"):
                _check_stack(solver, count, dtype, problems)
            with problems.during("unused places"):
                _check_places(solver, count, dtype, problems)
    problems.conclude()


def _check_init(solver: Any, dtype: torch.dtype, problems: Problems) -> None:
    state = solver.init(shape_of(dtype))
    unknown = sorted(solver.per_client_state - state.keys())
    problems.require(not unknown, f"per_client_state names what its state does not have: {', '.join(unknown)}")
    for name in solver.per_client_state & state.keys():
        rows = state[name].ndim >= 2 and state[name].shape[-2] == len(SIZES)
        problems.require(rows, f"{name!r} does not have one row for each client, (M, d)")
    problems.require(all(t.dtype == dtype for t in state.values()), "its state has another dtype than the model")


def _outcome(updates: Tensor, steps: Steps) -> Outcome:
    """What an engine would end with: the updates, and a velocity where there is momentum."""
    return Outcome(updates.clone(), updates * 0.5 if steps.momentum else None)


def _round(solver: Any, updates: Tensor, context: RoundContext, state: State) -> tuple[Steps, Tensor, State]:
    steps = solver.before(context, state)
    if not isinstance(steps, Steps):
        raise TypeError("before must return Steps")
    result = solver.after(_outcome(updates, steps), context, state)
    if not isinstance(result, tuple) or not isinstance(result[0], Tensor) or not isinstance(result[1], dict):
        raise TypeError("after must return a tensor and a dict of tensors")
    return steps, *result


def _terms(steps: Steps) -> State:
    """The tensors among the terms of steps."""
    return {f.name: value for f in fields(steps) if isinstance(value := getattr(steps, f.name), Tensor)}


def _check_rounds(solver: Any, count: int, dtype: torch.dtype, problems: Problems) -> None:
    state = solver.init(shape_of(dtype))
    shape = described(state)
    for number, updates in updates_tried(count, dtype):
        clients = clients_of(bool(solver.per_client_state), number, count)
        context = context_of(clients, dtype, number + 1)
        updates = updates * (context.cohort.steps > 0).unsqueeze(-1)  # who takes no step has no update
        kept = {name: tensor.clone() for name, tensor in state.items()}
        steps = solver.before(context, state)
        outcome = _outcome(updates, steps)
        solver.after(outcome, context, state)
        problems.require(torch.equal(outcome.updates, updates), "it changes the outcome that it was given, in place")
        problems.require(same(state, kept), "it changes the old state in place: recorded rounds would change with it")
        steps, sent, new = _round(solver, updates, context, state)
        again, repeated, twice = _round(solver, updates, context, state)
        equal = torch.equal(sent, repeated) and same(new, twice) and same(_terms(steps), _terms(again))
        problems.require(equal, "it gives other bits when repeated with the same state")
        for kind in sorted({"clients", "samples"} - says(solver, "depends_on")):
            other, uploads, kept_by = _round(solver, updates, elsewhere(context, kind), state)
            alike = torch.equal(uploads, sent) and same(_terms(other), _terms(steps)) and same(kept_by, new)
            problems.require(alike, f"it depends on how many {kind} there are: declare it in depends_on")
        rows = all(tensor.shape == (count, DIMENSION) for tensor in (sent, *_terms(steps).values()))
        problems.require(rows, "drift, velocity and uploads need one row a participation, (n, d)")
        tensors = (sent, *_terms(steps).values(), *new.values())
        problems.require(all(t.dtype == dtype for t in tensors), f"it turns {dtype} into another dtype")
        finite = all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
        problems.require(finite, f"finite updates become infinite or NaN in round {number + 1}")
        problems.require(described(new) == shape, "names, shapes or dtypes of its state change from round to round")
        absent = [row for row in range(len(SIZES)) if row not in clients]
        for name in solver.per_client_state & new.keys() & state.keys():
            if new[name].shape == state[name].shape:
                untouched = torch.equal(new[name][absent], state[name][absent])
                problems.require(untouched, f"{name!r} changes in the rows of clients that do not take part")
        state = new


def _check_stack(solver: Any, count: int, dtype: torch.dtype, problems: Problems) -> None:
    """The bits of a run do not depend on the runs beside it."""

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        steps, sent, new = _round(solver, updates, context, state)
        return {"sent": sent, **_terms(steps)}, new

    differ = stacks_differ(step, solver.init(shape_of(dtype)), bool(solver.per_client_state), count, dtype)
    problems.require(not differ, "several runs in one tensor give other bits than each run by itself")


def _check_places(solver: Any, count: int, dtype: torch.dtype, problems: Problems) -> None:
    """Unused places of a cohort, whatever lies in them, do not count."""
    narrow = wide = solver.init(shape_of(dtype))
    for number in range(ROUNDS):
        clients, updates = clients_of(bool(solver.per_client_state), number, count), updates_of(number, count, dtype)
        noisy = torch.cat([updates, torch.full((2, DIMENSION), 9.0, dtype=dtype)])
        _, sent, narrow = _round(solver, updates, context_of(clients, dtype, number + 1), narrow)
        _, padded, wide = _round(solver, noisy, context_of([*clients, -1, -1], dtype, number + 1), wide)
        equal = torch.equal(sent, padded[:count]) and same(narrow, wide)
        problems.require(equal, "unused places of a cohort (present is False) change its result")
