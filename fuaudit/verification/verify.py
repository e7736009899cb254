"""Verify: a run against a spec. Reads runs, writes findings beside them, never into them."""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fuaudit import registry
from fuaudit.commitments.keys import beacon_of
from fuaudit.config import Config
from fuaudit.data.dataset import Dataset, padded, require_sound
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, FuauditError, PluginError, UsageError
from fuaudit.formats.files import read_bytes, read_json, sha256
from fuaudit.plans import Request
from fuaudit.progress import Progress, silent
from fuaudit.runs.names import place_of, to_forget
from fuaudit.runs.platforms import makers, told
from fuaudit.runs.prune import Tombstone, parent_of
from fuaudit.runs.receipts import Receipt, read_receipt
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.writer import digest_of_vector, versions
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.training.setup import load_dataset
from fuaudit.unlearning.apply import provenance
from fuaudit.verification import store
from fuaudit.verification.athand import require_ids_of
from fuaudit.verification.audit import ARGUMENTS, wrong_in
from fuaudit.verification.case import Case
from fuaudit.verification.conclude import Conclusion, conclude, error_rates
from fuaudit.verification.finding import EXIT_CODES, FORMAT, Finding, Subject, Verdict, require_findings
from fuaudit.verification.outside import outside_code, require_trusted
from fuaudit.verification.served import difference, in_use, read_served
from fuaudit.verification.spec import Check, Spec, read_spec
from fuaudit.verification.store import audit_folder
from fuaudit.workers import executor

NOTHING = "It shows nothing about the run."

FOLDERS = {"--data": "DATA", "--erased": "ROWS", "--parent": "PARENT", "--model": "MODEL", "--before": "FINDINGS"}
"""Options that take a path of the auditor's own machine, and what stands for it in findings."""


@dataclass(frozen=True)
class Verification:
    """The findings of a run under a spec, what follows from them, and what is needed to repeat them.

    Attributes:
        conclusion: the combined verdict, the reason, and what a PASS rests on.
        broken: where an audit broke, the exit code that says whose fault it was; else 0.
        path: the file of its findings; None where they were not stored.
        standing: which verification of this run it is by the log beside it; empty where it was not stored.
    """

    run: Path
    run_digest: str
    spec: Spec
    key: str
    conclusion: Conclusion
    findings: tuple[Finding, ...]
    lineage: tuple[dict[str, Any], ...]
    context: dict[str, Any]
    broken: int = 0
    path: Path | None = None
    standing: str = ""

    @property
    def verdict(self) -> Verdict:
        """Of all checks together."""
        return self.conclusion.verdict

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.conclusion.reason

    @property
    def exit_code(self) -> int:
        """Of the command line. Where an audit broke, it says whose fault it was: 5 a plugin's, 70 fuaudit's own."""
        return self.broken if self.verdict is Verdict.ERROR and self.broken else EXIT_CODES[self.verdict]

    def as_json(self) -> dict[str, Any]:
        """The document that is stored and reported; equal evidence, spec, key and arguments give equal bytes."""
        spec = self.spec
        checks = [
            {
                "claim": check.claim,
                "role": check.role,
                "basis": list(check.basis),
                "evidence": sorted(check.declared().evidence),
                "recomputes": check.declared().recomputes,
                "finding": asdict(finding),
            }
            for check, finding in zip(spec.checks, self.findings, strict=True)
        ]
        words: dict[str, Any] = {"id": spec.id, "title": spec.title, "digest": spec.digest, "asks": spec.asks}
        words |= {"origin": spec.source} | ({"claim": spec.claim.told} if spec.claim.of else {})
        return {
            "format": FORMAT,
            "run": self.run_digest,
            "spec": words,
            "key": self.key,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "rests_on": list(self.conclusion.rests_on),
            "checks": checks,
            "out_of_scope": list(spec.out_of_scope),
            "lineage": list(self.lineage),
            "context": self.context,
        }


