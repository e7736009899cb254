"""example-name: an audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import Figure, Finding, Run, Subject, Verdict

if TYPE_CHECKING:
    from fuaudit.plugins import Case


@dataclass(frozen=True)
class ExampleAudit:
    """Fails a run whose model is that of its parent, though its parent's plan draws what was to be forgotten."""

    evidence: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[frozenset[str]] = frozenset({"parent"})

    def examine(self, case: Case) -> Finding:
        """Compares two final models, number for number."""
        if case.request is None:
            return _finding(Verdict.NOT_APPLICABLE, "The run carries out no request.")
        if not isinstance(case.parent, Run):
            return _finding(Verdict.INCONCLUSIVE, "The parent is not at hand, or it was pruned.")
        if case.parent.plan.first_involvement(case.request) is None:
            return _finding(Verdict.NOT_APPLICABLE, "What was to be forgotten was never drawn.")
        changed = int((case.run.model != case.parent.model).sum())
        if changed:
            return _finding(Verdict.PASS, "The model is not that of the parent.", changed)
        return _finding(Verdict.FAIL, "The model is that of the parent.", changed)


def _finding(verdict: Verdict, shows: str, changed: int | None = None) -> Finding:
    how = "compared with the model of the parent, number for number"
    figures = () if changed is None else (Figure("changed_numbers", "Numbers that changed", changed, how),)
    return Finding("example-name", Subject.RUN, verdict, shows, "Whether anything was forgotten.", figures)
