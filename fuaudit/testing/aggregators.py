"""The contract of aggregators and stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import offers, says
from fuaudit.testing.contexts import (
    DIMENSION,
    FIRST,
    ROUNDS,
    SIZES,
    Step,
    clients_of,
    context_of,
    enlarged,
    near,
    reordered,
    same,
    shape_of,
    stacked,
    updates_of,
)
from fuaudit.testing.problems import Problems
from fuaudit.testing.publishing import check_published, tried_rows
from fuaudit.testing.trials import DTYPES, is_stacked, require_mixed, require_stacks, trials, wide_trials
from fuaudit.training.exchange import Exchange
from fuaudit.training.one_round import exchanged
from fuaudit.training.rounds import RoundContext, State
from fuaudit.training.stages import Chain, borne, least_rows


def check_aggregator(stage: Any, rows: Sequence[int] | None = None) -> None:
    """Check that an aggregator, ``(n, d) -> (1, d)``, or a stage, ``(n, d) -> (m, d)``, keeps its contract.

    Over rounds with the state carried on, in float32 and float64: dtype kept, finite in finite out (zeros, tiny and
    huge updates, a client twice, an emptied client), state of constant names, shapes and dtypes, inputs and old state
    left alone, the same bits when repeated, no global generator. Where ``vectorised`` is claimed, several runs in one
    tensor give the bits of each run by itself. For aggregators: unused places of a cohort do not count, and the order
    of places does not matter up to rounding. What it does not declare has no effect: how many clients and samples there
    are, draws. An aggregator that leaves a single row, or coordinates of one, as they are or times a number, or what
    follows from one row and no other, of two rows or more, says so, and so does a stage after which the mean is such a
    row: it is tried of the fewest rows that it needs, of three numbers more at least, and of ``rows``, behind sums too.
    What ``bears`` says of these is a whole number from 0 to as many. Both are tried in rounds of twelve clients from
    number 1000 on, too, where more than one row is tried.

    Args:
        rows: the numbers of rows that are tried; by default the fewest that it needs and 4 or more, or 1 for a stage
            that declares ``after_aggregation``.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(stage, "stages")
    fewest = least_rows(stage)
    rows = rows or ((1,) if says(stage, "after_aggregation") else (fewest, max(4, fewest)))
    problems.require_rows_declared(stage)
    step = _step(stage)
    for dtype in DTYPES:
        for count in rows:
            with problems.during(f"{count} rows of {dtype}"):
                for trial in trials(stage, step, count, dtype, problems):
                    shape = tuple(trial.made["rows"].shape)
                    require_mixed(step, trial, stage.per_client_state, problems)
                    problems.require(shape[1:] == (DIMENSION,), f"it maps (n, d) to {shape}, not to (m, d)")
                    if offers(stage, "rows_left"):
                        left = stage.rows_left(count)
                        problems.require(shape[0] <= left, f"it leaves {shape[0]} rows of {count}, and says {left}")
            if is_stacked(stage):
                require_stacks(stage, step, count, dtype, problems)
        if max(rows) > 1:
            with problems.during("unused places and other orders"):
                _check_places(stage, max(rows), dtype, problems)
    if max(rows) > 1:
        with problems.during("what it publishes"):
            check_published(stage, tried_rows(fewest, rows), problems)
        with problems.during("what it bears"):
            for count in range(max(1, fewest), max(fewest + 4, 7, *rows) + 1):
                borne(stage, count, otherwise=0)
    problems.conclude()
    if max(rows) > 1:
        with problems.during("wide rounds"):
            _check_wide(stage, step, problems)
    problems.conclude()


def _step(stage: Any) -> Step:
    """A round of it, by names."""

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        result = stage.apply(updates, context, state)
        if not isinstance(result, tuple) or [isinstance(result[0], Tensor), *map(type, result[1:])] != [True, dict]:
            raise TypeError("apply must return a tensor and a dict of tensors")
        return {"rows": result[0]}, result[1]

    return step


def _check_wide(stage: Any, step: Step, problems: Problems) -> None:
    """Late rounds of twelve clients: what is not declared has no effect, nor, where one row is left, has the order."""
    reverse = wide_trials(stage, step)[0].state
    for trial in wide_trials(stage, step):
        for kind in sorted({"clients", "samples"} - says(stage, "depends_on")):
            made, _ = step(trial.updates, enlarged(trial.whole, kind).at(FIRST, stage, ()), trial.state)
            problems.require(
                same(made, trial.made),
                f"in late rounds it depends on how many {kind} there are, or which: declare it in depends_on",
            )
        back = reordered(trial.whole).at(FIRST, stage, ())
        made, reverse = step(trial.updates.flip(0), back, reverse)
        alike = len(made["rows"]) > 1 or near(made["rows"], trial.made["rows"])
        problems.require(alike, "in late rounds its result depends on the order of places beyond rounding")


def _check_places(stage: Any, count: int, dtype: torch.dtype, problems: Problems) -> None:
    """Aggregators only: unused places do not count, and the order of places does not matter."""
    chain, most = Chain((stage,)), count
    states: dict[str, State] = {}
    results: dict[str, Tensor] = {}
    for round_number in range(ROUNDS + 1):
        # in the last round there are more rows, one of them far away
        count = max(count, len(SIZES)) if round_number == ROUNDS else count
        clients = clients_of(bool(stage.per_client_state), 0, count)
        updates = updates_of(round_number, count, dtype)
        updates[0] *= 1e3 if round_number == ROUNDS else 1
        loud = torch.cat([updates, torch.full((2, DIMENSION), 9.0, dtype=dtype)])
        forms = {
            "plain": (updates, clients),
            "padded": (loud, [*clients, -1, -1]),
            "reversed": (updates.flip(0), clients[::-1]),
        }
        for form, (matrix, ids) in forms.items():
            state = states.get(form) or chain.init(shape_of(dtype))
            rows, states[form] = chain.apply(matrix, context_of(ids, dtype, round_number + 1), state)
            if rows.shape[0] != 1:
                return  # a stage that keeps many rows: the aggregator behind it answers for places
            results[form] = rows
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        close = {
            form: torch.allclose(rows, results["plain"], rtol=tolerance, atol=tolerance)
            for form, rows in results.items()
        }
        problems.require(close["padded"], "unused places of a cohort (present is False) change its result")
        problems.require(close["reversed"], "its result depends on the order of places beyond rounding")
    together = {name: tensor[None] for name, tensor in chain.init(shape_of(dtype)).items()}
    one = stacked([context_of(clients_of(bool(stage.per_client_state), 0, most), dtype)])
    row = exchanged(Exchange(chain), updates_of(0, most, dtype)[None], one, {}, together).row[0]
    problems.require(row.shape == (1, DIMENSION), "the server's step does not get one row from it")
