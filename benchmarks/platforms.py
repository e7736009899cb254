"""Honest runs under several settings of the matrix library: ``python benchmarks/platforms.py --folder FOLDER``.

Environment variables choose among the codes that a matrix library has for one operation, as another processor would,
and nothing in torch's versions tells. Each setting is a process of its own; processes train, unlearn, resume and audit
tiny federations, and hand runs to each other. What is asked: does the canary differ wherever bits of models do, and
does any honest run FAIL, whoever trained, went on with and audited it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import torch
from machine import hardware

from fuaudit import load_run, train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request
from fuaudit.plans.participation import Involvement
from fuaudit.registry import build
from fuaudit.runs.ledger import read_ledger
from fuaudit.runs.run import Run
from fuaudit.verification.spec import read_spec
from fuaudit.workflow.resume import resume

SETTINGS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "MKL_CBWR=COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    "MKL_CBWR=AVX2": {"MKL_CBWR": "AVX2"},
    "ONEDNN_MAX_CPU_ISA=SSE41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "ATEN_CPU_CAPABILITY=default": {"ATEN_CPU_CAPABILITY": "default"},
}
THREADS = (1, 2)
MODELS: dict[str, dict[str, Any]] = {
    "linear": {"use": "linear"},
    "mlp": {"use": "mlp"},
    "cnn": {"use": "cnn", "channels": [10]},
}
TRAINED = (*product(MODELS, ("threads", "batched")), ("cnn", "grouped"))
SECRET = b"fuaudit: platforms, benchmark 1."
ROUNDS = 6
Step = dict[str, str]


def tables(model: str, engine: str) -> dict[str, Any]:
    """Ten clients on digits; some rounds before the last client's first."""
    learner = {"use": "fats", "rounds": ROUNDS, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1}
    return {
        "data": {"use": "tensors", "classes": 10},
        "partition": {"use": "iid", "clients": 10},
        "model": MODELS[model],
        "learner": learner,
        "run": {"checkpoint_every": 2, "engine": engine, "device": "cpu"},
    }


def digits() -> Dataset:
    """Digits as images, so that one data set serves every model."""
    flat: Dataset = build("datasets", {"use": "digits"}).load(None)
    return replace(flat, inputs=flat.inputs.view(-1, 1, 8, 8), test_inputs=flat.test_inputs.view(-1, 1, 8, 8))


class Killed(Exception):
    """Stands for the end of a process."""


def killed(number: int) -> Any:
    """Progress that ends training after a round."""

    def progress(what: str, done: int, of: int) -> None:
        if what == "rounds" and done == number:
            raise Killed

    return progress


def last_of(run: Run) -> int:
    """The client whose first round comes last, as the run has recorded it."""
    index = run.plan.index
    assert isinstance(index, Involvement)
    return max(index.clients, key=index.clients.__getitem__)


def work(step: Step, data: Dataset) -> dict[str, Any]:
    """One step: ``train``, ``begin`` (training that is killed in round 3), ``resume``, ``unlearn`` or ``audit``."""
    path = Path(step["run"])
    if step["do"] == "begin":
        try:
            train(tables(step["model"], step["engine"]), path, data=data, secret=SECRET, progress=killed(3))
        except Killed:
            return {}
        raise AssertionError("it was not killed")
    if step["do"] == "train":
        run = train(tables(step["model"], step["engine"]), path, data=data, secret=SECRET)
    elif step["do"] == "resume":
        run = resume(path, data=data)
    elif step["do"] == "unlearn":
        parent = load_run(step["parent"])
        run = unlearn(parent, "fats", Request.of([last_of(parent)]), path, data=data)
    else:
        spec = read_spec("client-erasure")
        checks = tuple(c for c in spec.checks if c.audit["use"] in ("integrity", "replay", "provenance", "lineage"))
        found = verify(path, replace(spec, checks=checks), data=data, key=SECRET, save=False)
        return {finding.audit: str(finding.verdict) for finding in found.findings} | {"shows": found.reason}
    return {
        "model": hashlib.sha256(run.model.numpy().tobytes()).hexdigest(),
        "metrics": run.files["metrics.json"]["sha256"],
        "canary": read_ledger(path).of_kind("platform")[-1]["canary"],
    }


