"""Many participations at once as stacked weights: best for small models, for many runs, and for GPUs.

Stacks of linear layers have a hand-written step of batched matrix products; every other model goes through
``torch.func``. Participations are lanes of chunks that all have one shape, the last one padded, and nothing in
a step mixes lanes or treats them by their place, so a run's bits do not depend on what is computed beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import log2

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fuaudit.models.layout import Layout, linear_stack
from fuaudit.training.engines.protocol import Task, single_threaded

UNUSED = -1
"""The sample id of an unused slot."""


@dataclass(frozen=True)
class Reads:
    """What the c lanes of a chunk read: ``inputs (E, c, B, *shape)``, ``targets`` and ``rates (E, c, B)``.

    The rate of a sample is the step size over the size of its batch, and 0 in unused slots: steps add up
    gradients times rates, which leaves no multiplication for the update.
    """

    inputs: Tensor
    targets: Tensor
    rates: Tensor

    @classmethod
    def gather(cls, task: Task, batches: Tensor, step_size: float) -> Reads:
        """One gather for all steps; ``batches (c, E, B)`` are on the CPU, results where the task's rows are."""
        rows = batches.transpose(0, 1).contiguous()
        used = rows != UNUSED
        rates = used * (step_size / used.sum(dim=2, keepdim=True).clamp(min=1).double())
        full = bool(used.all())
        device = task.inputs.device
        at = rows.clamp(min=0).flatten().to(device)
        inputs = task.inputs.index_select(0, at).unflatten(0, rows.shape)
        if not full:  # row 0 stands in for no row; it may be erased, that is NaN, and NaN times rate 0 is NaN
            hole = ~used.to(device)
            inputs.masked_fill_(hole.view(*hole.shape, *[1] * (inputs.ndim - 3)), 0)
        return cls(inputs, task.targets.index_select(0, at).view(rows.shape), rates.to(device, inputs.dtype))


Steps = Callable[[list[Tensor], Reads], None]
"""Takes the E steps of a chunk in place, on parameters ``(c, *shape)``."""


def _linear_steps(parameters: list[Tensor], reads: Reads) -> None:
    """The steps of a stack of linear layers with ReLU between them, by hand: see :data:`Steps`."""
    weights, biases = parameters[::2], [bias.unsqueeze(1) for bias in parameters[1::2]]
    lanes, slots = reads.rates.shape[1:]
    outputs = [weight.new_empty(lanes, slots, weight.shape[1]) for weight in weights]
    errors = [torch.empty_like(output) for output in outputs[:-1]]
    rates = reads.rates.unsqueeze(3)
    wanted = rates.new_zeros(*reads.rates.shape, biases[-1].shape[2]).scatter_(3, reads.targets.unsqueeze(3), rates)
    for step, inputs in enumerate(reads.inputs.flatten(3)):
        signals = [inputs, *outputs]
        for weight, bias, signal, output in zip(weights, biases, signals, outputs, strict=False):
            torch.baddbmm(bias, signal, weight.mT, out=output)
            if output is not outputs[-1]:
                output.relu_()
        # the gradient of cross-entropy by the logits, times the rate: rate * softmax - rate * one-hot
        error = outputs[-1]
        error.sub_(error.amax(dim=2, keepdim=True)).exp_()
        error.mul_(rates[step] / error.sum(dim=2, keepdim=True)).sub_(wanted[step])
        for layer in reversed(range(len(weights))):
            below = torch.bmm(error, weights[layer], out=errors[layer - 1]) if layer else error
            weights[layer].baddbmm_(error.mT, signals[layer], alpha=-1)
            biases[layer].sub_(error.sum(dim=1, keepdim=True))
            error = below.mul_(signals[layer].sign()) if layer else error


def _general_steps(task: Task) -> Steps:
    """The steps of any module through torch.func, one participation a lane: see :data:`Steps`."""
    module = copy.deepcopy(task.module)  # functional_call exchanges the parameters of the module: one a worker

    def loss(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, rates: Tensor) -> Tensor:
        logits = functional_call(module, parameters, (inputs,))
        return (cross_entropy(logits, targets, reduction="none") * rates).sum()

    gradients = vmap(grad(loss))

    def steps(parameters: list[Tensor], reads: Reads) -> None:
        named = dict(zip(task.layout.names, parameters, strict=True))
        for read in zip(reads.inputs, reads.targets, reads.rates, strict=True):
            for name, move in gradients(named, *read).items():
                named[name].sub_(move)

    return steps


@dataclass(frozen=True)
class Batched:
    """Chunks of lanes, spread over ``workers`` threads on a CPU; one after another on a GPU.

    ``lanes`` is how many participations a chunk has, by default as many as :func:`suitable_lanes` says.
    """

    workers: int
    lanes: int | None = None
    name: str = "batched"

    def updates(self, task: Task, vectors: Tensor, batches: Tensor, step_size: float) -> Tensor:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        single_threaded()
        runs, places = batches.shape[:2]
        width = self.lanes or suitable_lanes(task.layout.dimension, vectors.device)
        surplus = -(runs * places) % width
        lanes = batches.flatten(0, 1)
        lanes = torch.cat([lanes, lanes.new_full((surplus, *lanes.shape[1:]), UNUSED)])
        run = (torch.arange(len(lanes)) // places).clamp(max=runs - 1).to(vectors.device)
        result = vectors.new_empty(len(lanes), vectors.shape[1])
        by_hand = linear_stack(task.module) is not None

        def work(first: int) -> None:
            chunk = slice(first, first + width)
            reads = Reads.gather(task, lanes[chunk], step_size)
            starts = vectors.index_select(0, run[chunk])
            parameters = [part.clone(memory_format=torch.contiguous_format) for part in task.layout.split(starts)]
            (_linear_steps if by_hand else _general_steps(task))(parameters, reads)
            parts = zip(task.layout.split(starts), parameters, task.layout.split(result[chunk]), strict=True)
            for start, end, update in parts:
                torch.sub(start, end, out=update)

        firsts = range(0, len(lanes), width)
        if vectors.device.type == "cpu" and self.workers > 1 and len(firsts) > 1:
            with ThreadPoolExecutor(self.workers, initializer=single_threaded) as pool:
                list(pool.map(work, firsts))
        else:
            for first in firsts:
                work(first)
        return result[: runs * places].unflatten(0, (runs, places))


def suitable_lanes(dimension: int, device: torch.device) -> int:
    """A power of two, so that stacked weights fill a cache (1.2 MB in float32) on a CPU, or a GPU's processors."""
    numbers, most = (320_000, 128) if device.type == "cpu" else (2**24, 1024)
    return min(most, max(4, 2 ** int(log2(max(1.0, numbers / dimension)))))
