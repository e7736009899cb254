"""Budgets: one round against all draws of the mechanism, many rounds against all sums, and what the paper prints."""

import itertools
import json
import math
import re
import sys
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from fuaudit.budgets import statement as statements
from fuaudit.budgets.compose import composed, optimal
from fuaudit.budgets.conspar.account import COARSE, account, decimal_text
from fuaudit.budgets.conspar.law import ConSpar, decimal, epsilon, growth_by_sum, growths, probability
from fuaudit.budgets.conspar.losses import hits, losses, overlaps
from fuaudit.budgets.conspar.printed import appendix, theorem2, theorem2_is_bound
from fuaudit.budgets.conspar.targets import Asked, answer, for_alpha, for_per_client, for_rounds
from fuaudit.budgets.losses import Losses
from fuaudit.budgets.statement import meaning
from fuaudit.errors import UsageError

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import conspar_budget as paper

ALPHAS = [Fraction(text) for text in ("1e-9", "1/100", "1/10", "1/4", "1/3", "1/2", "3/4", "95/100", "999/1000", "1")]
SMALL = [(d, k) for d in range(2, 9) for k in range(1, min(5, d))]


def sent(d, k, alpha, top, binomial=None, from_all=False):
    """The law of the sent set by all draws: how many are given up, which are kept, which are drawn instead.

    Two faults can be planted: the number given up is binomial of another size, and the others are drawn from all of d.
    """
    law, size = defaultdict(Fraction), k if binomial is None else binomial
    for given_up in range(size + 1):
        chance = math.comb(size, given_up) * alpha**given_up * (1 - alpha) ** (size - given_up)
        for kept in itertools.combinations(top, k - given_up):
            others = range(d) if from_all else [each for each in range(d) if each not in kept]
            ways = chance / math.comb(k, given_up) / math.comb(len(others), given_up)
            for drawn in itertools.combinations(others, given_up):
                law[frozenset(kept + drawn)] += ways
    return law


def worst(one, other):
    """The largest ratio of two laws, as a fraction."""
    return max(one[each] / other[each] for each in one)


def log(ratio):
    """The log of a fraction of at least 1, with all digits of a float."""
    return math.log1p(float(ratio - 1)) if ratio < 2 else math.log(ratio.numerator) - math.log(ratio.denominator)


@pytest.mark.parametrize(("d", "k"), SMALL)
def test_equation_18_and_the_closed_form_are_what_the_draws_give(d, k):
    top = tuple(range(k))
    for alpha in ALPHAS:
        own = sent(d, k, alpha, top)
        assert sum(own.values()) == 1
        for found, chance in own.items():
            assert chance == probability(ConSpar(d, k, alpha), len(found.intersection(top)))
        for h in range(1, min(k, d - k) + 1):
            ratio = worst(own, sent(d, k, alpha, tuple(range(h, k + h))))
            assert ratio == 1 / left_of(d, k, alpha, h)
            assert epsilon(ConSpar(d, k, alpha, h)) == pytest.approx(log(ratio), rel=1e-13, abs=0)


def left_of(d, k, alpha, h):
    """The mean of (k - B)(k - 1 - B)../(k (k - 1)..), h factors each, for B ~ Binomial(d, 1 - alpha), given B <= k."""
    chances = [math.comb(d, b) * (1 - alpha) ** b * alpha ** (d - b) for b in range(k + 1)]
    return sum(c * Fraction(math.comb(k - b, h), math.comb(k, h)) for b, c in enumerate(chances)) / sum(chances)


@pytest.mark.parametrize("fault", [{"binomial": 2}, {"from_all": True}])
def test_planted_faults_are_seen(fault):
    d, k, alpha = 6, 3, Fraction(1, 3)
    wrong, other = (sent(d, k, alpha, top, **fault) for top in ((0, 1, 2), (1, 2, 3)))
    exact = probability(ConSpar(d, k, alpha), 3)
    assert wrong[frozenset((0, 1, 2))] != exact
    assert log(worst({each: wrong[each] for each in wrong if other[each]}, other)) != pytest.approx(
        epsilon(ConSpar(d, k, alpha)), rel=1e-3
    )


