"""Bounds on distances and on epsilon: figures computed elsewhere, coverage, and wrong versions that do not cover.

The lower bound on the total variation is tested with the test by betting. Seeds are fixed; the rate at which a right
implementation would fail is written beside each sampling test.
"""

import numpy as np
import pytest
from scipy.stats import binom, binomtest, ks_2samp

from fuaudit.statistics.two_sample.bounds import _at_most, _epsilon, epsilon_bound, threshold_bounds


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


# --- thresholds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "s", "width"),
    [(200, 1, 0.209), (200, 32, 0.280), (1000, 1, 0.094), (1000, 128, 0.136), (5000, 32, 0.056), (10000, 128, 0.043)],
)
def test_the_width_is_that_of_the_inequality(n, s, width):
    """Against a table of two-sample widths at 95 %, simultaneous over s statistics, rounded to three digits."""
    values = np.zeros((n, s))
    found = threshold_bounds(values, values, 0.05)
    assert found.width == pytest.approx(width, abs=6e-4)
    assert (found.largest, found.lower, found.upper) == (0, 0, found.width)


def test_the_largest_distance_is_that_of_kolmogorov_and_smirnov():
    rng = generator(1)
    x, y = rng.normal(size=(300, 4)), rng.normal(size=(300, 4))
    x[:, 2] = (x[:, 2] + 2).round(1)
    y[:, 2] = y[:, 2].round(1)
    found = threshold_bounds(x, y, 0.05)
    assert found.largest == pytest.approx(max(ks_2samp(a, b).statistic for a, b in zip(x.T, y.T, strict=True)))
    assert found.lower == pytest.approx(found.largest - found.width)
    x[3:7, 0] = np.nan
    assert np.isfinite(threshold_bounds(x, y, 0.05).upper)


def test_the_interval_covers_and_one_for_a_single_statistic_does_not():
    """400 audits of 100 pairs, 40 statistics, largest distance .3; at its level it fails with probability 1e-3."""
    rng, missed, naive = generator(2), 0, 0
    ks_critical = 1.358 * np.sqrt(2 / 100)
    for _ in range(400):
        x, y = rng.random((2, 100, 40))
        x[:, 0] = x[:, 0] * 0.7 + 0.3
        found = threshold_bounds(x, y, 0.05)
        missed += not found.lower <= 0.3 <= found.upper
        # the wrong version: the critical value of one statistic, for the largest of forty
        naive += threshold_bounds(x[:, 1:], y[:, 1:], 0.05).largest > ks_critical
    assert missed <= binom.ppf(0.999, 400, 0.05)
    assert naive > binom.ppf(0.999, 400, 0.05)


# --- epsilon ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("runs", "ceiling"), [(50, 2.57), (100, 3.28), (256, 4.23), (512, 4.93), (1000, 5.60)])
def test_the_ceiling_is_what_so_many_runs_allow(runs, ceiling):
    """Against figures worked out with Clopper-Pearson limits at zero errors; perfect arms reach the ceiling."""
    found = epsilon_bound(np.zeros((2 * runs, 1)), np.ones((2 * runs, 1)), 1e-12, 0.05)
    assert found.ceiling == pytest.approx(ceiling, abs=6e-3)
    assert found.lower == found.ceiling
    assert found.runs == runs


@pytest.mark.parametrize("errors", [0, 1, 7, 39, 40])
def test_the_limit_is_that_of_clopper_and_pearson(errors):
    assert _at_most(errors, 40, 0.02) == pytest.approx(
        binomtest(errors, 40, alternative="less").proportion_ci(0.98).high
    )


def test_epsilon_of_known_error_rates():
    assert _epsilon(0.1, 0.2, 0.05) == pytest.approx(np.log(0.75 / 0.1))
    assert _epsilon(0.2, 0.1, 0.05) == pytest.approx(np.log(0.75 / 0.1))
    assert _epsilon(0.5, 0.5, 0.0) == 0
    assert _epsilon(0.9, 0.9, 0.0) == 0


def naive_bound(x, y, delta, alpha):
    """The wrong version: the best threshold over all runs, its errors counted on the same runs."""
    n, best = len(x), 0.0
    for a, b in zip(x.T, y.T, strict=True):
        for u in np.concatenate([a, b]):
            for low in (True, False):
                misses, alarms = np.sum((a <= u) != low), np.sum((b <= u) == low)
                best = max(best, _epsilon(_at_most(alarms, n, alpha / 2), _at_most(misses, n, alpha / 2), delta))
    return best


@pytest.mark.thorough
def test_equal_laws_have_no_epsilon_and_the_best_threshold_claims_one():
    """300 audits of 40 pairs (24 of the wrong version), 10 statistics, alpha .1.

    At exactly its level the right version would fail with probability 1e-3.
    """
    rng, wrong, naive = generator(5), 0, 0
    for number in range(300):
        x, y = rng.normal(size=(2, 40, 10))
        wrong += epsilon_bound(x, y, 1e-5, 0.1).lower > 0
        naive += number < 24 and naive_bound(x, y, 1e-5, 0.1) > 0
    assert wrong <= binom.ppf(0.999, 300, 0.1)
    assert naive > binom.ppf(0.999, 24, 0.1)


def test_randomised_response_is_not_overstated_and_not_missed():
    """Coins that tell the truth with probability e/(1+e), so epsilon is 1; 300 audits of 1000 pairs, alpha .05.

    At its level the first bound fails with probability 1e-3; the median is above .6 with certainty for all purposes.
    """
    rng, truth = generator(7), np.e / (1 + np.e)
    found = []
    for _ in range(300):
        x, y = (rng.random((1000, 1)) < truth), (rng.random((1000, 1)) >= truth)
        found.append(epsilon_bound(x.astype(float), y.astype(float), 0.0 + 1e-12, 0.05).lower)
    assert sum(value > 1 for value in found) <= binom.ppf(0.999, 300, 0.05)
    assert np.median(found) > 0.6


def test_either_direction_counts_and_bad_questions_are_refused():
    rng = generator(9)
    x, y = rng.normal(size=(2, 200, 3))
    x[:, 1] += 2
    one, other = epsilon_bound(x, y, 1e-5, 0.05), epsilon_bound(y, x, 1e-5, 0.05)
    assert one.statistic == other.statistic == 1
    assert one.lower == pytest.approx(other.lower, rel=0.3)
    assert 0 < one.lower < one.ceiling
    for bad in ({"delta": 0.0}, {"delta": 1.0}, {"alpha": 0.0}, {"alpha": 1.0}):
        with pytest.raises(ValueError):
            epsilon_bound(x, y, **({"delta": 1e-5, "alpha": 0.05} | bad))
    for shape in ((1, 2), (4,), (4, 0)):
        with pytest.raises(ValueError):
            epsilon_bound(np.zeros(shape), np.zeros(shape), 1e-5, 0.05)
    with pytest.raises(ValueError):
        threshold_bounds(np.zeros((0, 2)), np.zeros((0, 2)), 0.05)
