"""Skellam noise on whole numbers: what rounding adds, the noise that is told, and the account of it."""

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from fuaudit_plugins.error_feedback import ErrorFeedback
from fuaudit_plugins.noise import clipped
from fuaudit_plugins.secure_sum import SecureSum
from fuaudit_plugins.skellam import SkellamNoise, in_field
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests_support import AUDIT_KEY, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.provenance.audit import Provenance
from fuaudit.budgets.gaussian.account import account as gaussian
from fuaudit.budgets.mechanisms import account_for, mechanism_of, statement_for
from fuaudit.budgets.shares import SHARED, SIMULATION, SUMS_ALONE, Shares
from fuaudit.budgets.skellam.account import account
from fuaudit.budgets.skellam.faces import statements
from fuaudit.budgets.skellam.law import CHANCE, Skellam, fitting
from fuaudit.budgets.skellam.plot import curves
from fuaudit.budgets.skellam.targets import noise_for, rounds_for, rounds_within
from fuaudit.budgets.target import ExceededError, Target
from fuaudit.draws import Keyed
from fuaudit.draws.labelled import _skellam
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.plans.stage_draws import Part
from fuaudit.runs.account import account_of
from fuaudit.testing.client_stages import check_client_stage
from fuaudit.testing.contexts import context_of, wide_context
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.events import Released
from fuaudit.training.rounds import StateShape
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence

NOISE = {"use": "skellam-noise", "norm": 0.5, "noise": 20.0, "bits": 18}
TABLES = tiny_config(
    learner={"use": "fedavg", "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.2, "rounds": 5},
    client=[NOISE],
    server=[{"use": "mean"}],
    transport={"use": "secure-sum", "size": 2},
    run={"checkpoint_every": 2, "engine": "reference", "device": "cpu", "requests": 2},
)


# what rounding adds


def most_squares(row):
    """The largest sum of squares that rounding up or down can make of a row."""
    return sum(max(math.floor(x) ** 2, math.ceil(x) ** 2) for x in row)


@pytest.mark.thorough
@pytest.mark.parametrize("reach", [1, Fraction(5, 2), 4])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_limit_can_be_kept_whatever_the_row(reach, dim):
    """Of all rows of halves in the ball, one rounding at least keeps to the limit, and as often as it says."""
    law = Skellam.rounded(Fraction(reach), dim, Fraction(1))
    grid = [Fraction(n, 4) for n in range(-4 * math.ceil(reach), 4 * math.ceil(reach) + 1)]
    assert law.squares >= reach**2 // 1
    for row in product(grid, repeat=dim):
        if sum(x * x for x in row) > Fraction(reach) ** 2:
            continue
        kept = Fraction(0)
        for ups in product((0, 1), repeat=dim):
            whole = [math.floor(x) + up for x, up in zip(row, ups, strict=True)]
            parts = [x - math.floor(x) for x in row]
            chance = math.prod(part if up else 1 - part for part, up in zip(parts, ups, strict=True))
            kept += chance * (sum(n * n for n in whole) <= law.squares)
        assert kept >= 0.39, row


def test_what_is_rounded_can_be_longer_than_the_norm_so_the_limit_is_charged():
    row = torch.full((1, 100), 0.05, dtype=torch.float64)  # of norm .5
    fit = fitting(0.5, 18, 100, Fraction(20))
    whole = rounded_by(SkellamNoise(0.5, 20.0, 18), row) / fit.step
    assert float(whole.square().sum()) > (0.5 / fit.step) ** 2
    assert float(whole.square().sum()) <= fit.law.squares


def rounded_by(stage, rows, number=1):
    """What the stage sends less its noise: whole numbers of the step."""
    context = replace(context_of(list(range(len(rows))), rows.dtype, number)).at(Part("client", 0), stage, None)
    found, _ = stage.apply(rows, context, {})
    fit = fitting(stage.norm, stage.bits, rows.shape[-1], Fraction(str(stage.noise)))
    drawn = [context.own(place).skellam("noise", fit.law.variance, rows.shape[-1]) for place in range(len(rows))]
    return found - torch.from_numpy(np.array(drawn)) * fit.step


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    st.floats(1e-30, 1e30),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(10, 18),
)
def test_every_row_is_whole_numbers_of_the_step_next_to_the_clipped_row(numbers, norm, dtype, bits):
    stage, row = SkellamNoise(norm, 1.5, bits), torch.tensor([numbers], dtype=dtype)
    fit = fitting(norm, bits, len(numbers), Fraction(3, 2))
    assert math.frexp(fit.step)[0] == 0.5
    context = context_of([0], dtype, 1).at(Part("client", 0), stage, None)
    ((sent,), _) = stage.apply(row, context, {})
    assert sent.dtype == dtype
    drawn = torch.from_numpy(context.own(0).skellam("noise", fit.law.variance, len(numbers)))
    whole = sent.to(torch.float64) / fit.step - drawn
    assert torch.equal(whole, whole.round())
    assert float(whole.square().sum()) <= fit.law.squares
    assert bool(((whole - clipped(row[0], norm) / fit.step).abs() < 1).all())


