"""Tests by betting: validity by enumeration of all swaps, an oracle of plain loops, calibration and power.

Sampling tests have fixed seeds; the rate at which a correct implementation would fail them under a fresh seed is
written beside each. All else is exact.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom

from fuaudit.statistics.two_sample import betting
from fuaudit.statistics.two_sample.betting import (
    RANK_SHARE,
    RANK_STAKES,
    SHIFT_STAKES,
    STAKE,
    differences,
    largest_log_wealth,
    log_wealth_path,
    rank_payoffs,
    rank_wealth,
    shift_wealth,
    two_sample,
)
from fuaudit.statistics.two_sample.bounds import mean_gap_interval

INF, NAN = math.inf, math.nan
# Values that break careless code: ties, both infinities, nan, and sizes whose square or difference overflows.
AWKWARD = (-INF, -1e308, -2.0, -0.0, 0.0, 1e-320, 1.0, 2.0, 1e200, 1e308, INF, NAN)
values = st.sampled_from(AWKWARD) | st.floats(-3, 3)


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


# --- the oracle: one number at a time, no numpy; also the home of the wrong versions ------------------------------


def key(value):
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


def compare(a, b):
    return (key(a) > key(b)) - (key(a) < key(b))


def plain_differences(xs, ys):
    ratios, past = [], []
    for x, y in zip(xs, ys, strict=True):
        difference = x - y
        scale = math.hypot(*past) / math.sqrt(len(past)) if past else 0.0
        finite = math.isfinite(difference)
        if finite and scale > 0:
            ratios.append(difference / scale)
        elif compare(x, y) == 0 or (finite and not past and not ratios):
            ratios.append(0.0)
        else:
            ratios.append(compare(x, y) * math.inf)
        if finite:
            past.append(difference)
    return ratios


def plain_rank(xs, ys, way, peek=False):
    """``way`` is 1 for x below y, -1 for y below x; ``peek`` lets the witness see the pair it bets on: wrong."""
    payoffs = []
    for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
        seen = t + peek
        best, u = 0, None
        for value in sorted([*xs[:seen], *ys[:seen]], key=key):
            gap = way * sum(
                (key(a) <= key(value)) - (key(b) <= key(value)) for a, b in zip(xs[:seen], ys[:seen], strict=True)
            )
            if gap > best:
                best, u = gap, value
        payoffs.append(0 if u is None else way * ((key(x) <= key(u)) - (key(y) <= key(u))))
    return payoffs


def plain_wealth(payoffs, peek=False):
    """``peek`` turns its bet when it would lose: wrong."""
    wealth, path = 1.0, []
    for payoff in payoffs:
        wealth *= 1 + (abs(payoff) if peek else payoff)
        path.append(wealth)
    return np.array(path)


def plain_path(x, y, shares=None, peek_witness=False, peek_bet=False):
    """The averaged wealth, ``(n,)``, not its log."""
    total = np.zeros(len(x))
    shares = shares or [1] * len(x[0])
    for column, share in enumerate(shares):
        xs, ys = [float(row[column]) for row in x], [float(row[column]) for row in y]
        part = np.zeros(len(x))
        for stake in SHIFT_STAKES:
            for sign in (1, -1):
                payoffs = [sign * STAKE * math.tanh(stake * ratio) for ratio in plain_differences(xs, ys)]
                part += (1 - RANK_SHARE) / (2 * len(SHIFT_STAKES)) * plain_wealth(payoffs, peek_bet)
        for stake in RANK_STAKES:
            for way in (1, -1):
                payoffs = [stake * payoff for payoff in plain_rank(xs, ys, way, peek_witness)]
                part += RANK_SHARE / (2 * len(RANK_STAKES)) * plain_wealth(payoffs, peek_bet)
        total += part * share / sum(shares)
    return total


def swaps(x, y):
    """Both arms under all ways to swap pairs, ``(2**n, n, s)`` each."""
    flips = np.array(list(itertools.product([False, True], repeat=len(x))))[..., None]
    return np.where(flips, y, x), np.where(flips, x, y)


def samples(kind, shape, seed=5):
    rng = generator(seed)
    if kind == "normal":
        return rng.normal(size=shape), rng.normal(size=shape)
    if kind == "ties":
        return rng.integers(0, 3, shape).astype(float), rng.integers(0, 3, shape).astype(float)
    if kind == "awkward":
        return rng.choice(AWKWARD, shape), rng.choice(AWKWARD, shape)
    if kind == "far":
        return rng.normal(size=shape) + 5, rng.normal(size=shape)
    return np.full(shape, 2.5), np.full(shape, 2.5)


KINDS = ["normal", "ties", "awkward", "far", "constant"]


# --- oracle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_equal_plain_loops(kind):
    x, y = samples(kind, (3, 30, 2))
    paths = log_wealth_path(x, y)
    for replicate in range(3):
        np.testing.assert_allclose(
            np.exp(paths[replicate]), plain_path(x[replicate].tolist(), y[replicate].tolist()), rtol=1e-11
        )


def test_shares_divide_the_money():
    x, y = samples("far", (20, 3))
    shares = [1.0, 4.0, 0.5]
    np.testing.assert_allclose(np.exp(log_wealth_path(x, y, shares)), plain_path(x, y, shares), rtol=1e-11)
    assert not np.allclose(log_wealth_path(x, y, shares), log_wealth_path(x, y))
    for wrong in ([1, 1], [1, 1, 0], [1, 1, -1], [1, 1, NAN], [1, 1, INF]):
        with pytest.raises(ValueError, match="shares are 3 positive numbers"):
            log_wealth_path(x, y, wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_payoffs_equal_plain_loops(kind):
    x, y = samples(kind, (40, 1), seed=6)
    xs, ys = x[:, 0].tolist(), y[:, 0].tolist()
    np.testing.assert_allclose(differences(x, y)[:, 0], plain_differences(xs, ys), rtol=1e-12)
    for way, payoffs in zip((1, -1), rank_payoffs(x, y), strict=True):
        assert payoffs[:, 0].tolist() == plain_rank(xs, ys, way)


def test_many_columns_are_handled_in_blocks_with_one_answer():
    x, y = samples("normal", (300, 70, 9))
    first, second = rank_payoffs(x, y)  # more cells than one block
    for replicate in (0, 150, 299):
        alone = rank_payoffs(x[replicate], y[replicate])
        assert np.array_equal(first[replicate], alone[0])
        assert np.array_equal(second[replicate], alone[1])


def test_long_streams_need_wider_ranks():
    x = np.arange(17_000.0)[::-1, None]  # with y 34 000 distinct values, which do not fit in 16 bits
    first, second = rank_payoffs(x, x[::-1] + 17_000)
    # All x are at or below the first one, all y above it.
    assert (first[0], second[0]) == (0, 0)
    assert (first[1:] == 1).all()
    assert not second.any()


@pytest.mark.parametrize("kind", KINDS)
def test_payoffs_from_a_pair_on_are_the_last_ones_of_all(kind):
    x, y = samples(kind, (4, 40, 3), seed=7)
    for way, later in enumerate(rank_payoffs(x, y, 25)):
        assert np.array_equal(later, rank_payoffs(x, y)[way][:, 25:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [INF, 2.0])
def test_the_largest_wealth_by_products_is_that_of_the_path(kind, end):
    """The oracle adds up logs, and tests the first pairs anew for each part. A bound tells less, and where it may."""
    x, y = samples(kind, (30, 24, 3), seed=8)
    x[:10] += 3.0
    shares = [5, 1, 2]
    wanted = betting._largest_by_logs(x, y, shares, end)
    np.testing.assert_allclose(largest_log_wealth(x, y, shares, end), wanted, rtol=1e-10, atol=1e-12)
    bound = largest_log_wealth(x, y, shares, end, bound=True)
    told = bound >= end
    np.testing.assert_allclose(bound[~told], wanted[~told], rtol=1e-10, atol=1e-12)
    assert (wanted[told] >= end - 1e-12).all()


def test_products_that_would_overflow_are_sums_of_logs():
    x = np.ones((2, betting.MULTIPLIED + 200, 1)) * np.arange(1, betting.MULTIPLIED + 201)[:, None]
    found = largest_log_wealth(x, -x)
    assert np.isfinite(found).all()
    assert np.array_equal(found, log_wealth_path(x, -x).max(axis=-1))
    assert found[0] > 709  # more than the log of the largest float


# --- validity, without sampling -----------------------------------------------------------------------------------


def identity_error(paths):
    """How far the averages over all swaps are from 1, the largest over time."""
    return np.abs(np.exp(paths).mean(axis=0) - 1).max()


@pytest.mark.parametrize("kind", KINDS)
def test_the_average_wealth_over_all_swaps_is_one(kind):
    """Validity: under the null all swaps of the observed pairs are equally likely."""
    x, y = swaps(*samples(kind, (10, 3)))
    assert identity_error(shift_wealth(differences(x, y))) < 1e-12
    assert identity_error(rank_wealth(rank_payoffs(x, y))) < 1e-12
    assert identity_error(log_wealth_path(x, y)) < 1e-12
    assert identity_error(log_wealth_path(x, y, [5, 1, 2])) < 1e-12


@settings(derandomize=True, database=None, deadline=None, max_examples=150)
@given(arrays(np.float64, (2, 7, 2), elements=values))
def test_the_average_wealth_over_all_swaps_is_one_for_any_values(pair):
    assert identity_error(log_wealth_path(*swaps(pair[0], pair[1]))) < 1e-12


@pytest.mark.parametrize("kind", ["normal", "ties", "far"])
def test_the_false_alarm_probability_over_all_swaps_is_at_most_alpha(kind):
    """Ville's inequality, counted: over all swaps of 12 pairs, looking after every one."""
    largest = np.exp(log_wealth_path(*swaps(*samples(kind, (12, 2)))).max(axis=-1))
    for alpha in (0.5, 0.2, 0.1, 0.05):
        assert (largest >= 1 / alpha).mean() <= alpha
    assert (largest >= 2).any()  # there is something to count


