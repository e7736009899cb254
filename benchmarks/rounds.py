"""What a plain exchange costs: rounds of 64 stacked runs of digits, here and in another checkout, in turn.

    python benchmarks/rounds.py --against FOLDER        FOLDER: another checkout, whose modules are used

Each version has a process that stays. Both take 40 rounds in turn, so what disturbs the machine disturbs both. This is
done several times with new processes, for where a process lies in memory changes its speed. Printed are medians of
processor seconds, and the ratio of the medians of each pair of processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from verify_speed import linked

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
def rounds():
    begun = time.process_time()
    for _ in execute(ready.procedure, problem, members, schedule, start, ready.engine):
        pass
    return time.process_time() - begun
rounds()
for _ in sys.stdin:
    print(json.dumps(rounds()), flush=True)
"""


def worker(folder: Path) -> subprocess.Popen[str]:
    """A process with the modules in a folder: for each line it gets it answers the seconds of 40 rounds."""
    code = WORK.format(folder=str(folder))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True)


def timed(process: subprocess.Popen[str]) -> float:
    """Processor seconds of 40 rounds in a worker."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def in_turn(folders: tuple[Path, Path], times: int) -> tuple[list[float], list[float]]:
    """Seconds of two workers, one after the other; who is first changes each time."""
    workers = [worker(folder) for folder in folders]
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(times):
        for which in (0, 1) if number % 2 else (1, 0):
            found[which].append(timed(workers[which]))
    for process in workers:
        process.communicate()
    return found


def main() -> None:
    """Print medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--processes", type=int, default=5)
    given = parser.parse_args()
    checkouts = (ROOT, given.against.resolve())
    with tempfile.TemporaryDirectory() as links:
        here, there = (linked(checkout, Path(links) / str(place)) for place, checkout in enumerate(checkouts))
        pairs = [in_turn((here, there), given.times) for _ in range(given.processes)]
    for folder, times in zip(checkouts, zip(*pairs, strict=True), strict=True):
        medians = [statistics.median(one) for one in times]
        print(f"{folder.name}: medians {', '.join(f'{median:.3f}' for median in medians)} s")
    ratios = sorted(statistics.median(own) / statistics.median(other) for own, other in pairs)
    print(f"ratio {statistics.median(ratios):.3f} of {ratios[0]:.3f} to {ratios[-1]:.3f}")


if __name__ == "__main__":
    main()
