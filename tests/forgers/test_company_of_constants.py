"""A forger leaves scaling constants in the model that still hold a forgotten row; other erased rows answer for it.

Constants of before, of the whole request or of all requests since, move the model far. The row alone moves it by less
than the tolerance. Asked for by itself it was INCONCLUSIVE, in company it passed.
"""

import pytest
import torch
from tests_support import AUDIT_KEY, holding, made_elsewhere, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.plans.stacked import LazySchedule
from fuaudit.training.setup import load_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.counterfactual import Leg
from fuaudit.verification.evidence import Evidence

EPS = 256 * torch.finfo(torch.float32).eps
ROUNDS = 8
TABLES = {
    "data": {"use": "digits"},
    "partition": {"use": "iid", "clients": 10},
    "model": {"use": "linear"},
    "scaling": "standardise",
    "learner": {"use": "fats", "rounds": ROUNDS, "cohort": 4, "steps": 2, "batch": 8, "step_size": 0.1},
    "run": {"checkpoint_every": ROUNDS, "engine": "reference", "device": "cpu"},
}
CLIENT = 3


@pytest.mark.parametrize(("row", "earlier"), [(22, False), (106, True)], ids=["one request", "an earlier request"])
def test_constants_that_hold_one_row_are_asked_by_themselves(row, earlier, tmp_path, quick):
    parent = train(TABLES, tmp_path / "parent", secret=secret(3))
    data, before = load_dataset(parent.config, None), parent.plan.retained
    if earlier:
        parent = unlearn(parent, "retrain", Request.of(samples=[row]), tmp_path / "between", data=data)
        request = Request.of([CLIENT])
    else:
        request = Request.of([CLIENT], [row])
    child = unlearn(parent, "retrain", request, tmp_path / "child", data=data)
    holds_it, drawn = before.without(Request.of([CLIENT])), LazySchedule([child.plan], ROUNDS)
    models = Case(Evidence(child, parent, data), None).rerun.models([Leg(child.plan, holds_it, drawn)])
    vector, _ = child.checkpoint(ROUNDS)
    assert 0.1 * EPS < (models[ROUNDS][0] - vector).abs().max() / vector.abs().max() < 0.9 * EPS
    holding(child.path, {0: child.checkpoint(0), ROUNDS: models[ROUNDS]}, data)
    result = verify(made_elsewhere(load_run(child.path)), quick, key=AUDIT_KEY, save=False, data=data)
    (found,) = (finding for finding in result.findings if finding.audit == "replay")
    assert result.verdict == found.verdict == "INCONCLUSIVE", found.details
    blind = [line for line in found.details if line.startswith("could not be told from rounding")]
    assert any("sizes and constants of before" in line for line in blind), found.details