@pytest.mark.parametrize(("alpha", "h"), [("0.5", 1), ("0.99", 1), ("0.9991", 3), ("0.9999999", 2), ("1e-12", 1)])
def test_large_numbers_have_all_their_digits(alpha, h):
    """Ten million of a thousand million coordinates, against forty digits; at 0.99 the binomial has its mean at k."""
    d, k, chance = 10**9, 10**7, decimal(alpha)
    with mpmath.workdps(40):
        odds = mpmath.mpf((1 - chance).numerator) / chance.numerator
        b = mode = min(k, math.floor((d + 1) * (1 - chance)))
        weight, rest, total = mpmath.mpf(1), mpmath.mpf(0), mpmath.mpf(0)
        for step in (-1, 1):
            b, weight = mode + (step > 0), mpmath.mpf(1) if step < 0 else (d - mode) * odds / (mode + 1)
            while 0 <= b <= k and (weight > 1e-30 or abs(b - mode) < 60):
                rest, total = rest + weight * math.comb(k - b, h), total + weight
                weight *= b / ((d - b + 1) * odds) if step < 0 else (d - b) * odds / (b + 1)
                b += step
        share = rest / total / math.comb(k, h)
        exact = -mpmath.log(share)
    assert epsilon(ConSpar(d, k, chance, h)) == pytest.approx(float(exact), rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("d", "k", "alpha", "low"), [(10**6, 5 * 10**5, "0.9", 275_000), (1000, 900, "0.1", 850), (270_000, 422, "0.5", 0)]
)
def test_neighbours_follow_from_each_other(d, k, alpha, low):
    mechanism = ConSpar(d, k, decimal(alpha))
    found = growths(mechanism, low, min(k, low + 400))
    for u in range(low, low + len(found), 7):
        assert found[u - low] == pytest.approx(growth_by_sum(mechanism, u), rel=1e-11, abs=0)


def exact_losses(d, k, alpha, h):
    """Outcomes by their probabilities under both sets."""
    one, other = (sent(d, k, alpha, range(i, k + i)) for i in (0, h))
    return [(one[each], other[each]) for each in one]


def curve(pairs, bound):
    """The hockey-stick divergence: by how much one side exceeds ``bound`` times the other."""
    return sum(max(Fraction(0), p - bound * q) for p, q in pairs)


@pytest.mark.parametrize(("d", "k"), [(6, 3), (7, 3), (8, 4)])
@pytest.mark.parametrize("alpha", [Fraction(1, 10), Fraction(2, 3)])
def test_sets_that_differ_in_more_dominate(d, k, alpha):
    """Curves have straight pieces, so it is enough to look at their corners; and no side is worse than the other."""
    laws = {h: exact_losses(d, k, alpha, h) for h in range(1, min(k, d - k) + 1)}
    corners = {p / q for pairs in laws.values() for p, q in pairs}
    for bound in corners:
        curves = [curve(pairs, bound) for pairs in laws.values()]
        assert curves == sorted(curves)
        assert curves == [curve([(q, p) for p, q in pairs], bound) for pairs in laws.values()]


@pytest.mark.parametrize(("d", "k", "h"), [(4, 2, 1), (6, 3, 2), (8, 4, 4), (7, 5, 2), (2, 1, 1)])
def test_the_law_of_the_loss_is_that_of_all_outcomes(d, k, h):
    alpha = Fraction(2, 5)
    expected, found = defaultdict(float), defaultdict(float)
    for p, q in exact_losses(d, k, alpha, h):
        expected[round(log(p / q) if p >= q else -log(q / p), 9) + 0.0] += float(p)
    law = losses(ConSpar(d, k, alpha, h))
    for value, mass in zip(law.values, law.masses, strict=True):
        found[round(value, 9) + 0.0] += mass
    assert found == pytest.approx(expected, rel=1e-12, abs=0)


def test_windows_leave_out_nothing_that_counts():
    d, k, alpha = 400, 60, Fraction(1, 2)
    low, high = overlaps(ConSpar(d, k, alpha))
    assert (low, high) == (0, 60)
    law = losses(large := ConSpar(10**6, 10**4, alpha))
    low, high = overlaps(large)
    assert 3900 < low < 5000 < high < 6200
    assert law.masses.sum() == pytest.approx(1, abs=1e-13)
    assert law.masses @ np.exp(-law.values) == pytest.approx(1, abs=1e-12)
    assert law.masses @ (law.values > 0) == pytest.approx(kept_alone(large), rel=1e-9)


