"""Label flip: clients who call their samples by other classes.

Tolpegin, Truex, Gursoy, Liu: "Data Poisoning Attacks Against Federated Learning Systems" (ESORICS 2020): samples of a
source class get the label of a target class. Fang, Cao, Jia, Gong: "Local Model Poisoning Attacks to Byzantine-Robust
Federated Learning" (USENIX Security 2020): label l of L becomes L - l - 1.

    y <- classes - 1 - y                 every sample of the clients, or
    y <- target, where y is source       for each named pair

What differs from print, and why: nothing in the formulas. Print turns the data of its clients wherever it comes from;
here it is dealt first, by its true labels, so that the same clients hold the same samples with the attack and without.
Of an odd number of classes the middle one stays under the first formula, as in print.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LabelFlip:
    """Named clients turn the labels of their training samples: the first class is called the last, and so on.

    Attributes:
        clients: their ids.
        pairs: turn only these, each a class and what it is called instead, as in [[5, 3], [7, 1]], ascending by the
            first; left out, class c of n is called n - 1 - c.
    """

    clients: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    cite: ClassVar[str] = "Tolpegin, Truex, Gursoy and Liu, ESORICS 2020; Fang, Cao, Jia and Gong, USENIX Security 2020"

    def __post_init__(self) -> None:
        turned = [source for source, _ in self.pairs]
        if turned != sorted({*turned}) or min(map(min, self.pairs), default=0) < 0:
            raise UsageError(
                f"label-flip needs pairs of classes, each turned once and in ascending order, not {self.pairs}"
            )

    def turn(self, inputs: Tensor, target: int, classes: int) -> tuple[Tensor, int]:
        """See :class:`~fuaudit.data.adversaries.Adversary`."""
        if not self.pairs:
            return inputs, classes - 1 - target
        if (highest := max(map(max, self.pairs))) >= classes:
            raise UsageError(f"label-flip names class {highest}, but classes are 0 to {classes - 1}")
        return inputs, dict(self.pairs).get(target, target)
