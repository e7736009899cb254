"""DP-SGD: brackets against exact curves and the library, one law of batches an accountant, histories of Opacus."""

import json
import math
import os
import re
import warnings
from dataclasses import replace
from decimal import Context, Decimal, localcontext

import mpmath
import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opacus.accountants import GaussianAccountant, PRVAccountant, RDPAccountant
from scipy import stats

from fuaudit.budgets.compose import Part, epsilons
from fuaudit.budgets.dpsgd import beside
from fuaudit.budgets.dpsgd.account import NOT_POISSON, account
from fuaudit.budgets.dpsgd.beside import central_limit, random_variables, renyi
from fuaudit.budgets.dpsgd.cells import Sampled, laws, reach_of
from fuaudit.budgets.dpsgd.composed import CELLS, LEAST_NOISE, bracket
from fuaudit.budgets.dpsgd.history import history
from fuaudit.budgets.dpsgd.laws import FIXED, LAWS, MULTISET, POISSON
from fuaudit.budgets.dpsgd.plot import curves
from fuaudit.budgets.dpsgd.steps import KINDS, STEPS, Steps, merged
from fuaudit.budgets.dpsgd.targets import COARSE, Asked, answer
from fuaudit.budgets.gaussian.curve import epsilon_of, mu_of, noise_for, rounds_for
from fuaudit.budgets.losses import MASS_ERROR
from fuaudit.errors import UsageError

USUAL = Steps(1.0, 0.01, 10_000)


def one_step(epsilon, noise, rate, present):
    """The delta of one step at an epsilon, with sixty digits: where the row is there, or where it is not."""
    with mpmath.workdps(60):
        m, q, e = 1 / mpmath.mpf(noise), mpmath.mpf(rate), mpmath.mpf(epsilon)
        edge = mpmath.exp(e if present else -e)
        if edge <= 1 - q:  # nothing has a smaller loss
            return 1 - mpmath.exp(e) if present else mpmath.mpf(0)
        x = (mpmath.log((edge - 1 + q) / q) + m * m / 2) / m
        without, with_it = (
            (mpmath.ncdf(-x), (1 - q) * mpmath.ncdf(-x) + q * mpmath.ncdf(m - x))
            if present
            else (mpmath.ncdf(x), (1 - q) * mpmath.ncdf(x) + q * mpmath.ncdf(x - m))
        )
        return with_it - mpmath.exp(e) * without if present else without - mpmath.exp(e) * with_it


def exact(noise, rate, delta):
    """The epsilon of one step in the worse direction."""
    found = []
    for present in (True, False):
        low, high = 0.0, 2000.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if one_step(middle, noise, rate, present) > delta else (low, middle)
        found.append(high)
    return max(found)


@pytest.mark.parametrize(
    ("noise", "rate", "delta"),
    [(1.0, 0.01, 1e-5), (0.5, 0.1, 1e-6), (4.0, 0.5, 1e-3), (1.0, 1.0, 1e-5), (0.06, 1e-3, 1e-5), (30.0, 0.9, 1e-4)],
)
def test_one_step_is_within_the_bracket(noise, rate, delta):
    found, true = bracket([Steps(noise, rate, 1)], delta), exact(noise, rate, delta)
    assert found.low <= true <= found.high
    assert found.high - found.low <= 1e-4 * true + 1e-9