def kept_alone(mechanism):
    """The chance that one top coordinate is sent, and one other is not: kept, or given up and drawn."""
    d, k, alpha = mechanism.dim, mechanism.per_client, float(mechanism.alpha)
    kept = np.arange(k + 1)
    hit = (k - kept) / (d - kept)
    alone = kept / k * (1 - hit) + (1 - kept / k) * hit * (1 - (k - kept - 1) / (d - kept - 1))
    return stats.binom.pmf(kept, k, 1 - alpha) @ alone


def test_masses_that_underflow_are_left_out():
    """The library divides by the smallest of them, and a warning is an error here."""
    law = losses(mechanism := ConSpar(10**9, 30, Fraction(99, 100), 30))
    assert law.masses.min() > 0
    assert 0 < law.left_out < 1e-25
    assert account(mechanism, 100, 1e-5, COARSE).exact.low > 100


def test_hits_are_those_of_drawing_without_replacement():
    for drawn in range(8):
        found = [float(chance[0]) for chance in hits(7, 3, np.array([drawn]))]
        ways = [math.comb(3, i) * math.comb(4, drawn - i) if i <= drawn else 0 for i in range(4)]
        assert found == pytest.approx([each / math.comb(7, drawn) for each in ways], abs=1e-15)


def all_sums(pairs, rounds):
    """Outcomes of so many rounds by their probabilities under both sets, those of one ratio together."""
    merged = defaultdict(lambda: (Fraction(0), Fraction(0)))
    for p, q in pairs:
        merged[p / q] = (merged[p / q][0] + p, merged[p / q][1] + q)
    total = {Fraction(1): (Fraction(1), Fraction(1))}
    for _ in range(rounds):
        grown = defaultdict(lambda: (Fraction(0), Fraction(0)))
        for (a, (p, q)), (b, (r, s)) in itertools.product(total.items(), merged.items()):
            grown[a * b] = (grown[a * b][0] + p * r, grown[a * b][1] + q * s)
        total = grown
    return list(total.values())


def smallest(pairs, delta):
    """The smallest epsilon at delta: on a straight piece of the curve."""
    pairs = sorted(pairs, key=lambda pair: pair[0] / pair[1])
    upper = lower = Fraction(0)
    while pairs and (lower == 0 or upper - delta < pairs[-1][0] / pairs[-1][1] * lower):
        p, q = pairs.pop()
        upper, lower = upper + p, lower + q
    bound = (upper - delta) / lower
    return log(bound) if bound > 1 else 0.0


@pytest.mark.parametrize(
    ("d", "k", "alpha", "h", "rounds"),
    [(4, 2, "0.5", 1, 6), (6, 3, "0.9", 2, 4), (5, 2, "0.05", 2, 3), (8, 4, "0.99", 1, 4), (6, 3, "0.5", 3, 1)],
)
@pytest.mark.parametrize("delta", [0.2, 1e-5])
def test_the_bracket_contains_the_composition_by_hand(d, k, alpha, h, rounds, delta):
    exact = smallest(all_sums(exact_losses(d, k, decimal(alpha), h), rounds), Fraction(delta))
    found = composed(losses(ConSpar(d, k, decimal(alpha), h)), rounds, delta, 2**13)
    assert found.low <= exact <= found.high
    assert found.high - found.low < 0.002 * exact + 1e-6


