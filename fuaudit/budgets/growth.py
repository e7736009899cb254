"""How the account of a family grows, run by run and round by round, and a picture of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from fuaudit.budgets.family import Charge, Spent
from fuaudit.budgets.mechanisms import account_for
from fuaudit.budgets.picture import require_format, write
from fuaudit.budgets.spent import PartAccount, Terms
from fuaudit.errors import UsageError
from fuaudit.text import in_full, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 48
"""Of a curve, at most, but for the last round of each run: that is always one."""
INCHES = 7.5, 3.6
"""Of the picture for one reader."""

Point = tuple[int, float]
"""Rounds of all runs up to here, and the epsilon that they have together."""


@dataclass(frozen=True)
class Seen:
    """What one reader can have seen, and the accounts of it."""

    spent: Spent
    accounts: Sequence[PartAccount]
    reasons: Sequence[str]
    terms: Terms

    def drawn(self) -> list[PartAccount]:
        """The accounts that have an epsilon."""
        return [one for one in self.accounts if one.epsilon < inf]

    def in_the_way(self) -> list[str]:
        """Why the others have none; what was told of no mechanism at all has none either."""
        reasons = [*self.reasons, *(one.reason for one in self.accounts if one.epsilon == inf)]
        return list(dict.fromkeys(filter(None, reasons)))


def ends(charges: Sequence[Charge]) -> list[int]:
    """The rounds of all runs up to each one, ``(runs,)``: parents come before their children."""
    return list(accumulate(len(charge.rounds) for charge in charges))


def growth(spent: Spent, terms: Terms, part: PartAccount) -> list[Point]:
    """The account of one part after so many rounds, from none to all of them."""
    (release,), last = part.releases, ends(spent.charges)
    one = terms.mechanism(release)
    every = max(1, -(-spent.rounds // POINTS))
    places = sorted({*range(every, spent.rounds, every), *last} - {0})
    found = [(number, account_for(one, number * terms.times, terms.delta, coarse=True).total) for number in places]
    return [(0, 0.0), *found]


def plot(readers: Mapping[str, Seen], path: Path) -> None:
    """Draw epsilon against rounds, for each reader one panel, into a file whose ending says the format.

    Raises:
        UsageError: nobody has an account, or there is no such format.
        StorageError: the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    require_format(path)
    if not any(seen.drawn() for seen in readers.values()):
        reasons = dict.fromkeys(reason for seen in readers.values() for reason in seen.in_the_way())
        raise UsageError("there is no account to plot", "; ".join(reasons))
    # names of folders are no formulas
    with rc_context({"text.parse_math": False}):
        figure = Figure(figsize=(INCHES[0], INCHES[1] * len(readers)), layout="constrained")
        for axes, (name, seen) in zip(figure.subplots(len(readers), squeeze=False)[:, 0], readers.items(), strict=True):
            _panel(axes, name, seen)
        write(figure, path)


def _panel(axes: Axes, name: str, seen: Seen) -> None:
    """What one reader has seen: a curve for each part, over the runs one after another."""
    last = ends(seen.spent.charges)
    for number, (charge, end) in enumerate(zip(seen.spent.charges, last, strict=True)):
        if not charge.rounds:
            continue
        axes.axvspan(end - len(charge.rounds), end, color="0.93" if number % 2 else "0.98", zorder=0)
        axes.annotate(printable(charge.name), (end - len(charge.rounds) / 2, 1), xycoords=("data", "axes fraction"),
                      xytext=(0, -4), textcoords="offset points", ha="center", va="top", fontsize="small")  # fmt: skip
    for one in seen.drawn():
        numbers, epsilons = zip(*growth(seen.spent, seen.terms, one), strict=True)
        axes.plot(numbers, epsilons, marker=".", label=f"{one.part}, {one.releases[0].mechanism}")
    if seen.drawn():
        axes.legend(loc="lower right")
    if why := seen.in_the_way():
        axes.annotate(fill(f"no guarantee: {'; '.join(why)}", 90), (0.5, 0.5), xycoords="axes fraction",
                      ha="center", va="center", fontsize="small")  # fmt: skip
    none = [printable(charge.name) for charge in seen.spent.charges if not charge.rounds]
    adds = f"; nothing is added by {', '.join(none)}" if none else ""
    axes.set(title=f"towards the {name}", xlabel=f"rounds drawn anew, run by run{adds}",
             ylabel=f"epsilon at delta {in_full(seen.terms.delta)}",
             xlim=(0, max(seen.spent.rounds, 1)), ylim=(0, None))  # fmt: skip