@given(st.floats(0.2, 20), st.floats(1e-4, 1), st.sampled_from([0.01, 0.1, 0.5]), st.floats(0, 3))
@example(0.25, 0.9375, 0.01, 0.0)  # 1.5e-14 too little
@example(0.25, 1 - 2**-53, 0.01, 0.0)  # 1.4e-9 too much
@settings(max_examples=60, deadline=None)
def test_cells_of_any_width_are_on_their_sides(noise, rate, interval, at):
    """Curves of the shared masses are nowhere below the exact curve, and those of the merged ones nowhere above.

    Up to the rounding of masses that every account allows for.
    """
    epsilon = at / noise
    for law, present in zip(laws(Sampled(rate, 1 / noise), interval, reach_of(1e-20)), (True, False), strict=True):
        true = float(one_step(epsilon, noise, rate, present))
        for (first, masses), worse in ((law.pessimistic(), True), (law.optimistic(), False)):
            losses = (first + np.arange(len(masses))) * interval
            ahead = losses > epsilon
            curve = float(-np.expm1(epsilon - losses[ahead]) @ masses[ahead])
            rounding = MASS_ERROR * true + 1e-14
            assert curve + law.left_out + rounding >= true if worse else curve <= true + rounding
            assert masses.sum() >= 1 - MASS_ERROR if worse else masses.sum() <= 1 + MASS_ERROR
            assert masses.sum() < 1.01  # where hardly a row is left out, cancellation adds a little
            assert masses.min() >= 0


@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.05), (2.0, 0.5)])
def test_two_steps_are_the_mean_of_one_beyond_the_other(noise, rate):
    """delta of two steps at an epsilon is the mean of that of one at epsilon - loss, which quadrature gives."""
    m, delta = 1 / noise, 1e-4
    found = bracket([Steps(noise, rate, 2)], delta)

    def one(epsilon):
        edge = np.exp(epsilon)
        with np.errstate(invalid="ignore", divide="ignore"):
            x = np.nan_to_num((np.log((edge - 1 + rate) / rate) + m * m / 2) / m, nan=-np.inf)
        return (1 - rate) * stats.norm.sf(x) + rate * stats.norm.sf(x - m) - edge * stats.norm.sf(x)

    x = np.linspace(-10, 12, 200_001)
    density = (1 - rate) * stats.norm.pdf(x) + rate * stats.norm.pdf(x - m)
    loss = np.log1p(rate * np.expm1(m * x - m * m / 2))

    def two(epsilon):
        return float(np.trapezoid(density * one(epsilon - loss), x))

    assert two(found.high) <= delta * (1 + 1e-6)
    assert two(found.low) >= delta * (1 - 1e-6)
    assert found.high - found.low < 1e-4


@pytest.mark.parametrize(("noise", "steps"), [(4.0, 30), (1.0, 100), (40.0, 10_000)])
def test_whole_batches_are_composed_gaussians(noise, steps):
    found, true = bracket([Steps(noise, 1.0, steps)], 1e-5), epsilon_of(mu_of(noise, steps), 1e-5)
    assert found.low <= true <= found.high * (1 + 1e-9)
    assert found.high - found.low < 1e-3 * true


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.01, 2000), (0.6, 0.004, 3000), (2.0, 0.1, 500)])
def test_the_librarys_own_sampled_gaussian_is_the_same(noise, rate, steps):
    """Its pessimistic law has other code for the same; its optimistic one loses half a cell a step, ours does not."""
    interval = 1e-3
    above, below = (
        pld.from_gaussian_mechanism(
            noise, pessimistic_estimate=worse, value_discretization_interval=interval, sampling_prob=rate,
            use_connect_dots=worse,
        ).self_compose(steps).get_epsilon_for_delta(1e-5)
        for worse in (True, False)
    )  # fmt: skip
    ours = [
        (epsilons([Part(law.pessimistic(), steps, law.left_out)], interval, 1e-5, 1e-14)[1],
         epsilons([Part(law.optimistic(), steps)], interval, 1e-5, 1e-14)[0])
        for law in laws(Sampled(rate, 1 / noise), interval, reach_of(1e-20))
    ]  # fmt: skip
    assert max(high for high, _ in ours) == pytest.approx(above, rel=1e-6)
    best = bracket([Steps(noise, rate, steps)], 1e-5)
    assert below < best.low <= best.high <= above
    assert above - below > 0.4 * steps * interval
    assert best.high - best.low < (above - below) / 10


