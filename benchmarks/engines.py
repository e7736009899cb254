"""Speed of the engines against a plain PyTorch loop: ``python benchmarks/engines.py``.

All rows of a table do the same work, which is checked: from the same plans and the same initial models to the
same final ones. They take turns inside one process, so what disturbs the machine disturbs all of them, and only
ratios within a turn are summed up. Processor time leaves out waiting for other processes, and adds up both cores.
The plain loop gets plans and initial models as ready arrays, free of charge.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import hardware
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fuaudit.data.dataset import Dataset
from fuaudit.data.images import Digits
from fuaudit.data.partition import Iid, partition
from fuaudit.draws import Keyed
from fuaudit.models.convolutional import Cnn
from fuaudit.models.dense import Mlp
from fuaudit.plans import Plan, Population, UniformLaw
from fuaudit.plans.expanded import Schedule
from fuaudit.plans.stacked import expand_many
from fuaudit.training.engines import ClientProblem, Engine, engine
from fuaudit.training.exchange import Exchange
from fuaudit.training.execute import Procedure, RoundState, StepSizes, client_problem, execute, initial_state
from fuaudit.training.stages import Chain, Mean

CPU = torch.device("cpu")
TOLERANCE = 1e-5
"""What models of stacked participations may differ by, in float32; all others must have the bits of the loop."""


@dataclass(frozen=True)
class Setting:
    """A learning task with a law of plans."""

    procedure: Procedure
    dataset: Dataset
    population: Population
    law: UniformLaw

    def plans(self, runs: int) -> list[Plan]:
        return [
            Plan.fresh(self.law, self.population, Keyed(run.to_bytes(4, "big") + b"fuaudit: benchmark of engine"))
            for run in range(runs)
        ]

    def starts(self, plans: list[Plan]) -> RoundState:
        return initial_state(self.procedure, plans, self.population, CPU)

    def client_problem(self) -> ClientProblem:
        return client_problem(self.procedure, self.dataset, self.population, CPU)


def digits() -> Setting:
    """Digits, 64-32-10 (2,410 parameters), 20 clients of about 70 rows, K=4, E=5, b=8, 10 rounds."""
    data = Digits().load(None)
    population = partition(Iid(20), data, Keyed(b"fuaudit: benchmark's partition  "))
    procedure = Procedure(Mlp().build(data.shape, data.classes), Exchange(Chain((Mean(),))), StepSizes(0.1))
    return Setting(procedure, data, population, UniformLaw(10, 4, 5, 8))


def images(places: int) -> Setting:
    """Random images of MNIST's shape, the small CNN, 20 clients of 60 rows, E=10, b=10, one round."""
    draws = torch.Generator().manual_seed(1)
    inputs = torch.rand(1200, 1, 28, 28, generator=draws)
    targets = torch.randint(10, (1200,), generator=draws)
    data = Dataset(inputs, targets, inputs[:1], targets[:1], classes=10)
    population = Population({client: tuple(range(60 * client, 60 * client + 60)) for client in range(20)})
    procedure = Procedure(Cnn().build(data.shape, data.classes), Exchange(Chain((Mean(),))), StepSizes(0.05))
    return Setting(procedure, data, population, UniformLaw(1, places, 10, 10))


def plain_loop(module: nn.Module, problem: ClientProblem, vector: Tensor, batches: Tensor, step_size: float) -> Tensor:
    """Federated averaging as one would write it: batches ``(R, K, E, B)`` of row numbers, returns ``(d,)``."""
    inputs, targets = problem.inputs, problem.targets
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


@dataclass(frozen=True)
class Row:
    """One contender: ``work`` does ``runs`` runs and returns final models, the loop's runs first."""

    name: str
    runs: int
    work: Callable[[], Tensor]
    tolerance: float = 0.0
    elsewhere: bool = False

    def turn(self, loop: Tensor | None) -> tuple[Tensor, list[float]]:
        """The models; seconds by the clock and of the processor for one run, and the difference to the loop's."""
        clock, processor = time.perf_counter(), time.process_time()
        models = self.work()
        seconds = [(time.perf_counter() - clock) / self.runs, (time.process_time() - processor) / self.runs]
        if self.elsewhere:
            seconds[1] = float("nan")  # the processor time of other processes is not known here
        shared = slice(min(len(models), len(models if loop is None else loop)))
        difference = 0.0 if loop is None else float((models[shared] - loop[shared]).abs().max())
        if not difference <= self.tolerance:
            raise SystemExit(f"{self.name} did other work than the loop: models differ by {difference}")
        return models, [*seconds, difference]


