"""What a verification costs, beside another checkout: ``python benchmarks/verify_speed.py OLD [--data FOLDER]``.

    git worktree add ../before d09020b && python benchmarks/verify_speed.py ../before --data FOLDER

OLD is the folder of another checkout; FOLDER holds MNIST/raw, and without it that setting is left out. Each checkout
makes runs of its own, of one config under one secret, because files of runs may differ between versions. Both verify
theirs in turns, each in a fresh process with this interpreter and its packages, under one key. Some runs are honest and
some are not. Audits that both have must come to the same verdicts, else the command ends with code 1. Compared are
processor seconds after the import, by audit, seconds by the clock, and the largest memory. It writes
``docs/results/verify-speed.md``. With ``--one-core`` all is computed by one core: two that share their units take more
processor seconds for the same work, and only one checkout may have work for both. Then lines are printed alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from machine import hardware

from fuaudit.demo import CONFIG

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "verify-speed.md"
Turn = tuple[dict[str, Any], dict[str, Any]]
"""What a verification cost and found, before and after."""

TURNS = 5
SECTION = "\n## "
LEARNER = {"use": "fats", "rounds": 8, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1}
SMALL = {
    "data": {"use": "digits"},
    "partition": {"use": "iid", "clients": 10},
    "model": {"use": "linear"},
    "learner": LEARNER,
}
LONG = {
    "data": {"use": "digits"},
    "partition": {"use": "iid", "clients": 1000},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 2000, "cohort": 5, "steps": 2, "batch": 1, "step_size": 0.01},
    "run": {"checkpoint_every": 500},
}
EXECUTING = ("integrity", "replay", "stress", "lineage")
SAMPLING = (*EXECUTING, "model-law")
MAKE = """
import json, sys
from pathlib import Path
from fuaudit import train, unlearn
from fuaudit.demo import SECRET
from fuaudit.plans import Request
asked = json.loads(sys.argv[1])
place, data = Path(asked["place"]), Path(asked["data"]) if asked["data"] else None
parent = train(asked["tables"], place / "run", data=data, secret=SECRET)
unlearn(parent, asked["method"], Request.of(clients=[0]), place / "child", data=data, allow_inexact=True)
"""
VERIFY = """
import json, resource, sys, time
from pathlib import Path
from dataclasses import replace
from fuaudit import verify
from fuaudit.verification import verify as module
from fuaudit.verification.spec import read_spec
asked, seconds, examine = json.loads(sys.argv[1]), {}, module.examine
def timed(check, case):
    start = time.process_time()
    found = examine(check, case)
    seconds[check.audit["use"]] = time.process_time() - start
    return found
module.examine = timed
data = {"data": Path(asked["data"])} if asked["data"] else {}
budget = {} if asked["budget"] is None else {"budget": asked["budget"]}
spec = read_spec("client-erasure")
if asked["audits"]:
    checks = tuple(check for check in spec.checks if check.audit["use"] in asked["audits"])
    spec = replace(spec, id="part", asks="run", alpha=None, checks=checks, origin="")