@pytest.mark.thorough
def test_steps_of_several_kinds_are_composed():
    kinds, interval = [Steps(1.0, 0.02, 300), Steps(1.5, 0.01, 500)], 1e-4
    one, other = (
        pld.from_gaussian_mechanism(
            each.noise, value_discretization_interval=interval, sampling_prob=each.rate
        ).self_compose(each.count)
        for each in kinds
    )
    found = bracket(kinds, 1e-5)
    assert found.low <= one.compose(other).get_epsilon_for_delta(1e-5) <= found.high + 1e-3
    assert found.high - found.low < 1e-2
    assert found.high > max(bracket([each], 1e-5).high for each in kinds)
    assert bracket(merged([kinds[1], kinds[0]]), 1e-5).high == pytest.approx(found.high, rel=1e-9)


def test_steps_of_one_kind_are_counted_together():
    apart = [Steps(1.0, 0.1, 2), Steps(2.0, 0.1, 1), Steps(1.0, 0.1, 5)]
    assert merged(apart) == (Steps(1.0, 0.1, 7), Steps(2.0, 0.1, 1))
    for wrong in ([], [Steps(1.0, 0.1, STEPS)] * 2, [Steps(1.0 + i / 100, 0.1, 1) for i in range(KINDS + 1)]):
        with pytest.raises(UsageError):
            merged(wrong)


def test_what_cannot_be_composed_has_no_bracket_and_says_so():
    assert bracket([Steps(LEAST_NOISE / 2, 0.1, 1)], 1e-5) is None
    assert bracket([Steps(1.0, 1e-3, 10**5)], 1e-12) is None
    found = account([Steps(1.0, 1e-3, 10**5)], 1e-12, POISSON)
    assert found.exact is None
    assert "not composed" in found.note
    assert found.total == pytest.approx(renyi(found.steps, 1e-12).epsilon, rel=0.05)
    assert "Renyi divergences of whole orders" in found.as_json()["statement"]["accountant"]
    assert found.at_least is None


@pytest.mark.parametrize("noise", [5e-324, 1e-200, 1e-3, 1e200, 1.7e308])
@pytest.mark.parametrize("law", [POISSON, FIXED])
def test_noise_beyond_all_measure_is_accounted_for_all_the_same(noise, law):
    found = account([Steps(noise, 0.5, 3), Steps(noise, 0.25, 3)], 1e-5, law)
    if noise < 1e-3:
        assert found.total == math.inf
        assert "too little noise" in found.note
    elif noise > 1:
        assert 0 <= found.total < 1e-5
    else:
        assert 1e5 < found.total < 1e9


@pytest.mark.parametrize(("rate", "delta"), [(0.01, 1e-299), (1e-300, 1e-5), (1 - 1e-12, 1e-5), (1e-12, 0.9)])
def test_rates_and_deltas_beyond_all_measure_are_accounted_for_too(rate, delta):
    found = account([Steps(1.0, rate, 10)], delta, POISSON)
    assert 0 <= found.total <= found.plain < math.inf
    assert found.at_least is None or found.at_least <= found.total


# one accountant a law


def test_amplification_is_counted_for_poisson_batches_alone():
    poisson, fixed = (account([USUAL], 1e-5, law) for law in (POISSON, FIXED))
    assert poisson.total == poisson.exact.high < 6.2
    assert fixed.total == pytest.approx(epsilon_of(mu_of(1.0, 10_000), 1e-5), rel=1e-9)
    assert fixed.total == poisson.plain > 800 * poisson.total
    assert {figure.reason for figure in fixed.beside.values()} == {NOT_POISSON}
    assert "without amplification" in fixed.as_json()["statement"]["accountant"]
    assert "dp-accounting" in poisson.as_json()["statement"]["accountant"]
    assert "needs 'fixed'" in poisson.as_json()["statement"]["adversary"]


