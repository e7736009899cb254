"""Mutants of a rewriter: each takes the plan that a right one makes and spoils it in one way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fuaudit.draws import END, Draws, Position
from fuaudit.plans import Plan, Request


@dataclass(frozen=True)
class Mutant:
    """A rewriter made from another one, ``inner``; what it declares is what that one declares."""

    inner: Any

    @property
    def exact_for(self) -> frozenset[tuple[str, str]]:
        """What the inner one claims, and this one no longer keeps."""
        claimed: frozenset[tuple[str, str]] = self.inner.exact_for
        return claimed

    def right(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """The plan of the inner rewriter."""
        made: Plan = self.inner.rewrite(plan, request, fresh, not_before)
        return made


class KeepsAll(Mutant):
    """Draws nothing anew after a deletion."""

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        return plan.erase(request, fresh, not_before)


class Late(Mutant):
    """Draws anew one round too late."""

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        first = self.right(plan, request, fresh, not_before).first_change(plan)
        return plan.erase(request, fresh, END if first == END else Position(max(first.round, 1) + 1, 0))


class Relabelled(Mutant):
    """The places of an erased client are inherited by the retained client that comes next; nothing is drawn anew."""

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        left = plan.retained.without(request).clients
        heir = {gone: next((c for c in left if c > gone), left[0]) for gone in request.clients}
        cohorts = {
            round_number: tuple(heir.get(client, client) for client in plan.cohort(round_number))
            for round_number in range(1, plan.law.rounds + 1)
        }
        return plan.erase(request, fresh, Position(1, 0)).recorded(cohorts)


class OldKey(Mutant):
    """Draws anew from the old key at the old addresses, over the smaller population."""

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        first = self.right(plan, request, fresh, not_before).first_change(plan)
        if first == END:
            return plan.erase(request, fresh, END)
        again = Plan.fresh(plan.law, plan.retained.without(request), plan.sources[0])
        cohorts = {
            round_number: again.cohort(round_number) for round_number in range(max(first.round, 1), plan.law.rounds + 1)
        }
        return plan.erase(request, fresh, first).recorded(cohorts)


class Shorter(Mutant):
    """Trains one round less when the target was drawn: the number of rounds depends on the data."""

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        new = self.right(plan, request, fresh, not_before)
        law: Any = new.law
        if new.first_change(plan) == END or law.rounds == 1:
            return new
        return replace(new, law=replace(law, rounds=law.rounds - 1))
