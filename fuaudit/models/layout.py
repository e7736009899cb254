"""Vectors and modules: the model is one vector ``(d,)``; this module alone maps it to tensors of a module.

Initial values follow from numbers u in [0, 1), one for every element, as ``centre + (2 u - 1) * bound``:

| layer | parameters | centre | bound |
|---|---|---|---|
| Linear, Conv2d | weights, biases | 0 | 1 / sqrt(fan_in) |
| LSTMCell, GRUCell, RNNCell | weights, biases | 0 | 1 / sqrt(hidden_size) |
| Embedding | weights | 0 | sqrt(3) |
| GroupNorm, LayerNorm | weights; biases | 1; 0 | 0 |

These are torch's own laws, except that an embedding's normal law is replaced by the uniform one of the same mean
and variance: it needs no function whose last bit differs between libraries.

Policy on batch normalisation: refused, in every form. Running statistics are a memory of rows that no request could
rewind and that averaging does not treat as the paper's update; batch statistics without them make the answer for
one sample depend on the samples beside it, in training (rows that fill up ragged batches too) and in testing.
Federations replace it by group normalisation (Hsieh et al., ICML 2020; Reddi et al., ICLR 2021), and so do the
models here. What draws from torch's global generator, as dropout does, is refused: a run could not be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from fuaudit.errors import PluginError, UsageError, line_of
from fuaudit.models.recurrent_modules import Embedding


class Recipe(Protocol):
    """A registered model: a frozen dataclass that builds a module for a given shape of inputs.

    ``build`` must not depend on random numbers; the values of its parameters are overwritten.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module that maps ``(B, *shape)`` to logits ``(B, classes)``."""
        ...


Law = tuple[float, float]
"""Centre and bound of uniform initial values."""


def _law(layer: nn.Module, name: str) -> Law | None:
    """The initial law of one parameter of a layer; None where none is declared."""
    match layer:
        case nn.Linear() | nn.Conv2d():
            return 0.0, float(layer.weight[0].numel() ** -0.5)
        case nn.RNNCellBase():
            return 0.0, float(layer.hidden_size**-0.5)
        case Embedding():
            return 0.0, 3**0.5
        case nn.GroupNorm() | nn.LayerNorm():
            return float(name == "weight"), 0.0
    return None


def _obstacle(layer: nn.Module) -> str | None:
    """Why a layer cannot be part of a model here, and what to use instead; None if it can."""
    kind = type(layer).__name__
    match layer:
        case nn.modules.batchnorm._BatchNorm():
            return f"{kind} makes samples depend on each other; use GroupNorm or LayerNorm"
        case nn.modules.dropout._DropoutNd():
            return f"{kind} draws from torch's global generator, so a run could not be replayed; leave it out"
        case nn.RNNBase():
            return f"{kind} has no batching rule in torch.func; write the loop over {kind}Cell, as the model lstm does"
        case nn.Embedding() | nn.EmbeddingBag() if not isinstance(layer, Embedding):
            return f"{kind} does not show when an erased token is read; use fuaudit.models.Embedding"
    if buffers := [name for name, buffer in layer._buffers.items() if buffer is not None]:
        return f"{kind} keeps buffers ({', '.join(buffers)}), which are neither averaged nor forgotten"
    for name, parameter in layer.named_parameters(recurse=False):
        if not parameter.requires_grad:
            return f"{kind} has a frozen parameter ({name}), but all are trained and averaged here; leave it out"
        if parameter._backward_hooks:
            return f"{kind} has a hook on a gradient ({name}), which copies of the model lose; leave it out"
    unknown = [name for name, _ in layer.named_parameters(recurse=False) if _law(layer, name) is None]
    return f"no initial law is declared for {kind}, which holds {', '.join(unknown)}" if unknown else None


@dataclass(frozen=True)
class Layout:
    """The parameters of a module in their order: names, shapes, and centres and bounds of their initial values."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    centres: tuple[float, ...]
    bounds: tuple[float, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module, with the laws of the table above.

        Raises:
            UsageError: all layers at once that the model cannot have: batch normalisation and other buffers,
                dropout, layers without a batching rule, parameters that are frozen or without an initial law.
        """
        obstacles = {name or "the model": _obstacle(layer) for name, layer in module.named_modules()}
        problems = [f"{name}: {obstacle}" for name, obstacle in obstacles.items() if obstacle]
        if problems:
            raise UsageError("the model has layers that cannot be used here", "\n  ".join(problems))
        laws = {
            f"{prefix}.{name}" if prefix else name: _law(layer, name)
            for prefix, layer in module.named_modules()
            for name, _ in layer.named_parameters(recurse=False)
        }
        parameters = dict(module.named_parameters())
        found = [law for name in parameters if (law := laws[name])]
        return cls(
            tuple(parameters),
            tuple(tuple(p.shape) for p in parameters.values()),
            tuple(centre for centre, _ in found),
            tuple(bound for _, bound in found),
        )

    @property
    def sizes(self) -> list[int]:
        """Elements of every parameter."""
        return [prod(shape) for shape in self.shapes]

    @property
    def dimension(self) -> int:
        """The length of the vector, d."""
        return sum(self.sizes)

    def split(self, vectors: Tensor) -> list[Tensor]:
        """Views of ``(*s, d)`` as one tensor ``(*s, *shape)`` for every parameter."""
        parts = torch.split(vectors, self.sizes, dim=-1)
        return [part.unflatten(-1, shape or (1,)) for part, shape in zip(parts, self.shapes, strict=True)]

    def join(self, parameters: Sequence[Tensor], leading: int = 0) -> Tensor:
        """The vectors ``(*s, d)`` of parameters ``(*s, *shape)`` with ``leading`` axes in ``s``; a copy."""
        return torch.cat([p.flatten(leading) for p in parameters], dim=-1)

    def initial(self, uniform: NDArray[np.float64], dtype: torch.dtype) -> Tensor:
        """The initial vector ``(*s, d)`` from numbers in [0, 1) of the same shape."""
        centres, bounds = np.repeat(self.centres, self.sizes), np.repeat(self.bounds, self.sizes)
        return torch.from_numpy(centres + (2 * uniform - 1) * bounds).to(dtype)


def require_reading(module: nn.Module, inputs: Tensor) -> None:
    """Tries a new module, on the CPU, on two inputs of zeros like ``inputs (N, *shape)``.

    Raises:
        UsageError: a layer that no model can have (see :meth:`Layout.of`); inputs are integers and the model has no
            embedding to read them; the model draws from torch's global generator.
        PluginError: the model raised.
    """
    Layout.of(module)
    if not inputs.is_floating_point() and not any(isinstance(layer, Embedding) for layer in module.modules()):
        raise UsageError("the inputs are integers (tokens), which this model cannot read", "Use the model lstm.")
    zeros = inputs.new_zeros(2, *inputs.shape[1:])
    if inputs.is_floating_point():
        zeros = zeros.to(next(module.parameters(), zeros).dtype)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        try:
            module(zeros)
        except UsageError:
            raise
        except Exception as error:
            shape, line = tuple(inputs.shape[1:]), line_of(module, error)
            raise PluginError(f"the model raised on inputs of shape {shape}: {error!r}{line}") from error
        if not torch.equal(before, torch.get_rng_state()):
            raise UsageError(
                "the model draws from torch's global generator, so a run could not be replayed",
                "Leave out what draws: dropout, RReLU, fractional pooling, torch.rand.",
            )


_CHANGES = (
    "forward",
    "_call_impl",
    "_compiled_call_impl",
    "_conv_forward",
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
"""What makes one layer compute something else than its class says."""


def linear_stack(module: nn.Module) -> list[nn.Linear] | None:
    """The layers of a module that is Flatten, then Linear layers with ReLU between them; None for all others.

    Such modules have a hand-written training step in the batched engine, which never calls them.
    """
    flatten, *layers = plain_layers(module) or [module]
    linears, activations = layers[::2], layers[1::2]
    if not flattens(flatten) or len(linears) != len(activations) + 1:
        return None
    if any(type(x) is not nn.Linear or x.bias is None for x in linears) or any(
        type(x) is not nn.ReLU for x in activations
    ):
        return None
    return [x for x in linears if isinstance(x, nn.Linear)]


def plain_layers(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a Sequential, each of which computes what its class says; None for all other modules.

    An engine may compute these layers by itself and never call the module. So nothing that changes what they compute
    may pass: no subclass of Sequential, no hook, no method of a layer's own, and no parameters but the weight and the
    bias of Linear and Conv2d, in that order, none of them shared. Of what class a layer is, the caller looks at.
    """
    if type(module) is not nn.Sequential or _has_any_global_hook() or _is_changed(module):
        return None
    layers = list(module)
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    if len({parameter.data_ptr() for parameter in parameters}) < len(parameters):
        return None
    return None if any(_is_changed(layer) or not _has_usual_parameters(layer) for layer in layers) else layers


def flattens(layer: nn.Module) -> bool:
    """Whether a layer makes one row of numbers of each sample."""
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _is_changed(layer: nn.Module) -> bool:
    return any(vars(layer).get(change) for change in _CHANGES)


def _has_usual_parameters(layer: nn.Module) -> bool:
    usual = list[str]()
    if type(layer) in (nn.Linear, nn.Conv2d):
        usual = ["weight"] if layer.bias is None else ["weight", "bias"]
    found = dict(layer.named_parameters())
    hidden = {"weight", "bias"} & vars(layer).keys()  # found before a parameter of that name is
    return [*found] == usual and not hidden and all(type(parameter) is nn.Parameter for parameter in found.values())
