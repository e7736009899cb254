"""The tool beside a plain script, Flower's simulation, pfl, and JAX: the same work, in turns, by whole commands.

    python benchmarks/peers/compare.py --data ROOT --out DIR
    python benchmarks/peers/compare.py --out DIR --report docs/results/performance.md

Each peer has an environment of its own under DIR, which the first command makes (some gigabytes, minutes). Turns of one
table follow each other; in each all contenders take their turn, in an order that rotates, and ratios are taken within
a turn. The first turn is not counted. A turn that is done is a line of a file under DIR, so an interrupted command goes
on.

``training``: MNIST, 100 clients, ten a round, 20 rounds of ten steps of ten rows, and a test: 2,000 client steps. Every
contender draws by itself, so what proves the work is its accuracy. Each command is run for 20 rounds and for one: what
lies between the two is 19 rounds without start-up. The tool's command does more than the others': it measures and
stores three models and each client's accuracy, commits to everything, and seals.

``repeated``: 256 runs of a small network on digits, ten rounds of four clients, five steps each. Plans and initial
models are the tool's, so what proves the work is that all models are equal to 1e-5.

Time is that of the clock, memory the largest sum of proportional set sizes over a command's processes, seen every
half second; Ray's are found by a mark in their environment.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from machine import hardware

HERE = Path(__file__).parent
NEEDS = {"flower": ["flwr[simulation]", "torch"], "pfl": ["pfl[pytorch]", "torch"], "jax": ["jax"]}
ROUNDS = 20, 1
SCRIPTS = {"script": "script.py", "flower": "flower_server.py", "pfl": "pfl_process.py"}
REPEATED = {"loop": 1, "batched-1": 1, "batched-2": 2, "jax-1": 1, "jax-2": 2}
RUNS = 256
TOLERANCE = 1e-5
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Nobody is told of a benchmark."""
Turn = dict[str, Any]
"""Contender -> its figures."""

NAMES = {
    "fuaudit": "`fuaudit train`, two cores",
    "script": "plain PyTorch script, one core",
    "flower": "Flower's simulation, two actors",
    "pfl": "pfl, one process",
    "loop": "plain PyTorch loop, one core",
    "batched-1": "engine `batched`, one core",
    "batched-2": "engine `batched`, two cores",
    "jax-1": "JAX, jit + vmap + scan, one core",
    "jax-2": "the same, two cores",
}


def python_of(out: Path, peer: str) -> str:
    """The interpreter of a peer's environment, which is made where it is missing."""
    if peer not in NEEDS:
        return sys.executable
    home = out / "environments" / peer
    if not (home / "ready").exists():
        print(f"making the environment of {peer} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run([home / "bin/pip", "install", "--quiet", "--upgrade", "pip"], check=True)
        subprocess.run([home / "bin/pip", "install", "--quiet", *NEEDS[peer]], check=True)
        (home / "ready").touch()
    return str(home / "bin/python")


def versions(python: str, names: Sequence[str]) -> dict[str, str]:
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {list(names)}}}))"
    found: dict[str, str] = json.loads(subprocess.run([python, "-c", code], check=True, capture_output=True).stdout)
    return found


