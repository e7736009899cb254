"""The account of many rounds of ConSpar: every figure, and what it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuaudit.budgets.conspar.law import ConSpar, epsilon
from fuaudit.budgets.conspar.printed import appendix, theorem2, theorem2_is_bound
from fuaudit.budgets.statement import Statement, delta_in_words, finite, version_of
from fuaudit.budgets.target import require_delta
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
class ConSparAccount:
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
        return finite(self.basic) if self.optimal is None else None

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints; null is an epsilon that is unbounded or not stated."""
        shape = self.mechanism
        return {
            "dim": shape.dim, "per_client": shape.per_client, "alpha": decimal_text(shape), "differ": shape.differ,
            "rounds": self.rounds, "delta": self.delta,
            "epsilon_per_round": finite(self.per_round), "epsilon_total": finite(self.total),
            "epsilon_total_at_least": self._at_least(),
            "epsilon_basic": finite(self.basic), "epsilon_optimal": self.optimal,
            "theorem2_per_round": theorem2(shape), "theorem2_is_bound": theorem2_is_bound(shape),
            "appendix_per_round": appendix(shape),
            "reason": self.note or None, "statement": statement(self).as_json(),
        }  # fmt: skip


def account(mechanism: ConSpar, rounds: int, delta: float = 0.0, bins: int = BINS) -> ConSparAccount:
    """The account of so many rounds; the exact loss is composed on a grid of so many ``bins``.

    Raises:
        UsageError: rounds or delta out of range, or no library that composes at a delta.
    """
    if not 1 <= rounds <= ROUNDS:
        raise UsageError(f"rounds are 1 to {ROUNDS:,}, not {rounds}")
    require_delta(delta)
    one = epsilon(mechanism)
    if not 0 < mechanism.alpha < 1:
        return ConSparAccount(mechanism, rounds, delta, one, one * rounds, note=CONSTANT if one == 0 else UNBOUNDED)
    if delta == 0:
        return ConSparAccount(mechanism, rounds, delta, one, one * rounds)

    from fuaudit.budgets.compose import composed, optimal
    from fuaudit.budgets.conspar.losses import is_too_wide, losses

    wide = is_too_wide(mechanism)
    exact = None if wide else composed(losses(mechanism), rounds, delta, bins)
    note = "" if exact else NOT_COMPOSED if wide else TOO_SMALL
    return ConSparAccount(mechanism, rounds, delta, one, one * rounds, optimal(one, rounds, delta), exact, note)


def statement(found: ConSparAccount) -> Statement:
    """What an epsilon is about."""
    shape, sets = found.mechanism, counted(found.mechanism.differ, "element")
    return Statement(
        delta=delta_in_words(found.delta),
        unit=f"the sets of {shape.per_client:,} top coordinates that one client has in the rounds covered",
        adjacency=f"in every round the two sets differ in at most {sets}; this is assumed, and is not checked",
        adversary="sees every set that the client sends, and knows all settings and all earlier sets; "
        "it does not see the client's draws",
        trust_model="local: the client randomises its own set; whoever holds the client's secret can undo it",
        sampling_assumption="none: the client takes part in every round, and no amplification is counted",
        accountant=_accountant(found),
        rounds_covered=counted(found.rounds, "round"),
        outside_it="the values on the agreed coordinates, which go out without noise; other runs on the same data, "
        "tuning, audits; metrics and stored rows that were computed from private rows",
        remark=(
            "no data-level guarantee",
            "adjacency is on sets of coordinates, not on people's data; by error feedback one sample can change all "
            "later sets. ConSpar alone gives no differential privacy of data",
        ),
    )


def _accountant(found: ConSparAccount) -> str:
    text = f"fuaudit {version_of('fuaudit')}, exact law of the overlap"
    if found.optimal is None:
        return f"{text}; sum over rounds"
    if found.exact is None or found.total < found.exact.high:
        return f"{text}; optimal composition of pure budgets"
    return f"{text}; privacy loss distribution, composed by dp-accounting {version_of('dp-accounting')}"


def decimal_text(mechanism: ConSpar) -> str:
    """The chance alpha with all its digits."""
    alpha, digits = mechanism.alpha, 0
    while alpha.denominator != 1 and digits < 150:
        alpha, digits = alpha * 10, digits + 1
    if alpha.denominator != 1:
        return str(mechanism.alpha)
    text = f"{alpha.numerator:0{digits + 1}d}"
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text
