"""Consensus sparsification (ConSpar): all clients send the same coordinates, and each hides which ones it wanted.

Yang, Wang, Li: "FedREP: A Byzantine-Robust, Communication-Efficient and Privacy-Preserving Framework for Federated
Learning", section 3.2. In front of it stands ``error-feedback``, which keeps what is not sent.

**The law of what a client proposes**, in words (``proposed`` is this paragraph). Let T be the k coordinates of its row
with the largest absolute values; of equal ones the lower index comes first. The number r of those that are replaced is
binomial: k trials, each with probability alpha. Of T a uniform subset of k - r stays. A uniform subset of r comes from
all coordinates that did not stay; those of T that were replaced are among them. What stays and what comes are proposed
together, always k coordinates. So the probability of a set depends on T by the size of their overlap alone (equation
18 of the paper), and at alpha = 1 not even by that.

The server takes the union of all proposals, and everybody sends these coordinates: at most m k of d.

What differs from print, and why:

- k is given as a number, where print divides K by the number of clients m. So an erasure changes m and not k, and
  nothing has to divide.
- A client without samples has nothing to propose. Its row, what its memory holds, is sent as those of all others.
- Print lets Byzantine clients propose anything, and says K bounds the union. Here a proposal of more than k
  coordinates, of one twice or of one that there is not is rejected by name, so m k bounds it. Where nobody proposes
  anything, the model stays as it is.

Guarantee: distances of rows do not grow (Proposition 1). It is a contraction of the rows of those who propose: at least
d' / d of the squared norm is sent on average, d' as in Proposition 2. A client without samples proposes nothing, and of
its row maybe nothing is sent. Theorem 2 is about sets that differ in one element, not about people's data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from fuaudit.plugins import (
    COORDINATES,
    COORDINATES_OUTSIDE,
    COORDINATES_TWICE,
    MOST_BOUND,
    TOO_MANY_COORDINATES,
    VALUES,
    Answered,
    Rejected,
    Released,
    RoundContext,
    Sent,
    UsageError,
)

if TYPE_CHECKING:
    from torch import Tensor

BYTES = 4
"""Of a coordinate's number, as the paper counts."""


@dataclass(frozen=True)
class Consensus:
    """An agreement on the coordinates of a round: the union of what clients propose.

    Attributes:
        per_client: k, how many coordinates a client proposes, at least 1; all where there are fewer.
        alpha: the probability with which a top coordinate is replaced by a random one, from 0 to 1; taken as the
            decimal it is written as.
    """

    per_client: int
    alpha: float = 0.0
    draws: ClassVar[bool] = True
    abrupt: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise UsageError(f"consensus needs a per_client of at least 1, not {self.per_client}")
        if not 0 <= self.alpha <= 1:
            raise UsageError(f"consensus needs an alpha from 0 to 1, not {self.alpha}")
        if self.probability.denominator > MOST_BOUND:
            raise UsageError(
                f"consensus cannot draw with an alpha of {self.alpha}", "One of at most nine decimals can be drawn."
            )

    @property
    def probability(self) -> Fraction:
        """alpha, exactly."""
        return Fraction(str(self.alpha))

    def propose(self, updates: Tensor, context: RoundContext) -> list[Tensor]:
        """Of each row of ``(n, c)`` the columns ``(k,)``, from row and draws of its client alone."""
        return [
            proposed(top(row, self.per_client), len(row), self.probability, context.own(place))
            if taken
            else top(row, 0)
            for place, (row, taken) in enumerate(zip(updates, context.cohort.steps.tolist(), strict=True))
        ]

    def agree(self, proposals: list[Tensor], context: RoundContext) -> Tensor:
        """The columns of the rest of the round, ``(c',)``, ascending. Tells sizes, and the law of proposals."""
        import torch

        places = context.columns
        nothing = context.vectors.new_zeros(0, dtype=torch.int64)
        agreed: Tensor = torch.cat([nothing, *self._taken(proposals, places, context)]).unique()
        context.tell(Answered(COORDINATES, BYTES * len(agreed)))
        context.tell(Answered(VALUES, context.vectors.element_size() * len(agreed)))
        if bool(context.cohort.steps.any()):
            context.tell(self.releases(places))
        return agreed

    def releases(self, columns: int) -> Released:
        """The law of proposals over so many columns: docs/budgets.md."""
        law = {"dim": columns, "per_client": min(self.per_client, columns), "alpha": self.alpha}
        return Released("conspar", law)

    def printed_bytes(self, proposing: int, columns: int) -> int:
        """What the paper counts of a participation, (96 + 32 / m) K bits, rounded up.

        m clients proposed k each, and K is m k, or all columns where that would be more than there are.
        """
        union = min(proposing * min(self.per_client, columns), columns)
        return -(-(12 * proposing + 4) * union // max(1, proposing))

    def _taken(self, proposals: list[Tensor], columns: int, context: RoundContext) -> Iterator[Tensor]:
        """The proposals that a client may make, of so many columns; the others are told."""
        for client, one in zip(context.cohort.clients.tolist(), proposals, strict=True):
            context.tell(Sent(client, COORDINATES, BYTES * len(one)))
            if wrong := _wrong(one, self.per_client, columns):
                context.tell(Rejected(client, wrong))
            else:
                yield one


def _wrong(proposal: Tensor, most: int, columns: int) -> str:
    """Why a proposal is not taken; empty where it is."""
    if len(proposal) > most:
        return TOO_MANY_COORDINATES
    if bool(((proposal < 0) | (proposal >= columns)).any()):
        return COORDINATES_OUTSIDE
    ascending = bool((proposal[1:] > proposal[:-1]).all())  # as an honest client's are
    return COORDINATES_TWICE if not ascending and len(proposal.unique()) < len(proposal) else ""


def top(row: Tensor, count: int) -> Tensor:
    """The columns ``(k,)`` of the ``count`` largest absolute values of ``(c,)``, largest first.

    Of equal ones the lower column comes first. All columns where there are fewer. It takes time in
    proportion to c, as no sorting does.
    """
    import torch

    size, count = row.abs(), min(count, len(row))
    least = size.topk(count).values[-1] if count else size.new_tensor(torch.inf)
    above, equal = (size > least).nonzero()[:, 0], (size == least).nonzero()[:, 0]
    found = torch.cat([above, equal[: count - len(above)]])
    return found[size[found].argsort(descending=True, stable=True)]


class _Draws(Protocol):
    """What a proposal needs of a client's draws."""

    def binomial(self, label: str, trials: int, probability: Fraction) -> int: ...
    def subset(self, label: str, size: int, count: int) -> Any: ...


def proposed(largest: Tensor, columns: int, alpha: Fraction, draws: _Draws) -> Tensor:
    """The columns ``(k,)`` that a client proposes whose top ones are ``largest (k,)``; ascending.

    This is the law of ConSpar, see the head of this module. Ranks are drawn: those that stay among the largest, largest
    first, and those that come among all other columns, ascending.
    """
    import torch

    replaced = draws.binomial("replaced", len(largest), alpha)
    if not replaced:
        return largest.sort().values
    stay = torch.from_numpy(draws.subset("stay", len(largest), len(largest) - replaced)).to(largest.device)
    other = torch.ones(columns, dtype=torch.bool, device=largest.device)
    other[largest[stay]] = False
    come = torch.from_numpy(draws.subset("come", columns - len(stay), replaced)).to(largest.device)
    return torch.cat([largest[stay], other.nonzero()[:, 0][come]]).sort().values