def test_a_row_that_counts_several_times_has_as_many_norms():
    three = account([Steps(6.0, 0.5, 9)], 1e-5, MULTISET, 3)
    assert three.total == pytest.approx(epsilon_of(mu_of(6.0, 9, 3), 1e-5), rel=1e-9)
    assert three.total > account([Steps(6.0, 0.5, 9)], 1e-5, FIXED).total
    assert "at most 3 times" in three.as_json()["statement"]["adjacency"]
    for law, times in ((POISSON, 2), (FIXED, 2), (MULTISET, 0)):
        with pytest.raises(UsageError, match="times"):
            account([USUAL], 1e-5, law, times)


def test_without_amplification_rates_say_nothing():
    several = [Steps(3.0, 0.1, 9), Steps(3.0, 0.2, 16)]
    found, whole = account(several, 1e-5, FIXED), account([Steps(3.0, 1.0, 25)], 1e-5, FIXED)
    assert found == whole
    assert "rate" not in found.as_json()["statement"]["rounds covered"]


@pytest.mark.thorough
def test_a_statement_has_all_digits_of_what_an_epsilon_holds_at():
    """A delta that is rounded down has no such epsilon, and noise that is rounded up is more than there is."""
    about = account([Steps(1.2345678, 0.012345678, 100)], 0.00001234564, POISSON).as_json()["statement"]
    assert about["delta"] == "1.234564e-05"
    assert about["rounds covered"] == "100 steps: 100 with noise 1.2345678 and rate 0.012345678"
    with pytest.raises(UsageError, match=r"with noise 1\.2345678 at rate 1e-12"):
        answer(Asked(1.2345678, None, 10**3, 0.00001234564, POISSON), 1e-12)


def test_noise_of_several_sizes_is_one_gaussian():
    found = account([Steps(3.0, 0.1, 9), Steps(4.0, 0.1, 16)], 1e-5, FIXED)
    assert found.total == pytest.approx(epsilon_of(math.sqrt(2), 1e-5), rel=1e-9)


@pytest.mark.thorough
def test_batches_that_are_cut_join_delta():
    """1 + e^epsilon times the chance of any cut, rounded up; epsilon stays."""
    few, delta = Steps(1.0, 0.01, 100), 1.23456789e-6
    plain, cut = account([few], delta, POISSON), account([few], delta, POISSON, cut=1e-8)
    assert cut.total == plain.total
    assert plain.delta_in_all == delta
    exact_sum = delta + (1 + math.exp(plain.total)) * 1e-8
    assert exact_sum <= cut.delta_in_all <= exact_sum * (1 + 1e-9)
    assert cut.as_json()["delta_in_all"] == cut.delta_in_all
    told = cut.as_json()["statement"]["delta"]
    assert told == f"{cut.delta_in_all!r}, of which 1.23456789e-06 without cuts"  # no digit is rounded
    assert "cut to fit" in cut.as_json()["statement"]["sampling assumption"]
    assert "cut to fit" not in cut.as_json()["statement"]["outside it"]
    assert "cut to fit" in plain.as_json()["statement"]["outside it"]
    assert account([few], 1e-6, POISSON, cut=1.0).delta_in_all == 1
    for law, chance in ((FIXED, 0.1), (POISSON, 1.5), (POISSON, -0.1)):
        with pytest.raises(UsageError):
            account([few], 1e-6, law, cut=chance)


def test_the_command_adds_cuts(said):
    numbers = ("--noise", "1", "--rate", "0.01", "--steps", "100", "--delta", "1e-6", "--sampling", "poisson")
    found = json.loads(said(*numbers, "--cut", "1e-7", "--json"))
    assert found["delta_in_all"] > found["delta"] == 1e-6
    assert "of which 1e-06 without cuts" in said(*numbers, "--cut", "1e-7")