@pytest.mark.parametrize("wrong", ["peek_witness", "peek_bet"])
def test_a_version_that_peeks_breaks_the_identity(wrong):
    """The identity catches a witness, or a bet, that has seen the pair it is used on."""
    x, y = swaps(*samples("normal", (6, 1)))
    right = np.mean([plain_path(a, b) for a, b in zip(x, y, strict=True)], axis=0)
    peeking = np.mean([plain_path(a, b, **{wrong: True}) for a, b in zip(x, y, strict=True)], axis=0)
    assert np.abs(right - 1).max() < 1e-12
    assert peeking[-1] > 1.1


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(arrays(np.float64, (2, 12, 2), elements=values), st.integers(0, 12))
def test_the_wealth_so_far_does_not_depend_on_what_comes(pair, count):
    path = log_wealth_path(pair[0], pair[1])
    assert np.array_equal(log_wealth_path(pair[0, :count], pair[1, :count]), path[:count])


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(arrays(np.float64, (2, 15, 3), elements=values))
def test_wealth_is_finite_and_does_not_know_which_arm_is_which(pair):
    path = log_wealth_path(pair[0], pair[1])
    assert np.isfinite(path).all()
    np.testing.assert_allclose(log_wealth_path(pair[1], pair[0]), path, rtol=0, atol=1e-12)
    np.testing.assert_allclose(log_wealth_path(pair[0, :, ::-1], pair[1, :, ::-1]), path, rtol=0, atol=1e-12)


