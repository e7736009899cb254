"""Execute: from the retained data and a plan to models. Deterministic; draws nothing.

``model = execute(data, history)``. One function serves a run, its resumption, its replay by an auditor, and
hundreds of runs side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from fuaudit.data.dataset import Dataset, scaled, scaling_constants
from fuaudit.errors import UsageError
from fuaudit.models.layout import Layout
from fuaudit.plans import Law, Plan, Population
from fuaudit.plans.schedule import NONE, Round, Rounds
from fuaudit.training.engines.protocol import Engine, Task
from fuaudit.training.rounds import Cohort, RoundContext, State, StateShape, inherited, part, under
from fuaudit.training.solvers import Sgd, Solver
from fuaudit.training.stages import Chain, server_step

SOLVER, SERVER = "solver.", "server."
"""Prefixes in the state of a moment."""


@dataclass(frozen=True)
class StepSizes:
    """The clients' step sizes: ``first * decay ** (round - 1)``."""

    first: float
    decay: float = 1.0

    def at(self, round: int) -> float:
        """The step size of a round, from 1."""
        return self.first * self.decay ** (round - 1)


@dataclass(frozen=True)
class Learning:
    """Everything that turns a plan into models, apart from data and draws.

    Attributes:
        module: the model as a template.
        chain: the server's stages.
        step_sizes: of the clients' steps.
        solver: how clients take them.
        scaling: see :data:`fuaudit.data.dataset.SCALINGS`.
        dtype: of models and inputs.
    """

    module: nn.Module
    chain: Chain
    step_sizes: StepSizes
    solver: Solver = field(default_factory=Sgd)
    scaling: str = "none"
    dtype: torch.dtype = torch.float32

    @property
    def layout(self) -> Layout:
        """How vectors map to the module."""
        return Layout.of(self.module)

    @property
    def client_rows(self) -> frozenset[str]:
        """The names in a state under which one row a client is kept."""
        solver = {SOLVER + name for name in self.solver.client_rows}
        return frozenset(solver | {SERVER + name for name in self.chain.client_rows})

    def initial_state(self, clients: int, device: torch.device) -> State:
        """The state of one run before the first round, over so many clients."""
        shape = StateShape(self.layout.dimension, clients, self.dtype, device)
        return under(SOLVER, self.solver.init(shape)) | under(SERVER, self.chain.init(shape))


@dataclass(frozen=True)
class Moment:
    """All that crosses a round boundary, hence all there is to forget: models ``(n, d)`` and state.

    Tensors of the state have a leading axis of the n runs.
    """

    vectors: Tensor
    state: State

    @classmethod
    def of_run(cls, vector: Tensor, state: State, device: torch.device) -> Moment:
        """One run's model ``(d,)`` and state, as they are stored."""
        return cls(vector[None].to(device), {name: tensor[None].to(device) for name, tensor in state.items()})

    def of(self, run: int) -> tuple[Tensor, State]:
        """The model ``(d,)`` and state of one run, on the CPU: what is stored."""
        return self.vectors[run].cpu(), {name: tensor[run].cpu() for name, tensor in self.state.items()}

    def __getitem__(self, runs: slice | list[int] | np.ndarray[tuple[int], np.dtype[np.int64]] | Tensor) -> Moment:
        return Moment(self.vectors[runs], {name: tensor[runs] for name, tensor in self.state.items()})

    def updated(self, runs: Tensor, after: Moment) -> Moment:
        """The moment in which the runs of these numbers ``(m,)`` have gone on, as the m runs of ``after`` tell."""
        state = {name: tensor.index_copy(0, runs, after.state[name]) for name, tensor in self.state.items()}
        return Moment(self.vectors.index_copy(0, runs, after.vectors), state)

    def without(self, learning: Learning, before: Population, after: Population) -> Moment:
        """The moment over fewer clients: the rows that the state keeps for erased clients are gone."""
        return replace(self, state=state_without(learning, self.state, before, after))


def state_without(learning: Learning, state: State, before: Population, after: Population) -> State:
    """A state over a population without the rows of clients that left it."""
    if before.clients == after.clients:
        return state
    kept = [place for place, client in enumerate(before.clients) if client in after.samples]
    device = next((tensor.device for tensor in state.values()), torch.device("cpu"))
    return inherited(state, learning.client_rows, torch.tensor(kept, dtype=torch.int64, device=device))


