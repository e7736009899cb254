"""How fast plans are drawn, rewritten and scored, against an earlier fuaudit: writes ``docs/results/plan-speed.md``.

    python benchmarks/plan_speed.py --before PYTHON        PYTHON runs the fuaudit to compare with

Each way is a process of its own, so that its peak memory is known; they take turns. Both sides read the
same numbers off the same plans: digests are compared. Ratios are of processor time in one turn. Each turn also times a
plain training loop, so that figures of two machines can be put beside each other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "results" / "plan-speed.md"
TURNS, PLANS, LOOP_STEPS = 5, 100_000, 100
BEFORE, ARRAYS, COMPILED = "before", "arrays", "compiled"
WORKS = {
    "simulate sample": "plans with one sample to forget: drawn, rewritten, scored",
    "simulate client": "plans with one client to forget: the same",
    "compare sample": "plans with one sample to forget, beside the reference",
}
PLACES = (10_000, 100_000, 1_000_000)
MANY = 4
KEY = bytes(32)
Rows = dict[tuple[str, str], list[dict[str, Any]]]

PAGE_TEXT = """\
# How fast plans are drawn, rewritten and scored

    python benchmarks/plan_speed.py --before PYTHON --plans {plans}

{machine}, numba {numba}. {turns} turns of three processes, one a way; PYTHON is that of fuaudit at \
{commit}. Ratios are those of processor time within turns: medians, and in brackets the lowest and the highest. \
Numbers read off the plans were equal in every turn. The setting is MNIST as FATS has it: 300 clients of 200 samples, \
5 a round, 30 rounds, 10 steps of 10. One core; the load of the machine was {load}.

| {plans:,} plans | before: microseconds a plan | times faster, NumPy alone | times faster, compiled | MB more: \
before, NumPy, compiled |
|---|---|---|---|---|
{lines}

In the time that the compiled way takes for {plans:,} plans with one sample, a plain loop of PyTorch trains {loop} \
steps of the MNIST network with batches of 10; before it was {loop_before}. Loading the compiled part took {load_time} \
seconds of processor time, and {load_memory} MB. It is loaded after \
3,000,000 blocks in arrays, which take about as long.

## Plans of many places

{many} plans, of 1,000 clients, 100 a round and up to {rounds:,} rounds. One sample is forgotten; plans are drawn, \
rewritten and scored.

| places of a plan: rounds times cohort | before: nanoseconds a place | MB | NumPy alone | MB | compiled | MB |
|---|---|---|---|---|---|---|
{curve}

MB are the most that was held in one measurement, above what the process held before it; what an earlier measurement \
left to the allocator does not count, so a 0 says that it was enough. Memory is bounded by `PLACES` in \
`fuaudit/plans/stacked.py`: rounds are drawn some at a time where a plan has more.
"""


def work_of(name: str, plans: int) -> Callable[[], Any]:
    """A piece of work of the fuaudit that this process has."""
    from fuaudit_plugins.fats import FatsUnlearning
    from mnist_setting import LAW, POPULATION

    from fuaudit.audits.plan_law import comparison, simulate
    from fuaudit.plans import Population, Request, UniformLaw

    kind, what = name.split()
    if kind == "places":
        rounds = int(what) // 100
        law = UniformLaw(rounds, 100, 2, 2)
        clients = Population({c: tuple(range(4 * c, 4 * c + 4)) for c in range(1000)})
        trial = simulate.Trial(law, clients, (simulate.Step(FatsUnlearning(), "fats", Request.of(samples=[0])),))
        return lambda: simulate.simulate(trial, KEY, range(MANY))
    request = Request.of(samples=[0]) if what == "sample" else Request.of(clients=[0])
    trial = simulate.Trial(LAW, POPULATION, (simulate.Step(FatsUnlearning(), "fats", request),))
    if kind == "simulate":
        return lambda: simulate.simulate(trial, KEY, range(plans))
    beside = comparison.references(trial, KEY)
    return lambda: comparison.compare(trial, beside, KEY, range(plans))


def digest(found: Any) -> str:
    """SHA-256 of what was read off the plans."""
    parts = [getattr(found, name) for name in type(found).__annotations__]
    return sha256(b"".join(p.tobytes() if hasattr(p, "tobytes") else repr(p).encode() for p in parts)).hexdigest()


def memory_of(line: str) -> float:
    """A line of what Linux says of this process, in MB: ``VmRSS`` is held now, ``VmHWM`` was held at most."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(row for row in lines if row.startswith(line)).split()[1]) / 1024


def child(name: str, plans: int) -> dict[str, Any]:
    """One measurement in this process."""
    if name == "loop":
        return {"seconds": loop()}
    work = work_of(name, plans)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the most memory is counted anew
    before, started = memory_of("VmRSS"), time.process_time()
    found = work()
    spent = time.process_time() - started
    return {"seconds": spent, "above": memory_of("VmHWM") - before, "digest": digest(found)}


