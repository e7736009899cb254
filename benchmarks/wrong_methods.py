"""Wrong methods, and right ones that look wrong, before the built-in spec.

    python benchmarks/wrong_methods.py --setting digits --folder FOLDER
    python benchmarks/wrong_methods.py --setting mnist --folder FOLDER
    python benchmarks/wrong_methods.py --folder FOLDER --page

Each method carries out a request on a run where it goes wrong: the first request of its kind for which the run's plan
is not what a proved method makes of it with the same keys. (A request chosen by looking at the draws is none that a
guarantee speaks of; here it only makes the fault happen.) Then ``verify`` asks with the built-in spec for that kind of
request: first its cheap checks, of which one FAIL decides, then all of them. Beside the verdict stands the plan at full
size that differs first. A row that is there already is not computed again.

The MNIST setting is its law and its federation: 300 clients with 200 rows each. What is at stake is what is drawn, so
the rows are numbers, and the model is linear in them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from machine import hardware

from fuaudit import train, unlearn, verify
from fuaudit.audits.plan_law.audit import PlanLaw, trial_of
from fuaudit.audits.plan_law.comparison import compare, differences, references
from fuaudit.data.dataset import Dataset
from fuaudit.draws import END, Keyed
from fuaudit.plans import Request
from fuaudit.plans.participation import Involvement
from fuaudit.plans.reference import PROVED
from fuaudit.plans.veil import rewritten
from fuaudit.registry import build
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.drawn import drawn_plan
from fuaudit.runs.run import Run
from fuaudit.text import counted
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.figure import Value
from fuaudit.verification.finding import Finding
from fuaudit.verification.spec import read_spec
from fuaudit.verification.verification import Verification
from fuaudit.verification.verify import default_spec

sys.path.append(str(Path(__file__).parents[1] / "tests" / "mutants"))

SECRET, KEY = b"fuaudit: wrong methods, run no 1", b"fuaudit: wrong methods, audit 01"
MOST = 3000
"""Requests that are tried until a method goes wrong on one."""


def digits() -> Dataset:
    """Handwritten digits."""
    loaded: Dataset = build("datasets", {"use": "digits"}).load(None)
    return loaded


def numbers() -> Dataset:
    """60,000 rows of two numbers each, for 300 clients."""
    rows = torch.arange(120_000, dtype=torch.float32).reshape(-1, 2) / 120_000
    return Dataset(rows, torch.arange(60_000) % 2, rows[:100], torch.arange(100) % 2, classes=2)


@dataclass(frozen=True)
class Setting:
    """A federation: its config, and its rows."""

    dataset: Callable[[], Dataset]
    config: dict[str, Any]


def tables(data: dict[str, Any], clients: int, **law: int) -> dict[str, Any]:
    """A config with a linear model."""
    return {
        "data": data,
        "partition": {"use": "iid", "clients": clients},
        "model": {"use": "linear"},
        "learner": {"use": "fats", "step_size": 0.1, **law},
        "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
    }


SETTINGS = {
    "digits": Setting(digits, tables({"use": "digits"}, 20, rounds=8, cohort=3, steps=5, batch=8)),
    "mnist": Setting(numbers, tables({"use": "tensors", "classes": 2}, 300, rounds=30, cohort=5, steps=10, batch=10)),
}


@dataclass(frozen=True)
class Method:
    """An unlearner, what is wrong with it (or seems so), and what is asked of it.

    Attributes:
        asks: ``client``, ``sample``, ``two samples`` of one client, or ``sample again``: after another one.
        at: the step of the first involvement, where the fault needs one.
        last: whether the fault needs a first involvement in the last round.
        knows: how many rounds of the run's cohorts the method is told, as option ``known``.
        beyond: whether it draws otherwise where no small federation reaches, so that a PASS may rest on its code.
    """

    name: str
    fault: str
    asks: str = "client"
    at: int | None = None
    last: bool = False
    knows: int = 0
    beyond: bool = False
    right: bool = field(default=False, kw_only=True)


PRINTED = "draws the client set anew on the first step of a round (Algorithm 2 as printed)"
METHODS = (
    Method("mutant-recognises", "keeps everything in this run, which it knows by its first four cohorts", knows=4),
    Method("mutant-picks-initial", "draws the initial model anew only where the old one is disliked"),
    Method("mutant-lowest-free", "fills the erased place of a batch with the lowest free id", "sample"),
    Method("mutant-printed-but-lowest", f"{PRINTED} for all samples but the lowest id", "sample", 1),
    Method("mutant-printed-for-two", f"{PRINTED} for requests of two samples", "two samples", 1),
    Method("mutant-printed-from-four", f"{PRINTED} from four clients on", "sample", 1),
    Method("mutant-cohort-twice", "uses a fresh cohort for two rounds"),
    Method("fats-as-printed", PRINTED, "sample", 1),
    Method("mutant-printed-if-twice", f"{PRINTED} where a client is in the cohort twice", "sample", 1),
    Method("mutant-printed-in-last", f"{PRINTED} in the last round alone", "sample", 1, last=True),
    Method("mutant-printed-second", f"{PRINTED} for the second request of a stream", "sample again", 1),
    Method("mutant-printed-for-largest", f"{PRINTED} where the owner has the most samples", "sample", 1),
    Method("mutant-printed-from-hundred", f"{PRINTED} for ids from 100 on", "sample", 1, beyond=True),
    Method("mutant-keeps-one-more", "keeps a round too many, once in four times by a draw of its own"),
    Method("mutant-earlier-if", "goes back a round more where a low id was in that round"),
    Method(
        "mutant-earlier-once", "goes back a round more in this run, which it knows by its first four cohorts", knows=4
    ),
    Method("mutant-sorts-cohorts", "puts fresh cohorts in ascending order"),
    Method("mutant-avoids-neighbour", "leaves the client after the erased one out of fresh cohorts"),
    Method("mutant-spares-highest", "leaves the highest id out of fresh cohorts, from ten clients on", beyond=True),
    Method("mutant-batch-twice", "uses the fresh batch of step four for step five too", beyond=True),
    Method("mutant-neighbours", "takes a slice of the client's samples for a fresh batch"),
    Method("mutant-mirrors-for-owner", "turns a fresh batch to the side of that of another client of the cohort"),
    Method("stranger-back-to-first-step", "draws all batches of the round anew", "sample", right=True),
    Method("stranger-writes-down", "returns its draws written down, not their source", right=True),
    Method("stranger-asks-for-each", "asks for each id by itself", "two samples", right=True),
    Method("stranger-always-restarts", "draws everything anew, drawn or not", right=True),
    Method("stranger-more-segments", "says the same by more segments", "sample", right=True),
    Method("stranger-keeps-the-owners", "keeps later batches of the owner that do not hold it", "sample", right=True),
)


def involved(run: Run) -> Involvement:
    """Who and what is drawn where first, as the run has recorded it."""
    index = run.plan.index
    assert isinstance(index, Involvement)
    return index


def candidates(run: Run, method: Method) -> Iterator[Request]:
    """Requests of the kind that a method is asked for, in the order of ids; all of them are drawn somewhere."""
    if method.asks == "client":
        yield from (Request.of(clients=[client]) for client in sorted(involved(run).clients))
        return
    for sample, at in sorted(involved(run).samples.items()):
        fits = method.at in (None, at.step) and (not method.last or at.round == run.plan.law.rounds)
        if fits and sample in run.plan.retained.owner:
            others = [s for s in run.plan.retained.samples[run.plan.retained.owner[sample]] if s != sample]
            yield Request.of(samples=[sample, *(others[:1] if method.asks == "two samples" else [])])


def goes_wrong(run: Run, method: Method, options: Mapping[str, object], request: Request) -> bool:
    """Whether the plan that a method makes of a run draws otherwise than what the reference makes of it."""
    plan, fresh = drawn_plan(run), run.fresh(request)
    unlearner = build("unlearners", {**options, "use": method.name})
    found = rewritten(unlearner, method.name, plan, request, fresh, END)
    expected = next(iter(PROVED.values())).rewrite(plan, request, fresh, END)
    return next(differences([found], [expected])) is not None


def chosen(run: Run, method: Method, options: Mapping[str, object]) -> Request:
    """The first request on which a wrong method goes wrong; for a right one the first that is drawn after round 1."""
    for _, request in zip(range(MOST), candidates(run, method), strict=False):
        if method.right:
            if (first := run.plan.first_involvement(request)) and first.round > 1:
                return request
        elif goes_wrong(run, method, options, request):
            return request
    raise SystemExit(f"{method.name} goes wrong on no request that was tried")


CHEAP = ("integrity", "provenance", "enumeration")
BLOCK = 128


def refuted(run: Run, key: bytes, **data: Any) -> Verification | None:
    """What ``verify`` says with the cheap checks of the built-in spec, if one of them FAILs."""
    spec = read_spec(default_spec(run))
    cheap = replace(spec, checks=tuple(check for check in spec.checks if check.audit["use"] in CHEAP))
    result = verify(run, cheap, key=key, save=False, **data)
    return result if result.verdict == "FAIL" else None


def first_difference(run: Run, result: Verification) -> int | None:
    """The number of the first plan at full size in which the methods of a lineage differ from proved ones."""
    for finding in result.findings:
        if finding.audit == "plan-law" and "equal" in finding.values:
            same = "differs_below" in finding.values
            return None if same else whole(finding.values["equal"]) + 1
    key = bytes.fromhex(result.key)
    trial = trial_of(Case(Evidence(run, parent_of(run), None), Keyed(key)))
    beside = references(trial, key)
    for start in range(0, PlanLaw().plans, BLOCK):
        found = compare(trial, beside, key, range(start, start + BLOCK))
        if found.first is not None:
            return start + found.equal + 1
    return None


def examined(parent: Run, method: Method, folder: Path, **data: Any) -> dict[str, Any]:
    """What ``verify`` says of a method on a run where it goes wrong: a row of the table."""
    run, options = parent, {}
    if method.knows:
        cohorts = [client for round_number in range(1, method.knows + 1) for client in parent.plan.cohort(round_number)]
        options = {"known": cohorts}
    if method.asks == "sample again":
        first = next(iter(involved(parent).samples))
        run = unlearn(parent, method.name, Request.of(samples=[first]), folder / f"{method.name}-first", **data)
    request = chosen(run, method, options)
    child = unlearn(run, method.name, request, folder / method.name, options, allow_inexact=True, **data)
    hidden = method.right or method.beyond or method.knows
    result = None if hidden else refuted(child, KEY, **data)
    result = result or verify(child, key=KEY, save=False, budget=0, **data)
    return row_of(method, result, first_difference(child, result))


def row_of(method: Method, result: Verification, differs: int | None) -> dict[str, Any]:
    """What the table says of a method."""
    found = {finding.audit: finding for finding in result.findings}
    return {
        "method": method.name,
        "request": result.context["request"],
        "verdict": str(result.verdict),
        "named": any("the code of " in finding.qualification for finding in result.findings),
        "decided": decided(result.findings),
        "differs": differs,
        "findings": {
            name: {"verdict": str(f.verdict), "shows": f.shows, "statistic": dict(f.values)}
            for name, f in found.items()
        },
    }


LEVELS = {
    "provenance": "the run's plan",
    "enumeration": "small federations",
    "plan-law": "plans at full size",
}


def decided(findings: Sequence[Finding]) -> list[str]:
    """The audits that a verdict follows from, each with what it looked at before it knew."""
    found = {finding.audit: finding for finding in findings}
    refuted = [f for f in findings if f.verdict == "FAIL"]
    return [said(f) for f in (refuted or [found["enumeration"], found["plan-law"]])]


def whole(value: Value) -> int:
    """A figure that is a whole number; TypeError for another one."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def said(finding: Finding) -> str:
    """An audit with its verdict and how many federations or plans it took."""
    figures, words = finding.values, f"{LEVELS.get(finding.audit, finding.audit)}: {finding.verdict}"
    if finding.audit == "enumeration":
        federations = counted(whole(figures["proved"]) + whole(figures["refuted"]), "federation")
        apart = f", distance {figures['total_variation']}" if figures["refuted"] else ""
        return f"{words} after {federations}{apart}"
    if finding.audit != "plan-law":
        return words
    if figures.get("differs_below") is not None:
        return f"{words}, {figures['equal']:,} plans equal" + (
            ", the run's own not" if str(figures["own_plan"]).startswith("differs") else ""
        )
    after = figures.get("rejected_at")
    if figures.get("plans_with_target"):
        looked = f"the target in {figures['plans_with_target']:,} of {figures['plans']:,}"
    else:
        looked = (f"rejected after {after:,} of" if after else "not rejected by") + f" {figures['plans']:,}"
    return f"{words}; plan {whole(figures['equal']) + 1:,} differs, {looked}"


