"""A diagnosis: in how many elements the top sets of two histories differ. It is measured, and it is no budget.

An account holds for all pairs of histories whose sets differ in at most h elements. Two histories that were executed
are one pair; another sample, another draw or one more round may differ in more. So nothing here has an epsilon.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fuaudit.errors import UsageError

MEANING = (
    "a diagnosis of two histories that were executed, and no guarantee: other data and other draws may differ in more, "
    "so no figure of privacy follows from it. It can refute an assumed number of differing elements, and never show one"
)


@dataclass(frozen=True)
class Diagnosis:
    """In how many elements two top sets of one client differ, in each round that it took part in.

    Args:
        assumed: the number that an account assumes.
    """

    differing: tuple[int, ...]
    assumed: int

    @property
    def is_refuted(self) -> bool:
        """Whether some round differs in more than an account assumes."""
        return max(self.differing) > self.assumed

    def as_json(self) -> dict[str, Any]:
        """Counts and a sentence."""
        beyond = [number for number, count in enumerate(self.differing, 1) if count > self.assumed]
        return {
            "differing": list(self.differing), "largest": max(self.differing), "assumed": self.assumed,
            "rounds_beyond": len(beyond), "first_beyond": beyond[0] if beyond else None,
            "refuted": self.is_refuted, "meaning": MEANING,
        }  # fmt: skip


def diagnosis(one: Sequence[Collection[int]], other: Sequence[Collection[int]], assumed: int) -> Diagnosis:
    """Of the top sets of a client in two histories, round by round.

    Raises:
        UsageError: they have no round, or other rounds or sizes than each other, or nothing of the kind is assumed.
    """
    if assumed < 1:
        raise UsageError(f"sets are assumed to differ in at least 1 element, not {assumed}")
    pairs = [(frozenset(mine), frozenset(theirs)) for mine, theirs in zip(one, other, strict=False)]
    if not pairs or len(one) != len(other) or any(len(mine) != len(theirs) for mine, theirs in pairs):
        raise UsageError("two histories of a client have the same rounds, at least one, and sets of the same sizes")
    return Diagnosis(tuple(len(mine - theirs) for mine, theirs in pairs), assumed)
