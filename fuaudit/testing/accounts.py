"""An account against an audit: what a mechanism let out can refute an epsilon, and never show one."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from numpy.typing import ArrayLike

from fuaudit.errors import UsageError
from fuaudit.statistics.two_sample.events import LeastEpsilon, least_epsilon

MEANING = (
    "a lower bound on the epsilon of this implementation, from two histories that were executed. Above the account it "
    "refutes it; below it shows nothing: another event, another pair of histories or more trials may find more"
)


@dataclass(frozen=True)
class AuditedAccount:
    """An epsilon that is accounted for, beside a lower bound on the epsilon of what was executed.

    Attributes:
        account: no smaller than the true epsilon at the same delta, if implementation and account are right.
    """

    account: float
    least: LeastEpsilon

    @property
    def verdict(self) -> Literal["PASS", "FAIL"]:
        """FAIL where the bound is above the account: a right one is refuted with a chance of at most alpha."""
        return "FAIL" if self.least.lower > self.account else "PASS"

    @property
    def share(self) -> float:
        """How much of the account the bound reaches; 1 where both are 0."""
        if self.account == 0:
            return 1.0 if self.least.lower == 0 else inf
        return self.least.lower / self.account

    def as_json(self) -> dict[str, Any]:
        """Both figures on one axis, and what they mean."""
        least = self.least
        return {
            "verdict": self.verdict, "account": self.account if self.account < inf else None,
            "at_least": least.lower, "ceiling": least.ceiling, "delta": least.delta, "alpha": least.alpha,
            "hits": list(least.hits), "trials": list(least.trials), "meaning": MEANING,
        }  # fmt: skip


def audit_account(
    account: float, one: ArrayLike, other: ArrayLike, delta: float = 0.0, alpha: float = 0.05
) -> AuditedAccount:
    """Compare an account with what came out under two adjacent histories: kinds ``(n,)``, numbered from 0.

    Trials have to be independent of each other: each with draws of its own. Into which kinds outcomes are sorted must
    be fixed before; which of them make the event is chosen here, on trials that are not counted.

    Raises:
        UsageError: an account that is no epsilon, or trials that bound nothing.
    """
    if not account >= 0:
        raise UsageError(f"an account is an epsilon of at least 0, not {account}")
    try:
        return AuditedAccount(account, least_epsilon(one, other, delta, alpha))
    except ValueError as error:
        raise UsageError(str(error)) from None
