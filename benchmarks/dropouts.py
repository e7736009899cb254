"""Training that survives dropouts: the settings of Tables III and IV of the MimiC paper on Fashion-MNIST.

    python benchmarks/dropouts.py table-3 --data ROOT --out DIR                      five local epochs, as the paper
    python benchmarks/dropouts.py table-3 --data ROOT --out DIR --epochs 1 --key 1 --key 2 --key 3
    python benchmarks/dropouts.py table-4 --data ROOT --out DIR --setting "P 10%" --device cuda
    python benchmarks/dropouts.py table-3 --data ROOT --out DIR --smoke              a scaled one, in a minute

30 clients with 2 of 60 shards each, batches of 16, 200 rounds, 100 for SCAFFOLD, which uploads two vectors. Every run
is a folder under DIR named by its setting; a run that is complete is read, one that was interrupted is resumed on the
engine it has, so the command can be killed at any time and given again, and several can work side by side on different
methods, settings or keys. The tables written hold all complete runs of the same scale in DIR, and so do the curves
beside them, an SVG of the same name. Keys are fixed here, before any result.

A run stores 20 models, every 10 rounds of 200 and every 5 of SCAFFOLD's 100; "mean of last five" and the curves are
about stored models. How often a run stores changes nothing about its models, nor the name of its folder; a run of
another ladder that lies in DIR is read as it is, and the table tells the ladder of each.

``--step-sizes code``, the default, decays the clients' step size, 0.01 * 0.95 ** (t - 1), as the authors' code does.
``printed`` is Table II of the paper: clients take 0.01 in every round, the server applies 0.01 * 0.95 ** (t - 1) to the
mean over K local steps.

The paper does not print FedProx's mu; it is 0.01 here. It does not print the widths of its CNN either.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from curves import Found, drawn
from machine import hardware

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.declared import says
from fuaudit.formats.files import write_bytes
from fuaudit.runs.run import Run, load_run
from fuaudit.workflow.resume import resume
from fuaudit.workflow.train import train

METHODS = ("dropouts", "fedprox", "scaffold", "mifa", "mimic")
NAMES = {"dropouts": "FedAvg", "fedprox": "FedProx", "scaffold": "SCAFFOLD", "mifa": "MIFA", "mimic": "MimiC"}
ROUNDS = 200
STORED = 20
"""A run stores a model every ``rounds // STORED`` rounds, and every round where there are fewer."""

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "table-3": {f"tau {tau}": {"scenario": "round-robin", "tau_max": tau} for tau in (20, 50, 100)},
    "table-4": {f"P {share:.0%}": {"scenario": "time-varying", "share": share} for share in (0.1, 0.3, 0.5)},
}
PRINTED: dict[str, dict[str, tuple[str, ...]]] = {
    "table-3": {
        "dropouts": ("69.39", "68.42", "68.21"),
        "fedprox": ("72.67", "67.44", "64.74"),
        "scaffold": ("73.46", "72.30", "68.7"),
        "mifa": ("72.92", "72.82", "72.20"),
        "mimic": ("75.89", "74.86", "74.71"),
    },
    "table-4": {
        "dropouts": ("64.71 ± 2.26", "69.22 ± 6.19", "71.31 ± 1.09"),
        "fedprox": ("66.91 ± 7.24", "69.43 ± 5.05", "72.91 ± 1.00"),
        "scaffold": ("63.77 ± 4.66", "73.18 ± 3.74", "71.88 ± 0.25"),
        "mifa": ("68.58 ± 6.45", "73.43 ± 5.61", "73.24 ± 0.41"),
        "mimic": ("72.22 ± 5.28", "74.86 ± 4.44", "74.24 ± 1.31"),
    },
}
"""Test accuracy in percent, in the order of the settings; what varies in the three trials is not said."""


@dataclass(frozen=True)
class Scale:
    """What may be smaller than in the paper; stated in the result."""

    epochs: int = 5
    rounds: int = ROUNDS
    partition: str = "shards"
    model: str = "mimic-cnn"
    rows: int = 60_000
    step_sizes: str = "code"
    device: str = "auto"
    engine: str = "auto"


