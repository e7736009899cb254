"""The server's own step size: a stage behind the aggregator.

An aggregator leaves updates that already have the clients' steps inside, so a factor of 1 is FedAvg. The factor is
eta_g of SCAFFOLD (Karimireddy et al., ICML 2020), and c |S_t| / (t + beta) is the schedule for which Lemma 6 of the
MimiC paper (arXiv 2306.12212) shows the conditions of its Theorem 2; t counts from 0, as there.

Guarantee: none; it keeps no memory, and knows of a round its number and how many took part.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar, Literal

from fuaudit.errors import UsageError
from fuaudit.training.rounds import RoundContext, State
from fuaudit.training.stages import Stateless

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ServerStep(Stateless):
    """Multiplies every row by a factor.

    ``schedule`` "constant" takes ``size``; "exponential" ``size * decay ** t``; "participation"
    ``size * |S_t| / (t + beta)``.

    Attributes:
        size: the factor, or what the schedule begins with.
        schedule: how the factor depends on the round: not at all ("constant"), or as above.
        decay: what the factor is multiplied by a round, in (0, 1]; for "exponential".
        beta: what is added to the number of the round; for "participation".
    """

    size: float = 1.0
    schedule: Literal["constant", "exponential", "participation"] = "constant"
    decay: float = 1.0
    beta: float = 1.0
    vectorised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.size < inf or not 0 < self.decay <= 1 or not 0 < self.beta < inf:
            raise UsageError("a server step needs finite size and beta above 0, and decay above 0 and at most 1")

    def factor(self, number: int, participants: Tensor) -> Tensor:
        """The factor of round ``number`` (from 1), float64, in the shape of ``participants``."""
        import torch

        constant = self.size * (self.decay ** (number - 1) if self.schedule == "exponential" else 1.0)
        if self.schedule == "participation":
            return participants.to(torch.float64) * (self.size / (number - 1 + self.beta))
        return torch.full_like(participants, constant, dtype=torch.float64)

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        factor = self.factor(context.number, context.cohort.present.sum(dim=-1))
        return updates * factor.to(updates.dtype)[..., None, None], state
