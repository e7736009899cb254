"""A Little Is Enough (ALIE): Byzantine clients send the mean, moved by as much as nobody notices.

Baruch, Baruch, Goldberg: "A Little Is Enough: Circumventing Defenses For Distributed Learning" (NeurIPS 2019),
the attack that prevents convergence. Of n clients in a round m are Byzantine. To be a majority they need s honest ones
that look no better:

    s = floor(n / 2 + 1) - m,   z = Phi^-1((n - m - s) / (n - m)),   row_k <- mu - z sigma

with mu and sigma the mean and the standard deviation of each coordinate, and Phi the normal distribution.

What differs from print, and why:

- In print Byzantine clients know no row but what they would have sent themselves, and take mu and sigma of these:
  ``sees = "theirs"``. Yang, Wang, Li ("FedREP", section 5), and libraries, let them know all: mu and sigma are those of
  the honest rows, and that is the default. One client that sees only its own row sends it: its sigma is 0.
- Where z <= 0 the printed row would stand among the better half of the honest ones, and help. That is so if the honest
  clients have a majority without looking: m = 1 of n = 32 has z = -0.04. Then z is 0, and the mean is sent.
- Where m is a majority by itself the printed z is infinite, or none. Then s is 1.
- sigma is divided by the number of rows, as in the authors' code; libraries divide by one less.

It sees: all rows, or those of its clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar, Literal

from fuaudit.plugins import RoundContext, State, Stateless, UsageError, mean

if TYPE_CHECKING:
    from torch import Tensor


def printed_z(rows: int, byzantine: int) -> float:
    """The printed z, at least 0, of n rows of which m are Byzantine."""
    honest, supporters = rows - byzantine, max(1, rows // 2 + 1 - byzantine)
    return NormalDist().inv_cdf((honest - supporters) / honest) if 2 * supporters < honest else 0.0


@dataclass(frozen=True)
class ALittleIsEnough(Stateless):
    """Named clients all send the mean of what they see, less z standard deviations of each coordinate.

    Attributes:
        clients: their ids.
        z: how many standard deviations; "printed" is the paper's, of how many rows the round has, at least 0.
        sees: whose rows mean and deviation are of: "all" are those of the honest clients, as in the FedREP paper;
            "theirs" are those of the named clients, as in the attack's own.
    """

    clients: tuple[int, ...]
    z: float | Literal["printed"] = "printed"
    sees: Literal["all", "theirs"] = "all"
    cite: ClassVar[str] = "Baruch, Baruch and Goldberg, NeurIPS 2019"

    def __post_init__(self) -> None:
        if self.z != "printed" and not isfinite(self.z):
            raise UsageError(f'alie needs a finite z, or "printed", not {self.z}')

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.Byzantine`."""
        named = context.cohort.named(self.clients)
        seen = updates[~named if self.sees == "all" else named].double()  # no square of a float32 overflows there
        if not len(seen) or not bool(named.any()):
            return updates, state
        centre = mean(seen)
        deviation = mean((seen - centre).square_()).sqrt()
        z = printed_z(len(updates), int(named.sum())) if self.z == "printed" else self.z
        return (centre - z * deviation).to(updates.dtype).expand(updates.shape), state
