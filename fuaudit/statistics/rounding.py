"""Rounding of bounds: a bound that is rounded to the nearest number would claim too much half of the time."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal


def up(value: float, digits: int = 2) -> str:
    """A number in so many significant digits, rounded up: what is below ``value`` is below what is printed too."""
    if value != value or value in (float("inf"), float("-inf")):
        return f"{value:g}"
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(Decimal(repr(float(value))))):.{digits}g}"
