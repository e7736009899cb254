"""Attacks on coordinates: what Byzantine clients propose where all agree on what they send.

Yang, Wang, Li: "FedREP: A Byzantine-Robust, Communication-Efficient and Privacy-Preserving Framework for Federated
Learning", appendix C.2. An honest client proposes k coordinates, mostly those with the largest absolute values. A
Byzantine one proposes

    noAtk    "correct"    what an honest one would
    minAtk   "smallest"   the k with the smallest absolute values
    randAtk  "random"     k that are drawn uniformly, other ones in every round
    sameAtk  "same"       those that an honest client proposes

What is sent on the agreed coordinates is another attack, a stage of its own. In print it changes values alone, so it
stands behind the agreement: in front of it, "correct" would be right for the row that the attack made.

What differs from print, and why: print does not say which client "same" copies; it is one that the config names, or the
one with the lowest id that has samples. Ranks by absolute value give equal ones to the lower coordinate.

It sees: the row of its client and its coordinates; for "same" those that another client proposes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from fuaudit_plugins.byzantine import copied_place

from fuaudit.plugins import RoundContext, State, Stateless, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CoordinateAttack(Stateless):
    """Named clients propose other coordinates than they should in every agreement; their rows stay as they are.

    Each sees its own row and coordinates alone, for "same" also what others propose.

    Attributes:
        clients: their ids.
        proposes: "correct" ones, those with the "smallest" absolute values, "random" ones, or the "same" as an honest
            client.
        copied: the id of that client; where it takes no part, and for "lowest", the one with the lowest id.
    """

    clients: tuple[int, ...]
    proposes: Literal["correct", "smallest", "random", "same"]
    copied: int | Literal["lowest"] = "lowest"
    cite: ClassVar[str] = "Yang, Wang and Li, FedREP, 2023, appendix C.2"

    def __post_init__(self) -> None:
        if self.copied in self.clients:
            raise UsageError(f"coordinate-attack copies an honest client, and client {self.copied} is Byzantine")

    @property
    def sees(self) -> str:
        """See :data:`fuaudit.declared.WORDS`."""
        return "all" if self.proposes == "same" else "own"

    @property
    def abrupt(self) -> bool:
        """See :data:`fuaudit.declared.WORDS`."""
        return self.proposes == "smallest"

    @property
    def draws(self) -> bool:
        """See :data:`fuaudit.declared.WORDS`."""
        return self.proposes == "random"

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """The rows as they are."""
        return updates, state

    def proposals(self, found: list[Tensor], updates: Tensor, context: RoundContext) -> list[Tensor]:
        """What all propose: of its clients as many columns as they would, other ones."""
        made, same = list(found), copied_place(self.clients, context.cohort, self.copied)
        for place in context.cohort.named(self.clients).nonzero()[:, 0].tolist():
            if self.proposes != "same":
                made[place] = self._columns(place, found[place], updates[place], context)
            elif same is not None:
                made[place] = found[same]
        return made

    def _columns(self, place: int, found: Tensor, row: Tensor, context: RoundContext) -> Tensor:
        """The columns of one client, ``(k,)``."""
        import torch

        if self.proposes == "smallest":
            return row.abs().argsort(stable=True)[: len(found)]
        if self.proposes == "random":
            drawn = context.own(place).subset("coordinates", len(row), len(found))
            return torch.from_numpy(drawn).to(found.device)
        return found