def test_payoffs_do_not_depend_on_units():
    x, y = samples("normal", (50, 2))
    np.testing.assert_allclose(differences(1e-9 * x + 1, 1e-9 * y + 1), differences(x, y), atol=1e-5)
    for one, other in zip(rank_payoffs(np.exp(x), np.exp(y)), rank_payoffs(x, y), strict=True):
        assert np.array_equal(one, other)


# --- values that are not finite -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_an_arm_that_diverges_is_rejected(value):
    y = samples("normal", (40, 4))[1]
    x = np.full_like(y, value)
    assert two_sample(x, y, 1e-3).rejected_at < 30
    assert np.isinf(differences(x, y)).all()


@pytest.mark.parametrize("value", [NAN, INF, -INF, 3.0])
def test_arms_that_are_equal_never_win_or_lose(value):
    x = np.full((20, 2), value)
    test = two_sample(x, x, 0.05)
    np.testing.assert_allclose(test.log_wealth, 0.0, atol=1e-15)
    assert test.rejected_at is None
    assert test.p_value == 1


def test_one_broken_run_does_not_blind_the_test():
    x, y = samples("far", (60, 1))
    for value in (NAN, INF, 1e308):
        spoiled = x.copy()
        spoiled[3] = value
        assert two_sample(spoiled, y, 0.01).rejected_at < 40


# --- calibration and power by sampling ----------------------------------------------------------------------------


