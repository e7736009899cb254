"""Level 1: digests, chain, schema, parent. Anything wrong rejects the evidence before an audit runs."""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.runs.prune import Tombstone
from fuaudit.verification.case import Case
from fuaudit.verification.finding import Finding, Subject, Verdict


@dataclass(frozen=True)
class Integrity:
    """Reports what opening the run has checked: a run that fails is rejected, and has no findings at all."""

    def examine(self, case: Case) -> Finding:
        """PASS when the parent was checked too; INCONCLUSIVE when it is not at hand."""
        run, parent = case.run, case.parent
        details = [
            f"{len(run.files)} files match the manifest {run.digest}",
            f"{len(run.ledger.events)} events of the ledger follow from each other; head {run.ledger.head}",
        ]
        if isinstance(parent, Tombstone):
            details.append(f"the parent {parent.digest} was pruned; its tombstone is consistent with the child")
        elif parent is not None:
            details.append(f"the parent {parent.digest} matches its own manifest")
        missing = run.is_child and parent is None
        return Finding(
            "integrity",
            Subject.RUN,
            Verdict.INCONCLUSIVE if missing else Verdict.PASS,
            "The parent of the run is not at hand." if missing else "Every byte of the run is accounted for.",
            "Digests do not show who wrote the files, nor that they were not written anew as a whole.",
            {"files": len(run.files), "events": len(run.ledger.events), "digest": run.digest},
            details=tuple(details),
        )
