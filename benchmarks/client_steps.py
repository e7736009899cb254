"""Client steps a second, for every model and algorithm, against the one-thread loop.

    python benchmarks/client_steps.py
    python benchmarks/client_steps.py --model lstm --model vgg-11 --json part.json    in parts, a model or more a call
    python benchmarks/client_steps.py --model mimic-cnn --engine compiled
    python benchmarks/client_steps.py --model resnet-20 --steps 32 --seconds 0        32 steps, however long they take

One round of a federation of 4 clients, all of them there, batches of 16 random rows in the shape of the model's data. A
client step is one batch of one client: forward, backward, step, with its share of the round's work at the server.

For each model the methods take turns, a, b, c, a, b, c, and so on, ``--repeats`` times, and in each turn the loop and
the engines, one after another; so what disturbs the machine for a while disturbs all of them. Two ratios are taken,
each within a repeat: of an engine to the loop of the same method, and of a method's loop to the loop of the first
method in the rotation. All methods of a model take the same number of local steps, which the table tells: so many that
the first method's loop takes about ``--seconds``, at most 50, but never fewer than ``--steps``. Methods can be compared
only within one call, because calls choose their number of steps, and meet the machine, apart.

Counted is all that executes a round: sizes and weights of the cohort, reading batches, local steps, what solver and
server do before and after them, O(clients x parameters), once a round. The server's work is the same for any number of
steps, so its share falls with them. Not counted are set-up, initial model and memories, draws and their expansion, one
whole rotation that warms up buffers, threads and compilers, and all that a real run writes and measures beside.

After one local step every engine must have reached the loop's model, within 1e-4 in float32, or the benchmark stops.
After more steps rounding has grown, by ReLUs that open in one engine and not in another: engines may be 1e-3 apart
after eight steps of a VGG. That difference is told in the JSON, and nothing is asked of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from machine import hardware
from torch import Tensor

from fuaudit.config import resolve
from fuaudit.data.dataset import Dataset
from fuaudit.data.text import TOKENS
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Plan, Population
from fuaudit.plans.stacked import expand_many
from fuaudit.training.engines import ENGINES, Engine, engine
from fuaudit.training.execute import execute, initial_state
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

    def timed(self, maker: Engine) -> float:
        """Client steps a second of the round."""
        started = time.perf_counter()
        model = self.run(maker)
        if model.is_cuda:
            torch.cuda.synchronize()
        return CLIENTS * self.steps / (time.perf_counter() - started)


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
    ready = setup(resolve(tables), rows_of(MODELS[model]))
    population = Population({c: tuple(range(ROWS * c, ROWS * (c + 1))) for c in range(CLIENTS)})
    plans = [Plan.fresh(ready.learner.law, population, Keyed(b"fuaudit: benchmark, client steps"))]
    schedule, problem = expand_many(plans), ready.client_problem(population)
    start = initial_state(ready.procedure, plans, population, ready.device)

    def run(maker: Engine) -> Tensor:
        return deque(execute(ready.procedure, problem, population, schedule, start, maker), maxlen=1)[0][1].vectors

    return Work(steps, run)


def steps_for(model: str, method: str, least: int, seconds: float, device: str) -> int:
    """Local steps a participation: so many that the loop takes about so long, at most 50, but never below ``least``."""
    one, loop = work(model, method, 1, device), engine("reference")
    one.timed(loop)
    return max(least, min(50, round(one.timed(loop) * seconds / CLIENTS)))


def differences(works: dict[str, Work], loop: Engine, others: dict[str, Engine]) -> dict[str, float]:
    """The largest difference of each engine's model to the loop's, over the methods; NaN where there is one."""
    found: dict[str, list[Tensor]] = {name: [] for name in others}
    for todo in works.values():
        expected = todo.run(loop)
        for name, maker in others.items():
            found[name].append((todo.run(maker) - expected).abs().max())
    return {name: float(torch.stack(values).max()) for name, values in found.items()}


Speeds = dict[str, dict[str, list[float]]]
"""Method -> engine -> client steps a second, one entry a repeat."""


def rotated(works: dict[str, Work], makers: dict[str, Engine], repeats: int) -> Speeds:
    """Methods in rotation, the engines within each turn."""
    speeds: Speeds = {method: {name: [] for name in makers} for method in works}
    for _, (method, todo), (name, maker) in product(range(repeats), works.items(), makers.items()):
        speeds[method][name].append(todo.timed(maker))
    return speeds


def spread(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"min": ordered[0], "median": statistics.median(ordered), "max": ordered[-1]}


def ratios(found: list[float], base: list[float]) -> dict[str, float]:
    """Speeds to others, each within its repeat."""
    return spread(a / b for a, b in zip(found, base, strict=True))


def rows(
    model: str, methods: list[str], engines: list[str], repeats: int, least: int, seconds: float, device: str
) -> list[dict[str, Any]]:
    """The lines of a model, one a method: steps a second of every engine, and their ratios within repeats."""
    first = methods[0]
    loop, others = engine("reference"), {name: engine(name) for name in engines}
    one_step = differences({method: work(model, method, 1, device) for method in methods}, loop, others)
    for name, difference in one_step.items():
        if not difference <= TOLERANCE:
            raise SystemExit(f"{name} did other work than the loop: models differ by {difference}")
    steps = steps_for(model, first, least, seconds, device)
    works = {method: work(model, method, steps, device) for method in methods}
    all_steps = differences(works, loop, others)  # the rotation that warms up
    speeds = rotated(works, {"reference": loop, **others}, repeats)
    lines = []
    for method, found in speeds.items():
        figures: dict[str, dict[str, Any]] = {
            name: {"steps_a_second": spread(values), "each": values} for name, values in found.items()
        }
        if method != first:
            figures["reference"]["to_first"] = ratios(found["reference"], speeds[first]["reference"])
        for name in engines:
            figures[name] |= {"ratio": ratios(found[name], found["reference"])}
            figures[name] |= {"difference": one_step[name], "difference_after_all_steps": all_steps[name]}
        lines.append({"model": model, "method": method, "first": first, "steps": steps, "engines": figures})
    return lines


def digits(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= 1000 else f"{speed:.1f}" if speed >= 10 else f"{speed:.2f}"


def three(ratio: dict[str, float]) -> str:
    return f"{ratio['min']:.2f} / {ratio['median']:.2f} / {ratio['max']:.2f}"


def shown(row: dict[str, Any]) -> str:
    cells = [row["model"], METHODS[row["method"]], str(row["steps"])]
    for figures in row["engines"].values():
        speed = figures["steps_a_second"]
        cell = f"{digits(speed['median'])} [{digits(speed['min'])} to {digits(speed['max'])}]"
        if "ratio" in figures:
            cell += f" ({three(figures['ratio'])})"
        if "to_first" in figures:
            cell += f" ({three(figures['to_first'])} of {METHODS[row['first']]})"
        cells.append(cell)
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append", help="by default all")
    parser.add_argument("--method", choices=METHODS, action="append", help="by default all")
    others = [name for name in ENGINES if name != "reference"]
    parser.add_argument(
        "--engine",
        choices=others,
        action="append",
        help="by default threads and batched; models are left out that one of them refuses",
    )
    parser.add_argument("--repeats", type=int, default=5, help="rotations over the methods that count")
    parser.add_argument("--steps", type=int, default=8, help="local steps a participation, at least")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long the loop should take for one round")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args()
    if given.repeats < 1 or given.steps < 1:
        parser.error("--repeats and --steps must be at least 1")
    torch.set_num_threads(1)
    engines = given.engine or ["threads", "batched"]
    methods = given.method or list(METHODS)
    print(", ".join(f"{name} {value}" for name, value in hardware().items()))
    print("client steps a second, median [smallest to largest] of the repeats")
    print("(smallest / median / largest ratio within a repeat: to the loop, and of loops to the first method's)\n")
    print("| model | method | steps | loop | " + " | ".join(engines) + " |")
    print("|---" * (4 + len(engines)) + "|", flush=True)
    found: list[dict[str, Any]] = []
    for model in given.model or MODELS:
        try:
            lines = rows(model, methods, engines, given.repeats, given.steps, given.seconds, given.device)
        except UsageError as error:
            print(f"{model} is left out: {error}", file=sys.stderr)
            continue
        print("\n".join(map(shown, lines)), flush=True)
        found += lines
        if given.json:
            document = {"machine": hardware(), "device": given.device, "repeats": given.repeats, "rows": found}
            given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
