"""A picture of the budget against rounds."""

from __future__ import annotations

from pathlib import Path

from fuaudit.budgets.conspar.account import COARSE, ConSparAccount, account
from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.budgets.picture import Curves, draw, places, require_format
from fuaudit.errors import UsageError


def curve(mechanism: ConSpar, rounds: int, delta: float) -> list[ConSparAccount]:
    """Accounts of 1 to ``rounds`` rounds, evenly on a log scale."""
    return [account(mechanism, each, delta, COARSE) for each in places(rounds)]


def plot(mechanism: ConSpar, rounds: int, delta: float, path: Path) -> None:
    """Draw epsilon against rounds into a file, whose ending says the format: svg, png or pdf.

    Raises:
        UsageError: nothing to draw, or no such format.
        StorageError: the file cannot be written.
    """
    require_format(path)
    if not 0 < mechanism.alpha < 1:
        raise UsageError("at alpha 0 and at alpha 1 there is no curve to plot")
    found = curve(mechanism, rounds, delta)
    lines = [([each.total for each in found], "exact loss, composed")] if all(each.exact for each in found) else []
    lines += [([each.basic for each in found], "sum of the rounds")]
    lines += [([each.optimal or 0.0 for each in found], "optimal for this epsilon a round")] if delta else []
    draw(Curves([each.rounds for each in found], lines), "rounds", delta, path)