def task(learning: Learning, dataset: Dataset, population: Population, device: torch.device) -> Task:
    """The clients' common ground over one population: scaled rows on the device."""
    shift, divisor = scaling_constants(dataset, population, learning.scaling)
    inputs = scaled(dataset.inputs, shift, divisor, learning.dtype)
    module = learning.module.to(device=device, dtype=learning.dtype)
    return Task(module, learning.layout, inputs.to(device), dataset.targets.to(device))


def beginning(learning: Learning, plans: Sequence[Plan], population: Population, device: torch.device) -> Moment:
    """The moment before the first round of plans that are executed over one population."""
    initial = np.stack([plan.initial_uniform(learning.layout.dimension) for plan in plans])
    vectors = learning.layout.initial(initial, learning.dtype).to(device)
    state = learning.initial_state(len(population.clients), device)
    return Moment(vectors, {name: tensor.expand(len(plans), *tensor.shape).clone() for name, tensor in state.items()})


def cohorts_of(round: Round, population: Population, device: torch.device) -> Cohort:
    """The cohorts of one round with the sizes that the retained population gives them."""
    clients = round.cohorts
    flat = clients.reshape(-1).tolist()
    rows = np.array([population.rank.get(client, -1) for client in flat], dtype=np.int64).reshape(clients.shape)
    sizes = np.array([len(population.samples.get(client, ())) for client in flat], dtype=np.int64).reshape(
        clients.shape
    )
    return Cohort(
        clients=torch.from_numpy(clients).to(device),
        rows=torch.from_numpy(rows).to(device),
        sizes=torch.from_numpy(sizes).to(device),
        steps=torch.from_numpy((round.batches != NONE).any(axis=-1).sum(axis=-1)).to(device),
        present=torch.from_numpy(clients != NONE).to(device),
        members=len(population.clients),
        total=population.size,
    )


def execute(
    learning: Learning,
    ground: Task,
    population: Population,
    schedule: Rounds,
    start: Moment,
    engine: Engine,
    first: int = 1,
) -> Iterator[tuple[int, Moment]]:
    """Run the rounds ``first`` to R along a schedule, from the moment before round ``first``.

    A round in which nobody takes part leaves model and state as they are.

    Args:
        ground: from :func:`task`, over the same population.
        population: the retained one; sizes and weights come from it, never from an earlier version.
        schedule: the expanded plans of the n runs.

    Yields:
        The number of each round and the moment after it.

    Raises:
        PluginError: the chain of stages does not leave one row, or a state does not keep its form.
    """
    moment = start
    for number in range(first, schedule.rounds + 1):
        round = schedule.round(number)
        cohort = cohorts_of(round, population, moment.vectors.device)
        context = RoundContext(number, cohort, moment.vectors, learning.step_sizes.at(number))
        batches = torch.from_numpy(round.batches)
        busy = cohort.present.any(dim=-1).nonzero()[:, 0]
        if len(busy) == len(moment.vectors):
            moment = _advanced(learning, ground, moment, context, batches, engine)
        elif len(busy):
            some = _advanced(learning, ground, moment[busy], context[busy], batches[busy.cpu()], engine)
            moment = moment.updated(busy, some)
        yield number, moment


def _advanced(
    learning: Learning, ground: Task, moment: Moment, context: RoundContext, batches: Tensor, engine: Engine
) -> Moment:
    """The moment after a round in which every run has somebody taking part."""
    memory = part(moment.state, SOLVER)
    steps = learning.solver.before(context, memory)
    outcome = engine.advance(ground, moment.vectors, batches, steps)
    uploads, memory = learning.solver.after(outcome, context, memory)
    row, state = server_step(learning.chain, uploads, context, part(moment.state, SERVER))
    return Moment(moment.vectors - row, under(SOLVER, memory) | under(SERVER, state))


def require_finite(moment: Moment, round: int) -> None:
    """Raises UsageError when a model, or a memory of solver or server, holds NaN or an infinity."""
    tensors = {"the model": moment.vectors} | under("the memory ", moment.state)
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise UsageError(
                f"{name} is no longer finite after round {round}",
                "Lower the step size, of clients or server; or the data has NaN where the plan reads.",
            )


def require_one_row_each(learning: Learning, law: Law) -> None:
    """Raises UsageError when a law may draw a client twice in one round, and a memory keeps one row a client."""
    if learning.client_rows and getattr(law, "replacement", False):
        raise UsageError(
            f"the law {law.name!r} can draw a client twice in one round, but {', '.join(sorted(learning.client_rows))} "
            "keeps one memory a client",
            "Use a law that draws clients without replacement.",
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
