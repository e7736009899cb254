"""A forger hides the untouched model beside loud numbers, and names a processor that nobody has.

One feature stands in units of its own, so one number of the model is far above all others. A tolerance is relative to
the largest number; within it the quiet ones can be the untouched model's, bit for bit. Ways to make that look small:
features that are always zero, whose numbers nobody moves and which share the blame; short steps from random numbers,
so that what training did is small beside where they began; several loud features, so that quiet differences look like
rounding of theirs; and many clients, of whom none moves a hundredth of what all of them do.
"""

import pytest
import torch
from tests_support import AUDIT_KEY, drawn_client, holding, made_elsewhere, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request

EPS = 256 * torch.finfo(torch.float32).eps


def loud_beside_quiet(features, zeros, loud):
    """300 rows of 20 quiet features that decide the class, features that are always zero, and loud ones."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(400) % 2
    quiet = (targets[:, None] - 0.5) * torch.linspace(0.5, 1, 20) + 0.2 * torch.rand(400, 20, generator=generator)
    units = features * torch.randn(400, loud, generator=generator)
    inputs = torch.cat([quiet, torch.zeros(400, zeros), units], dim=1)
    return Dataset(inputs[:300], targets[:300], inputs[300:], targets[300:], classes=2)


def trained(folder, data, clients=10, classes=2, **learner):
    learner = {"use": "fats", "rounds": 8, "cohort": 3, "steps": 2, "batch": 8, "step_size": 0.1} | learner
    tables = {
        "data": {"use": "tensors", "classes": classes},
        "partition": {"use": "iid", "clients": clients},
        "model": {"use": "linear"},
        "learner": learner,
        "run": {"checkpoint_every": 2, "engine": "reference", "device": "cpu"},
    }
    return train(tables, folder, secret=secret(7), data=data)


ALL_OF_150 = {"clients": 150, "use": "fedavg", "rounds": 2, "cohort": 150, "steps": 1, "batch": 2}
"""Everybody takes part with all rows: the request moves each number by less than a hundredth of its training."""

WAYS = {
    "zeros dilute": ((2e5, 45, 1), {}),
    "beginnings hide": ((2e6, 0, 1), {"step_size": 1e-3}),
    "several are loud": ((2e9, 0, 8), {}),
    "many clients": ((1e4, 0, 1), ALL_OF_150 | {"step_size": 1e-4}),
}


@pytest.fixture(params=WAYS)
def forged(request, tmp_path):
    """The child's quiet numbers are those of its parent wherever the tolerance allows it."""
    features, options = WAYS[request.param]
    data = loud_beside_quiet(*features)
    parent = trained(tmp_path / "parent", data, **options)
    client = 17 if "clients" in options else drawn_client(parent)
    child = unlearn(parent, "fats", Request.of([client]), tmp_path / "child", data=data)
    mixed = {number: child.checkpoint(number) for number in child.checkpoints}
    for number in (number for number in mixed if number >= child.info["first_change"][0]):
        (vector, state), old = mixed[number], parent.checkpoint(number)[0]
        within = (vector - old).abs() < 0.9 * EPS * vector.abs().max()
        mixed[number] = torch.where(within, old, vector), state
    holding(child.path, mixed, data)
    return child, parent, data


def test_nearly_the_whole_untouched_model_is_there(forged):
    child, parent, _ = forged
    assert float((load_run(child.path).model == parent.model).float().mean()) > 0.7


def test_on_another_platform_it_is_no_pass(forged, quick):
    child, _, data = forged
    result = verify(made_elsewhere(child), quick, key=AUDIT_KEY, save=False, data=data)
    found = {finding.audit: finding for finding in result.findings}["replay"]
    assert result.verdict == found.verdict == "INCONCLUSIVE"
    assert "or many of their numbers do" in found.shows
    assert any("of the numbers moved, beside much larger ones" in line for line in found.details)


def test_three_of_six_numbers_are_half_of_them(tmp_path, quick):
    """One quiet feature, three classes: three numbers are let pass, and the PASS says what share they are."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(400) % 3
    targets = torch.where(torch.rand(400, generator=generator) < 0.3, 0, targets)
    inputs = 1e-5 * (targets[:, None] - 1 + 0.3 * torch.randn(400, 1, generator=generator))
    data = Dataset(inputs[:300], targets[:300], inputs[300:], targets[300:], classes=3)
    parent = trained(tmp_path / "parent", data, classes=3, step_size=0.5)
    child = unlearn(parent, "fats", Request.of([drawn_client(parent)]), tmp_path / "child", data=data)
    (vector, state), old = child.checkpoint(8), parent.model
    within = (vector - old).abs() < 0.9 * EPS * vector.abs().max()
    assert within.tolist() == [True] * 3 + [False] * 3
    assert (vector != old).all()
    others = {number: child.checkpoint(number) for number in child.checkpoints}
    holding(child.path, others | {8: (torch.where(within, old, vector), state)}, data)
    result = verify(made_elsewhere(load_run(child.path)), quick, key=AUDIT_KEY, save=False, data=data)
    found = {finding.audit: finding for finding in result.findings}["replay"]
    assert found.verdict == "PASS", (found.shows, found.details)
    assert found.values["hidden"] == 0.5
    assert found.values["hidden_of_few"] == 3
    said = found.assumptions[-1]
    assert "a share of at most 0.5 of those that the data moved" in said
    assert said.endswith("and at most 3 numbers where fewer were.")
