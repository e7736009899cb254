"""DP-SGD at the clients: the gradient of every sample is clipped, and every step has noise.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: "Deep Learning with Differential Privacy" (CCS 2016),
Algorithm 1. In each step a client takes

    w <- w - eta / b (sum over its batch of g_i min(1, C / |g_i|) + sigma C N(0, 1))

What differs from print: each client does so on its own rows, and its noise is its own draw. So the server need not be
trusted; a mean of m clients has noise that is sqrt(m) times larger than where a server adds it. b is the divisor of the
law of batches, or the length of a batch where the law has none; print has Poisson batches and the first. A step is
taken on an empty batch too.

Guarantee: differential privacy of each row, by the account of docs/budgets.md. It keeps no memory, so an unlearner is
as exact as with plain SGD.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import Outcome, Released, RoundContext, State, StateShape, Steps, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DpSgd:
    """SGD that clips the gradient of each sample, and adds the client's own Gaussian noise to every step.

    The noise is rounded to floats: that its last bits tell nothing is assumed.

    Attributes:
        norm: the longest gradient of a sample that counts as it is, above 0.
        noise: the standard deviation of the noise on a sum of gradients, a multiple of the norm, above 0.
    """

    norm: float
    noise: float
    draws: ClassVar[bool] = True
    per_client_state: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not (0 < self.norm < inf and 0 < self.noise < inf and 0 < self.norm * self.noise < inf):
            raise UsageError(f"dpsgd needs a finite norm and noise above 0, not {self.norm} and {self.noise}")

    def init(self, shape: StateShape) -> State:
        """No state."""
        return {}

    def before(self, context: RoundContext, state: State) -> Steps:
        """See :class:`~fuaudit.training.solvers.Solver`."""
        import torch

        taken, columns = context.cohort.steps, context.vectors.shape[-1]
        noise = context.vectors.new_zeros(len(taken), int(taken.max()), columns)
        for place, row in enumerate(noise):
            for step in range(len(row)):
                drawn = context.own(place).normal(f"noise of step {step + 1}", columns)
                row[step] = self.norm * self.noise * torch.from_numpy(drawn).to(noise.device)
        return Steps(context.step_size, clip=self.norm, noise=noise)

    def after(self, outcome: Outcome, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """The updates as they are."""
        return outcome.updates, state

    def releases(self, columns: int) -> Released:
        """The law of each step; the law of batches says the rest of it."""
        return Released("dpsgd", {"noise": self.noise, "norm": self.norm})
