"""Client steps a second, for every model and algorithm, against the one-thread loop.

    python benchmarks/client_steps.py
    python benchmarks/client_steps.py --model lstm --method mimic
    python benchmarks/client_steps.py --model mimic-cnn --engine reference --engine compiled

One round of a federation of 4 clients, all of them there, batches of 16 random rows in the shape of the model's data. A
client step is one batch of one client: forward, backward, step, with its share of the round's work at the server. Rows
of a table take turns in one process; a ratio is taken within a turn, so what disturbs the machine disturbs all of them.
Every engine must reach the loop's model, within 1e-4 in float32, or the benchmark stops. What is compiled is compiled
before the first turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import hardware
from torch import Tensor

from fuaudit.config import resolve
from fuaudit.data.dataset import Dataset
from fuaudit.data.text import TOKENS
from fuaudit.draws import Keyed
from fuaudit.plans import Plan, Population
from fuaudit.plans.schedule import expand_many
from fuaudit.training.engines import ENGINES, Engine, engine
from fuaudit.training.execute import beginning, execute
from fuaudit.training.setup import setup

CLIENTS, ROWS, BATCH = 4, 64, 16
METHODS = {"dropouts": "FedAvg", "fedprox": "FedProx", "scaffold": "SCAFFOLD", "mifa": "MIFA", "mimic": "MimiC"}
GREY, COLOUR, TEXT = (1, 28, 28), (3, 32, 32), (80,)
MODELS = {
    "linear": GREY,
    "mlp": GREY,
    "cnn": GREY,
    "lenet-5": GREY,
    "mimic-cnn": GREY,
    "resnet-20": COLOUR,
    "vgg-11": COLOUR,
    "vgg-16": COLOUR,
    "resnet-18": COLOUR,
    "lstm": TEXT,
}
TOLERANCE = 1e-4


def rows_of(shape: tuple[int, ...]) -> Dataset:
    """Random rows: tokens for text, numbers in [0, 1) for images."""
    draws = torch.Generator().manual_seed(1)
    size = CLIENTS * ROWS
    classes = TOKENS if shape == TEXT else 10
    if shape == TEXT:
        inputs = torch.randint(TOKENS, (size, *shape), generator=draws, dtype=torch.uint8)
    else:
        inputs = torch.rand(size, *shape, generator=draws)
    targets = torch.randint(classes, (size,), generator=draws)
    return Dataset(inputs, targets, inputs[:1], targets[:1], classes)


@dataclass(frozen=True)
class Work:
    """One round of a method on a model, ready to be executed by an engine."""

    steps: int
    run: Callable[[Engine], Tensor]

    def timed(self, maker: Engine) -> tuple[Tensor, float]:
        """The model after the round, and client steps a second."""
        started = time.perf_counter()
        model = self.run(maker)
        if model.is_cuda:
            torch.cuda.synchronize()
        return model, CLIENTS * self.steps / (time.perf_counter() - started)


def work(model: str, method: str, steps: int, device: str) -> Work:
    """A round of so many local steps."""
    learner = {"use": method, "scenario": "static", "probability": 1.0, "rounds": 1, "steps": steps, "batch": BATCH}
    tables = {
        "data": {"use": "digits"},  # not loaded: the rows are given
        "partition": {"use": "iid", "clients": CLIENTS},
        "model": {"use": model},
        "learner": learner | {"step_size": 0.01},
        "run": {"device": device},
    }
    ready = setup(resolve(tables), None, rows_of(MODELS[model]))
    population = Population({c: tuple(range(ROWS * c, ROWS * (c + 1))) for c in range(CLIENTS)})
    plans = [Plan.fresh(ready.learner.law, population, Keyed(b"fuaudit: benchmark, client steps"))]
    schedule, ground = expand_many(plans), ready.ground(population)
    start = beginning(ready.learning, plans, population, ready.device)

    def run(maker: Engine) -> Tensor:
        return deque(execute(ready.learning, ground, population, schedule, start, maker), maxlen=1)[0][1].vectors

    return Work(steps, run)


def row(model: str, method: str, engines: list[str], turns: int, seconds: float, device: str) -> dict[str, Any]:
    """One line of the table: steps a second of every engine, and their ratios to the loop's."""
    loop = engine("reference")
    one = work(model, method, 1, device)
    one.timed(loop)
    _, speed = one.timed(loop)
    todo = work(model, method, max(1, min(50, round(speed * seconds / CLIENTS))), device)
    makers = {name: engine(name) for name in engines}
    for maker in makers.values():  # buffers, threads and compilers warm up
        one.timed(maker)
    speeds: dict[str, list[float]] = {name: [] for name in ("reference", *engines)}
    differences = dict.fromkeys(engines, 0.0)
    for _ in range(turns):
        expected, speed = todo.timed(loop)
        speeds["reference"].append(speed)
        for name, maker in makers.items():
            found, speed = todo.timed(maker)
            speeds[name].append(speed)
            differences[name] = max(differences[name], float((found - expected).abs().max()))
            if not differences[name] <= TOLERANCE:
                raise SystemExit(f"{name} did other work than the loop: models differ by {differences[name]}")
    found_row: dict[str, Any] = {"model": model, "method": method, "steps": todo.steps, "engines": {}}
    for name, found in speeds.items():
        ratios = sorted(a / b for a, b in zip(found, speeds["reference"], strict=True))
        figures: dict[str, Any] = {"steps_a_second": statistics.median(found)}
        if name != "reference":
            ratio = {"min": ratios[0], "median": statistics.median(ratios), "max": ratios[-1]}
            figures |= {"ratio": ratio, "difference": differences[name]}
        found_row["engines"][name] = figures
    return found_row


def shown(row: dict[str, Any]) -> str:
    cells = [row["model"], METHODS[row["method"]]]
    for figures in row["engines"].values():
        cell = f"{figures['steps_a_second']:.1f}"
        if "ratio" in figures:
            ratio = figures["ratio"]
            cell += f" ({ratio['min']:.2f} / {ratio['median']:.2f} / {ratio['max']:.2f})"
        cells.append(cell)
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append", help="by default all")
    parser.add_argument("--method", choices=METHODS, action="append", help="by default all")
    others = [name for name in ENGINES if name != "reference"]
    parser.add_argument("--engine", choices=others, action="append", help="by default threads and batched")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long the loop should take for one turn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args()
    torch.set_num_threads(1)
    engines = given.engine or ["threads", "batched"]
    print(", ".join(f"{name} {value}" for name, value in hardware().items()))
    print("client steps a second (times the loop: smallest / median / largest turn)\n")
    print("| model | method | loop | " + " | ".join(engines) + " |")
    print("|---" * (3 + len(engines)) + "|", flush=True)
    rows: list[dict[str, Any]] = []
    for model in given.model or MODELS:
        for method in given.method or METHODS:
            rows.append(row(model, method, engines, given.turns, given.seconds, given.device))
            print(shown(rows[-1]), flush=True)
            if given.json:
                document = {"machine": hardware(), "device": given.device, "turns": given.turns, "rows": rows}
                given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
