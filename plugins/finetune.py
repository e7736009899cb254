"""Continued training (often "CF", for catastrophic forgetting): the simplest approximate unlearner.

Train the final model for a few more rounds on the retained clients and hope that the rest fades. Named as a
baseline in most papers of the field; there is no original paper. Guarantee: empirical only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import Context, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Finetune:
    """``rounds`` further rounds of the run's own learning on the retained clients.

    Attributes:
        rounds: how many further rounds the retained clients train, at least 1.
    """

    rounds: int = 3
    needs: ClassVar[frozenset[str]] = frozenset({"model"})
    participants: ClassVar[frozenset[str]] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "empirical only"
    cite: ClassVar[str] = "a baseline of the field, without an original paper"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise UsageError(f"rounds must be at least 1, not {self.rounds}")

    def edit(self, context: Context) -> Tensor:
        """See :class:`~fuaudit.unlearning.protocol.Editor`."""
        return context.train(context.model, self.rounds)
