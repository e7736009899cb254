"""Many participations at once as stacked weights: best for small models, for many runs, and for GPUs.

Stacks of linear layers have a hand-written step of batched matrix products; every other model goes through
``torch.func``. Work is cut into chunks of one fixed shape, the last one padded, so that a run's bits do not
depend on how many others are computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fuaudit.models.layout import Layout, linear_stack
from fuaudit.training.engines.protocol import Task, single_threaded

Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(c, d)`` vectors, ``(c, B, *shape)`` inputs, ``(c, B)`` targets, ``(c, B)`` weights -> gradients ``(c, d)``."""

IGNORED = -100
"""The target that cross-entropy leaves out of a sum."""


def _linear_gradient(layout: Layout, layers: int) -> Step:
    """Gradients of a stack of linear layers with ReLU, by hand: one batched product a layer and direction."""

    def gradient(vectors: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        parameters = layout.split(vectors)
        activations = [inputs.flatten(2)]
        for layer in range(layers):
            weight, bias = parameters[2 * layer], parameters[2 * layer + 1]
            out = torch.baddbmm(bias.unsqueeze(1), activations[-1], weight.transpose(1, 2))
            activations.append(out.relu() if layer + 1 < layers else out)
        # the gradient of the mean cross-entropy by the logits is (softmax - one-hot) / batch size
        delta = activations[-1].softmax(dim=2)
        delta.scatter_add_(2, targets.unsqueeze(2), torch.full_like(targets, -1, dtype=delta.dtype).unsqueeze(2))
        delta = delta * weights.unsqueeze(2)
        gradients: list[Tensor] = []
        for layer in reversed(range(layers)):
            gradients[:0] = [torch.bmm(delta.transpose(1, 2), activations[layer]), delta.sum(dim=1)]
            if layer:
                delta = torch.bmm(delta, parameters[2 * layer]) * (activations[layer] > 0)
        return layout.join(gradients, leading=1)

    return gradient


def _general_gradient(task: Task) -> Step:
    """Gradients of any module through torch.func, one participation a lane."""
    layout = task.layout

    def loss(vector: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        parameters = dict(zip(layout.names, layout.split(vector), strict=True))
        logits = functional_call(task.module, parameters, (inputs,))
        return (cross_entropy(logits, targets, reduction="none") * weights).sum()

    return vmap(grad(loss))


@dataclass(frozen=True)
class Batched:
    """Chunks of ``lanes`` participations, spread over ``workers`` threads on a CPU; one after another on a GPU."""

    workers: int
    lanes: int = 128
    name: str = "batched"

    def updates(self, task: Task, vectors: Tensor, batches: Tensor, step_size: float) -> Tensor:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        single_threaded()
        stack = linear_stack(task.module)
        gradient = _linear_gradient(task.layout, len(stack)) if stack else _general_gradient(task)
        runs, places = batches.shape[:2]
        starts = vectors.repeat_interleave(places, dim=0)
        flat = batches.flatten(0, 1)
        surplus = -len(flat) % self.lanes
        if surplus:
            starts = torch.cat([starts, starts[:1].expand(surplus, -1)])
            flat = torch.cat([flat, flat.new_full((surplus, *flat.shape[1:]), -1)])

        def work(chunk: slice) -> Tensor:
            return _local_steps(task, gradient, starts[chunk], flat[chunk].to(vectors.device), step_size)

        chunks = [slice(first, first + self.lanes) for first in range(0, len(flat), self.lanes)]
        if vectors.device.type == "cpu" and self.workers > 1 and len(chunks) > 1:
            with ThreadPoolExecutor(self.workers) as pool:
                ends = list(pool.map(work, chunks))
        else:
            ends = [work(chunk) for chunk in chunks]
        return torch.cat(ends)[: runs * places].unflatten(0, (runs, places))


def _local_steps(task: Task, gradient: Step, starts: Tensor, batches: Tensor, step_size: float) -> Tensor:
    """The updates ``(c, d)`` of one chunk of participations with batches ``(c, E, B)``."""
    real = batches >= 0
    rows = batches.clamp(min=0)
    inputs, targets = task.inputs[rows], task.targets[rows]
    # unused slots must not be read: an erased row holds NaN, and NaN times weight 0 is NaN
    inputs = torch.where(real.view(*real.shape, *[1] * (inputs.ndim - 3)), inputs, torch.zeros_like(inputs))
    weights = real / real.sum(dim=2, keepdim=True).clamp(min=1)
    weights = weights.to(starts.dtype)
    vectors = starts.clone()
    for step in range(batches.shape[1]):
        moves = gradient(vectors, inputs[:, step], targets[:, step], weights[:, step])
        vectors.add_(moves, alpha=-step_size)
    return starts - vectors
