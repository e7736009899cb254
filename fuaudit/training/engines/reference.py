"""The plain loop over participations with one torch thread: the oracle that the other engines are held to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fuaudit.training.engines.protocol import ClientProblem, single_threaded, within
from fuaudit.training.solvers import Outcome, Steps


def local_steps(
    module: nn.Module, problem: ClientProblem, vector: Tensor, batches: Tensor, steps: Steps
) -> tuple[Tensor, Tensor | None]:
    """One participation: model, and with momentum velocity, ``(d,)`` after a step for each of the batches ``(E, B)``.

    ``steps`` are those of this participation: its drift and velocity are vectors ``(d,)``. The module is used as
    a workspace: its parameters are overwritten, each in memory of its own (views of one vector could share
    memory between workers).
    """
    parameters = list(module.parameters())
    layout = problem.layout
    sent = [value.view_as(p) for p, value in zip(parameters, layout.split(vector), strict=True)]
    drift = None if steps.drift is None else layout.split(steps.drift)
    velocity = list[Tensor]()
    if steps.momentum:
        start = torch.zeros_like(vector) if steps.velocity is None else steps.velocity.clone()
        velocity = [value.view_as(p) for p, value in zip(parameters, layout.split(start), strict=True)]
    with torch.no_grad():
        for parameter, value in zip(parameters, sent, strict=True):
            parameter.copy_(value)
    for step, batch in enumerate(batches):
        rows = batch[batch >= 0].to(problem.inputs.device)
        if not len(rows) and steps.noise is None:
            continue
        if steps.clip:
            noise = None if steps.noise is None else steps.noise[step]
            # an empty batch has a divisor too: one without noise is not taken, and noise is as large as in others
            divisor = steps.divisor or len(rows) or len(batch)
            gradients = tuple(total / divisor for total in _clipped(module, problem, rows, steps.clip, noise))
        else:
            read = module(problem.inputs[rows]), problem.targets[rows]
            loss = cross_entropy(*read, reduction="sum") / steps.divisor if steps.divisor else cross_entropy(*read)
            gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for at, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                direction = gradient
                if steps.proximal:
                    direction = direction + steps.proximal * (parameter - sent[at])
                if drift is not None:
                    direction = direction + drift[at].view_as(parameter)
                if steps.momentum:
                    direction = velocity[at].mul_(steps.momentum).add_(direction, alpha=1 - steps.dampening)
                parameter.add_(direction, alpha=-steps.size)
    end = layout.join([parameter.detach() for parameter in parameters])
    return end, layout.join(velocity) if velocity else None


def _clipped(
    module: nn.Module, problem: ClientProblem, rows: Tensor, clip: float, noise: Tensor | None
) -> list[Tensor]:
    """The gradients of rows, each clipped by itself, added up with the noise of a step, if any."""
    parameters = list(module.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for row in rows.split(1):
        loss = cross_entropy(module(problem.inputs[row]), problem.targets[row])
        own = torch.autograd.grad(loss, parameters)
        squares = [gradient.to(torch.float64).square().sum() for gradient in own]
        scale = within(torch.stack(squares).sum().sqrt(), clip, total[0].dtype)
        for added, gradient in zip(total, own, strict=True):
            # in float64: a scale for a huge gradient may be too small for its type, and be rounded up
            added += (gradient.to(scale) * scale).to(added)
    if noise is not None:
        for added, part in zip(total, problem.layout.split(noise), strict=True):
            added += part.view_as(added)
    return total


def participate(
    module: nn.Module,
    problem: ClientProblem,
    vectors: Tensor,
    batches: Tensor,
    steps: Steps,
    at: tuple[int, int],
    into: Outcome,
) -> None:
    """The participation ``at`` (run, place), written into its rows of an outcome."""
    vector = vectors[at[0]]
    end, speed = local_steps(module, problem, vector, batches[at], steps[at])
    into.updates[at] = vector - end
    if into.velocity is not None and speed is not None:
        into.velocity[at] = speed


def empty_outcome(problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
    """Room for what the participations of a round end with."""
    updates = vectors.new_empty(*batches.shape[:2], problem.layout.dimension)
    return Outcome(updates, torch.empty_like(updates) if steps.momentum else None)


@dataclass(frozen=True)
class Reference:
    """Participations one after another."""

    name: str = "reference"

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        single_threaded()
        result = empty_outcome(problem, vectors, batches, steps)
        for run in range(len(vectors)):
            for place in range(batches.shape[1]):
                participate(problem.module, problem, vectors, batches, steps, (run, place), result)
        return result