def second_core() -> float:
    """What a second core is worth right now, at most 2: large products, which only the hardware slows down."""
    matrix = torch.eye(512)

    def products(_: int) -> None:
        for _ in range(12):
            torch.mm(matrix, matrix)

    with ThreadPoolExecutor(2) as pool:
        start = time.perf_counter()
        list(map(products, range(2)))
        middle = time.perf_counter()
        list(pool.map(products, range(2)))
        return (middle - start) / (time.perf_counter() - middle)


def compare(title: str, rows: list[Row], options: argparse.Namespace) -> dict[str, Any]:
    """Let rows take turns until enough of them had two free cores, or patience is at its end.

    Turns are chosen by the control alone. If none had two free cores, all count.
    """
    turns: list[tuple[float, list[list[float]]]] = []
    end = time.perf_counter() + options.patience
    while sum(core >= options.free for core, _ in turns[1:]) < options.repeats and time.perf_counter() < end:
        before, (loop, measured) = second_core(), rows[0].turn(None)
        measures = [measured, *(row.turn(loop)[1] for row in rows[1:])]
        turns.append((min(before, second_core()), measures))
    turns = turns[1:] or turns  # the first one warms up
    counted = [turn for turn in turns if turn[0] >= options.free] or turns
    figures = np.array([measured for _, measured in counted])  # (turns, rows, 3)
    ratios = figures[:, :1, :2] / figures[:, :, :2]
    cores = spread(np.array([core for core, _ in counted]))
    print(f"\n{title}\n{len(counted)} of {len(turns)} turns count; a second core was worth {shown(cores)}")
    print(f"{'':44}{'ms a run':>11}{'times the loop: by the clock':>30}{'in processor time':>26}{'difference':>12}")
    table: dict[str, Any] = {"turns": len(turns), "counted": len(counted), "second core": cores}
    for at, row in enumerate(rows):
        clock, processor = spread(ratios[:, at, 0]), spread(ratios[:, at, 1])
        seconds, difference = spread(figures[:, at, 0]), float(figures[:, at, 2].max())
        table[row.name] = {"seconds": seconds, "ratio": clock, "processor": processor, "difference": difference}
        times = f"{1e3 * seconds['median']:>11.3f}{shown(clock):>30}{shown(processor):>26}"
        print(f"{row.name:44}{times}{difference:>12.1e}", flush=True)
    return table


def spread(values: NDArray[np.float64]) -> dict[str, float]:
    return {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}


def shown(values: dict[str, float]) -> str:
    return " / ".join(f"{values[key]:.2f}" for key in ("min", "median", "max"))


def replay(setting: Setting, problem: ClientProblem, schedule: Schedule, start: RoundState, maker: Engine) -> Tensor:
    rounds = execute(setting.procedure, problem, setting.population, schedule, start, maker)
    return deque(rounds, maxlen=1)[0][1].vectors


