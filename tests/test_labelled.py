"""Draws of stages: their laws against exact ones, and that no two addresses share a number."""

from fractions import Fraction
from math import comb, exp
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fuaudit.draws import Address, Labelled, Purpose
from fuaudit.draws.labelled import _gaussian, _skellam, below, inverse, order
from fuaudit.errors import UsageError

KEY = bytes(range(32))


def at(round_number=1, step=3, client=0, occurrence=0, version=0, key=KEY):
    return Labelled(key, Address(Purpose.STAGE, round_number, step, client, occurrence, version))


ADDRESSES = st.tuples(*[st.integers(0, 3)] * 5)


@given(ADDRESSES, ADDRESSES, st.sampled_from("ab"), st.sampled_from("ab"), st.booleans())
def test_two_places_labels_or_keys_never_share_numbers(one, other, label, second, same_key):
    a = at(*one).integers(label, 2**31, 8)
    b = at(*other, key=KEY if same_key else KEY[::-1]).integers(second, 2**31, 8)
    assert np.array_equal(a, b) == ((one, label) == (other, second) and same_key)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 2**31))
def test_the_first_of_many_are_those_of_few(few, more, bound):
    many = few + more
    for name, rest in (("uniform", ()), ("normal", ()), ("integers", (bound,))):
        draw = getattr(at(), name)
        assert np.array_equal(draw("x", *rest, many)[:few], draw("x", *rest, few)), name
    for name in ("discrete_gaussian", "skellam"):
        draw = getattr(at(), name)
        assert np.array_equal(draw("x", Fraction(5), many)[:few], draw("x", Fraction(5), few)), name


def test_kinds_do_not_share_numbers():
    words = at()._words("uniform", "x", 4), at()._words("normal", "x", 4)
    assert not np.array_equal(*words)
    whole = at().discrete_gaussian("x", 10**6, 40), at().skellam("x", 10**6, 40)
    assert abs(stats.pearsonr(*whole).statistic) < 0.7


@pytest.mark.parametrize("variance", [Fraction(1, 100), Fraction(1, 2), Fraction(7, 2), Fraction(400)])
def test_the_discrete_gaussian_has_its_law(variance):
    drawn = at().discrete_gaussian("x", variance, 200_000)
    wide = int(12 * float(variance) ** 0.5) + 2
    values = np.arange(-wide, wide + 1)
    law = np.array([exp(-(int(x) ** 2) / (2 * float(variance))) for x in values])
    law /= law.sum()
    counts = np.array([(drawn == x).sum() for x in values])
    assert counts.sum() == len(drawn)
    often = law * len(drawn) >= 5
    expected = np.append(law[often], law[~often].sum()) * len(drawn)
    found = np.append(counts[often], counts[~often].sum())
    if len(found) > 2:
        assert stats.chisquare(found, expected).pvalue > 1e-4


LAWS = [Fraction(1, 100), Fraction(1, 2), Fraction(7, 2), Fraction(400)]


def by_poissons(variance):
    """Weights of 0, 1, 2 and so on of a Skellam law, as fractions: pairs of Poisson numbers with each difference."""
    mean, most = variance / 2, int(10 * float(variance) ** 0.5 + float(variance)) + 60
    weights = [Fraction(1)]
    for number in range(1, most):
        weights.append(weights[-1] * mean / number)
    scaled = [int(weight * 2**400) for weight in weights]
    return [sum(map(mul, scaled[x:], scaled)) for x in range(most)]


@pytest.mark.parametrize("variance", LAWS)
def test_skellam_numbers_have_their_law(variance):
    drawn = at().skellam("x", variance, 200_000)
    side = by_poissons(variance)
    wide = int(12 * float(variance) ** 0.5) + 2
    whole = 2 * sum(side) - side[0]
    values = np.arange(-wide, wide + 1)
    law = np.array([side[abs(int(x))] / whole for x in values])
    counts = np.array([(drawn == x).sum() for x in values])
    assert counts.sum() == len(drawn)
    often = law * len(drawn) >= 5
    expected = np.append(law[often], law[~often].sum()) * len(drawn)
    found = np.append(counts[often], counts[~often].sum())
    assert stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > 1e-4
    assert abs(drawn.var() / float(variance) - 1) < 0.2


@pytest.mark.parametrize("variance", LAWS)
def test_the_table_of_skellam_numbers_is_exact_to_a_hundred_bits(variance):
    """Against sums of products of Poisson weights, which are fractions."""
    high, low, first = _skellam(variance)
    side = by_poissons(variance)
    whole = 2 * sum(side) - side[0]
    below = Fraction(sum(side[-first + 1 :]))
    for place, x in enumerate(range(first, -first + 1)):
        below += side[abs(x)]
        written = Fraction((int(high[place]) << 64) + int(low[place]), 2**128)
        assert abs(written - below / whole) < Fraction(1, 2**100), x


