"""Execute: from the retained data and a plan to models. Deterministic; draws nothing.

``model = execute(data, history)``. One function serves a run, its resumption, its replay by an auditor, and
hundreds of runs side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fuaudit.data.dataset import Dataset, scaled, scaling_constants
from fuaudit.declared import says
from fuaudit.errors import UsageError
from fuaudit.models.layout import Layout
from fuaudit.plans import Plan, Population
from fuaudit.plans.expanded import NONE, Round, Rounds
from fuaudit.plans.stage_draws import StageDraws
from fuaudit.registry import called
from fuaudit.training.asking import asked, rows_and_state
from fuaudit.training.engines.protocol import ClientProblem, Engine, single_threaded
from fuaudit.training.events import Told, as_table
from fuaudit.training.exchange import Exchange, first_state
from fuaudit.training.federation import per_client_state
from fuaudit.training.noisy_steps import steps_of
from fuaudit.training.one_round import exchanged, server_half
from fuaudit.training.received import NONE_RECEIVED, Received
from fuaudit.training.rounds import (
    CLIENT,
    SERVER,
    SOLVER,
    Cohort,
    ExchangeContext,
    State,
    StateShape,
    inherited,
    owner_of,
    prefix_of,
    stripped,
    under,
)
from fuaudit.training.solvers import Sgd, Solver
from fuaudit.training.stages import require_form


@dataclass(frozen=True)
class StepSizes:
    """The clients' step sizes: ``first * decay ** (round - 1)``."""

    first: float
    decay: float = 1.0

    def at(self, round_number: int) -> float:
        """The step size of a round, from 1."""
        return self.first * self.decay ** (round_number - 1)


@dataclass(frozen=True)
class Procedure:
    """Everything that turns a plan into models, apart from data and draws.

    Attributes:
        module: the model as a template.
        exchange: what becomes of updates: client stages, transport, server stages.
        step_sizes: of the clients' steps.
        solver: how clients take them.
        scaling: see :data:`fuaudit.data.dataset.SCALINGS`.
        dtype: of models and inputs.
        divisor: of the law: what the gradients of a batch are divided by; 0 for the number of its samples.
    """

    module: nn.Module
    exchange: Exchange
    step_sizes: StepSizes
    solver: Solver = field(default_factory=Sgd)
    scaling: str = "none"
    dtype: torch.dtype = torch.float32
    divisor: int = 0

    @cached_property
    def layout(self) -> Layout:
        """How vectors map to the module."""
        return Layout.of(self.module)

    @property
    def per_client_state(self) -> frozenset[str]:
        """The names in a state under which one row a client is kept."""
        return per_client_state(self.solver, self.exchange)

    @property
    def draws(self) -> bool:
        """Whether the solver, or a part of the exchange, draws."""
        return bool(says(self.solver, "draws")) or self.exchange.draws

    @property
    def abrupt(self) -> tuple[str, ...]:
        """The solver and the parts of the exchange that rank, round or choose; see :attr:`Exchange.abrupt`."""
        return (*([called(self.solver)] if says(self.solver, "abrupt") else []), *self.exchange.abrupt)

    def initial_memory(self, clients: int, device: torch.device) -> State:
        """The state of one run before the first round, over so many clients."""
        shape = StateShape(self.layout.dimension, clients, self.dtype, device)
        return first_state(self.solver, self.exchange, shape)


@dataclass(frozen=True)
class RoundState:
    """Everything that one round leaves to the next, so everything that can remember: models ``(n, d)`` and state.

    Tensors of the state have a leading axis of the n runs. ``events`` are those of one run in the round, as a ledger
    has them.
    """

    vectors: Tensor
    state: State
    events: Sequence[dict[str, Any]] = ()

    @classmethod
    def of_run(cls, vector: Tensor, state: State, device: torch.device) -> RoundState:
        """One run's model ``(d,)`` and state, as they are stored."""
        return cls(vector[None].to(device), {name: tensor[None].to(device) for name, tensor in state.items()})

    def of(self, run: int) -> tuple[Tensor, State]:
        """The model ``(d,)`` and state of one run, on the CPU: what is stored."""
        return self.vectors[run].cpu(), {name: tensor[run].cpu() for name, tensor in self.state.items()}

    def __getitem__(self, runs: slice | list[int] | np.ndarray[tuple[int], np.dtype[np.int64]] | Tensor) -> RoundState:
        return RoundState(self.vectors[runs], {name: tensor[runs] for name, tensor in self.state.items()})

    def updated(self, runs: Tensor, after: RoundState) -> RoundState:
        """The state in which the runs of these numbers ``(m,)`` stand as the m runs of ``after`` do."""
        state = {name: tensor.index_copy(0, runs, after.state[name]) for name, tensor in self.state.items()}
        return RoundState(self.vectors.index_copy(0, runs, after.vectors), state)

    def without(self, procedure: Procedure, before: Population, after: Population) -> RoundState:
        """The state over fewer clients: without the rows that it keeps for erased clients."""
        return replace(self, state=state_without(procedure, self.state, before, after))