def verify(
    run: Run | Path | str,
    spec: Spec | Path | str | None = None,
    root: Path | None = None,
    erased: Path | None = None,
    parent: Path | None = None,
    commitment: str | None = None,
    expected: Request | None = None,
    budget: int | None = None,
    key: bytes | None = None,
    workers: int = 1,
    cache: Path | None = None,
    until_decided: bool = False,
    dataset: Dataset | None = None,
    out: Path | None = None,
    save: bool = True,
    progress: Progress = silent,
    estimate: Callable[[str], None] | None = None,
    spot_check: int | None = None,
    model: Path | None = None,
    receipts: Sequence[Path] = (),
    before: Path | None = None,
    beacon: str | None = None,
) -> Verification:
    """Audit a run against a spec, and store the findings in a file of their own in ``<run>.audit``.

    Args:
        spec: a spec, its file, or the name of a built-in one; by default the one for the run's kind of request.
        root: the folder of the data, for datasets that need one.
        erased: a folder of the same dataset that holds the erased rows, where ``root`` no longer does.
        parent: the parent's folder, by default beside the run.
        commitment: the commitment that was received before training, in hexadecimal.
        expected: the request that should have been carried out; another one is a FAIL.
        budget: the most training runs to execute for repeated sampling.
        key: 32 bytes from which the audit draws; fresh from the operating system by default.
        workers: how many processes share repeated sampling; 1 is this one. It changes no finding.
        cache: a folder that keeps what repeated sampling has finished, so that the same call goes on from there
            after a kill. It needs ``key``: results belong to one.
        until_decided: stop repeated sampling when its test by betting rejects, and go on beyond the pairs of the
            spec, up to ``budget``, until it has power.
        dataset: the rows themselves, in the place of ``root`` and ``erased``.
        estimate: called with sentences before the audits: the cost of repeated sampling, and what will be a FAIL.
        spot_check: replay so many stretches between stored models only, drawn by the key; at most INCONCLUSIVE where a
            spec asks for exactness and some stretch was left out. The spec decides by default.
        model: the file of the model in use; another one than the run's last is a FAIL.
        receipts: files of receipts of clients whose data was to be forgotten; retained rows are compared with them.
        before: a file of findings from before the run was pruned. What a prune has made impossible to show rests on
            them, where they are of the very run that was pruned, passed `provenance` and `plan-law`, and compared the
            commitment and a request if these are given now.
        beacon: what was published after the commitment, in hexadecimal; a run that did not mix it in is a FAIL.

    Raises:
        EvidenceError: the run or its parent is missing, incomplete or altered, or names code that the spec does not
            trust.
        UsageError: an unknown spec, or arguments that do not fit, or that no check of the spec looks at.
        PluginError: a plugin failed outside the audits. One that fails inside an audit makes an ERROR of that check,
            and the findings of the others stay.
        StorageError: the findings cannot be written, or their folder or log is a link.
    """
    given = {
        "data": root,
        "erased": erased,
        "parent": parent,
        "commitment": commitment,
        "request": expected,
        "budget": budget or None,  # a limit of no run at all is kept by whoever runs none
        "spot_check": spot_check,
        "stopping": until_decided or None,
        "cache": cache,
        "model": model,
        "receipt": receipts or None,
        "before": before,
        "beacon": beacon,
    }
    _require_fitting(given, key, dataset)
    # 1. the policy, and 2. the run, of which nothing is imported that the policy does not trust
    policy = None if spec is None else spec if isinstance(spec, Spec) else read_spec(spec)
    with registry.trusting(policy.trusts if policy else None), threads_restored():
        opened = run if isinstance(run, Run) else load_run(run)
        policy = policy or read_spec(default_spec(opened))
        _require_used(given, policy, opened)
        # 3. the evidence
        above = parent_of(opened, parent)
        if dataset is not None:
            require_sound(dataset)
        data = _data(opened.config, root, erased, _rows(opened, above), dataset)
        chosen = key if key is not None else secrets.token_bytes(32)
        case = Case(
            opened,
            above,
            data,
            Keyed(chosen),
            commitment,
            expected,
            budget,
            progress,
            spot_check=spot_check,
            executor=executor(workers),
            cache=cache,
            until_decided=until_decided,
            served=None if model is None else read_served(model, opened),
            receipts=_receipts(opened, receipts),
            earlier=None if before is None else _earlier(before, opened, above),
            earlier_sha256="" if before is None else sha256(read_bytes(before)),
            beacon=None if beacon is None else beacon_of(beacon),
        )
        outside = outside_code(case, policy)
        require_trusted(outside, policy)
        folders = {"--data": root, "--erased": erased, "--parent": parent, "--model": model, "--before": before}
        arguments = _arguments(case, folders)
        context = _context(case)  # before the audits: what cannot be read should not cost their time
        if estimate:
            for line in _foreseen(case):
                estimate(line)
            if data is not None and opened.is_child:
                estimate(cost(case, policy))
        # 4. the log says that it begins, so that what is broken off shows; what cannot be written is found out here
        folder = out or audit_folder(opened.path)
        named = {"id": policy.id, "origin": policy.source, "digest": policy.digest}
        number = store.begin(folder, opened.digest, named, key is not None, arguments) if save else 0
        # 5. the audits
        examined = [_examine(check, case) for check in policy.checks]
        trusted = tuple(code.assumption for code in outside)
        findings = tuple(_with(finding, trusted) for finding, _ in examined)
        result = Verification(
            opened.path,
            opened.digest,
            policy,
            chosen.hex(),
            conclude(policy, findings, case, outside),
            findings,
            lineage_of(case),
            context
            | {"arguments": arguments, "outside": [asdict(code) for code in outside]}
            | {"error_rates": error_rates(policy, findings)},
            broken=min((code for _, code in examined if code), default=0),
        )
    if not save:
        return result
    path = store.finish(folder, number, str(result.verdict), result.as_json())
    return replace(result, path=path, standing=store.standing(store.history(folder), number))


