"""Clip and noise: no row is longer than the norm before noise, and the noise is the one that is told and charged."""

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from fuaudit_plugins.noise import Clip, GaussianNoise, clipped
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests_support import AUDIT_KEY, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.provenance.audit import Provenance
from fuaudit.budgets.gaussian.account import account
from fuaudit.draws import Keyed
from fuaudit.errors import RedactedError, UsageError
from fuaudit.plans import Request
from fuaudit.plans.stage_draws import Part
from fuaudit.runs.account import account_of
from fuaudit.testing.client_stages import check_client_stage
from fuaudit.testing.contexts import context_of
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.events import Released
from fuaudit.training.releases import BEHIND, beside_rows
from fuaudit.training.solvers import Sgd
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow import begin
from fuaudit.workflow.redact import redact

NOISE = {"use": "gaussian-noise", "norm": 0.5, "noise": 20.0}
TABLES = tiny_config(
    learner={"use": "fedavg", "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.2, "rounds": 5},
    client=[NOISE],
    server=[{"use": "mean"}],
    run={"checkpoint_every": 2, "engine": "reference", "device": "cpu", "requests": 2},
)


def trained(folder, **tables):
    return train(TABLES | tables, folder, tiny_dataset(), secret(1))


def length(row):
    """The square of a norm, exactly."""
    return sum(Fraction(number) ** 2 for number in row.to(torch.float64).tolist())


ROWS = {
    "zero": [0.0] * 5,
    "one number": [0.0, -3.0, 0.0],
    "huge": [1.7e308, -1.7e308, 1e300],
    "tiny": [1e-310, 5e-324, -3e-320],
    "both": [1e308, 1e-308, 5e-324],
    "just longer": [0.3, 0.4 * (1 + 2.0**-52)],
    "many": list(np.linspace(-1, 1, 10_001)),
}


@pytest.mark.parametrize("norm", [0.5, 1.0, 1e-3, 1e6])
@pytest.mark.parametrize("name", ROWS)
def test_no_row_is_longer_than_the_norm(name, norm):
    row = torch.tensor(ROWS[name], dtype=torch.float64)
    found = clipped(row, norm)
    assert length(found) <= Fraction(norm) ** 2
    if length(row) <= Fraction(norm * (1 - 1e-9)) ** 2:
        assert torch.equal(found, row)
    else:
        assert length(found) >= Fraction(norm * (1 - 1e-9)) ** 2
        assert torch.allclose(found / norm, row / row.abs().max() / (row / row.abs().max()).norm(), rtol=1e-9, atol=0)


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=6),
    st.floats(1e-6, 1e6),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_stage_leaves_no_row_longer_in_its_own_type(numbers, norm, dtype):
    rows = torch.tensor([numbers], dtype=dtype).reshape(1, len(numbers))
    ((found,), _) = Clip(norm).apply(rows, None, {})
    assert found.dtype == dtype
    assert length(found) <= Fraction(norm) ** 2


def test_a_row_without_columns_and_the_mark_of_an_erased_row_pass():
    assert clipped(torch.zeros(0), 1.0).shape == (0,)
    assert bool(clipped(torch.tensor([0.0, torch.nan]), 1.0).isnan().all())
    assert not bool(clipped(torch.tensor([1.0, torch.inf]), 1.0).isfinite().all())


@pytest.mark.parametrize(("norm", "noise"), [(0.0, 1.0), (1.0, 0.0), (float("inf"), 1.0), (1.0, float("nan"))])
def test_numbers_that_cannot_be_are_refused(norm, noise):
    with pytest.raises(UsageError, match="finite norm"):
        GaussianNoise(norm, noise)


def test_contracts():
    check_client_stage(Clip(0.5))
    check_client_stage(GaussianNoise(0.5, 2.0))


# the noise


NORM, DEVIATIONS, COLUMNS = 0.7, 3.0, 4000


def noise_of(number, part=0, dtype=torch.float64, stage=None):
    """What the stage adds to the clipped rows of three clients, in one round, as a multiple of the norm."""
    stage = stage or GaussianNoise(NORM, DEVIATIONS)
    rows = torch.linspace(-1, 1, 3 * COLUMNS).reshape(3, COLUMNS).to(dtype)
    context = replace(context_of([0, 2, 4], dtype, number)).at(Part("client", part), stage, None)
    found, _ = stage.apply(rows, context, {})
    return ((found - torch.stack([clipped(row, NORM) for row in rows])) / NORM).numpy()


def is_standard(numbers):
    """Whether the sum of squares is that of standard normal numbers, at one in a thousand."""
    chance = stats.chi2.cdf((numbers**2).sum(), len(numbers))
    return 0.0005 < chance < 0.9995


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_added_is_the_noise_that_is_told(dtype):
    found = np.concatenate([noise_of(number, dtype=dtype).ravel() for number in range(1, 6)])
    told = GaussianNoise(NORM, DEVIATIONS).releases(COLUMNS)
    assert told == Released("gaussian", {"noise": DEVIATIONS, "norm": NORM})
    assert stats.kstest(found / told.parameters["noise"], "norm").pvalue > 1e-3
    assert is_standard(found / told.parameters["noise"])
    for wrong in (0.97, 1.03):  # so little is found
        assert not is_standard(found / (told.parameters["noise"] * wrong))


