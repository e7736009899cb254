"""Execute: from the retained data and a plan to models. Deterministic; draws nothing.

``model = execute(data, history)``. One function serves a run, its resumption, its replay by an auditor, and
hundreds of runs side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fuaudit.data.dataset import Dataset, scaled, scaling_constants
from fuaudit.errors import UsageError
from fuaudit.models.layout import Layout
from fuaudit.plans import Population
from fuaudit.plans.schedule import NONE, Schedule
from fuaudit.training.engines.protocol import Engine, Task
from fuaudit.training.stages import Chain, Cohort, State, server_step, stacked_init


@dataclass(frozen=True)
class Learning:
    """Everything that turns a plan into models, apart from data and draws.

    Attributes:
        module: the model as a template.
        chain: the server's stages.
        step_size: of the clients' plain SGD.
        scaling: see :data:`fuaudit.data.dataset.SCALINGS`.
        dtype: of models and inputs.
    """

    module: nn.Module
    chain: Chain
    step_size: float
    scaling: str = "none"
    dtype: torch.dtype = torch.float32

    @property
    def layout(self) -> Layout:
        """How vectors map to the module."""
        return Layout.of(self.module)


@dataclass(frozen=True)
class Moment:
    """All that crosses a round boundary, hence all there is to forget: models ``(n, d)`` and server state."""

    vectors: Tensor
    state: State


def task(learning: Learning, dataset: Dataset, population: Population, device: torch.device) -> Task:
    """The clients' common ground over one population: scaled rows on the device."""
    shift, divisor = scaling_constants(dataset, population, learning.scaling)
    inputs = scaled(dataset.inputs, shift, divisor, learning.dtype)
    module = learning.module.to(device=device, dtype=learning.dtype)
    return Task(module, learning.layout, inputs.to(device), dataset.targets.to(device))


def beginning(
    learning: Learning, initial: np.ndarray[tuple[int, int], np.dtype[np.float64]], device: torch.device
) -> Moment:
    """The moment before the first round, from numbers in [0, 1) of shape ``(n, d)``."""
    layout = learning.layout
    vectors = layout.initial(initial, learning.dtype).to(device)
    return Moment(vectors, stacked_init(learning.chain, len(vectors), layout.dimension, learning.dtype, device))


def cohorts_of(schedule: Schedule, round: int, population: Population, device: torch.device) -> Cohort:
    """The cohorts of one round (from 1) with the sizes that the retained population gives them."""
    clients = schedule.cohorts[:, round - 1]
    sizes = np.array([len(population.samples.get(int(c), ())) for c in clients.reshape(-1)]).reshape(clients.shape)
    return Cohort(
        torch.from_numpy(clients).to(device),
        torch.from_numpy(sizes).to(device),
        torch.from_numpy(clients != NONE).to(device),
        len(population.clients),
        population.size,
    )


def execute(
    learning: Learning,
    ground: Task,
    population: Population,
    schedule: Schedule,
    start: Moment,
    engine: Engine,
    first: int = 1,
) -> Iterator[tuple[int, Moment]]:
    """Run the rounds ``first`` to R along a schedule, from the moment before round ``first``.

    Args:
        ground: from :func:`task`, over the same population.
        population: the retained one; sizes and weights come from it, never from an earlier version.
        schedule: the expanded plans of the n runs.

    Yields:
        The number of each round and the moment after it.

    Raises:
        PluginError: the chain of stages does not leave one row.
        UsageError: a model became infinite or NaN, because the step size is too large.
    """
    moment = start
    for round in range(first, schedule.rounds + 1):
        batches = torch.from_numpy(schedule.batches[:, round - 1])
        updates = engine.updates(ground, moment.vectors, batches, learning.step_size)
        cohort = cohorts_of(schedule, round, population, moment.vectors.device)
        row, state = server_step(learning.chain, updates, cohort, moment.state)
        moment = Moment(moment.vectors - row, state)
        yield round, moment


def require_finite(moment: Moment, round: int) -> None:
    """Raises UsageError when a model holds NaN or an infinity."""
    if not bool(torch.isfinite(moment.vectors).all()):
        raise UsageError(
            f"the model is no longer finite after round {round}",
            "Lower the step size; or the data has NaN where the plan reads.",
        )
