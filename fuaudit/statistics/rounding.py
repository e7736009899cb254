"""Rounding of bounds: a bound that is rounded to the nearest number would claim too much half of the time."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import isfinite


def up(value: float, digits: int = 2) -> str:
    """A number in so many significant digits, rounded up: what is below ``value`` is below what is printed too."""
    return _rounded(value, digits, ROUND_CEILING)


def down(value: float, digits: int = 2) -> str:
    """A number in so many significant digits, rounded down: what is above ``value`` is above what is printed too."""
    return _rounded(value, digits, ROUND_FLOOR)


def rate_up(alpha: float) -> str:
    """An error rate, rounded up in its fourth digit; the last bits of a sum count as rounding."""
    return up(float(f"{alpha:.12g}"), 4)


def confidence(alpha: float) -> str:
    """``1 - alpha`` with all its digits: it is never 1, however small ``alpha`` is."""
    return f"{Context(prec=400, rounding=ROUND_FLOOR).subtract(Decimal(1), Decimal(f'{alpha:.12g}')):f}"


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not isfinite(value):
        return f"{value:g}"
    return f"{float(Context(prec=digits, rounding=rounding).plus(Decimal(repr(float(value))))):.{digits}g}"
