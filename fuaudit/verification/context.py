"""Context: what findings say of the run beside what audits found, and of how to repeat them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuaudit import registry
from fuaudit.data.adversaries import in_words
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.fears import fears_of
from fuaudit.runs.names import asked_in, besides, place_of, rows_of, to_forget
from fuaudit.runs.platforms import makers, platforms_of, versions
from fuaudit.runs.procedure import in_words as round_in_words
from fuaudit.runs.run import Run
from fuaudit.runs.sums import sums_of
from fuaudit.runs.tombstone import Tombstone
from fuaudit.runs.traffic import traffic
from fuaudit.unlearning.apply import unlearner_record
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.finding import Verdict
from fuaudit.verification.released import released

FOLDERS = {
    **{"data": "DATA", "erased": "ROWS", "parent": "PARENT"},
    **{"model": "MODEL", "before": "FINDINGS", "roster": "ROSTER"},
}
"""Options that take a path of the auditor's own machine, and what stands for it in findings."""


def lineage_of(evidence: Evidence) -> tuple[dict[str, Any], ...]:
    """The run and its ancestors at hand, youngest first."""
    rows: list[dict[str, Any]] = []
    for run in (evidence.run, *evidence.ancestors):
        row: dict[str, Any] = {"digest": run.digest, "name": run.path.name, "kind": "pruned"}
        if isinstance(run, Run):
            row["kind"] = run.info["kind"]
            if run.is_child:
                row |= {"unlearner": run.info["unlearner"]["use"], "request": str(run.request)}
        rows.append(row)
    return tuple(rows)


def context_of(case: Case, delta: float | None = None) -> dict[str, Any]:
    """Who computed what: engine, versions, the unlearner and its claims, the metrics of the run.

    ``delta``: of the account of what rounds released; None for that of the config.
    """
    run, info = case.run, case.run.info
    table: dict[str, Any] = {
        "engine": info["engine"],
        "device": info["device"],
        "run_versions": _versions_of(run),
        "audit_versions": versions(),
        "model": digest_of_vector(run.model),
        "served": _model_in_use(case),
        "metrics": run.metrics,
        "released": released(case, delta),
    }
    if run.sealed:
        table["sealed"] = True
    else:
        seen = {name: run.participation[name] for name in ("cohorts", "uploads")}
        table["participation"] = seen | {"own_accuracy": run.own_accuracy}
    if "edited_by" in info:
        # uploads are those of the plan; what the edit itself sent is no part of them
        table["edited_by"] = info["edited_by"]
        table.get("participation", {}).pop("uploads", None)
    elif not run.exchange.plain and not run.sealed:
        table["traffic"] = traffic(run).table()
    if not run.exchange.plain:
        table["round"] = round_in_words(run.config)
    if (sums := sums_of(run)) is not None:
        table["sums"] = sums.table()
    if run.config.adversary:
        table["adversaries"] = in_words(run.config.adversary)
    if fears := fears_of(run):
        table["fears"] = fears
    if isinstance(case.parent, Run):
        table["parent_metrics"] = case.parent.metrics
    if run.is_child:
        installed = registry.find("unlearners", info["unlearner"]["use"])
        table |= {
            # what the installed plugin says of itself, not what the run says of it
            "unlearner": unlearner_record(installed, case.evidence.unlearner),
            "request": str(run.request),
            "to_forget": to_forget(run, case.known.request),
            "first_change": info.get("first_change"),
        }
        if case.known.request is not None:
            table["asked"] = _asked(case, case.known.request)
    return table


def _asked(case: Case, expected: Request) -> dict[str, Any]:
    """What was asked for, how far the lineage tells what was done for it, and who else is named in the lineage."""
    run, chain = case.run, (case.run, *case.evidence.ancestors)
    hers = {*expected.clients, *(run.owner.get(sample) for sample in expected.samples)}
    others = (row for one in run.requests for row in rows_of(run, besides(one, expected)) if row["client"] not in hers)
    return {
        "to_forget": rows_of(run, expected),
        "requests": len(run.requests),
        "done": [_done(number, chain[len(run.requests) - number :]) for number in asked_in(run, expected)],
        "others": list(others),
    }


def _done(number: int, chain: Sequence[Run | Tombstone]) -> dict[str, Any]:
    """What the run that carried out a request, the first of a chain, records of it; without that, the number alone.

    ``remains`` is there where that run was pruned: its tombstone alone tells it.
    """
    if not chain:
        return {"request": number}
    info = chain[0].info
    words = {name: info["unlearner"][name] for name in ("use", "kind")}
    remains = {"remains": True} if isinstance(chain[0], Tombstone) else {}
    return {"request": number, **words, "first_change": info.get("first_change")} | remains


def _versions_of(run: Run) -> dict[str, str]:
    """The versions and canaries of all platforms that made models of a run; several of one name, in their order."""
    tables = [{**platform.versions, "canary": platform.canary[:16]} for platform in makers(platforms_of(run.ledger))]
    return {name: " and ".join(dict.fromkeys(t[name] for t in tables if name in t)) for name in tables[-1]}


def _model_in_use(case: Case) -> dict[str, Any] | None:
    """The model in use: SHA-256 of its file, and whether it is the run's; None where none was given."""
    if case.known.model is None or case.in_use is None:
        return None
    return {"sha256": case.known.model.sha256, "same": {Verdict.PASS: True, Verdict.FAIL: False}.get(case.in_use[0])}


def arguments_of(case: Case, given: Mapping[str, Any]) -> list[str]:
    """What a command line needs besides run, spec and key to come to these findings; folders are named, not given.

    Workers and kept results are left out: they change no finding.
    """
    known, effort = case.known, case.effort
    options: list[tuple[str, object]] = [
        (f"--{word}", stands)
        for word, stands in FOLDERS.items()
        if given.get(word) is not None and not isinstance(given[word], Dataset)
    ]
    options += [("--commitment", known.commitment), ("--beacon", known.beacon), ("--ledger-head", known.ledger_head)]
    options += [("--receipt", f"RECEIPT-{receipt.client}") for receipt in known.receipts]
    if known.request is not None:
        options += [("--client", case.run.name(client) or client) for client in known.request.clients]
        options += [("--sample", _place(case.run, sample)) for sample in known.request.samples]
    options += [
        ("--delta", given.get("delta")),
        ("--budget", effort.budget),
        ("--spot-check", effort.spot_check),
        ("--stopping", "decided" if effort.stopping == "decided" else None),
    ]
    return [word for name, value in options if value is not None for word in (name, str(value))]


def _place(run: Run, sample: int) -> str:
    """NAME:INDEX of a sample, by the numbers of before training; its id where no client had it."""
    client, index = place_of(run, sample)
    return str(sample) if client is None else f"{run.name(client) or client}:{index}"