begun, started = time.process_time(), time.perf_counter()
imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
found = verify(Path(asked["run"]), spec, key=bytes(32), save=False, **data, **budget)
seconds["all"], seconds["clock"] = time.process_time() - begun, time.perf_counter() - started
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "memory": most - imported, "found": found.as_json()}, default=str))
"""


@dataclass(frozen=True)
class Setting:
    """A run that both verify.

    Attributes:
        timed: whether its time is told; of others the findings alone are compared.
        method: by which it forgets client 0.
        audits: those that look at it; none for the spec as it is.
        budget: runs of repeated sampling; None for those of the spec.
    """

    name: str
    tables: dict[str, Any]
    method: str = "fats"
    timed: bool = False
    audits: tuple[str, ...] = EXECUTING
    budget: int | None = 0
    data: Path | None = None

    def made(self, path: Path, folder: Path) -> Path:
        """The run, in a folder of its own, made by the checkout of a search path."""
        place = folder / path.name / sha256(self.name.encode()).hexdigest()[:8]
        if not (place / "child").exists():
            shutil.rmtree(place, ignore_errors=True)
            data = str(self.data) if self.data else None
            asked = {"place": str(place), "data": data, "tables": self.tables, "method": self.method}
            python(path, MAKE, asked)
        return place / "child"


def settings(data: Path | None, rounds: int | None) -> Iterator[Setting]:
    """The honest and the wrong runs; ``rounds`` of the MNIST setting, where it is not to have those of the example."""
    totals = [{"use": "size-weighted", "by": "total"}]
    yield Setting("digits, the demo", CONFIG, timed=True, audits=SAMPLING, budget=None)
    if data:
        tables = tomllib.loads((ROOT / "examples" / "mnist-fats.toml").read_text())
        tables["learner"] |= {"rounds": rounds} if rounds else {}
        name = f"MNIST, 300 clients, {tables['learner']['rounds']} rounds"
        yield Setting(name, tables, timed=True, data=data)
        yield Setting(f"{name}, by the whole spec", tables, timed=True, audits=(), data=data)
    yield Setting("2,000 rounds, 1,000 clients", LONG, timed=True)
    yield Setting("the demo, by the whole spec", CONFIG, timed=True, audits=(), budget=None)
    yield Setting("nothing was done (noop)", CONFIG, method="noop", audits=SAMPLING, budget=64)
    yield Setting("weights know who was there", SMALL | {"server": totals})
    yield Setting("constants know who was there", SMALL | {"scaling": "standardise"})
    yield Setting("a memory of the server", SMALL | {"server": [{"use": "mean"}, {"use": "momentum"}]})
    yield Setting("rows of clients", SMALL | {"server": [{"use": "mifa"}], "learner": LEARNER | {"use": "fedavg"}})
    yield Setting("an editor", SMALL, method="finetune", audits=SAMPLING, budget=160)
    yield Setting("a multilayer perceptron", SMALL | {"model": {"use": "mlp"}}, audits=SAMPLING, budget=None)


def linked(checkout: Path, folder: Path) -> Path:
    """A search path on which a checkout's packages come first."""
    folder.mkdir()
    (folder / "fuaudit").symlink_to(checkout.resolve() / "fuaudit")
    (folder / "fuaudit_plugins").symlink_to(checkout.resolve() / "plugins")
    (folder / "fuaudit_specs").symlink_to(checkout.resolve() / "specs")
    return folder


def python(path: Path, code: str, asked: dict[str, Any]) -> bytes:
    """What a fresh process prints that runs code with the packages of a search path."""
    environment = os.environ | {"PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", code, json.dumps(asked)]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout


def verified(path: Path, run: Path, setting: Setting) -> dict[str, Any]:
    """What one verification in a fresh process cost and found."""
    asked = {
        "run": str(run),
        "audits": setting.audits,
        "budget": setting.budget,
        "data": str(setting.data) if setting.data else None,
    }
    found: dict[str, Any] = json.loads(python(path, VERIFY, asked).splitlines()[-1])
    return found


def compared(paths: tuple[Path, Path], folder: Path, setting: Setting, turns: int) -> list[Turn]:
    """Both checkouts in turns. SystemExit where an audit that both have comes to other verdicts."""
    runs = [setting.made(path, folder) for path in paths]
    sides = list(zip(paths, runs, strict=True))
    found = list[Turn]()
    for turn in range(turns if setting.timed else 1):
        both = [verified(path, run, setting) for path, run in (sides if turn % 2 else sides[::-1])]
        before, after = both if turn % 2 else both[::-1]
        one, other = verdicts(before["found"]), verdicts(after["found"])
        if unlike := [audit for audit in one if audit in other and one[audit] != other[audit]]:
            raise SystemExit(f"{setting.name}: other verdicts of {', '.join(unlike)}: {one}, {other}")
        found.append((before, after))
        print(f"{setting.name}: seconds {before['seconds']['all']:.2f} / {after['seconds']['all']:.2f}", flush=True)
    print(f"{setting.name}: {verdicts(after['found'])}", flush=True)
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    """Audit -> verdict."""
    findings = [check["finding"] for check in found["checks"]]
    return {one["audit"]: one["verdict"] for one in findings}