def test_one_direction_is_both_for_the_library_too():
    """Asked for one direction alone, which is its default, the library would miss the worse one of another pair."""
    pairs = exact_losses(6, 3, Fraction(2, 3), 2)
    laws = [dict(enumerate(math.log(pair[side]) for pair in pairs)) for side in (0, 1)]
    both, one, other = (
        pld.from_two_probability_mass_functions(*pair, value_discretization_interval=1e-3, symmetric=alone)
        for pair, alone in ((laws, False), (laws, True), (laws[::-1], True))
    )
    totals = [each.self_compose(5).get_epsilon_for_delta(1e-5) for each in (both, one, other)]
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-9)
    found = composed(losses(ConSpar(6, 3, Fraction(2, 3), 2)), 5, 1e-5, COARSE)
    assert found.low < totals[0] < found.high + 5e-3
    uneven = [{i: math.log(x) for i, x in enumerate(law)} for law in ((0.5, 0.3, 0.2), (0.45, 0.33, 0.22))]
    missed, whole = (
        pld.from_two_probability_mass_functions(*uneven, symmetric=alone).self_compose(200).get_epsilon_for_delta(1e-5)
        for alone in (True, False)
    )
    assert missed < 0.99 * whole


def test_randomised_response_has_the_optimal_composition():
    """One of two coordinates is randomised response, whose composition no other with its epsilon exceeds."""
    mechanism = ConSpar(2, 1, Fraction(9, 10))
    for rounds, delta in ((10, 1e-3), (300, 1e-6)):
        best = optimal(epsilon(mechanism), rounds, delta)
        found = composed(losses(mechanism), rounds, delta, COARSE)
        assert found.low <= best <= found.high * (1 + 1e-9)
        assert found.high < best * 1.001
    large = ConSpar(2, 1, decimal("1e-13"))
    best = optimal(epsilon(large), 24, 1e-5)
    assert best > 720
    found = composed(losses(large), 24, 1e-5, COARSE)
    assert best * (1 - 1e-3) < found.low <= best <= found.high < best * (1 + 1e-3)


def test_optimal_composition_is_that_of_binomials():
    """Epsilon .1 a hundred times at 1e-6 by sums of binomials; and at numbers of rounds where the library overflows."""
    share = 1 / (1 + math.exp(-0.1))
    best = optimal(0.1, 100, 1e-6)
    chances = [math.comb(100, j) * share ** (100 - j) * (1 - share) ** j for j in range(101)]
    left = sum(c * -math.expm1(best - 0.1 * (100 - 2 * j)) for j, c in enumerate(chances) if 0.1 * (100 - 2 * j) > best)
    assert left == pytest.approx(1e-6, rel=1e-6)
    assert best == pytest.approx(4.7745676, abs=1e-6)
    assert optimal(0.1, 100_000, 1e-6) < optimal(0.1, 100_000, 1e-7) < 100_000 * 0.1
    assert optimal(0.1, 1, 0.0) == 0.1
    assert optimal(1e-3, 10, 0.5) == 0.0


def test_losses_on_the_grid_stay_where_they_are():
    """A loss that is a multiple of the cell shall not be rounded up by a whole cell, nor below zero overflow."""
    share = 1 / (1 + math.exp(-0.1))
    law = Losses(np.array([0.1, -0.1]), np.array([share, 1 - share]), 0.0)
    found = composed(law, 100, 1e-6, COARSE)
    assert found.low <= 4.7745676 < found.high < 4.7747
    wide = Losses(np.array([-800.0, 0.0, 0.5]), np.array([0.01, 0.9, 0.09]), 0.0)
    assert composed(wide, 1, 0.2, COARSE).high == 0.0


def test_what_the_transform_rounds_counts_against_delta():
    law = losses(ConSpar(1000, 10, Fraction(1, 2)))
    assert composed(law, 10, 1e-16, COARSE) is None
    found = account(ConSpar(1000, 10, Fraction(1, 2)), 10, 1e-16)
    assert found.exact is None
    assert "too small" in found.note
    assert found.total == found.optimal <= found.basic


def test_a_grid_is_never_wider_than_the_losses():
    """A coarser grid has less noise; on one with cells of 60 losses of 3 the bounds were 0 and 329,376."""
    found = composed(losses(ConSpar(9, 8, Fraction(1, 10))), 7904, 1e-9, COARSE)
    assert 0.9 * found.high < found.low <= found.high <= optimal(epsilon(ConSpar(9, 8, Fraction(1, 10))), 7904, 1e-9)


def test_sets_that_differ_in_very_many_are_composed_without_the_law():
    found = account(ConSpar(10**6, 10**4, Fraction(99, 100), 2000), 10, 1e-5)
    assert found.exact is None
    assert "too many overlaps" in found.note
    assert found.total == found.optimal


