"""Models of sequences of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuaudit.errors import UsageError

if TYPE_CHECKING:
    from torch import nn


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
        from fuaudit.models.recurrent_modules import LstmStack

        if len(shape) != 1:
            raise UsageError(f"an LSTM reads sequences of tokens (length,), not inputs of shape {shape}")
        if min(self.width, self.hidden, self.layers, self.tokens or 1) < 1:
            raise UsageError("width, hidden, layers and tokens of an LSTM must be at least 1")
        return LstmStack(self.tokens or classes, self.width, self.hidden, self.layers, classes)