def rows(name: str, found: list[Turn]) -> Iterator[str]:
    """A line of the page for every audit that takes time."""
    for audit in found[0][0]["seconds"]:
        before, after = ([turn[which]["seconds"][audit] for turn in found] for which in (0, 1))
        if audit not in ("all", "clock") and statistics.median(before) < 0.1:
            continue
        shares = [new / old for old, new in zip(before, after, strict=True)]
        memory = [statistics.median(turn[which]["memory"] for turn in found) for which in (0, 1)]
        megabytes = f"{memory[0]:.0f} / {memory[1]:.0f}" if audit == "all" else ""
        times = f"{statistics.median(before):.2f} / {statistics.median(after):.2f}"
        spread = f"**{statistics.median(shares):.2f}** ({min(shares):.2f} to {max(shares):.2f})"
        called = {"all": "all", "clock": "all, by the clock"}.get(audit, audit)
        yield f"| {name if audit == 'all' else ''} | {called} | {times} | {spread} | {megabytes} |"


PAGE_TEXT = """\
# What a verification costs, before and after parts were shared

    python benchmarks/verify_speed.py OLD --data FOLDER

OLD was a checkout of {old}. {machine}. {turns} turns; in each, both checkouts verify a run of one config and one \
secret in a fresh process of one worker. Seconds are those of the processor, after the import, where nothing else is \
said; ratios are those of turns: medians, and in brackets the lowest and the highest. Memory is the largest resident \
set, above that after the import. Audits below a tenth of a second are left out.

| setting | audit | seconds before / after | after, times before | MiB before / after |
|---|---|---|---|---|
{lines}

Audits that both have came to the same verdicts in every turn. So they did on {others} other runs, most of them wrong: \
{names}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of the other checkout")
    parser.add_argument("--data", type=Path, help="folder that holds MNIST/raw")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--rounds", type=int, help="of the MNIST setting, where those of the example take too long")
    parser.add_argument("--runs", type=Path, help="where runs are kept, to begin again without making them")
    parser.add_argument("--only", default="", help="settings whose name holds this text; no page is written")
    parser.add_argument("--one-core", action="store_true", help="compute all on one core; no page is written")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    if options.one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # processes that are started inherit it
    commit = ["git", "-C", str(options.old), "rev-parse", "--short", "HEAD"]
    old = subprocess.run(commit, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    lines, others = list[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        paths = linked(options.old, Path(folder) / "old"), linked(ROOT, Path(folder) / "new")
        for setting in settings(options.data, options.rounds):
            if options.only in setting.name:
                found = compared(paths, options.runs or Path(folder) / "runs", setting, options.turns)
                lines += list(rows(setting.name, found)) if setting.timed else []
                others += [] if setting.timed else [f"{setting.name} ({found[0][0]['found']['verdict']})"]
    print("\n".join(lines))
    if not options.only and not options.one_core:
        machine = ", ".join(f"{key} {value}" for key, value in hardware().items())
        shown = {"old": old, "machine": machine, "turns": options.turns, "lines": "\n".join(lines)}
        text = PAGE_TEXT.format(**shown, others=len(others), names="; ".join(others))
        # further sections are not made here, and stay
        kept = options.page.read_text() if options.page.exists() else ""
        options.page.write_text(text + kept[kept.find(SECTION) :] * (SECTION in kept))


if __name__ == "__main__":
    main()
