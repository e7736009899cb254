"""FATS against retraining and against FedAvg, on real data.

    python benchmarks/fats.py examples/mnist-fats.toml --data ROOT
    python benchmarks/fats.py examples/fashion-fats.toml --data ROOT --step-size 0.05 --step-size 0.001
    python benchmarks/fats.py examples/shakespeare-fats.toml --data ROOT --forget client --forget sample

Trains, unlearns one client and one sample, and ten of each at once, with noop, FATS and retraining, and says what that
did to accuracy and what it cost. FedAvg is trained with the same numbers, and retrained without the target: FATS is an
alternative to that. With ``--verify`` every result is audited as well.

Keys and targets are fixed here, before any result. Two further targets are chosen among those that were drawn, so that
there is something to find in the run itself: they depend on the draws, so only the audits of the run (not those of the
algorithm) look at them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
import time
import tomllib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from machine import hardware
from recomputation import Level, levels, of_config

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request
from fuaudit.runs.names import request_of
from fuaudit.runs.run import Run
from fuaudit.verification.spec import Spec, parse_spec, read_spec
from fuaudit.verification.verify import verify
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

TEN = range(10)
FIXED = {
    "client": ((0,), ()),
    "sample": ((), ((0, 0),)),
    "10 clients": (tuple(TEN), ()),
    "10 samples": ((), tuple((client, 0) for client in TEN)),
}
"""Clients, and (client, index) of samples: one, and as many at once as the paper's own requests hold."""

MEASURED = dict.fromkeys(FIXED, ("noop", "fats", "retrain"))
AUDITED = {
    "client": ("noop", "fats", "retrain"),
    "sample": ("noop", "fats-as-printed", "fats", "retrain"),
    "drawn client": ("noop", "fats"),
    "drawn sample": ("noop", "fats"),
}
MIDDLE = 15
"""Drawn targets are looked for in this round: its first client, and the first sample of that client's first batch."""

KEYS = (1, 2, 3)


def key(name: str, purpose: str, number: int) -> bytes:
    """The keys of this benchmark, for everybody to compute; ``name`` is that of the config."""
    return hashlib.sha256(f"fuaudit {name} {purpose} {number}".encode()).digest()


@dataclass(frozen=True)
class Case:
    """One training: a config under a key. ``number`` is the key's, and that of the audits' key."""

    name: str
    tables: dict[str, Any]
    number: int
    data: Dataset

    def of_fedavg(self) -> Case:
        """FedAvg with the same numbers."""
        return replace(self, tables=self.tables | {"learner": self.tables["learner"] | {"use": "fedavg"}})


@dataclass
class Clock:
    """Times rounds as they are reported; the first one is taken to last as long as the others."""

    seen: list[float] = field(default_factory=list)

    def __call__(self, what: str, done: int, total: int) -> None:
        if what == "rounds":
            self.seen.append(time.perf_counter())

    @property
    def seconds(self) -> float | None:
        """In rounds alone; None where a single round was run, which cannot be told from its surroundings."""
        count = len(self.seen)
        if count < 2:
            return None if count else 0.0
        return (self.seen[-1] - self.seen[0]) * count / (count - 1)


@dataclass(frozen=True)
class Made:
    """A run with what it cost."""

    run: Run
    figures: dict[str, Any]


def made(run: Run, clock: Clock, seconds: float) -> Made:
    last = run.metrics[-1]
    table = {
        "accuracy": last["test_accuracy"],
        "loss": last["test_loss"],
        "seconds": seconds,
        "rounds_s": clock.seconds,
    }
    if run.is_child:
        first, rounds = run.info["first_change"][0], run.plan.law.rounds
        first = max(first, 1)
        kept = run.ledger.of_kind("unlearning")[0]["kept_rounds"]
        table |= {
            "first_change": list(run.info["first_change"]) if first <= rounds else None,
            "rounds_changed": max(rounds + 1 - first, 0),
            "rounds_run": rounds - kept,
        }
    return Made(run, table)


def trained(case: Case, folder: Path) -> Made:
    clock, started = Clock(), time.perf_counter()
    secret = key(case.name, "train", case.number)
    run = train(case.tables, folder, secret=secret, data=case.data, progress=clock)
    return made(run, clock, time.perf_counter() - started)