def marked(mark: str) -> list[Path]:
    """Folders of the living processes that have the mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(folder)
        except OSError:  # it ended, or belongs to somebody else
            continue
    return found


def memory(folders: Sequence[Path]) -> int:
    """Bytes that processes hold; what several share counts once."""
    total = 0
    for folder in folders:
        try:
            lines = (folder / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def measured(command: Sequence[str | Path], log: Path, cores: int = 2) -> dict[str, float]:
    """Seconds by the clock and largest memory of a command on so many cores; what it leaves running is ended."""
    mark = f"PEERS_TURN={uuid4().hex}"
    name, value = mark.split("=")
    environment = os.environ | QUIET | {name: value, "OMP_NUM_THREADS": "1"}
    own = set(sorted(os.sched_getaffinity(0))[:cores])
    begun, largest = time.perf_counter(), 0
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=HERE,
            preexec_fn=lambda: os.sched_setaffinity(0, own),
        )
        while True:
            try:
                code = process.wait(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                largest = max(largest, memory(marked(mark)))
    seconds = time.perf_counter() - begun
    for folder in marked(mark):
        os.kill(int(folder.name), signal.SIGKILL)
    if code:
        raise SystemExit(f"{command} ended with {code}; its last words:\n{log.read_text(errors='replace')[-2000:]}")
    return {"seconds": seconds, "bytes": float(largest)}


def trained(who: str, rounds: int, data: Path, out: Path) -> dict[str, float]:
    """One command of a contender, with the accuracy that it reached."""
    folder = out / "turn" / f"{who}-{uuid4().hex}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = out / f"{who}.log"
    if who != "fuaudit":
        script: list[str | Path] = [python_of(out, who), HERE / SCRIPTS[who], data.resolve(), folder, str(rounds)]
        found = measured(script, log)
        return found | {"accuracy": json.loads((folder / "found.json").read_text())["accuracy"]}
    config = out / "turn" / "mnist.toml"
    config.write_text((HERE / "mnist.toml").read_text().replace("rounds = 20", f"rounds = {rounds}"))
    command: list[str | Path] = [
        Path(sys.executable).with_name("fuaudit"),
        "train",
        config.resolve(),
        "--out",
        folder.resolve(),
    ]
    found = measured([*command, "--data", data.resolve(), "--quiet"], log)
    metrics = json.loads((folder / "metrics.json").read_text())
    return found | {"accuracy": metrics[-1]["test_accuracy"]}


def training_turn(contenders: Sequence[str], data: Path, out: Path) -> dict[str, Any]:
    turn: dict[str, Any] = {}
    for who in contenders:
        long, short = (trained(who, rounds, data, out) for rounds in ROUNDS)
        turn[who] = long | {"between": long["seconds"] - short["seconds"]}
        rmtree(out / "turn")
    return turn


def repeated_turn(contenders: Sequence[str], out: Path) -> dict[str, Any]:
    """Seconds a run of each; all models must be those of the loop."""
    work = out / "work.npz"
    if not work.exists():
        subprocess.run([sys.executable, HERE / "repeated_here.py", "write", work.resolve(), str(RUNS)], check=True)
    turn: dict[str, Any] = {}
    models = {}
    for who in contenders:
        what, made = who.split("-")[0], (out / f"{who}.npz").resolve()
        here = what != "jax"
        script = HERE / ("repeated_here.py" if here else "repeated_jax.py")
        chosen = [what] if here else []
        command: list[str | Path] = [python_of(out, what), script, *chosen, work.resolve(), made]
        found = measured(command, out / f"{who}.log", REPEATED[who])
        answer = np.load(made)
        models[who] = answer["models"]
        turn[who] = {"seconds": float(answer["seconds"]), "bytes": found["bytes"], "all": found["seconds"]}
    for who, theirs in models.items():
        few = min(len(theirs), len(models["loop"]))
        turn[who]["difference"] = gap = float(np.abs(theirs[:few] - models["loop"][:few]).max())
        if not gap <= TOLERANCE:
            raise SystemExit(f"{who} did other work than the loop: models differ by {gap}")
    return turn


def turns_of(table: str, contenders: list[str], turns: int, data: Path, out: Path) -> None:
    """Takes the turns that are missing, and one that is not counted where a command begins."""
    kept = out / f"{table}.jsonl"
    done = len(kept.read_text().splitlines()) if kept.exists() else 0
    for number in range(done, turns + 1):
        at = number % len(contenders)
        order = contenders[at:] + contenders[:at]
        found = training_turn(order, data, out) if table == "training" else repeated_turn(order, out)
        with kept.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(f"{table}: turn {number} of {turns} is done", flush=True)


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    return " / ".join(form.format(one) for one in (min(values), statistics.median(values), max(values)))


Column = Callable[[list[Turn], str], str]
"""What a table says of a contender, by all turns."""


def ratio(key: str, base: str, faster: bool = False) -> Column:
    """Its time as a multiple of the base's within turns, or how many times faster than the base it is."""

    def column(turns: list[Turn], who: str) -> str:
        found = [turn[who][key] / turn[base][key] for turn in turns]
        return spread([1 / one for one in found], "{:.0f}") if faster else spread(found)

    return column


def figure(key: str, form: str) -> Column:
    return lambda turns, who: spread([turn[who][key] for turn in turns], form)


