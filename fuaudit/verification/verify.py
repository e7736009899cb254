"""Verify: a run against a spec. Reads runs, writes findings beside them, never into them."""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fuaudit import registry
from fuaudit.config import Config
from fuaudit.data.dataset import Dataset, padded, require_sound
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, FuauditError, PluginError, UsageError
from fuaudit.plans import Request
from fuaudit.progress import Progress, silent
from fuaudit.runs.files import (
    append_line,
    canonical_json,
    named,
    parse_json,
    pretty_json,
    read_bytes,
    refuse_link,
    sha256,
    write_bytes,
)
from fuaudit.runs.prune import Tombstone, parent_of
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.writer import versions
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.training.setup import load_dataset
from fuaudit.unlearning.apply import provenance
from fuaudit.verification.case import Case
from fuaudit.verification.executor import executor
from fuaudit.verification.finding import EXIT_CODES, FORMAT, Finding, Subject, Verdict, combine
from fuaudit.verification.parameters.pairs import runs_a_pair
from fuaudit.verification.spec import Check, Spec, read_spec

FINDINGS = "findings.json"
LOG = "log.jsonl"
NOTHING = "It shows nothing about the run."

FOLDERS = {"--data": "DATA", "--erased": "ROWS", "--parent": "PARENT"}
"""Options that take a folder of the auditor's own machine, and what stands for it in findings."""


@dataclass(frozen=True)
class Verification:
    """The findings of a run under a spec, their combined verdict, and what is needed to repeat them."""

    run: Path
    run_digest: str
    spec: Spec
    key: str
    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...]
    lineage: tuple[dict[str, Any], ...]
    context: dict[str, Any]

    @property
    def exit_code(self) -> int:
        """Of the command line."""
        return EXIT_CODES[self.verdict]

    def as_json(self) -> dict[str, Any]:
        """The document that is stored and reported; equal evidence, spec, key and arguments give equal bytes."""
        checks = [
            {"claim": check.claim, "role": check.role, "basis": list(check.basis), "finding": asdict(finding)}
            for check, finding in zip(self.spec.checks, self.findings, strict=True)
        ]
        return {
            "format": FORMAT,
            "run": self.run_digest,
            "spec": {"id": self.spec.id, "title": self.spec.title, "digest": self.spec.digest, "asks": self.spec.asks},
            "key": self.key,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "checks": checks,
            "out_of_scope": list(self.spec.out_of_scope),
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
    kept: Path | None = None,
    until_decided: bool = False,
    dataset: Dataset | None = None,
    out: Path | None = None,
    save: bool = True,
    progress: Progress = silent,
    estimate: Callable[[str], None] | None = None,
    spot: int | None = None,
) -> Verification:
    """Audit a run against a spec, and store the findings in ``<run>.audit/findings.json``.

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
        kept: a folder that keeps what repeated sampling has finished, so that the same call goes on from there
            after a kill. It needs ``key``: results belong to one.
        until_decided: stop repeated sampling when its test by betting rejects, and go on beyond the pairs of the
            spec, up to ``budget``, until it has power.
        estimate: called with a sentence about the cost before repeated sampling starts.
        spot: replay so many stretches between stored models only, drawn by the key; at most INCONCLUSIVE where a
            spec asks for exactness and some stretch was left out. The spec decides by default.

    Raises:
        EvidenceError: the run or its parent is missing, incomplete or altered.
        UsageError: an unknown spec, or arguments that do not fit.
        PluginError: a plugin failed.
        StorageError: the findings cannot be written, or their folder or log is a link.
    """
    if spot is not None and spot < 1:
        raise UsageError(f"a spot check replays at least 1 stretch, not {spot}")
    opened = run if isinstance(run, Run) else load_run(run)
    above = parent_of(opened, parent)
    policy = spec if isinstance(spec, Spec) else read_spec(spec or default_spec(opened))
    if dataset is not None:
        require_sound(dataset)
    data = _data(opened.config, root, erased, _rows(opened, above), dataset)
    if kept is not None and key is None:
        raise UsageError("kept results belong to a key, and none was given", "Choose one: openssl rand -hex 32")
    chosen = key if key is not None else secrets.token_bytes(32)
    folder = out or audit_folder(opened.path)
    if save:
        refuse_link(folder)
        refuse_link(folder / LOG)
    case = Case(
        opened,
        above,
        data,
        Keyed(chosen),
        commitment,
        expected,
        budget,
        progress,
        spot=spot,
        executor=executor(workers),
        kept=kept,
        until_decided=until_decided,
    )
    if estimate and data is not None and opened.is_child:
        estimate(cost(case, policy))
    context = _context(case)  # before the audits: what cannot be read should not cost their time
    with threads_restored():
        findings = tuple(_examine(check, case) for check in policy.checks)
    verdict, reason = conclude(policy, findings, case)
    result = Verification(
        opened.path,
        opened.digest,
        policy,
        chosen.hex(),
        verdict,
        reason,
        findings,
        lineage_of(case),
        context
        | {"arguments": _arguments(case, {"--data": root, "--erased": erased, "--parent": parent})}
        | {"error_rates": error_rates(policy, findings)},
    )
    if save:
        content = pretty_json(result.as_json())
        write_bytes(folder / FINDINGS, content)
        # every verification leaves a line, so that running again until it turns green would show
        entry = {"key": result.key, "key_given": key is not None, "verdict": str(verdict), "findings": sha256(content)}
        append_line(folder / LOG, canonical_json(entry | {"spec": policy.digest, "run": opened.digest}))
    return result


