"""A picture of the budget against rounds."""

from __future__ import annotations

from pathlib import Path

from fuaudit.budgets.conspar.account import COARSE, ConSparAccount, account
from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.budgets.picture import require_format, write
from fuaudit.errors import UsageError
from fuaudit.text import in_full

POINTS = 30


def curve(mechanism: ConSpar, rounds: int, delta: float) -> list[ConSparAccount]:
    """Accounts of 1 to ``rounds`` rounds, at most :data:`POINTS`, evenly on a log scale."""
    places = sorted({round(rounds ** (i / (POINTS - 1))) for i in range(POINTS)})
    return [account(mechanism, each, delta, COARSE) for each in places]


def plot(mechanism: ConSpar, rounds: int, delta: float, path: Path) -> None:
    """Draw epsilon against rounds into a file, whose ending says the format: svg, png or pdf.

    Raises:
        UsageError: nothing to draw, or no such format.
        StorageError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    require_format(path)
    if not 0 < mechanism.alpha < 1:
        raise UsageError("at alpha 0 and at alpha 1 there is no curve to plot")
    found = curve(mechanism, rounds, delta)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    numbers = [each.rounds for each in found]
    axes.plot(numbers, [each.basic for each in found], label="sum of the rounds", linestyle="--")
    if delta:
        axes.plot(
            numbers, [each.optimal or 0.0 for each in found], label="optimal for this epsilon a round", linestyle=":"
        )
    if all(each.exact for each in found):
        axes.plot(numbers, [each.total for each in found], label="exact loss, composed")
    axes.set(xlabel="rounds", ylabel=f"epsilon at delta {in_full(delta)}", xscale="log", yscale="log")
    axes.legend()
    write(figure, path)