@pytest.mark.parametrize(
    ("noise", "cut", "least"),
    [(0.02, 1e-310, 1.0), (0.026, 1e-308, 1.0), (0.1, 5e-324, 1e-250), (1.0, 0.3, 0.3)],
)
def test_what_cuts_add_is_not_held_at_any_epsilon(noise, cut, least):
    """Against decimals, in which e^epsilon has no largest; one step with the row in it."""
    found = account([Steps(noise, 1.0, 1)], 1e-5, POISSON, cut=cut)
    with localcontext(Context(prec=50, Emin=-(10**6), Emax=10**6)):
        exact = Decimal(found.delta) + (1 + Decimal(found.total).exp()) * Decimal(cut)
        assert min(exact, 1) <= Decimal(found.delta_in_all) <= min(exact * (1 + Decimal("2e-12")), 1)
    assert found.delta_in_all >= least


@pytest.mark.thorough
def test_with_cuts_no_lower_bound_is_told(said):
    numbers = ("--noise", "1", "--rate", "0.01", "--steps", "100", "--delta", "1e-5", "--sampling", "poisson")
    assert json.loads(said(*numbers, "--json"))["epsilon_total_at_least"] > 0.7
    assert json.loads(said(*numbers, "--cut", "0.01", "--json"))["epsilon_total_at_least"] is None
    assert "the exact loss of batches that are never cut, at delta 1e-05, composed" in said(*numbers, "--cut", "0.01")


def test_delta_is_never_above_1(said):
    numbers = ("--noise", "1", "--rate", "0.01", "--steps", "100", "--sampling", "poisson")
    for delta, cut in (("0.5", "0.4"), ("1e-5", "1"), ("1e-5", "0.5")):
        text = said(*numbers, "--delta", delta, "--cut", cut)
        assert "1.00001" not in text
        assert "delta is 1, so there is no guarantee" in text
    assert "epsilon times it" not in said("--noise", "0", *numbers[2:], "--delta", "1e-5", "--cut", "0.1")


def test_no_guarantee_is_null_with_a_reason():
    for law in (POISSON, FIXED):
        for steps, delta, words in ((Steps(0.0, 0.1, 3), 1e-5, "no noise"), (Steps(1.0, 0.1, 3), 0.0, "no pure")):
            document = account([Steps(2.0, 0.1, 1), steps], delta, law).as_json()
            assert document["epsilon_total"] is None
            assert words in document["reason"]
    for wrong in ((-1.0, 0.1, 1), (1.0, 0.0, 1), (1.0, 1.1, 1), (1.0, math.nan, 1), (1.0, 0.1, 0), (math.inf, 0.1, 1)):
        with pytest.raises(UsageError):
            Steps(*wrong)
    with pytest.raises(UsageError, match="delta"):
        account([USUAL], 1.0, POISSON)


# what stands beside it


def test_the_figures_beside_are_those_of_opacus():
    for name, kind in (("rdp", RDPAccountant), ("prv", PRVAccountant)):
        theirs = kind()
        theirs.history = [(1.0, 0.01, 10_000)]
        assert account([USUAL], 1e-5, POISSON).beside[name].epsilon == theirs.get_epsilon(1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GaussianAccountant()
    theirs.history = [(1.0, 0.01, 10_000)]
    assert central_limit([USUAL], 1e-5).epsilon == theirs.get_epsilon(1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [USUAL, Steps(0.6, 0.004, 30_000), Steps(1.0, 0.004, 1)])
def test_the_limit_for_many_steps_is_no_bound_and_is_said_to_be_none(steps):
    found = account([steps], 1e-5, POISSON)
    figures = found.as_json()
    assert figures["epsilon_gdp"] < found.exact.low < found.total
    assert found.too_small()
    assert figures["gdp_is_bound"] is False
    assert found.total <= min(figures["epsilon_rdp"], figures["epsilon_prv"])


def test_what_opacus_cannot_compute_is_a_reason():
    assert "several kinds" in central_limit([USUAL, replace(USUAL, noise=2.0)], 1e-5).reason
    assert central_limit([Steps(0.05, 1.0, 1)], 1e-5) == beside.Figure(None, "Opacus ends in ValueError")
    assert "cells" in random_variables([Steps(0.05, 0.001, 10)], 1e-9).reason
    assert renyi([Steps(0.0, 0.5, 1)], 1e-5) == beside.Figure(None, "Opacus finds no finite number")


# histories


def next_less_private(one, name):
    """The same steps with one number worse by its last digit."""
    value = getattr(one, name)
    last = 1 if name == "count" else 10.0 ** (math.floor(math.log10(value)) - 3)
    return replace(one, **{name: value - last if name == "noise" else value + last})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("one", "target", "missing"),
    [(Steps(1.0, 0.01, 300), 1.2, each) for each in ("noise", "rate", "count")] + [(Steps(0.7, 0.2, 2), 0.5, "noise")],
)
def test_a_target_is_kept_to_and_the_next_number_does_not(one, target, missing):
    found = answer(replace(Asked(one.noise, one.rate, one.count, 1e-5, POISSON), **{missing: None}), target)
    assert replace(found, **{missing: getattr(one, missing)}) == one
    worse = next_less_private(found, missing)
    for cells in (COARSE, CELLS):
        assert bracket([found], 1e-5, cells).high <= target
    coarse = bracket([worse], 1e-5, COARSE)
    assert coarse.high > target
    assert coarse.low > target * 0.97