def test_noise_of_two_clients_rounds_or_stages_is_uncorrelated():
    rows = {
        (client, number, part): row
        for number in (1, 2, 3)
        for part in (0, 1)
        for client, row in zip((0, 2, 4), noise_of(number, part), strict=True)
    }
    pairs = [stats.pearsonr(rows[one], rows[other]) for one, other in combinations(rows, 2)]
    assert len(pairs) == 153
    assert min(pair.pvalue for pair in pairs) > 1e-3 / len(pairs)
    assert np.array_equal(noise_of(2), noise_of(2))


def test_a_redacted_run_cannot_make_it_again_and_a_client_can(tmp_path):
    run = trained(tmp_path / "run")
    with pytest.raises(RedactedError):
        redact(run, tmp_path / "without").stage_draws(run.plan)
    (draws,) = run.stage_draws(run.plan)
    mine = replace(run.secrets, generations=({2: run.secrets.generations[0][2]},))
    alone = mine.draws(run.plan, run.commitment, [run.sources[0].context])
    place = Part("client", 0)
    same = [one.own(1, place, 2, 0).normal("noise", 9) for one in (draws, alone)]
    assert np.array_equal(*same)
    assert not np.array_equal(same[0], draws.own(1, place, 3, 0).normal("noise", 9))


# the account


