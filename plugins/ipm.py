"""Inner product manipulation (IPM, "Fall of Empires"): Byzantine clients send the opposite of the honest mean.

Xie, Koyejo, Gupta: "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation" (UAI 2019). With
the honest rows x_1, ..., x_g:

    row_k <- -magnitude * (x_1 + ... + x_g) / g

A rule fails where the inner product of its row and the honest mean is negative. A small magnitude stays near the
honest rows, so it is for rules that choose rows, as Krum; the mean itself needs one above g / m of m Byzantine clients.

What differs from print, and why: nothing. The default magnitude is that of Yang, Wang, Li ("FedREP", section 5), where
the attack is called FoE. A library's factor (1 - tau) is a magnitude of tau - 1.

It sees: all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import RoundContext, State, Stateless, UsageError, mean

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class InnerProductManipulation(Stateless):
    """Named clients all send the opposite of the mean of the honest rows, scaled. They see all rows.

    Attributes:
        clients: their ids.
        magnitude: what it is scaled by, above 0.
    """

    clients: tuple[int, ...]
    magnitude: float = 0.5
    sees: ClassVar[str] = "all"
    cite: ClassVar[str] = "Xie, Koyejo and Gupta, UAI 2019"

    def __post_init__(self) -> None:
        if not 0 < self.magnitude < inf:
            raise UsageError(f"ipm needs a finite magnitude above 0, not {self.magnitude}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.Byzantine`."""
        honest = updates[~context.cohort.named(self.clients)]
        if not len(honest):
            return updates, state
        return (-self.magnitude * mean(honest)).expand(updates.shape), state
