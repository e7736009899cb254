"""The batched engine with the convolutions of several participations in one call: for small ones on a CPU.

A small convolution leaves most of a processor's width unused. In one call with as many groups as participations, the
channels of all of them lie side by side in a pixel, and fill it. Torch.func makes such calls too, with the channels of
a pixel far apart, which costs more than it gains. It is for models of :func:`~fuaudit.models.layout.convolution_stack`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy, max_pool2d, relu

from fuaudit.errors import UsageError
from fuaudit.models.layout import convolution_stack
from fuaudit.training.engines.batched import Batched, Gradients
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.solvers import Outcome, Steps

SMALL = 100_000
"""Parameters of a model of which four participations go into a call; of larger ones two."""

LARGE = 500_000
"""Parameters of a model that is faster one by one (docs/results/engines.md)."""


def gains(module: nn.Module, dtype: torch.dtype) -> bool:
    """Whether this engine is faster on a CPU than participations one by one.

    Not in float64, for which torch has no such call and takes groups one after the other.
    """
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return dtype == torch.float32 and parameters <= LARGE and convolution_stack(module) is not None


def layers_in_line(module: nn.Module) -> list[nn.Module]:
    """The layers of a model of convolutions in a line. UsageError for another model."""
    layers = convolution_stack(module)
    if layers is None:
        raise UsageError(
            "the engine grouped does not know this model: it wants a Sequential of Conv2d, ReLU and MaxPool2d, then "
            "Flatten, then Linear and ReLU",
            'Take another engine, such as engine = "threads".',
        )
    return layers


def grouped_gradients(module: nn.Module) -> Gradients:
    """The gradients of a model of convolutions in a line, which is never called. UsageError for another model."""
    layers = layers_in_line(module)

    def gradients(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, rates: Tensor) -> dict[str, Tensor]:
        own = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            logits = _logits(layers, list(own.values()), inputs)
            losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            # one sum over all participations: nothing in it knows two of them, so each has its own gradient
            found = torch.autograd.grad((losses.view_as(rates) * rates).sum(), list(own.values()))
        return dict(zip(own, found, strict=True))

    return gradients


def _logits(layers: list[nn.Module], parameters: list[Tensor], inputs: Tensor) -> Tensor:
    """``(c, B, classes)`` from inputs ``(c, B, channels, h, w)`` and parameters ``(c, *shape)`` in the model's order.

    Images are ``(B, c * channels, h, w)`` on the way, numbers ``(c, B, features)``.
    """
    count, size = inputs.shape[:2]
    remaining = iter(parameters)
    flowing = _side_by_side(inputs.transpose(0, 1).flatten(1, 2))
    for layer in layers:
        match layer:
            case nn.Conv2d():
                weight = _side_by_side(next(remaining).flatten(0, 1))
                bias = None if layer.bias is None else next(remaining).flatten()
                flowing = conv2d(flowing, weight, bias, layer.stride, layer.padding, layer.dilation, groups=count)
            case nn.MaxPool2d():
                window = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode
                flowing = max_pool2d(flowing, *window)
            case nn.ReLU():
                flowing = relu(flowing)
            case nn.Flatten():
                flowing = flowing.reshape(size, count, -1).transpose(0, 1)
            case nn.Linear():
                weight = next(remaining).mT
                bias = None if layer.bias is None else next(remaining).unsqueeze(1)
                flowing = torch.bmm(flowing, weight) if bias is None else torch.baddbmm(bias, flowing, weight)
    return flowing


def _side_by_side(images: Tensor) -> Tensor:
    """Images with the channels of a pixel side by side in memory."""
    return images.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Grouped:
    """As the batched engine, in chunks of four participations, or of two of models of over :data:`SMALL` parameters.

    ``stack_size`` is another length. It shapes every call, so compare bits only under one value.
    """

    workers: int
    stack_size: int | None = None
    name: str = "grouped"
    # with the memory that they keep from round to round
    _makers: dict[int, Batched] = field(default_factory=dict, init=False, repr=False, compare=False)

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`. UsageError for a model that is not of its kind."""
        layers_in_line(problem.module)
        stack_size = self.stack_size or (4 if problem.layout.dimension <= SMALL else 2)
        maker = self._makers.setdefault(stack_size, Batched(self.workers, stack_size, gradients_of=grouped_gradients))
        taking = (batches >= 0).flatten(2).any(dim=2)
        if steps.noise is not None or bool(taking.all()):
            return maker.advance(problem, vectors, batches, steps)
        # who takes no step would be computed as long as the others
        runs, places = taking.nonzero(as_tuple=True)
        result = _unmoved(vectors, batches, steps)
        if len(runs):
            some = replace(steps, drift=_some(steps.drift, taking), velocity=_some(steps.velocity, taking))
            found = maker.advance(problem, vectors[runs], batches[taking].unsqueeze(1), some)
            result.updates[runs, places] = found.updates[:, 0]
            if result.velocity is not None and found.velocity is not None:
                result.velocity[runs, places] = found.velocity[:, 0]
        return result


def _some(rows: Tensor | None, taking: Tensor) -> Tensor | None:
    """The rows ``(m, 1, d)`` of those who take steps, of ``(n, K, d)``."""
    return None if rows is None else rows[taking].unsqueeze(1)


def _unmoved(vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
    """What a round of empty batches gives."""
    updates = (vectors - vectors).unsqueeze(1).repeat(1, batches.shape[1], 1)  # not zeros: a model may be NaN
    if not steps.momentum:
        return Outcome(updates)
    return Outcome(updates, torch.zeros_like(updates) if steps.velocity is None else steps.velocity.clone())