def mlp_rows(runs: int, few: int) -> list[Row]:
    """Repeated runs: the loop, one run at a time, against engines that take many."""
    setting, problem, plans, schedule, start, _ = prepared(runs)
    pool = ProcessPoolExecutor(2, get_context("fork"))  # forks at the first use, with all that is prepared
    first = Schedule(schedule.cohorts[:few], schedule.batches[:few])
    head = RoundState(start.vectors[:few], {})
    module, batches = Mlp().build(setting.dataset.shape, 10), torch.from_numpy(schedule.batches)

    def loop() -> Tensor:
        step = setting.procedure.step_sizes.first
        return torch.stack([plain_loop(module, problem, start.vectors[i], batches[i], step) for i in range(few)])

    def batched(what: str, workers: int, draw_plans: bool = True, draw_models: bool = False) -> Row:
        maker = engine("batched", workers)

        def work() -> Tensor:
            drawn = expand_many(plans) if draw_plans else schedule
            return replay(setting, problem, drawn, setting.starts(plans) if draw_models else start, maker)

        return Row(f"batched, {what}", runs, work, TOLERANCE)

    def beside(drawn: bool) -> Tensor:
        halves = pool.map(partial(half, runs, drawn), range(0, runs, runs // 2))
        return torch.from_numpy(np.concatenate(list(halves)))

    return [
        Row("plain loop", few, loop),
        Row("reference", few, lambda: replay(setting, problem, first, head, engine("reference"))),
        batched("1 core", 1, draw_plans=False),
        batched("2 threads", 2, draw_plans=False),
        Row("batched, 2 processes", runs, lambda: beside(False), TOLERANCE, elsewhere=True),
        batched("1 core, plans and models drawn", 1, draw_models=True),
        batched("2 threads, plans and models drawn", 2, draw_models=True),
        Row("batched, 2 processes, plans and models drawn", runs, lambda: beside(True), TOLERANCE, elsewhere=True),
    ]


@cache
def prepared(runs: int) -> tuple[Setting, ClientProblem, list[Plan], Schedule, RoundState, Engine]:
    setting = digits()
    plans = setting.plans(runs)
    return setting, setting.client_problem(), plans, expand_many(plans), setting.starts(plans), engine("batched", 1)


def half(runs: int, drawn: bool, first: int) -> NDArray[np.float32]:
    """Half of the runs, from ``first`` on, with its own draws if ``drawn``; for a process of its own."""
    setting, problem, plans, schedule, start, maker = prepared(runs)
    own = slice(first, first + runs // 2)
    if drawn:
        schedule, start = expand_many(plans[own]), setting.starts(plans[own])
    else:
        schedule = Schedule(schedule.cohorts[own], schedule.batches[own])
        start = RoundState(start.vectors[own], {})
    models: NDArray[np.float32] = replay(setting, problem, schedule, start, maker).numpy()
    return models


def cnn_rows(places: int) -> list[Row]:
    """One round of one run."""
    setting = images(places)
    problem, plans = setting.client_problem(), setting.plans(1)
    start, schedule = setting.starts(plans), expand_many(plans)
    module, batches = Cnn().build(setting.dataset.shape, 10), torch.from_numpy(schedule.batches)
    step = setting.procedure.step_sizes.first

    def row(name: str, workers: int, tolerance: float = 0.0) -> Row:
        maker = engine(name, workers)
        cores = f"{workers} core{'s' * (workers > 1)}"
        return Row(f"{name}, {cores}", 1, lambda: replay(setting, problem, schedule, start, maker), tolerance)

    return [
        Row("plain loop", 1, lambda: plain_loop(module, problem, start.vectors[0], batches[0], step)[None]),
        row("reference", 1),
        row("threads", 2),
        row("batched", 1, TOLERANCE),
        row("grouped", 1, TOLERANCE),
        row("grouped", 2, TOLERANCE),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="turns that count, after one that does not")
    parser.add_argument("--runs", type=int, default=256, help="runs that the batched engine takes at once")
    parser.add_argument("--free", type=float, default=0.0, help="count only turns with a second core worth this")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds after which a table ends in any case")
    parser.add_argument("--only", default="", help="tables whose title holds this text")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"hardware": hardware(), "runs": options.runs, "free": options.free}
    print(", ".join(f"{key} {value}" for key, value in result["hardware"].items()))
    tables: dict[str, Callable[[], list[Row]]] = {
        "digits, MLP 64-32-10, 10 rounds, K=4, E=5, b=8": lambda: mlp_rows(options.runs, min(6, options.runs)),
        "CNN, one round, K=10, E=10, b=10": lambda: cnn_rows(10),
        "CNN, one round, K=5, E=10, b=10": lambda: cnn_rows(5),
    }
    for title in filter(lambda title: options.only in title, tables):
        result[title] = compare(title, tables[title](), options)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
