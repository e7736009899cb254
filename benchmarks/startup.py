"""How long commands take to start: seconds of wall clock and of processor, for the ten commonest commands.

    python benchmarks/startup.py
    python benchmarks/startup.py --before ~/fuaudit-0.1/.venv/bin/python      beside another version
    python benchmarks/startup.py --repeats 9 --json startup.json

Every command runs in a process of its own on one tiny federation, so nearly all of its time goes into imports. The two
versions take turns, a, b, a, b, so what disturbs the machine for a while disturbs both; told are medians, and ratios of
medians. Seconds of the processor (user and system) do not grow while others use the machine; those of the wall clock
do. Which heavy libraries a command imports is found out in one more run.
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
asks = "run"
out_of_scope = ["much"]
"""
AUDITS = "integrity", "replay", "provenance", "lineage"
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


def imported(python: str, arguments: tuple[str, ...], folder: Path) -> list[str]:
    """The heavy libraries that a command imports."""
    done = subprocess.run([python, "-c", WATCHED, *arguments], cwd=folder, capture_output=True, text=True)
    found = set(done.stderr.rsplit("imported", 1)[-1].split())
    return [name for name in HEAVY if name in found]


def prepared(python: str, folder: Path) -> None:
    """A run, and a child of it with findings."""
    (folder / "config.toml").write_text(CONFIG)
    (folder / "spec.toml").write_text(SPEC + "".join(map(CHECK.format, AUDITS)))
    for words in (
        ("train", "config.toml", "--out", "run"),
        ("unlearn", "run", "--with", "fats", "--client", "0", "--out", "child"),
        ("verify", "child", "--spec", "spec.toml"),
    ):
        done = subprocess.run([python, "-c", MAIN, *words], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stdout}{done.stderr}")


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
        kept, work = Path(made) / "kept", Path(made) / "work"
        kept.mkdir()
        prepared(sys.executable, kept)
        for name in given.command or COMMANDS:
            arguments, times = COMMANDS[name], {version: list[Spent]() for version in pythons}
            heavy = {version: imported(python, arguments, copy_of(kept, work)) for version, python in pythons.items()}
            for _ in range(given.repeats):
                for version, python in pythons.items():
                    times[version].append(spent(python, arguments, copy_of(kept, work)))
            row = {
                "command": name,
                **{
                    version: {
                        "wall": statistics.median(each.wall for each in found),
                        "cpu": statistics.median(each.cpu for each in found),
                        "heavy": heavy[version],
                    }
                    for version, found in times.items()
                },
            }
            rows.append(row)
            print(line(row), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"repeats": given.repeats, "load": os.getloadavg(), "rows": rows}, indent=1))


def line(row: dict) -> str:
    """A row of the table in Markdown: processor and wall clock for each version, the ratio, what is imported."""
    parts = [f"{row[version]['cpu']:.2f} s ({row[version]['wall']:.2f} s)" for version in row if version != "command"]
    if "before" in row:
        parts.append(f"{row['before']['cpu'] / row['now']['cpu']:.1f}")
    return f"| {row['command']} | {' | '.join(parts)} | {', '.join(row['now']['heavy']) or 'nothing'} |"


if __name__ == "__main__":
    main()