def begun(way: str) -> dict[str, float]:
    """What compiled code takes until it answers: processor seconds, and MB. Nothing elsewhere."""
    work_of("simulate sample", 64)()
    if way == BEFORE:
        return {}
    from fuaudit.draws import philox

    philox.PAYS = 10**18 if way == ARRAYS else 0
    held, started = memory_of("VmRSS"), time.process_time()
    if way == COMPILED and philox.compiled() is None:
        raise SystemExit("numba is not installed")
    work_of("simulate sample", 64)()  # what was cached is loaded at its first call
    return {"load": time.process_time() - started, "memory": memory_of("VmRSS") - held}


def serve(way: str) -> None:
    """Measure what the lines of standard input ask for, one after another."""
    print(json.dumps(begun(way)), flush=True)
    for line in sys.stdin:
        name, plans = json.loads(line)
        print(json.dumps(child(name, plans)), flush=True)


def loop() -> float:
    """Processor seconds of a plain loop of local steps on the MNIST network, batches of 10."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    head = nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2))
    model = nn.Sequential(head, nn.ReLU(), nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10))
    steps = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs, targets = torch.rand(600, 1, 28, 28), torch.randint(10, (600,))
    for step in range(2 * LOOP_STEPS):
        if step == LOOP_STEPS:
            started = time.process_time()
        rows = torch.randperm(600)[:10]
        steps.zero_grad()
        nn.functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
        steps.step()
    return time.process_time() - started


class Served:
    """A process that measures one way. It is started once, so that turns are short."""

    def __init__(self, python: str, way: str) -> None:
        command = [python, str(Path(__file__).resolve()), "--serve", way]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.begun = self._answer()

    def __call__(self, name: str, plans: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps([name, plans]), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a measuring process ended")
        found: dict[str, Any] = json.loads(line)
        return found


def spread(values: list[float], form: str = ".1f") -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="PYTHON")
    parser.add_argument("--commit", default="642171c", help="what that is, for the page")
    parser.add_argument("--plans", type=int, default=PLANS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--serve", metavar="WAY", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return
    if not given.before:
        parser.error("give --before PYTHON")
    pythons = {BEFORE: given.before, ARRAYS: sys.executable, COMPILED: sys.executable}
    served = {way: Served(python, way) for way, python in pythons.items()}
    rows: Rows = {}
    curves = [f"places {places}" for places in PLACES]
    for turn in range(given.turns):
        for name in (*WORKS, *curves, "loop"):
            for way in (ARRAYS,) if name == "loop" else pythons:
                rows.setdefault((way, name), []).append(served[way](name, given.plans))
            found = {rows[way, name][-1].get("digest") for way in pythons if (way, name) in rows}
            if len(found) != 1:
                raise SystemExit(f"{name}: the ways read other numbers")
        print(f"turn {turn + 1} of {given.turns}", flush=True)
    PAGE.write_text(page(rows, curves, served[COMPILED].begun, given), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


def page(
    rows: dict[tuple[str, str], list[dict[str, Any]]], curves: list[str], begun: dict[str, float], given: Any
) -> str:
    """The page of results."""
    from importlib.metadata import version

    from machine import hardware

    ways = BEFORE, ARRAYS, COMPILED

    def seconds(way: str, name: str) -> list[float]:
        return [row["seconds"] for row in rows[way, name]]

    def ratios(way: str, name: str) -> list[float]:
        return [a / b for a, b in zip(seconds(BEFORE, name), seconds(way, name), strict=True)]

    def memory(way: str, name: str) -> str:
        return f"{statistics.median(row['above'] for row in rows[way, name]):.0f}"

    def each(way: str, name: str, places: int) -> str:
        return spread([1e9 * s / places / MANY for s in seconds(way, name)], ".0f")

    lines = [
        f"| {label} | {spread([1e6 * s / given.plans for s in seconds(BEFORE, name)], '.0f')} "
        f"| {spread(ratios(ARRAYS, name))} | {spread(ratios(COMPILED, name))} "
        f"| {', '.join(memory(way, name) for way in ways)} |"
        for name, label in WORKS.items()
    ]
    table = [
        f"| {places:,} | " + " | ".join(f"{each(way, name, places)} | {memory(way, name)}" for way in ways) + " |"
        for places, name in zip(PLACES, curves, strict=True)
    ]
    a_step = [s / LOOP_STEPS for s in seconds(ARRAYS, "loop")]
    steps = {
        way: spread([s / one for s, one in zip(seconds(way, "simulate sample"), a_step, strict=True)], ",.0f")
        for way in (BEFORE, COMPILED)
    }
    return PAGE_TEXT.format(
        machine=", ".join(f"{name} {value}" for name, value in hardware().items()),
        numba=version("numba"),
        turns=given.turns,
        commit=given.commit,
        plans=given.plans,
        load=Path("/proc/loadavg").read_text().split()[0],
        lines="\n".join(lines),
        curve="\n".join(table),
        loop=steps[COMPILED],
        loop_before=steps[BEFORE],
        load_time=f"{begun['load']:.1f}",
        load_memory=f"{begun['memory']:.0f}",
        rounds=PLACES[-1] // 100,
        many=MANY,
    )


if __name__ == "__main__":
    main()
