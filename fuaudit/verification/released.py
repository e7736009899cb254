"""What rounds of the lineage released, for a report: an account for each part, with all that an epsilon is about."""

from __future__ import annotations

from typing import Any

from fuaudit.budgets.spent import PartAccount
from fuaudit.budgets.statement import finite, meaning
from fuaudit.errors import EvidenceError, RedactedError, UsageError
from fuaudit.runs.account import account_of_lineage, told_anything
from fuaudit.runs.released import Unlimited
from fuaudit.statistics.rounding import up
from fuaudit.verification.case import Case


def released(case: Case, delta: float | None = None) -> dict[str, Any] | None:
    """The account of the run and its ancestors at hand; None where no round told of a mechanism.

    It is a sum of what ledgers tell, and no finding: audits judge the ledgers. It is at a delta, by default that of the
    config.

    Raises:
        UsageError: a delta was given, and there is nothing that it is of.
    """
    if not told_anything((case.run, *case.evidence.ancestors)):
        if delta is not None:
            told = f"no round of {case.run.path.name} and of its ancestors at hand told of a mechanism"
            raise UsageError(f"{told}, so there is no account at a delta", "Leave --delta out.")
        return None
    try:
        found = account_of_lineage(case.run, case.evidence.ancestors, delta)
    except (RedactedError, UsageError) as error:
        return _none(str(error.args[0]))
    except EvidenceError:
        raise
    except (Exception, SystemExit) as error:  # a law of another package is asked how often it draws a client
        return _none(f"the account could not be made: {error!r}")
    lineage = found.towards["lineage"]
    return {
        "covered": lineage.spent.covered,
        "reasons": list(lineage.reasons),
        "accounts": [_part(one, found.terms.delta) for one in lineage.accounts],
        "without_noise": {name: [_left(row) for row in rows] for name, rows in found.unlimited.items()},
    }


def _none(why: str) -> dict[str, Any]:
    return {"covered": "", "reasons": [why], "accounts": [], "without_noise": {}}


def _part(one: PartAccount, delta: float) -> dict[str, Any]:
    """An account in words and rounded figures: the last bits of a composition are of one platform."""
    known = finite(one.epsilon) is not None
    return {
        "part": one.part,
        "under": one.under,
        "rounds": one.rounds,
        "epsilon": up(one.epsilon, 5) if known else None,
        "delta": up(delta, 6),
        "reason": one.reason,
        "meaning": meaning(one.epsilon, delta),
        "statement": one.statement.as_json() if one.statement else {},
    }


def _left(row: Unlimited) -> dict[str, Any]:
    return {"where": row.where, "what": row.what, "given_to": row.given_to, "rounds": len(row.rounds)}