def audit_folder(run: Path) -> Path:
    """Where the findings and reports of a run lie: beside it, for a run is never edited."""
    folder = named(run)
    return folder.with_name(folder.name + ".audit")


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
    return replace(data, absent=data.absent & other.absent)


def _examine(check: Check, case: Case) -> Finding:
    """One audit; what breaks inside it becomes an ERROR finding, never a pass."""
    audit = registry.build("audits", check.audit)
    try:
        finding = audit.examine(case)
    except (EvidenceError, PluginError):
        raise
    except FuauditError as error:
        return Finding(
            check.audit["use"],
            Subject.RUN,
            Verdict.INCONCLUSIVE,
            f"The audit could not be carried out: {error}",
            NOTHING,
        )
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Finding(
            check.audit["use"],
            Subject.RUN,
            Verdict.ERROR,
            f"The audit broke: {error!r}",
            NOTHING,
            details=(f"in {where.name}, line {where.lineno} of {Path(where.filename).name}",),
        )
    if not isinstance(finding, Finding):
        raise PluginError(f"audit {check.audit['use']!r} returned {type(finding).__name__}, not a Finding")
    return finding


def conclude(spec: Spec, findings: tuple[Finding, ...], case: Case) -> tuple[Verdict, str]:
    """The combined verdict and one sentence why; see :func:`fuaudit.verification.finding.combine`.

    Where a spec asks for exactness, an editor of models can be refuted but never pass: no test on its models
    shows equality.
    """
    # where a bound is asked of an editor, checks of plans do not arise
    moot = spec.asks == "bound" and case.is_editor
    roles = [
        (check, finding)
        for check, finding in zip(spec.checks, findings, strict=True)
        if not (moot and finding.verdict is Verdict.NOT_APPLICABLE)
    ]
    verdict = combine(
        [f.verdict for c, f in roles if c.role == "required"], [f.verdict for c, f in roles if c.role == "supporting"]
    )
    if verdict is Verdict.FAIL:
        return verdict, next(f.shows for f in findings if f.verdict is Verdict.FAIL)
    if verdict is Verdict.ERROR:
        return verdict, next(f.shows for _, f in roles if f.verdict is Verdict.ERROR)
    if not case.run.is_child:
        return Verdict.INCONCLUSIVE, "This is a training run: there is no request whose fulfilment could be judged."
    if spec.asks == "exact" and case.is_editor:
        name = case.run.info["unlearner"]["use"]
        return (
            Verdict.INCONCLUSIVE,
            f"The spec asks for exact erasure; {name!r} edits models, which no audit can show to be exact.",
        )
    if verdict is Verdict.PASS:
        scope = "exact erasure" if spec.asks == "exact" else "the stated bound"
        loose = any("tolerance" in f.statistic for _, f in roles if f.verdict is Verdict.PASS)
        how = " On another platform than the run's, models were compared within a tolerance." if loose else ""
        return (
            verdict,
            f"Every required check passed for the request to forget {case.request}: "
            f"evidence for {scope} within the stated scope.{how}",
        )
    undecided = (f.shows for c, f in roles if c.role == "required" and f.verdict is not Verdict.PASS)
    return verdict, next(undecided, "The spec has no required check that applies to this run.")


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


