"""How many top coordinates one sample changes: ``python benchmarks/conspar_differ.py`` writes the page.

A run of FedREP is executed twice with the same draws, once with one row of one client replaced.
"""

from __future__ import annotations

import tempfile
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuaudit_plugins.conspar import Consensus, top
from machine import hardware

from fuaudit import train
from fuaudit.budgets.conspar.diagnosis import MEANING, Diagnosis, diagnosis
from fuaudit.config import resolve
from fuaudit.data.dataset import Dataset
from fuaudit.plans.stacked import LazySchedule
from fuaudit.runs.run import Run
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import load_dataset, setup
from fuaudit.training.stages import Stage

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "conspar-differ.md"
ROUNDS = 20

PAGE_TEXT = """\
# How many top coordinates one sample changes

    python benchmarks/conspar_differ.py

{machine}. `examples/fedrep.toml`, {rounds} rounds, executed twice with the same draws: as it is, and with one row of \
client 0 replaced by its negative. Counted is in how many of its 8 top coordinates (of 2,410) client 0 differs. It is \
one row under one secret. The row is drawn first in round {first}.

This is {meaning}.

| memory (`error-feedback`) | rounds in which the sets differ | largest difference |
|---|---|---|
{rows}

In words: an account for one differing element (`differ = 1`, as in the paper) says nothing about this sample. One \
round with it changes the model, and with it all later updates. Memories carry on what was not sent.
"""


@dataclass(frozen=True)
class Watching(Consensus):
    """ConSpar that remembers the top sets of every round, by client."""

    seen: list[dict[int, set[int]]] = field(default_factory=list, compare=False)

    def propose(self, updates: Any, context: Any) -> Any:
        """See :class:`Consensus`."""
        sets = [set(top(row, self.per_client).tolist()) for row in updates]
        self.seen.append(dict(zip(context.cohort.clients.tolist(), sets, strict=True)))
        return super().propose(updates, context)


def top_sets(run: Run, data: Dataset, client: int) -> list[set[int]]:
    """The top sets of a client in each round of the plan of a run, executed over some rows with the run's draws."""
    ready, plan = setup(run.config, data), run.plan
    chain = ready.procedure.exchange.client_stages
    place, agreed = next((place, stage) for place, stage in enumerate(chain.stages) if isinstance(stage, Consensus))
    watching = Watching(agreed.per_client, agreed.alpha)
    stages: tuple[Stage, ...] = (*chain.stages[:place], watching, *chain.stages[place + 1 :])
    exchange = replace(ready.procedure.exchange, client_stages=replace(chain, stages=stages))
    procedure = replace(ready.procedure, exchange=exchange)
    start = initial_state(procedure, [plan], plan.retained, ready.device)
    problem, schedule = ready.client_problem(plan.retained), LazySchedule([plan], run.rounds_executed)
    draws = run.stage_draws(plan)
    for _ in execute(procedure, problem, plan.retained, schedule, start, ready.engine, draws=draws):
        pass
    return [sets[client] for sets in watching.seen if client in sets]


def with_other_row(data: Dataset, row: int) -> Dataset:
    """The same rows but for one, whose inputs change their sign."""
    inputs = data.inputs.clone()
    inputs[row] = -inputs[row]
    return replace(data, inputs=inputs)


def measured(run: Run, data: Dataset, client: int, row: int, assumed: int = 1) -> Diagnosis:
    """How many top coordinates of a client one of its rows changes, round by round."""
    return diagnosis(top_sets(run, data, client), top_sets(run, with_other_row(data, row), client), assumed)


def first_drawn(run: Run, row: int) -> int:
    """The round that draws a row first; 0 for none."""
    schedule = LazySchedule([run.plan], run.rounds_executed)
    return next((n for n in range(1, schedule.rounds + 1) if (schedule.round(n).batches == row).any()), 0)


def main() -> None:
    table = tomllib.loads((ROOT / "examples" / "fedrep.toml").read_text())
    table["learner"]["rounds"] = ROUNDS
    data, rows, first = load_dataset(resolve(table), None), list[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        for memory in (True, False):
            client = [stage for stage in table["client"] if memory or stage["use"] != "error-feedback"]
            run = train(table | {"client": client}, Path(folder) / f"{memory}", data=data, secret=bytes(32))
            row = run.plan.retained.samples[0][0]
            found, first = measured(run, data, 0, row).differing, first_drawn(run, row)
            differ = f"{sum(number > 0 for number in found)} of {len(found)}"
            rows.append(f"| {'yes' if memory else 'no'} | {differ} | {max(found)} of 8 |")
    facts = hardware()
    machine = f"fuaudit {facts['fuaudit']}, torch {facts['torch']}, {facts['processor']}"
    text = PAGE_TEXT.format(machine=machine, rounds=ROUNDS, first=first, meaning=MEANING, rows="\n".join(rows))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
