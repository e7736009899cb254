"""Parent minus child: sums of two runs that tell a row together are found, also where a model was moved a little."""

import pytest
import torch
from test_sealed import holding, looked_at
from test_secured_runs import FEDAVG, NOISY, QUANTISE, SHARES, trained
from tests_support import AUDIT_KEY

from fuaudit import unlearn
from fuaudit.audits.transcript.audit import Transcript
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.runs.noise import noise_of, step_of
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow.seal import seal

ALL_ROWS = {"learner": FEDAVG["learner"] | {"batch": 6}}
NOTHING = {"client": [{"use": "gaussian-noise", "norm": 100.0, "noise": 1e-9}, QUANTISE]}
"""Noise that rounding swallows."""
BOTH = ["round 0, beginning", "round 1, difference"]


def child_of(parent, out, by, monkeypatch):
    """A child that was made though its sums are not covered."""
    with monkeypatch.context() as patch:
        patch.setattr("fuaudit.workflow.unlearn.require_fresh_noise", lambda run, unlearner: None)
        return unlearn(parent, by, Request.of([0]), out, data=tiny_dataset(), allow_inexact=True)


def examined(child, parent):
    return Transcript().examine(Case(Evidence(child, parent, tiny_dataset()), Keyed(AUDIT_KEY)))


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        (
            lambda model: torch.nextafter(model, torch.full_like(model, 9.0)),
            ["round 0, beginning", "round 1, difference"],
        ),
        (lambda model: model + 0.01, ["round 0, beginning", "round 1, difference"]),
        (lambda model: model + 1, ["round 0, beginning"]),
    ],
    ids=["a last bit", "ten steps", "a thousand steps"],
)
def test_a_beginning_beside_that_of_the_parent_is_found(tmp_path, monkeypatch, moved, expected):
    parent = trained(tmp_path / "parent", FEDAVG | ALL_ROWS, "plain")
    child = child_of(parent, tmp_path / "child", "fats", monkeypatch)
    (tmp_path / "views").mkdir()
    before, view = seal(parent, tmp_path / "views" / "parent"), seal(child, tmp_path / "views" / "child")
    vector, state = view.checkpoint(0)
    found = looked_at(holding(view, 0, moved(vector), state), before)
    assert found.verdict == "FAIL"
    told = [line.split(":")[0] for line in found.details]
    assert [line for line in told if not line.startswith("round 2")] == expected


def test_without_noise_no_child_passes_whose_model_is_another_one(tmp_path, monkeypatch):
    """Its beginning is drawn anew, so no two sums are of one model; what their difference tells nobody knows."""
    parent = trained(tmp_path / "parent", FEDAVG | ALL_ROWS, "plain")
    child = child_of(parent, tmp_path / "child", "retrain", monkeypatch)
    found = examined(child, parent)
    assert (found.verdict, "clients of this run draw no noise anew" in found.shows) == ("INCONCLUSIVE", True)


def test_noise_below_a_step_is_none(tmp_path, monkeypatch):
    parent = trained(tmp_path / "parent", FEDAVG | ALL_ROWS | NOTHING, "plain")
    assert examined(parent, None).verdict == "PASS"  # beside no other sums nothing has to be hidden
    with pytest.raises(UsageError, match=r"0\.000102 steps of the numbers that are opened.*below one step"):
        unlearn(parent, "fats", Request.of([0]), tmp_path / "no", data=tiny_dataset(), allow_inexact=True)
    found = examined(child_of(parent, tmp_path / "child", "fats", monkeypatch), parent)
    assert found.verdict == "INCONCLUSIVE"
    assert "0.000102 steps" in found.shows


@pytest.mark.parametrize(
    ("tables", "steps", "share"), [(NOISY, 154, 0.3), (SHARES, 0, 0.5)], ids=["gaussian", "skellam"]
)
def test_noise_is_told_in_steps(tmp_path, tables, steps, share):
    parent = trained(tmp_path / "parent", tables, "plain")
    child = unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    noise = noise_of(child)
    if tables is NOISY:
        assert (step_of(child), round(noise.steps)) == (2.0**-10, 154)
    else:
        stage = child.exchange.client_stages.stages[0]
        law = stage._fitting(child.model.numel()).law
        assert noise.steps == pytest.approx(float(law.variance) ** 0.5, rel=1e-6)
    assert noise.share == share
    found = examined(child, parent)
    assert found.verdict == "PASS", (found.shows, found.details)
    assert (
        sum(f"{noise.steps:.3g} steps of the numbers" in line and "epsilon" in line for line in found.assumptions) == 1
    )
    assert not any("epsilon" in line for line in examined(parent, None).assumptions)


def test_noise_of_steps_is_told_as_it_is_in_an_update(tmp_path):
    """One step at least: .2 / 2 times a noise of .5 on gradients of 1, where a number has steps of 2**-10."""
    tables = FEDAVG | {"solver": {"use": "dpsgd", "norm": 1.0, "noise": 0.5}}
    noise = noise_of(trained(tmp_path / "run", tables, "plain"))
    assert (noise.share, noise.steps) == (0.5, pytest.approx(51.2))
    assert noise.hides


def test_of_noise_that_a_later_stage_may_shrink_nobody_says_how_much_is_left(tmp_path, monkeypatch):
    """Clipped to a thousandth a row has less than a step of it, and 154 were told. Who deviates clips nobody else."""
    noise, round_ = NOISY["client"]
    last = {"use": "clip", "norm": 1e-3}
    loud = noise | {"noise": 20.0}
    cases = {
        "clipped": ([noise, last, round_], None),
        "clipped by rounding": ([loud, round_], None),
        "of one who deviates": ([noise, {"use": "alie", "clients": [3]}, round_], 154),
    }
    for name, (client, due) in cases.items():
        parent = trained(tmp_path / name, NOISY | {"client": client}, "plain")
        found = noise_of(parent)
        assert (found.steps if due is None else round(found.steps), found.hides) == (due, due is not None)
        if name == "clipped":
            with pytest.raises(UsageError, match="nobody can say how many steps of the numbers that are opened, as"):
                unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
            child = child_of(parent, tmp_path / "child", "retrain", monkeypatch)
            assert examined(child, parent).verdict == "INCONCLUSIVE"


def test_noise_that_is_taken_back_is_named(tmp_path):
    """Behind error-feedback the noise of a round is subtracted in the next: totals of rounds have that of one."""
    behind = {"client": [{"use": "error-feedback"}, *NOISY["client"]]}
    for number, tables in enumerate((NOISY, NOISY | behind)):
        (tmp_path / f"{number}" / "views").mkdir(parents=True)
        parent = trained(tmp_path / f"{number}" / "parent", tables, "plain")
        out = tmp_path / f"{number}" / "child"
        child = unlearn(parent, "retrain", Request.of([0]), out, data=tiny_dataset())
        views = [seal(run, tmp_path / f"{number}" / "views" / run.path.name) for run in (parent, child)]
        for found in (examined(child, parent), looked_at(*reversed(views))):
            assert found.verdict == "PASS", (found.shows, found.details)
            assert any("takes back the noise" in line for line in found.assumptions) == bool(number)
        assert any("of the whole run" in line for line in found.assumptions)  # no account is made of a view