def test_the_account_of_a_family_is_that_of_the_noise(tmp_path):
    run = trained(tmp_path / "run")
    child = unlearn(run, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    found = account_of(load_run(child.path), delta=1e-5)
    (one,) = found.towards["server"].accounts
    assert (one.part, one.rounds, one.epsilon) == ("client.0", 10, account(20.0, 10, 1e-5).epsilon)
    stated = one.statement.as_json()
    assert stated["unit"].startswith("all rows of one client in the rounds covered, each clipped")
    assert "with no noise but the client's own" in stated["adversary"]
    assert "the clients' secrets lie with child, run" in stated["trust model"]
    assert one.as_json()["epsilon_total"] == one.epsilon
    (pure,) = account_of(load_run(child.path)).towards["server"].accounts
    assert (pure.epsilon, pure.as_json()["epsilon_total"]) == (float("inf"), None)
    assert "delta is 0" in pure.reason


def test_what_is_made_of_noisy_rows_is_no_release_without_noise(tmp_path):
    """Where the word of the stage is taken, and what is measured on private rows stays one."""
    run = trained(tmp_path / "run")
    plain = trained(tmp_path / "plain", client=[{"use": "clip", "norm": 0.5}])
    behind = trained(tmp_path / "behind", client=[{"use": "consensus", "per_client": 2}, NOISE])
    listed = [
        {one.where for (rows,) in [account_of(each).unlimited.values()] for one in rows}
        for each in (run, plain, behind)
    ]
    made = {"rounds", "ledger.jsonl", "checkpoints/NNNNNN.safetensors", "model.safetensors"}
    measured = {"metrics.json", "participation.json"}
    assert listed == [measured, measured | made, measured | made]


def test_the_command_says_so(tmp_path, fuaudit):
    run = trained(tmp_path / "run")
    code, out, err = fuaudit("budget", "run", run.path, "--delta", "1e-5")
    assert code == 0, err
    assert "client.0, gaussian (noise 20.0, norm 0.5), 5 rounds: epsilon " in out
    code, _, err = fuaudit("budget", "run", run.path, "--delta", "1e-5", "--differ", 2)
    assert (code, "Leave --differ out" in err) == (2, True)
    code, out, _ = fuaudit("budget", "run", run.path, "--json")
    assert json.loads(out)["towards"]["public"]["accounts"][0]["reason"].startswith("delta is 0")


def budget(most, rounds, delta=1e-5, **tables):
    learner = TABLES["learner"] | {"rounds": rounds}
    return TABLES | tables | {"learner": learner, "budget": {"epsilon": most, "delta": delta}}


def test_a_config_keeps_to_its_budget_or_is_refused(tmp_path, monkeypatch):
    most = account(20.0, 5, 1e-5).epsilon * (1 + 1e-9)
    run = train(budget(most, 5), tmp_path / "run", tiny_dataset(), secret(1))
    with pytest.raises(UsageError, match=r"(?s)6 rounds have epsilon .*\n.*At most 5 rounds keep to it"):
        train(budget(most, 6), tmp_path / "more", tiny_dataset(), secret(1))
    with pytest.raises(UsageError, match=r"(?s)no guarantee.*delta is 0"):
        train(budget(most, 5, 0.0), tmp_path / "more", tiny_dataset(), secret(1))
    case = Case(Evidence(load_run(run.path), None, tiny_dataset()), Keyed(AUDIT_KEY))
    found = Provenance().examine(case)
    assert found.verdict == "PASS", found.details
    assert any("last bits of the noise tell nothing" in one for one in found.assumptions)
    assert not any("top sets" in one for one in found.assumptions)
    monkeypatch.setattr(begin, "capped", lambda *anything: None)
    beyond = train(budget(most, 6), tmp_path / "beyond", tiny_dataset(), secret(1))
    case = Case(Evidence(load_run(beyond.path), None, tiny_dataset()), Keyed(AUDIT_KEY))
    assert Provenance().examine(case).verdict == "FAIL"


@dataclass(frozen=True)
class Solver:
    """What a solver says of itself."""

    uploads: int = 1
    private: bool = False
    remembered: tuple = ()

    def init(self, shape):
        return {name: shape.zeros(shape.clients, shape.dimension) for name in self.remembered}


def test_what_a_solver_lets_the_server_have_is_not_under_the_noise(tmp_path, monkeypatch):
    """Those that keep rows of clients at the server are refused with any client stage; others may sum them, or send."""
    assert beside_rows(Sgd()) == beside_rows(Solver()) == beside_rows(Solver(1, True, ("momenta",))) == ""
    assert "sends more vectors" in beside_rows(Solver(uploads=2))
    assert "is the server's" in beside_rows(Solver(remembered=("mean",)))
    assert "is the server's" in beside_rows(Solver(remembered=3))
    with pytest.raises(UsageError, match="the server sees them"):
        trained(tmp_path / "scaffold", solver={"use": "scaffold"})
    run = trained(tmp_path / "run")
    monkeypatch.setattr(Sgd, "uploads", 2, raising=False)
    with pytest.raises(UsageError, match=r"\[budget\] cannot account for .*'gaussian-noise': .* sends more vectors"):
        train(budget(9.0, 5), tmp_path / "other", tiny_dataset(), secret(1))
    (one,) = account_of(load_run(run.path), 1e-5).towards["public"].accounts
    assert (one.epsilon, "sends more vectors" in one.reason) == (float("inf"), True)


def test_behind_an_agreement_noise_is_too_late(tmp_path):
    consensus = {"use": "consensus", "per_client": 2, "alpha": 0.99}
    before, behind = (
        account_of(trained(tmp_path / name, client=stages), 1e-5).towards["public"].accounts
        for name, stages in (("before", [NOISE, consensus]), ("behind", [consensus, NOISE]))
    )
    assert before[0].epsilon == account(20.0, 5, 1e-5).epsilon
    assert before[1].epsilon < float("inf")
    assert (behind[1].epsilon, behind[1].reason) == (float("inf"), BEHIND)


@settings(max_examples=20)
@given(st.floats(0.5, 50.0), st.integers(1, 40))
def test_the_told_parameters_are_those_that_are_accounted_for(noise, rounds):
    from fuaudit.budgets.mechanisms import account_for, mechanism_of

    told = GaussianNoise(0.3, noise).releases(7)
    found = account_for(mechanism_of(told.mechanism, told.parameters), rounds, 1e-5)
    assert found.total == account(noise, rounds, 1e-5).epsilon


def test_a_federation_with_noise_forgets_and_is_verified(tmp_path, quick):
    learner = {"use": "fedavg", "cohort": 2, "steps": 2, "batch": 2, "step_size": 0.2, "rounds": 8}
    run = trained(tmp_path / "run", client=[{"use": "clip", "norm": 1.0}, NOISE], learner=learner)
    client = max(run.plan.index.clients, key=lambda one: run.plan.index.clients[one])
    child = unlearn(run, "fats", Request.of([client]), tmp_path / "child", data=tiny_dataset())
    found = verify(load_run(child.path), quick, key=AUDIT_KEY, save=False, data=tiny_dataset()).findings
    assert {finding.audit: str(finding.verdict) for finding in found} == dict.fromkeys(
        ("integrity", "replay", "provenance", "lineage"), "PASS"
    )
    assert account_of(child, 1e-5).towards["server"].spent.rounds == 8 + 9 - child.info["first_change"][0]


def test_where_rows_are_scaled_by_all_rows_noise_limits_nothing(tmp_path, monkeypatch):
    """One client less, and the rows of all others are other rows."""
    with pytest.raises(UsageError, match="scaled by constants of all rows"):
        train(budget(9.0, 5, scaling="standardise"), tmp_path / "refused", tiny_dataset(), secret(1))
    (one,) = account_of(trained(tmp_path / "run", scaling="standardise"), 1e-5).towards["server"].accounts
    assert (one.epsilon, "constants of all rows" in one.reason) == (float("inf"), True)
    monkeypatch.setattr(begin, "capped", lambda *anything: None)
    run = train(budget(9.0, 5, scaling="standardise"), tmp_path / "other", tiny_dataset(), secret(1))
    found = Provenance().examine(Case(Evidence(load_run(run.path), None, tiny_dataset()), Keyed(AUDIT_KEY)))
    assert found.verdict == "INCONCLUSIVE"