def state_without(procedure: Procedure, state: State, before: Population, after: Population) -> State:
    """A state over a population without the rows of clients that left it."""
    return inherited(state, procedure.per_client_state, before.clients, after.clients)


def client_problem(
    procedure: Procedure, dataset: Dataset, population: Population, device: torch.device
) -> ClientProblem:
    """What all clients of one population compute with: the model as a template, and scaled rows on the device."""
    shift, divisor = scaling_constants(dataset, population, procedure.scaling)
    inputs = scaled(dataset.inputs, shift, divisor, procedure.dtype)
    module = procedure.module.to(device=device, dtype=procedure.dtype)
    return ClientProblem(module, procedure.layout, inputs.to(device), dataset.targets.to(device))


def initial_state(
    procedure: Procedure, plans: Sequence[Plan], population: Population, device: torch.device
) -> RoundState:
    """The state before the first round of plans that are executed over one population."""
    initial = np.stack([plan.initial_uniform(procedure.layout.dimension) for plan in plans])
    vectors = procedure.layout.initial(initial, procedure.dtype).to(device)
    state = procedure.initial_memory(len(population.clients), device)
    return RoundState(
        vectors, {name: tensor.expand(len(plans), *tensor.shape).clone() for name, tensor in state.items()}
    )


def cohorts_of(
    drawn_round: Round, population: Population, device: torch.device, on_empty: bool = False, empties: bool = False
) -> Cohort:
    """The cohorts of one round with the sizes that the retained population gives them.

    ``on_empty``: a step is taken on an empty batch too, as where steps have noise. ``empties``: see :class:`Cohort`.
    """
    clients = drawn_round.cohorts

    def of_each(told: Callable[[int], int]) -> Tensor:
        found = [told(client) for client in clients.reshape(-1).tolist()]
        return torch.tensor(found, dtype=torch.int64, device=device).view(clients.shape)

    taken = (drawn_round.batches != NONE).any(axis=-1) | (on_empty & (clients != NONE)[..., None])
    return Cohort(
        clients=torch.from_numpy(clients).to(device),
        rows=of_each(lambda client: population.rank.get(client, -1)),
        sizes=of_each(lambda client: len(population.samples.get(client, ()))),
        steps=torch.from_numpy(taken.sum(axis=-1)).to(device),
        present=torch.from_numpy(clients != NONE).to(device),
        members=len(population.clients),
        total=population.size,
        empties=empties,
    )


def execute(
    procedure: Procedure,
    problem: ClientProblem,
    population: Population,
    schedule: Rounds,
    start: RoundState,
    engine: Engine,
    first: int = 1,
    draws: Sequence[StageDraws] = (),
    received: Mapping[int, Received] = NONE_RECEIVED,
) -> Iterator[tuple[int, RoundState]]:
    """Run the rounds ``first`` to R along a schedule, from the state before round ``first``.

    A round in which nobody takes part leaves model and state as they are.

    Args:
        problem: from :func:`client_problem`, over the same population.
        population: the retained one; sizes and weights come from it, never from an earlier version.
        schedule: the expanded plans of the n runs.
        draws: of the solver and the stages of the exchange, one a run; needed where one of them draws.
        received: by their numbers, rounds of one run whose delivery came in messages: these are not simulated.

    Yields:
        The number of each round and the state after it.

    Raises:
        PluginError: the chain of stages does not leave one row, or a state does not keep its form.
    """
    round_state, own = start, tuple(draws) if procedure.draws else ()
    for number in range(first, schedule.rounds + 1):
        drawn_round = schedule.round(number)
        # sizes and weights of the retained population, in kept rounds too: no round may know how many rows are gone
        noisy = bool(says(procedure.solver, "draws"))
        empties = noisy and procedure.divisor > 0
        cohort = cohorts_of(drawn_round, population, round_state.vectors.device, on_empty=noisy, empties=empties)
        told: Told | None = [] if len(round_state.vectors) == 1 else None
        step_size = procedure.step_sizes.at(number)
        context = ExchangeContext(number, cohort, round_state.vectors, step_size, draws=own, told=told)
        batches = torch.from_numpy(drawn_round.batches)
        # runs with nobody in this round stay out of the chain: a mean over no rows is no number, and a momentum would
        # move the model in a round that nobody took part in
        busy = cohort.present.any(dim=-1).nonzero()[:, 0]
        if number in received:
            round_state = _served(procedure, round_state, context[0], received[number])
        elif len(busy) == len(round_state.vectors):
            round_state = _advanced(procedure, problem, round_state, context, batches, engine)
        elif len(busy):
            some = _advanced(procedure, problem, round_state[busy], context[busy], batches[busy.cpu()], engine)
            round_state = round_state.updated(busy, some)
        yield number, replace(round_state, events=[as_table(*one) for one in told]) if told else round_state


