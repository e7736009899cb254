"""Many participations at once as stacked weights: best for many runs of linear layers, and for GPUs.

Stacks of linear layers have a hand-written step of batched matrix products; every other model goes through
``torch.func``. Participations of all runs and places stand in one row, which is cut into chunks of one length, the
last one padded, and nothing in a step mixes participations or treats them by their place, so a run's bits do not
depend on what is computed beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import gcd, log2, prod

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fuaudit.models.layout import linear_stack
from fuaudit.training.engines.protocol import ClientProblem, single_threaded, within
from fuaudit.training.solvers import Outcome, Steps


class Buffers:
    """Memory that a worker keeps from chunk to chunk: fresh pages would cost as much as the arithmetic."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, shape: Sequence[int]) -> Tensor:
        """The buffer of that name, contiguous; it holds whatever was left in it."""
        kept = self._kept.get(name)
        if kept is None or kept.shape != tuple(shape) or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._kept[name] = like.new_empty(tuple(shape))
        return kept


READ_AT_ONCE = 2**25
"""Bytes of inputs that a worker gathers at once. One gather for many steps saves small models the overhead of many
(all steps of 256 participations on digits take 2.6 MB); beyond some megabytes there is nothing left to save, and
30 places x 625 steps x 16 images of 28 x 28 would be 900 MB."""