@pytest.mark.thorough
def test_rounding_keeps_the_mean():
    row = torch.tensor([[0.30001, -0.2, 0.1, 0.0]], dtype=torch.float64)
    stage = SkellamNoise(0.5, 1.0, 8)
    found = torch.stack([rounded_by(stage, row, number)[0] for number in range(1, 4001)])
    spread = found.std(dim=0) / 4000**0.5
    assert bool(((found.mean(dim=0) - row[0]).abs() <= 4.5 * spread + 1e-12).all())
    assert float(spread[0]) > 0
    assert bool((found[:, 3] == 0).all())  # a row of zeros stays one: that is what adjacency needs


def test_a_zero_row_is_sent_as_noise_alone_and_an_erased_one_stays_marked():
    assert bool((rounded_by(SkellamNoise(0.5, 1.0), torch.zeros(2, 50)) == 0).all())
    stage = SkellamNoise(0.5, 1.0)
    rows = torch.tensor([[float("nan"), 1.0]])
    sent, _ = stage.apply(rows, context_of([0], rows.dtype, 1).at(Part("client", 0), stage, None), {})
    assert bool(sent.isnan().all())


@pytest.mark.parametrize(
    ("norm", "noise", "bits"),
    [(0, 1, 8), (1, 0, 8), (float("inf"), 1, 8), (1, float("nan"), 8), (1, 1, 1), (1, 1, 19)],
)
def test_options_that_cannot_be_are_refused(norm, noise, bits):
    with pytest.raises(UsageError, match="needs a norm from"):
        SkellamNoise(norm, noise, bits)


def test_contracts():
    check_client_stage(SkellamNoise(0.5, 2.0))
    check_client_stage(SkellamNoise(0.7, 0.5, 12))


# the field


def test_a_share_that_does_not_fit_stops_its_client_and_is_never_cut():
    whole = torch.tensor([5.0, -127.0, 127.0])
    assert torch.equal(in_field(whole, 127, 3), whole)
    with pytest.raises(UsageError, match="a share of client 3 does not fit into its field: a number is beyond 127"):
        in_field(torch.tensor([5.0, -128.0]), 127, 3)


@pytest.mark.parametrize("squares", [1, 9, 400])
@pytest.mark.parametrize("noise", [Fraction(1, 2), Fraction(3)])
@pytest.mark.parametrize("dim", [1, 7])
def test_the_chance_of_leaving_the_field_is_no_smaller_than_the_exact_one(squares, noise, dim):
    law = Skellam(squares, dim, noise)
    high, low, first = _skellam(law.variance)
    sums = [0, *((int(h) << 64) + int(lo) for h, lo in zip(high, low, strict=True))]
    side = {first + place: Fraction(b - a, 2**128) for place, (a, b) in enumerate(pairwise(sums))}
    for largest in range(math.isqrt(squares), math.isqrt(squares) - first, 3):
        longest = math.isqrt(squares)
        outside = sum(mass for x, mass in side.items() if abs(x + longest) > largest)
        exact = 1 - (1 - float(outside)) ** dim  # one number has all of the norm, or each as much as all: no more
        assert law.beyond(largest) >= exact * (1 - 1e-9)
    assert law.beyond(math.isqrt(squares) - 1) == 1
    assert law.beyond(10**6) < 1e-9


