"""What a plain exchange costs: rounds of 64 stacked runs of digits, here and in another checkout, in turn.

    python benchmarks/rounds.py --against FOLDER        FOLDER: another checkout, whose modules are used

Both are timed in this order, again and again, each time in a process of its own; medians and their ratio are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

WORK = """
import json, sys, time
sys.path[:0] = [{folder!r}]
import fuaudit
from fuaudit.config import resolve
from fuaudit.data.partition import partition
from fuaudit.draws import Keyed
from fuaudit.plans import Plan
from fuaudit.plans.stacked import expand_many
from fuaudit.registry import build
from fuaudit.training.engines.protocol import single_threaded
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import setup

assert fuaudit.__file__.startswith({folder!r}), fuaudit.__file__
single_threaded()
learner = dict(use="fats", rounds=40, cohort=4, steps=5, batch=8, step_size=0.1)
ready = setup(resolve(dict(
    data=dict(use="digits"), partition=dict(use="iid", clients=20), model=dict(use="linear"), learner=learner,
    server=[dict(use="mean"), dict(use="momentum")], run=dict(engine="batched", device="cpu"),
)))
members = partition(build("partitions", ready.config.partition), ready.dataset, Keyed(bytes(32)))
plans = [Plan.fresh(ready.learner.law, members, Keyed(bytes([n]) * 32)) for n in range(64)]
schedule, problem = expand_many(plans), ready.client_problem(members)
start = initial_state(ready.procedure, plans, members, ready.device)
times = []
for _ in range(3):
    begun = time.process_time()
    for _ in execute(ready.procedure, problem, members, schedule, start, ready.engine):
        pass
    times.append(time.process_time() - begun)
print(json.dumps(min(times)))
"""


def timed(folder: Path) -> float:
    """Processor seconds of 40 rounds with the modules of a checkout, the least of three."""
    code = WORK.format(folder=str(folder))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--times", type=int, default=9)
    given = parser.parse_args()
    found: dict[Path, list[float]] = {ROOT: [], given.against.resolve(): []}
    for _ in range(given.times):
        for folder, times in found.items():
            times.append(timed(folder))
    here, there = (statistics.median(times) for times in found.values())
    for folder, times in found.items():
        print(f"{folder.name}: median {statistics.median(times):.4f} s of {min(times):.4f} to {max(times):.4f}")
    print(f"ratio {here / there:.4f}")


if __name__ == "__main__":
    main()