def masses_of(table):
    """The probabilities of a table, ``(n,)``, and the first value."""
    high, low, first = table
    sums = [(int(h) << 64) + int(lo) for h, lo in zip(high, low, strict=True)]
    return np.diff([0, *sums]).astype(np.float64) / 2.0**128, first


def distance(one, other):
    """The total variation of two symmetric laws, given by their probabilities around 0."""
    wide = max(len(one), len(other))
    padded = [np.pad(law, (wide - len(law)) // 2) for law in (one, other)]
    return np.abs(padded[0] - padded[1]).sum() / 2


def test_sums_of_skellam_numbers_are_skellam_and_those_of_discrete_gaussians_are_none():
    """Two of variance 1/4 are as far as .08 from one of variance 1/2: so shares of noise are no discrete Gaussians."""
    quarter, half = (masses_of(_skellam(Fraction(1, n)))[0] for n in (4, 2))
    assert distance(np.convolve(quarter, quarter), half) < 1e-15
    quarter, half = (masses_of(_gaussian(Fraction(1, n)))[0] for n in (4, 2))
    assert distance(np.convolve(quarter, quarter), half) == pytest.approx(0.08, abs=0.005)


def test_the_table_of_the_gaussian_is_exact_to_a_hundred_bits():
    """Against sums of exact rational bounds: exp by its series, with an error below 2**-130."""
    variance = Fraction(3, 2)

    def power(x):  # exp(-x) for a fraction x, as a fraction
        halved, times = x, 0
        while halved > 1:
            halved, times = halved / 2, times + 1
        term, total = Fraction(1), Fraction(1)
        for number in range(1, 60):
            term = term * -halved / number
            total += term
        for _ in range(times):
            total *= total
            total = Fraction(round(total * 2**200), 2**200)
        return total

    masses = {x: power(Fraction(x * x) / (2 * variance)) for x in range(-30, 31)}
    whole = sum(masses.values())
    high, low, first = _gaussian(variance)
    below = Fraction(0)
    for x in range(-30, -first + 1):
        below += masses[x]
        if (place := x - first) < 0:
            continue
        written = Fraction((int(high[place]) << 64) + int(low[place]), 2**128)
        assert abs(written - below / whole) < Fraction(1, 2**100), x


def test_the_binomial_has_its_law():
    drawn = [at(client=client).binomial("x", 5, Fraction("0.3")) for client in range(20_000)]
    law = [comb(5, k) * 0.3**k * 0.7 ** (5 - k) for k in range(6)]
    counts = np.bincount(drawn, minlength=6)
    assert stats.chisquare(counts, np.array(law) * len(drawn)).pvalue > 1e-4
    assert at().binomial("x", 7, Fraction(1)) == 7
    assert at().binomial("x", 7, Fraction(0)) == 0


def test_subsets_and_permutations_are_fair():
    subsets = [tuple(at(client=client).subset("x", 5, 2).tolist()) for client in range(10_000)]
    _, counts = np.unique(subsets, axis=0, return_counts=True)
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-4
    orders = [tuple(at(client=client).permutation("x", 3).tolist()) for client in range(6_000)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


def attempts(*words):
    """Words of each attempt."""
    return lambda attempt: np.array(words[attempt], dtype=np.uint64)


def test_words_that_would_favour_small_numbers_are_drawn_anew_in_their_place():
    last = 2**64 - 1  # 2**64 is one more than a multiple of 3
    assert below(3, attempts((last, 5), (last, 7), (4, 9))).tolist() == [1, 2]
    assert below(2, attempts((last, 6))).tolist() == [1, 0]


def test_equal_words_give_no_order():
    assert order(attempts((3, 3, 1), (7, 8, 7), (5, 2, 9))).tolist() == [1, 0, 2]


def test_low_words_decide_where_high_ones_are_equal():
    table = np.array([(10, 5), (10, 7), (20, 0), (2**64 - 1, 2**64 - 1)], dtype=np.uint64)
    words = [(9, 9), (10, 4), (10, 5), (10, 6), (10, 7), (20, 0), (2**64 - 1, 2**64 - 1)]
    found = inverse(table[:, 0], table[:, 1], np.array(words, dtype=np.uint64))
    assert found.tolist() == [0, 0, 1, 1, 2, 3, 3]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: at().integers("x", 0, 1),
        lambda: at().integers("x", 2**31 + 1, 1),
        lambda: at().subset("x", 3, 4),
        lambda: at().binomial("x", 3, Fraction(3, 2)),
        lambda: at().binomial("x", 3, float("nan")),
        lambda: at().discrete_gaussian("x", Fraction(0), 1),
        lambda: at().discrete_gaussian("x", Fraction(2**28 + 1), 1),
        lambda: at().skellam("x", Fraction(0), 1),
        lambda: at().skellam("x", Fraction(2**28 + 1), 1),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(UsageError):
        draw()
