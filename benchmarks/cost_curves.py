"""What training, forgetting and verifying cost over clients, rounds, parameters and runs.

    python benchmarks/cost_curves.py            15 minutes; writes docs/results/cost-curves.md and .svg

One setting is stretched along one axis at a time. Each command is a fresh process of one thread a worker. Told are
processor seconds after the import, without the making of the rows, and the largest memory above that after the import.
A curve is straight where the cost grows as the axis; what it grows by is told beside it. Over places, that is rounds
times participants, see ``benchmarks/plan_speed.py``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from figures import svg_of
from machine import hardware
from matplotlib.figure import Figure

from fuaudit.demo import CONFIG
from fuaudit.reporting.drawings import ROLES, STYLE

RESULTS = Path(__file__).parents[1] / "docs" / "results"
TURNS = 3
COMMANDS = ("train", "unlearn", "verify")
CHILD = """
import json, resource, sys, time
from dataclasses import replace
from pathlib import Path
import torch
from fuaudit import train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request
from fuaudit.verification.spec import read_spec
asked = json.loads(sys.argv[1])
place, data = Path(asked["place"]), None
if asked["rows"]:
    draws = torch.Generator().manual_seed(1)
    inputs = torch.rand(asked["rows"], 1, 8, 8, generator=draws)
    targets = torch.randint(10, (asked["rows"],), generator=draws)
    data = Dataset(inputs, targets, inputs[:1000], targets[:1000], classes=10)
most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
begun, imported = time.process_time(), most()
if asked["command"] == "train":
    train(asked["tables"], place / "run", data=data, secret=bytes(32))
elif asked["command"] == "unlearn":
    unlearn(place / "run", "fats", Request.of(clients=[0]), place / "child", data=data)
else:
    spec = read_spec("client-erasure")
    checks = tuple(check for check in spec.checks if check.audit["use"] in asked["audits"])
    spec = replace(spec, id="part", asks="run", alpha=None, checks=checks, origin="")
    verify(place / "child", spec, key=bytes(32), save=False, data=data, budget=asked["budget"])