def _context(case: Case) -> dict[str, Any]:
    """Who computed what: engine, versions, the unlearner and its claims, the metrics of the run."""
    info = case.run.info
    table: dict[str, Any] = {
        "engine": info["engine"],
        "device": info["device"],
        "run_versions": info["versions"],
        "audit_versions": versions(),
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
            "first_change": info.get("first_change"),
        }
    return table


def error_rates(spec: Spec, findings: tuple[Finding, ...]) -> dict[str, float | None]:
    """The error rates that the findings have spent, summed over the audits (Boole's inequality).

    ``tests``: the chance that any test rejects what it should not, at most; ``allowed`` is what the spec has for
    that. ``bounds``: the chance that any stated bound is wrong, at most; each holds at its own level.
    """

    def spent(name: str) -> float:
        rates = (finding.statistic.get(name) for finding in findings)
        return sum(rate for rate in rates if isinstance(rate, float) and rate > 0)

    return {"allowed": spec.alpha, "tests": spent("alpha"), "bounds": spent("alpha_bounds")}


def _arguments(case: Case, folders: dict[str, Path | None]) -> list[str]:
    """What a command line needs besides run, spec and key to come to these findings; folders are named, not given.

    Workers and kept results are left out: they change no finding.
    """
    options: list[tuple[str, object]] = [(name, FOLDERS[name]) for name, path in folders.items() if path is not None]
    options += [("--commitment", case.commitment)]
    if case.expected is not None:
        options += [("--client", client) for client in case.expected.clients]
        options += [("--sample", _place(case.run, sample)) for sample in case.expected.samples]
    options += [
        ("--budget", case.budget),
        ("--spot", case.spot),
        ("--until", "decided" if case.until_decided else None),
    ]
    return [word for name, value in options if value is not None for word in (name, str(value))]


def _place(run: Run, sample: int) -> str:
    """CLIENT:INDEX of a sample, by the numbers of before training; its id where no client had it."""
    for client in run.original.clients:
        if sample in (numbered := run.numbered(client)):
            return f"{client}:{numbered.index(sample)}"
    return str(sample)


def cost(case: Case, spec: Spec) -> str:
    """A sentence about the work that repeated sampling will take, in runs and client steps."""
    for check in spec.checks:
        if check.audit["use"] == "parameters":
            audit = registry.build("audits", check.audit)
            pairs, runs = audit.limit(case), runs_a_pair(case.is_editor)
            law = case.run.plan.law
            steps = pairs * runs * law.rounds * law.places(case.run.original) * law.steps
            return f"repeated sampling: {pairs} pairs, {pairs * runs} training runs, at most {steps:,} client steps"
    return "no repeated sampling"


def read_findings(run: Path) -> dict[str, Any]:
    """The stored findings of a run.

    Raises:
        EvidenceError: the run does not check out, there are no findings, they are of another run, or not those that
            were stored last.
        StorageError: their folder is a link.
    """
    folder = audit_folder(run)
    path = folder / FINDINGS
    refuse_link(folder)
    if not path.exists():
        raise EvidenceError(f"{run} has no findings yet", f"Make them with: fuaudit verify {run}")
    content, anew = read_bytes(path), f"Make them anew with: fuaudit verify {run}"
    document = parse_json(content, path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise EvidenceError(f"{path} does not hold findings")
    if document.get("run") != load_run(run).digest:
        raise EvidenceError(f"{path} holds the findings of another run, or of this one before it was pruned", anew)
    if (folder / LOG).exists() or (folder / LOG).is_symlink():
        last = parse_json(read_bytes(folder / LOG).rstrip(b"\n").rpartition(b"\n")[2], folder / LOG)
        if not isinstance(last, dict) or last.get("findings") != sha256(content) or last.get("run") != document["run"]:
            raise EvidenceError(f"{path} is not what the last line of {LOG} beside it names", anew)
    return document
