"""The plain loop spread over threads, one torch thread each: bit-equal to the reference, best for CNNs on a CPU.

Torch releases the interpreter inside its operations, so participations run side by side; each writes its own
row, so the result does not depend on who finishes first.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

from torch import Tensor

from fuaudit.training.engines.protocol import ClientProblem, single_threaded
from fuaudit.training.engines.reference import empty_outcome, participate
from fuaudit.training.solvers import Outcome, Steps


@dataclass(frozen=True)
class Threads:
    """Participations over ``workers`` threads."""

    workers: int
    name: str = "threads"

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        single_threaded()
        result = empty_outcome(problem, vectors, batches, steps)

        def work(run: int, place: int) -> None:
            with problem.own_module() as module:
                participate(module, problem, vectors, batches, steps, (run, place), result)

        with ThreadPoolExecutor(self.workers, initializer=single_threaded) as pool:
            jobs = [pool.submit(work, *at) for at in product(range(len(vectors)), range(batches.shape[1]))]
            for job in jobs:
                job.result()
        return result