def test_a_target_that_everything_keeps_to_has_the_least_private_answer():
    asked = Asked(80.0, 0.01, 10, 1e-5, POISSON)
    assert answer(replace(asked, rate=None), 5.0).rate == 1
    assert answer(replace(asked, noise=1e5, count=None), 5.0).count == STEPS
    assert answer(replace(asked, noise=None), 1e7).noise == 0.01


@pytest.mark.parametrize(("law", "times"), [(FIXED, 1), (MULTISET, 3)])
def test_without_amplification_a_target_has_a_closed_form(law, times):
    asked = Asked(None, 1.0, 100, 1e-5, law, times)
    needed = noise_for(2.0, 1e-5, 100, times)
    assert needed <= answer(asked, 2.0).noise < needed * 1.001
    assert answer(replace(asked, noise=60.0, count=None), 2.0).count == rounds_for(2.0, 1e-5, 60.0, times)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("asked", "target", "told"),
    [
        ({"noise": 1.0}, 1.0, "left out"), ({"rate": None}, 1.0, "left out"), ({}, -1.0, "at least 0"),
        ({}, math.inf, "at least 0"), ({}, math.nan, "at least 0"), ({"delta": 0.0}, 1.0, "no guarantee"),
        ({"delta": -1.0}, 1.0, "delta is"), ({"count": 0}, 1.0, "steps are"), ({"rate": 2.0}, 1.0, "rate is"),
        ({"law": FIXED, "noise": 1.0, "rate": None}, 1.0, "left out"),
        ({"count": 10**6, "rate": 1.0, "law": FIXED}, 0.0, "already for"),
        ({"noise": 0.0, "count": None}, 1.0, "no guarantee already for 1 step with noise 0"),
        ({"noise": -1.0, "count": None}, 1.0, "noise is"), ({"noise": 0.5, "rate": 0.5, "count": None}, 0.1, "1 step"),
    ],
)  # fmt: skip
def test_what_no_number_answers_is_refused(asked, target, told):
    with pytest.raises(UsageError, match=told):
        answer(replace(Asked(None, 0.01, 10, 1e-5, POISSON), **asked), target)


def state_of(kind, *steps):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountant = kind()
    for noise, rate, count in steps:
        for _ in range(count):
            accountant.step(noise_multiplier=noise, sample_rate=rate)
    return accountant.state_dict()


@pytest.mark.parametrize("kind", [RDPAccountant, PRVAccountant, GaussianAccountant])
def test_the_state_of_an_accountant_is_read(kind):
    some = [(1.1, 0.02, 30)] + ([] if kind is GaussianAccountant else [(1.3, 0.02, 20), (1.1, 0.02, 7)])
    found = history(json.loads(json.dumps(state_of(kind, *some))))
    assert found.steps == tuple(Steps(*each) for each in some)
    assert found.mechanism == kind.mechanism()


