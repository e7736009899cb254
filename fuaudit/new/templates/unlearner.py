"""example-name: an unlearner that rewrites plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fuaudit.plugins import END, Draws, Plan, Position, Request, exact_under


@dataclass(frozen=True)
class ExampleUnlearner:
    """Keeps every draw before the first one that involves what is erased, and draws the rest anew."""

    needs: ClassVar[frozenset[str]] = frozenset({"plan"})
    participants: ClassVar[frozenset[str]] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "exact, for uniform cohorts and non-adaptive requests"
    cite: ClassVar[str] = "no paper yet"
    exact_for: ClassVar[frozenset[tuple[str, str]]] = exact_under("uniform with replacement")

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """The plan over the retained data; what was not executed yet comes from ``fresh``."""
        first = plan.first_involvement(request) or END
        return plan.erase(request, fresh, min(first, not_before))
