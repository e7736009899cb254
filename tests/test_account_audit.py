"""Accounts against audits: a bound from below holds as often as it says, and faults that let out too much are refuted.

docs/results/account-audit.md has more trials, up to a million.
"""

import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fuaudit.errors import UsageError
from fuaudit.statistics.two_sample.events import least_epsilon
from fuaudit.testing import audit_account

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import account_audit as audit
import conspar_law as law

FEW = 6_000
"""Trials of each history where a fault is planted; those that are harder to see have more."""
MORE = {"half of the noise": 40_000, "what comes is drawn from all of [d], and may be there already": 25_000}


@pytest.fixture(scope="module")
def draws(tmp_path_factory):
    return law.stage_draws(tmp_path_factory.mktemp("audit") / "run")


# the bound


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_the_bound_is_above_the_true_epsilon_as_seldom_as_it_says(epsilon, delta):
    """Randomised response with an outcome that tells all, with chance delta: its epsilon at delta is the largest."""
    chance = generator(7)
    truth = 1 / (1 + math.exp(-epsilon))
    one = np.array([(1 - delta) * truth, (1 - delta) * (1 - truth), delta, 0])
    laws = one, one[[1, 0, 3, 2]]
    repeats, alpha, beyond, best = 400, 0.1, 0, 0.0
    for _ in range(repeats):
        found = least_epsilon(*(chance.choice(4, 3000, p=each) for each in laws), delta, alpha)
        beyond += found.lower > epsilon
        best = max(best, found.lower)
    assert stats.binom.sf(beyond - 1, repeats, alpha) > 1e-6, beyond
    assert best > 0.7 * epsilon


def test_many_kinds_that_mean_nothing_refute_nothing():
    """The event is chosen among hundreds, on trials that are not counted."""
    chance, repeats, beyond = generator(3), 400, 0
    for _ in range(repeats):
        beyond += least_epsilon(*chance.integers(0, 300, (2, 1000)), 0.0, 0.05).lower > 0
    assert stats.binom.sf(beyond - 1, repeats, 0.05) > 1e-6, beyond


def test_either_history_may_be_the_likelier_one_and_trials_may_be_of_two_numbers():
    always, never = np.ones(1000, dtype=np.int64), np.zeros(5000, dtype=np.int64)
    one, other = least_epsilon(always, never, 0.0, 0.05), least_epsilon(never, always, 0.0, 0.05)
    assert one.lower == one.ceiling == pytest.approx(other.lower, rel=0.5)
    assert one.trials == (800, 4000)
    assert one.ceiling == pytest.approx(math.log(0.025 ** (1 / 800) / (1 - 0.025 ** (1 / 4000))), rel=1e-9)
    assert least_epsilon(always, always, 0.0, 0.05).lower == 0
    assert least_epsilon(always, never, 0.999, 0.05).lower == 0


@pytest.mark.parametrize(
    ("one", "other", "delta", "alpha"),
    [
        ([0] * 9, [0] * 99, 0.0, 0.05), ([0] * 99, [], 0.0, 0.05), ([[0] * 99], [0] * 99, 0.0, 0.05),
        ([-1] * 99, [0] * 99, 0.0, 0.05), ([0] * 99, [0] * 99, 1.0, 0.05), ([0] * 99, [0] * 99, -0.1, 0.05),
        ([0] * 99, [0] * 99, 0.0, 0.0), ([0] * 99, [0] * 99, 0.0, 1.0),
    ],
)  # fmt: skip
def test_trials_that_bound_nothing_are_refused(one, other, delta, alpha):
    with pytest.raises(UsageError):
        audit_account(1.0, one, other, delta, alpha)


def test_above_the_account_it_fails_and_below_it_shows_nothing():
    kinds = [0] * 900 + [1] * 100, [0] * 100 + [1] * 900
    mixed = [generator(1).permutation(each) for each in kinds]
    for account, verdict in ((1.0, "FAIL"), (1.5, "FAIL"), (math.log(9), "PASS"), (math.inf, "PASS"), (0.0, "FAIL")):
        found = audit_account(account, *mixed)
        assert found.verdict == verdict
        assert 1.5 < found.least.lower < math.log(9)
        document = found.as_json()
        assert document["account"] == (account if account < math.inf else None)
        assert "shows nothing" in document["meaning"]
    assert audit_account(math.log(9), *mixed).share == pytest.approx(found.least.lower / math.log(9))
    assert found.share == math.inf
    assert audit_account(0.0, mixed[0], mixed[0]).verdict == "PASS"
    for wrong in (-1.0, math.nan):
        with pytest.raises(UsageError):
            audit_account(wrong, *mixed)


def test_the_event_that_is_chosen_bounds_most_of_what_there_is():
    """Few trials choose: what the rarer history never had among them may have a chance all the same."""
    trial, n = audit.noise(2.0), 10**6
    for seed in range(8):
        numbers = generator(seed).standard_normal((2, 1, n, audit.COLUMNS)) * 2
        numbers[0, ..., 0] += 1
        found = audit_account(trial.account, *(trial.sort(each * audit.NORM) for each in numbers), trial.delta)
        assert found.share > 0.58, seed


