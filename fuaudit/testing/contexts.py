"""Rounds to try a stage or a solver on: a fixed small federation, and updates drawn from a fixed key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fuaudit.draws import Address, Labelled, Purpose
from fuaudit.plans.stage_draws import Part, PublicDraws
from fuaudit.testing.tiny import key_of
from fuaudit.training.rounds import ARRAYS, Cohort, ExchangeContext, RoundContext, State, StateShape

DIMENSION, ROUNDS, RUNS = 5, 3, 3
CPU = torch.device("cpu")
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12}
"""What share of the largest number rounding can be."""

SIZES = (3, 0, 7, 2, 5, 1)
"""Samples of clients 0 to 5; client 1 was emptied."""

WIDE_SIZES, WIDE_DIMENSION, LATE = (*SIZES, 4, 8, 6, 300, 40, 17), 40, 1000
"""A federation with more clients and columns, and the first of the rounds that are tried in it."""

FAR_APART = 1e9, 1.0, 1e-5, 1e4, 0.03, 1e2, 1e-8
"""What rows are multiplied by where they are of different sizes."""

Step: TypeAlias = Callable[[Tensor, RoundContext, State], tuple[State, State]]


def shape_of(dtype: torch.dtype) -> StateShape:
    """What states of the federation may depend on."""
    return StateShape(DIMENSION, len(SIZES), dtype, CPU)


def updates_of(number: int, count: int, dtype: torch.dtype, columns: int = DIMENSION) -> Tensor:
    """Rows in [-1, 1)."""
    uniform = key_of(3).uniform(Address(Purpose.AUDIT, round=number), count * columns)
    return torch.from_numpy(2 * uniform - 1).reshape(count, columns).to(dtype)


def far_apart(rows: Tensor, turn: int) -> Tensor:
    """Rows ``(n, d)`` of sizes far apart; which one has which size follows from a number."""
    sizes = torch.tensor([FAR_APART[(row + turn) % len(FAR_APART)] for row in range(len(rows))], dtype=rows.dtype)
    return rows * sizes.unsqueeze(-1)


def values_changed(updates: Tensor, turn: int) -> Tensor:
    """Other rows, zero where these are: of sizes far apart, every second with one number that is most of it."""
    rows = far_apart(updates_of(50 + turn, len(updates), updates.dtype), turn)
    rows[::2, -1] *= 1e3
    return rows * (updates != 0)


def strange(updates: Tensor, turn: int) -> Tensor:
    """Rows that others could have sent: other values, of sizes far apart."""
    return far_apart(updates.flip(1) - 0.5, turn)


def updates_tried(count: int, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """Numbered rounds of updates: some drawn, then zeros, tiny and huge ones."""
    extremes = torch.tensor([0.0, 1e-30, 1e6], dtype=dtype)
    for number in range(ROUNDS + len(extremes)):
        updates = updates_of(number, count, dtype)
        yield number, updates if number < ROUNDS else updates * extremes[number - ROUNDS]


def context_of(clients: list[int], dtype: torch.dtype, number: int = 1) -> ExchangeContext:
    """A round of one run; -1 is an unused place. Who has samples takes two steps. Whoever asks may draw."""
    return _context_of(clients, dtype, number, SIZES, DIMENSION)


def wide_context(clients: list[int], dtype: torch.dtype, number: int, columns: int) -> ExchangeContext:
    """The same of a model with so many parameters."""
    return _context_of(clients, dtype, number, SIZES, columns)


def _context_of(
    clients: list[int], dtype: torch.dtype, number: int, samples: tuple[int, ...], columns: int
) -> ExchangeContext:
    ids = torch.tensor(clients, dtype=torch.int64)
    sizes = torch.tensor([samples[client] if client >= 0 else 0 for client in clients], dtype=torch.int64)
    steps = 2 * (sizes > 0)
    cohort = Cohort(ids, ids.clamp(min=0), sizes, steps, present=ids >= 0, members=len(samples), total=sum(samples))
    model = torch.linspace(-1, 1, columns, dtype=dtype)
    return ExchangeContext(number, cohort, model, step_size=0.1, draws=(PublicDraws(),))


def wide_shape(dtype: torch.dtype) -> StateShape:
    """What states of the wide federation may depend on."""
    return StateShape(WIDE_DIMENSION, len(WIDE_SIZES), dtype, CPU)


def wide_rounds(dtype: torch.dtype) -> Iterator[tuple[Tensor, ExchangeContext]]:
    """Two late rounds of twelve clients: rows ``(12, 40)`` of sizes far apart; in the second one two are equal."""
    everybody = [*range(len(WIDE_SIZES))]
    for turn in range(2):
        clients = everybody[4 * turn :] + everybody[: 4 * turn]
        updates = far_apart(updates_of(LATE + turn, len(clients), dtype, WIDE_DIMENSION), turn)
        updates[:turn] = updates[-1]
        yield updates, _context_of(clients, dtype, LATE + turn, WIDE_SIZES, WIDE_DIMENSION)


FIRST = Part("client")
"""Where a part is tried."""


class _Others(PublicDraws):
    """Draws of which those of one client are as before, and those of all others are not; or shared ones, too."""

    def __init__(self, client: int, together: bool) -> None:
        self._client, self._together = client, together

    def own(self, number: int, part: Part, client: int, occurrence: int) -> Labelled:
        """See :class:`~fuaudit.plans.stage_draws.StageDraws`."""
        if client == self._client:
            return super().own(number, part, client, occurrence)
        return Labelled(bytes(range(32)), part.address(number, 0)._replace(client=client, occurrence=occurrence))

    def shared(self, number: int, part: Part) -> Labelled:
        """See :class:`~fuaudit.plans.stage_draws.StageDraws`."""
        return Labelled(bytes(range(32)), part.address(number, 0)) if self._together else super().shared(number, part)


def others_changed(updates: Tensor, context: ExchangeContext, place: int) -> tuple[Tensor, ExchangeContext]:
    """A round in which all but the client at a place are other clients, with other rows."""
    client = int(context.cohort.clients[place])
    return where_not(place, strange(updates, place + context.number), updates), company_changed(context, client)


def company_changed(context: ExchangeContext, client: int) -> ExchangeContext:
    """A round in which all but a client are other clients, with samples, steps and draws of their own."""
    others = sorted({*range(len(SIZES))} - {client})
    ids = [client if one == client else others[others.index(one) - 1] for one in context.cohort.clients.tolist()]
    cohort = context_of(ids, context.vectors.dtype).cohort
    more = cohort.steps + (cohort.clients != client)
    return replace(draws_changed(context, client), cohort=replace(cohort, steps=more))


def draws_changed(context: ExchangeContext, client: int = -1, together: bool = False) -> ExchangeContext:
    """A round in which all but a client draw otherwise; and all "together", where that is meant."""
    return replace(context, draws=(_Others(client, together),))


def where_not(row: int, changed: Tensor, table: Tensor) -> Tensor:
    """A table ``(n, ...)`` with every row but one changed."""
    return torch.where((torch.arange(len(table)) != row).unsqueeze(1), changed, table)


AMONG_MORE = torch.tensor([1, 2, 4, 5, 7, 8])
"""The places of clients 0 to 5 among nine, where new ones stand before, between and behind them."""

MORE = 9


def among_more(table: Tensor) -> Tensor:
    """A table with a row a client, ``(M, ...)``, in the federation with more clients: theirs are zero."""
    return table.new_zeros(MORE, *table.shape[1:]).index_copy(0, AMONG_MORE, table)


def elsewhere(context: RoundContext, kind: str) -> RoundContext:
    """The same participants with the same steps in a federation with more "clients", or with more "samples".

    New clients stand between the others, so these have other places among the retained ones, and the same ids.
    """
    cohort = context.cohort
    if kind == "clients":
        rows = torch.where(cohort.rows < 0, cohort.rows, AMONG_MORE[cohort.rows.clamp(min=0)])
        return replace(context, cohort=replace(cohort, rows=rows, members=MORE, total=cohort.total + 9))
    sizes = torch.where(cohort.steps > 0, cohort.sizes + torch.arange(cohort.sizes.shape[-1]) % 2, cohort.sizes)
    return replace(context, cohort=replace(cohort, sizes=sizes, total=cohort.total + 9))


def enlarged(context: ExchangeContext, kind: str) -> ExchangeContext:
    """The same participants in a federation with many more "clients", or with many more "samples"."""
    cohort = context.cohort
    if kind == "clients":
        return replace(context, cohort=replace(cohort, members=7 * cohort.members, total=11 * cohort.total + 1))
    more = 10 + 50 * torch.arange(cohort.sizes.shape[-1])
    sizes = torch.where(cohort.steps > 0, cohort.sizes + more, cohort.sizes)
    return replace(context, cohort=replace(cohort, sizes=sizes, total=11 * cohort.total + 1))


def reordered(context: ExchangeContext) -> ExchangeContext:
    """The same participants in the opposite order of places."""
    arrays = {name: getattr(context.cohort, name).flip(0) for name in ARRAYS}
    return replace(context, cohort=replace(context.cohort, **arrays))


def stacked(contexts: list[ExchangeContext]) -> ExchangeContext:
    """Contexts of one round side by side."""
    cohorts = [context.cohort for context in contexts]
    arrays: dict[str, Any] = {name: torch.stack([getattr(c, name) for c in cohorts]) for name in ARRAYS}
    joint = Cohort(**arrays, members=len(SIZES), total=sum(SIZES))
    first = contexts[0]
    draws = tuple(draws for context in contexts for draws in context.draws)
    vectors = torch.stack([c.vectors for c in contexts])
    return ExchangeContext(first.number, joint, vectors, first.step_size, draws=draws)


def stacks_differ(step: Step, state: State, keeps_rows: bool, count: int, dtype: torch.dtype) -> bool:
    """Whether rounds of a stack of runs give other bits than the rounds of each run by itself.

    Args:
        step: a round: updates ``(*s, n, d)``, context and state in, tensors by name and the new state out.
        keeps_rows: whether a client may be named only once in a cohort.
    """
    alone = [state] * RUNS
    together = {name: tensor.expand(RUNS, *tensor.shape).clone() for name, tensor in state.items()}
    for number in range(ROUNDS):
        # in the last round rows are of sizes far apart
        drawn = [updates_of(10 * run + number, count, dtype) for run in range(RUNS)]
        updates = torch.stack([far_apart(rows, 0) if number == ROUNDS - 1 else rows for rows in drawn])
        cohorts = [clients_of(keeps_rows, number + run, count) for run in range(RUNS)]
        contexts = [context_of(clients, dtype, number + 1) for clients in cohorts]
        made, together = step(updates, stacked(contexts).bare(), together)
        results = [step(updates[run], contexts[run].bare(), alone[run]) for run in range(RUNS)]
        alone = [new for _, new in results]
        for run, (own, new) in enumerate(results):
            if not (same(_of(made, run), own) and same(_of(together, run), new)):
                return True
    return False


def _of(tensors: State, run: int) -> State:
    """What belongs to one run of a stack."""
    return {name: tensor[run] for name, tensor in tensors.items()}


def clients_of(keeps_rows: bool, round_number: int, count: int) -> list[int]:
    """A cohort of ``count`` places; the emptied client takes part.

    Client 0 is named twice where there is room, unless one row a client is kept.
    """
    everybody = tuple(range(len(SIZES))) if keeps_rows else (0, *range(len(SIZES)))
    return [everybody[(place + round_number) % len(everybody)] for place in range(count)]


def described(state: State) -> dict[str, tuple[object, ...]]:
    """Names, shapes and dtypes of a state."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()}


def near(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal up to rounding: at other places of a tensor equal numbers can round otherwise."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    largest = max((tensor.abs().max().item() for tensor in (a, b) if tensor.numel()), default=0.0)
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=ROUNDING[a.dtype] * largest)


def same(a: State, b: State) -> bool:
    """Whether two states have the same names and numbers."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
