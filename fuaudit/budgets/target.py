"""A target: the epsilon at a delta that rounds shall keep to, under an assumption on how far histories differ."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

from fuaudit.errors import UsageError

SMALLEST = 1e-300
"""Of deltas above 0: below it chances that add up to delta vanish in floats, and an account would be too small."""


class ExceededError(UsageError):
    """Rounds do not keep to a target, or nothing that is known accounts for them."""


def require_delta(delta: float) -> None:
    """Raises UsageError for what is no delta, or one that floats cannot account for."""
    if not (delta == 0 or SMALLEST <= delta < 1):
        raise UsageError(f"delta is 0, or at least {SMALLEST:g} and below 1, not {delta}")


@dataclass(frozen=True)
class Target:
    """The table ``[budget]``: training is refused where its rounds would exceed it.

    Attributes:
        epsilon: what all rounds of one client may have together.
        delta: at which it holds; above 0 needs the extra ``budgets``.
        differ: in how many elements two top sets of a round may differ, at most; this is assumed.
        towards: "public" for whoever has neither the plan nor the key of its draws, so that rows which are seldom
            sampled are charged less. It matters to DP-SGD with Poisson batches alone. Left out, the server too.
    """

    epsilon: float
    delta: float
    differ: int = 1
    towards: Literal["public"] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < inf:
            raise UsageError(f"epsilon is a number of at least 0, not {self.epsilon}")
        require_delta(self.delta)
        if self.differ < 1:
            raise UsageError(f"differ must be at least 1, not {self.differ}")


def most_within(keeps: Callable[[int], bool], below: int) -> int:
    """The most rounds, fewer than ``below``, that keep to a target, by halving; 0 for none.

    ``keeps``: whether so many do; then all fewer do.
    """
    return bisect_left(range(1, below), True, key=lambda rounds: not keeps(rounds))