@pytest.mark.parametrize(("d", "k"), SMALL)
def test_what_the_paper_prints_is_a_bound_but_for_one_coordinate(d, k):
    for alpha in ALPHAS:
        mechanism = ConSpar(d, k, alpha)
        ratio = 1 / left_of(d, k, alpha, 1)
        printed = (1 + alpha) * k * (d - k + 1) / (2 * alpha)
        assert theorem2_is_bound(mechanism) == (printed >= ratio)
        assert math.exp(theorem2(mechanism)) == pytest.approx(float(printed), rel=1e-12)
        if alpha >= Fraction(1, 2):
            printed = 1 + mechanism.odds * (2**k + 1) * d**k
            assert appendix(mechanism) == pytest.approx(log(printed), rel=1e-12)
            assert printed >= ratio
        else:
            assert appendix(mechanism) is None
    assert k > 1 or theorem2_is_bound(ConSpar(d, k, Fraction(d, 3 * d - 2)))
    assert k > 1 or not theorem2_is_bound(ConSpar(d, k, Fraction(d, 3 * d - 2) - Fraction(1, 10**9)))


def test_the_appendix_does_not_overflow():
    assert appendix(ConSpar(10**9, 10**7, Fraction(1, 2))) == pytest.approx(10**7 * math.log(2e9), rel=1e-9)


def test_epsilon_falls_with_alpha_and_with_the_number_of_coordinates_and_grows_with_all_others():
    rising = [Fraction(i, 50) for i in range(1, 50)]
    for found in (
        [epsilon(ConSpar(300, 20, alpha, 3)) for alpha in rising],
        [epsilon(ConSpar(60, k, Fraction(4, 5), 2)) for k in range(2, 58)],
        [epsilon(ConSpar(d, 20, Fraction(4, 5), 2)) for d in range(200, 22, -1)],
        [epsilon(ConSpar(60, 20, Fraction(4, 5), h)) for h in range(20, 0, -1)],
    ):
        assert all(one > other for one, other in itertools.pairwise(found))
    assert epsilon(ConSpar(60, 20, Fraction(4, 5), 20)) < 20 * epsilon(ConSpar(60, 20, Fraction(4, 5)))


def test_alpha_is_the_decimal_that_is_written():
    assert decimal("0.1") == Fraction(1, 10)
    assert decimal(".95") == decimal("95e-2") == Fraction(19, 20)
    assert decimal_text(ConSpar(5, 2, decimal("0.99999999999999999999"))) == "0.99999999999999999999"
    assert decimal_text(ConSpar(5, 2, decimal("1e-3"))) == "0.001"
    assert decimal_text(ConSpar(5, 2, Fraction(1))) == "1"
    assert epsilon(ConSpar(10**6, 10, decimal("0.99999999999999999999"))) == pytest.approx(1e-15, rel=1e-9)
    for text in ("1.01", "-0.1", "nan", "1/3", "", ".", "1e-999999999", "2e0", "٣"):
        with pytest.raises(UsageError, match="alpha"):
            decimal(text)


@pytest.mark.parametrize("numbers", [(5, 5, 1), (5, 0, 1), (5, 2, 3), (5, 4, 2), (5, 2, 0), (10**13, 5, 1)])
def test_rounds_that_cannot_be_are_refused(numbers):
    d, k, h = numbers
    with pytest.raises(UsageError):
        ConSpar(d, k, Fraction(1, 2), h)


def test_targets_are_met_and_nothing_less_would_do():
    mechanism, delta, rounds = ConSpar(270_000, 422, decimal("0.9999")), 1e-5, 500
    found = for_rounds(mechanism, delta, 1.0)
    assert account(mechanism, found, delta, COARSE).total <= 1 < account(mechanism, found + 1, delta, COARSE).total
    found = for_alpha(mechanism, rounds, delta, 1.0)
    assert account(found, rounds, delta, COARSE).total <= 1
    less = ConSpar(270_000, 422, found.alpha - (1 - found.alpha) / 99)
    assert account(less, rounds, delta, COARSE).total > 1
    found = for_per_client(300, Fraction(19, 20), 1, 3, 0.0, 0.9)
    assert account(found, 3).total <= 0.9 < account(ConSpar(300, found.per_client - 1, Fraction(19, 20)), 3).total
    assert for_alpha(mechanism, rounds, 0.0, 0.0).alpha == 1
    with pytest.raises(UsageError, match="already"):
        for_rounds(ConSpar(300, 3, Fraction(1, 2)), 0.0, 0.5)
    with pytest.raises(UsageError, match="no number of coordinates"):
        for_per_client(300, Fraction(1, 2), 1, 3, 0.0, 0.5)


