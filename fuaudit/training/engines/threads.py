"""The plain loop spread over threads, one torch thread each: bit-equal to the reference, best for CNNs on a CPU.

Torch releases the interpreter inside its operations, so participations run side by side; each writes its own
row, so the result does not depend on who finishes first.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from queue import SimpleQueue

import torch
from torch import Tensor, nn

from fuaudit.training.engines.protocol import Task, single_threaded
from fuaudit.training.engines.reference import local_sgd


@dataclass(frozen=True)
class Threads:
    """Participations over ``workers`` threads."""

    workers: int
    name: str = "threads"

    def updates(self, task: Task, vectors: Tensor, batches: Tensor, step_size: float) -> Tensor:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        single_threaded()
        result = torch.empty(*batches.shape[:2], task.layout.dimension, dtype=vectors.dtype, device=vectors.device)
        workspaces: SimpleQueue[nn.Module] = SimpleQueue()
        for _ in range(self.workers):
            workspaces.put(copy.deepcopy(task.module))

        def participate(run: int, place: int) -> None:
            module = workspaces.get()
            try:
                vector = vectors[run]
                end = local_sgd(module, task.layout, task.inputs, task.targets, vector, batches[run, place], step_size)
                result[run, place] = vector - end
            finally:
                workspaces.put(module)

        with ThreadPoolExecutor(self.workers, initializer=single_threaded) as pool:
            jobs = [pool.submit(participate, *at) for at in product(range(len(vectors)), range(batches.shape[1]))]
            for job in jobs:
                job.result()
        return result
