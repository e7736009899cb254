"""A forger hides the untouched model beside one loud number, and names a processor that nobody has.

One feature stands in units of its own, so one number of the model is far above all others. A tolerance is relative to
the largest number; within it the quiet ones can be the untouched model's, bit for bit. Two ways to make that look
small: features that are always zero, whose numbers nobody moves and which share the blame; and short steps from
random numbers, so that what training did is small beside where they began. Either is measured over what training did.
"""

import pytest
import torch
from tests_support import AUDIT_KEY, drawn_client, edit, holding, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request

EPS = 256 * torch.finfo(torch.float32).eps


def loud_beside_quiet(loud, zeros):
    """300 rows of 20 quiet features that decide the class, features that are always zero, and a loud one."""
    generator = torch.Generator().manual_seed(0)
    quiet = torch.rand(400, 20, generator=generator)
    inputs = torch.cat([quiet, torch.zeros(400, zeros), loud * torch.randn(400, 1, generator=generator)], dim=1)
    targets = (quiet[:, 0] + quiet[:, 1] > 1).long()
    return Dataset(inputs[:300], targets[:300], inputs[300:], targets[300:], classes=2)


def trained(folder, data, step_size):
    learner = {"use": "fats", "rounds": 8, "cohort": 3, "steps": 2, "batch": 8, "step_size": step_size}
    tables = {
        "data": {"use": "tensors", "classes": 2},
        "partition": {"use": "iid", "clients": 10},
        "model": {"use": "linear"},
        "learner": learner,
        "run": {"checkpoint_every": 2, "engine": "reference", "device": "cpu"},
    }
    return train(tables, folder, secret=secret(7), data=data)


@pytest.fixture(params=[(2e5, 45, 0.1), (2e6, 0, 1e-3)], ids=["zeros dilute", "beginnings hide"])
def forged(request, tmp_path):
    """The child's quiet numbers are those of its parent wherever the tolerance allows it."""
    loud, zeros, step_size = request.param
    data = loud_beside_quiet(loud, zeros)
    parent = trained(tmp_path / "parent", data, step_size)
    child = unlearn(parent, "fats", Request.of([drawn_client(parent)]), tmp_path / "child", data=data)
    mixed = {number: child.checkpoint(number) for number in child.checkpoints}
    for number in (number for number in mixed if number >= child.info["first_change"][0]):
        (vector, state), old = mixed[number], parent.checkpoint(number)[0]
        within = (vector - old).abs() < 0.9 * EPS * vector.abs().max()
        mixed[number] = torch.where(within, old, vector), state
    holding(child.path, mixed, data)
    return child, parent, data


def test_nearly_the_whole_untouched_model_is_there(forged):
    child, parent, _ = forged
    assert int((load_run(child.path).model == parent.model).sum()) >= len(parent.model) - 2


def elsewhere(run):
    """Rounds from the request on were computed on another platform; kept ones stay with the parent's."""
    kept, other = run.info["first_change"][0] - 1, {"processor": "another"}

    def named(event):
        new = event["event"] == "platform" and event["since"] == kept
        return event | ({"versions": event["versions"] | other} if new else {})

    edit(run.path, "run.json", versions=run.info["versions"] | other)
    return told(run.path, lambda events: map(named, events))


def test_on_another_platform_it_is_no_pass(forged, quick):
    child, _, data = forged
    result = verify(elsewhere(child), quick, key=AUDIT_KEY, save=False, data=data)
    found = {finding.audit: finding for finding in result.findings}["replay"]
    assert result.verdict == found.verdict == "INCONCLUSIVE"
    assert "or many of their numbers do" in found.shows
    assert any("of the numbers moved, beside much larger ones" in line for line in found.details)