def acceptable(method: Method, row: Mapping[str, Any]) -> bool:
    """Right methods pass; wrong ones do not, but for those beyond every cap, whose PASS names their code."""
    if method.right:
        return bool(row["verdict"] == "PASS")
    return bool(row["verdict"] != "PASS" or (method.beyond and row["named"]))


HEAD = ("method", "what it does", "request", "verdict", "what decided", "first plan that differs")


def page(folder: Path) -> str:
    """All rows as tables in Markdown."""
    parts = []
    for setting in SETTINGS:
        parts += [f"## {setting}", "", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
        for method in METHODS:
            path = folder / f"{setting}-{method.name}.json"
            if path.exists():
                row = json.loads(path.read_text())
                verdict = row["verdict"] + (", names its code" if row["named"] else "")
                differs = "none" if row["differs"] is None else f"{row['differs']:,}"
                cells = (f"`{method.name}`", method.fault, row["request"], verdict, "; ".join(row["decided"]), differs)
                parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", choices=SETTINGS, default="digits")
    parser.add_argument("--folder", type=Path, required=True, help="rows and runs; what is there stays")
    parser.add_argument("--method", action="append", help="only this one; may be given several times")
    parser.add_argument("--page", action="store_true", help="print the rows as tables, and compute nothing")
    given = parser.parse_args()
    if given.page:
        print(page(given.folder))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    print(hardware(), flush=True)
    with tempfile.TemporaryDirectory() as runs:
        raise SystemExit(tabled(given, Path(runs)))


def tabled(given: argparse.Namespace, runs: Path) -> int:
    """Compute what is missing, print all rows; 1 if any is not as it should be."""
    dataset = SETTINGS[given.setting].dataset()
    parent = train(SETTINGS[given.setting].config, runs / "parent", secret=SECRET, data=dataset)
    wrong = 0
    for method in METHODS:
        path = given.folder / f"{given.setting}-{method.name}.json"
        if given.method and method.name not in given.method:
            continue
        if not path.exists():
            row = examined(parent, method, runs, data=dataset)
            path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
        row = json.loads(path.read_text())
        good = acceptable(method, row)
        wrong += not good
        print(f"{'' if good else 'NOT AS IT SHOULD: '}{method.name}: {row['verdict']}; {row['decided']}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    main()