def _require_fitting(given: dict[str, Any], key: bytes | None, dataset: Dataset | None) -> None:
    """Raises UsageError for arguments that contradict each other, whatever the run."""
    if given["spot_check"] is not None and given["spot_check"] < 1:
        raise UsageError(f"a spot check replays at least 1 stretch, not {given['spot_check']}")
    if given["cache"] is not None and key is None:
        raise UsageError("kept results belong to a key, and none was given", "Choose one: openssl rand -hex 32")
    if dataset is not None and (given["data"] is not None or given["erased"] is not None):
        raise UsageError(
            "rows were given (dataset) beside a folder of rows (root or erased), which would be ignored",
            "Give one of them; absent rows can be marked in the dataset.",
        )


def _require_used(given: dict[str, Any], spec: Spec, run: Run) -> None:
    """Raises UsageError where something was given that nothing will be compared with."""
    if unused := [ARGUMENTS[word] for word, value in given.items() if value is not None and word not in spec.uses]:
        raise UsageError(
            f"no check of {spec.id} looks at {', '.join(unused)}: nothing would be compared with what was given",
            "Leave it out, or choose a spec whose checks use it.",
        )
    if not run.is_child and (ours := [word for word in ("request", "parent") if given[word] is not None]):
        raise UsageError(
            f"{run.path} is a training run: it carries out no request and has no parent",
            f"Leave {' and '.join(ARGUMENTS[word] for word in ours)} out, or verify the run that unlearning wrote.",
        )


def _foreseen(case: Case) -> Iterator[str]:
    """What will be a FAIL, known before the audits: whoever mistyped an argument need not wait for them."""
    run = case.run
    if case.expected is not None and case.expected != run.request:
        yield f"The run carries out a request for {run.request}, not for {case.expected}: this will be a FAIL."
    if case.commitment is not None and case.commitment != run.commitment:
        yield f"The run is under the commitment {run.commitment}, not the one given: this will be a FAIL."
    served = in_use(case)
    if served is not None and served[0] is Verdict.FAIL:
        yield f"{served[1]} This will be a FAIL."


def _receipts(run: Run, paths: Sequence[Path]) -> tuple[Receipt, ...]:
    """The receipts in some files.

    Raises:
        UsageError: one is of somebody of whom nothing was to be forgotten.
        EvidenceError: one gives other ids than the partition.
    """
    found = tuple(map(read_receipt, paths))
    clients = {client for request in run.requests for client in request.clients}
    samples = {sample for request in run.requests for sample in request.samples}
    for path, receipt in zip(paths, found, strict=True):
        if receipt.client not in clients and not samples.intersection(row.id for row in receipt.rows):
            raise UsageError(
                f"{path} is the receipt of {receipt.whose!r}, client {receipt.client}, whom no request names",
                "Give receipts of those whom the requests of this run name.",
            )
        if receipt.commitment == run.commitment:
            require_ids_of(run, receipt)
    return found


