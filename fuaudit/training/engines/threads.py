"""The plain loop spread over threads, one torch thread each: bit-equal to the reference, best for one run on a CPU.

Torch releases the interpreter inside its operations, so participations run side by side; each writes its own
row, so the result does not depend on who finishes first.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from itertools import product

from torch import Tensor

from fuaudit.training.engines.protocol import ClientProblem, single_threaded
from fuaudit.training.engines.reference import empty_outcome, participate
from fuaudit.training.solvers import Outcome, Steps


@dataclass(frozen=True)
class Threads:
    """Participations over ``workers`` threads, of which the caller's is one."""

    workers: int
    name: str = "threads"

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        single_threaded()
        result = empty_outcome(problem, vectors, batches, steps)
        places = deque(product(range(len(vectors)), range(batches.shape[1])))

        def work() -> None:
            with problem.own_module() as module:
                while True:
                    try:
                        at = places.popleft()  # no two threads get one place
                    except IndexError:
                        return
                    participate(module, problem, vectors, batches, steps, at, result)

        others = min(self.workers, len(places)) - 1
        jobs = [_helpers(self.workers, os.getpid()).submit(work) for _ in range(others)]
        try:
            work()
        finally:
            wait(jobs)
        for job in jobs:
            job.result()
        return result


@cache
def _helpers(workers: int, process: int) -> ThreadPoolExecutor:
    """Threads that wait between rounds: starting them takes as long as a round of a small model.

    A process that was forked has none of its parent's, so it gets its own.
    """
    return ThreadPoolExecutor(workers - 1, "fuaudit-engine", initializer=single_threaded)