def _advanced(
    procedure: Procedure,
    problem: ClientProblem,
    round_state: RoundState,
    context: ExchangeContext,
    batches: Tensor,
    engine: Engine,
) -> RoundState:
    """The state after a round in which every run has somebody taking part."""
    # solver and server each get their own part of the state before the round: neither can read what the other
    # remembers, and all of it is recorded
    own = prefix_of(procedure.solver)
    before = stripped(own, round_state.state)
    # and a solver tells nothing, for it knows what noise is to hide; nor can it make the noise of a stage behind it
    bare = context.bare().muted()
    steps = steps_of(procedure.solver, context, before)
    outcome = engine.advance(problem, round_state.vectors, batches, replace(steps, divisor=procedure.divisor))
    uploads, memory = asked(procedure.solver, "after", rows_and_state(outcome.updates), outcome, bare, before)
    require_form(procedure.solver, before, memory)
    clients, server = stripped(CLIENT, round_state.state), stripped(SERVER, round_state.state)
    memories = {name: tensor for name, tensor in clients.items() if owner_of(name) != SOLVER}
    made = exchanged(procedure.exchange, uploads, context, memories, server)
    state = under(CLIENT, made.memories) | under(own, memory) | under(SERVER, made.server)
    return RoundState(round_state.vectors - made.row[:, 0], state)


def _served(procedure: Procedure, round_state: RoundState, context: ExchangeContext, received: Received) -> RoundState:
    """The state of one run after a round whose delivery came in messages; what clients keep is not here."""
    single_threaded()  # as an engine does before the server's stages
    for part, event in received.events:
        context.bare(part).tell(event)
    delivery, here = received.entered(context)
    server = {name: tensor[0] for name, tensor in stripped(SERVER, round_state.state).items()}
    served = server_half(procedure.exchange, delivery, here, server)
    after = {name: tensor[None] for name, tensor in under(SERVER, served.state).items()}
    return RoundState(round_state.vectors - served.row, round_state.state | after)


def require_finite(round_state: RoundState, round_number: int) -> None:
    """Raises UsageError when a model, or a memory of solver, clients or server, holds NaN or an infinity."""
    tensors = {"the model": round_state.vectors} | under("the memory ", round_state.state)
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise UsageError(
                f"{name} is no longer finite after round {round_number}",
                "Lower the step size, of clients or server; or the data has NaN where the plan reads.",
            )


def require_normal(step_sizes: StepSizes, rounds: int, dtype: torch.dtype) -> None:
    """Raises UsageError when the step size of some round is no normal number of a dtype: memories divide by it."""
    limits = torch.finfo(dtype)
    first, last = step_sizes.at(1), step_sizes.at(rounds)
    name = str(dtype).removeprefix("torch.")
    if first > limits.max:
        raise UsageError(f"step_size = {first:.3g} is above the largest {name}, {limits.max:.3g}", "Lower step_size.")
    if last < limits.tiny:
        raise UsageError(
            f"the step size of round {rounds}, step_size * decay ** {rounds - 1} = {last:.3g}, is below "
            f"{limits.tiny:.3g}, the smallest {name} of full precision",
            "Raise decay, or train fewer rounds.",
        )