def _earlier(path: Path, run: Run, above: Run | Tombstone | None) -> dict[str, Any]:
    """Findings from before a prune of a run of the lineage; EvidenceError when the file holds none.

    Raises:
        UsageError: no run at hand was pruned.
    """
    document = require_findings(read_json(path), path)
    pruned, ancestor = run.pruned, above
    while ancestor is not None:
        pruned, ancestor = pruned or (isinstance(ancestor, Run) and ancestor.pruned), parent_of(ancestor)
    if not pruned:
        raise UsageError(f"{run.path} was never pruned, nor was an ancestor at hand", "Leave --before out.")
    return document


def _with(finding: Finding, trusted: tuple[str, ...]) -> Finding:
    """The finding, with the outside code that ran among what it takes on trust."""
    return replace(finding, assumptions=(*finding.assumptions, *trusted))


def default_spec(run: Run) -> str:
    """The built-in spec for the run's kind of request."""
    return "sample-erasure" if run.is_child and run.request.kind == "sample" else "client-erasure"


def _rows(run: Run, above: Run | Tombstone | None) -> int:
    """How many training rows a lineage knows of."""
    rows = run.rows
    while above is not None:
        rows, above = max(rows, above.rows if isinstance(above, Run) else 0), parent_of(above)
    return rows


def _data(config: Config, root: Path | None, erased: Path | None, rows: int, dataset: Dataset | None) -> Dataset | None:
    """The rows at hand, of so many at least; None when the dataset needs a folder and none was given."""
    try:
        data = dataset or load_dataset(config, root)
    except UsageError:
        if root is not None:
            raise
        return None
    data = padded(data, rows)
    if erased is None or dataset is not None:
        return data
    other = padded(load_dataset(config, erased), data.size)
    data = padded(data, other.size)
    if (other.shape, other.inputs.dtype) != (data.shape, data.inputs.dtype):
        raise UsageError("--erased holds another dataset than --data: their inputs differ in shape or type")
    found = sorted(data.absent - other.absent)
    data.inputs[found], data.targets[found] = other.inputs[found], other.targets[found]
    return replace(_owned(data, other, found), absent=data.absent & other.absent)


def _owned(data: Dataset, other: Dataset, found: list[int]) -> Dataset:
    """The dataset with the owners that another tells of some rows; numbers are those of the one that names more."""
    if not found:
        return data
    if data.owners is None or other.owners is None:
        return replace(data, owners=None, owner_names=())
    most, rest = sorted((data.owner_names, other.owner_names), key=len, reverse=True)
    names = (*most, *(name for name in rest if name not in most))
    owners = _renumbered(data, names)
    owners[found] = _renumbered(other, names)[found]
    return replace(data, owners=owners, owner_names=names)


def _renumbered(data: Dataset, names: tuple[str, ...]) -> torch.Tensor:
    """The owners ``(N,)`` of a dataset by their places among names; as they are where it names none."""
    assert data.owners is not None
    if not data.owner_names:
        return data.owners.clone()
    places = {name: place for place, name in enumerate(names)}
    known = dict(enumerate(places[name] for name in data.owner_names))
    return torch.tensor([known.get(owner, -1) for owner in data.owners.tolist()], dtype=torch.int64)


def _examine(check: Check, case: Case) -> tuple[Finding, int]:
    """One audit, and the exit code where it broke (else 0): what breaks becomes an ERROR finding, never a pass.

    Raises:
        EvidenceError: the evidence is rejected, and no finding of it would count.
    """
    name = check.audit["use"]
    entry, audit = registry.find("audits", name), registry.build("audits", check.audit)
    try:
        finding = audit.examine(case)
    except EvidenceError:
        raise
    except PluginError as error:
        return _broken(name, f"A plugin failed: {error}"), PluginError.exit_code
    except FuauditError as error:
        shows = f"The audit could not be carried out: {error}"
        return Finding(name, Subject.RUN, Verdict.INCONCLUSIVE, shows, NOTHING), 0
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"in {where.name}, line {where.lineno} of {Path(where.filename).name}"
        whose = f" of {entry.distribution} {entry.version}" if not entry.own else ""
        return _broken(name, f"The audit{whose} broke: {error!r}", place), 70 if entry.own else PluginError.exit_code
    if wrong := wrong_in(finding, name, check.declared().alpha(audit)):
        shows = f"The audit of {entry.distribution} {entry.version} broke its contract: {wrong[0]}."
        return _broken(name, shows, *wrong), PluginError.exit_code
    return finding, 0