def test_what_is_missing_is_what_is_searched_for():
    whole = Asked(300, 20, Fraction(99, 100), 3, 1, 0.0)
    one = ConSpar(300, 20, Fraction(99, 100))
    assert answer(whole, None) == (one, 3)
    assert answer(replace(whole, rounds=None), 20) == (one, for_rounds(one, 0.0, 20.0))
    assert answer(replace(whole, alpha=None), 20) == (for_alpha(one, 3, 0.0, 20.0), 3)
    fewest = for_per_client(300, Fraction(99, 100), 1, 3, 0.0, 9.0)
    assert answer(replace(whole, per_client=None), 9.0) == (fewest, 3)
    for asked, target in (
        (whole, 1.0),
        (replace(whole, rounds=None), None),
        (replace(whole, rounds=None, alpha=None), 1.0),
        (replace(whole, rounds=None), math.inf),
        (replace(whole, rounds=None), -1.0),
    ):
        with pytest.raises(UsageError, match="target"):
            answer(asked, target)


@pytest.fixture
def said(fuaudit):
    def work(*arguments, expected=0):
        code, out, err = fuaudit("budget", "conspar", *arguments)
        assert code == expected, err
        return out if expected == 0 else err

    return work


SMALL_ONE = ("--dim", 1000, "--per-client", 10)


def test_what_is_printed_for_one_element_is_told_as_so_many_times_that(said):
    text = said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 20, "--differ", 3)
    assert "Theorem 2 prints for one element, 3 times: " in text
    assert "times" not in said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 20)


@pytest.mark.parametrize(("words", "delta"), [("0", "0"), ("1e-5", "1e-05"), ("1.0000004e-5", "1.00001e-05")])
def test_the_delta_that_is_told_is_never_smaller(said, words, delta):
    lines = said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 2, "--delta", words).splitlines()
    assert any(line.startswith("2 rounds: epsilon ") and line.endswith(f" at delta {delta}") for line in lines)


def test_the_command_says_exact_printed_and_composed(said):
    found = json.loads(said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 20, "--delta", "1e-5", "--json"))
    assert found["epsilon_per_round"] == pytest.approx(log(1 / left_of(1000, 10, Fraction(99, 100), 1)), rel=1e-12)
    assert found["epsilon_total_at_least"] < found["epsilon_total"] < found["epsilon_optimal"] < found["epsilon_basic"]
    assert found["theorem2_is_bound"] is True
    assert found["theorem2_per_round"] > found["epsilon_per_round"]
    assert (found["alpha"], found["rounds"], found["delta"], found["reason"]) == ("0.99", 20, 1e-5, None)
    assert {"delta", "unit", "adjacency", "adversary", "trust model", "sampling assumption", "accountant"} < set(
        found["statement"]
    )
    assert "dp-accounting" in found["statement"]["accountant"]
    text = said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 20, "--delta", "1e-5")
    for words in (
        "looser by",
        "the exact loss, composed: between",
        "Statement:",
        "without noise",
        "not on people's data",
    ):
        assert words in text
    assert len(said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 20, "-q").splitlines()) == 1


def test_no_guarantee_is_null_with_a_reason_and_words(said):
    arguments = (*SMALL_ONE, "--alpha", "0", "--rounds", 20, "--delta", "1e-5")
    found = json.loads(said(*arguments, "--json"))
    assert (found["epsilon_per_round"], found["epsilon_total"], found["theorem2_per_round"]) == (None, None, None)
    assert "no guarantee" in found["reason"]
    assert "20 rounds: no guarantee" in said(*arguments)
    found = json.loads(said(*SMALL_ONE, "--alpha", "1", "--rounds", 20, "--delta", "1e-5", "--json"))
    assert (found["epsilon_per_round"], found["epsilon_total"], found["appendix_per_round"]) == (0.0, 0.0, 0.0)
    assert found["epsilon_total_at_least"] == 0.0
    assert found["theorem2_per_round"] > 9
    assert found["statement"]["accountant"].endswith("sum over rounds")