@dataclass(frozen=True)
class Minibatches:
    """What c participations read in some steps: ``inputs (E, c, B, *shape)``, ``targets`` and ``rates (E, c, B)``.

    The rate of a sample is the step size over the size of its batch, or over the divisor of the steps, and 0 in
    unused slots: a step subtracts gradients of losses times rates. ``active (E, c)`` is 0 where a batch is empty, and
    the step none. ``noise (E, c, d)`` is what is added to each step; None where steps have none.
    """

    inputs: Tensor
    targets: Tensor
    rates: Tensor
    active: Tensor
    noise: Tensor | None = None

    @classmethod
    def blocks(cls, problem: ClientProblem, batches: Tensor, steps: Steps, buffers: Buffers) -> Iterator[Minibatches]:
        """What all steps read, in their order, about :data:`READ_AT_ONCE` bytes at once.

        ``batches (c, E, B)`` lie on the CPU, the results with the task's rows; the next takes the memory of the last.
        """
        a_step = prod(problem.inputs.shape[1:]) * problem.inputs.element_size() * batches[:, 0].numel()
        at_once, noise = max(1, READ_AT_ONCE // max(1, a_step)), None
        for number, rows in enumerate(batches.transpose(0, 1).split(at_once)):
            if steps.noise is not None:
                part = steps.noise[:, number * at_once : number * at_once + len(rows)].transpose(0, 1)
                noise = torch.cat([part, part.new_zeros(len(rows), rows.shape[1] - part.shape[1], part.shape[2])], 1)
            yield cls._gather(problem, rows.contiguous(), steps, buffers, noise)

    @classmethod
    def _gather(
        cls, problem: ClientProblem, rows: Tensor, steps: Steps, buffers: Buffers, noise: Tensor | None
    ) -> Minibatches:
        used = rows >= 0
        lengths = used.sum(dim=2, keepdim=True)
        lengths = torch.where(lengths > 0, lengths, used.shape[2])  # of an empty batch there is noise at most
        rates = used.to(next(problem.module.parameters()).dtype)  # inputs may be integers
        rates *= steps.size / (steps.divisor or lengths.to(rates))
        if not bool(used.all()):
            # A row of the batch stands in unused slots too: of rate 0, it is infinite only where the batch is.
            rows = torch.where(used, rows, rows.amax(dim=2, keepdim=True))
        at = rows.clamp(min=0).flatten().to(problem.inputs.device)
        shape = problem.inputs.shape[1:]
        inputs = buffers.take("inputs", problem.inputs, (len(at), *shape))
        torch.index_select(problem.inputs, 0, at, out=inputs)
        active = used.any(dim=2)
        if not bool(active.all()):  # row 0 filled empty batches, which read nothing
            gaps = ~active.unsqueeze(2).expand_as(used).flatten().to(problem.inputs.device)
            inputs.masked_fill_(gaps.view(-1, *[1] * len(shape)), 0)
        targets = problem.targets.index_select(0, at)
        if noise is not None:
            active = torch.ones_like(active)
            noise = noise * (steps.size / (steps.divisor or lengths.to(noise)))
        rates, active = rates.to(problem.inputs.device), active.to(problem.inputs.device)
        return cls(inputs.view(*rows.shape, *shape), targets.view(rows.shape), rates, active, noise)


@dataclass(frozen=True)
class CorrectionTerms:
    """The terms of a direction that are no gradient, times the step size: one tensor ``(c, *shape)`` a parameter."""

    steps: Steps
    sent: list[Tensor]
    drift: list[Tensor] | None

    def at(self, active: Tensor, parameters: list[Tensor]) -> list[Tensor]:
        """The pulls of one step, on parameters as they are before it; none where ``active (c,)`` is not."""
        sizes = self.steps.size * active.to(parameters[0])
        corrections = []
        for at, (parameter, sent) in enumerate(zip(parameters, self.sent, strict=True)):
            correction = self.steps.proximal * (parameter - sent)
            if self.drift is not None:
                correction += self.drift[at]
            corrections.append(correction.mul_(sizes.view(-1, *[1] * (parameter.dim() - 1))))
        return corrections


LocalSteps = Callable[[list[Tensor], Minibatches, CorrectionTerms | None, list[Tensor] | None, Buffers], None]
"""Takes steps of a chunk, in place, on parameters ``(c, *shape)``, and on velocities where there is momentum."""


def _linear_steps(
    parameters: list[Tensor],
    minibatches: Minibatches,
    corrections: CorrectionTerms | None,
    velocities: list[Tensor] | None,
    buffers: Buffers,
) -> None:
    """The steps of linear layers with ReLU between them, by hand, in operations of one pass; see :data:`LocalSteps`.

    For steps without momentum: gradients are added to weights as they come, and never lie in memory.
    """
    weights, biases = parameters[::2], [bias.unsqueeze(1) for bias in parameters[1::2]]
    rates = minibatches.rates.unsqueeze(3)
    tall, classes = rates.shape[1:3], weights[-1].shape[1]
    outputs = [buffers.take(f"output {at}", rates, (*tall, w.shape[1])) for at, w in enumerate(weights)]
    errors = [buffers.take(f"error {at}", rates, (*tall, w.shape[1])) for at, w in enumerate(weights[:-1])]
    wanted = buffers.take("wanted", rates, (*rates.shape[:3], classes)).zero_()
    wanted.scatter_(3, minibatches.targets.unsqueeze(3), rates)
    errors.append(outputs[-1])
    forward, backward = [w.mT for w in weights], [error.mT for error in errors]
    last = len(weights) - 1
    whole = minibatches.active.all(dim=1).tolist()
    for step, inputs in enumerate(minibatches.inputs.flatten(3).unbind()):
        rate, target = rates[step], wanted[step]
        # what is infinite, times a rate of 0, is no number: who takes no step is put back to what it was
        idle = None if whole[step] else minibatches.active[step].logical_not().nonzero().flatten()
        stay = [] if idle is None else [(parameter, parameter.index_select(0, idle)) for parameter in parameters]
        corrected = corrections.at(minibatches.active[step], parameters) if corrections else []
        below = [inputs, *outputs]
        for at, (bias, weight, output) in enumerate(zip(biases, forward, outputs, strict=True)):
            torch.baddbmm(bias, below[at], weight, out=output)
            if at < last:
                output.relu_()
        # the gradient by the logits: rate * softmax - rate * one-hot
        logits = outputs[-1]
        logits.sub_(logits.amax(dim=2, keepdim=True)).exp_()
        logits.mul_(rate / logits.sum(dim=2, keepdim=True)).sub_(target)
        for at in range(last, -1, -1):
            if at:
                torch.bmm(errors[at], weights[at], out=errors[at - 1])
            weights[at].baddbmm_(backward[at], below[at], alpha=-1)
            biases[at].sub_(errors[at].sum(dim=1, keepdim=True))
            if at:
                errors[at - 1].mul_(below[at].sign_())  # ReLU passes errors on where its output is positive
        for parameter, correction in zip(parameters, corrected, strict=False):
            parameter.sub_(correction)
        for parameter, value in stay:
            parameter[idle] = value


Gradients = Callable[[dict[str, Tensor], Tensor, Tensor, Tensor], dict[str, Tensor]]
"""From parameters ``(c, *shape)``, inputs ``(c, B, *shape)``, targets and rates ``(c, B)`` to one a parameter."""


def stacked_gradients(module: nn.Module) -> Gradients:
    """The gradients of any module through torch.func. Calls use the module as a workspace."""

    def loss(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, rates: Tensor) -> Tensor:
        logits = functional_call(module, parameters, (inputs,))
        return (cross_entropy(logits, targets, reduction="none") * rates).sum()

    return vmap(grad(loss))


def _own_gradients(module: nn.Module) -> Gradients:
    """Those of a copy: functional_call exchanges the parameters for a while, so every worker needs one of its own."""
    return stacked_gradients(copy.deepcopy(module))


def _general_steps(problem: ClientProblem, steps: Steps, gradients: Gradients) -> LocalSteps:
    """The steps of any module; see :data:`LocalSteps`."""

    def take_steps(
        parameters: list[Tensor],
        minibatches: Minibatches,
        corrections: CorrectionTerms | None,
        velocities: list[Tensor] | None,
        buffers: Buffers,
    ) -> None:
        named = dict(zip(problem.layout.names, parameters, strict=True))
        whole = minibatches.active.all(dim=1).tolist()
        for step in minibatches.active.any(dim=1).nonzero().flatten().tolist():  # a step that nobody takes is none
            read, taken = (
                (minibatches.inputs[step], minibatches.targets[step], minibatches.rates[step]),
                minibatches.active[step],
            )
            if steps.clip:
                moves = _clipped_moves(gradients, named, read, steps.clip)
            else:
                moves = list(gradients(named, *read).values())  # gradients times the step size
            if minibatches.noise is not None:
                added = problem.layout.split(minibatches.noise[step])
                moves = [move + noise.view_as(move) for move, noise in zip(moves, added, strict=True)]
            if corrections:  # not in place: parameters that are added up in a model share one gradient
                moves = [
                    move + correction for move, correction in zip(moves, corrections.at(taken, parameters), strict=True)
                ]
            for at, (parameter, move) in enumerate(zip(parameters, moves, strict=True)):
                active = taken.view(-1, *[1] * (parameter.dim() - 1))
                if velocities is not None:  # kept times the step size
                    faster = steps.momentum * velocities[at] + (1 - steps.dampening) * move
                    move = velocities[at].copy_(torch.where(active, faster, velocities[at]))
                # what is infinite, times a rate of 0, is no number, and who takes no step stays as it is
                parameter.sub_(move if whole[step] else torch.where(active, move, torch.zeros_like(move)))

    return take_steps


def _clipped_moves(
    gradients: Gradients, named: dict[str, Tensor], read: tuple[Tensor, Tensor, Tensor], clip: float
) -> list[Tensor]:
    """The gradients of samples, each clipped by itself, times their rates, added up: one tensor a parameter.

    Sample by sample, so that memory holds one gradient a participation, however large batches are.
    """
    moves = [torch.zeros_like(parameter) for parameter in named.values()]
    for inputs, targets, rates in zip(*(tensor.split(1, dim=1) for tensor in read), strict=True):
        own = [*gradients(named, inputs, targets, torch.ones_like(rates)).values()]
        squares = [gradient.flatten(1).to(torch.float64).square().sum(dim=1) for gradient in own]
        lengths = torch.stack(squares).sum(dim=0).sqrt()
        # in float64: a scale for a huge gradient may be too small for its type, and be rounded up
        scales = within(lengths, clip, rates.dtype) * rates[:, 0]
        for move, gradient in zip(moves, own, strict=True):
            one_a_lane = (-1, *[1] * (gradient.dim() - 1))
            part = (gradient.to(scales) * scales.view(one_a_lane)).to(move)
            # an unused place may be infinite
            move += torch.where((rates != 0).view(one_a_lane), part, torch.zeros_like(part))
    return moves


def suitable_stack_size(problem: ClientProblem) -> int:
    """Participations a chunk by default; see :func:`stack_size_of`."""
    return stack_size_of(problem.module, problem.layout.dimension, problem.inputs.device)


def stack_size_of(module: nn.Module, parameters: int, device: torch.device) -> int:
    """Participations a chunk by default: a power of two, from 2 on, by the number of parameters.

    On a CPU stacked weights should stay in a cache, and operations be long enough for two threads not to wait for
    the interpreter: 2.5 MB in float32, and less for convolutions, which are busy with few participations.
    """
    if device.type != "cpu":
        numbers, most = 2**24, 1024  # not measured
    else:
        numbers, most = (640_000, 256) if linear_stack(module) else (160_000, 64)
    return int(min(most, 2 ** max(1, int(log2(numbers / parameters)))))


@dataclass(frozen=True)
class Batched:
    """Chunks of ``stack_size`` participations: over ``workers`` threads on a CPU, one by one on a GPU.

    ``stack_size`` defaults to what is ``suitable``. It shapes every product, so compare bits only under one
    value.
    """

    workers: int
    stack_size: int | None = None
    name: str = "batched"
    gradients_of: Callable[[nn.Module], Gradients] = field(default=_own_gradients, repr=False, compare=False)
    suitable: Callable[[ClientProblem], int] = field(default=suitable_stack_size, repr=False, compare=False)
    _idle: list[Buffers] = field(default_factory=list, init=False, repr=False, compare=False)

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`."""
        single_threaded()
        runs, places = batches.shape[:2]
        stack_size = self.stack_size or self.suitable(problem)
        rows = batches.flatten(0, 1)
        kept = (steps.drift, steps.velocity, steps.noise)
        drift, velocity, noise = (None if t is None else t.flatten(0, 1) for t in kept)
        apart = replace(steps, drift=drift, velocity=velocity, noise=noise)
        firsts = range(0, len(rows), stack_size)
        beside = gcd(stack_size, places)  # so many neighbours in a chunk are of one run, and share what it sent
        updates = vectors.new_empty(len(firsts) * stack_size, problem.layout.dimension)
        result = Outcome(updates, torch.empty_like(updates) if steps.momentum else None)

        def work(first: int) -> None:
            try:
                buffers = self._idle.pop()
            except IndexError:
                buffers = Buffers()
            chunk = slice(first, first + stack_size)
            owners = (
                torch.arange(first, first + stack_size, beside).div_(places, rounding_mode="floor").clamp_(max=runs - 1)
            )
            sent = vectors[owners.to(vectors.device)]
            batches, into = _filled(rows[chunk], stack_size), result[chunk]
            _advance(problem, sent, batches, apart[chunk], into, self.gradients_of, buffers)
            self._idle.append(buffers)

        if vectors.device.type == "cpu" and self.workers > 1 and len(firsts) > 1:
            with ThreadPoolExecutor(self.workers, initializer=single_threaded) as pool:
                list(pool.map(work, firsts))
        else:
            for first in firsts:
                work(first)
        speed = result.velocity
        shape = runs, places, updates.shape[1]
        return Outcome(updates[: len(rows)].view(shape), None if speed is None else speed[: len(rows)].view(shape))


def _filled(rows: Tensor, stack_size: int) -> Tensor:
    """As many rows as a chunk has lanes: those that are added hold -1, so batches among them are empty."""
    surplus = stack_size - len(rows)
    return torch.cat([rows, rows.new_full((surplus, *rows.shape[1:]), -1)]) if surplus else rows


def _advance(
    problem: ClientProblem,
    vectors: Tensor,
    batches: Tensor,
    steps: Steps,
    into: Outcome,
    gradients_of: Callable[[nn.Module], Gradients],
    buffers: Buffers,
) -> None:
    """One chunk: models ``(g, d)``, each sent to c / g neighbours, and batches ``(c, E, B)`` to an outcome ``(c, d)``.

    ``steps`` may have fewer rows, if the last batches are empty.
    """
    split, stack_size = problem.layout.split, len(batches)
    groups = len(vectors), stack_size // len(vectors)
    starts = [start.unsqueeze(1) for start in split(vectors)]
    parameters = []
    for name, start in zip(problem.layout.names, starts, strict=True):
        parameter = buffers.take(f"parameter {name}", vectors, (stack_size, *start.shape[2:]))
        parameter.unflatten(0, groups).copy_(start)
        parameters.append(parameter)
    corrections = velocities = None
    if steps.proximal or steps.drift is not None:
        sent = [start.expand(*groups, *start.shape[2:]).flatten(0, 1) for start in starts]
        corrections = CorrectionTerms(
            steps, sent, None if steps.drift is None else split(_filled(steps.drift, stack_size))
        )
    if steps.momentum:
        at_start = torch.zeros_like(into.updates) if steps.velocity is None else _filled(steps.velocity, stack_size)
        velocities = [rows * steps.size for rows in split(at_start)]
    if linear_stack(problem.module) and velocities is None and not steps.clip and steps.noise is None:
        take_steps: LocalSteps = _linear_steps
    else:
        take_steps = _general_steps(problem, steps, gradients_of(problem.module))
    for minibatches in Minibatches.blocks(problem, batches, steps, buffers):
        take_steps(parameters, minibatches, corrections, velocities, buffers)
    for start, end, update in zip(starts, parameters, split(into.updates), strict=True):
        torch.sub(start, end.unflatten(0, groups), out=update.unflatten(0, groups))
    if into.velocity is not None and velocities is not None:
        for velocity, rows in zip(velocities, split(into.velocity), strict=True):
            torch.div(velocity, steps.size, out=rows)