def key(number: int) -> bytes:
    """The keys of this benchmark, for everybody to compute."""
    return hashlib.sha256(f"fuaudit dropouts {number}".encode()).digest()


def rounds_of(method: str, scale: Scale) -> int:
    """As many as give the same number of uploads."""
    return max(1, scale.rounds // uploads_of(method))


def uploads_of(method: str) -> int:
    """Vectors of the model's size that a participation sends."""
    uploads: int = says(registry.build("solvers", registry.find("learners", method).load().solver), "uploads")
    return uploads


def config(method: str, setting: dict[str, Any], scale: Scale) -> dict[str, Any]:
    clients, batch = 30, 16
    rounds, largest = rounds_of(method, scale), scale.rows // clients
    partition: dict[str, Any] = {"use": scale.partition, "clients": clients}
    if scale.partition == "shards":
        partition |= {"shards": 2, "pure": True}
    learner = {
        "use": method,
        "rounds": rounds,
        "epochs": scale.epochs,
        "largest_client": largest,
        "batch": batch,
        "step_size": 0.01,
        "decay": 0.95,
        **setting,
    }
    tables: dict[str, Any] = {
        "data": {"use": "fashion-mnist"},
        "partition": partition,
        "model": {"use": scale.model},
        "learner": learner,
        "run": {"checkpoint_every": max(1, rounds // STORED), "device": scale.device, "engine": scale.engine},
    }
    if scale.step_sizes == "printed":
        learner["decay"] = 1.0
        local = scale.epochs * -(-largest // batch)  # an update is the sum over K steps
        last = {"use": "server-step", "schedule": "exponential", "size": 1 / local, "decay": 0.95}
        tables["server"] = [*registry.find("learners", method).load().server, last]
    return tables


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
        return resume(folder, data=data, progress=progress)
    return train(tables, folder, secret=key(number), data=data, progress=progress)


def scaled(data: Dataset, rows: int) -> Dataset:
    """The first rows; those of Fashion-MNIST are in no order."""
    if rows >= data.size:
        return data
    return Dataset(
        data.inputs[:rows],
        data.targets[:rows],
        data.test_inputs[: rows // 6],
        data.test_targets[: rows // 6],
        data.classes,
    )


def folder_of(out: Path, method: str, name: str, number: int, scale: Scale, table: str) -> Path:
    mark = mark_of(config(method, SETTINGS[table][name], scale))
    return out / f"{method}-{name.replace(' ', '-')}-{mark}-key-{number}"


def complete(out: Path, table: str, scale: Scale) -> Found:
    """What the complete runs of a scale found: method -> setting -> one entry a key."""
    found: Found = {}
    for method, name in product(METHODS, SETTINGS[table]):
        prefix = folder_of(out, method, name, 0, scale, table).name[:-1]
        folders = sorted(path for path in out.glob(f"{prefix}*") if (path / "manifest.json").exists())
        if folders:
            numbers = {int(path.name.rsplit("-", 1)[1]): path for path in folders}
            found.setdefault(method, {})[name] = [entry(load_run(numbers[n]), n) for n in sorted(numbers)]
    return found


def entry(run: Run, number: int) -> dict[str, Any]:
    """What one run found. ``rounds``, ``uploads`` and ``accuracies`` tell of the stored models, one after another.

    Uploads are vectors of the model's size, sent by all clients up to that round; accuracies are in percent.
    """
    seen = run.participation
    ladder = [100 * row["test_accuracy"] for row in run.metrics]
    rounds = [row["round"] for row in run.metrics]
    sent = [0, *seen["uploads"]]
    return {
        "key": number,
        "accuracy": ladder[-1],
        "best": max(ladder),
        "last_five": statistics.fmean(ladder[-5:]),
        "participations": sum(map(len, seen["cohorts"])),
        "empty_rounds": sum(not cohort for cohort in seen["cohorts"]),
        "largest_gap": seen["largest_gap"],
        "stored_every": run.config.run.checkpoint_every,
        "rounds": rounds,
        "uploads": [sent[round_number] for round_number in rounds],
        "accuracies": ladder,
        "engine": run.info["engine"],
        "commitment": run.commitment,
    }


def over_keys(entries: list[dict[str, Any]], what: str) -> str:
    """Mean and standard deviation over keys, of which there may be one."""
    values = [one[what] for one in entries]
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"


def rounds_in_words(count: int) -> str:
    return "round" if count == 1 else f"{count} rounds"


def markdown(table: str, found: Found, scale: Scale) -> str:
    """Final accuracy beside the paper's, mean ± standard deviation over keys; then every key by itself."""
    names = [name for name in SETTINGS[table] if any(name in columns for columns in found.values())]
    lines = [
        f"{table}, {scale}",
        "",
        "| method | " + " | ".join(f"{name} | paper" for name in names) + " |",
        "|---" * (1 + 2 * len(names)) + "|",
    ]
    for method, columns in found.items():
        cells = []
        for name in names:
            printed = PRINTED[table][method][list(SETTINGS[table]).index(name)]
            cells += [over_keys(columns[name], "accuracy") if name in columns else "", printed]
        lines.append(f"| {NAMES[method]} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| setting | method | key | final | best stored | mean of last five stored "
        "| stored | uploads | empty rounds | engine |",
    ]
    lines.append("|---" * 10 + "|")
    for name, (method, columns) in product(names, found.items()):
        for one in columns.get(name, []):
            vectors = one["participations"] * uploads_of(method)
            lines.append(
                f"| {name} | {NAMES[method]} | {one['key']} | {one['accuracy']:.2f} | {one['best']:.2f} | "
                f"{one['last_five']:.2f} | every {rounds_in_words(one['stored_every'])} | {vectors} | "
                f"{one['empty_rounds']} | {one['engine']} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=SETTINGS)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="ROOT", help="the folder that holds FashionMNIST/raw"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="runs are kept and looked for there")
    parser.add_argument("--method", choices=METHODS, action="append", help="by default all five")
    names = [name for settings in SETTINGS.values() for name in settings]
    parser.add_argument("--setting", choices=names, action="append", help="by default all of the table")
    parser.add_argument("--key", type=int, action="append", metavar="N", help="number of a key; by default 1")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--step-sizes", choices=("code", "printed"), default="code")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--engine", default="auto", help="grouped, or compiled with a C++ compiler, is the fast one on a CPU"
    )
    parser.add_argument("--partition", default="shards")
    parser.add_argument("--model", default="mimic-cnn")
    parser.add_argument("--smoke", action="store_true", help="3,000 rows, 6 rounds of one epoch: it runs, no more")
    given = parser.parse_args()
    same = {"step_sizes": given.step_sizes, "device": given.device, "engine": given.engine}
    scale = Scale(given.epochs, given.rounds, given.partition, given.model, **same)
    if given.smoke:
        scale = Scale(1, 6, given.partition, given.model, rows=3000, **same)
    table = given.table
    if unknown := set(given.setting or ()) - set(SETTINGS[table]):
        parser.error(f"{table} has no setting {sorted(unknown)[0]!r}; it has {', '.join(SETTINGS[table])}")
    data = scaled(registry.build("datasets", {"use": "fashion-mnist"}).load(given.data), scale.rows)
    file = f"{table}-{mark_of(asdict(replace(scale, device='', engine='')))}"
    found: Found = {}
    for name, method, number in product(given.setting or SETTINGS[table], given.method or METHODS, given.key or [1]):
        tables = config(method, SETTINGS[table][name], scale)
        run_of(folder_of(given.out, method, name, number, scale, table), tables, number, data)
        found = complete(given.out, table, scale)
        document = {"scale": str(scale), "machine": hardware(), "results": found}
        write_bytes(given.out / f"{file}.json", (json.dumps(document, indent=2) + "\n").encode())
        write_bytes(given.out / f"{file}.md", markdown(table, found, scale).encode())
        write_bytes(given.out / f"{file}.svg", drawn(found, list(SETTINGS[table]), NAMES).encode())
    print(markdown(table, found, scale))


if __name__ == "__main__":
    main()
