"""Bit-flip: Byzantine clients send the opposite of what they should.

Yang, Wang, Li: "FedREP: A Byzantine-Robust, Communication-Efficient and Privacy-Preserving Framework for Federated
Learning" (section 5), as Karimireddy, He, Jaggi: "Learning from History for Byzantine Robust Optimization" (ICML 2021):

    row_k <- -row_k

Its place among the client stages says which row that is. In front of ``error-feedback`` it is the update: u_k then
remembers opposite updates. Behind it, it is g_k = u_k + update, and u_k stays that of an honest client. Behind
``consensus`` it is the values alone, and the coordinates are the right ones.

What differs from print, and why: print does not say where. Two other attacks have this name elsewhere: the opposite of
the honest mean is ``ipm`` with a magnitude of 1, and steps up each gradient are no stage.

It sees: the row of its client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import RoundContext, State, Stateless

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BitFlip(Stateless):
    """Named clients send the opposite of their row; its place in the chain says of which. Each sees its own row alone.

    Attributes:
        clients: their ids.
    """

    clients: tuple[int, ...]
    sees: ClassVar[str] = "own"
    cite: ClassVar[str] = "Karimireddy, He and Jaggi, ICML 2021; Yang, Wang and Li, FedREP, 2023"

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.Byzantine`."""
        return -updates, state
