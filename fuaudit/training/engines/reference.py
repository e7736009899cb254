"""The plain loop over participations with one torch thread: the oracle that the other engines are held to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fuaudit.models.layout import Layout
from fuaudit.training.engines.protocol import Task, single_threaded


def local_sgd(
    module: nn.Module,
    layout: Layout,
    inputs: Tensor,
    targets: Tensor,
    vector: Tensor,
    batches: Tensor,
    step_size: float,
) -> Tensor:
    """One participation: the model ``(d,)`` after a step for each of the batches ``(E, B)``.

    The module is used as a workspace: its parameters are overwritten, each in memory of its own (views of one
    vector could share memory between workers).
    """
    parameters = list(module.parameters())
    with torch.no_grad():
        for parameter, value in zip(parameters, layout.split(vector), strict=True):
            parameter.copy_(value.view_as(parameter))
    for batch in batches:
        rows = batch[batch >= 0].to(inputs.device)
        if not len(rows):
            continue
        loss = cross_entropy(module(inputs[rows]), targets[rows])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(gradient, alpha=-step_size)
    return layout.join([parameter.detach() for parameter in parameters])


@dataclass(frozen=True)
class Reference:
    """Participations one after another."""

    name: str = "reference"

    def updates(self, task: Task, vectors: Tensor, batches: Tensor, step_size: float) -> Tensor:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        single_threaded()
        result = torch.empty(*batches.shape[:2], task.layout.dimension, dtype=vectors.dtype, device=vectors.device)
        for run, vector in enumerate(vectors):
            for place in range(batches.shape[1]):
                end = local_sgd(
                    task.module, task.layout, task.inputs, task.targets, vector, batches[run, place], step_size
                )
                result[run, place] = vector - end
        return result
