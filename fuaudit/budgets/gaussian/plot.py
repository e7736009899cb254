"""A picture of the budget of Gaussian noise against rounds."""

from __future__ import annotations

from collections.abc import Sequence

from fuaudit.budgets.gaussian.account import GaussianAccount, account
from fuaudit.budgets.picture import Curves, places


def curves(told: Sequence[GaussianAccount]) -> Curves:
    """A line for each account, of 1 to as many rounds as it has: they differ in who sees what."""
    numbers = places(told[0].rounds)
    return Curves(numbers, [(_growth(one, numbers), f"towards who sees {one.seen}") for one in told])


def _growth(one: GaussianAccount, numbers: Sequence[int]) -> list[float]:
    return [account(one.noise, number, one.delta, one.participations).epsilon for number in numbers]
