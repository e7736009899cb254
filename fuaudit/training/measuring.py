"""Measuring: mean loss and accuracy of a model on rows, on the CPU with one thread, in chunks of one length."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fuaudit.data.dataset import scaled, scaling_constants
from fuaudit.plans import Population
from fuaudit.training.engines.protocol import single_threaded
from fuaudit.training.setup import Setup

CHUNK = 250
"""Rows measured at once. Bits of sums depend on it, so it never changes."""

Logits = Callable[[Tensor, Tensor], Tensor]
"""From a model ``(d,)`` and at most :data:`CHUNK` inputs ``(n, *shape)`` to logits ``(n, classes)``."""

Measured = Callable[[Tensor, Tensor, Tensor], tuple[float, float]]
"""From a model ``(d,)``, inputs and targets to mean loss and accuracy."""


def answering(ready: Setup, population: Population) -> Logits:
    """What models answer, with inputs as the population scales them."""
    procedure, module, layout = ready.procedure, ready.cpu_module(), ready.procedure.layout
    shift, divisor = scaling_constants(ready.dataset, population, procedure.scaling)

    @torch.no_grad()
    def logits(vector: Tensor, inputs: Tensor) -> Tensor:
        single_threaded()
        parameters = dict(zip(layout.names, layout.split(vector.cpu()), strict=True))
        found: Tensor = torch.func.functional_call(
            module, parameters, (scaled(inputs, shift, divisor, procedure.dtype),)
        )
        return found

    return logits


def loss_of(logits: Tensor, targets: Tensor) -> float:
    """The sum of the losses of one chunk."""
    return float(cross_entropy(logits, targets, reduction="sum"))


def measuring(ready: Setup, population: Population) -> Measured:
    """Measures models; see the module's first line."""
    logits = answering(ready, population)

    def measured(vector: Tensor, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        loss, hits, count = 0.0, 0, len(targets)
        for first in range(0, count, CHUNK):
            wanted = targets[first : first + CHUNK]
            found = logits(vector, inputs[first : first + CHUNK])
            loss += loss_of(found, wanted)
            hits += int((found.argmax(dim=1) == wanted).sum())
        return loss / count, hits / count

    return measured


def commonest(targets: Tensor) -> tuple[int, float]:
    """The most common class among targets ``(n,)``, the first of those that are, and its share in (0, 1]."""
    counts = torch.bincount(targets)
    number = int(counts.argmax())
    return number, int(counts[number]) / len(targets)
