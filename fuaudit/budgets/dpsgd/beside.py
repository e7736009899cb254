"""What Opacus says of the same steps: bounds by Renyi divergences and by PRVs, and an approximation that is no bound.

Its functions are called with plain numbers. One accountant is made, of plain numbers too: no state of one is loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log, sqrt
from typing import Any

from fuaudit.budgets.dpsgd.steps import Steps

ORDERS = [*(1 + x / 10 for x in range(1, 100)), *range(12, 64)]
"""Those that Opacus looks at."""
WHOLE = [*range(2, 64), 80, 96, 128, 192, 256, 512]
"""Orders at which the divergence is a finite sum of positive terms: nothing but rounding is in the way of a bound."""
PRV_ERROR = 0.01
PRV_CELLS = 2**22
"""Of the grid that PRVs are composed on, at most: its size follows from steps and delta, and nothing bounds it."""


@dataclass(frozen=True)
class Figure:
    """An epsilon that Opacus computes; None with a reason where it computes none."""

    epsilon: float | None
    reason: str = ""


def renyi(steps: Sequence[Steps], delta: float, orders: Sequence[float] = ORDERS) -> Figure:
    """A bound by Renyi divergences.

    *Source*: Mironov, Talwar, Zhang, Renyi Differential Privacy of the Sampled Gaussian Mechanism, 2019.
    """

    def found() -> float:
        from opacus.accountants.analysis import rdp

        total = sum(
            rdp.compute_rdp(q=each.rate, noise_multiplier=each.noise, steps=each.count, orders=list(orders))
            for each in steps
        )
        return float(rdp.get_privacy_spent(orders=list(orders), rdp=total, delta=delta)[0])

    return _asked(found)


def random_variables(steps: Sequence[Steps], delta: float) -> Figure:
    """A bound by composed PRVs; its grid is refused where it is too large.

    *Source*: Gopi, Lee, Wutschitz, Numerical Composition of Differential Privacy, 2021.
    """
    width = renyi(steps, delta / 4000).epsilon
    if width is None:
        return Figure(None, "there is no bound by Renyi divergences to lay a grid by")
    cells = 2 * (width + 3) * sqrt(sum(each.count for each in steps) * log(12_000 / delta) / 2) / PRV_ERROR
    if cells > PRV_CELLS:
        return Figure(None, f"its grid would have {cells:,.0f} cells")

    def found() -> float:
        from opacus.accountants import PRVAccountant

        accountant: Any = PRVAccountant()
        accountant.history = [(each.noise, each.rate, each.count) for each in steps]
        return float(accountant.get_epsilon(delta, eps_error=PRV_ERROR))

    return _asked(found)


def central_limit(steps: Sequence[Steps], delta: float) -> Figure:
    """The approximation by Gaussian differential privacy: NO BOUND, it can be too small."""
    if len(steps) > 1:
        return Figure(None, "it has none for steps of several kinds")

    def found() -> float:
        from opacus.accountants.analysis import gdp

        (each,) = steps
        given = {"steps": each.count, "noise_multiplier": each.noise, "sample_rate": each.rate}
        return float(gdp.compute_eps_poisson(**given, delta=delta))

    return _asked(found)


def _asked(found: Callable[[], float]) -> Figure:
    """What a library computes; where it warns it goes on, and where it fails there is no figure."""
    import numpy as np

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            epsilon = found()
    except (ArithmeticError, IndexError, MemoryError, RuntimeError, ValueError) as error:
        return Figure(None, f"Opacus ends in {type(error).__name__}")
    return Figure(epsilon) if isfinite(epsilon) and epsilon >= 0 else Figure(None, "Opacus finds no finite number")