def forgotten(parent: Run, name: str, request: Request, folder: Path, data: Dataset) -> Made:
    clock, started = Clock(), time.perf_counter()
    run = unlearn(parent, name, request, folder, data=data, progress=clock)
    return made(run, clock, time.perf_counter() - started)


def drawn_targets(run: Run) -> dict[str, Request]:
    """A client and a sample that this run drew. They depend on the draws."""
    client = run.plan.cohort(MIDDLE)[0]
    sample = run.plan.batch(MIDDLE, 1, client, 0)[0]
    return {"drawn client": Request.of(clients=[client]), "drawn sample": Request.of(samples=[sample])}


OF_THE_RUN = ("integrity", "replay", "provenance", "lineage")


def policy(kind: str, stress: int, run_only: bool) -> Spec:
    """The built-in policy for a kind of request with another number of stress plans, or without the algorithm."""
    full = read_spec(f"{kind}-erasure")
    out_of_scope = [*full.out_of_scope, *(["The law of the algorithm."] if run_only else [])]
    table = {
        "id": f"benchmark-{kind}",
        "title": full.title,
        "asks": "run" if run_only else "exact",
        "out_of_scope": out_of_scope,
    }
    checks = [
        {"claim": c.claim, "role": c.role, "audit": c.audit | ({"plans": stress} if c.audit["use"] == "stress" else {})}
        for c in full.checks
        if not run_only or c.audit["use"] in OF_THE_RUN
    ]
    return parse_spec(table | {"check": checks}, "benchmark")


@dataclass(frozen=True)
class Audits:
    """What to spend on auditing a run."""

    budget: int
    stress: int

    def __call__(self, run: Run, kind: str, run_only: bool, case: Case) -> dict[str, Any]:
        started = time.perf_counter()
        spec = policy(kind, self.stress, run_only)
        result = verify(run, spec, data=case.data, budget=self.budget, key=key(case.name, "audit", case.number))
        plan = next(f for f in result.findings if f.audit == "provenance")
        return {
            "verdict": str(result.verdict),
            "audits": {f.audit: str(f.verdict) for f in result.findings},
            "nothing_to_forget": plan.values["nothing_to_forget"],
            "seconds": time.perf_counter() - started,
        }


def say(*parts: object) -> None:
    print(*parts, flush=True)


def one_key(case: Case, folder: Path, kinds: list[str], audits: Audits | None) -> dict[str, Any]:
    """Everything about one training run, and about FedAvg's beside it."""
    origin = trained(case, folder / "original")
    before = origin.figures
    say(f"\n{case.name}, key {case.number}: accuracy {before['accuracy']:.4f}, {before['seconds']:.1f} s")
    table: dict[str, Any] = {"key": key(case.name, "train", case.number).hex(), "original": before, "targets": {}}
    targets = {kind: request_of(origin.run, *target) for kind, target in FIXED.items()}
    if audits:
        targets |= drawn_targets(origin.run)
    for kind in kinds:
        request, rows = targets[kind], {}
        for name in (AUDITED if audits else MEASURED)[kind]:
            child = forgotten(origin.run, name, request, folder / f"{kind} {name}".replace(" ", "-"), case.data)
            rows[name] = child.figures
            line = f"  {kind:13}{name:16} {summary(child.figures)}"
            if audits:
                run_only = kind not in FIXED
                rows[name]["verify"] = found = audits(child.run, request.kind, run_only, case)
                wrong = [f"{audit} {verdict}" for audit, verdict in found["audits"].items() if verdict != "PASS"]
                line += f"  {found['verdict']} ({', '.join(wrong) or 'all PASS'}; {found['seconds']:.0f} s)"
            say(line)
        table["targets"][kind] = {"request": str(request), "methods": rows}
    if not audits:
        rival = trained(case.of_fedavg(), folder / "fedavg")
        say(f"  FedAvg: accuracy {rival.figures['accuracy']:.4f}, {rival.figures['seconds']:.1f} s")
        table["fedavg"] = rival.figures
        for kind in kinds:
            request = request_of(rival.run, *FIXED[kind])
            again = forgotten(rival.run, "retrain", request, folder / f"{kind} fedavg".replace(" ", "-"), case.data)
            say(f"  {kind:13}{'FedAvg, retrain':16} {summary(again.figures)}")
            table["targets"][kind]["methods"]["fedavg, retrain"] = again.figures
    return table


