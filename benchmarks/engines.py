"""Speed of the engines against a plain PyTorch loop: ``python benchmarks/engines.py``.

All rows of a table do the same work, which is checked: from the same plans and the same initial models to the
same final ones. They take turns inside one process, so what disturbs the machine disturbs all of them, and only
ratios within a turn are summed up. Processor time leaves out waiting for other processes, and counts both cores. The plain loop gets its plans as ready arrays, free of charge; the batched
engine draws its own inside the timing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import Iid, partition
from fuaudit.data.sources import Digits
from fuaudit.draws import Keyed
from fuaudit.models.zoo import Cnn, Mlp
from fuaudit.plans import Plan, Population, UniformLaw
from fuaudit.plans.schedule import Schedule, expand_many
from fuaudit.training import Chain, Learning, execute
from fuaudit.training.engines import Engine, Task, engine
from fuaudit.training.execute import Moment, beginning, task
from fuaudit.training.stages import Mean

CPU = torch.device("cpu")
TOLERANCE = 1e-5
"""What models of the batched engine may differ by, in float32; all others must have the bits of the loop."""


@dataclass(frozen=True)
class Setting:
    """A learning task with a law of plans."""

    learning: Learning
    dataset: Dataset
    population: Population
    law: UniformLaw

    def plans(self, runs: int) -> list[Plan]:
        return [
            Plan.fresh(self.law, self.population, Keyed(run.to_bytes(4, "big") + b"fuaudit: benchmark of engine"))
            for run in range(runs)
        ]

    def starts(self, plans: list[Plan]) -> Moment:
        dimension = self.learning.layout.dimension
        return beginning(self.learning, np.stack([plan.initial_uniform(dimension) for plan in plans]), CPU)

    def ground(self) -> Task:
        return task(self.learning, self.dataset, self.population, CPU)


def digits() -> Setting:
    """Digits, 64-32-10 (2,410 parameters), 20 clients of about 70 rows, K=4, E=5, b=8, 10 rounds."""
    data = Digits().load(None)
    population = partition(Iid(20), data.targets.numpy(), Keyed(b"fuaudit: benchmark's partition  "))
    learning = Learning(Mlp().build(data.shape, data.classes), Chain((Mean(),)), step_size=0.1)
    return Setting(learning, data, population, UniformLaw(10, 4, 5, 8))


def images(places: int) -> Setting:
    """Random images of MNIST's shape, the small CNN, 20 clients of 60 rows, E=10, b=10, one round."""
    draws = torch.Generator().manual_seed(1)
    inputs = torch.rand(1200, 1, 28, 28, generator=draws)
    targets = torch.randint(10, (1200,), generator=draws)
    data = Dataset(inputs, targets, inputs[:1], targets[:1], classes=10)
    population = Population({client: tuple(range(60 * client, 60 * client + 60)) for client in range(20)})
    learning = Learning(Cnn().build(data.shape, data.classes), Chain((Mean(),)), step_size=0.05)
    return Setting(learning, data, population, UniformLaw(1, places, 10, 10))


def plain_loop(module: nn.Module, ground: Task, vector: Tensor, batches: Tensor, step_size: float) -> Tensor:
    """Federated averaging as one would write it: batches ``(R, K, E, B)`` of row numbers, returns ``(d,)``."""
    inputs, targets = ground.inputs, ground.targets
    nn.utils.vector_to_parameters(vector.clone(), module.parameters())
    sent = {name: value.clone() for name, value in module.state_dict().items()}
    for cohort in batches:
        moves: list[dict[str, Tensor]] = []
        for client in cohort:
            module.load_state_dict(sent)
            optimizer = torch.optim.SGD(module.parameters(), lr=step_size)
            for rows in client:
                optimizer.zero_grad()
                cross_entropy(module(inputs[rows]), targets[rows]).backward()
                optimizer.step()
            moves.append({name: sent[name] - value for name, value in module.state_dict().items()})
        for name in sent:
            total = moves[0][name] * (1 / len(moves))
            for move in moves[1:]:
                total = total + move[name] * (1 / len(moves))
            sent[name] = sent[name] - total
    return torch.cat([value.flatten() for value in sent.values()])


@dataclass
class Row:
    """One contender: ``work`` does ``runs`` runs and returns final models; ``models`` are its first ones."""

    name: str
    runs: int
    work: Callable[[], Tensor]
    tolerance: float = 0.0
    latest: tuple[float, float] = (0.0, 0.0)
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    models: Tensor = field(default_factory=lambda: torch.empty(0))

    def turn(self) -> None:
        start, used = time.perf_counter(), time.process_time()
        self.models = self.work()
        self.latest = (time.perf_counter() - start) / self.runs, (time.process_time() - used) / self.runs

    def ratios(self, loop: Row) -> tuple[dict[str, float], dict[str, float]]:
        """How many times faster than the loop of the same turn: by the clock, and in processor time."""
        clock = [theirs / own for theirs, own in zip(loop.seconds, self.seconds, strict=True)]
        return spread(clock), spread([theirs / own for theirs, own in zip(loop.processor, self.processor, strict=True)])

    def difference(self, loop: Row) -> float:
        """The largest one between final models of runs that both did; more than the tolerance ends everything."""
        shared = min(len(self.models), len(loop.models))
        result = float((self.models[:shared] - loop.models[:shared]).abs().max())
        if not result <= self.tolerance:
            raise SystemExit(f"{self.name} did other work than {loop.name}: models differ by {result}")
        return result