print(json.dumps({"seconds": time.process_time() - begun, "memory": most() - imported}))
"""
EXECUTING = ("integrity", "replay", "stress", "lineage")


@dataclass(frozen=True)
class Point:
    """One setting of an axis.

    Attributes:
        rows: drawn images of 8 x 8; 0 for the digits.
        budget: of repeated runs.
    """

    axis: str
    value: int
    tables: dict[str, Any]
    rows: int = 0
    audits: tuple[str, ...] = EXECUTING
    budget: int = 0
    commands: tuple[str, ...] = COMMANDS


def a_config(clients: int = 100, rounds: int = 50, hidden: int = 0) -> dict[str, Any]:
    """FATS with 10 participants, 5 steps of 2 rows, three stored models."""
    learner = {"use": "fats", "rounds": rounds, "cohort": 10, "steps": 5, "batch": 2, "step_size": 0.01}
    return {
        "data": {"use": "digits"},
        "partition": {"use": "iid", "clients": clients},
        "model": {"use": "mlp", "hidden": [hidden]} if hidden else {"use": "linear"},
        "learner": learner,
        "run": {"checkpoint_every": rounds // 2},
    }


def points() -> Iterator[Point]:
    for clients in (100, 1_000, 10_000, 100_000):
        yield Point("clients", clients, a_config(clients), rows=2 * clients)
    for rounds in (10, 100, 1_000, 10_000):
        yield Point("rounds", rounds, a_config(rounds=rounds))
    for hidden in (128, 1_280, 12_800, 128_000):
        yield Point("parameters", 64 * hidden + hidden + 10 * hidden + 10, a_config(rounds=4, hidden=hidden))
    for runs in (64, 256, 1_024):
        commands = COMMANDS if runs == 64 else ("verify",)
        yield Point("runs", runs, CONFIG, audits=("model-law",), budget=runs, commands=commands)


def measured(point: Point, folder: Path) -> dict[str, dict[str, float]]:
    """What each command cost on one point; runs over the number of runs share one federation."""
    place = folder / f"{point.axis}-{'all' if point.axis == 'runs' else point.value}"
    found = dict[str, dict[str, float]]()
    for command in point.commands:
        asked = {
            "command": command,
            "place": str(place),
            "tables": point.tables,
            "rows": point.rows,
            "audits": point.audits,
            "budget": point.budget,
        }
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        told = subprocess.run(
            [sys.executable, "-c", CHILD, json.dumps(asked)], env=environment, check=True, stdout=subprocess.PIPE
        ).stdout
        found[command] = json.loads(told.splitlines()[-1])
    return found


def page(found: dict[str, dict[int, list[dict[str, dict[str, float]]]]], turns: int) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in hardware().items())
    lines = [
        "# What it costs over clients, rounds, parameters and runs",
        "",
        f"    python benchmarks/cost_curves.py --turns {turns}",
        "",
        f"{machine}. {turns} turns: medians, and in brackets the lowest and the highest. Seconds are those of the "
        "processor after the import, memory is MiB above that after the import. FATS, 10 participants, 5 steps of 2 "
        "rows, three stored models; 100 clients, 50 rounds and 650 parameters where nothing else is said. `verify` is "
        f"{', '.join(EXECUTING)}; over runs it is `model-law` on the demo. The growth is by how much the logarithm of "
        "the seconds grows with that of the axis, between the two last points: 1 is in proportion.",
        "",
        "![Curves](cost-curves.svg)",
    ]
    for axis, values in found.items():
        commands = [command for command in COMMANDS if all(command in turn for turn in [*values.values()][-1])]
        lines += ["", f"## {axis.capitalize()}", "", f"| {axis} | {' | '.join(f'{c} | MiB' for c in commands)} |"]
        lines += ["|---" * (1 + 2 * len(commands)) + "|"]
        for value, each in values.items():
            cells = []
            for command in commands:
                seconds = [turn[command]["seconds"] for turn in each]
                memory = statistics.median(turn[command]["memory"] for turn in each)
                spread = f"({min(seconds):.2f} to {max(seconds):.2f})"
                cells += [f"{statistics.median(seconds):.2f} {spread}", f"{memory:,.0f}"]
            lines.append(f"| {value:,} | {' | '.join(cells)} |")
        cells = [f"{growth(values, command):.2f} | " for command in commands]
        lines.append(f"| growth | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def growth(values: dict[int, list[dict[str, dict[str, float]]]], command: str) -> float:
    """By how much the logarithm of the seconds grows with that of the axis, between the two last points."""
    (less, before), (more, after) = [
        (value, statistics.median(turn[command]["seconds"] for turn in each)) for value, each in values.items()
    ][-2:]
    return math.log(after / before) / math.log(more / less)


def drawn(found: dict[str, dict[int, list[dict[str, dict[str, float]]]]]) -> str:
    """The curves as SVG: seconds over each axis, both in logarithms."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 6.5), layout="constrained")
        for place, (axis, values) in enumerate(found.items(), 1):
            axes = figure.add_subplot(2, 2, place)
            looks = zip(COMMANDS, ("faint", "second", "subject"), ("o", "s", "^"), strict=True)
            for command, role, marker in looks:
                known = {v: each for v, each in values.items() if command in each[0]}
                if len(known) > 1:
                    heights = [statistics.median(t[command]["seconds"] for t in each) for each in known.values()]
                    axes.plot([*known], heights, color=ROLES[role], marker=marker, label=command)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel(axis)
            axes.set_ylabel("processor seconds")
            axes.legend(frameon=False)
        return svg_of(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--most", type=int, default=10**9, help="leave out points beyond this value")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of cost-curves.md and cost-curves.svg")
    options = parser.parse_args()
    found = dict[str, dict[int, list[dict[str, dict[str, float]]]]]()
    for turn in range(options.turns):
        with tempfile.TemporaryDirectory() as folder:
            for point in points():
                if point.value > options.most:
                    continue
                cost = measured(point, Path(folder))
                found.setdefault(point.axis, {}).setdefault(point.value, []).append(cost)
                print(turn + 1, point.axis, f"{point.value:,}", cost, flush=True)
                if point.axis != "runs":
                    shutil.rmtree(Path(folder) / f"{point.axis}-{point.value}")
    (options.out / "cost-curves.md").write_text(page(found, options.turns), encoding="utf-8")
    (options.out / "cost-curves.svg").write_text(drawn(found), encoding="utf-8")


if __name__ == "__main__":
    main()
