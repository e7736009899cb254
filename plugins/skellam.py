"""Skellam noise on whole numbers: what a client sends is limited, and its noise is one that sums keep.

Agarwal, Kairouz, Liu: "The Skellam Mechanism for Differentially Private Federated Learning" (NeurIPS 2021). A client

1. clips its row to a norm,
2. divides it by a step, a power of two, and rounds every number up or down by lot, with the probability that keeps its
   mean. Where the squares of the row then sum up to more than a limit it rounds anew, so that rows near the limit lose
   a little of it on average,
3. adds its share of noise: to every number the difference of two Poisson numbers.

Order matters. Rounding makes rows longer, so what one client can change is the limit of step 2, and not the norm. The
noise is drawn as whole numbers, so nothing rests on the last bits of floats. A sum of such noise is Skellam noise
again: behind ``secure-sum`` the noise on what is opened is that of all shares in it. A sum of discrete Gaussians is no
discrete Gaussian.

What differs from print, and why:

- The step follows from ``bits``: it is the smallest with which a share leaves its field with a chance of at most
  2**-64 in a round. In print sums are taken modulo the field, and what overflows is a wrong sum. Here a client whose
  share does not fit stops, and no share is cut. docs/budgets.md counts the chance.
- Print rotates rows by a random Hadamard matrix in front of step 2, so that they need fewer bits. Here none is needed:
  the field is wide enough for all of the norm in one number.

Guarantee: differential privacy of whole clients, by the account of docs/budgets.md. Stages behind it see no more than
what it leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from fuaudit_plugins.noise import clipped
from fuaudit_plugins.quantise import rounded

from fuaudit.plugins import Fitting, Released, RoundContext, Sent, State, Stateless, UsageError, fitting

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SkellamNoise(Stateless):
    """A client stage: clips a row, rounds it to whole numbers of a step, and adds the client's own Skellam noise.

    Attributes:
        norm: the longest row that is left as it is before rounding, from 1e-30 to 1e30.
        noise: the standard deviation of a client's share, a multiple of the longest row after rounding, from
            1e-6 to 1e6; taken as the decimal it is written as.
        bits: of a number that is sent, from 2 to 18.
    """

    norm: float
    noise: float
    bits: int = 16
    draws: ClassVar[bool] = True
    abrupt: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (1e-30 <= self.norm <= 1e30 and 1e-6 <= self.noise <= 1e6 and 2 <= self.bits <= 18):
            raise UsageError(
                "skellam-noise needs a norm from 1e-30 to 1e30, noise from 1e-6 to 1e6, and bits from 2 to 18, not "
                f"{self.norm}, {self.noise} and {self.bits}"
            )

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.ClientStage`."""
        import torch

        columns = updates.shape[-1]
        if not columns:
            return updates.clone(), state
        fit, rows = self._fitting(columns), updates.clone()
        for place, client in enumerate(context.cohort.clients.tolist()):
            whole = self._rounded(clipped(updates[place], self.norm) / fit.step, fit.law.squares, context, place)
            drawn = torch.from_numpy(context.own(place).skellam("noise", fit.law.variance, columns))
            rows[place] = in_field(whole + drawn.to(whole.device), fit.largest, client) * fit.step
            context.tell(Sent(client, "update", (columns * self.bits + 7) // 8))
        context.tell(self.releases(columns))
        return rows, state

    def _rounded(self, row: Tensor, squares: int, context: RoundContext, place: int) -> Tensor:
        """Whole numbers, float64 ``(c,)``, next to those of a row, whose squares sum up to no more."""
        import torch

        for attempt in count():
            share = torch.from_numpy(context.own(place).uniform(f"rounding {attempt}", len(row)))
            whole: Tensor = rounded(row, share.to(row.device))
            # squares are whole numbers far below 2**53, so their sum is exact; NaN, of an erased row, stays
            if not bool(whole.square().sum() > squares):
                break
        return whole

    def step_of(self, columns: int) -> float:
        """The step of rows of so many columns."""
        return self._fitting(columns).step

    def _fitting(self, columns: int) -> Fitting:
        return fitting(self.norm, self.bits, columns, Fraction(str(self.noise)))

    def releases(self, columns: int) -> Released:
        """The law of what a client sends: whole numbers with noise, so many of them, below a limit without it."""
        law = self._fitting(columns).law
        return Released("skellam", {"noise": self.noise, "squares": law.squares, "dim": columns, "norm": self.norm})


def in_field(whole: Tensor, largest: int, client: int) -> Tensor:
    """Whole numbers as they are.

    Raises:
        UsageError: one of them does not fit into its field. To cut it would make the sum of a buffer a wrong one.
    """
    if bool((whole.abs() > largest).any()):
        raise UsageError(
            f"a share of client {client} does not fit into its field: a number is beyond {largest:,}",
            "It happens with a chance below 2**-64 a round. Take more bits, and train anew.",
        )
    return whole