def mixed_null(rng, audits):
    """Two arms of one law, ``(audits, 256, 8)``: normal, correlated, heavy-tailed, discrete, skewed, mostly tied."""

    def arm():
        shape = (audits, 256)
        normal = rng.normal(size=(3, *shape))
        return np.stack(
            [
                normal[0],
                normal[1],
                normal[1] + 0.3 * normal[2],
                rng.standard_cauchy(shape),
                rng.poisson(1.0, shape).astype(float),
                rng.exponential(size=shape),
                (rng.random(shape) < 0.05).astype(float),
                np.where(rng.random(shape) < 0.1, np.nan, normal[0]),
            ],
            axis=-1,
        )

    return arm(), arm()


@pytest.mark.thorough
def test_false_alarms_are_rare():
    """2000 audits; a test at exactly its level would fail either bound with probability 1e-3."""
    rng = generator(11)
    largest = np.concatenate([log_wealth_path(*mixed_null(rng, 500)).max(axis=-1) for _ in range(4)])
    for alpha in (0.05, 0.01):
        assert (largest >= -np.log(alpha)).sum() <= binom.ppf(0.999, 2000, alpha)


def stops(paths, alpha):
    """The number of pairs at which each audit rejects, infinite for those that do not."""
    reached = paths >= -np.log(alpha)
    return np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1.0, np.inf)


def test_a_shift_of_the_mean_is_found():
    """One of 8 statistics shifts by 1 sd, alpha .01, 200 audits of 256 pairs. Power is above .99, so fewer than
    .95 of 200 has probability below 1e-4; 1e-3 for the bound on the median."""
    rng = generator(12)
    x, y = rng.normal(size=(200, 256, 8)), rng.normal(size=(200, 256, 8))
    x[..., 0] += 1
    found = stops(log_wealth_path(x, y), 0.01)
    assert np.isfinite(found).mean() >= 0.95
    assert np.median(found) <= 110


def test_a_change_of_variance_is_found_by_ranks_and_not_by_the_shift():
    """Standard deviation 3 against 1, alpha .01, 200 audits of 256 pairs. Power is above .99 (and at most .01
    for the shift alone), so both bounds fail with probability below 1e-3."""
    rng = generator(13)
    x, y = 3 * rng.normal(size=(200, 256, 1)), rng.normal(size=(200, 256, 1))
    assert np.isfinite(stops(log_wealth_path(x, y), 0.01)).mean() >= 0.95
    shift = shift_wealth(differences(x, y))[..., 0]
    assert np.isfinite(stops(shift, 0.01)).sum() <= binom.ppf(0.999, 200, 0.01)


# --- the result ---------------------------------------------------------------------------------------------------


def test_the_result_agrees_with_its_path():
    x, y = samples("far", (60, 2))
    test = two_sample(x, y, 0.01)
    stop = test.rejected_at
    assert (test.log_wealth[: stop - 1] < np.log(100)).all()
    assert test.log_wealth[stop - 1] >= np.log(100)
    assert test.p_value == pytest.approx(np.exp(-test.log_wealth.max()))
    assert two_sample(x[:stop], y[:stop], 0.01).rejected_at == stop
    assert two_sample(x[: stop - 1], y[: stop - 1], 0.01).rejected_at is None


def test_the_pairs_needed_follow_the_growth():
    x, y = samples("far", (60, 2))
    full = two_sample(x, y, 1e-3)
    assert full.pairs_needed == full.rejected_at
    # too short to reject: the growth so far, continued
    short = two_sample(x[:5], y[:5], 1e-6)
    assert short.rejected_at is None
    assert short.pairs_needed == math.ceil(math.log(1e6) / (short.log_wealth[-1] / 5))
    assert two_sample(x, x, 1e-3).pairs_needed is None


def test_no_pairs_show_nothing():
    empty = np.empty((0, 3))
    test = two_sample(empty, empty, 0.05)
    assert (test.rejected_at, test.p_value, test.log_wealth.shape) == (None, 1.0, (0,))
    assert mean_gap_interval(empty, empty, 0.05).shape == (0,)


