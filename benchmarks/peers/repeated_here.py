"""The same repeated runs by a plain loop, or by the tool's batched engine.

    python repeated_here.py write WORK.npz RUNS             the work: plans and initial models, drawn by the tool
    python repeated_here.py loop WORK.npz OUT.npz           a few of the runs, as one would write it in PyTorch
    python repeated_here.py batched WORK.npz OUT.npz

It is done once, then again for two seconds; the median counts.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from engines import digits, plain_loop, replay
from torch import Tensor

from fuaudit.models.dense import Mlp
from fuaudit.plans.expanded import Schedule
from fuaudit.plans.stacked import expand_many
from fuaudit.training.engines import engine
from fuaudit.training.execute import RoundState

PATIENCE = 2.0
FEW = 24
"""Runs of the loop: it takes as long for each."""


def write(path: str, runs: int) -> None:
    setting = digits()
    plans = setting.plans(runs)
    schedule, start, problem = expand_many(plans), setting.starts(plans), setting.client_problem()
    np.savez(
        path,
        inputs=problem.inputs.numpy().reshape(len(problem.inputs), -1),
        targets=problem.targets.numpy(),
        vectors=start.vectors.numpy(),
        cohorts=schedule.cohorts,
        batches=schedule.batches,
        step_size=setting.procedure.step_sizes.first,
    )


def main() -> None:
    what, path, out = sys.argv[1:4]
    if what == "write":
        write(path, int(out))
        return
    torch.set_num_threads(1)
    setting, work = digits(), np.load(path)
    problem = setting.client_problem()
    vectors, batches = torch.from_numpy(work["vectors"]), torch.from_numpy(work["batches"])
    module = Mlp().build(setting.dataset.shape, 10)

    def loop() -> Tensor:
        step = setting.procedure.step_sizes.first
        return torch.stack([plain_loop(module, problem, vectors[i], batches[i], step) for i in range(FEW)])

    def batched() -> Tensor:
        schedule = Schedule(work["cohorts"], work["batches"])
        return replay(
            setting, problem, schedule, RoundState(vectors, {}), engine("batched", len(os.sched_getaffinity(0)))
        )

    todo = {"loop": loop, "batched": batched}[what]
    models = todo()
    seconds: list[float] = []
    while sum(seconds) < PATIENCE:
        begun = time.perf_counter()
        models = todo()
        seconds.append(time.perf_counter() - begun)
    np.savez(out, models=models.numpy(), seconds=statistics.median(seconds) / len(models))


if __name__ == "__main__":
    main()
