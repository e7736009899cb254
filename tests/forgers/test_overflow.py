"""A client's rows are so loud that a second step of hers overflows. In the runs here she takes one step at most.

Plans that an audit executes for comparison have her take part twice. What they end in is no number: it is infinitely
far from any model, and unequal to itself. Nothing follows from that, neither for a forger nor against an honest run.
"""

from pathlib import Path

import torch
from tests_support import AUDIT_KEY, holding, made_elsewhere, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.stress import Stress
from fuaudit.data.dataset import Dataset
from fuaudit.draws import Keyed
from fuaudit.plans import Request
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.gather import gather

STOP, ROUNDS = 4, 8
TABLES = {
    "data": {"use": "tensors", "classes": 2},
    "partition": {"use": "iid", "clients": 10},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": ROUNDS, "cohort": 2, "steps": 1, "batch": 8, "step_size": 0.5},
    "run": {"checkpoint_every": ROUNDS, "engine": "reference", "device": "cpu"},
}


def rows_of(folder, loud):
    """400 rows of 20 features that decide the class, and a last one that only the loud client has."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(400) % 2
    features = (targets[:, None] - 0.5) * torch.linspace(0.5, 1, 20) + 0.2 * torch.rand(400, 20, generator=generator)
    inputs = torch.cat([features, torch.zeros(400, 1)], dim=1)
    data = Dataset(inputs[:300], targets[:300], inputs[300:], targets[300:], classes=2)
    probe = train(TABLES, folder / "probe", secret=secret(1), data=data, stop_after=1)
    data.inputs[list(probe.plan.retained.samples[loud]), 20] = 1e25
    return data


def test_infinitely_far_is_no_scale(tmp_path, quick):
    """The parent's rounds with the erased data, and then the child's: under this secret the loud client is in both."""
    data = rows_of(tmp_path, 7)
    parent = train(TABLES, tmp_path / "parent", secret=secret(1), data=data, stop_after=STOP)
    child = unlearn(parent, "fats", Request.of([4]), tmp_path / "child", data=data)
    link = Case(Evidence(child, parent, data), None).rerun.counterfactuals.links[0]
    assert not link.untouched[ROUNDS][0].isfinite().all()
    vector, state = child.checkpoint(ROUNDS)
    holding(child.path, {0: child.checkpoint(0), ROUNDS: (torch.nextafter(vector, vector + 1), state)}, data)
    result = verify(made_elsewhere(load_run(child.path)), quick, key=AUDIT_KEY, save=False, data=data)
    found = {finding.audit: finding for finding in result.findings}["replay"]
    assert result.verdict == found.verdict == "INCONCLUSIVE", found.details
    assert any("models overflow here, so they set no scale" in line for line in found.details)


def test_an_honest_run_is_not_blamed_for_plans_that_overflow(tmp_path):
    """Of three plans the stress audit counts those that stay finite; where none does it does not know."""
    data = rows_of(tmp_path, 1)
    parent = train(TABLES, tmp_path / "parent", secret=secret(1), data=data)
    child = unlearn(parent, "fats", Request.of([7]), tmp_path / "child", data=data)
    evidence = Evidence(child, parent, data)
    some, none = (Stress().examine(Case(evidence, Keyed(bytes([key]) * 32))) for key in (0, 1))
    assert (some.verdict, none.verdict) == ("PASS", "INCONCLUSIVE"), (some.details, none.details)
    assert (some.values["plans"], none.values["kept_rounds"]) == (1, 0)
    assert sum("not counted: training with all data overflows" in line for line in none.details) == 3


def test_kept_rounds_that_overflow_are_not_said_to_be_none(tmp_path):
    """One plan of three keeps its round, and overflows in it. So none was compared, though a candidate keeps one."""
    learner = {"use": "fats", "step_size": 2e37, "rounds": 1, "cohort": 10, "steps": 2, "batch": 1}
    tables = TABLES | {"data": {"use": "digits"}, "learner": learner, "run": TABLES["run"] | {"checkpoint_every": 1}}
    parent = train(tables, tmp_path / "parent", secret=bytes([9]) * 32)
    child = unlearn(parent, "fats", Request.of([0, 1, 2, 3]), tmp_path / "child")
    evidence = gather(child, {})
    found = [Stress().examine(Case(evidence, Keyed(bytes([key]) * 32))) for key in range(1, 6)]
    kept = [one for one in found if any("1 round kept of 1, " in line for line in one.details)]
    assert kept, [one.details for one in found]
    for one in kept:
        assert "keeps a round, so nothing was compared" not in one.shows
    assert any(one.verdict == "INCONCLUSIVE" and "and keeps a round, training" in one.shows for one in kept)


def test_training_that_overflows_with_the_erased_data_alone(tmp_path, monkeypatch):
    """The fault is infinitely large: with the erased row every round of its owner overflows, without it none does.

    The owner takes no part in this run, so training saw nothing of it. In plans of the audit she does.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "stages"))
    tables = TABLES | {
        "partition": {"use": "iid", "clients": 13},
        "learner": TABLES["learner"] | {"steps": 2},
        "solver": {"use": "test-bursts", "most": 23},
    }
    data = rows_of(tmp_path, 0)
    data.inputs[:, 20] = 0.0
    parent = train(tables, tmp_path / "parent", secret=secret(1), data=data, stop_after=2)
    assert len(parent.original.samples[0]) == 24
    assert 0 not in parent.plan.index.clients
    asked = Request.of(samples=[min(parent.original.samples[0])])
    child = unlearn(parent, "fats", asked, tmp_path / "child", data=data, allow_inexact=True)
    found = Stress().examine(Case(Evidence(child, parent, data), Keyed(AUDIT_KEY)))
    assert found.verdict == "FAIL", found.details
    assert found.values["faults"] == found.values["plans"] == 3
    assert all("NaN on one side alone" in line for line in found.details), found.details