def test_what_fits_does_so_with_the_chance_that_is_promised_and_the_next_finer_step_does_not():
    for bits, dim, noise in product((10, 12, 18), (1, 300), (Fraction(1), Fraction(5, 2))):
        fit = fitting(0.7, bits, dim, noise)
        assert fit.law.beyond(fit.largest) <= CHANCE
        finer = Skellam.rounded(2 * Fraction(0.7) / Fraction(fit.step), dim, noise)
        assert finer.beyond(fit.largest) > CHANCE
        assert fit.law.variance < 2**28
    for bits in (0, 1, 19, 64):
        with pytest.raises(UsageError, match="numbers have 2 to 18 bits"):
            fitting(1.0, bits, 4, Fraction(1, 2))
    with pytest.raises(UsageError, match="8 bits hold no rows of 21,840 numbers"):
        fitting(1.0, 8, 21_840, Fraction(1))


# the noise


def noise_of(number, part=0, dtype=torch.float64, stage=None):
    """What the stage adds to whole rows of three clients in one round, in steps ``(3, c)``."""
    stage = stage or SkellamNoise(0.7, 3.0)
    rows = torch.zeros(3, 4000, dtype=dtype)
    context = context_of([0, 2, 4], dtype, number).at(Part("client", part), stage, None)
    found, _ = stage.apply(rows, context, {})
    return (found.to(torch.float64) / fitting(stage.norm, stage.bits, 4000, Fraction(str(stage.noise))).step).numpy()


