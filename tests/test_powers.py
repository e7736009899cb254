"""Stated powers: what is resampled, the margin for the luck of the runs, the rate that is stated, and that it is true.

Whether stated powers are true over 400 audits is measured by benchmarks/powers.py; here a fast version of it. Its keys
are fixed, and the test says how likely a right implementation would fail it under another key.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import binomtest

from fuaudit.statistics.two_sample import power
from fuaudit.statistics.two_sample.betting import _largest_by_logs, largest_log_wealth, log_wealth_path, two_sample
from fuaudit.statistics.two_sample.power import Detectable, Goal, Point, detectable_rate, lower_limit

NAN, INF = float("nan"), float("inf")
FEW = Goal(resamples=60, worlds=20, audits=4, rates=(0.1, 0.3, 0.5, 0.7, 1.0))


def generator(seed):
    return np.random.default_rng([11, seed])


class Counted:
    """A source of uniforms that, like a keyed one, answers every call in the same way."""

    def __init__(self, seed=0):
        self.seed, self.calls = seed, []

    def __call__(self, count):
        self.calls.append(count)
        return generator(self.seed).random(count)


def three_arms(shift, count=60, seed=21):
    untouched, reference, second = generator(seed).normal(size=(3, count, 2))
    return untouched + shift, reference, second


# --- that it is true ----------------------------------------------------------------------------------------------

PAIRS, ALPHA, AUDITS, SHIFT = 24, 0.05, 40, 3.5
GRID = tuple(round(0.4 + 0.05 * at, 2) for at in range(13))


def runs(rng, audits, shift):
    return rng.normal(size=(audits, PAIRS, 1)) + shift


def rejected(subject, reference):
    return log_wealth_path(subject, reference).max(axis=-1, initial=0.0) >= -np.log(ALPHA)


def reordered(untouched, reference, second, alpha, uniform):
    """A wrong way: the pairs at hand in 60 orders, and the share of rejections in place of a limit."""
    orders, marks = uniform(2 * 60 * PAIRS).reshape(2, 60, PAIRS)
    order = np.argsort(orders, axis=-1)
    answer = None
    for rate in reversed(GRID):
        subject = np.where((marks < rate)[..., None], untouched[order], second[order])
        if rejected(subject, reference[order]).mean() < 0.9:
            return answer
        answer = rate
    return answer


def by_the_limit(*arms_and_more):
    return detectable_rate(*arms_and_more, Goal(resamples=100, worlds=30, audits=4, rates=GRID)).rate


@cache
def true_power(rate):
    """By 1,000 fresh audits: a standard error of .01."""
    rng = generator(31)
    planted = rng.random((1000, PAIRS, 1)) < rate
    subject = np.where(planted, runs(rng, 1000, SHIFT), runs(rng, 1000, 0.0))
    return rejected(subject, runs(rng, 1000, 0.0)).mean()


def true_powers(stating):
    """The true power at the rate that each of 40 audits states."""
    rng = generator(32)
    arms = [(runs(rng, 1, SHIFT)[0], runs(rng, 1, 0.0)[0], runs(rng, 1, 0.0)[0]) for _ in range(AUDITS)]
    stated = [stating(*one, ALPHA, rng.random) for one in arms]
    return np.array([true_power(rate) for rate in stated if rate is not None])


def true(powers):
    """Whether stated powers of .9 are true enough: .87 in the mean, and .8 in nine of ten audits."""
    return bool(powers.mean() >= 0.87 and (powers >= 0.8).mean() >= 0.9)


def test_stated_powers_are_true():
    """True power is below .8 in about one of a hundred audits of this law and below .9 in about one of ten, so each
    bound fails with probability below 1e-3 (5 or more of 40; 13 or more of 40)."""
    powers = true_powers(by_the_limit)
    assert len(powers) >= 0.9 * AUDITS  # it does not save itself by silence
    assert true(powers)
    assert (powers >= 0.88).mean() >= 0.7  # a limit, not an estimate: .9 but for the error of the truth


def test_resamples_that_reorder_the_pairs_state_powers_that_are_not_true():
    """Below .8 in about a quarter of audits: fewer than 5 of 40, with a mean of .87, has probability below 1e-2."""
    assert not true(true_powers(reordered))


# --- what is resampled --------------------------------------------------------------------------------------------


def test_detectable_rate_is_reproducible_and_draws_once():
    source = Counted()
    one = detectable_rate(*three_arms(3.0), 0.01, source, FEW)
    assert source.calls == [4 * 60 * 60 + 20 * 3 * 60 + 4 * 20 * 4 * 60]
    assert one == detectable_rate(*three_arms(3.0), 0.01, Counted(), FEW)
    assert one != detectable_rate(*three_arms(3.0), 0.01, Counted(1), FEW)


def test_a_resampled_audit_is_an_ordinary_audit_of_runs_drawn_with_replacement():
    """At rate 1: untouched runs against runs of both retrained arms, each drawn anew for every pair."""
    untouched, reference, second = three_arms(0.7)
    goal = Goal(resamples=50, worlds=2, audits=2, rates=(1.0,))
    numbers = Counted()(4 * 50 * 60 + 2 * 180 + 4 * 4 * 60)[: 4 * 50 * 60].reshape(4, 50, 60)
    pool = np.concatenate([second, reference])
    tests = [
        two_sample(untouched[(60 * first).astype(int)], pool[(120 * third).astype(int)], 0.01)
        for _, first, _, third in numbers.transpose(1, 0, 2)
    ]
    expected = np.mean([test.rejected_at is not None for test in tests])
    assert 0 < expected < 1
    assert detectable_rate(untouched, reference, second, 0.01, Counted(), goal).curve[0].estimate == expected


def test_the_luck_of_the_two_retrained_arms_is_no_effect():
    """Both arms are drawn from one pool: however much they differ, nothing is found where nothing is planted."""
    untouched, reference, second = three_arms(0.0, count=100)
    goal = Goal(resamples=60, worlds=20, audits=4, rates=(1e-9,))
    found = detectable_rate(untouched, reference - 5, second + 5, 0.01, Counted(), goal)
    assert found.curve[0].estimate <= 0.1
    assert found.rate is None


def test_where_runs_have_no_luck_there_is_no_margin():
    """All untouched runs are one, and so are all retrained ones: every world is the same."""
    untouched, retrained = np.ones((40, 1)), np.zeros((40, 1))
    curve = detectable_rate(untouched, retrained, retrained, 0.01, Counted(), FEW).curve
    assert any(0 < point.estimate < 1 for point in curve)
    # the audits of worlds and of pools still differ by chance, which the margin cannot know
    assert all(abs(point.lower - point.estimate) <= 0.1 for point in curve)


def test_the_margin_is_wider_than_that_of_normal_errors():
    """Bootstraps know too little of dependent statistics with heavy tails."""
    untouched, *retrained = three_arms(0.0, count=40)
    untouched += 8.0 * (np.arange(40) % 10 < 6)[:, None]
    wide, narrow = (
        detectable_rate(untouched, *retrained, 0.01, Counted(), replace(goal, nominal=nominal)).curve[-1]
        for goal in [Goal(resamples=100, worlds=40, rates=(0.6, 1.0))]
        for nominal in (Goal().nominal, Goal().confidence)
    )
    assert wide.estimate == narrow.estimate
    assert wide.lower < narrow.lower


def test_the_margin_grows_with_the_luck_of_the_runs():
    """Six of ten untouched runs lie far away; the fewer runs, the less is known of that share."""
    widths = []
    for count in (40, 160):
        rng = generator(3)
        untouched, reference, second = rng.normal(size=(3, count, 1))
        untouched += 8.0 * (np.arange(count) % 10 < 6)[:, None]
        pools = power._Pools(untouched, np.concatenate([second, reference]), None, 2.0)
        draws, own, inner = rng.random((4, 200, 40)), rng.random((60, 3 * count)), rng.random((4, 60, 5, 40))
        widths.append(power._margin(pools, 0.7, pools.roots(0.7, draws), own, inner, 0.9))
    assert widths[0] > 1.3 * widths[1]


def test_the_margin_holds_what_the_luck_of_many_statistics_adds():
    """Twelve alike: the luckiest carries the audits of the pools, and one more draw of runs adds as much again."""
    rng = generator(4)
    untouched, reference, second = rng.normal(size=(3, 30, 12))
    pools = power._Pools(untouched + 0.5, np.concatenate([second, reference]), None, 2.0)
    draws, own, inner = rng.random((4, 200, 30)), rng.random((60, 90)), rng.random((4, 60, 5, 30))
    assert power._margin(pools, 1.0, pools.roots(1.0, draws), own, inner, 0.5) > 0.2


def test_audits_that_end_early_reject_as_often(monkeypatch):
    early = detectable_rate(*three_arms(3.0), 0.01, Counted(), FEW)
    monkeypatch.setattr(power, "_BEYOND", INF)
    late = detectable_rate(*three_arms(3.0), 0.01, Counted(), FEW)
    assert [point.estimate for point in early.curve] == [point.estimate for point in late.curve]
    assert early.rate == late.rate


@pytest.mark.parametrize("shift", [0.7, 1.5, 3.0, 6.0])
def test_powers_are_those_of_paths_of_logs(monkeypatch, shift):
    """The oracle: each resampled audit by the test itself, and no audit told by a bound."""
    arms = three_arms(shift)
    found = detectable_rate(*arms, 0.01, Counted(), FEW)

    def by_logs(subject, reference, shares, end, bound):
        return _largest_by_logs(subject, reference, shares, end)

    monkeypatch.setattr(power, "largest_log_wealth", by_logs)
    assert detectable_rate(*arms, 0.01, Counted(), FEW) == found


def test_a_margin_beyond_what_ends_an_audit_is_asked_of_all_bets(monkeypatch):
    """Where audits end right at the bar, what a bound tells of them would be below the bar with its margin."""
    monkeypatch.setattr(power, "_BEYOND", 0.0)
    untouched, *retrained = three_arms(0.0, count=40)
    untouched += 8.0 * (np.arange(40) % 10 < 6)[:, None]
    found, bounds = detectable_rate(untouched, *retrained, 0.01, Counted(), FEW), []

    def exact(*arms_and_more):
        bounds.append(arms_and_more[-1])
        return largest_log_wealth(*arms_and_more[:-1])

    monkeypatch.setattr(power, "largest_log_wealth", exact)
    assert detectable_rate(untouched, *retrained, 0.01, Counted(), FEW) == found
    assert {*bounds} == {True, False}


# --- the rate that is stated --------------------------------------------------------------------------------------


def test_detectable_rate_finds_what_can_be_found():
    """A coarse violation (3 sd of both statistics) is found at rate .7 and not at .1; limits lie below estimates."""
    found = detectable_rate(*three_arms(3.0), 0.01, Counted(), FEW)
    assert 0.1 < found.rate <= 0.7
    assert found.found.lower >= 0.9
    assert all(point.lower <= point.estimate for point in found.curve)
    assert any(point.lower < point.estimate for point in found.curve)


def test_what_cannot_be_found_has_no_rate():
    """An untouched arm of the very law of the others: a rate would need 54 of 60 false alarms at alpha = 1e-6."""
    nothing = detectable_rate(*three_arms(0.0), 1e-6, Counted(), FEW)
    assert nothing.rate is None
    assert nothing.found is None
    assert [point.rate for point in nothing.curve] == [1.0]  # none below is asked


def curve(**lowers):
    return tuple(Point(float(rate[1:]) / 10, 1.0, lower) for rate, lower in lowers.items())


def test_a_dip_of_the_curve_is_not_skipped():
    """A statement about all larger rates starts above the last rate whose limit misses the power wanted."""
    assert Detectable(Goal(), curve(r1=0.95, r2=0.85, r3=0.9, r10=1.0)).rate == 0.3
    assert Detectable(Goal(), curve(r1=0.95, r2=0.95, r10=0.89)).rate is None
    assert Detectable(Goal(), curve(r1=0.95, r2=0.9)).rate == 0.1


@pytest.mark.parametrize("count", [0, 1, 30, 58, 59, 60])
def test_the_lower_limit_is_that_of_clopper_and_pearson(count):
    expected = binomtest(count, 60, alternative="greater").proportion_ci(0.95).low
    assert lower_limit(count, 60, 0.95) == pytest.approx(expected, abs=1e-12)
    if count >= 58:
        assert round(lower_limit(count, 60, 0.95), 3) == {58: 0.899, 59: 0.923, 60: 0.951}[count]


@pytest.mark.parametrize(
    "settings",
    [
        {"rates": ()},
        {"rates": (0.5, 0.1)},
        {"rates": (0.0, 1.0)},
        {"rates": (0.5, 1.5)},
        {"rates": (NAN,)},
        {"power": 0.0},
        {"power": 1.5},
        {"confidence": 0.4},
        {"confidence": 1.0},
        {"nominal": 0.8},
        {"nominal": 1.0},
        {"resamples": 0},
        {"worlds": 1},
        {"audits": 1},
    ],
)
def test_goals_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError):
        Goal(**settings)
