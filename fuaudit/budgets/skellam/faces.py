"""The accounts of Skellam noise in shares: towards who sees totals, who sees buffers, and who sees rows."""

from __future__ import annotations

from dataclasses import replace

from fuaudit.budgets.shares import Shares, faces
from fuaudit.budgets.skellam.account import SkellamAccount, account
from fuaudit.budgets.skellam.law import Fitting


def statements(
    fit: Fitting, shares: Shares, rounds: int, delta: float, secrets_beside: bool
) -> tuple[SkellamAccount, ...]:
    """Three accounts: towards who sees totals, who sees buffers, and who sees rows.

    A share that does not fit into its field stops its client. So a sum can be another one than that of all rows and
    shares; the chance counted is that of any share of any round. Of a row it is none: whether it fits follows from it.

    ``secrets_beside``: whether the clients' secrets lie with the run.
    """
    one, missing = fit.law, min(1.0, rounds * shares.clients * fit.law.beyond(fit.largest))
    row = account(one, rounds, delta)
    seen = faces(1.0, shares)
    sums = (account(one, rounds, delta, face.unknown, missing) for face in seen[:2])
    # a sum is made of rows, so it tells no more than all of them
    best = [*(found if found.total < row.total else replace(row, missing=missing) for found in sums), row]
    return tuple(
        replace(found, shares=face.unknown, seen=face.seen, trust=face.trust(secrets_beside))
        for found, face in zip(best, seen, strict=True)
    )
