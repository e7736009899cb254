"""How fast models are measured, against the way of before: it writes ``docs/results/measuring.md``.

    python benchmarks/measuring.py --data FOLDER           FOLDER holds MNIST/raw; two minutes

The way of before stands here as the oracle: the library's max-pooling, one chunk after another, and a call a client.
Both ways measure the same models, in turns, and have to find the same figures. They are compared by the clock, for one
of them uses all processors; what a second one was worth in each turn is printed beside it. Processor seconds tell what
is saved without it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from engines import second_core
from machine import hardware
from torch import Tensor
from torch.nn.functional import cross_entropy

from fuaudit.config import resolve
from fuaudit.data.dataset import Dataset, scaled, scaling_constants
from fuaudit.plans import Population
from fuaudit.runs.derived_files import Measures
from fuaudit.training.measuring import CHUNK
from fuaudit.training.setup import Setup, setup

PAGE = Path(__file__).parents[1] / "docs" / "results" / "measuring.md"
TURNS = 5
CLIENTS, MANY = 100, 100_000

PAGE_TEXT = """\
# How fast models are measured

    python benchmarks/measuring.py --data FOLDER

{machine}. {turns} turns in one process after one that is not counted; in each, both ways measure the same model and \
find the same figures. Ratios are those of turns: medians, and in brackets the lowest and the highest. A second core \
was worth {core} in these turns, of 2 at most.

| what is measured | before: seconds | times faster by the clock | in processor time |
|---|---|---|---|
{lines}

Before, max-pooling was the library's, one thread computed, and each client's rows were answered by calls of their \
own. Now it is done by slices, all cores share the chunks, and rows of all clients are answered together \
([the rule](../run-format.md#metricsjson)). The model `cnn` has 21,840 parameters, `linear` 650.

The ratio by the clock is that in processor time, times what a second core is worth just then. \
Figures were equal in every turn, own accuracies among them, which had other chunks before.
"""


# --- the way of before


Answer = Callable[[Tensor, Tensor], Tensor]


def answering_before(ready: Setup, population: Population) -> Answer:
    """Logits by the template as it is."""
    procedure, module, layout = ready.procedure, ready.cpu_module(), ready.procedure.layout
    shift, divisor = scaling_constants(ready.dataset, population, procedure.scaling)

    @torch.no_grad()
    def logits(vector: Tensor, inputs: Tensor) -> Tensor:
        parameters = dict(zip(layout.names, layout.split(vector), strict=True))
        given = scaled(inputs, shift, divisor, procedure.dtype)
        found: Tensor = torch.func.functional_call(module, parameters, (given,))
        return found

    return logits


def measured_before(logits: Answer, vector: Tensor, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Loss and accuracy, chunk after chunk."""
    loss, hits = 0.0, 0
    for first in range(0, len(targets), CHUNK):
        wanted = targets[first : first + CHUNK]
        found = logits(vector, inputs[first : first + CHUNK])
        loss += float(cross_entropy(found, wanted, reduction="sum"))
        hits += int((found.argmax(dim=1) == wanted).sum())
    return loss / len(targets), hits / len(targets)


def own_before(logits: Answer, vector: Tensor, data: Dataset, population: Population) -> dict[int, float | None]:
    """The accuracy on each client's rows, client after client."""
    own = dict[int, float | None]()
    for client, rows in population.samples.items():
        taken = data.inputs[list(rows)], data.targets[list(rows)]
        own[client] = measured_before(logits, vector, *taken)[1] if rows else None
    return own


# --- both


Way = Callable[[Tensor], object]


def ways(ready: Setup, population: Population) -> dict[str, tuple[Way, Way]]:
    """What is measured -> how it was done before, and how it is done."""
    data, logits = ready.dataset, answering_before(ready, population)

    def before(vector: Tensor) -> object:
        return measured_before(logits, vector, data.test_inputs, data.test_targets)

    def own(vector: Tensor) -> object:
        return own_before(logits, vector, data, population)

    return {
        "test rows": (before, lambda vector: Measures(ready, population).on_test_rows(vector)),
        "own accuracy": (own, lambda vector: Measures(ready, population).own_accuracy(vector)),
    }


def timed(way: Way, vector: Tensor) -> tuple[object, float, float]:
    """What it finds, seconds by the clock, and processor seconds."""
    clock, processor = time.perf_counter(), time.process_time()
    found = way(vector)
    return found, time.perf_counter() - clock, time.process_time() - processor


def compared(ready: Setup, pair: tuple[Way, Way], turns: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds before, and ratios by the clock and in processor time, turn by turn. SystemExit for other figures."""
    layout, seconds, clock, processor = ready.procedure.layout, list[float](), list[float](), list[float]()
    for turn in range(turns + 1):
        drawn = torch.rand(1, layout.dimension, generator=torch.Generator().manual_seed(turn), dtype=torch.float64)
        vector = layout.initial(drawn.numpy(), ready.procedure.dtype)[0]
        found = [timed(way, vector) for way in (pair if turn % 2 else pair[::-1])]
        before, after = found if turn % 2 else found[::-1]
        if before[0] != after[0]:
            raise SystemExit("the two ways find other figures")
        if turn:  # the first one warms up
            seconds.append(before[1])
            clock.append(before[1] / after[1])
            processor.append(before[2] / after[2])
    return seconds, clock, processor


def shown(values: list[float], form: str = ".2f") -> str:
    """The median, the lowest and the highest."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def a_setup(data: Path | Dataset, model: str, use: str) -> Setup:
    """What measures a model of the training config with this data."""
    learner = {"use": "fedavg", "rounds": 1, "cohort": 2, "steps": 1, "batch": 1, "step_size": 0.1}
    tables = {"data": {"use": use}, "partition": {"use": "iid", "clients": CLIENTS}, "model": {"use": model}}
    return setup(resolve({**tables, "learner": learner, "run": {"device": "cpu"}}), data)


def dealt(rows: int, clients: int) -> Population:
    """Rows in equal parts."""
    each = rows // clients
    return Population({client: tuple(range(client * each, (client + 1) * each)) for client in range(clients)})


def many_clients() -> Dataset:
    """Two drawn images of 8 x 8 a client."""
    draws = torch.Generator().manual_seed(1)
    inputs = torch.rand(2 * MANY, 1, 8, 8, generator=draws)
    targets = torch.randint(10, (2 * MANY,), generator=draws)
    return Dataset(inputs, targets, inputs[:1000], targets[:1000], classes=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds MNIST/raw")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    mnist, digits = a_setup(options.data, "cnn", "mnist"), a_setup(many_clients(), "linear", "digits")
    lines, cores = [], [second_core()]
    for name, ready, clients in (("MNIST", mnist, CLIENTS), ("8 x 8", digits, MANY)):
        population = dealt(ready.dataset.size, clients)
        rows = {"test rows": len(ready.dataset.test_targets), "own accuracy": population.size}
        for what, pair in ways(ready, population).items():
            if (name, what) == ("8 x 8", "test rows"):
                continue
            seconds, clock, processor = compared(ready, pair, options.turns)
            cores.append(second_core())
            of = f"{name}, {clients:,} clients, {what}, {rows[what]:,} rows"
            lines.append(f"| {of} | {shown(seconds)} | {shown(clock)} | {shown(processor)} |")
            print(lines[-1], flush=True)
    machine = ", ".join(f"{key} {value}" for key, value in hardware().items())
    text = PAGE_TEXT.format(machine=machine, turns=options.turns, core=shown(cores), lines="\n".join(lines))
    options.page.write_text(text)


if __name__ == "__main__":
    main()
