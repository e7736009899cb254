"""The account of many rounds of ConSpar: every figure, and the statement without which an epsilon says nothing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import exp, isfinite
from typing import TYPE_CHECKING, Any

from fuaudit.budgets.conspar import ConSpar, epsilon
from fuaudit.budgets.printed import appendix, theorem2, theorem2_is_bound
from fuaudit.errors import UsageError
from fuaudit.text import counted

if TYPE_CHECKING:
    from fuaudit.budgets.compose import Bracket

ROUNDS = 10**5
"""Rounds that are composed, at most."""
BINS = 2**18
"""Cells of the grid of losses; transforms have at most about twice as many. They bound time and memory."""
COARSE = 2**14
"""Cells for many accounts at once: less exact, and never too private."""
UNBOUNDED = "alpha is 0: every client sends its top coordinates as they are, so there is no guarantee"
CONSTANT = "alpha is 1: what a client sends does not depend on its gradient at all"
NOT_COMPOSED = "the exact loss is not composed: there are too many overlaps of two sets to look at them all"
TOO_SMALL = "the exact loss is not composed: delta is too small beside the rounding of so many rounds"


@dataclass(frozen=True)
class Account:
    """Epsilons of ``rounds`` rounds at ``delta``.

    Args:
        per_round: pure, exact.
        basic: the sum of the rounds' pure epsilons, which is exact at delta 0.
        optimal: what holds for every mechanism with this pure epsilon a round; None at delta 0, and at alpha 0 and 1.
        exact: both sides of the exact epsilon at delta; None where it is not computed.
        note: why something is missing, or what an epsilon of 0 means; may be empty.
    """

    mechanism: ConSpar
    rounds: int
    delta: float
    per_round: float
    basic: float
    optimal: float | None = None
    exact: Bracket | None = None
    note: str = ""

    @property
    def total(self) -> float:
        """The smallest epsilon that is known to hold; infinite where none does."""
        known = [self.basic, self.optimal, self.exact.high if self.exact else None]
        return min(each for each in known if each is not None)

    def _at_least(self) -> float | None:
        if self.exact:
            return self.exact.low
        return _finite(self.basic) if self.optimal is None else None

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints; null is an epsilon that is unbounded or not stated."""
        shape = self.mechanism
        return {
            "dim": shape.dim, "per_client": shape.per_client, "alpha": decimal_text(shape), "differ": shape.differ,
            "rounds": self.rounds, "delta": self.delta,
            "epsilon_per_round": _finite(self.per_round), "epsilon_total": _finite(self.total),
            "epsilon_total_at_least": self._at_least(),
            "epsilon_basic": _finite(self.basic), "epsilon_optimal": self.optimal,
            "theorem2_per_round": theorem2(shape), "theorem2_is_bound": theorem2_is_bound(shape),
            "appendix_per_round": appendix(shape),
            "reason": self.note or None, "statement": statement(self),
        }  # fmt: skip


def account(mechanism: ConSpar, rounds: int, delta: float = 0.0, bins: int = BINS) -> Account:
    """The account of so many rounds; the exact loss is composed on a grid of so many ``bins``.

    Raises:
        UsageError: rounds or delta out of range, or no library that composes at a delta.
    """
    if not 1 <= rounds <= ROUNDS:
        raise UsageError(f"rounds are 1 to {ROUNDS:,}, not {rounds}")
    if not 0 <= delta < 1:
        raise UsageError(f"delta is at least 0 and below 1, not {delta}")
    one = epsilon(mechanism)
    if not 0 < mechanism.alpha < 1:
        return Account(mechanism, rounds, delta, one, one * rounds, note=CONSTANT if one == 0 else UNBOUNDED)
    if delta == 0:
        return Account(mechanism, rounds, delta, one, one * rounds)

    from fuaudit.budgets.compose import composed, optimal
    from fuaudit.budgets.losses import is_too_wide, losses

    wide = is_too_wide(mechanism)
    exact = None if wide else composed(losses(mechanism), rounds, delta, bins)
    note = "" if exact else NOT_COMPOSED if wide else TOO_SMALL
    return Account(mechanism, rounds, delta, one, one * rounds, optimal(one, rounds, delta), exact, note)


def statement(found: Account) -> dict[str, str]:
    """What an epsilon is about, word by word."""
    shape, sets = found.mechanism, counted(found.mechanism.differ, "element")
    return {
        "delta": f"{found.delta:g}" if found.delta else "0: pure differential privacy",
        "unit": f"the sets of {shape.per_client:,} top coordinates that one client has in the rounds covered",
        "adjacency": f"in every round the two sets differ in at most {sets}; this is assumed, and is not checked",
        "adversary": "sees every set that the client sends, and knows all settings and all earlier sets; "
        "it does not see the client's draws",
        "trust model": "local: the client randomises its own set; whoever holds the client's secret can undo it",
        "sampling assumption": "none: the client takes part in every round, and no amplification is counted",
        "accountant": _accountant(found),
        "rounds covered": counted(found.rounds, "round"),
        "outside it": "the values on the agreed coordinates, which go out without noise; other runs on the same data, "
        "tuning, audits; metrics and stored rows that were computed from private rows",
        "no data-level guarantee": "adjacency is on sets of coordinates, not on people's data; by error feedback one "
        "sample can change all later sets. ConSpar alone gives no differential privacy of data",
    }


def _accountant(found: Account) -> str:
    text = f"fuaudit {_version('fuaudit')}, exact law of the overlap"
    if found.optimal is None:
        return f"{text}; sum over rounds"
    if found.exact is None or found.total < found.exact.high:
        return f"{text}; optimal composition of pure budgets"
    return f"{text}; privacy loss distribution, composed by dp-accounting {_version('dp-accounting')}"


def meaning(total: float, delta: float) -> str:
    """What an epsilon allows to whoever is to tell the two histories apart, with even odds beforehand."""
    right = (1 + delta * exp(-total)) / (1 + exp(-total)) if isfinite(total) else 1.0
    if right > 0.9999:
        return "no guarantee to speak of: whoever must tell two such histories apart may be right always, or nearly so"
    return (
        f"whoever must tell two such histories apart, at even odds, is right in at most {_percent(right)} % of cases; "
        "guessing has 50 %"
    )


def _percent(share: float) -> str:
    return f"{-(-share * 10_000 // 1) / 100:.2f}"


def decimal_text(mechanism: ConSpar) -> str:
    """The chance alpha with all its digits."""
    alpha, digits = mechanism.alpha, 0
    while alpha.denominator != 1 and digits < 150:
        alpha, digits = alpha * 10, digits + 1
    if alpha.denominator != 1:
        return str(mechanism.alpha)
    text = f"{alpha.numerator:0{digits + 1}d}"
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of no known version"
