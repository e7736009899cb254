"""Quantise: updates as whole numbers of a public step, by stochastic rounding.

Every coordinate is clipped to [-clip, clip] and rounded to a neighbour among 2**bits - 1 evenly spaced values, up with
the probability that keeps its mean (Alistarh et al., "QSGD", NeurIPS 2017). Their distance is a power of two. So what
is sent is a whole number in the scale of floats too, and sums in float64 are sums of whole numbers: exact, and the same
in any order.

What differs from print, and why: print scales each row by its own norm, and sends it. Sums need one scale for all, so
the clip is public, and numbers beyond it are cut: the mean that is kept is that of the clipped row. Print codes numbers
in words of several lengths. Here all have ``bits`` bits, as the fields of a cryptographic sum have.

Guarantee: none for privacy. The mean of what is sent is the clipped update; the rounding is the client's own draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, ldexp
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import RoundContext, Sent, State, Stateless, UsageError

if TYPE_CHECKING:
    from torch import Tensor


FARTHEST = 1e30
"""Clips, and steps of any number of bits, are numbers that float32 holds."""


def rounded(values: Tensor, shares: Tensor) -> Tensor:
    """Neighbours among the whole numbers, float64: up where a share in [0, 1) is not below what is missing to it.

    The sum of value and share would be rounded itself, so that a whole number could go up.
    """
    import torch

    below = torch.floor(values)
    return below + (shares >= 1 - (values - below))


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
        if not 1 / FARTHEST <= self.clip <= FARTHEST or not 2 <= self.bits <= 24:
            raise UsageError(
                f"quantise needs a clip from 1e-30 to 1e30, and bits from 2 to 24, not {self.clip} and {self.bits}"
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
        """See :class:`~fuaudit.training.contracts.ClientStage`."""
        import torch

        columns = updates.shape[-1]
        for client in context.cohort.clients.tolist():
            context.tell(Sent(client, "update", (columns * self.bits + 7) // 8))
        shares = [torch.from_numpy(context.own(row).uniform("rounding", columns)) for row in range(len(updates))]
        scaled = updates.clamp(-self.clip, self.clip).to(torch.float64) / self.step
        whole = rounded(scaled, torch.stack(shares).to(updates.device)).clamp(-self._most, self._most)
        return (whole * self.step).to(updates.dtype), state
