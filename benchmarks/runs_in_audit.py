"""Repeated runs inside the audit `model-law`, beside the engine by itself: what everything around the steps costs.

    python benchmarks/runs_in_audit.py            a minute; writes docs/results/runs-in-audit.md

The federation is that of ``benchmarks/engines.py``: a network 64-32-10 on digits, 20 clients, 10 rounds. Client 0 is
unlearned by `retrain`, so that all four runs of a pair are whole. One part of 64 pairs is computed as the audit does
it: plans, initial models, steps, states, with and without the statistics of all models. Beside it the engine runs as
many plans, drawn or given. All use one core, and take turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engines import prepared, replay
from machine import hardware
from torch import Tensor

from fuaudit import train, unlearn
from fuaudit.audits.model_law.measure import Statistics
from fuaudit.draws import Keyed
from fuaudit.plans import Request
from fuaudit.plans.stacked import expand_many
from fuaudit.replicas.arms import Batch, arms_of
from fuaudit.replicas.pairs import Pairs
from fuaudit.runs.run import load_run
from fuaudit.training.setup import load_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence

PAGE = Path(__file__).parents[1] / "docs" / "results" / "runs-in-audit.md"
TURNS, PAIRS = 5, 64
RUNS = 4 * PAIRS
TABLES = {
    "data": {"use": "digits"},
    "partition": {"use": "iid", "clients": 20},
    "model": {"use": "mlp", "hidden": [32]},
    "learner": {"use": "fats", "rounds": 10, "cohort": 4, "steps": 5, "batch": 8, "step_size": 0.1},
}
PAGE_TEXT = """\
# Repeated runs inside the audit, beside the engine

    python benchmarks/runs_in_audit.py

{machine}. {turns} turns in one process, after one that is not counted; one core. {runs} runs of 10 rounds, 4 \
participants, 5 steps of batches of 8, 2,410 parameters. In processor time, as multiples of the engine's with drawn \
plans and models: least, median, largest.

| what | times the engine, plans drawn |
|---|---|
{lines}

The part of the audit is {pairs} pairs, each of an original, what `retrain` makes of it, and two retrained runs. \
Statistics are ten numbers of every model, over up to 500 retained and 500 test rows.
"""


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of some work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    setting, problem, plans, schedule, start, maker = prepared(RUNS)
    with tempfile.TemporaryDirectory() as folder:
        run = train(TABLES, Path(folder) / "run", secret=bytes(32))
        child = unlearn(run, "retrain", Request.of(clients=[0]), Path(folder) / "child")
        pairs = pairs_of(child.path)
        ways: dict[str, Callable[[], object]] = {
            "the engine, plans and models drawn": lambda: replay(
                setting, problem, expand_many(plans), setting.starts(plans), maker
            ),
            "the engine, plans and models given": lambda: replay(setting, problem, schedule, start, maker),
            "a part of the audit, its runs": lambda: models_of(pairs),
            "a part of the audit, runs and statistics": lambda: pairs.compute((0, PAIRS), 1),
        }
        turns = [{name: seconds(way) for name, way in ways.items()} for _ in range(options.turns + 1)][1:]
    first = next(iter(ways))
    lines = []
    for name in ways:
        shares = [turn[name] / turn[first] for turn in turns]
        lines.append(f"| {name} | {min(shares):.2f} / {statistics.median(shares):.2f} / {max(shares):.2f} |")
    print("\n".join(lines))
    machine = ", ".join(f"{key} {value}" for key, value in hardware().items())
    shown = {"machine": machine, "turns": options.turns, "runs": RUNS, "pairs": PAIRS, "lines": "\n".join(lines)}
    options.page.write_text(PAGE_TEXT.format(**shown))


def models_of(pairs: Pairs) -> list[Tensor]:
    """The final models of a part, arm by arm."""
    batch = Batch(pairs.case, range(PAIRS), 1, pairs.read, pairs.size)
    return [arm.models(batch) for arm in arms_of(pairs.case.evidence.is_editor)]


def pairs_of(child: Path) -> Pairs:
    """The pairs of a run on digits."""
    run = load_run(child)
    return Pairs.of(Case(Evidence(run, None, load_dataset(run.config, None)), Keyed(bytes(32))), Statistics(500), PAIRS)


if __name__ == "__main__":
    main()