# the stages


HONEST = {
    "skellam-noise": audit.whole(1.0, 12),
    "skellam-noise, four clients": audit.whole(1.0, 12, 4),
    "dpsgd, Poisson batches": audit.step(0.3, 0.5),
    "consensus": audit.conspar(20, 2, 0.5),
    "consensus, all alike": audit.conspar(50, 4, 0.5),
    "consensus, two rounds": audit.ROUNDS["consensus, d = 20, k = 2, alpha = 0.5"][0],
    "gaussian-noise": audit.noise(1.0),
    "gaussian-noise, another column": audit.noise(1.0, column=1),
    "gaussian-noise, two rounds": audit.ROUNDS["gaussian-noise, noise 1"][0],
}


LESS = {"skellam-noise, four clients", "dpsgd, Poisson batches"}
"""Those whose noise, or sampling, leaves less to be seen in so few trials."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", HONEST)
def test_the_stage_keeps_to_its_account(draws, name):
    found = audit.audited(draws, HONEST[name], FEW)
    assert found.verdict == "PASS"
    assert found.share > (0.25 if name not in LESS else 0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("name", audit.FAULTS)
def test_planted_faults_that_let_out_too_much_are_refuted(draws, name):
    found = audit.audited(draws, audit.FAULTS[name], MORE.get(name[1], FEW))
    assert found.verdict == "FAIL", found


@pytest.mark.parametrize("name", audit.FAULTS)
def test_without_the_fault_the_same_trial_is_not_refuted(name):
    """It is one of those that keep to their account: draws are fixed, so another execution would tell the same."""
    trial = replace(audit.FAULTS[name], fault=None)
    if name[0] == "gaussian-noise":
        trial = replace(trial, stage=audit.GaussianNoise(trial.stage.norm, trial.stage.noise))
    if name[0] == "skellam-noise":
        trial = replace(trial, stage=audit.SkellamNoise(trial.stage.norm, trial.stage.noise, trial.stage.bits))
    assert parts(trial) in map(parts, HONEST.values())


def parts(trial):
    """What a trial is made of. Stage and histories have all numbers that its sorting into kinds uses."""
    histories = [[row.tolist() for row in rows] for rows in trial.histories]
    return trial.stage, histories, trial.account, trial.delta, trial.sort.__qualname__, trial.fault


@pytest.mark.thorough
def test_a_fault_that_makes_a_stage_more_private_is_no_matter_of_an_account(draws):
    fault = law.FAULTS["one trial too many"]
    assert audit.audited(draws, audit.conspar(20, 2, 0.5, fault=fault), FEW).verdict == "PASS"


def test_no_two_trials_have_the_same_draws(draws):
    """Rounds of both histories, and of all trials, are different ones."""
    seen = []

    class Watched:
        def own(self, number, place, client, occurrence):
            seen.append((number, client))
            return draws.own(number, place, client, occurrence)

    trial = replace(HONEST["consensus, two rounds"], fault=law.Fault())
    for history in (0, 1):
        assert len(audit.kinds(Watched(), trial, history, range(5))) == 60
    assert len(seen) == len(set(seen)) == 2 * 2 * 60


# the picture of the page


def words_in(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_the_picture_has_every_row_of_the_page_and_no_honest_bound_above_its_account():
    page = audit.PAGE.read_text()
    tables = audit.shown(page)
    assert {table: len(rows) for table, rows in tables.items()} == {
        table: len(rows) for table, rows in audit.TABLES.items()
    }
    for table, rows in tables.items():
        for row in rows:
            assert (row.least > row.account) == (row.verdict == "FAIL") == (table == "fault"), row
    fresh = audit.picture(page)
    assert {row.label for rows in tables.values() for row in rows} <= set(words_in(fresh))
    stored = audit.PICTURE.read_text()
    assert words_in(stored) == words_in(fresh), "run python benchmarks/account_audit.py --picture"
    assert stored.count("<use") == fresh.count("<use")


def test_figures_of_the_page_decide_what_is_drawn():
    page = audit.PAGE.read_text()
    assert audit.picture(page) == audit.picture(page)
    least = audit.shown(page)["conspar"][0].least
    assert f"| {least:.3f} |" in page
    assert audit.picture(page.replace(f"| {least:.3f} |", f"| {least - 1:.3f} |")) != audit.picture(page)


def test_tables_that_are_kept_stay_as_they_are():
    page = audit.PAGE.read_text()
    rows = audit.rows_of(page)
    assert audit.rows_of(audit.written(rows)) == rows


@pytest.mark.thorough
def test_a_step_with_noise_keeps_to_its_account_and_one_with_half_of_it_does_not(draws):
    trial = audit.step(1.0)
    found = audit.audited(draws, trial, 12_000)
    assert found.verdict == "PASS"
    assert found.share > 0.4
    quiet = replace(trial, stage=audit.DpSgd(audit.NORM, 0.3))
    assert audit.audited(draws, quiet, 12_000).verdict == "FAIL"
