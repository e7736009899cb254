"""What DP-SGD did, as far as an account needs it: steps with so much noise, over so large a share of the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from fuaudit.errors import UsageError
from fuaudit.text import counted

STEPS = 10**6
"""Steps that are accounted for, at most."""
KINDS = 64
"""Different pairs of noise and rate, at most: each is composed by itself."""


@dataclass(frozen=True)
class Steps:
    """``count`` steps of the same kind.

    Attributes:
        noise: the standard deviation of the noise on the sum of clipped gradients, a multiple of the clipping norm.
        rate: the chance that a row is in the batch of a step.

    Raises:
        UsageError: there cannot be such steps.
    """

    noise: float
    rate: float
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.noise < inf:
            raise UsageError(f"noise is a number of at least 0, not {self.noise}")
        if not 0 < self.rate <= 1:
            raise UsageError(f"a sampling rate is above 0 and at most 1, not {self.rate}")
        if not 1 <= self.count <= STEPS:
            raise UsageError(f"steps are 1 to {STEPS:,}, not {self.count}")


def merged(steps: Iterable[Steps]) -> tuple[Steps, ...]:
    """Steps of one kind together: composition does not ask for an order.

    Raises:
        UsageError: there are none, too many, or too many kinds.
    """
    counts: dict[tuple[float, float], int] = {}
    for each in steps:
        kind = (each.noise, each.rate)
        counts[kind] = counts.get(kind, 0) + each.count
    if not counts:
        raise UsageError("there is no step to account for")
    if sum(counts.values()) > STEPS:
        raise UsageError(f"{sum(counts.values()):,} steps are more than the {STEPS:,} that are accounted for")
    if len(counts) > KINDS:
        raise UsageError(
            f"steps have {counted(len(counts), 'different pair')} of noise and rate, and at most {KINDS} are composed",
            "Round noise down, or rates up, to fewer values: the account then holds for the real ones too.",
        )
    return tuple(Steps(*kind, count) for kind, count in sorted(counts.items()))
