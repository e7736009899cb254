"""What an engine is: local steps of every participation of a round, for one run or many."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from fuaudit.models.layout import Layout
from fuaudit.training.solvers import Outcome, Steps


@dataclass(frozen=True)
class ClientProblem:
    """What all clients share: the model as a template (its values do not matter), and the training rows.

    ``inputs (N, *shape)`` and ``targets (N,)`` lie on the device where the engine computes.
    """

    module: nn.Module
    layout: Layout
    inputs: Tensor
    targets: Tensor
    _spare: list[nn.Module] = field(default_factory=list, init=False, repr=False, compare=False)

    @contextmanager
    def own_module(self) -> Iterator[nn.Module]:
        """A copy of the template for one worker; the next one gets it again."""
        try:
            module = self._spare.pop()
        except IndexError:
            module = copy.deepcopy(self.module)
        yield module
        self._spare.append(module)  # not where a worker failed: it may have left the copy in any state


class Engine(Protocol):
    """Takes local steps on cross-entropy, as :class:`~fuaudit.training.solvers.Steps` says.

    A participation starts from the vector of its run and takes one step for every batch. A step with an empty
    batch leaves model and velocity as they are, unless steps have noise.
    """

    @property
    def name(self) -> str:
        """How a run records the engine."""

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """What all participations of one round end with, ``(n, K, d)``.

        Args:
            problem: what all clients share.
            vectors: models sent out, ``(n, d)``, one a run.
            batches: sample ids ``(n, K, E, B)``, -1 in unused slots; on the CPU.
            steps: of this round.
        """


def within(norms: Tensor, clip: float, dtype: torch.dtype) -> Tensor:
    """What gradients of these norms, in float64, are scaled by: 1, or less where they are longer than ``clip``.

    A norm of zero scales by 1. What is longer is left shorter by some units of rounding of the ``dtype`` of gradients,
    so that none is longer after.
    """
    bound = clip * (1 - max(2.0**-40, 4 * torch.finfo(dtype).eps))
    return (bound / norms.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)


def single_threaded() -> None:
    """One torch thread a worker: bits then do not depend on the machine's load, and workers do not fight.

    Every worker calls this when it starts: a new thread only takes over the number when it is asked for it, and
    until then the libraries below torch would use all processors.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@contextmanager
def threads_restored() -> Iterator[None]:
    """Leave the caller's number of torch threads as it was, whatever the work inside sets it to."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
