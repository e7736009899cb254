"""A picture of the budget of Skellam noise against rounds."""

from __future__ import annotations

from collections.abc import Sequence

from fuaudit.budgets.picture import Curves, places
from fuaudit.budgets.skellam.account import SkellamAccount, account


def curves(told: Sequence[SkellamAccount]) -> Curves:
    """A line for each account, of 1 to as many rounds as it has: they differ in who sees what."""
    numbers = places(told[0].rounds)
    return Curves(numbers, [([_at(one, number) for number in numbers], f"towards who sees {one.seen}") for one in told])


def _at(one: SkellamAccount, rounds: int) -> float:
    """The epsilon of the first so many of the rounds; what holds of a row holds of every sum."""
    row = account(one.mechanism, rounds, one.delta).total
    return min(row, account(one.mechanism, rounds, one.delta, one.shares, one.missing * rounds / one.rounds).total)