@pytest.mark.parametrize(
    ("x", "y", "alpha"),
    [
        (np.zeros((4, 2)), np.zeros((5, 2)), 0.05),
        (np.zeros(4), np.zeros(4), 0.05),
        (np.zeros((4, 0)), np.zeros((4, 0)), 0.05),
        (np.zeros((2, 4, 2)), np.zeros((2, 4, 2)), 0.05),
        (np.zeros((4, 2)), np.zeros((4, 2)), 0.0),
        (np.zeros((4, 2)), np.zeros((4, 2)), 1.0),
        (np.zeros((4, 2)), np.zeros((4, 2)), NAN),
    ],
)
def test_questions_that_make_no_sense_are_refused(x, y, alpha):
    with pytest.raises(ValueError):
        two_sample(x, y, alpha)


# --- the lower bound ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.55, 0.5), (0.5, 0.7), (1.0, 0.0)])
def test_the_lower_bound_misses_with_probability_at_most_alpha_by_enumeration(p, q):
    """All 4**7 outcomes of 7 pairs of coins, whose total variation is abs(p - q), with their probabilities."""
    outcomes = np.array(list(itertools.product([0.0, 1.0], repeat=14))).reshape(-1, 2, 7)
    x, y = outcomes[:, 0, :, None], outcomes[:, 1, :, None]
    weight = (np.where(x == 1, p, 1 - p) * np.where(y == 1, q, 1 - q)).prod(axis=(1, 2))
    for alpha in (0.3, 0.6, 0.9):
        missed = (mean_gap_interval(x, y, alpha) > abs(p - q) + 1e-12).any(axis=-1)
        assert weight[missed].sum() <= alpha
    assert weight[missed].sum() > 0 or abs(p - q) > 0.1  # so short a stream cannot miss a large gap


def coins(rng, p, q):
    shape = (1000, 256, 2)
    x, y = rng.random(shape), rng.random(shape)
    return (x < [p, 0.5]).astype(float), (y < [q, 0.5]).astype(float)


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.7, 0.4), (0.95, 0.05)])
def test_the_lower_bound_covers_and_a_fixed_time_bound_does_not(p, q):
    """1000 audits of 256 pairs, alpha .1, every look counts; at its level it fails with probability 1e-3."""
    x, y = coins(generator(31), p, q)
    lower = mean_gap_interval(x, y, 0.1)
    assert (np.diff(lower, axis=-1) >= 0).all()
    assert (lower >= 0).all()
    assert (lower[:, -1] > p - q).sum() <= binom.ppf(0.999, 1000, 0.1)
    # The wrong version: the bound for one look (normal, 90 %), taken at every look from the 20th pair.
    gap, number = x[..., 0] - y[..., 0], np.arange(1, 257)
    mean = np.cumsum(gap, axis=-1) / number
    deviation = np.sqrt(np.cumsum(gap**2, axis=-1) / number - mean**2)
    naive = (mean - 1.2816 * deviation / np.sqrt(number))[:, 20:].max(axis=-1)
    assert (naive > p - q).sum() > binom.ppf(0.999, 1000, 0.1)


def test_the_lower_bound_approaches_a_large_gap():
    """Total variation .9, 1000 audits: the smallest final bound; it fails with probability far below 1e-3."""
    lower = mean_gap_interval(*coins(generator(32), 0.95, 0.05), 0.1)[:, -1]
    assert np.median(lower) > 0.7
    assert lower.min() > 0.5


def test_the_lower_bound_equals_its_formula():
    x, y = samples("far", (40, 1))
    level, best, path = math.log(2 / 0.5), 0.0, []
    state = [[0.5, 0.25, 0.0, 0.0, 0.0, 0.5, 0.25] for _ in range(2)]
    for t in range(1, 41):
        for payoffs, row in zip(rank_payoffs(x, y), state, strict=True):
            centre, spread, weighted, penalty, weights, total, squares = row
            value = (payoffs[t - 1, 0] + 1) / 2
            weight = min(0.5, math.sqrt(2 * level / (spread * t * math.log(1 + t))))
            weighted += weight * value
            # psi_E(l) = (-log(1 - l) - l) / 4, times 4 (value - centre)^2
            penalty += 4 * (value - centre) ** 2 * (-math.log(1 - weight) - weight) / 4
            weights += weight
            total += value
            squares += (value - total / (t + 1)) ** 2
            row[:] = [total / (t + 1), squares / (t + 1), weighted, penalty, weights, total, squares]
            best = max(best, 2 * (weighted - level - penalty) / weights - 1)
        path.append(best)
    assert path[-1] > 0
    np.testing.assert_allclose(mean_gap_interval(x, y, 0.5), path, rtol=1e-11)
