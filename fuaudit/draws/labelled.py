"""Labelled draws: what a stage of an exchange draws at its address, from a cryptographic stream.

Privacy can rest on these numbers, so nobody without the key may tell them from fair ones. The stream is SHAKE-256
(FIPS 202) of key, address, label and kind. A key in front makes it a pseudorandom function (Bertoni, Daemen, Peeters,
Van Assche: "On the security of the keyed sponge construction", 2011). So no two addresses, labels or kinds share a
number, and the same label asked for twice gives the same numbers.

Everything but ``normal`` is whole numbers or comparisons of them, so the bits are the same everywhere. What ``normal``
gives is rounded: differential privacy that shall hold for the bits (Mironov, CCS 2012) needs ``discrete_gaussian``, or
``skellam``, whose sums are of the same kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, count
from math import asinh, ceil, hypot, isqrt, log

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws.address import Address
from fuaudit.errors import UsageError

Ids = NDArray[np.int64]
Words = NDArray[np.uint64]
MOST_BOUND = 2**31
"""Bounds, and numerators and denominators of probabilities, are at most this: products then stay exact."""


class Labelled:
    """Draws at one address under a key of 32 bytes, each by its ``label``. The key is not kept under a name."""

    __slots__ = ("_stream",)

    def __init__(self, key: bytes, at: Address) -> None:
        def stream(kind: str, label: str, count: int, attempt: int) -> Words:
            texts = [text.encode() for text in (at.purpose.value, kind, label)]
            numbers = [*(number + 1 for number in at[1:]), attempt]
            said = b"".join(len(text).to_bytes(8, "little") + text for text in texts)
            said += b"".join(number.to_bytes(8, "little") for number in numbers)
            drawn = hashlib.shake_256(b"fuaudit stage draws" + key + said).digest(8 * count)
            return np.frombuffer(drawn, dtype="<u8").astype(np.uint64)

        self._stream: Callable[[str, str, int, int], Words] = stream

    def __repr__(self) -> str:
        return "<draws>"

    def _words(self, kind: str, label: str, count: int, attempt: int = 0) -> Words:
        """``count`` words of 64 bits; the first of many are those of few."""
        return self._stream(kind, label, count, attempt)

    def uniform(self, label: str, count: int) -> NDArray[np.float64]:
        """Multiples of 2**-53 in [0, 1), ``(count,)``."""
        return (self._words("uniform", label, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, label: str, bound: int, count: int) -> Ids:
        """Whole numbers from 0 to ``bound`` - 1, ``(count,)``. UsageError for a bound above :data:`MOST_BOUND`."""
        return self._integers("integers", label, bound, count)

    def _integers(self, kind: str, label: str, bound: int, count: int) -> Ids:
        if not 1 <= bound <= MOST_BOUND:
            raise UsageError(f"a stage draws below a bound from 1 to {MOST_BOUND:,}, not {bound:,}")
        return below(bound, lambda attempt: self._words(kind, label, count, attempt))

    def normal(self, label: str, count: int) -> NDArray[np.float64]:
        """Standard normal numbers, ``(count,)``, by the inverse of their distribution function; rounded."""
        from scipy.special import ndtri

        # the middles of 2**53 intervals: the inverse is infinite at 0
        words = self._words("normal", label, count) >> np.uint64(11)
        numbers: NDArray[np.float64] = ndtri((words.astype(np.float64) + 0.5) * 2.0**-53)
        return numbers

    def permutation(self, label: str, size: int) -> Ids:
        """The numbers 0 to ``size`` - 1 in a uniform order: the ranks of distinct words."""
        return self._order("permutation", label, size)

    def _order(self, kind: str, label: str, size: int) -> Ids:
        return order(lambda attempt: self._words(kind, label, size, attempt))

    def subset(self, label: str, size: int, count: int) -> Ids:
        """``count`` of the numbers 0 to ``size`` - 1, ascending; every subset is equally likely."""
        if not 0 <= count <= size:
            raise UsageError(f"no {count} of {size} can be drawn")
        return np.sort(self._order("subset", label, size)[:count])

    def binomial(self, label: str, trials: int, probability: Fraction | float) -> int:
        """How many of ``trials`` succeed: the trials themselves are drawn, so the law is exact.

        A float is the decimal that it is written as: 0.1 is one tenth.

        Raises:
            UsageError: no probability, or one whose denominator is above :data:`MOST_BOUND`.
        """
        exact = _fraction(probability)
        if not 0 <= exact <= 1:
            raise UsageError(f"a probability is from 0 to 1, not {probability}")
        return int((self._integers("binomial", label, exact.denominator, trials) < exact.numerator).sum())

    def discrete_gaussian(self, label: str, variance: Fraction | float, count: int) -> Ids:
        """Whole numbers x with probabilities in proportion to exp(-x^2 / (2 variance)), ``(count,)``.

        By inversion: 128 bits a number, against a table of the distribution function. The law is within 2**-100 of the
        discrete Gaussian in total variation (Canonne, Kamath, Steinke, NeurIPS 2020, tell what it is good for).

        Raises:
            UsageError: the variance is not above 0, or above :data:`WIDEST`.
        """
        return self._by_table("discrete gaussian", _gaussian(_within(variance)), label, count)

    def skellam(self, label: str, variance: Fraction | float, count: int) -> Ids:
        """Differences of two Poisson numbers of mean variance / 2 each, ``(count,)``: whole numbers around 0.

        The sum of independent ones has this law too, with the sum of the variances (Skellam, 1946). By inversion, as
        :meth:`discrete_gaussian`: the law is within 2**-100 of it in total variation.

        Raises:
            UsageError: the variance is not above 0, or above :data:`WIDEST`.
        """
        return self._by_table("skellam", _skellam(_within(variance)), label, count)

    def _by_table(self, kind: str, table: tuple[Words, Words, int], label: str, count: int) -> Ids:
        """Numbers by inversion: two words each, against 128 bits of the distribution function."""
        high, low, first = table
        return inverse(high, low, self._words(kind, label, 2 * count).reshape(count, 2)) + first


def below(bound: int, words: Callable[[int], Words]) -> Ids:
    """Uniform numbers below a bound from uniform words, which each attempt has of its own.

    A word above the largest multiple of the bound is drawn anew, in its place.
    """
    limit, found = np.uint64(2**64 - 1 - 2**64 % bound), words(0)
    for attempt in count(1):
        if not (rejected := found > limit).any():
            break
        found = np.where(rejected, words(attempt), found)
    return (found % np.uint64(bound)).astype(np.int64)


def order(words: Callable[[int], Words]) -> Ids:
    """The ranks of the first attempt's words that are distinct: then every order is equally likely."""
    for attempt in count():
        found = words(attempt)
        ranks = np.argsort(found, kind="stable")
        if (np.diff(found[ranks]) > 0).all():
            break
    return ranks


