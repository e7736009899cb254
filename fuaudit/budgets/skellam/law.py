"""One round of whole numbers with Skellam noise, as far as an account needs it.

Skellam noise of variance v is the difference of two Poisson numbers of mean v / 2 each. Sums of it are of the same
kind, which sums of discrete Gaussians are not. So clients can add it in shares behind a sum of whole numbers.

*Source*: Agarwal, Kairouz and Liu, The Skellam Mechanism for Differentially Private Federated Learning, NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from math import asinh, exp, frexp, hypot, isqrt, ldexp, log
from typing import NamedTuple

from fuaudit.errors import UsageError
from fuaudit.text import counted

TABLE = 2.0**-100
"""In total variation, how far a number that is drawn can be from its law."""
MOST = 2**62
"""Sums of squares are below it: they fit into the whole numbers that rows are made of."""
LEAST_NOISE = Fraction(1, 10**6)
"""With less no epsilon says anything, and floats overflow."""


@dataclass(frozen=True)
class Skellam:
    """Rows of whole numbers, and one client's own share of Skellam noise on each number.

    Args:
        squares: the largest sum of squares of a row: the square of what one client can change, in steps.
        dim: numbers of a row, at least 1.
        noise: the standard deviation of a share, a multiple of the root of ``squares``, from
            1e-6 to 1e6.

    Raises:
        UsageError: there can be no such rows.
    """

    squares: int
    dim: int
    noise: Fraction

    def __post_init__(self) -> None:
        if not (1 <= self.squares < MOST and 1 <= self.dim < MOST and LEAST_NOISE <= self.noise <= 1 / LEAST_NOISE):
            raise UsageError(
                f"whole numbers with noise need squares and a dim from 1 to {MOST:,}, and noise from "
                f"{float(LEAST_NOISE):g} to {float(1 / LEAST_NOISE):g}"
            )

    @classmethod
    def rounded(cls, reach: Fraction, dim: int, noise: Fraction) -> Skellam:
        """Rows of a norm of at most ``reach`` steps, rounded to whole numbers whose squares sum up to no more.

        Rounded up or down by lot, the squares of a row sum up to ``reach``² + dim / 4 on average, at most. With a
        chance of .39 and more they are below the limit that is taken here (Kairouz, Liu and Steinke, The Distributed
        Discrete Gaussian Mechanism, ICML 2021), and never above (reach + sqrt(dim))². Whoever rounds does it again
        until they are.
        """
        root = isqrt(dim - 1) + 1
        usual = reach**2 + Fraction(dim, 4) + reach + Fraction(root, 2)
        return cls(max(1, int(min(usual, (reach + root) ** 2))), dim, noise)

    @property
    def variance(self) -> Fraction:
        """Of one share."""
        return self.noise**2 * self.squares

    @property
    def longest(self) -> int:
        """The largest sum of absolute values of a row: of whole numbers each is at most its square."""
        return min(self.squares, isqrt(self.dim * self.squares))

    def beyond(self, largest: int) -> float:
        """The chance that any number of one share lies outside -largest .. largest, at most.

        By Chernoff's bound: a Skellam number of variance v is x or more with a chance of at most
        exp(-x asinh(x / v) + sqrt(x² + v²) - v).
        """
        x, variance = largest + 1 - isqrt(self.squares), float(self.variance)
        if x <= 0:
            return 1.0
        nats = x * asinh(x / variance) - x * x / (hypot(x, variance) + variance)
        return min(1.0, 2 * exp(min(0.0, log(self.dim) - nats * (1 - 1e-12))) * (1 + 1e-12))

    def renyi(self, order: int, shares: int = 1) -> float:
        """The Renyi divergence of a whole order of 2 and more, at most, where so many shares are not known.

        The paper's bound for vectors. The row is any of whole numbers whose squares sum up to ``squares``, or zero.
        """
        squares, sums = float(self.squares), float(self.longest)
        variance = float(self.variance) * shares
        more = min(((2 * order - 1) * squares + 6 * sums) / (4 * variance**2), 3 * sums / (2 * variance))
        return (order * squares / (2 * variance) + more) * (1 + 1e-14)


class Fitting(NamedTuple):
    """What shares are made of that fit into a field of so many bits.

    Attributes:
        step: a power of two, in which numbers are whole ones.
        largest: the largest whole number of the field.
        law: of the whole numbers.
    """

    step: float
    largest: int
    law: Skellam


def fitting(norm: float, bits: int, dim: int, noise: Fraction) -> Fitting:
    """The smallest step with which a share leaves its field with a chance of at most :data:`CHANCE` in a round.

    Args:
        norm: the longest row before rounding, above 0.
        bits: of a number, one of which is the sign; 2 to 18.
        dim: numbers of a row.
        noise: the deviation of a share, a multiple of the root of ``law.squares``; its variance is ``law.variance``.

    Raises:
        UsageError: no norm within 1e-30 and 1e30, no such bits, or not even a norm of one step fits.
    """
    if not 1 / LARGEST_NORM <= norm <= LARGEST_NORM:
        raise UsageError(f"a norm is from {1 / LARGEST_NORM:g} to {LARGEST_NORM:g}, not {norm}")
    if not 2 <= bits <= BITS:
        raise UsageError(f"numbers have 2 to {BITS} bits, not {bits}")
    largest, found = (1 << bits - 1) - 1, None
    for exponent in count(frexp(norm)[1] - 1, -1):
        step = ldexp(1.0, exponent)
        law = Skellam.rounded(Fraction(norm) / Fraction(step), dim, noise)
        if law.beyond(largest) > CHANCE:
            break
        found = Fitting(step, largest, law)
    if found is None:
        raise UsageError(
            f"{bits} bits hold no rows of {counted(dim, 'number')} with noise {float(noise):g}: their shares would "
            "leave the field too often",
            "Take more bits, or less noise.",
        )
    return found


CHANCE = 2.0**-64
"""With which a share may leave its field in a round, at most."""
BITS = 18
"""Of a number, at most: then every variance is one that numbers can be drawn of."""
LARGEST_NORM = 1e30
"""And one over it the smallest: then all numbers that are sent are normal ones, also of 32 bits."""
