"""example-name: an unlearner that edits models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import Context, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ExampleEditor:
    """Pulls the final model towards the initial one. Only the server takes part.

    Attributes:
        share: how far it is pulled, in [0, 1]; at 1 the initial model is left.
    """

    share: float = 0.5
    needs: ClassVar[frozenset[str]] = frozenset({"model", "round models"})
    participants: ClassVar[frozenset[str]] = frozenset({"server"})
    guarantee: ClassVar[str] = "empirical only"
    cite: ClassVar[str] = "no paper yet"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UsageError(f"share must be in [0, 1], not {self.share}")

    def edit(self, context: Context) -> Tensor:
        """The new model ``(d,)``."""
        return context.model + self.share * (context.round_models[0] - context.model)
