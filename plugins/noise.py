"""Clipping and Gaussian noise of every client's row: what a client sends is limited, whoever sees it.

Abadi and others: "Deep Learning with Differential Privacy" (CCS 2016) for clipping and noise; McMahan, Ramage, Talwar,
Zhang: "Learning Differentially Private Recurrent Language Models" (ICLR 2018) for whole clients instead of samples.

What differs from print: the noise is each client's own draw and is added to its row, before anybody sees it. So the
server need not be trusted, and a mean of m rows has noise that is sqrt(m) times larger than where a server adds it. No
amplification by sampling is claimed: operator, server and auditor know who was drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import Released, RoundContext, State, Stateless, UsageError

if TYPE_CHECKING:
    from torch import Tensor


def clipped(row: Tensor, norm: float) -> Tensor:
    """A row ``(c,)`` in float64, scaled to a norm of at most ``norm``; as it is where it is shorter.

    Squares of huge numbers overflow and those of tiny ones vanish, so the largest number is taken out before. A sum of
    c squares in any order is off by at most c units of rounding, so the row is left shorter by as much.
    """
    import torch

    exact = row.to(torch.float64)
    largest = exact.abs().amax() if len(exact) else exact.sum()
    if not len(exact) or bool(largest == 0):
        return exact
    unit = exact / largest
    length, bound = unit.norm(), norm * (1 - (len(exact) + 8) * 2.0**-52)
    return exact if bool(largest * length <= bound) else unit * (bound / length)


@dataclass(frozen=True)
class Clip(Stateless):
    """A client stage: scales a row to a norm of at most a bound.

    Guarantee: no row is longer, whatever the client computed. It is no privacy by itself.

    Attributes:
        norm: the longest row that is sent as it is, above 0.
    """

    norm: float

    def __post_init__(self) -> None:
        if not 0 < self.norm < inf:
            raise UsageError(f"clip needs a finite norm above 0, not {self.norm}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.ClientStage`."""
        import torch

        # what is rounded to the type of the row is longer by one unit of rounding at most
        rows, bound = updates.clone(), self.norm * (1 - torch.finfo(updates.dtype).eps)
        for place, row in enumerate(updates):
            rows[place] = clipped(row, bound)
        return rows, state


@dataclass(frozen=True)
class GaussianNoise(Stateless):
    """A client stage: clips a row, and adds the client's own Gaussian noise to every number of it.

    Guarantee: differential privacy of whole clients, local, by the account of docs/budgets.md. Stages behind it see no
    more than what it leaves. The noise is rounded to floats: that its last bits tell nothing is assumed.

    Attributes:
        norm: the longest row that is left as it is before noise, above 0.
        noise: the standard deviation, a multiple of the norm, above 0.
    """

    norm: float
    noise: float
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (0 < self.norm < inf and 0 < self.noise < inf and 0 < self.norm * self.noise < inf):
            raise UsageError(f"gaussian-noise needs a finite norm and noise above 0, not {self.norm} and {self.noise}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.ClientStage`."""
        import torch

        rows = updates.clone()
        for place, row in enumerate(updates):
            drawn = torch.from_numpy(context.own(place).normal("noise", len(row))).to(row.device)
            rows[place] = clipped(row, self.norm) + self.norm * self.noise * drawn
        context.tell(self.releases(updates.shape[-1]))
        return rows, state

    def releases(self, columns: int) -> Released:
        """The law of what a client sends."""
        return Released("gaussian", {"noise": self.noise, "norm": self.norm})
