"""Quantise: updates as whole numbers of a public step, by stochastic rounding.

Every coordinate is clipped to [-clip, clip] and rounded to a neighbour among 2**bits - 1 evenly spaced values, up with
the probability that keeps its mean (Alistarh et al., "QSGD", NeurIPS 2017, with one scale that everybody knows). Their
distance is a power of two. So what is sent is a whole number in the scale of floats too, and sums in float64 are sums
of whole numbers: exact, and the same in any order.

Guarantee: none for privacy. The mean of what is sent is the clipped update; the rounding is the client's own draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, inf, ldexp
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import RoundContext, Sent, State, Stateless, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Quantise(Stateless):
    """A client stage: clips every coordinate, and rounds it to a multiple of a step.

    Attributes:
        clip: the largest coordinate that is sent as it is, above 0.
        bits: of a coordinate, from 2 to 24.
    """

    clip: float = 1.0
    bits: int = 12
    draws: ClassVar[bool] = True
    abrupt: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.clip < inf or not 2 <= self.bits <= 24:
            raise UsageError(
                f"quantise needs a finite clip above 0, and bits from 2 to 24, not {self.clip} and {self.bits}"
            )

    @property
    def step(self) -> float:
        """The distance of neighbours: the least power of two with which the whole numbers reach the clip."""
        share, exponent = frexp(self.clip / self._most)
        return ldexp(1.0, exponent - (share == 0.5))

    def step_of(self, columns: int) -> float:
        """The step of rows of so many columns: the same for all."""
        return self.step

    @property
    def _most(self) -> int:
        """The largest whole number that is sent."""
        return (1 << self.bits - 1) - 1

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.exchange.ClientStage`."""
        import torch

        columns = updates.shape[-1]
        for client in context.cohort.clients.tolist():
            context.tell(Sent(client, "update", (columns * self.bits + 7) // 8))
        shares = [torch.from_numpy(context.own(row).uniform("rounding", columns)) for row in range(len(updates))]
        scaled = updates.clamp(-self.clip, self.clip).to(torch.float64) / self.step
        whole = torch.floor(scaled + torch.stack(shares).to(updates.device)).clamp(-self._most, self._most)
        return (whole * self.step).to(updates.dtype), state
