"""Inverse questions: which alpha, how many coordinates a client or how many rounds an epsilon allows.

An answer is computed as any account is, so it holds. One round's epsilon falls with alpha and with the number of
coordinates (docs/budgets.md); of many rounds this is searched for, and not proved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf

from fuaudit.budgets.conspar.account import COARSE, ROUNDS, ConSparAccount, account
from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.budgets.statement import epsilon_in_words
from fuaudit.errors import UsageError
from fuaudit.text import in_full


@dataclass(frozen=True)
class Asked:
    """An account that is asked for; with a target, what is None is searched for."""

    dim: int
    per_client: int | None
    alpha: Fraction | None
    rounds: int | None
    differ: int
    delta: float


def answer(asked: Asked, target: float | None) -> tuple[ConSpar, int]:
    """The round and their number: as they are asked for, or the missing one as the target allows it.

    Raises:
        UsageError: not exactly one is missing where there is a target, or any where there is none; the target is no
            epsilon, or nothing keeps to it.
    """
    if target is not None and not 0 <= target < inf:
        raise UsageError(f"a target is an epsilon of at least 0, not {target}")
    dim, differ, delta = asked.dim, asked.differ, asked.delta
    match (asked.per_client, asked.alpha, asked.rounds, None if target is None else float(target)):
        case (int(k), Fraction() as alpha, int(rounds), None):
            return ConSpar(dim, k, alpha, differ), rounds
        case (int(k), Fraction() as alpha, None, float(most)):
            one = ConSpar(dim, k, alpha, differ)
            return one, for_rounds(one, delta, most)
        case (int(k), None, int(rounds), float(most)):
            return for_alpha(ConSpar(dim, k, Fraction(1), differ), rounds, delta, most), rounds
        case (None, Fraction() as alpha, int(rounds), float(most)):
            return for_per_client(dim, alpha, differ, rounds, delta, most), rounds
    raise UsageError("with a target one of coordinates, alpha and rounds is left out, and without one none is")


def alphas() -> Sequence[Fraction]:
    """Decimals from 1e-12 to 1 with three significant digits, those above 1/2 of what is missing to 1."""
    low = [Fraction(digits, 10**places) for places in range(14, 2, -1) for digits in range(100, 1000)]
    low = [alpha for alpha in low if 2 * alpha < 1]
    return [*low, Fraction(1, 2), *(1 - alpha for alpha in reversed(low)), Fraction(1)]


def for_alpha(mechanism: ConSpar, rounds: int, delta: float, target: float) -> ConSpar:
    """The round with the smallest alpha of :func:`alphas` that keeps to the target."""
    choices = alphas()
    fits = bisect_left(
        range(len(choices) - 1), True, key=lambda i: _fits(replace(mechanism, alpha=choices[i]), rounds, delta, target)
    )
    return replace(mechanism, alpha=choices[fits])


def for_per_client(dim: int, alpha: Fraction, differ: int, rounds: int, delta: float, target: float) -> ConSpar:
    """The round with the fewest coordinates a client that keeps to the target; UsageError where none does."""
    most = dim - differ
    choices = range(differ, most + 1)
    fits = bisect_left(choices, True, key=lambda k: _fits(ConSpar(dim, k, alpha, differ), rounds, delta, target))
    if fits == len(choices):
        raise UsageError(
            f"no number of coordinates a client keeps {rounds:,} rounds to epsilon {in_full(target)}",
            "Ask for fewer rounds, a larger alpha, or a larger --target.",
        )
    return ConSpar(dim, choices[fits], alpha, differ)


def for_rounds(mechanism: ConSpar, delta: float, target: float) -> int:
    """The most rounds that keep to the target; UsageError where one is too many already."""
    rounds = bisect_left(range(1, ROUNDS + 1), True, key=lambda rounds: not _fits(mechanism, rounds, delta, target))
    if rounds == 0:
        least: ConSparAccount = account(mechanism, 1, delta, COARSE)
        told = epsilon_in_words(least.total)
        raise UsageError(f"one round has {told} already, and the target is {in_full(target)}", least.note)
    return rounds


def _fits(mechanism: ConSpar, rounds: int, delta: float, target: float) -> bool:
    return account(mechanism, rounds, delta, COARSE).total <= target