@pytest.mark.parametrize(
    "state",
    [
        [], 1, None, "history", {}, {"mechanism": "rdp"}, {"history": [[1.0, 0.1, 2]]},
        {"history": {}, "mechanism": "rdp"}, {"history": [], "mechanism": "rdp"},
        *({"history": [[1.0, 0.1, 2]], "mechanism": name} for name in ("gaussian", None, 1, ["rdp"], "\x1b[2J")),
        *({"history": [row], "mechanism": "rdp"} for row in (
            [], 1, None, [1.0, 0.1], [1.0, 0.1, 2, 3], [1.0, 0.1, 2.0], [1.0, 0.1, True], [True, 0.1, 2], ["1", 0.1, 2],
            [-1.0, 0.1, 2], [1.0, 0.0, 2], [1.0, 2.0, 2], [1.0, 0.1, 0], [1.0, 0.1, -3], [10**400, 0.1, 2],
        )),
        {"history": [[1.0, 0.1, 2]], "mechanism": "rdp", "epsilon": 0.1},
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(state):
    with pytest.raises(UsageError) as told:
        history(state)
    assert "state_dict" in str(told.value)
    assert "\x1b" not in str(told.value)


@pytest.fixture
def said(fuaudit):
    def work(*arguments, expected=0):
        code, out, err = fuaudit("budget", "dpsgd", "--delta", "1e-5", *arguments)
        assert code == expected, err
        return out if expected == 0 else err

    return work


NUMBERS = ("--noise", "1", "--rate", "0.01", "--steps", 1000)


@pytest.mark.thorough
def test_the_command_says_what_decides_and_what_stands_beside(said):
    document = json.loads(said(*NUMBERS, "--sampling", "poisson", "--json"))
    found = account([Steps(1.0, 0.01, 1000)], 1e-5, POISSON)
    assert document == json.loads(json.dumps(found.as_json()))
    assert document["epsilon_total_at_least"] < document["epsilon_total"] < document["epsilon_prv"]
    assert {"delta", "unit", "adjacency", "adversary", "trust model", "sampling assumption", "accountant"} < set(
        document["statement"]
    )
    text = said(*NUMBERS, "--sampling", "poisson")
    for words in (
        "the exact loss, composed", "by PRVs", "by Renyi", "no bound", "SMALLER", "one row, and not one person",
    ):  # fmt: skip
        assert words in text
    fixed = ("--noise", "1", "--steps", 1000, "--sampling", "fixed")
    assert "Opacus by" not in said(*fixed)
    assert "rate" not in json.dumps(json.loads(said(*fixed, "--json"))["steps"])
    assert len(said(*NUMBERS, "--sampling", "poisson", "-q").splitlines()) == 1
    assert "no guarantee" in said("--noise", "0", *NUMBERS[2:], "--sampling", "poisson")


def test_the_law_of_batches_has_to_be_said(said):
    told = said(*NUMBERS, expected=2)
    for name, law in LAWS.items():
        assert f"--sampling {name}: {law.words}" in told
    for wrong in (
        (*NUMBERS, "--sampling", "multiset"),
        (*NUMBERS, "--sampling", "poisson", "--times", 2),
        (*NUMBERS[2:], "--sampling", "poisson"),
        ("--sampling", "poisson"),
        (*NUMBERS, "--sampling", "fixed"),
        (*NUMBERS[:2], *NUMBERS[4:], "--sampling", "poisson"),
        (*NUMBERS, "--history", "state.json", "--sampling", "poisson"),
        ("--history", "nowhere.json", "--sampling", "shuffled"),
    ):
        said(*wrong, expected=2)


@pytest.mark.thorough
def test_the_command_says_what_a_target_allows(said):
    few = ("--rate", 0.5, "--steps", 1, "--sampling", "poisson", "--target", 1.5)
    document = json.loads(said(*few, "--json"))
    assert (document["found"], document["target"]) == ("noise", 1.5)
    assert 1.4 < document["epsilon_total"] <= 1.5
    text = said("--steps", 20, "--sampling", "fixed", "--target", 9).splitlines()
    assert re.match(r"found for epsilon 9: --noise 2\.\d+$", text[0])
    assert said("--noise", 1, "--sampling", "fixed", "--target", 9, "-q").startswith("found for epsilon 9: --steps 3\n")
    everything = said("--noise", 100_000, "--rate", 0.01, "--sampling", "poisson", "--target", 1, "-q")
    assert re.match(rf"found for epsilon 1: --steps {STEPS}; at this rate {STEPS:,} steps are \S+ epochs", everything)
    assert "more are not accounted for" in everything
    for wrong in (
        (*NUMBERS, "--sampling", "poisson"),
        (*NUMBERS[:2], "--sampling", "poisson"),
        (*NUMBERS[:4], "--sampling", "fixed"),
        (*NUMBERS[2:], "--sampling", "fixed"),
        ("--history", "state.json", "--sampling", "poisson"),
    ):
        assert "leave out" in said(*wrong, "--target", 1, expected=2)


def test_a_history_is_accounted_for_as_its_numbers(said, tmp_path):
    (tmp_path / "state.json").write_text(json.dumps(state_of(RDPAccountant, (1.1, 0.02, 300), (1.3, 0.02, 200))))
    document = json.loads(said("--history", tmp_path / "state.json", "--sampling", "poisson", "--json"))
    assert document["history"] == {"mechanism": "rdp"}
    found = account([Steps(1.1, 0.02, 300), Steps(1.3, 0.02, 200)], 1e-5, POISSON)
    assert document["epsilon_total"] == found.total
    assert document["epsilon_gdp"] is None
    assert "its word for an epsilon is not asked" in said("--history", tmp_path / "state.json", "--sampling", "fixed")


class Ran:
    """What a careless reader would carry out."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_history_is_data_and_is_never_carried_out(said, tmp_path):
    torch.save({"history": Ran(tmp_path / "ran"), "mechanism": "rdp"}, tmp_path / "state.pt")
    assert "can run code" in said("--history", tmp_path / "state.pt", "--sampling", "poisson", expected=2)
    assert not (tmp_path / "ran").exists()
    os.mkfifo(tmp_path / "pipe")
    for name, content in (("nan", '{"history": [[NaN, 0.1, 2]], "mechanism": "rdp"}'), ("deep", "[" * 10**5), ("", "")):
        (tmp_path / f"{name}.json").write_text(content)
        said("--history", tmp_path / f"{name}.json", "--sampling", "poisson", expected=2)
    said("--history", tmp_path / "pipe", "--sampling", "poisson", expected=2)
    said("--history", tmp_path, "--sampling", "poisson", expected=2)
    said("--history", tmp_path / "nowhere.json", "--sampling", "poisson", expected=70)
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(2**24 + 1)
    assert "at most" in said("--history", tmp_path / "large.json", "--sampling", "poisson", expected=2)


@pytest.mark.thorough
def test_a_plot_shows_what_sampling_amplifies(said, tmp_path):
    said(*NUMBERS, "--sampling", "poisson", "--plot", tmp_path / "curve.svg", "-q")
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    numbers, ((total, _), (plain, _)) = curves(Steps(1.0, 0.01, 1000), 1e-5, POISSON)
    assert (numbers[0], numbers[-1]) == (1, 1000)
    assert list(total) == sorted(total)
    assert all(one < other for one, other in zip(total, plain, strict=True))
    assert plain[-1] == account([Steps(1.0, 0.01, 1000)], 1e-5, FIXED).total
    assert len(curves(Steps(1.0, 1.0, 1000), 1e-5, FIXED)[1]) == 1
    for more in (("--cut", "1e-9"), ("--noise", "0")):
        said(*NUMBERS, "--sampling", "poisson", "--plot", tmp_path / "none.svg", *more, expected=2)
    assert not (tmp_path / "none.svg").exists()
