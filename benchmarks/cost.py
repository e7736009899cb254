"""What a run costs: folder, training, unlearning and verification, in two installed versions, in turns.

    python benchmarks/cost.py OLD/bin/fuaudit NEW/bin/fuaudit [--data ROOT] [--turns 5] [--json FILE]

Each turn trains a config, forgets client 0 with `fats` and verifies the child (`--budget 0`: repeated sampling is
left out, because its cost is that of the runs asked for), once with either version, one after the other, in fresh
folders and under the same secret and key. Printed are medians of processor seconds (user and system, children
included, as the operating system counts them) and of the largest memory, the ratios of turns, and the bytes of the
training run without its models. Without ``--data`` the MNIST setting is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from machine import hardware

EXAMPLES = Path(__file__).parents[1] / "examples"
SECRET, KEY = "07" * 32, "08" * 32


def measured(command: list[str]) -> tuple[float, float]:
    """Processor seconds and largest memory in MiB of one command; exit codes of verdicts are no failures."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if (code := os.waitstatus_to_exitcode(status)) not in (0, 1, 3):
        raise SystemExit(f"{' '.join(command)} ended with {code}: {said.decode()[-2000:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def a_turn(program: str, config: Path, data: list[str], folder: Path) -> dict[str, tuple[float, float]]:
    """Cost by step, and the bytes of the run that lie beside its models."""
    run, child = str(folder / "run"), str(folder / "child")
    costs = {
        "train": measured([program, "train", str(config), "--out", run, "--secret", SECRET, *data, "--quiet"]),
        "unlearn": measured(
            [program, "unlearn", run, "--with", "fats", "--client", "0", "--out", child, *data, "--quiet"]
        ),
        "verify": measured([program, "verify", child, "--budget", "0", "--key", KEY, *data, "--quiet"]),
    }
    files = [path for path in Path(run).rglob("*") if path.is_file()]
    models = ("checkpoints", "model.safetensors")
    beside = sum(path.stat().st_size for path in files if not {path.parent.name, path.name} & {*models})
    return costs | {"bytes beside models": (float(beside), 0.0)}


def compared(programs: list[str], config: Path, data: list[str], turns: int) -> dict[str, Any]:
    """Medians by step and version, and the ratio of new to old, turn by turn."""
    seen: list[list[dict[str, tuple[float, float]]]] = [[], []]
    for turn in range(turns + 1):  # the first is not counted
        order = (0, 1) if turn % 2 else (1, 0)
        for which in order:
            with tempfile.TemporaryDirectory() as folder:
                found = a_turn(programs[which], config, data, Path(folder))
            if turn:
                seen[which].append(found)
    table = {}
    for step in seen[0][0]:
        old, new = ([turn[step] for turn in runs] for runs in seen)
        ratios = [b[0] / a[0] for a, b in zip(old, new, strict=True)]
        table[step] = {
            "old": statistics.median(a[0] for a in old),
            "new": statistics.median(b[0] for b in new),
            "ratio": statistics.median(ratios),
            "ratios": [min(ratios), max(ratios)],
            "memory": [statistics.median(a[1] for a in old), statistics.median(b[1] for b in new)],
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=2, metavar="FUAUDIT", help="The command of the old and of the new version.")
    parser.add_argument("--data", help="Folder that holds MNIST/raw.")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path, help="Write all figures here.")
    arguments = parser.parse_args()
    settings = {"digits": []} | ({"mnist-fats": ["--data", arguments.data]} if arguments.data else {})
    result: dict[str, Any] = {"machine": hardware()}
    for name, data in settings.items():
        result[name] = compared(arguments.programs, EXAMPLES / f"{name}.toml", data, arguments.turns)
        for step, row in result[name].items():
            (low, high), memory = row["ratios"], row["memory"]
            print(
                f"{name:<11} {step:<20} {row['old']:>12.2f} {row['new']:>12.2f}   "
                f"ratio {row['ratio']:.3f} ({low:.3f} to {high:.3f})   MiB {memory[0]:.0f} {memory[1]:.0f}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