def inverse(high: Words, low: Words, words: Words) -> Ids:
    """Where pairs of words ``(n, 2)`` first lie below a table of ascending pairs; past all but the last, there."""
    places = np.searchsorted(high, words[:, 0], side="left")
    # equal high words: the low ones decide
    while (behind := (high[places] == words[:, 0]) & (low[places] <= words[:, 1]) & (places < len(high) - 1)).any():
        places += behind
    return places.astype(np.int64)


def _fraction(number: Fraction | float) -> Fraction:
    """A number as it is written, as a fraction; UsageError for what is none."""
    try:
        return number if isinstance(number, Fraction) else Fraction(str(number))
    except ValueError:
        raise UsageError(f"{number} is no number") from None


WIDEST = 2**28
"""The largest variance of a table: it has 400 thousand entries, and takes seconds to make."""


def _within(variance: Fraction | float) -> Fraction:
    """A variance as it is written; UsageError for one that no table is made of."""
    exact = _fraction(variance)
    if not 0 < exact <= WIDEST:
        raise UsageError(f"a variance is above 0 and at most {WIDEST:,}, not {variance}")
    return exact


@lru_cache(maxsize=8)
def _gaussian(variance: Fraction) -> tuple[Words, Words, int]:
    """128 bits of the distribution function of a discrete Gaussian, as two words each, and the first value.

    Neighbouring probabilities have the ratio exp(-(2x + 1) / (2 variance)), so products in fixed point give all.
    """
    with localcontext() as exact:
        exact.prec = 110
        over = Decimal(variance.denominator) / Decimal(variance.numerator)
        # beyond this value lies less than 2**-110
        last = isqrt(ceil(155 * variance)) + 1
        ratio, step = (int((-over * share).exp() * 2**BITS) for share in (Decimal("0.5"), Decimal(1)))
    one_side = [1 << BITS]
    for _ in range(last):
        one_side.append(one_side[-1] * ratio >> BITS)
        ratio = ratio * step >> BITS
    return _distribution(one_side)


@lru_cache(maxsize=8)
def _skellam(variance: Fraction) -> tuple[Words, Words, int]:
    """128 bits of the distribution function of a Skellam law, as two words each, and the first value.

    Probabilities are in proportion to modified Bessel functions, I(x - 1) = I(x + 1) + 2x / variance I(x). From a
    far x downwards nothing is subtracted, and what is wrong at the beginning dies out (Miller's algorithm).
    """
    # by Chernoff's bound less than 2**-110 lies beyond
    last = _beyond(variance, 110 * log(2)) + 1
    above, one_side = 0, [1 << BITS]
    for x in range(last, 0, -1):
        here = one_side[-1]
        above, before = here, above + here * (2 * x * variance.denominator) // variance.numerator
        one_side.append(before)
    return _distribution(one_side[::-1])


def _beyond(variance: Fraction, nats: float) -> int:
    """The least x beyond which a Skellam number lies with a chance below exp(-nats), on either side alone."""
    mu, x = float(variance), 1
    # bound and number grow together, and so the first power of two that is enough is at most twice what is needed
    while x * asinh(x / mu) - x * x / (hypot(x, mu) + mu) < nats:
        x *= 2
    low, high = x // 2, x
    while high - low > 1:
        x = (low + high) // 2
        enough = x * asinh(x / mu) - x * x / (hypot(x, mu) + mu) >= nats
        low, high = (low, x) if enough else (x, high)
    return high


def _distribution(one_side: list[int]) -> tuple[Words, Words, int]:
    """The table of a symmetric law, from numbers in proportion to the probabilities of 0, 1, 2 and so on."""
    masses = one_side[:0:-1] + one_side
    total, below = sum(masses), accumulate(masses)
    sums = [min((mass << 128) // total, 2**128 - 1) for mass in below]
    halves = np.array([(s >> 64, s & (2**64 - 1)) for s in sums], dtype=np.uint64)
    return halves[:, 0], halves[:, 1], 1 - len(one_side)


BITS = 320
"""Of the fixed point in which tables are made."""
