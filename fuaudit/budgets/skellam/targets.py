"""What a target needs of Skellam noise: how much of it, or how few rounds."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction

from fuaudit.budgets.skellam.account import NO_DELTA, ROUNDS, account
from fuaudit.budgets.skellam.law import Fitting, Skellam, fitting
from fuaudit.budgets.statement import epsilon_in_words
from fuaudit.budgets.target import Target, most_within
from fuaudit.errors import UsageError
from fuaudit.text import counted, in_full

THOUSANDTHS = 10**7
"""Up to which noise is searched for; no field holds as much."""


def rounds_within(one: Skellam, target: Target, below: int = ROUNDS + 1) -> int:
    """The most rounds, fewer than ``below``, that keep to a target; 0 for none."""
    return most_within(lambda rounds: account(one, rounds, target.delta).total <= target.epsilon, below)


def rounds_for(one: Skellam, target: Target) -> int:
    """The most rounds that keep to a target; UsageError where one is too many already, or delta is 0."""
    _require_delta(target)
    if found := rounds_within(one, target):
        return found
    told = epsilon_in_words(account(one, 1, target.delta).total)
    raise UsageError(f"one round has {told} already, and the target is {in_full(target.epsilon)}", "Add more noise.")


def noise_for(target: Target, rounds: int, norm: float, bits: int, dim: int) -> Fitting:
    """What fits with about the least noise, of three decimals, with which so many rounds keep to a target.

    Where more noise doubles the step, epsilon can rise a little, so a smaller noise may do, too.

    Raises:
        UsageError: no noise that fits into so many bits does, or delta is 0.
    """
    _require_delta(target)

    def fit(thousandths: int) -> Fitting | None:
        try:
            return fitting(norm, bits, dim, Fraction(thousandths, 1000))
        except UsageError:
            return None  # too much noise for these bits, as all that is more

    def enough(thousandths: int) -> bool:
        one = fit(thousandths)
        return one is None or account(one.law, rounds, target.delta).total <= target.epsilon

    found = fit(bisect_left(range(THOUSANDTHS), True, lo=1, key=enough))
    if found is None:
        raise UsageError(
            f"no noise that fits into {bits} bits keeps {counted(rounds, 'round')} to epsilon "
            f"{in_full(target.epsilon)} at delta {in_full(target.delta)}",
            "Take more bits, fewer rounds, or a larger target.",
        )
    return found


def _require_delta(target: Target) -> None:
    if not target.delta:
        raise UsageError(NO_DELTA)
