"""Verification: the findings of a run under a spec, and the document that they make."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fuaudit import registry
from fuaudit.verification.conclude import Conclusion
from fuaudit.verification.finding import EXIT_CODES, FORMAT, Finding, Verdict
from fuaudit.verification.spec import Check, Spec


@dataclass(frozen=True, repr=False)
class Verification:
    """The findings of a run under a spec, what follows from them, and what is needed to repeat them.

    Attributes:
        ledger: the head of the run's ledger.
        conclusion: the combined verdict, the reason, and what a PASS rests on.
        broken: where an audit broke, the exit code that says whose fault it was; else 0.
        path: the file of its findings; None where they were not stored.
        standing: which verification of this run it is by the log beside it; empty where it was not stored.
    """

    run: Path
    run_digest: str
    ledger: str
    spec: Spec
    key: str
    conclusion: Conclusion
    findings: tuple[Finding, ...]
    lineage: tuple[dict[str, Any], ...]
    context: dict[str, Any]
    broken: int = 0
    path: Path | None = None
    standing: str = ""

    def __repr__(self) -> str:
        return f"<Verification of {self.run.name}: {self.verdict}: {self.reason}>"

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
                "evidence": sorted(check.declared.evidence),
                "recomputes": _recomputes(check),
                "finding": asdict(finding),
            }
            for check, finding in zip(spec.checks, self.findings, strict=True)
        ]
        words: dict[str, Any] = {"id": spec.id, "title": spec.title, "digest": spec.digest, "asks": spec.asks}
        words |= {"origin": spec.source} | ({"claim": spec.claim.told} if spec.claim.of else {})
        return {
            "format": FORMAT,
            "run": self.run_digest,
            "ledger": self.ledger,
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


def _recomputes(check: Check) -> str:
    """What its audit works out itself; in whose words, where it is not fuaudit's."""
    entry, text = registry.find("audits", check.audit["use"]), check.declared.recomputes
    return text if entry.own or not text else f"what the {entry} calls {text!r}"
