"""SparseSecAgg: one secure sum in which each pair of clients agrees by lot on the coordinates that both send.

Ergün, Sami, Güler: "Sparsified Secure Aggregation for Privacy-Preserving Federated Learning" (arXiv 2112.12872), as
"FedREP" compares itself with it (section 6). Of N clients each pair (i, j) draws b_ij(l) for each coordinate l, one
with probability alpha / (N - 1). Client i sends coordinate l where b_ij(l) = 1 for some j, with

    p = 1 - (1 - alpha / (N - 1))^(N - 1) <= alpha,   sent_i(l) = x_i(l) / p,   w <- w - the mean of sent

over all N. So nobody sends a coordinate alone, and the mean is unbiased over the lot. Error feedback is refused in
front of it: what is left of x is (1 - 1 / p) x, which grows from round to round.

What differs from print, and why:

- Pairs have no keys of their own here: the lot of all pairs is drawn together, under a key to which every client of the
  round adds a contribution that was committed to before training (docs/run-format.md, Lots). Masks of values and shares
  of secrets have no effect on the sum, and are left out; the simulator sees all rows.
- Rounding is the client stage ``quantise`` in front of it, before values are divided by p; in print it is after.
- Nobody drops out in a simulation, so print's (1 - theta) is 1. Where rows were rejected, the mean is over those who
  came, and a coordinate that one client alone has left is not opened.
- A client without samples hides nobody. So N counts those who have some, and took a step; the others make no pairs and
  send nothing. The mean is over all the same. Who has none is public.
- A row that is not finite goes into its sums, for behind sums nobody sees it. A coordinate whose sum is not finite is
  not opened, and the clients that sent it are told: one of them at least is Byzantine.
- Where less than two have samples nothing is delivered.

**The smallest group.** A coordinate that one pair alone drew is the sum of two clients. The event ``Summed`` tells how
many clients are in the smallest group of the round, over the coordinates that were opened. At small alpha it is 2
nearly always, whatever N is: that is what its privacy comes to.

Guarantee: no coordinate that the server is given is of one client. A member of a group of two can subtract its own.
It is no robust rule: one client can move the mean to anywhere.

It costs N (N - 1) / 2 draws a coordinate and round: .27 s at 32 clients and 10,000 coordinates, so 27 s at a million.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Literal

from fuaudit.plugins import COORDINATES, MOST_BOUND, VALUES, Delivery, RoundContext, Sent, Summed, Suspected, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SparseSum:
    """A transport: one mean of all, in which each client sends the coordinates that it drew with another one.

    Attributes:
        alpha: about which share of the coordinates a client sends, above 0, at most 1; at most six decimals. The share
            itself is p: of 32 clients .0488 at .05, and .182 at .2.
    """

    alpha: float
    shows: ClassVar[Literal["rows", "sums"]] = "sums"
    draws: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1 or Fraction(str(self.alpha)).denominator > 10**6:
            raise UsageError(f"sparse-sum needs an alpha above 0 and at most 1, of six decimals, not {self.alpha}")

    def of_a_pair(self, clients: int) -> Fraction:
        """The probability with which a pair of so many clients draws a coordinate."""
        return Fraction(str(self.alpha)) / (clients - 1)

    def of_a_client(self, clients: int) -> Fraction:
        """p, the probability with which a client sends a coordinate."""
        return 1 - (1 - self.of_a_pair(clients)) ** (clients - 1)

    def require_places(self, places: int, trained: int) -> None:
        """Raises UsageError where rounds of so many participations with samples deliver nothing, or cannot be drawn."""
        if trained < 2 or self.of_a_pair(trained).denominator > MOST_BOUND:
            told = (
                f"sparse-sum adds up rows of two clients with samples at least, and of 2,000 at most, not of {trained}"
            )
            raise UsageError(told)

    def rows_left(self, places: int, trained: int) -> int:
        """One mean at most."""
        return min(trained // 2, 1)

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """The mean ``(1, c)`` of what is sent of rows ``(n, c)``; nothing where no coordinate is opened."""
        import torch

        came = rows.new_ones(len(rows), dtype=torch.bool) if context.accepted is None else context.accepted
        drawing = torch.ones_like(came)  # who was rejected has drawn before
        drawing[came] = context.cohort.trained
        chosen = self._chosen(drawing.nonzero()[:, 0].tolist(), rows, context).to(rows.device)[came]
        chosen &= chosen.sum(dim=0) >= 2
        own, probability = chosen.sum(dim=1).tolist(), float(self.of_a_client(max(2, int(drawing.sum()))))
        sent = (rows / probability).where(chosen, rows.new_zeros(()))
        mean = (sent.sum(dim=0, keepdim=True, dtype=torch.float64) / max(1, len(sent))).to(rows.dtype)
        if not bool(mean.isfinite().all()):
            broken = ~mean[0].isfinite()
            suspects = context.cohort.clients[(chosen & broken).any(dim=1)]
            context.tell(Suspected(tuple(sorted({*suspects.tolist()})), "not finite"))
            chosen, sent, mean = (one.masked_fill(broken, 0) for one in (chosen, sent, mean))
        group = chosen.sum(dim=0)
        smallest = int(group[group > 0].min()) if bool(group.any()) else 0
        failed = not smallest or not context.enough(1)
        context.tell(Summed((smallest,), 0, failed))
        drew = context.cohort.trained.tolist()
        for client, draws, values in zip(context.cohort.clients.tolist(), drew, own, strict=True):
            context.tell(Sent(client, COORDINATES, draws * ((rows.shape[-1] + 7) // 8)))
            context.tell(Sent(client, VALUES, rows.element_size() * values))
        if failed:
            return Delivery(rows[:0], context.cohort.counted(0), torch.zeros_like(rows))
        return Delivery(mean, context.cohort.counted(1), sent, chosen.any(dim=1))

    def _chosen(self, drawing: list[int], rows: Tensor, context: RoundContext) -> Tensor:
        """Which participation sends which column, bool ``(n, c)`` of all; drawn by each pair of those places."""
        import torch

        count = len(rows) if context.accepted is None else len(context.accepted)
        chosen = torch.zeros(count, rows.shape[-1], dtype=torch.bool)
        for pair in combinations(drawing, 2):
            law = self.of_a_pair(len(drawing))
            drawn = context.shared.integers("pair {} {}".format(*pair), law.denominator, rows.shape[-1])
            chosen[list(pair)] |= torch.from_numpy(drawn < law.numerator)
        return chosen

    def in_the_clear(self) -> SparseSum:
        """Itself: there is no cryptography."""
        return self
