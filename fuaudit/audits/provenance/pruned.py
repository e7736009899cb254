"""Where a prune has destroyed what a rewrite needs: the plan is followed from the seeds that were kept.

What even that cannot show, findings from before the prune may show, where the auditor kept them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from fuaudit.audits.bearing import by_the_reference, starts_over
from fuaudit.audits.plan_law.audit import LARGEST_ALPHA, LARGEST_EFFECT
from fuaudit.audits.provenance.answers import BEFORE, NOT_SHOWN, CheckResult, fails, holds, name_of, unclear
from fuaudit.draws import Recorded, Stream
from fuaudit.errors import EvidenceError
from fuaudit.plans.reference import is_closed
from fuaudit.runs.ancestors import repeated
from fuaudit.runs.layout import RECORDED
from fuaudit.runs.pruned_contents import former_of, unspoiled
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.verification.case import Case
from fuaudit.verification.finding import FORMAT, Verdict

FINDINGS_ARE_OURS = (
    "The findings given by --before are those of an audit, kept out of the operator's reach since: anybody can write "
    "such a file, and what it shows, nothing in the pruned run shows."
)


def prune_of(run: Run, chain: Sequence[Run | Tombstone]) -> CheckResult:
    """A pruned run keeps the manifest of before, which fits, and holds nothing that a prune destroys."""
    try:
        former_of(run)
    except EvidenceError as error:
        return fails(str(error))
    if len(chain) != len(run.requests) + 1:
        return unclear(f"What the prune of {name_of(run)} destroys depends on its ancestors.")
    if not unspoiled(run, chain):
        return fails(f"{name_of(run)} was pruned, and does not hold what a prune leaves of its keys and ids.")
    return holds(f"{name_of(run)} was pruned, and holds what a prune leaves.")


def followed(case: Case, child: Run, chain: Sequence[Run | Tombstone]) -> CheckResult:
    """The plan follows from the commitment and the requests: draws kept are those before each first involvement."""
    plan, name = child.plan, name_of(child)
    (first,) = plan.streams[Stream.INITIAL]
    in_force = {segment.source for segments in plan.streams.values() for segment in segments}
    for number in in_force:
        maker = chain[len(child.requests) - number] if len(chain) > len(child.requests) - number else child
        if isinstance(plan.sources[number], Recorded):
            told = f"The plan of {name} has draws that {maker.info['unlearner']['use']!r} recorded."
            return fails(told) if by_the_reference(maker) else shown_before(case, child, told)
    try:
        expected = repeated(child, chain)
    except EvidenceError as error:
        return shown_before(case, child, f"The plan of {name} cannot be followed from its seeds: {error}.")
    right = all(map(by_the_reference, chain[: len(child.requests) - first.source]))
    if expected.streams != plan.streams:
        told = f"The plan of {name} does not keep what comes before each first involvement, and that only."
        return fails(told) if right else shown_before(case, child, told)
    if not right and not is_closed(plan.law):
        told = f"The plan of {name} keeps draws of the law {plan.law.name!r}, which is not known to allow it."
        return shown_before(case, child, told)
    maker = chain[len(child.requests) - first.source]
    if first.source and not starts_over(maker):
        told = f"{name_of(maker)} keeps nothing, by a method that may have looked at what was drawn."
        return shown_before(case, child, told)
    return holds(
        f"The plan of {name} follows from the seeds committed to: every draw that was kept, and that each cut is the "
        "first position that names what was to be forgotten.",
    )


def shown_before(case: Case, child: Run, missing: str) -> CheckResult:
    """What a prune has made impossible to show: PASS where the auditor has findings that showed it before."""
    reason = "no findings from before the prune were given (--before)"
    if case.known.before is not None:
        reason = _no_proof(case, case.known.before.findings, child)
    if reason:
        return unclear(f"{missing} {NOT_SHOWN}: {reason}.")
    return CheckResult(Verdict.PASS, f"{missing} It was shown {BEFORE}.", FINDINGS_ARE_OURS, before=True)


def _no_proof(case: Case, findings: Mapping[str, Any], child: Run) -> str:
    """Why findings do not show the plan of a run that was pruned since; empty where they do."""
    if not child.pruned:
        return f"{name_of(child)} was not pruned"
    try:
        former = former_of(child)
    except EvidenceError as error:
        return str(error)
    if child.files.get(RECORDED) != former.get(RECORDED):
        return "the prune took draws out of the record, and what is left of it is taken on trust"
    pruning = child.ledger.events[-1]
    told = findings.get("format"), findings.get("run"), findings.get("ledger")
    if told != (FORMAT, pruning["before"], pruning["previous"]):
        return f"the findings given are of another run than {name_of(child)} was then"
    if (verdict := findings.get("verdict")) in ("FAIL", "ERROR"):
        return f"the findings given say {verdict}"
    if not passed(findings, "provenance"):
        return "the findings given do not pass the audit provenance"
    if not any(_is_near(found) for found in passed(findings, "plan-law")):
        return f"the findings given do not pass plan-law with a distance of {LARGEST_EFFECT} or less"
    context = findings.get("context")
    words = context.get("arguments") if isinstance(context, dict) else None
    words = words if isinstance(words, list) else []
    if case.known.commitment is not None and ("--commitment", case.known.commitment) not in pairwise(words):
        return "the findings given did not compare this --commitment"
    if case.known.request is not None and not {"--client", "--sample"}.intersection(map(str, words)):
        return "the findings given did not compare the request with one that was in hand"
    return ""


def passed(findings: Mapping[str, Any], audit: str) -> list[dict[str, Any]]:
    """The findings of an audit in a document of findings; none where one of them is not a PASS."""
    checks = findings.get("checks")
    found = [check.get("finding") for check in checks if isinstance(check, dict)] if isinstance(checks, list) else []
    ours = [one for one in found if isinstance(one, dict) and one.get("audit") == audit]
    return ours if all(one.get("verdict") == "PASS" for one in ours) else []


def _is_near(found: Mapping[str, Any]) -> bool:
    """Whether a PASS of plan-law is evidence: it bounds the distance, or the rate of untouched plans, by so little.

    A bound that is wrong more often than so bounds nothing.
    """
    figures = found.get("figures")
    rows = [row for row in figures if isinstance(row, dict)] if isinstance(figures, list) else []
    values = {str(row.get("key")): row.get("value") for row in rows}
    below = values.get("differs_below", values.get("untouched_below"))
    wrong = found.get("error_rate")
    sure = isinstance(wrong, int | float) and 0 < wrong <= LARGEST_ALPHA
    return sure and isinstance(below, int | float) and 0 <= below <= LARGEST_EFFECT