def test_a_printed_value_below_the_exact_one_is_no_bound(said):
    arguments = ("--dim", 1000, "--per-client", 1, "--alpha", "0.2", "--rounds", 1)
    found = json.loads(said(*arguments, "--json"))
    assert found["theorem2_is_bound"] is False
    assert found["theorem2_per_round"] < found["epsilon_per_round"]
    assert "SMALLER than the exact value" in said(*arguments)


def test_a_target_says_what_was_found(said):
    found = json.loads(said(*SMALL_ONE, "--alpha", "0.999", "--target", "2", "--json"))
    assert found["found"] == "rounds"
    sought = said(*SMALL_ONE, "--rounds", 20, "--target", "2").splitlines()[0]
    assert re.fullmatch(r"found for epsilon 2: --alpha 0\.\d+; a client then gives up \S+ of its 10 top .*", sought)
    assert "1 round: epsilon" in said(*SMALL_ONE, "--alpha", "0.9")
    assert "may send 12 of 10 coordinates, so it sends all" in said(
        "--dim", 10, "--per-client", 12, "--alpha", "0.9", expected=2
    )
    assert found["epsilon_total"] <= 2 < found["epsilon_total"] + found["epsilon_per_round"]
    for arguments in (
        SMALL_ONE,
        (*SMALL_ONE, "--alpha", "0.9", "--rounds", 3, "--target", 1),
        (*SMALL_ONE, "--target", 1),
        (*SMALL_ONE, "--alpha", "0.9", "--target", -1),
        (*SMALL_ONE, "--alpha", "0.9", "--rounds", 3, "--delta", 1),
        (*SMALL_ONE, "--alpha", "0.9", "--rounds", 3, "--delta", 1e-320),
        (*SMALL_ONE, "--alpha", "0.9", "--rounds", 3, "--delta", "nan"),
        (*SMALL_ONE, "--alpha", "0.9", "--rounds", 100_001),
        (*SMALL_ONE, "--alpha", "0.9", "--rounds", 3, "--plot", "curve.txt"),
        (*SMALL_ONE, "--alpha", "0", "--rounds", 3, "--plot", "curve.svg"),
    ):
        said(*arguments, expected=2)


def test_a_plot_is_written(said, tmp_path, monkeypatch):
    monkeypatch.setattr("fuaudit.budgets.picture.POINTS", 3)
    said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 20, "--delta", "1e-5", "--plot", tmp_path / "curve.svg", "-q")
    assert "<svg" in (tmp_path / "curve.svg").read_text()


def test_the_library_is_asked_for_where_it_is_missing(said, monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.common", None)
    err = said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 20, "--delta", "1e-5", expected=2)
    assert "pip install 'fuaudit[budgets]'" in err
    said(*SMALL_ONE, "--alpha", "0.99", "--rounds", 20)


def test_words_for_an_epsilon_are_never_too_good():
    assert "50.00 %" in meaning(0.0, 0.0)
    assert "73.11 %" in meaning(1.0, 0.0)
    assert "73.14 %" in meaning(1.0, 1e-3)
    for total in (12.0, math.inf):
        assert meaning(total, 0.0).startswith("no guarantee")


def test_versions_of_what_is_not_installed_are_not_invented(monkeypatch):
    def missing(package):
        raise statements.PackageNotFoundError(package)

    monkeypatch.setattr(statements, "version", missing)
    found = account(ConSpar(9, 2, Fraction(1, 2)), 3)
    assert "of no known version" in found.as_json()["statement"]["accountant"]


@pytest.mark.thorough
def test_the_page_of_the_paper_s_setting_says_what_is_computed():
    page = paper.PAGE.read_text()
    lines, found = paper.by_alpha()
    assert len(lines) == 11
    for line in (*lines, *paper.by_ten(), paper.in_words(found)):
        assert line in page
