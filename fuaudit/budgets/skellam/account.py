"""The account of rounds of Skellam noise, and the statement that comes with its epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf, log, log1p
from typing import Any

from fuaudit.budgets.losses import joining
from fuaudit.budgets.shares import SHARED
from fuaudit.budgets.skellam.law import TABLE, Skellam
from fuaudit.budgets.statement import Statement, delta_in_words, finite, version_of
from fuaudit.budgets.target import require_delta
from fuaudit.errors import UsageError
from fuaudit.statistics.rounding import up
from fuaudit.text import counted

ROUNDS = 10**9
"""Rounds that are accounted for, at most."""
NO_DELTA = "delta is 0, and Skellam noise has no pure epsilon: choose one above 0, by --delta"
TOO_LITTLE = (
    "there is too little noise to account, or delta is too small beside the chance of other numbers than the law's"
)
ROW = "the row of a client"


@dataclass(frozen=True)
class SkellamAccount:
    """The epsilon of ``rounds`` rounds at ``delta``.

    Attributes:
        shares: how many shares of the noise on what is seen are not known, at least.
        epsilon: a bound; infinite where there is none.
        missing: the chance that a share was missing, so that what is seen is another sum, at most.
        stray: the chance of anything that is not of the law, as it was counted: what it adds is in delta.
        seen: what is seen, in words.
        trust: who is trusted with what.
    """

    mechanism: Skellam
    rounds: int
    delta: float
    shares: int
    epsilon: float
    missing: float
    stray: float
    seen: str
    trust: str

    @property
    def total(self) -> float:
        """The smallest epsilon that is known to hold; infinite where none does."""
        return self.epsilon

    @property
    def note(self) -> str:
        """Why there is no epsilon; empty where there is one."""
        return "" if self.epsilon < inf else TOO_LITTLE if self.delta else NO_DELTA

    def as_json(self) -> dict[str, Any]:
        """Null is an epsilon that is unbounded, or that is not known."""
        one = self.mechanism
        return {
            "noise": float(one.noise), "squares": one.squares, "dim": one.dim, "shares": self.shares,
            "rounds": self.rounds, "delta": self.delta, "stray": self.stray, "epsilon_total": finite(self.epsilon),
            "epsilon_total_at_least": None, "reason": self.note or None, "statement": self.statement().as_json(),
        }  # fmt: skip

    def statement(self) -> Statement:
        """What an epsilon is about."""
        chance = f"there are such ones with a chance of {up(self.stray, 3)} at most"
        added = f"; in it is what numbers add that are missing, or not of the law: {chance}" if self.delta else ""
        return Statement(
            delta=f"{delta_in_words(self.delta)}{added}",
            unit="all rows of one client in the rounds covered, each clipped to a norm and rounded to whole numbers in "
            "front of the noise",
            adjacency="the rows of the client count, or are zero",
            adversary=f"sees {self.seen}, of every round, and knows all settings; it does not see the noise",
            trust_model=self.trust,
            sampling_assumption="none: the client takes part in every round, and no amplification is counted. Towards "
            "whoever has the plan, or the key of its draws, there is none: operator, server and auditor have them",
            accountant=f"fuaudit {version_of('fuaudit')}, Renyi divergences of Skellam noise by the bound of Agarwal, "
            "Kairouz and Liu (2021)",
            rounds_covered=counted(self.rounds, "round"),
            outside_it="other runs on the same data, rounds that a request executes again, tuning, audits; metrics and "
            "stored rows that were computed from private rows",
            remark=(
                "whole numbers",
                "the law is that of whole numbers, which are drawn as such: nothing is assumed of the last bits of "
                "floats. What rounding adds to a row is in the account. It is a bound: the exact epsilon is not known",
            ),
        )


def account(
    one: Skellam, rounds: int, delta: float, shares: int = 1, missing: float = 0.0, seen: str = ROW, trust: str = SHARED
) -> SkellamAccount:
    """The account of so many rounds towards who does not know so many shares of the noise.

    Args:
        missing: the chance that any share of any round was missing; what it adds joins delta.

    Raises:
        UsageError: numbers out of range.
    """
    require_delta(delta)
    if not 1 <= rounds <= ROUNDS or shares < 1:
        raise UsageError(f"rounds are 1 to {ROUNDS:,} and shares at least 1, not {rounds:,} and {shares:,}")
    stray = _stray(one, rounds, shares, missing)
    epsilon = _epsilon(one, rounds, delta, shares, stray)
    return SkellamAccount(one, rounds, delta, shares, epsilon, missing, stray, seen, trust)


def _stray(one: Skellam, rounds: int, shares: int, missing: float) -> float:
    """The chance that a share is missing, or a number is another than the law's: a table is off by little."""
    return min(1.0, (missing + rounds * shares * one.dim * TABLE) * (1 + 1e-12))


def _epsilon(one: Skellam, rounds: int, delta: float, shares: int, stray: float) -> float:
    """At delta, in which is what stray numbers add: 1 + e^epsilon times their chance."""
    if not delta:
        return inf
    # epsilon falls with delta: what joins at half of it is enough for all that is above
    joins = joining(_of_orders(one, rounds, delta / 2, shares), stray)
    return inf if joins > delta / 2 else _of_orders(one, rounds, (delta - joins) * (1 - 1e-12), shares)


def _of_orders(one: Skellam, rounds: int, delta: float, shares: int) -> float:
    """The least epsilon that a Renyi divergence of some order gives, rounded up.

    *Source*: Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020, Proposition 12.
    """
    found = min(
        rounds * one.renyi(order, shares) + log1p(-1 / order) - log(delta * order) / (order - 1) for order in orders()
    )
    return max(0.0, found + 1e-14) * (1 + 1e-12)  # terms cancel where epsilon is tiny


@cache
def orders() -> tuple[int, ...]:
    """Whole orders: all small ones, and some of the large ones that little noise over few rounds does not need."""
    return (*range(2, 257), *sorted({round(2 ** (8 + place / 16)) for place in range(1, 193)}))
