"""A forger leaves rows in the model that batch mates answer for.

Elsewhere a tolerance must show what the erased data did. Rows that share batches with others were measured by taking
them out. Then the mean is one of fewer rows, and the loud ones left in it move by far more than the quiet ones did.
Rows of an erased client were asked alone in their batches, each as many times as loud as the batch was long.
What rows do is their share of the batch: their number over its length, times their mean gradient.
"""

import torch
from tests_support import AUDIT_KEY, holding, made_elsewhere, secret
from torch.nn.functional import cross_entropy

from fuaudit import load_run, train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request
from fuaudit.plans.plan import occurrences

EPS = 256 * torch.finfo(torch.float32).eps
FEATURES, CLASSES = 10, 2


def federation(inputs, targets, clients, learner):
    """A linear model, one step a round, every model stored; clients have equal shares of the rows, in their order."""
    owners = torch.arange(len(inputs)) * clients // len(inputs)
    names = tuple(f"client {number}" for number in range(clients))
    tables = {
        "data": {"use": "tensors", "classes": CLASSES},
        "partition": {"use": "by-owner"},
        "model": {"use": "linear"},
        "learner": {"use": "fats", "cohort": 2, "steps": 1} | learner,
        "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
    }
    test = inputs[::7].clone(), targets[::7].clone()
    return tables, Dataset(inputs, targets, *test, CLASSES, owners=owners, owner_names=names)


def did(run, data, rows, step_size):
    """What rows did to the last model of a run: in each batch one over its length, times their gradients."""
    total = torch.zeros_like(run.checkpoint(0)[0])
    for number in range(1, run.rounds_executed + 1):
        cohort = run.plan.cohort(number)
        for client, occurrence in occurrences(cohort):
            batch = run.plan.batch(number, 1, client, occurrence)
            if mine := [row for row in batch if row in rows]:
                vector = run.checkpoint(number - 1)[0].clone().requires_grad_()
                weight, bias = vector[:-CLASSES].view(CLASSES, FEATURES), vector[-CLASSES:]
                loss = cross_entropy(data.inputs[mine] @ weight.T + bias, data.targets[mine], reduction="sum")
                total -= step_size / len(batch) / len(cohort) * torch.autograd.grad(loss, vector)[0]
    return total


def left_in(parent, request, rows, data, step_size, folder):
    """A child whose last model keeps all that some erased rows did to the parent's, which is below the tolerance."""
    child = unlearn(parent, "fats", request, folder, data=data)
    models = {number: child.checkpoint(number) for number in child.checkpoints}
    (vector, state), kept = models[child.rounds_executed], did(parent, data, rows, step_size)
    assert 0.3 * EPS < kept.abs().max() / vector.abs().max() < 0.9 * EPS
    holding(child.path, models | {child.rounds_executed: (vector + kept, state)}, data)
    return made_elsewhere(load_run(child.path))


def test_the_mean_of_batch_mates_answers_for_no_row(tmp_path, quick):
    """Three rows of one client, ten thousand times as quiet as all others."""
    generator, asked, step_size = torch.Generator().manual_seed(0), [0, 1, 2], 0.1
    inputs = 1e4 * torch.randn(80, FEATURES, generator=generator)
    inputs[asked] = torch.randn(3, FEATURES, generator=generator)
    targets = torch.randint(0, CLASSES, (80,), generator=generator)
    tables, data = federation(inputs, targets, 4, {"rounds": 6, "batch": 8, "step_size": step_size})
    parent = train(tables, tmp_path / "parent", secret=secret(1), data=data)
    forged = left_in(parent, Request.of(samples=asked), asked, data, step_size, tmp_path / "child")
    result = verify(forged, quick, key=AUDIT_KEY, save=False, data=data)
    assert result.verdict == "INCONCLUSIVE", result.reason
    (found,) = (finding for finding in result.findings if finding.audit == "replay")
    assert "could not be told from rounding: request to parent: the erased data left in" in found.details


def test_a_row_is_as_loud_as_it_was_in_its_batch(tmp_path, quick):
    """A client of a hundred rows, all of them in each batch of hers: alone each shows, two of them left in do not."""
    generator, step_size = torch.Generator().manual_seed(0), 3.5e-4
    inputs = torch.randn(3, FEATURES, generator=generator).sign().repeat_interleave(100, dim=0)
    inputs += 0.1 * torch.randn(300, FEATURES, generator=generator)
    targets = torch.arange(300) // 100 % CLASSES
    tables, data = federation(inputs, targets, 3, {"rounds": 2, "batch": 100, "step_size": step_size})
    parent = train(tables, tmp_path / "parent", secret=secret(1), data=data)
    erased = parent.plan.cohort(1)[0]
    few = parent.original.samples[erased][:2]
    forged = left_in(parent, Request.of([erased]), few, data, step_size, tmp_path / "child")
    result = verify(forged, quick, key=AUDIT_KEY, save=False, data=data)
    assert result.verdict == "INCONCLUSIVE", result.reason
    (found,) = (finding for finding in result.findings if finding.audit == "replay")
    assert any("sample " in line and "by itself" in line for line in found.details if "could not be told" in line)
