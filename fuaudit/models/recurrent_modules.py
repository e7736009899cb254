"""Modules of sequences of tokens. They are torch's, so only what builds a model imports them."""

from __future__ import annotations

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


class LstmStack(nn.Module):
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
