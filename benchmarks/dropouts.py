"""Training that survives dropouts: the settings of Tables III and IV of the MimiC paper on Fashion-MNIST.

    python benchmarks/dropouts.py table-3 --data ROOT --out DIR                      five local epochs, as the paper
    python benchmarks/dropouts.py table-3 --data ROOT --out DIR --epochs 1 --key 1 --key 2 --key 3
    python benchmarks/dropouts.py table-4 --data ROOT --out DIR --device cuda
    python benchmarks/dropouts.py table-3 --data ROOT --out DIR --smoke              a scaled one, in a minute

30 clients with 2 of 60 shards each, batches of 16, step size 0.01 * 0.95 ** (t - 1), 200 rounds, 100 for SCAFFOLD,
which uploads twice. Every run is a folder under DIR named by its setting; a run that is complete is read, one that was
interrupted is resumed on the engine it has, so the command can be killed at any time and given again. Keys are fixed
here, before any result.

The paper does not print FedProx's mu; it is 0.01 here. It does not print the shapes of its CNN either.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.runs.run import Run, load_run
from fuaudit.workflow.resume import resume
from fuaudit.workflow.train import train

METHODS = ("dropouts", "fedprox", "scaffold", "mifa", "mimic")
NAMES = {"dropouts": "FedAvg", "fedprox": "FedProx", "scaffold": "SCAFFOLD", "mifa": "MIFA", "mimic": "MimiC"}
ROUNDS = 200

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "table-3": {f"tau {tau}": {"scenario": "round-robin", "tau_max": tau} for tau in (20, 50, 100)},
    "table-4": {f"P {share:.0%}": {"scenario": "time-varying", "share": share} for share in (0.1, 0.3, 0.5)},
}
PRINTED: dict[str, dict[str, tuple[float, ...]]] = {
    "table-3": {
        "dropouts": (69.39, 68.42, 68.21),
        "fedprox": (72.67, 67.44, 64.74),
        "scaffold": (73.46, 72.30, 68.7),
        "mifa": (72.92, 72.82, 72.20),
        "mimic": (75.89, 74.86, 74.71),
    },
    "table-4": {
        "dropouts": (64.71, 69.22, 71.31),
        "fedprox": (66.91, 69.43, 72.91),
        "scaffold": (63.77, 73.18, 71.88),
        "mifa": (68.58, 73.43, 73.24),
        "mimic": (72.22, 74.86, 74.24),
    },
}
"""Test accuracy in percent, in the order of the settings."""


@dataclass(frozen=True)
class Scale:
    """What may be smaller than in the paper; stated in the result."""

    epochs: int = 5
    rounds: int = ROUNDS
    partition: str = "shards"
    model: str = "mimic-cnn"
    rows: int = 60_000
    device: str = "auto"
    engine: str = "auto"


def key(number: int) -> bytes:
    """The keys of this benchmark, for everybody to compute."""
    return hashlib.sha256(f"fuaudit dropouts {number}".encode()).digest()


def rounds_of(method: str, scale: Scale) -> int:
    """As many as give the same number of uploads."""
    uploads: int = registry.build("solvers", registry.find("learners", method).load().solver).uploads
    return max(1, scale.rounds // uploads)


def config(method: str, setting: dict[str, Any], scale: Scale) -> dict[str, Any]:
    clients = 30
    rounds = rounds_of(method, scale)
    partition: dict[str, Any] = {"use": scale.partition, "clients": clients}
    if scale.partition == "shards":
        partition |= {"shards": 2, "pure": True}
    return {
        "data": {"use": "fashion-mnist"},
        "partition": partition,
        "model": {"use": scale.model},
        "learner": {
            "use": method,
            "rounds": rounds,
            "epochs": scale.epochs,
            "largest_client": scale.rows // clients,
            "batch": 16,
            "step_size": 0.01,
            "decay": 0.95,
            **setting,
        },
        "run": {"checkpoint_every": max(1, rounds // 20), "device": scale.device, "engine": scale.engine},
    }


def mark_of(tables: dict[str, Any]) -> str:
    """What tells settings apart in names of folders. Engine and device are no part of it."""
    asked = {name: table for name, table in tables.items() if name != "run"}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]


def run_of(folder: Path, tables: dict[str, Any], number: int, data: Dataset) -> Run:
    """The run in a folder: read, resumed or trained."""
    shown = time.monotonic()

    def progress(what: str, done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > 30 or done == total:
            shown = time.monotonic()
            print(f"{folder.name}: {what} {done} of {total}", flush=True)

    if (folder / "manifest.json").exists():
        return load_run(folder)
    if (folder / "run.json").exists():
        return resume(folder, dataset=data, progress=progress)
    return train(tables, folder, secret=key(number), dataset=data, progress=progress)


def scaled(data: Dataset, scale: Scale) -> Dataset:
    """The first rows; those of Fashion-MNIST are in no order."""
    if scale.rows >= data.size:
        return data
    return Dataset(
        data.inputs[: scale.rows],
        data.targets[: scale.rows],
        data.test_inputs[: scale.rows // 6],
        data.test_targets[: scale.rows // 6],
        data.classes,
    )


def row(runs: list[Run]) -> dict[str, Any]:
    finals = [100 * run.metrics[-1]["test_accuracy"] for run in runs]
    gaps = [json.loads((run.path / "dropouts.json").read_text())["largest_gap"] for run in runs]
    spread = statistics.stdev(finals) if len(finals) > 1 else None
    return {
        "accuracy": statistics.fmean(finals),
        "deviation": spread,
        "each": finals,
        "largest_gap": gaps,
        "commitments": [run.commitment for run in runs],
    }


def markdown(table: str, results: dict[str, dict[str, Any]], scale: Scale, keys: list[int]) -> str:
    settings = list(SETTINGS[table])
    used = [name for name in settings if any(name in results[method] for method in results)]
    lines = [
        f"{table}, keys {', '.join(map(str, keys))}, {scale}",
        "",
        "| method | " + " | ".join(f"{name} | paper" for name in used) + " |",
        "|---" * (1 + 2 * len(used)) + "|",
    ]
    for method, columns in results.items():
        cells = []
        for name in used:
            found = columns.get(name)
            spread = "" if not found or found["deviation"] is None else f" ± {found['deviation']:.2f}"
            cells += [
                f"{found['accuracy']:.2f}{spread}" if found else "",
                f"{PRINTED[table][method][settings.index(name)]}",
            ]
        lines.append(f"| {NAMES[method]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=SETTINGS)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="ROOT", help="the folder that holds FashionMNIST/raw"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="runs are kept and looked for there")
    parser.add_argument("--method", choices=METHODS, action="append", help="by default all five")
    parser.add_argument(
        "--setting", action="append", metavar="NAME", help='such as "tau 20" or "P 10%%"; by default all'
    )
    parser.add_argument("--key", type=int, action="append", metavar="N", help="number of a key; by default 1")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="auto", help="compiled is the fast one on a CPU with a C++ compiler")
    parser.add_argument("--partition", default="shards")
    parser.add_argument("--model", default="mimic-cnn")
    parser.add_argument("--smoke", action="store_true", help="3,000 rows, 6 rounds of one epoch: it runs, no more")
    given = parser.parse_args()
    scale = Scale(given.epochs, given.rounds, given.partition, given.model, device=given.device, engine=given.engine)
    if given.smoke:
        scale = Scale(1, 6, given.partition, given.model, rows=3000, device=given.device, engine=given.engine)
    chosen = {name: SETTINGS[given.table][name] for name in given.setting or SETTINGS[given.table]}
    keys = given.key or [1]
    data = scaled(registry.build("datasets", {"use": "fashion-mnist"}).load(given.data), scale)
    results: dict[str, dict[str, Any]] = {method: {} for method in given.method or METHODS}
    for name, setting in chosen.items():
        for method, columns in results.items():
            tables = config(method, setting, scale)
            mark = mark_of(tables)
            folders = [given.out / f"{method}-{name.replace(' ', '-')}-{mark}-key-{number}" for number in keys]
            columns[name] = row([run_of(f, tables, n, data) for f, n in zip(folders, keys, strict=True)])
            document = {"scale": str(scale), "keys": keys, "results": results}
            (given.out / f"{given.table}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            text = markdown(given.table, results, scale, keys)
            (given.out / f"{given.table}.md").write_text(text, encoding="utf-8")
    print(markdown(given.table, results, scale, keys))


if __name__ == "__main__":
    main()