def told_of(stage, columns):
    told = stage.releases(columns)
    assert told.mechanism == "skellam"
    return Skellam(told.parameters["squares"], told.parameters["dim"], Fraction(str(told.parameters["noise"])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_added_is_the_noise_that_is_told(dtype):
    found = np.concatenate([noise_of(number, dtype=dtype).ravel() for number in range(1, 6)])
    variance = float(told_of(SkellamNoise(0.7, 3.0), 4000).variance)

    def fits(scale):
        return 0.0005 < stats.chi2.cdf((found**2).sum() / (variance * scale), len(found)) < 0.9995

    assert fits(1.0)
    assert not fits(0.97**2)
    assert not fits(1.03**2)
    assert np.array_equal(found, found.round())


def test_noise_of_two_clients_rounds_or_stages_is_uncorrelated():
    rows = [row for number in (1, 2) for part in (0, 1) for row in noise_of(number, part)]
    pairs = [stats.pearsonr(a, b).pvalue for n, a in enumerate(rows) for b in rows[:n]]
    assert len(pairs) == 66
    assert min(pairs) > 1e-3 / len(pairs)
    assert np.array_equal(noise_of(2), noise_of(2))


# the account


@cache
def logs(variance, wide):
    """Logs of the probabilities of 0 .. ``wide`` under a Skellam law, in decimals of 60 digits."""
    from decimal import Decimal, localcontext

    with localcontext() as exact:
        exact.prec, exact.Emin = 60, -(10**6)
        above, here, found = Decimal(0), Decimal(1), [Decimal(1)]
        ratio = Decimal(2) * variance.denominator / variance.numerator
        for x in range(wide + 40, 0, -1):
            above, here = here, above + ratio * x * here
            found.append(here)
        side = found[::-1]
        whole = 2 * sum(side) - side[0]
        return np.array([float((mass / whole).ln()) for mass in side[: wide + 1]])


def divergence(variance, shift, order):
    """The Renyi divergence of a law from itself shifted by a whole number, by its sum."""
    wide = int(10 * float(variance) ** 0.5 + 2 * order * shift) + 60
    side, places = logs(variance, wide + shift), np.arange(-wide, wide + 1)
    terms = order * side[np.abs(places - shift)] + (1 - order) * side[np.abs(places)]
    assert terms[0] < terms.max() - 40
    assert terms[-1] < terms.max() - 40
    return float(np.logaddexp.reduce(terms)) / (order - 1)


@pytest.mark.parametrize("variance", [Fraction(1, 4), Fraction(1), Fraction(7, 2), Fraction(30), Fraction(400)])
def test_the_printed_bound_holds_where_the_divergence_can_be_summed_up(variance):
    """For one number of a row; those of several add up, as squares and absolute values in the bound do."""
    near = 0.0
    for shift, order in product((1, 2, 3, 5), (2, 3, 5, 9, 20)):
        law = Skellam(shift**2, 1, Fraction(1))
        bound = replaced(law, variance).renyi(order)
        exact = divergence(variance, shift, order)
        assert exact <= bound, (shift, order)
        near = max(near, exact / bound)
    assert (
        near
        > {Fraction(1, 4): 0.1, Fraction(1): 0.3, Fraction(7, 2): 0.5, Fraction(30): 0.9, Fraction(400): 0.98}[variance]
    )


def replaced(law, variance):
    """The law with a variance that is no multiple of its squares by a decimal: of which none is asked here."""

    class Given(Skellam):
        @property
        def variance(self):
            return variance

    return Given(law.squares, law.dim, law.noise)


def exact_delta(variance, shift, rounds, epsilon):
    """Of one number whose rounds are added up: a function of what is seen, so no more than the exact delta."""
    wide = int(12 * float(variance * rounds) ** 0.5) + 60 + shift * rounds
    side, places = np.exp(logs(variance * rounds, wide + shift * rounds)), np.arange(-wide, wide + 1)
    gain = side[np.abs(places - shift * rounds)] - math.exp(epsilon) * side[np.abs(places)]
    return float(gain[gain > 0].sum())


@pytest.mark.parametrize("noise", [Fraction(1), Fraction(3), Fraction(10)])
@pytest.mark.parametrize(("squares", "rounds"), [(1, 1), (4, 1), (9, 8), (400, 2)])
def test_no_smaller_epsilon_than_that_of_one_number(noise, squares, rounds):
    law, delta = Skellam(squares, 3, noise), 1e-5
    found = account(law, rounds, delta).total
    assert exact_delta(law.variance, math.isqrt(squares), rounds, found) <= delta
    if float(law.variance) > 50:
        assert exact_delta(law.variance, math.isqrt(squares), rounds, found * 0.85) > delta


def test_with_fine_steps_it_is_near_that_of_gaussian_noise_and_with_coarse_ones_above():
    for noise, rounds in product((2, 10), (1, 50)):
        near = account(Skellam(10**8, 1000, Fraction(noise)), rounds, 1e-5).total
        exact = gaussian(float(noise), rounds, 1e-5).total
        assert exact < near < 1.12 * exact
        assert account(Skellam(4, 1000, Fraction(noise)), rounds, 1e-5).total > near


def test_epsilon_moves_with_each_number_as_it_should():
    law, delta = Skellam(10_000, 500, Fraction(4)), 1e-6
    base = account(law, 20, delta).total
    assert account(law, 21, delta).total > base
    assert account(law, 20, delta / 10).total > base
    assert account(replace(law, noise=Fraction(5)), 20, delta).total < base
    assert account(law, 20, delta, shares=4).total < base
    assert account(law, 20, delta, shares=4).total == pytest.approx(
        account(replace(law, noise=Fraction(8)), 20, delta).total, rel=1e-9
    )
    assert account(law, 20, delta, missing=1e-8).total > base
    assert account(law, 20, delta, missing=1e-4).total == math.inf
    assert account(law, 20, 0.0).note.startswith("delta is 0")


def test_what_is_missing_is_in_delta():
    law, delta, missing = Skellam(10_000, 500, Fraction(4)), 1e-5, 1e-8
    found = account(law, 5, delta, missing=missing)
    assert found.stray >= missing
    joins = (1 + math.exp(found.total)) * found.stray
    bare = account(law, 5, delta - joins)
    assert found.total == pytest.approx(bare.total, rel=1e-3)
    assert found.total >= account(law, 5, delta).total


@pytest.mark.parametrize(
    ("rounds", "shares", "delta"), [(0, 1, 1e-5), (10**9 + 1, 1, 1e-5), (1, 0, 1e-5), (1, 1, 1.0), (1, 1, 1e-301)]
)
def test_numbers_out_of_range_are_refused(rounds, shares, delta):
    with pytest.raises(UsageError):
        account(Skellam(100, 10, Fraction(1)), rounds, delta, shares)


def test_faces_count_the_shares_that_are_not_known():
    fit = fitting(1.0, 16, 1000, Fraction(4))
    total, buffer, row = statements(fit, Shares(32, 4, colluding=1), 10, 1e-5, secrets_beside=False)
    assert [one.shares for one in (total, buffer, row)] == [31, 3, 1]
    assert total.total < buffer.total < row.total
    assert row.total == account(fit.law, 10, 1e-5).total
    assert row.missing == 0 < total.missing == 320 * fit.law.beyond(fit.largest)
    assert (total.trust, row.trust) == (f"{SHARED}. Assumed: {SUMS_ALONE}", SHARED)
    assert "31 shares of 32" in total.statement().adversary
    beside = statements(fit, Shares(32, 4), 10, 1e-5, secrets_beside=True)
    assert all(one.statement().trust_model.startswith(SIMULATION) for one in beside)
    # where a sum may lack a share too often, what holds of the row holds of the sum too
    likely = fit._replace(largest=math.isqrt(fit.law.squares) - 1)
    fallen = statements(likely, Shares(32, 4), 10, 1e-5, False)
    assert [(one.total, one.shares) for one in fallen] == [(row.total, shares) for shares in (32, 4, 1)]


def shares_of(rounds, remembering):
    """What is opened of five clients whose rows are zero, added up over rounds, in steps; and the law."""
    stage, memory, clients = SkellamNoise(1.0, 0.1), ErrorFeedback(), [0, 1, 2, 3, 4]
    rows, fit, total = torch.zeros(5, 1, dtype=torch.float64), fitting(1.0, 16, 1, Fraction(1, 10)), 0.0
    state = memory.init(StateShape(1, 5, rows.dtype, torch.device("cpu")))
    for number in range(1, rounds + 1):
        context = wide_context(clients, rows.dtype, number, 1)
        kept, after = memory.apply(rows, context, state)
        sent, _ = stage.apply(kept, context.at(Part("client", 1), stage, None), {})
        if remembering:
            state = memory.settle(sent, sent.mean(dim=0, keepdim=True), context, after)
        total += float(sent.sum()) / fit.step
    return total, fit


@pytest.mark.thorough
def test_behind_error_feedback_the_noise_on_sums_cancels_and_statements_say_so():
    """What is opened in many rounds adds up to the noise of one: so shares of other rounds hide nothing."""
    totals = [shares_of(rounds, True)[0] for rounds in range(20, 60)]
    alone = [shares_of(rounds, False)[0] for rounds in range(20, 60)]
    fit = shares_of(1, True)[1]
    of_one = float(5 * fit.law.variance)
    assert 0.3 < np.mean(np.square(totals)) / of_one < 3  # however many rounds there were
    assert np.max(np.square(alone)) / of_one > 5
    total, _, row = statements(fit, Shares(5, 5), 24, 1e-5, secrets_beside=False)
    assert "no error-feedback stands in front of the noise" in total.statement().trust_model
    assert "error-feedback" not in row.statement().trust_model


@pytest.mark.parametrize(("rounds", "clients", "delta"), [(10, 32, 1e-5), (1000, 10**6, 1e-11), (100, 1000, 1e-16)])
def test_each_curve_ends_at_its_account_also_where_shares_can_be_missing(rounds, clients, delta):
    fit = fitting(1.66, 18, 1000, Fraction(60))
    told = statements(fit, Shares(clients, clients // 2), rounds, delta, secrets_beside=False)
    assert [values[-1] for values, _ in curves(told).lines] == [one.total for one in told]
    for one in told:
        assert (1 + math.exp(one.total)) * one.stray < delta


def test_targets_are_kept_by_their_answers():
    fit = noise_for(Target(2.0, 1e-5), 20, 1.0, 16, 1000)
    assert account(fit.law, 20, 1e-5).total <= 2.0
    less = fitting(1.0, 16, 1000, fit.law.noise - Fraction(1, 1000))
    assert account(less.law, 20, 1e-5).total > 2.0
    most = rounds_for(fit.law, Target(2.0, 1e-5))
    assert most >= 20
    assert account(fit.law, most, 1e-5).total <= 2.0 < account(fit.law, most + 1, 1e-5).total
    assert rounds_within(fit.law, Target(2.0, 1e-5), most) == most - 1
    with pytest.raises(UsageError, match="no noise that fits into 8 bits"):
        noise_for(Target(0.1, 1e-5), 20, 1.0, 8, 1000)
    with pytest.raises(UsageError, match="one round has epsilon"):
        rounds_for(fit.law, Target(0.01, 1e-5))
    for asked in (lambda: rounds_for(fit.law, Target(2.0, 0.0)), lambda: noise_for(Target(2.0, 0.0), 20, 1.0, 16, 9)):
        with pytest.raises(UsageError, match="delta is 0, and Skellam noise"):
            asked()


# in runs


def trained(folder, **tables):
    return train(TABLES | tables, folder, tiny_dataset(), secret(1))


def law_in(run):
    """What its stage tells, as the account has it."""
    return told_of(SkellamNoise(0.5, 20.0, 18), run.model.numel())


def test_the_account_of_a_family_is_that_of_the_noise(tmp_path):
    run = trained(tmp_path / "run")
    told = [event for line in run.ledger.of_kind("round") for event in line["told"]]
    expected = SkellamNoise(0.5, 20.0, 18).releases(run.model.numel())
    released = [(one["mechanism"], one["parameters"]) for one in told if one["kind"] == "released"]
    assert released == [("skellam", expected.parameters)] * 5
    assert {one["size"] for one in told if one["kind"] == "sent"} == {(run.model.numel() * 18 + 7) // 8}
    (rows,) = account_of(run, 1e-5).unlimited.values()
    assert {one.where for one in rows} == {"metrics.json", "participation.json"}
    child = unlearn(run, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    found = account_of(load_run(child.path), delta=1e-5)
    (one,) = found.towards["server"].accounts
    assert (one.part, one.rounds, one.epsilon) == ("client.0", 10, account(law_in(run), 10, 1e-5).total)
    stated = one.statement.as_json()
    assert "with no noise but the client's own" in stated["adversary"]
    assert "the clients' secrets lie with child, run" in stated["trust model"]


def test_sums_of_buffers_are_whole_numbers_with_the_noise_of_all_their_shares():
    """Four clients whose rows are zero, in one buffer: the mean times four is the sum of four shares."""
    stage, columns = SkellamNoise(0.7, 3.0), 4000
    fit = fitting(0.7, 16, columns, Fraction(3))
    rows = torch.zeros(4, columns)
    sums = []
    for number in range(1, 6):
        context = context_of([0, 1, 2, 4], rows.dtype, number)
        sent, _ = stage.apply(rows, context.at(Part("client", 0), stage, None), {})
        lot = context.at(Part("transport"), transport := SecureSum(size=4))
        sums.append(transport.deliver(sent, lot).rows[0].to(torch.float64).numpy() * 4 / fit.step)
    found = np.concatenate(sums)
    assert np.array_equal(found, found.round())
    assert 0.0005 < stats.chi2.cdf((found**2).sum() / (4 * float(fit.law.variance)), len(found)) < 0.9995


def budget(most, rounds, delta=1e-5):
    learner = TABLES["learner"] | {"rounds": rounds}
    return TABLES | {"learner": learner, "budget": {"epsilon": most, "delta": delta}}


def test_a_config_keeps_to_its_budget_or_is_refused(tmp_path):
    law = law_in(trained(tmp_path / "first"))
    most = account(law, 5, 1e-5).total * (1 + 1e-9)
    run = train(budget(most, 5), tmp_path / "run", tiny_dataset(), secret(1))
    with pytest.raises(UsageError, match=r"(?s)6 rounds have epsilon .*\n.*At most 5 rounds keep to it"):
        train(budget(most, 6), tmp_path / "more", tiny_dataset(), secret(1))
    with pytest.raises(UsageError, match=r"(?s)no guarantee.*delta is 0"):
        train(budget(most, 5, 0.0), tmp_path / "more", tiny_dataset(), secret(1))
    assert not (tmp_path / "more").exists()
    found = Provenance().examine(Case(Evidence(load_run(run.path), None, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert found.verdict == "PASS", found.details
    assert any("SHAKE-256" in one for one in found.assumptions)
    assert not any("last bits" in one for one in found.assumptions)


def test_a_federation_with_noise_forgets_and_is_verified(tmp_path, quick):
    learner = {"use": "fedavg", "cohort": 2, "steps": 2, "batch": 2, "step_size": 0.2, "rounds": 8}
    run = trained(tmp_path / "run", learner=learner)
    client = max(run.plan.index.clients, key=lambda one: run.plan.index.clients[one])
    child = unlearn(run, "fats", Request.of([client]), tmp_path / "child", data=tiny_dataset())
    found = verify(load_run(child.path), quick, key=AUDIT_KEY, save=False, data=tiny_dataset()).findings
    assert {finding.audit: str(finding.verdict) for finding in found} == dict.fromkeys(
        ("integrity", "replay", "provenance", "lineage"), "PASS"
    )


@pytest.mark.parametrize("options", [{"bits": 4}, {"norm": 1e-31}, {"noise": 1e-7}])
def test_what_no_round_can_do_is_refused_before_training_also_without_a_budget(tmp_path, options):
    with pytest.raises(UsageError):
        trained(tmp_path / "run", client=[NOISE | options])
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError):
        trained(tmp_path / "run", client=[{"use": "clip", "norm": 1.0}, NOISE | options])


@pytest.mark.parametrize(
    "parameters",
    [{}, {"noise": 1.0}, {"noise": 0.0, "squares": 4, "dim": 3}, {"noise": 1.0, "squares": "many", "dim": 3}],
)
def test_what_nobody_accounts_for_is_said(parameters):
    with pytest.raises(ExceededError, match="nobody accounts for the mechanism 'skellam'"):
        mechanism_of("skellam", parameters)


@pytest.mark.parametrize("more", [{"noise": 1e-200}, {"noise": 1e200}, {"squares": 0}, {"squares": 10**30}, {"dim": 0}])
def test_what_floats_cannot_hold_is_refused(more):
    with pytest.raises(UsageError, match="whole numbers with noise need"):
        mechanism_of("skellam", {"noise": 1.0, "squares": 4, "dim": 3} | more)


def test_the_ledgers_words_are_the_law():
    told = SkellamNoise(0.7, 0.3, 12).releases(50)
    assert isinstance(told, Released)
    law = mechanism_of("skellam", told.parameters)
    assert law == fitting(0.7, 12, 50, Fraction(3, 10)).law
    found = account_for(law, 3, 1e-5)
    assert found.total == account(law, 3, 1e-5).total
    assert statement_for(found).as_json()["unit"].startswith("all rows of one client")


# the command


def test_the_command(fuaudit):
    given = "budget", "skellam", "--dim", 1000, "--delta", "1e-5"
    code, out, _ = fuaudit(*given, "--share", 4, "--rounds", 10, "--json")
    assert code == 0
    document = json.loads(out)
    law = fitting(1.0, 16, 1000, Fraction(4)).law
    assert document["epsilon_total"] == account(law, 10, 1e-5).total
    assert document["squares"] == law.squares
    code, out, _ = fuaudit(*given, "--share", 4, "--rounds", 10, "--clients", 32, "--buffer", 4, "--json")
    assert [face["shares"] for face in json.loads(out)["faces"]] == [32, 4, 1]
    code, out, _ = fuaudit(*given, "--target", 2, "--rounds", 20, "-q")
    assert code == 0
    code, out, err = fuaudit(*given, "--share", 4)
    assert code == 2
    assert "--share and --rounds" in err
    code, out, err = fuaudit(*given, "--share", 4, "--rounds", 10, "--bits", 2)
    assert code == 2
    assert "2 bits hold no rows" in err
    for norm in (-1, 0, "nan", "inf"):
        code, out, err = fuaudit(*given, "--share", 4, "--rounds", 10, "--norm", norm)
        assert (code, "norm" in err, out) == (2, True, "")


def test_a_plot(fuaudit, tmp_path):
    given = "budget", "skellam", "--dim", 1000, "--delta", "1e-5", "--share", 4, "--rounds", 10, "--clients", 8
    code, _, _ = fuaudit(*given, "--plot", tmp_path / "b.svg")
    assert code == 0
    words = (tmp_path / "b.svg").read_text()
    assert "the row of a client" in words
    assert "no guarantee from" not in words
    loud = "budget", "skellam", "--dim", 1000, "--delta", "1e-5", "--share", 0.5, "--rounds", 90, "--clients", 400
    assert fuaudit(*loud, "--plot", tmp_path / "c.svg")[0] == 0
    assert re.search("the row of a client.*no guarantee from [0-9]+ rounds on", (tmp_path / "c.svg").read_text())
    assert fuaudit(*loud, "--plot", tmp_path / "d.svg", "--delta", "0")[0] == 2
