"""Models of sequences of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fuaudit.errors import UsageError


class Embedding(nn.Embedding):
    """An embedding of tokens that shows when an erased sample is read.

    Tokens are integers ``(*s,)`` in [0, num_embeddings); the result is ``(*s, embedding_dim)``. The largest number
    of the tokens' type stands for an erased token: its vector is NaN, so everything computed with it is.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        """See the class. UsageError for real numbers."""
        if tokens.is_floating_point():
            raise UsageError("an embedding reads tokens, which are integers; these inputs are real numbers")
        erased = tokens == torch.iinfo(tokens.dtype).max
        return super().forward(tokens.masked_fill(erased, 0).long()).masked_fill(erased.unsqueeze(-1), torch.nan)


class _Lstm(nn.Module):
    """Layers of LSTM cells over tokens, of which the last output is scored against every class.

    The recurrence is written out: torch's own LSTM has no rule for ``vmap``. Its values are those of ``nn.LSTM``.
    """

    def __init__(self, tokens: int, width: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embedding = Embedding(tokens, width)
        self.cells = nn.ModuleList(nn.LSTMCell(hidden if layer else width, hidden) for layer in range(layers))
        self.scores = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens ``(B, T)`` to logits ``(B, classes)``."""
        sequence = self.embedding(tokens).unbind(1)
        for cell in self.cells:
            sequence = _outputs(cell, torch.stack(sequence))
        return self.scores(sequence[-1])  # type: ignore[no-any-return]


def _outputs(cell: nn.Module, inputs: Tensor) -> tuple[Tensor, ...]:
    """The T outputs ``(B, hidden)`` of a cell along inputs ``(T, B, width)``; it starts from zeros."""
    forced = nn.functional.linear(inputs, cell.weight_ih, cell.bias_ih + cell.bias_hh)  # type: ignore[operator, arg-type]
    recurrent = cell.weight_hh.mT
    hidden = memory = forced.new_zeros(*forced.shape[1:-1], forced.shape[-1] // 4)
    outputs = []
    for moment in forced.unbind(0):
        entry, keep, fresh, show = torch.addmm(moment, hidden, recurrent).chunk(4, dim=-1)  # type: ignore[arg-type]
        memory = torch.sigmoid(keep) * memory + torch.sigmoid(entry) * torch.tanh(fresh)
        hidden = torch.sigmoid(show) * torch.tanh(memory)
        outputs.append(hidden)
    return tuple(outputs)


@dataclass(frozen=True)
class Lstm:
    """Next-token prediction as Caldas et al. (arXiv 1812.01097) and the FATS paper (6.1.2) have it for Shakespeare.

    Tokens are embedded in ``width`` dimensions, pass ``layers`` LSTM layers of ``hidden`` units, and the last output
    is scored against every class. There are as many tokens as classes unless ``tokens`` says otherwise. For the 97
    tokens of :mod:`fuaudit.data.text`: 824,425 parameters.

    Attributes:
        width: dimensions of the embedding.
        hidden: units of a layer.
        layers: how many LSTM layers there are.
        tokens: how many tokens there are; left out, as many as classes.
    """

    width: int = 8
    hidden: int = 256
    layers: int = 2
    tokens: int | None = None

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """See :class:`~fuaudit.models.layout.Recipe`."""
        if len(shape) != 1:
            raise UsageError(f"an LSTM reads sequences of tokens (length,), not inputs of shape {shape}")
        if min(self.width, self.hidden, self.layers, self.tokens or 1) < 1:
            raise UsageError("width, hidden, layers and tokens of an LSTM must be at least 1")
        return _Lstm(self.tokens or classes, self.width, self.hidden, self.layers, classes)
