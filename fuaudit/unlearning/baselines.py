"""The two unlearners that every other one is compared with: doing nothing, and doing everything again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fuaudit.draws import Draws, Position
from fuaudit.plans import Plan, Request
from fuaudit.unlearning.protocol import EVERY_LAW, exact_under


@dataclass(frozen=True)
class Noop:
    """Keeps every draw and so the model: the control that an audit must catch.

    Guarantee: none.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"plan"})
    participants: ClassVar[frozenset[str]] = frozenset()
    guarantee: ClassVar[str] = "none: the model is left as it is"
    cite: ClassVar[str] = ""
    exact_for: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    by_first_involvement: ClassVar[bool] = True

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        return plan.erase(request, fresh, not_before)


@dataclass(frozen=True)
class Retrain:
    """Keeps nothing: trains from a new initial model on the retained data. The definition of exactness.

    Guarantee: exact, for every law.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"plan"})
    participants: ClassVar[frozenset[str]] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "exact, for every law of draws: it is the reference"
    cite: ClassVar[str] = ""
    exact_for: ClassVar[frozenset[tuple[str, str]]] = exact_under(EVERY_LAW)
    by_first_involvement: ClassVar[bool] = True
    assumes: ClassVar[tuple[str, ...]] = ("a partition that is never drawn again", "non-adaptive requests")
    follows_reference: ClassVar[bool] = True

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        return plan.restart(request, fresh)
