"""The batched engine with gradients compiled by torch for this machine: for convolutions, where there is a compiler.

Compiling fuses what lies between convolutions and takes the interpreter out of a step. It needs a C++ compiler on a
CPU (Triton on a GPU) and some seconds for each model and size of a batch, so nobody gets it unasked. A loop that a
model writes out, as the LSTM does, takes minutes to compile.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fuaudit.errors import UsageError
from fuaudit.training.engines.batched import Batched, Gradients, stacked_gradients
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.solvers import Outcome, Steps


def compiled_gradients(module: nn.Module) -> Gradients:
    """:func:`~fuaudit.training.engines.batched.stacked_gradients`, compiled at the first call for every size.

    Raises:
        UsageError: when called, if the model cannot be compiled here.
    """
    compiled = torch.compile(stacked_gradients(copy.deepcopy(module)), fullgraph=True, dynamic=False)
    compiling, known = Lock(), set[Any]()

    def gradients(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, rates: Tensor) -> dict[str, Tensor]:
        size = inputs.shape, inputs.dtype
        if size in known:
            return compiled(parameters, inputs, targets, rates)
        with compiling:  # workers that came at the same time would compile it once more
            try:
                result: dict[str, Tensor] = compiled(parameters, inputs, targets, rates)
            except Exception as error:
                raise UsageError(
                    f"torch cannot compile this model here: {repr(error).splitlines()[0]}",
                    'Install a C++ compiler, or take another engine, such as engine = "threads".',
                ) from error
            known.add(size)
        return result

    return gradients


@dataclass(frozen=True)
class Compiled:
    """As the batched engine; what differs is the rounding of single operations.

    All chunks have one length, whatever the cohorts are, so a model is compiled once for each size of a batch.
    """

    workers: int
    stack_size: int | None = None
    name: str = "compiled"
    _compiled: WeakKeyDictionary[nn.Module, Gradients] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`. UsageError if the model cannot be compiled."""
        if problem.module not in self._compiled:
            self._compiled[problem.module] = compiled_gradients(problem.module)
        gradients = self._compiled[problem.module]
        return Batched(self.workers, self.stack_size, gradients_of=lambda _: gradients).advance(
            problem, vectors, batches, steps
        )
