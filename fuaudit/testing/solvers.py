"""The contract of local solvers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import says
from fuaudit.plans.stage_draws import OF_SOLVER
from fuaudit.testing.client_stages import ALONE, require_lives_alone, require_rows
from fuaudit.testing.contexts import DIMENSION, SIZES, Step, others_changed, shape_of, where_not
from fuaudit.testing.noisy_solvers import check_noise
from fuaudit.testing.problems import Problems
from fuaudit.testing.trials import (
    DTYPES,
    Trial,
    require_mixed,
    require_places,
    require_stacks,
    require_untouched,
    trials,
    wide_trials,
)
from fuaudit.training.rounds import ExchangeContext, RoundContext, State
from fuaudit.training.solvers import Outcome, Steps


def check_solver(solver: object, places: tuple[int, ...] = (1, 4)) -> None:
    """Check that a solver keeps its contract.

    Over six rounds with the state carried on, in float32 and float64: dtype kept, finite in finite out (zeros, tiny
    and huge updates, an emptied client), terms of steps and uploads with one row a participation, state of constant
    names, shapes and dtypes, one row a client where ``per_client_state`` says so, rows of clients that do not take part
    left as they are, inputs and old state left alone, the same bits when repeated, unused places without effect, a
    stack of runs with the bits of the runs one by one, no global generator; what it does not name in ``depends_on``,
    the number of all clients and of samples, has no effect. It tells nothing, and keeps no row a client under another
    name. Where it declares ``draws``, the noise of each step is its client's own draw, and the one that ``releases``
    tells of; no two steps, clients or rounds have related noise. Where ``private`` is claimed, all that it keeps has
    one row a client, and what a client sends and keeps depends on this client alone.

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
    for dtype in DTYPES:
        with problems.during("its first state"):
            _check_init(solver, dtype, problems)
        for count in places:
            with problems.during(f"{count} participations of {dtype}"):
                _check_rounds(solver, count, dtype, problems)
            if not says(solver, "draws"):  # one that draws is asked run by run, of those who are there
                require_stacks(solver, _step(solver), count, dtype, problems, tells=False)
                require_places(solver, _step(solver), count, dtype, problems)
    problems.conclude()
    check_noise(solver, problems)
    problems.conclude()
    with problems.during("wide rounds"):
        lived = wide_trials(solver, _step(solver), own=None, tells=False)
        if says(solver, "private"):
            _check_history(solver, lived, problems)
    problems.conclude()


def _check_init(solver: Any, dtype: torch.dtype, problems: Problems) -> None:
    state = solver.init(shape_of(dtype))
    unknown = sorted(solver.per_client_state - state.keys())
    problems.require(not unknown, f"per_client_state names what its state does not have: {', '.join(unknown)}")
    for name in solver.per_client_state & state.keys():
        rows = state[name].ndim == 2 and len(state[name]) == len(SIZES)
        problems.require(rows, f"{name!r} does not have one row for each client, (M, d)")
    if says(solver, "private"):
        require_rows(solver, state, problems)
    numbers = [tensor.dtype for tensor in state.values() if tensor.is_floating_point()]
    problems.require(all(found == dtype for found in numbers), "its state has another dtype than the model")


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


def _step(solver: object) -> Step:
    """A round of it, by names. Who takes no step has no update; what lies in unused places stays."""

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        moved = (context.cohort.steps > 0) | ~context.cohort.present
        steps, sent, new = _round(solver, updates * moved.unsqueeze(-1), context, state)
        return {"sent": sent, **_terms(steps)}, new

    return step


def _check_rounds(solver: Any, count: int, dtype: torch.dtype, problems: Problems) -> None:
    for trial in trials(solver, _step(solver), count, dtype, problems, own=None, tells=False):
        steps = solver.before(trial.context, trial.state)
        outcome = _outcome(trial.updates, steps)
        solver.after(outcome, trial.context, trial.state)
        untouched = torch.equal(outcome.updates, trial.updates)
        problems.require(untouched, "it changes the outcome that it was given, in place")
        rows = all((len(tensor), tensor.shape[-1]) == (count, DIMENSION) for tensor in trial.made.values())
        problems.require(rows, "drift, velocity and uploads need one row a participation, (n, d)")
        require_untouched(trial, solver.per_client_state, problems)
        require_mixed(_step(solver), trial, solver.per_client_state, problems)
        if says(solver, "private"):
            _check_alone(solver, trial, problems)


def _check_history(solver: object, lived: list[Trial], problems: Problems) -> None:
    """All rounds of each client again, without anybody else."""

    def again(trial: Trial, own: Tensor, whole: ExchangeContext, state: State) -> tuple[State, State]:
        return _step(solver)(trial.updates[own], whole.at(OF_SOLVER, solver, None).muted(), state)

    require_lives_alone(again, lived, f"what a client sends or keeps {ALONE}", problems)


def _check_alone(solver: object, trial: Trial, problems: Problems) -> None:
    """What the client at each place sends and keeps, with other clients in all other places."""
    for place, own in enumerate(trial.context.cohort.clients.tolist()):
        updates, whole = others_changed(trial.updates, trial.whole, place)
        memories = {name: where_not(own, table + 1, table) for name, table in trial.state.items()}
        made, new = _step(solver)(updates, whole.at(OF_SOLVER, solver, None), memories)
        alone = all(torch.equal(made[name][place], tensor[place]) for name, tensor in trial.made.items())
        alone &= all(torch.equal(new[name][own], tensor[own]) for name, tensor in trial.new.items())
        problems.require(alone, f"what a client sends or keeps {ALONE}")
