"""The accounts of Gaussian noise in shares: towards who sees totals, who sees buffers, and who sees rows."""

from __future__ import annotations

from dataclasses import replace

from fuaudit.budgets.gaussian.account import GaussianAccount, account
from fuaudit.budgets.shares import Shares, faces


def statements(
    noise: float, shares: Shares, rounds: int, delta: float, secrets_beside: bool
) -> tuple[GaussianAccount, ...]:
    """Three accounts: towards who sees totals, who sees buffers, and who sees rows.

    ``secrets_beside``: whether the clients' secrets lie with the run.
    """
    return tuple(
        replace(account(face.noise, rounds, delta), seen=face.seen, trust=face.trust(secrets_beside))
        for face in faces(noise, shares)
    )