def mebibytes(turns: list[Turn], who: str) -> str:
    return f"{statistics.median(turn[who]['bytes'] for turn in turns) / 2**20:,.0f}"


def table_of(turns: list[Turn], columns: dict[str, Column]) -> list[str]:
    """A row a contender, in the order of their names here."""
    lines = [f"| contender | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for who in (who for who in NAMES if who in turns[0]):
        lines.append("| " + " | ".join([NAMES[who], *(column(turns, who) for column in columns.values())]) + " |")
    return lines


def page(out: Path) -> str:
    """What the turns under a folder say."""
    tables = {}
    for table in ("training", "repeated"):
        kept = out / f"{table}.jsonl"
        tables[table] = [json.loads(line) for line in kept.read_text().splitlines()][1:] if kept.exists() else []
    named = json.loads((out / "versions.json").read_text())
    text = [
        "# The tool beside what a user would take instead",
        "",
        "    python benchmarks/peers/compare.py --data ROOT --out DIR",
        "    python benchmarks/peers/compare.py --out DIR --report docs/results/performance.md",
        "",
        "The command says what is measured, and how. Ratios are taken within turns: least, median, largest. "
        f"Machine and versions: {json.dumps(named)}",
    ]
    if tables["training"]:
        text += [
            "",
            f"## Training: MNIST, 2,000 client steps, {len(tables['training'])} turns",
            "",
            "Times of whole commands as multiples of the plain script's; `19 rounds` leaves start-up out. In MiB.",
            "",
            *table_of(
                tables["training"],
                {
                    "whole command": ratio("seconds", "script"),
                    "19 rounds": ratio("between", "script"),
                    "accuracy": figure("accuracy", "{:.3f}"),
                    "memory": mebibytes,
                },
            ),
        ]
        if "flower" in tables["training"][0]:
            beside = [turn["fuaudit"]["seconds"] / turn["flower"]["seconds"] for turn in tables["training"]]
            text += ["", f"The tool's command takes {spread(beside)} of the time of Flower's."]
    if tables["repeated"]:
        text += [
            "",
            f"## Repeated runs: digits, {RUNS} runs of a small network, {len(tables['repeated'])} turns",
            "",
            "How many times as fast as the plain loop; start-up and compiling are left out. Memory in MiB.",
            "",
            *table_of(
                tables["repeated"],
                {
                    "times the loop": ratio("seconds", "loop", faster=True),
                    "largest difference of models": figure("difference", "{:.0e}"),
                    "memory": mebibytes,
                },
            ),
        ]
    return "\n".join([*text, "", BESIDE]) + "\n"


BESIDE = (
    "How cost grows with clients, rounds, parameters and runs: [cost-curves.md](cost-curves.md); with places of a "
    "plan: [plan-speed.md](plan-speed.md). Repeated runs inside the audit: [runs-in-audit.md](runs-in-audit.md). "
    "Verification: [verify-speed.md](verify-speed.md). Memory of commands, before and after: [cost.md](cost.md)."
)
"""Where other figures of speed are."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder that holds MNIST/raw")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", choices=("training", "repeated"), action="append", help="by default both")
    parser.add_argument("--without", choices=NEEDS, action="append", default=[], help="a peer to leave out")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the page, and do nothing")
    given = parser.parse_args()
    if given.report:
        given.report.write_text(page(given.out), encoding="utf-8")
        return
    given.out.mkdir(parents=True, exist_ok=True)
    tables = given.table or ["training", "repeated"]
    if "training" in tables and given.data is None:
        parser.error("--data is needed for the table of training")
    peers = [peer for peer in NEEDS if peer not in given.without]
    found = {peer: versions(python_of(given.out, peer), [one.split("[")[0] for one in NEEDS[peer]]) for peer in peers}
    (given.out / "versions.json").write_text(json.dumps(hardware() | found))
    if "training" in tables:
        turns_of(
            "training", ["fuaudit", "script", *(p for p in SCRIPTS if p in peers)], given.turns, given.data, given.out
        )
    if "repeated" in tables:
        turns_of(
            "repeated",
            [one for one in REPEATED if one.split("-")[0] not in given.without],
            given.turns,
            given.data,
            given.out,
        )


if __name__ == "__main__":
    main()
