"""The batched engine with the convolutions of several participations in one call: for small ones on a CPU.

A small convolution leaves most of a processor's width unused. In one call with as many groups as participations, the
channels of all of them lie side by side in a pixel, and fill it. Torch.func makes such calls too, with the channels of
a pixel far apart, which costs more than it gains.

The engine takes models whose layers stand in a line: Conv2d, ReLU and MaxPool2d, then Flatten, then Linear and ReLU. It
computes these layers by itself and never calls the model, so it refuses every other one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy, max_pool2d, relu

from fuaudit.errors import UsageError
from fuaudit.models.layout import flattens, plain_layers
from fuaudit.training.engines.batched import Batched, Gradients
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.solvers import Outcome, Steps

FOUR_UP_TO = 100_000
"""Parameters of a model of which four participations go into a call; of larger ones two."""

NONE_BEYOND = 500_000
"""Parameters of a model that is faster one by one (docs/results/engines.md)."""


def is_faster(module: nn.Module, dtype: torch.dtype) -> bool:
    """Whether this engine is faster on a CPU than participations one by one.

    Not in float64, for which torch has no such call and takes groups one after the other.
    """
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return dtype == torch.float32 and parameters <= NONE_BEYOND and unsuited(module) is None


def unsuited(module: nn.Module) -> str | None:
    """Why the engine cannot compute a module, in words; None where it can."""
    if type(module) is not nn.Sequential:
        return f"it is a {type(module).__name__}, not a Sequential"
    layers = list(module)
    flat = next((at for at, layer in enumerate(layers) if flattens(layer)), len(layers))
    for at, layer in enumerate(layers):
        known = _is_of_images(layer) if at < flat else at == flat or type(layer) in (nn.Linear, nn.ReLU)
        if not known:
            return f"layer {at} is {str(layer).splitlines()[0]}"
    if flat == len(layers):
        return "it has no Flatten()"
    if not any(type(layer) is nn.Conv2d for layer in layers):
        return "it has no Conv2d"
    if plain_layers(module) is None:
        return "a layer of it has a hook, or a method or parameters that are not of its class, or shares parameters"
    return None


def _is_of_images(layer: nn.Module) -> bool:
    """Whether a layer of images is one that is computed.

    Not with holes, nor with borders of more than half of a window: in such a call torch can read beyond the images,
    and write beyond them behind a pooling.
    """
    if type(layer) is nn.Conv2d:
        if not isinstance(layer.padding, str):
            if not isinstance(layer.padding, tuple) or len(layer.padding) != 2:
                return False
            if any(2 * wide > size for wide, size in zip(layer.padding, layer.weight.shape[2:], strict=True)):
                return False
        return layer.groups == 1 and layer.padding_mode == "zeros" and layer.dilation == (1, 1)
    if type(layer) is nn.MaxPool2d:
        return layer.dilation in (1, (1, 1)) and not layer.return_indices
    return type(layer) is nn.ReLU


def require_suited(module: nn.Module) -> None:
    """Raises UsageError, with the reason, where the engine cannot compute a module."""
    if reason := unsuited(module):
        raise UsageError(
            f"the engine grouped cannot compute this model: {reason}",
            "It takes a Sequential of Conv2d (one group, no dilation, borders of zeros of half a window at most), ReLU "
            'and MaxPool2d, then Flatten, then Linear and ReLU. Take another engine, such as engine = "threads".',
        )


def grouped_gradients(module: nn.Module) -> Gradients:
    """The gradients of a model of convolutions in a line, which is never called. UsageError for another model."""
    require_suited(module)
    # one ReLU may stand in many places, and named_children() would name it once
    layers = {name: layer for name, layer in module.named_modules(remove_duplicate=False) if name}

    def gradients(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, rates: Tensor) -> dict[str, Tensor]:
        own = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            logits = _logits(layers, own, inputs)
            losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            # one sum over all participations: nothing in it knows two of them, so each has its own gradient
            found = torch.autograd.grad((losses.view_as(rates) * rates).sum(), list(own.values()))
        return dict(zip(own, found, strict=True))

    return gradients


def _logits(layers: dict[str, nn.Module], parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """``(c, B, classes)`` from inputs ``(c, B, channels, h, w)`` and parameters ``(c, *shape)``.

    Images are ``(B, c * channels, h, w)`` on the way, numbers ``(c, B, features)``.
    """
    count, size = inputs.shape[:2]
    flowing = _side_by_side(inputs.transpose(0, 1).flatten(1, 2))
    for name, layer in layers.items():
        weight, bias = (parameters.get(f"{name}.{part}") for part in ("weight", "bias"))
        match layer, weight:
            case nn.Conv2d(), Tensor():
                kernels, shifts = _side_by_side(weight.flatten(0, 1)), None if bias is None else bias.flatten()
                flowing = conv2d(flowing, kernels, shifts, layer.stride, layer.padding, groups=count)
            case nn.MaxPool2d(), None:
                window = layer.kernel_size, layer.stride, layer.padding
                flowing = max_pool2d(flowing, *window, ceil_mode=layer.ceil_mode)
            case nn.ReLU(), None:
                flowing = relu(flowing)
            case nn.Flatten(), None:
                flowing = flowing.reshape(size, count, -1).transpose(0, 1)
            case nn.Linear(), Tensor():
                across = weight.mT
                flowing = flowing @ across if bias is None else torch.baddbmm(bias.unsqueeze(1), flowing, across)
            case _:
                raise AssertionError(f"nobody computes {layer}")
    return flowing


def _side_by_side(images: Tensor) -> Tensor:
    """Images with the channels of a pixel side by side in memory."""
    return images.contiguous(memory_format=torch.channels_last)


def _stack_size(problem: ClientProblem) -> int:
    return 4 if problem.layout.dimension <= FOUR_UP_TO else 2


@dataclass(frozen=True)
class Grouped:
    """As the batched engine, in chunks of four participations, or of two of a model over :data:`FOUR_UP_TO`.

    ``stack_size`` sets the length of a chunk. It shapes every call, so compare bits only under one value.
    """

    workers: int
    stack_size: int | None = None
    name: str = "grouped"

    @cached_property
    def _stacked(self) -> Batched:
        """With the memory that its workers keep from round to round."""
        return Batched(self.workers, self.stack_size, gradients_of=grouped_gradients, suitable=_stack_size)

    def advance(self, problem: ClientProblem, vectors: Tensor, batches: Tensor, steps: Steps) -> Outcome:
        """See :class:`~fuaudit.training.engines.protocol.Engine`. UsageError for a model that it cannot compute."""
        require_suited(problem.module)
        taking = (batches >= 0).flatten(2).any(dim=2)
        if steps.noise is not None or bool(taking.all()):
            return self._stacked.advance(problem, vectors, batches, steps)
        # who takes no step would be computed as long as the others
        runs, places = taking.nonzero(as_tuple=True)
        result = _unmoved(vectors, batches, steps)
        if len(runs):
            some = replace(steps, drift=_some(steps.drift, taking), velocity=_some(steps.velocity, taking))
            found = self._stacked.advance(problem, vectors[runs], batches[taking].unsqueeze(1), some)
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