def told(setting: Mapping[str, str], threads: int, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """What steps give in a process of their own under a setting."""
    if not steps:
        return []
    number = str(threads)
    environment = {**os.environ, **setting, "OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number}
    done = subprocess.run(
        [sys.executable, __file__, "--work"],
        input=json.dumps(steps),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def pairs_of(made: Mapping[Any, dict[str, Any]]) -> dict[str, int]:
    """Pairs of platforms for one model and engine: where bits differ, and where canaries do."""
    count = {"pairs": 0, "bits differ": 0, "canary differs": 0, "bits differ, canary does not": 0}
    for (a, one), (b, other) in combinations(made.items(), 2):
        if a[2:] != b[2:]:
            continue
        bits = (one["model"], one["metrics"]) != (other["model"], other["metrics"])
        canary = one["canary"] != other["canary"]
        count["pairs"] += 1
        count["bits differ"] += bits
        count["canary differs"] += canary
        count["bits differ, canary does not"] += bits and not canary
    return count


def lineages(
    folder: Path, settings: Mapping[str, Mapping[str, str]], models: Iterable[str], engines: Iterable[str]
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Runs trained or begun under one setting, unlearned or resumed under another, audited under both and a third.

    Another setting is one of the next two of the list, which begins again at its end; the third the next one.

    Keys are (trained under, went on under, audited under, model, engine, how it went on).
    """
    names = list(settings)
    count = len(names)
    pairs = [(first, (first + far) % count) for far in range(1, 1 + min(2, count - 1)) for first in range(count)]
    cases = list(product(pairs, models, engines))
    steps: dict[int, list[Step]] = {place: [] for place in range(len(names))}
    for place, model, engine in product(range(len(names)), models, engines):
        where = str(folder / f"{place}-{model}-{engine}")
        steps[place].append({"do": "train", "run": where, "model": model, "engine": engine})
    for (first, second), model, engine in cases:
        where = str(folder / f"{first}-{second}-{model}-{engine}-begun")
        steps[first].append({"do": "begin", "run": where, "model": model, "engine": engine})
    _all(settings, steps)
    steps = {place: [] for place in range(len(names))}
    for (first, second), model, engine in cases:
        begun = str(folder / f"{first}-{second}-{model}-{engine}-begun")
        parent = str(folder / f"{first}-{model}-{engine}")
        child = str(folder / f"{first}-{second}-{model}-{engine}-child")
        steps[second].append({"do": "resume", "run": begun})
        steps[second].append({"do": "unlearn", "parent": parent, "run": child})
    _all(settings, steps)
    steps = {place: [] for place in range(len(names))}
    keys: dict[int, list[tuple[str, ...]]] = {place: [] for place in range(len(names))}
    for (first, second), model, engine in cases:
        third = next((p % count for p in range(second + 1, second + count) if p % count != first), second)
        for auditor in dict.fromkeys((first, second, third)):
            for how in ("begun", "child"):
                run = str(folder / f"{first}-{second}-{model}-{engine}-{how}")
                steps[auditor].append({"do": "audit", "run": run})
                keys[auditor].append((names[first], names[second], names[auditor], model, engine, how))
    found = _all(settings, steps)
    return {key: one for place in keys for key, one in zip(keys[place], found[place], strict=True)}


def _all(settings: Mapping[str, Mapping[str, str]], steps: Mapping[int, list[Step]]) -> dict[int, list[dict[str, Any]]]:
    """Every setting's steps, one process after another."""
    return {place: told(setting, 1, steps[place]) for place, setting in enumerate(settings.values())}


def main() -> None:
    """Measure, and print a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--part", nargs="*", default=["table", "lineages"], choices=["table", "lineages"])
    parser.add_argument("--work", action="store_true", help="do the steps on standard input")
    given = parser.parse_args()
    if given.work:
        data = digits()
        print(json.dumps([work(step, data) for step in json.loads(sys.stdin.read())]))
        return
    machine = hardware() | {"instruction set": torch.backends.cpu.get_cpu_capability()}
    document: dict[str, Any] = {"machine": machine}
    if "table" in given.part:
        made: dict[Any, dict[str, Any]] = {}
        for (name, setting), threads in product(SETTINGS.items(), THREADS):
            where = given.folder / "table" / f"{len(made)}"
            steps = [{"do": "train", "run": str(where / f"{m}-{e}"), "model": m, "engine": e} for m, e in TRAINED]
            made |= {
                (name, threads, *key): one for key, one in zip(TRAINED, told(setting, threads, steps), strict=True)
            }
            print(f"trained under {name}, {threads} threads", file=sys.stderr)
        document |= {"made": [[*key, one] for key, one in made.items()], "canary": pairs_of(made)}
    if "lineages" in given.part:
        found = lineages(given.folder / "lineages", SETTINGS, MODELS, ("threads",))
        document |= {"lineages": [[*key, one] for key, one in found.items()], "verdicts": verdicts_of(found)}
    print(json.dumps(document, indent=1))


def verdicts_of(found: Mapping[tuple[str, ...], dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each audit gave each verdict, by how the run went on."""
    counts: dict[str, dict[str, int]] = {}
    for key, one in found.items():
        for audit in ("integrity", "provenance", "replay", "lineage"):
            row = counts.setdefault(f"{key[-1]}, {audit}", {})
            row[one[audit]] = row.get(one[audit], 0) + 1
    return counts


if __name__ == "__main__":
    main()