def summary(figures: dict[str, Any]) -> str:
    first = figures["first_change"]
    return (
        f"accuracy {figures['accuracy']:.4f}, first change {first or 'none'}, "
        f"{figures['rounds_changed']} rounds changed, {figures['rounds_run']} run, {figures['seconds']:.1f} s"
    )


def spread(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "sd": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values),
        "max": max(values),
    }


def overview(keys: list[dict[str, Any]], exact: dict[str, Level]) -> dict[str, Any]:
    """Over keys: accuracy before and after, rounds, and time as a share of retraining; how often FATS computed."""
    table: dict[str, Any] = {"before": spread([k["original"]["accuracy"] for k in keys])}
    if "fedavg" in keys[0]:
        table["fedavg before"] = spread([k["fedavg"]["accuracy"] for k in keys])
    for kind, targets in keys[0]["targets"].items():
        rows = [k["targets"][kind]["methods"] for k in keys]
        for name in targets["methods"] if "retrain" in targets["methods"] else ():
            pairs = [(row[name], row["retrain"]) for row in rows]
            table[f"{kind} {name}"] = {
                "accuracy": spread([m["accuracy"] for m, _ in pairs]),
                "rounds_changed": spread([m["rounds_changed"] for m, _ in pairs]),
                "rounds_run": spread([m["rounds_run"] for m, _ in pairs]),
                "time_of_retraining": spread([m["seconds"] / r["seconds"] for m, r in pairs]),
                "round_time_of_retraining": [m["rounds_s"] and m["rounds_s"] / r["rounds_s"] for m, r in pairs],
            }
        if kind in exact and "fats" in targets["methods"]:
            again = [row["fats"]["rounds_changed"] for row in rows]
            table[f"{kind} fats"] |= {
                "recomputed": sum(rounds > 0 for rounds in again),
                "keys": len(again),
                "recomputation_exact": exact[kind].exact,
                "rounds_exact": exact[kind].expected_rounds,
            }
    return table


def at(tables: dict[str, Any], step_size: float | None) -> dict[str, Any]:
    """A config with another step size."""
    return tables if step_size is None else tables | {"learner": tables["learner"] | {"step_size": step_size}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="a config with the learner fats")
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="the folder that holds the data")
    parser.add_argument("--key", type=int, action="append", metavar="N", help="number of a key; by default 1, 2 and 3")
    parser.add_argument("--step-size", type=float, action="append", help="another one than the config's")
    parser.add_argument("--forget", choices=AUDITED.keys() | FIXED, action="append", help="by default all")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the runs there; it must not exist or be empty")
    parser.add_argument("--verify", action="store_true", help="audit every child run too, and leave FedAvg out")
    parser.add_argument("--budget", type=int, default=0, help="training runs that each audit may spend on level 6")
    parser.add_argument("--stress", type=int, default=3, help="stress plans of each audit")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args()
    tables, name = tomllib.loads(given.config.read_text(encoding="utf-8")), given.config.stem
    keys = tuple(given.key or KEYS)
    data = registry.build("datasets", tables["data"]).load(given.data)
    audits = Audits(given.budget, given.stress) if given.verify else None
    kinds = given.forget or list(AUDITED if audits else MEASURED)
    law, population = of_config(given.config, given.data, key(name, "train", keys[0]))
    exact = {level.name: level for level in levels(law, population)}
    document: dict[str, Any] = {"machine": hardware(), "audits": audits and asdict(audits), "step_sizes": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.out or Path(scratch)
        for step_size in given.step_size or [None]:
            found: list[dict[str, Any]] = []
            entry: dict[str, Any] = {"keys": found}
            document["step_sizes"][step_size or tables["learner"]["step_size"]] = entry
            for number in keys:
                case = Case(name, at(tables, step_size), number, data)
                found.append(one_key(case, folder / f"{step_size}-{number}", kinds, audits))
                entry["overview"] = overview(found, exact)
                if given.json:
                    given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            say(json.dumps(entry["overview"], indent=2))


if __name__ == "__main__":
    main()
