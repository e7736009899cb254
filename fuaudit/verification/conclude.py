"""From findings to a verdict: which one, one sentence why, and what it rests on.

Nothing here looks at the names of figures: findings say in typed fields what bears on the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fuaudit import registry
from fuaudit.runs.names import meant, to_forget, whom
from fuaudit.text import said_by
from fuaudit.verification.claims import BOUNDED_SPEC, lacking
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.finding import Finding, Verdict
from fuaudit.verification.outside import SHORT, Outside
from fuaudit.verification.spec import Check, Spec

TRAINING = "This is a training run: there is no request whose fulfilment could be judged."
WITHOUT_PLAN = frozenset({"regeneration"})
"""The kinds of evidence that do not arise where no plan makes the model."""

OF_THE_DATA = frozenset({"execution", "regeneration"})
"""The kinds of evidence that do not arise where rounds came in messages: no data makes what came."""

VIEW = (
    "The spec asks for {}, and the run is a sealed view. Nothing in it tells what was drawn, nor whose rows models "
    "were made of, so it shows nothing about a request. The operator has the whole run."
)
NO_ROWS = "The rows are not at hand: give their folder with --data ROOT."


@dataclass(frozen=True)
class Conclusion:
    """The verdict of a spec, a reason in words, and, for a PASS, what it rests on, one sentence each."""

    verdict: Verdict
    reason: str
    rests_on: tuple[str, ...] = ()


def conclude(spec: Spec, findings: tuple[Finding, ...], evidence: Evidence, outside: tuple[Outside, ...]) -> Conclusion:
    """The combined verdict; see :func:`combine`.

    A PASS needs every required check, and that those which passed give the evidence that the claim needs. An editor
    of models can be refuted, but never pass a claim that none of them can show. A run that is doubted, for a method of
    its lineage of which anything is left, shows no law.
    """
    claim = spec.claim
    # where a claim can be shown of an editor, checks of plans do not arise
    moot = claim.editors and evidence.is_editor
    pairs = [
        (check, finding)
        for check, finding in zip(spec.checks, findings, strict=True)
        if not (moot and finding.verdict is Verdict.NOT_APPLICABLE)
    ]
    required = [(check, finding) for check, finding in pairs if check.role == "required"]
    verdict = combine([f.verdict for _, f in required], [f.verdict for c, f in pairs if c.role == "supporting"])
    if verdict in (Verdict.FAIL, Verdict.ERROR):
        return Conclusion(verdict, _said(*min((pair for pair in pairs if pair[1].verdict is verdict), key=_follows)))
    if claim.of_request and not evidence.run.is_child:
        return Conclusion(Verdict.INCONCLUSIVE, TRAINING)
    if claim.of_request and evidence.run.sealed:
        return Conclusion(Verdict.INCONCLUSIVE, VIEW.format(claim.title))
    if claim.of_request and (came := evidence.received):
        return Conclusion(
            Verdict.INCONCLUSIVE,
            f"The spec asks for {claim.title}, and rounds of the lineage came in messages ({came}). Nothing "
            "regenerates what came, so it can hold anything, what was to be forgotten too.",
        )
    if not claim.editors and evidence.is_editor:
        name = evidence.run.info["unlearner"]["use"]
        return Conclusion(
            Verdict.INCONCLUSIVE,
            f"The spec asks for {claim.title}; {name!r} edits models, which no audit can show to be exact. What can be "
            f"shown of an editor, the built-in spec {BOUNDED_SPEC!r} asks for (--spec {BOUNDED_SPEC}).",
        )
    if verdict is not Verdict.PASS:
        undecided = (_said(c, f) for c, f in required if f.verdict is not Verdict.PASS)
        reason = next(undecided, "The spec has no required check that applies to this run.")
        lacks_rows = evidence.dataset is None and not evidence.run.sealed
        return Conclusion(verdict, f"{reason} {NO_ROWS}" if lacks_rows else reason)
    given = {word for check, _ in required for word in check.declared.evidence}
    given |= WITHOUT_PLAN & spec.evidence if moot else set()
    given -= OF_THE_DATA if evidence.received else set()
    if missing := lacking(claim.needs, given):
        return Conclusion(
            Verdict.INCONCLUSIVE,
            f"The checks that passed do not suffice for {claim.title}: no evidence of {'; '.join(missing)}.",
        )
    if "law" in claim.needs and (doubts := evidence.run.info.get("doubts")):
        return Conclusion(
            Verdict.INCONCLUSIVE,
            f"The spec asks for {claim.title}, and the run records why it is doubted: {'; '.join(doubts)}.",
        )
    return Conclusion(verdict, _reason(spec, required, pairs, evidence, outside), _rests_on(spec, pairs, outside))


def combine(required: Iterable[Verdict], supporting: Iterable[Verdict] = ()) -> Verdict:
    """The verdict of a spec from those of its checks.

    ======================================================  ============
    any FAIL, required or supporting                        FAIL
    else any ERROR                                          ERROR
    else a required INCONCLUSIVE or NOT_APPLICABLE          INCONCLUSIVE
    else no required check at all                           INCONCLUSIVE
    else (every required check is PASS)                     PASS
    ======================================================  ============

    A supporting check can refute, but its lack of power does not block.
    """
    needed, extra = list(required), list(supporting)
    if Verdict.FAIL in needed + extra:
        return Verdict.FAIL
    if Verdict.ERROR in needed + extra:
        return Verdict.ERROR
    if not needed or any(verdict is not Verdict.PASS for verdict in needed):
        return Verdict.INCONCLUSIVE
    return Verdict.PASS


Pairs = list[tuple[Check, Finding]]


def _follows(pair: tuple[Check, Finding]) -> bool:
    """Whether a check looks at more than files and draws: a draw of what was to be forgotten explains other models."""
    return pair[0].declared.evidence.isdisjoint({"files", "provenance"})


def _reason(spec: Spec, required: Pairs, pairs: Pairs, evidence: Evidence, outside: tuple[Outside, ...]) -> str:
    """The sentences of a PASS."""
    run, expected = evidence.run, evidence.known.request
    forgotten = ", ".join(map(whom, to_forget(run, expected)))
    requests = "request" if len(meant(run, expected)) == 1 else "requests"
    asked = f" for the {requests} to forget {forgotten}" if spec.claim.of_request else ""
    sentences = [
        f"Every required check passed{asked}: evidence for {spec.claim.title} within the stated scope.",
        *dict.fromkeys(f.qualification for _, f in pairs if f.verdict is Verdict.PASS and f.qualification),
        f"Asked by the spec {spec.id} ({spec.source}, digest {spec.digest[:SHORT]}).",
    ]
    if outside:
        sentences.append(f"It rests on outside code: {'; '.join(map(str, outside))}.")
    return " ".join(sentences)


def _said(check: Check, finding: Finding) -> str:
    """What a finding shows; in whose name, where it is not fuaudit's. What broke is told by fuaudit."""
    entry = registry.find("audits", check.audit["use"])
    fuaudits = entry.own or finding.verdict is Verdict.ERROR
    return finding.shows if fuaudits else said_by(f"The {entry}", finding.shows)


def _rests_on(spec: Spec, pairs: Pairs, outside: tuple[Outside, ...]) -> tuple[str, ...]:
    """What a PASS takes on trust, each once: the policy, outside code, and what the audits name."""
    named = [line for _, finding in pairs if finding.verdict is Verdict.PASS for line in finding.assumptions]
    return (
        f"The spec {spec.id} asks for what is to be shown: {spec.source}, SHA-256 {spec.digest}.",
        *dict.fromkeys((*(code.assumption for code in outside), *named)),
    )


def error_rates(spec: Spec, findings: tuple[Finding, ...]) -> dict[str, float | None]:
    """The error rates that the findings have spent, summed over the audits (Boole's inequality).

    ``tests``: the chance that any test rejects what it should not, at most; ``allowed`` is what the spec has for
    that. ``bounds``: the chance that any stated bound is wrong, at most; each holds at its own level.
    """
    return {
        "allowed": spec.alpha,
        "tests": sum(finding.error_rate for finding in findings),
        "bounds": sum(finding.bounds_rate for finding in findings),
    }
