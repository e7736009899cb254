"""The upper tail of a binomial law, rounded up: decimals of 60 digits, in which no term is too small or too large."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from math import inf, nextafter

DIGITS = 60
SLACK, LEFT_OUT = Decimal("1e-30"), Decimal("1e-40")
"""More than rounding comes to, with at most 1e20 operations, each exact up to 1e-59; and what is not added up."""


def above(count: int, share: Fraction, size: int) -> float:
    """The chance that more than ``size`` of ``count`` independent events of a chance ``share`` come about.

    Rounded up, by 1e-15 of it at most; where it is smaller than any float, to the smallest.
    """
    if size >= count or not share:
        return 0.0
    if share == 1:
        return 1.0
    digits = Context(prec=DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)
    # the smaller side of the mean is added up: its terms fall from the first one on
    if size + 1 >= (count + 1) * share:
        chance = _tail(count, share, size + 1, digits)
    else:  # the other side, by what does not come about
        chance = digits.subtract(1, _tail(count, 1 - share, count - size, digits))
    chance = digits.multiply(chance, digits.add(1, SLACK))
    return min(1.0, nextafter(float(chance), inf))


def _tail(count: int, share: Fraction, first: int, digits: Context) -> Decimal:
    """The chance of ``first`` or more of so many events, where ``first`` is no less than the mean, about."""
    yes, all_ = (Decimal(number) for number in share.as_integer_ratio())
    no = digits.subtract(all_, yes)
    term = Decimal(1)
    for place in range(min(first, count - first)):  # the ways in which just so many come about
        term = digits.divide(digits.multiply(term, count - place), place + 1)
    for base, times in ((yes, first), (no, count - first)):
        term = digits.multiply(term, digits.power(digits.divide(base, all_), times))
    odds, total = digits.divide(yes, no), Decimal(0)
    for number in range(first, count + 1):
        total = digits.add(total, term)
        ratio = digits.multiply(digits.divide(count - number, number + 1), odds)
        term = digits.multiply(term, ratio)
        # ratios fall, so this one and what follows are below a geometric series
        if term < digits.multiply(digits.multiply(total, LEFT_OUT), digits.subtract(1, ratio)):
            break
    return total