def _broken(name: str, shows: str, *details: str) -> Finding:
    return Finding(name, Subject.RUN, Verdict.ERROR, shows, NOTHING, details=details)


def lineage_of(case: Case) -> tuple[dict[str, Any], ...]:
    """The run and its ancestors at hand, youngest first."""
    rows: list[dict[str, Any]] = []
    for run in (case.run, *case.ancestors):
        row: dict[str, Any] = {"digest": run.digest, "name": run.path.name, "kind": "pruned"}
        if isinstance(run, Run):
            row["kind"] = run.info["kind"]
            if run.is_child:
                row |= {"unlearner": run.info["unlearner"]["use"], "request": str(run.request)}
        rows.append(row)
    return tuple(rows)


def _versions_of(run: Run) -> dict[str, str]:
    """The versions and canaries of all platforms that made models of a run; several of one name, in their order."""
    tables = [{**platform.versions, "canary": platform.canary[:16]} for platform in makers(told(run.ledger))]
    return {name: " and ".join(dict.fromkeys(t[name] for t in tables if name in t)) for name in tables[-1]}


def _context(case: Case) -> dict[str, Any]:
    """Who computed what: engine, versions, the unlearner and its claims, the metrics of the run."""
    info = case.run.info
    table: dict[str, Any] = {
        "engine": info["engine"],
        "device": info["device"],
        "run_versions": _versions_of(case.run),
        "audit_versions": versions(),
        "model": digest_of_vector(case.run.model),
        "served": _served(case),
        "metrics": case.run.metrics,
        "participation": {name: case.run.participation[name] for name in ("cohorts", "uploads", "own_accuracy")},
    }
    if "edited_by" in info:
        # uploads are those of the plan; what the edit itself sent is no part of them
        table["edited_by"] = info["edited_by"]
        del table["participation"]["uploads"]
    if isinstance(case.parent, Run):
        table["parent_metrics"] = case.parent.metrics
    if case.run.is_child:
        table |= {
            # what the installed plugin says of itself, not what the run says of it
            "unlearner": provenance(registry.find("unlearners", info["unlearner"]["use"]), case.unlearner),
            "request": str(case.run.request),
            "to_forget": to_forget(case.run),
            "first_change": info.get("first_change"),
        }
    return table


def _served(case: Case) -> dict[str, Any] | None:
    """The model in use: SHA-256 of its file, and whether it is the run's; None where none was given."""
    if case.served is None:
        return None
    try:
        return {"sha256": case.served.sha256, "same": not difference(case, case.served)}
    except EvidenceError:
        return {"sha256": case.served.sha256, "same": None}


def _arguments(case: Case, folders: dict[str, Path | None]) -> list[str]:
    """What a command line needs besides run, spec and key to come to these findings; folders are named, not given.

    Workers and kept results are left out: they change no finding.
    """
    options: list[tuple[str, object]] = [(name, FOLDERS[name]) for name, path in folders.items() if path is not None]
    options += [("--commitment", case.commitment), ("--beacon", case.beacon)]
    options += [("--receipt", f"RECEIPT-{receipt.client}") for receipt in case.receipts]
    if case.expected is not None:
        options += [("--client", case.run.name(client) or client) for client in case.expected.clients]
        options += [("--sample", _place(case.run, sample)) for sample in case.expected.samples]
    options += [
        ("--budget", case.budget),
        ("--spot-check", case.spot_check),
        ("--stopping", "decided" if case.until_decided else None),
    ]
    return [word for name, value in options if value is not None for word in (name, str(value))]


def _place(run: Run, sample: int) -> str:
    """NAME:INDEX of a sample, by the numbers of before training; its id where no client had it."""
    client, index = place_of(run, sample)
    return str(sample) if client is None else f"{run.name(client) or client}:{index}"


def cost(case: Case, spec: Spec) -> str:
    """What the audits say of the work to come, such as runs and client steps of repeated sampling."""
    audits = [registry.build("audits", check.audit) for check in spec.checks]
    told = [audit.cost(case) for audit in audits if callable(getattr(audit, "cost", None))]
    return "; ".join(filter(None, told)) or "no repeated sampling"
