"""Batch tests: the values by plain formulas, exactness by enumeration of all swaps, calibration and power.

Sampling tests have fixed seeds; the rate at which a right implementation would fail them is written beside each.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom, ks_2samp, rankdata

from fuaudit.statistics.two_sample.batch import (
    BANDWIDTHS,
    TESTS,
    antisymmetric,
    batch_test,
    classifier_values,
    combined,
    energy_values,
    ks_values,
    mmd_values,
    normal_scores,
    ranked,
    swaps,
)

INF, NAN = math.inf, math.nan
FAMILIES = {
    "mmd": mmd_values,
    "energy": energy_values,
    "ks": ks_values,
    "classifier": lambda x, y, signs: classifier_values(x, y, signs)[0],
}
ONE = np.ones((1, 1), dtype=np.float32)


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


def arms(n, s=3, seed=1, shift=0.7):
    rng = generator(seed)
    return rng.normal(size=(n, s)) + shift, rng.normal(size=(n, s))


def identity(n):
    return np.ones((1, n), dtype=np.float32)


def every_swap(n):
    """All ways to swap n pairs, the data as they are first, ``(2**n, n)``."""
    return np.array(list(itertools.product([1, -1], repeat=n)), dtype=np.float32)


# --- the values ---------------------------------------------------------------------------------------------------


def plain_mmd(x, y, kernel):
    n = len(x)
    same = sum(kernel(a[i], a[j]) for a in (x, y) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    # pairs are independent runs, so the cross terms within a pair are left out too
    cross = sum(kernel(x[i], y[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    return same - 2 * cross


def test_mmd_and_energy_equal_plain_sums():
    x, y = arms(8)
    pooled = np.concatenate([x, y])
    pairs = list(itertools.combinations(pooled, 2))
    euclid = np.median([np.linalg.norm(a - b) for a, b in pairs])
    city = np.median([np.abs(a - b).sum() for a, b in pairs])
    wanted = [
        plain_mmd(x, y, lambda a, b, w=w: np.exp(-((np.linalg.norm(a - b) / (w * euclid)) ** 2) / 2))
        for w in BANDWIDTHS
    ]
    wanted += [plain_mmd(x, y, lambda a, b, w=w: np.exp(-np.abs(a - b).sum() / (w * city))) for w in BANDWIDTHS]
    np.testing.assert_allclose(mmd_values(x, y, identity(8))[0], wanted, rtol=1e-9)
    energy = plain_mmd(x, y, lambda a, b: -np.linalg.norm(a - b))
    np.testing.assert_allclose(energy_values(x, y, identity(8))[0], [energy], rtol=1e-9)


@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_ks_equals_scipy(kind):
    x, y = arms(30)
    if kind == "ties":
        x, y = x.round(), y.round()
    wanted = [ks_2samp(a, b).statistic for a, b in zip(x.T, y.T, strict=True)]
    np.testing.assert_allclose(ks_values(x, y, identity(30))[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", ["normal", "ties", "constant"])
def test_ks_equals_a_product_with_all_signs(kind):
    """The plain way: each row of signs times the steps of both distribution functions."""
    x, y = arms(30)
    if kind != "normal":
        x, y = (x.round(), y.round()) if kind == "ties" else (np.zeros_like(x), np.zeros_like(y))
    signs = swaps(200, 30, generator(3).random)
    found = ks_values(x, y, signs)
    for column, one, other in zip(found.T, x.T, y.T, strict=True):
        grid = np.unique(np.concatenate([one, other]))
        steps = (one[:, None] <= grid).astype(np.float32) - (other[:, None] <= grid)
        plain = np.abs(signs.astype(np.float32) @ steps).max(axis=1) / np.float32(30)
        assert np.array_equal(column, plain.astype(np.float64))


def test_the_classifier_never_sees_the_runs_it_is_judged_on():
    x, y = arms(11, seed=4)
    values, accuracy = classifier_values(x, y, identity(11))
    gaps = (x - y)[:5]
    weights = np.linalg.solve(gaps.T @ gaps + np.eye(3), gaps.sum(axis=0))
    scores = (x - y)[5:] @ weights
    assert values[0, 0] == pytest.approx(scores.mean(), rel=1e-9)
    assert accuracy == np.mean(scores > 0)


@pytest.mark.parametrize("values", [[0.5], [1.0, 2.0], [NAN, 0.0, 1.0, 2.5], list(range(1000))], ids=len)
def test_normal_scores_have_the_mid_ranks_of_scipy(values):
    x, y = generator(3).choice(values, (2, 41, 7))
    ranks = rankdata(np.where(np.isnan(both := np.concatenate([x, y])), np.inf, both), axis=0)
    assert np.array_equal(np.concatenate(normal_scores(x, y)), ndtri((ranks - 0.5) / len(ranks)))


def test_normal_scores_know_only_the_order():
    x, y = arms(9)
    one, other = normal_scores(x, y)
    for a, b in zip(normal_scores(np.exp(x), np.exp(y)), (one, other), strict=True):
        assert np.array_equal(a, b)
    np.testing.assert_allclose(np.concatenate([one, other]).mean(axis=0), 0, atol=1e-12)
    x, y = np.array([[NAN], [-INF], [0.0]]), np.array([[INF], [1.0], [NAN]])
    a, b = normal_scores(x, y)
    assert a[0] == b[2] > b[0] > b[1] > a[2] > a[1]
    assert np.isfinite([a, b]).all()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["normal", "awkward"])
def test_a_row_of_signs_is_the_value_of_swapped_data(name, kind):
    """What makes the p-values exact: every row is treated as the first one is."""
    rng = generator(8)
    x, y = arms(7) if kind == "normal" else rng.choice([NAN, -INF, INF, 0.0, 1.0, 2.5], (2, 7, 3))
    signs = every_swap(7)
    values = FAMILIES[name](*normal_scores(x, y), signs)
    for row in (0, 1, 37, 90, 127):
        turned = (signs[row] < 0)[:, None]
        swapped = normal_scores(np.where(turned, y, x), np.where(turned, x, y))
        np.testing.assert_allclose(FAMILIES[name](*swapped, identity(7))[0], values[row], rtol=1e-5, atol=1e-7)


# --- exactness ----------------------------------------------------------------------------------------------------


def p_values(x, y, signs):
    scores = normal_scores(x, y)
    each = np.concatenate([combined(ranked(f(*scores, signs))) for f in FAMILIES.values()], axis=1)
    return each, combined(each)[:, 0]


@pytest.mark.parametrize("seed", range(4))
def test_false_alarms_over_all_swaps_are_at_most_alpha(seed):
    """Under the null all 256 ways to swap 8 pairs are equally likely: every p-value is counted over all of them."""
    x, y = arms(8, seed=seed)
    if seed == 3:
        x, y = x.round(), y.round()
    each, total = p_values(x, y, every_swap(8))
    for values in (*each.T, total):
        assert all((values <= alpha).mean() <= alpha for alpha in np.arange(1, 257) / 256)
    assert (total <= 0.1).any()  # there is something to count
    # The wrong version: the smallest p-value of the tests, as it is.
    assert any((each.min(axis=1) <= alpha).mean() > alpha for alpha in np.arange(1, 257) / 256)


TIED = {"one odd": [(0, 3)], "one of each arm": [(0, 1), (1, 5)], "two, in one arm": [(0, 2), (0, 6)]}


@pytest.mark.parametrize("odd", TIED)
@pytest.mark.parametrize("others", [NAN, 1.0])
def test_false_alarms_are_at_most_alpha_where_nearly_all_runs_are_equal(odd, others):
    """As above, but every way to swap comes as data of its own: nothing is shared but the unordered pairs."""
    data = np.full((2, 7, 10), others)
    for arm, pair in TIED[odd]:
        data[arm, pair] = 0.3 + pair
    signs = every_swap(7)
    found = []
    for row in signs:
        turned = (row < 0)[:, None]
        each, total = p_values(np.where(turned, data[1], data[0]), np.where(turned, data[0], data[1]), signs)
        found.append([*each[0], total[0]])
    assert all((np.array(found) <= alpha).mean(axis=0).max() <= alpha for alpha in np.arange(1, 129) / 128)


@pytest.mark.parametrize("pairs", [8, 24, 64])
def test_one_odd_run_among_equal_ones_says_nothing(pairs):
    """Two outcomes, (x, y) and (y, x), which a test of either side treats alike: the p-value is 1."""
    x, y = np.full((2, pairs, 10), NAN)
    x[pairs // 3] = 0.3
    for one, other in ((x, y), (y, x)):
        assert batch_test(one, other, 0.05, generator(1).random).p_value == 1


def test_swaps_change_signs_and_no_bits_of_the_core():
    """Rounding would else tell the data as they are from swapped ones. Exact sums are beside it, as fractions."""
    x, y = normal_scores(*generator(5).choice([NAN, 0.0, 1.0, 2.5], (2, 9, 3)))
    row = every_swap(9)[171]
    turned = (row < 0)[:, None]

    def kernel(one, other):
        pooled = np.concatenate([one, other])
        return np.exp(-np.abs(pooled[:, None] - pooled).sum(axis=2))

    k = kernel(x, y)
    core = antisymmetric(k)
    assert np.array_equal(
        antisymmetric(kernel(np.where(turned, y, x), np.where(turned, x, y))), core * np.outer(row, row)
    )
    for i, j in itertools.permutations(range(9), 2):
        exact = Fraction(k[i, j]) + Fraction(k[9 + i, 9 + j]) - Fraction(k[i, 9 + j]) - Fraction(k[9 + i, j])
        assert abs(core[i, j] - exact) < 1e-15
        assert (core[i, j] == 0) == (exact == 0)


def test_ranks_count_equal_values_whatever_their_rounding():
    assert ranked(np.array([[2e-17], [-1e-17], [0.0]])).tolist() == [[1.0]] * 3
    values = np.array([[0.3], [0.1 + 0.2], [1.0], [0.0]])
    assert ranked(values)[:, 0].tolist() == [0.75, 0.75, 0.25, 1.0]
    assert ranked(np.zeros((5, 2))).tolist() == [[1.0, 1.0]] * 5


def test_swaps_hold_the_data_as_they_are_first():
    signs = swaps(50, 6, generator(1).random)
    assert signs.shape == (51, 6)
    assert (signs[0] == 1).all()
    assert set(np.unique(signs[1:])) == {-1, 1}


def test_false_alarms_are_rare():
    """300 audits of correlated and discrete statistics; at exactly its level it would fail with probability 1e-3."""
    rng, alpha = generator(3), 0.05
    hits = 0
    for _ in range(300):
        x, y = rng.normal(size=(2, 16, 1)), rng.normal(size=(2, 16, 1))
        x, y = (np.concatenate([a[0], a[0] + 0.2 * a[1], a[1].round()], axis=1) for a in (x, y))
        hits += batch_test(x, y, alpha, rng.random).rejected
    assert 0 < hits <= binom.ppf(0.999, 300, alpha)


# --- power --------------------------------------------------------------------------------------------------------


def test_each_difference_is_found_by_those_who_can():
    """64 pairs, alpha .01, 20 audits each; powers are above .99, so fewer than 17 of 20 has probability below 1e-4."""
    rng = generator(6)
    shift, spread = [], []
    for _ in range(20):
        x, y = rng.normal(size=(2, 64, 3))
        shift.append(batch_test(x + np.array([1.2, 0, 0]), y, 0.01, rng.random))
        spread.append(batch_test(x * np.array([4, 1, 1]), y, 0.01, rng.random))
    for found in (shift, spread):
        assert sum(test.rejected for test in found) >= 17
    assert sum(test.parts["C2ST"] <= 0.01 for test in shift) >= 17
    assert sum(test.parts["C2ST"] <= 0.01 for test in spread) <= 5  # a linear classifier cannot see it
    assert np.mean([test.accuracy for test in shift]) > 0.65
    assert 0.35 < np.mean([test.accuracy for test in spread]) < 0.65


def test_the_result_lists_its_parts_and_can_reject_at_its_level():
    x, y = arms(40, shift=9.0)
    test = batch_test(x, y, 2e-4, generator(1).random)
    assert tuple(test.parts) == TESTS
    assert test.resamples == 10000
    assert test.p_value == 1 / 10001
    assert test.rejected
    assert batch_test(x, x, 0.05, generator(1).random).p_value == 1
    assert batch_test(np.full((8, 1), NAN), x[:8, :1], 0.05, generator(1).random).rejected


@pytest.mark.parametrize("shape", [(3, 2), (4,), (2, 4, 2), (4, 0)])
def test_questions_that_make_no_sense_are_refused(shape):
    with pytest.raises(ValueError):
        batch_test(np.zeros(shape), np.zeros(shape), 0.05, generator(1).random)
