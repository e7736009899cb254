"""Mimic: Byzantine clients all send the row of one honest client. (MimiC, against dropouts, is another thing.)

Karimireddy, He, Jaggi: "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing" (ICLR 2022).
With an honest client i that is chosen once:

    row_k <- row_i

No rule can tell: each row is one that an honest client sends. Where clients have different data, client i counts for
many, and rules that choose among rows leave out those who differ.

What differs from print, and why: the config names i. Print also chooses it by the direction in which honest rows vary
most, estimated over the first rounds; that direction would be a memory of the size of the model. Where i takes no part
in a round, or was erased, it is the honest client with samples that has the lowest id.

It sees: all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from fuaudit_plugins.byzantine import copied_place

from fuaudit.plugins import RoundContext, State, Stateless, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Mimicry(Stateless):
    """Named clients all send the row of one honest client; they see all rows. It has nothing to do with MimiC.

    Attributes:
        clients: their ids.
        copied: the id of the client whose row they send; where it takes no part, and for "lowest", the honest client
            with the lowest id.
    """

    clients: tuple[int, ...]
    copied: int | Literal["lowest"] = "lowest"
    sees: ClassVar[str] = "all"
    cite: ClassVar[str] = "Karimireddy, He and Jaggi, ICLR 2022"

    def __post_init__(self) -> None:
        if self.copied in self.clients:
            raise UsageError(f"mimic copies an honest client, and client {self.copied} is Byzantine")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.Byzantine`."""
        place = copied_place(self.clients, context.cohort, self.copied)
        return updates if place is None else updates[place].expand(updates.shape), state
