"""What the paper of ConSpar prints, to stand beside the exact epsilon: for one element; for more, so many times that.

*Source*: FedREP, Theorem 2; its appendix, after equation 54.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp, log, log1p

from fuaudit.budgets.conspar.law import ConSpar


def theorem2(mechanism: ConSpar) -> float | None:
    """The epsilon of Theorem 2; None at alpha 0, of which it says nothing."""
    if mechanism.alpha == 0:
        return None
    k = mechanism.per_client
    return mechanism.differ * log((1 + mechanism.alpha) * k * (mechanism.dim - k + 1) / (2 * mechanism.alpha))


def theorem2_is_bound(mechanism: ConSpar) -> bool | None:
    """Whether that is no smaller than the exact epsilon; None at alpha 0.

    Its proof divides by a sum that is empty where nothing else overlaps. With two coordinates or more that case is not
    the worst one; with one coordinate it is the only one, and the two are compared as fractions.
    """
    if mechanism.alpha == 0:
        return None
    return mechanism.per_client > 1 or mechanism.alpha * (3 * mechanism.dim - 2) >= mechanism.dim


def appendix(mechanism: ConSpar) -> float | None:
    """The epsilon of the appendix, a bound; None below alpha 1/2, for which it is not stated."""
    if mechanism.alpha < Fraction(1, 2):
        return None
    if mechanism.alpha == 1:
        return 0.0
    k = mechanism.per_client
    inner = log(mechanism.odds) + k * log(2) + log1p(2.0**-k if k < 1000 else 0.0) + k * log(mechanism.dim)
    return mechanism.differ * (inner + log1p(exp(-inner)) if inner > 0 else log1p(exp(inner)))