def spread(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def second_core() -> float:
    """What a second core is worth right now, at most 2: large products, which only the hardware slows down."""
    matrix = torch.eye(512)

    def products(_: int) -> None:
        for _ in range(12):
            torch.mm(matrix, matrix)

    with ThreadPoolExecutor(2) as pool:
        seconds = []
        for spread_out in (map, pool.map):
            start = time.perf_counter()
            list(spread_out(products, range(2)))
            seconds.append(time.perf_counter() - start)
    return seconds[0] / seconds[1]


def compare(title: str, rows: list[Row], repeats: int, free: float, patience: float) -> dict[str, Any]:
    """Let rows take turns; every ratio is to the first row in the same turn.

    A turn counts when a second core was worth ``free`` before and after it, until ``repeats`` counted, or
    ``patience`` seconds have gone by: then the rest count as they are.
    """
    controls: list[float] = []
    start, turns, taken = time.perf_counter(), 0, 0
    for row in rows:
        row.turn()
    while taken < repeats:
        before = second_core()
        for row in rows:
            row.turn()
        control, late = min(before, second_core()), time.perf_counter() - start > patience
        turns += 1
        if control >= free or late:
            taken += 1
            controls.append(control)
            for row in rows:
                row.seconds.append(row.latest[0])
                row.processor.append(row.latest[1])
    table: dict[str, Any] = {"turns": turns, "counted": taken, "second core": spread(controls), "rows": {}}
    print(f"\n{title}\n{taken} of {turns} turns counted, second core worth {shown(table['second core'])}")
    heads = f"{'ms':>9}{'times the loop, min / median / max':>38}{'in processor time':>27}{'difference':>12}"
    print(f"{'a run':42}{heads}")
    for row in rows:
        ratios, cheaper = row.ratios(rows[0])
        table["rows"][row.name] = {
            "ms": spread([1e3 * s for s in row.seconds]),
            "ratio": ratios,
            "ratio of processor time": cheaper,
            "difference": (difference := row.difference(rows[0])),
        }
        print(f"{row.name:42}{table['rows'][row.name]['ms']['median']:>9.3f}{shown(ratios):>38}", end="")
        print(f"{shown(cheaper):>27}{difference:>12.1e}")
    return table


def shown(values: dict[str, float]) -> str:
    return " / ".join(f"{values[key]:.2f}" for key in ("min", "median", "max"))


def replay(setting: Setting, ground: Task, schedule: Schedule, start: Moment, maker: Engine) -> Tensor:
    *_, (_, last) = execute(setting.learning, ground, setting.population, schedule, start, maker)
    return last.vectors


def mlp_rows(runs: int, few: int) -> list[Row]:
    """Repeated runs: the loop, one run at a time, against engines that take many."""
    setting = digits()
    ground, plans = setting.ground(), setting.plans(runs)
    start, schedule = setting.starts(plans), expand_many(plans)
    first = Schedule(schedule.cohorts[:few], schedule.batches[:few])
    head = Moment(start.vectors[:few], {})
    module, batches = Mlp().build(setting.dataset.shape, 10), torch.from_numpy(schedule.batches)

    def loop() -> Tensor:
        step = setting.learning.step_size
        return torch.stack([plain_loop(module, ground, start.vectors[i], batches[i], step) for i in range(few)])

    def drawn(workers: int, models_too: bool) -> Callable[[], Tensor]:
        maker = engine("batched", workers)
        return lambda: replay(
            setting, ground, expand_many(plans), setting.starts(plans) if models_too else start, maker
        )

    return [
        Row("plain loop", few, loop),
        Row("reference", few, lambda: replay(setting, ground, first, head, engine("reference"))),
        Row("batched, 1 core, plans drawn", runs, drawn(1, False), TOLERANCE),
        Row("batched, 2 cores, plans drawn", runs, drawn(2, False), TOLERANCE),
        Row("batched, 1 core, plans and models drawn", runs, drawn(1, True), TOLERANCE),
        Row("batched, 2 cores, plans and models drawn", runs, drawn(2, True), TOLERANCE),
    ]


def cnn_rows(places: int) -> list[Row]:
    """One round of one run."""
    setting = images(places)
    ground, plans = setting.ground(), setting.plans(1)
    start, schedule = setting.starts(plans), expand_many(plans)
    module, batches = Cnn().build(setting.dataset.shape, 10), torch.from_numpy(schedule.batches)
    step = setting.learning.step_size
    return [
        Row("plain loop", 1, lambda: plain_loop(module, ground, start.vectors[0], batches[0], step)[None]),
        Row("reference", 1, lambda: replay(setting, ground, schedule, start, engine("reference"))),
        Row("threads, 2 cores", 1, lambda: replay(setting, ground, schedule, start, engine("threads", 2))),
        Row("batched, 1 core", 1, lambda: replay(setting, ground, schedule, start, engine("batched", 1)), TOLERANCE),
    ]


def hardware() -> dict[str, str]:
    """Versions and processor."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="turns that count, after one that does not")
    parser.add_argument("--runs", type=int, default=256, help="runs that the batched engine takes at once")
    parser.add_argument("--free", type=float, default=0.0, help="count only turns with a second core worth this")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds a table after which all turns count")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"hardware": hardware(), "runs": options.runs, "free": options.free}
    print(", ".join(f"{key} {value}" for key, value in result["hardware"].items()))
    tables: dict[str, Callable[[], list[Row]]] = {
        "digits, MLP 64-32-10, 10 rounds, K=4, E=5, b=8": lambda: mlp_rows(options.runs, min(10, options.runs)),
        "CNN, one round, K=10, E=10, b=10": lambda: cnn_rows(10),
        "CNN, one round, K=5, E=10, b=10": lambda: cnn_rows(5),
    }
    for title, rows in tables.items():
        result[title] = compare(title, rows(), options.repeats, options.free, options.patience)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
