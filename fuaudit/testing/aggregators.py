"""The contract of aggregators and stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import says
from fuaudit.testing.contexts import (
    DIMENSION,
    ROUNDS,
    clients_of,
    context_of,
    described,
    elsewhere,
    same,
    shape_of,
    stacked,
    stacks_differ,
    updates_of,
    updates_tried,
)
from fuaudit.testing.problems import Problems
from fuaudit.training.exchange import Exchange, exchanged
from fuaudit.training.rounds import RoundContext, State
from fuaudit.training.stages import Chain


def check_aggregator(stage: Any, rows: Sequence[int] | None = None) -> None:
    """Check that an aggregator, ``(n, d) -> (1, d)``, or a stage, ``(n, d) -> (m, d)``, keeps its contract.

    Over three rounds with the state carried on, in float32 and float64: dtype kept, finite in finite out (zeros,
    tiny and huge updates, a client twice, an emptied client), state of constant names, shapes and dtypes, inputs
    and old state left alone, the same bits when repeated, no global generator. Where ``vectorised`` is claimed,
    several runs in one tensor give the bits of each run by itself. For aggregators: unused places of a cohort do not
    count, and the order of places does not matter up to rounding. What it does not name in ``depends_on`` has no
    effect: the number of all clients, and of samples.

    Args:
        rows: the numbers of rows that are tried; by default 1 and 4, or 1 for a stage that declares
            ``after_aggregation``.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(stage, "stages")
    rows = rows or ((1,) if says(stage, "after_aggregation") else (1, 4))
    problems.require_rows_declared(stage)
    for dtype in (torch.float32, torch.float64):
        for count in rows:
            with problems.during(f"{count} rows of {dtype}"):
                _check_rounds(stage, count, dtype, problems)
            if says(stage, "vectorised"):
                with problems.during("several runs at once"):
                    _check_stack(stage, count, dtype, problems)
        if max(rows) > 1:
            with problems.during("unused places and other orders"):
                _check_places(stage, max(rows), dtype, problems)
    problems.conclude()


def _apply(stage: Any, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
    result = stage.apply(updates, context, state)
    if (
        not isinstance(result, tuple)
        or len(result) != 2
        or not isinstance(result[0], Tensor)
        or not isinstance(result[1], dict)
    ):
        raise TypeError("apply must return a tensor and a dict of tensors")
    return result


def _check_rounds(stage: Any, count: int, dtype: torch.dtype, problems: Problems) -> None:
    state = stage.init(shape_of(dtype))
    shape = described(state)
    told: frozenset[str] = says(stage, "depends_on")
    for round_number, updates in updates_tried(count, dtype):
        context = context_of(clients_of(bool(stage.per_client_state), round_number, count), dtype, round_number + 1)
        given, kept = updates.clone(), {name: tensor.clone() for name, tensor in state.items()}
        rows, new = _apply(stage, given, context, state)
        repeated, _ = _apply(stage, given, context, state)
        problems.require(
            rows.ndim == 2 and rows.shape[1] == DIMENSION, f"it maps (n, d) to {tuple(rows.shape)}, not to (m, d)"
        )
        for kind in sorted({"clients", "samples"} - told):
            other, _ = _apply(stage, given, elsewhere(context, kind), state)
            problems.require(
                torch.equal(other, rows), f"its rows depend on how many {kind} there are: declare it in depends_on"
            )
        problems.require(rows.dtype == dtype, f"it turns {dtype} into {rows.dtype}")
        problems.require(
            bool(torch.isfinite(rows).all()), f"finite updates become infinite or NaN in round {round_number + 1}"
        )
        problems.require(torch.equal(rows, repeated), "it gives other bits when repeated with the same state")
        problems.require(torch.equal(given, updates), "it changes the updates that it was given, in place")
        problems.require(same(state, kept), "it changes the old state in place: recorded rounds would change with it")
        problems.require(described(new) == shape, "names, shapes or dtypes of its state change from round to round")
        problems.require(all(bool(torch.isfinite(t).all()) for t in new.values()), "its state becomes infinite or NaN")
        state = new


def _check_stack(stage: Any, count: int, dtype: torch.dtype, problems: Problems) -> None:
    """The bits of a run do not depend on the runs beside it."""

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        rows, new = _apply(stage, updates, context, state)
        return {"rows": rows}, new

    differ = stacks_differ(step, stage.init(shape_of(dtype)), bool(stage.per_client_state), count, dtype)
    told = "it declares vectorised = True, but several runs in one tensor give other bits than each run by itself"
    problems.require(not differ, told)


def _check_places(stage: Any, count: int, dtype: torch.dtype, problems: Problems) -> None:
    """Aggregators only: unused places do not count, and the order of places does not matter."""
    chain = Chain((stage,))
    clients = clients_of(bool(stage.per_client_state), 0, count)
    states: dict[str, State] = {}
    results: dict[str, Tensor] = {}
    for round_number in range(ROUNDS):
        updates = updates_of(round_number, count, dtype)
        wide = torch.cat([updates, torch.zeros(2, DIMENSION, dtype=dtype)])
        loud = torch.cat([updates, torch.full((2, DIMENSION), 9.0, dtype=dtype)])
        forms = {
            "plain": (updates, clients),
            "padded": (wide, [*clients, -1, -1]),
            "padded with noise": (loud, [*clients, -1, -1]),
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
        problems.require(close["padded with noise"], "it reads the rows of unused places (present is False)")
        problems.require(close["reversed"], "its result depends on the order of places beyond rounding")
    together = {name: tensor[None] for name, tensor in chain.init(shape_of(dtype)).items()}
    one = stacked([context_of(clients, dtype)])
    row = exchanged(Exchange(chain), updates_of(0, count, dtype)[None], one, {}, together).row[0]
    problems.require(row.shape == (1, DIMENSION), "the server's step does not get one row from it")
