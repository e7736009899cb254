"""Rounding: measured figures are stored with few digits, so that nothing else can lie in those below.

Two platforms measure one model with differences that are smaller than the last digit kept. Where a figure lies between
two that can be written, it can come out as either.
"""

from __future__ import annotations

DIGITS = 4
"""Significant digits of a figure. One in the last is at least 1e-4 of it, which no two platforms came near."""


def rounded(figure: float) -> float:
    """The figure as it is stored: infinite where it is larger than any such number; zero has no sign."""
    return float(f"{figure:.{DIGITS - 1}e}") + 0.0


def is_rounded(figure: float) -> bool:
    """Whether a number is one that is stored."""
    return repr(figure) == repr(rounded(figure))  # by its text: a zero with a sign is equal to one without


def are_neighbours(a: float, b: float) -> bool:
    """Whether two stored figures differ, and no other lies between them; zero has no neighbour."""
    return bool(a and b) and (a > 0) == (b > 0) and abs(_place(a) - _place(b)) == 1


def _place(figure: float) -> int:
    """Where the size of a figure other than zero stands among those that can be stored."""
    digits, exponent = f"{abs(figure):.{DIGITS - 1}e}".split("e")
    first = int(10 ** (DIGITS - 1))
    return int(exponent) * 9 * first + int(digits.replace(".", "")) - first
