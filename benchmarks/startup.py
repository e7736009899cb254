"""How long commands take to start: seconds of wall clock and of processor, for the ten commonest commands.

    python benchmarks/startup.py
    python benchmarks/startup.py --before ~/fuaudit-0.1/.venv/bin/python      beside another version
    python benchmarks/startup.py --repeats 9 --json startup.json

Every command runs in a process of its own on one tiny federation, so nearly all of its time goes into imports. Each
version makes its own runs, for none reads those of another. The two versions take turns, a, b, a, b, so what disturbs
the machine for a while disturbs both. Told are medians, and ratios of medians. Seconds of the processor (user and
system) grow little while others use the machine; those of the wall clock grow much. Which heavy libraries a command
imports is found out in one more run.
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
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAVY = ("torch", "torchvision", "matplotlib", "scipy.stats", "sklearn", "opacus", "tenseal", "scipy", "numpy")
COMMANDS = {
    "--help": ("--help",),
    "show": ("show", "child"),
    "plugins": ("plugins",),
    "history": ("history", "child"),
    "report, HTML": ("report", "child"),
    "report, JSON": ("report", "child", "--format", "json"),
    "prove": ("prove", "fats"),
    "prune": ("prune", "child", "--yes"),
    "unlearn, nothing to forget": ("unlearn", "run", "--with", "fats"),
    "verify, no such run": ("verify", "nowhere"),
}
MAIN = "from fuaudit.cli import main; main()"
WATCHED = f"import atexit, sys; atexit.register(lambda: print('imported', *sys.modules, file=sys.stderr)); {MAIN}"
CONFIG = """
[data]
use = "digits"
[partition]
use = "iid"
clients = 5
[model]
use = "linear"
[learner]
use = "fats"
rounds = 2
cohort = 2
steps = 1
batch = 4
step_size = 0.1
[run]
engine = "reference"
device = "cpu"
"""
SPEC = """
id = "startup"
title = "startup"
asks = "{}"
out_of_scope = ["much"]
"""
AUDITS = "integrity", "replay", "provenance", "plan", "lineage"
"""Those of a run alone, under the names of all versions."""

INSTALLED = (
    "from importlib.metadata import entry_points; print(*(e.name for e in entry_points(group='fuaudit.audits')))"
)
CHECK = '[[check]]\nclaim = "{0}"\naudit = {{ use = "{0}" }}\n'


@dataclass(frozen=True)
class Spent:
    """Seconds of one process."""

    wall: float
    cpu: float


def spent(python: str, arguments: tuple[str, ...], folder: Path) -> Spent:
    """What one command takes, by the clock and of the processor."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [python, "-c", MAIN, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # nobody shall wait for it again
    return Spent(time.perf_counter() - begin, used.ru_utime + used.ru_stime)


def imported(python: str, arguments: tuple[str, ...], folder: Path) -> list[str] | None:
    """The heavy libraries that a command imports; None where the version has no such command."""
    done = subprocess.run([python, "-c", WATCHED, *arguments], cwd=folder, capture_output=True, text=True)
    if "No such command" in done.stderr:
        return None
    found = set(done.stderr.rsplit("imported", 1)[-1].split())
    return [name for name in HEAVY if name in found]


def prepared(python: str, folder: Path) -> None:
    """A run, and a child of it with findings."""
    folder.mkdir()
    named = subprocess.run([python, "-c", INSTALLED], capture_output=True, text=True, check=True).stdout.split()
    (folder / "config.toml").write_text(CONFIG)
    checks = "".join(CHECK.format(audit) for audit in AUDITS if audit in named)
    require(command(python, ("train", "config.toml", "--out", "run"), folder), 0)
    require(command(python, ("unlearn", "run", "--with", "fats", "--client", "0", "--out", "child"), folder), 0)
    for asks in ("run", "exact"):  # what a run alone shows had no word of its own at first
        (folder / "spec.toml").write_text(SPEC.format(asks) + checks)
        done = command(python, ("verify", "child", "--spec", "spec.toml"), folder)
        if done.returncode != 2:
            break
    require(done, 0, 3)


def command(python: str, words: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-c", MAIN, *words], cwd=folder, capture_output=True, text=True)


def require(done: subprocess.CompletedProcess[str], *codes: int) -> None:
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(done.args[3:])}: {done.stdout}{done.stderr}")


def copy_of(folder: Path, work: Path) -> Path:
    """A fresh copy, because a prune changes what it finds."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder, work)
    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="the Python of an environment with another version of fuaudit")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--command", action="append", choices=list(COMMANDS), help="only these; default: all")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    given = parser.parse_args()
    pythons = {"before": given.before} if given.before else {}
    pythons["now"] = sys.executable
    rows = []
    with tempfile.TemporaryDirectory() as made:
        work = Path(made) / "work"
        kept = {version: Path(made) / version for version in pythons}
        for version, python in pythons.items():
            prepared(python, kept[version])
        for name in given.command or COMMANDS:
            arguments, times = COMMANDS[name], {version: list[Spent]() for version in pythons}
            heavy = {
                version: imported(python, arguments, copy_of(kept[version], work))
                for version, python in pythons.items()
            }
            for _ in range(given.repeats):
                for version, python in pythons.items():
                    if heavy[version] is not None:
                        times[version].append(spent(python, arguments, copy_of(kept[version], work)))
            row = {"command": name, **{version: told(times[version], heavy[version]) for version in pythons}}
            rows.append(row)
            print(line(row), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"repeats": given.repeats, "load": os.getloadavg(), "rows": rows}, indent=1))


def told(times: list[Spent], heavy: list[str] | None) -> dict[str, Any] | None:
    """Medians, and the libraries; None where there is no such command."""
    if heavy is None:
        return None
    wall, cpu = (statistics.median(getattr(each, kind) for each in times) for kind in ("wall", "cpu"))
    return {"wall": wall, "cpu": cpu, "heavy": heavy}


def line(row: dict[str, Any]) -> str:
    """A row of the table in Markdown: for each version processor, wall clock and libraries; the ratio of processors."""
    found = [row[version] for version in row if version != "command"]
    parts = [
        f"{each['cpu']:.2f} s ({each['wall']:.2f} s) | {', '.join(each['heavy']) or 'nothing'}" if each else "none | "
        for each in found
    ]
    ratio = [f"{found[0]['cpu'] / found[1]['cpu']:.1f}" if all(found) else ""] if len(found) == 2 else []
    return f"| {' | '.join([row['command'], *parts, *ratio])} |"


if __name__ == "__main__":
    main()
