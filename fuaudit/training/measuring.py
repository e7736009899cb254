"""Measuring: what a model answers, its mean loss and accuracy, on the CPU, in chunks of one length.

**The rule for chunks** is part of the format (docs/run-format.md): rows are answered :data:`CHUNK` at a time, in the
order in which they are given, whoever owns them; the last chunk is what is left. Each chunk is computed by one thread,
chunks by all processors, and losses are added in the order of chunks. So figures depend neither on how many processors
there are nor on who is first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fuaudit.data.dataset import Dataset, scaled, scaling_constants
from fuaudit.plans import Population
from fuaudit.training.engines import processors
from fuaudit.training.engines.protocol import ClientProblem, single_threaded
from fuaudit.training.pooling import sliced
from fuaudit.training.setup import Setup

CHUNK = 250
"""Rows measured at once. Bits of sums depend on it, so it never changes."""

Logits = Callable[[Tensor, Tensor], Tensor]
"""From a model ``(d,)`` and at most :data:`CHUNK` inputs ``(n, *shape)`` to logits ``(n, classes)``."""

Measured = Callable[[Tensor, Tensor, Tensor], tuple[float, float]]
"""From a model ``(d,)``, inputs and targets to mean loss and accuracy."""

Told = Callable[[], None]
"""Is called when one more chunk was measured."""

T = TypeVar("T")


def answering(ready: Setup, population: Population) -> Logits:
    """What models answer, with inputs as the population scales them; several threads may ask at once."""
    procedure, dataset = ready.procedure, ready.dataset
    problem = ClientProblem(sliced(ready.cpu_module()), procedure.layout, dataset.inputs, dataset.targets)
    shift, divisor = scaling_constants(dataset, population, procedure.scaling)

    @torch.no_grad()
    def logits(vector: Tensor, inputs: Tensor) -> Tensor:
        single_threaded()
        parameters = dict(zip(problem.layout.names, problem.layout.split(vector.cpu()), strict=True))
        given = scaled(inputs, shift, divisor, procedure.dtype)
        with problem.own_module() as module:
            found: Tensor = torch.func.functional_call(module, parameters, (given,))
        return found

    return logits


def _nothing() -> None:
    """Tells nobody."""


def chunks_of(count: int) -> list[slice]:
    """The chunks of so many rows."""
    return [slice(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]


def in_chunks(work: Callable[[slice], T], count: int, told: Told = _nothing) -> Iterator[T]:
    """What a function makes of each chunk of so many rows, in the order of chunks; all processors share them."""
    chunks = chunks_of(count)
    with ThreadPoolExecutor(max(1, min(processors(), len(chunks))), initializer=single_threaded) as pool:
        for found in pool.map(work, chunks) if len(chunks) > 1 else map(work, chunks):
            told()
            yield found


def loss_of(logits: Tensor, targets: Tensor) -> float:
    """The sum of the losses of one chunk."""
    return float(cross_entropy(logits, targets, reduction="sum"))


def figures(
    logits: Logits, vector: Tensor, inputs: Tensor, targets: Tensor, told: Told = _nothing
) -> tuple[float, float]:
    """Mean loss and accuracy of a model ``(d,)`` on inputs ``(n, *shape)`` and targets ``(n,)``, n at least 1."""

    def of_chunk(rows: slice) -> tuple[float, int]:
        # a copy: a model may write into what it is given
        found, wanted = logits(vector, inputs[rows].clone()), targets[rows]
        return loss_of(found, wanted), int((found.argmax(dim=1) == wanted).sum())

    losses, hits = zip(*in_chunks(of_chunk, len(targets), told), strict=True)
    # not by sum, which some versions of Python correct for rounding
    return reduce(add, losses, 0.0) / len(targets), sum(hits) / len(targets)


def right(logits: Logits, vector: Tensor, dataset: Dataset, rows: Tensor, told: Told = _nothing) -> Tensor:
    """Which training rows a model ``(d,)`` answers right, of those with ids ``(n,)``: bool ``(n,)``."""

    def of_chunk(some: slice) -> Tensor:
        ids = rows[some]
        return logits(vector, dataset.inputs[ids]).argmax(dim=1) == dataset.targets[ids]

    return torch.cat([torch.zeros(0, dtype=torch.bool), *in_chunks(of_chunk, len(rows), told)])


def measuring(ready: Setup, population: Population) -> Measured:
    """Measures models; see the module's first lines."""
    logits = answering(ready, population)
    return lambda vector, inputs, targets: figures(logits, vector, inputs, targets)


def commonest(targets: Tensor) -> tuple[int, float]:
    """The most common class among targets ``(n,)``, the first of those that are, and its share in (0, 1]."""
    counts = torch.bincount(targets)
    number = int(counts.argmax())
    return number, int(counts[number]) / len(targets)
