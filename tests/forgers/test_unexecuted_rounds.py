"""A forger claims that rounds which nobody executed tell what the erased data did.

Training is stopped for the request after one round; its plan goes on for forty. What she did in that round is less
than the tolerance of another platform, so a model that keeps all of it agrees. Her steps in the rounds that never were
add up to far more.
"""

import torch
from tests_support import AUDIT_KEY, holding, made_elsewhere, secret

from fuaudit import train, unlearn
from fuaudit.audits.replay.audit import Replay
from fuaudit.audits.replay.tolerance import DONE
from fuaudit.data.dataset import Dataset
from fuaudit.draws import Keyed
from fuaudit.plans import Request
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence

EPS = 256 * torch.finfo(torch.float32).eps
ROUNDS, STEP = 40, 6e-6
TABLES = {
    "data": {"use": "tensors", "classes": 2},
    "partition": {"use": "iid", "clients": 3},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": ROUNDS, "cohort": 2, "steps": 1, "batch": 1, "step_size": STEP},
    "run": {"checkpoint_every": ROUNDS, "engine": "reference", "device": "cpu"},
}


def judged(step, folder, keeps, beta=0.0, cohort=2):
    """What replay finds where the last model keeps so much of the round that was executed, and how much that round is.

    In tolerances. The erased client took part in it, with another one or alone; ``beta`` is the server's momentum.
    """
    generator, targets = torch.Generator().manual_seed(0), torch.arange(7) % 2
    inputs = torch.randn(7, 10, generator=generator) + targets[:, None]
    data = Dataset(inputs[:3], targets[:3], inputs[3:], targets[3:], classes=2)
    tables = TABLES | {"learner": TABLES["learner"] | {"step_size": step, "cohort": cohort}}
    tables |= {"server": [{"use": "mean"}, *([{"use": "momentum", "beta": beta}] if beta else [])]}
    parent = train(tables, folder / "parent", secret=secret(1), data=data, stop_after=1)
    erased = parent.plan.cohort(1)[0]
    child = unlearn(parent, "fats", Request.of([erased]), folder / "child", data=data)
    did = parent.checkpoint(1)[0] - parent.checkpoint(0)[0]
    vector, state = child.checkpoint(ROUNDS)
    holding(child.path, {0: child.checkpoint(0), ROUNDS: (vector + keeps * did, state)}, data)
    found = Replay().examine(Case(Evidence(made_elsewhere(child), parent, data), Keyed(AUDIT_KEY)))
    return found, float(did.abs().max() / vector.abs().max()) / EPS


def test_all_that_she_did_is_no_pass(tmp_path):
    found, size = judged(STEP, tmp_path, keeps=1)
    assert 0.3 < size < 0.9
    assert found.verdict == "INCONCLUSIVE"
    assert any(
        "could not be told from rounding: request to parent: the erased data left in" in line for line in found.details
    )


def test_what_shows_in_the_rounds_executed_is_a_pass(tmp_path):
    """A thousandth of the round is less than a tolerance; all of it is far more than ten."""
    found, size = judged(1000 * STEP, tmp_path, keeps=0.001)
    assert size > 100
    assert found.verdict == "PASS", found.details


def test_what_follows_makes_nothing_of_what_she_did(tmp_path):
    """She has one row, and took one step. Rounds of momentum without her move the model by many times as much."""
    found, size = judged(STEP, tmp_path, keeps=1, beta=0.99, cohort=1)
    assert size < 0.9
    assert found.verdict == "INCONCLUSIVE"
    assert any(DONE in line for line in found.details if line.startswith("could not be told from rounding"))


def test_what_she_would_have_done_to_another_model_is_not_what_she_did(tmp_path):
    """The first round of the parent taught the model rows like hers, so she moved it little."""
    generator = torch.Generator().manual_seed(0)
    u = torch.tensor([1.0, 1.3, 0.8, -1, 1.1, -0.9, 1.2, 0.7, -1.1, 0.9])
    v = torch.tensor([1.0, -1, 1, 1, -1, -1.1, 0.9, 1, 1, -0.9])
    v -= (v @ u) / (u @ u) * u
    inputs = torch.cat([u.repeat(20, 1), v.repeat(20, 1)]) + 0.08 * torch.randn(40, 10, generator=generator)
    targets = torch.cat([torch.ones(20), torch.zeros(20)]).long()
    inputs[30:], targets[30:] = -inputs[30:], 1
    owners, names = torch.arange(40) // 10, ("hers", "twin", "other", "fourth")
    test = inputs[::4].clone(), targets[::4].clone()
    data = Dataset(inputs, targets, *test, classes=2, owners=owners, owner_names=names)
    tables = TABLES | {
        "partition": {"use": "by-owner"},
        "learner": {"use": "fats", "rounds": 100, "cohort": 1, "steps": 1, "batch": 2, "step_size": 0.5},
        "server": [{"use": "mean"}, {"use": "momentum", "beta": 0.99}],
        "run": TABLES["run"] | {"checkpoint_every": 100},
    }
    parent = train(tables, tmp_path / "parent", secret=secret(122), data=data, stop_after=2)
    child = unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=data)
    assert [parent.plan.cohort(1), parent.plan.cohort(2), child.plan.cohort(1)] == [(1,), (0,), (2,)]
    case = Case(Evidence(child, parent, data), Keyed(AUDIT_KEY))
    (link,) = case.rerun.counterfactuals.links
    vector, state = child.checkpoint(100)
    assert 0.3 * EPS < link.did.abs().max() / vector.abs().max() < 0.9 * EPS
    holding(child.path, {0: child.checkpoint(0), 100: (vector + link.did, state)}, data)
    found = Replay().examine(Case(Evidence(made_elsewhere(child), parent, data), Keyed(AUDIT_KEY)))
    assert found.verdict == "INCONCLUSIVE"
    assert any(DONE in line for line in found.details if line.startswith("could not be told from rounding"))
