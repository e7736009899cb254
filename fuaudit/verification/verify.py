"""Verify: a run against a spec. Reads runs, writes findings beside them, never into them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from fuaudit import registry
from fuaudit.declared import says
from fuaudit.draws import Keyed
from fuaudit.plans import Request
from fuaudit.progress import Progress, silent, while_it_shows
from fuaudit.renamed import renamed
from fuaudit.runs.names import asked_in, called, forgets
from fuaudit.runs.run import Run, load_run
from fuaudit.text import said_by
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.verification import store
from fuaudit.verification.apart import apart
from fuaudit.verification.case import Case
from fuaudit.verification.conclude import conclude, error_rates
from fuaudit.verification.context import arguments_of, context_of, lineage_of
from fuaudit.verification.effort import Effort
from fuaudit.verification.examine import examine, unknown_to
from fuaudit.verification.finding import Verdict
from fuaudit.verification.gather import as_path, gather
from fuaudit.verification.given import Given, require_fitting, require_used
from fuaudit.verification.outside import Outside, keeping_to, looked_at, outside_code, require_trusted
from fuaudit.verification.spec import Check, Spec, read_spec
from fuaudit.verification.store import audit_folder
from fuaudit.verification.verification import Verification
from fuaudit.workers import executor


@renamed(root="data", dataset="data", expected="request", kept="cache", until_decided="stopping", spot="spot_check")
def verify(
    run: Run | Path | str,
    spec: Spec | Path | str | None = None,
    key: bytes | None = None,
    out: Path | None = None,
    save: bool = True,
    progress: Progress = silent,
    estimate: Callable[[str], None] | None = None,
    **given: Unpack[Given],
) -> Verification:
    """Audit a run against a spec, and store the findings in a file of their own in ``<run>.audit``.

    Args:
        spec: a spec, its file, or the name of a built-in one; by default the one for the kind of request that was
            asked for, or that the run carried out last.
        key: 32 bytes from which the audit draws; fresh from the operating system by default.
        estimate: called with sentences before the audits: the cost of repeated sampling, and what will be a FAIL.
        given: what the auditor gives beside them; see :class:`fuaudit.verification.given.Given`.

    Raises:
        EvidenceError: the run or its parent is missing, incomplete or altered, or names code that the spec does not
            trust.
        UsageError: an unknown spec, or arguments that do not fit, or that no check of the spec looks at.
        PluginError: a plugin failed outside the audits. One that fails inside an audit makes an ERROR of that check,
            and the findings of the others stay.
        StorageError: the findings cannot be written, or their folder or log is a link.
    """
    require_fitting(given, key)
    # 1. The policy comes first: nothing of the run is imported that it does not trust.
    policy = None if spec is None else spec if isinstance(spec, Spec) else read_spec(spec)
    with registry.trusting(policy.trusts if policy else None), threads_restored():
        # 2. The run: whatever does not belong together is rejected here.
        opened = run if isinstance(run, Run) else load_run(run)
        policy = policy or read_spec(default_spec(opened, given.get("request")))
        require_used(given, policy, opened)
        # 3. The evidence: files that were given are read now, and not again.
        chosen = key if key is not None else secrets.token_bytes(32)
        case = Case(gather(opened, given), Keyed(chosen), effort_of(given, progress))
        outside = outside_code(case.evidence, policy)
        require_trusted(outside, policy)
        looked_at(outside)
        # The context comes before the audits: what cannot be read should not cost their time.
        arguments, context = arguments_of(case, given), context_of(case, given.get("delta"))
        if estimate:
            tell = while_it_shows(estimate)
            for line in _foreseen(case, policy):
                tell(line)
        # 4. The log says that it begins, so that an interrupted verification shows. What cannot be written fails here.
        folder, sealed = out or audit_folder(opened.path), (opened.digest, opened.ledger.head)
        number = store.begin(folder, *sealed, _named(policy), key is not None, arguments) if save else 0
        # 5. The audits, and 6. what follows from them.
        result = _judged(case, policy, chosen, outside)
    result = replace(result, context=context | {"arguments": arguments} | result.context)
    if not save:
        return result
    path = store.finish(folder, number, str(result.verdict), result.as_json())
    return replace(result, path=path, standing=store.standing(store.history(folder), number))


def effort_of(given: Given, progress: Progress) -> Effort:
    """How much the auditor allows."""
    return Effort(
        given.get("budget"),
        given.get("spot_check"),
        given.get("stopping", "fixed"),
        as_path(given.get("cache")),
        executor(given.get("workers", 1)),
        while_it_shows(progress),
    )


def _judged(case: Case, policy: Spec, key: bytes, outside: tuple[Outside, ...]) -> Verification:
    """What the audits find, and what follows from it."""
    with keeping_to(outside):
        examined = [examine(check, case) for check in policy.checks]
    # What audits import is looked at when they have done it.
    outside = looked_at(outside)
    # Every finding trusts what outside code does. That comes first: whoever shortens a list keeps it.
    trusted = tuple(code.assumption for code in outside)
    findings = tuple(replace(found, assumptions=(*trusted, *found.assumptions)) for found, _ in examined)
    return Verification(
        case.run.path,
        case.run.digest,
        case.run.ledger.head,
        policy,
        key.hex(),
        conclude(policy, findings, case.evidence, outside),
        findings,
        lineage_of(case.evidence),
        {"outside": [code.as_json() for code in outside], "error_rates": error_rates(policy, findings)},
        broken=min((code for _, code in examined if code), default=0),
    )


def _named(spec: Spec) -> dict[str, str]:
    return {"id": spec.id, "origin": spec.source, "digest": spec.digest}


def default_spec(run: Run, expected: Request | None = None) -> str:
    """The built-in spec for the kind of request that was asked for; where nothing is said to have been, for the last.

    Samples that went with their client are no samples: the model is what training without the client gives.
    """
    asked = expected or (run.request if run.is_child else Request())
    if run.sealed:  # whose samples these are, is not told
        return "sample-erasure" if asked.kind == "sample" and asked.samples else "client-erasure"
    taken = {client for number in asked_in(run, asked) for client in run.requests[number - 1].clients}
    with_client = any(run.owner.get(sample) in taken for sample in asked.samples)
    return "sample-erasure" if asked.kind == "sample" and asked.samples and not with_client else "client-erasure"


def _foreseen(case: Case, policy: Spec) -> Iterator[str]:
    """What is known before the audits: what will be a FAIL, so that a mistyped argument costs no time, and the cost."""
    run, known = case.run, case.known
    if known.request is not None and not asked_in(run, known.request):
        yield f"{forgets(run)}; asked for was {called(run, known.request)}: this will be a FAIL."
    if known.commitment is not None and known.commitment != run.commitment:
        yield f"The run is under the commitment {run.commitment}, not the one given: this will be a FAIL."
    chain = (run, *case.evidence.ancestors)
    if known.ledger_head is not None and not any(one.ledger.line_with(known.ledger_head) for one in chain):
        less = "" if case.evidence.complete_lineage else ", or less than a PASS, as an ancestor is missing"
        yield f"No line of the ledger has the head {known.ledger_head}: this will be a FAIL{less}."
    if case.in_use is not None and case.in_use[0] is Verdict.FAIL:
        yield f"{case.in_use[1]} This will be a FAIL."
    if case.dataset is not None and run.is_child:
        yield cost(case, policy)


def cost(case: Case, spec: Spec) -> str:
    """What the audits say of the work to come, such as runs and client steps of repeated sampling."""
    told = [_cost(check, case) for check in spec.checks]
    return "; ".join(filter(None, told)) or "no repeated sampling"


def _cost(check: Check, case: Case) -> str:
    """What one audit says of the work to come; in whose name, where it is not fuaudit's."""
    entry, tell = registry.find("audits", check.audit["use"]), says(check.built, "cost")
    if unknown_to(check, case):
        return ""
    text = str(tell(case if entry.own else apart(case))) if tell else ""
    return text if entry.own else said_by(f"The {entry}", text)
