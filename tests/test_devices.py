"""Models and memories on a GPU against those on the CPU. Each test also runs with the CPU in place of the GPU."""

import copy
from dataclasses import replace

import pytest
import torch
from test_models import SMALL, STEP, problem_of, round_of
from tests_support import config, secret

from fuaudit import train
from fuaudit.training.engines.batched import Batched
from fuaudit.training.engines.reference import Reference

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")),
]
every_device = pytest.mark.parametrize("device", DEVICES)


@every_device
@pytest.mark.parametrize("model", SMALL)
def test_every_model_in_the_batched_engine(model, device):
    """Sums are taken in another order on a GPU; in double precision little of that is left after two steps."""
    problem = problem_of(model)
    vectors, batches = round_of(problem)
    expected = Reference().advance(problem, vectors, batches, STEP).updates
    module = copy.deepcopy(problem.module).to(device)
    there = replace(problem, module=module, inputs=problem.inputs.to(device), targets=problem.targets.to(device))
    found = Batched(1, stack_size=6).advance(there, vectors.to(device), batches.to(device), STEP).updates
    assert found.device.type == device
    assert float((found.cpu() - expected).abs().max()) <= 1e-9


@every_device
@pytest.mark.parametrize("method", ["dropouts", "fedprox", "scaffold", "mifa", "mimic", "mimic-at-clients"])
def test_every_method_and_its_memory(method, device, tmp_path):
    """The draws are the same, so models and memories differ by rounding alone."""
    learner = {"use": method, "scenario": "static", "probability": 0.5, "rounds": 6, "steps": 2, "batch": 4}
    learner |= {"step_size": 0.1, "decay": 0.9}

    def trained(where, engine):
        run = {"engine": engine, "device": where, "checkpoint_every": 3}
        return train(config(learner=learner, run=run), tmp_path / engine, secret=secret(5))

    here, there = trained("cpu", "reference"), trained(device, "batched")
    assert there.info["device"] == device
    assert here.participation["cohorts"] == there.participation["cohorts"]
    (vector, state), (other, memory) = here.checkpoint(6), there.checkpoint(6)
    assert float((vector - other).abs().max()) <= 1e-5
    assert state.keys() == memory.keys()
    for name, rows in state.items():
        assert float((rows - memory[name]).abs().max()) <= 1e-4 * max(1.0, float(rows.abs().max())), name
