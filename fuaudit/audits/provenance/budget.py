"""The budget of a config: its rounds keep to it, and every round was under the mechanism that was charged."""

from __future__ import annotations

from math import prod

from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.budgets.mechanisms import assumed
from fuaudit.budgets.target import ExceededError, Target
from fuaudit.errors import UsageError
from fuaudit.registry import build
from fuaudit.runs.layout import MODEL
from fuaudit.runs.run import Run
from fuaudit.text import counted
from fuaudit.training.capped import byzantine, capped, mechanism_of


def budget(run: Run, target: Target) -> CheckResult:
    """The cap of a config that names a target, computed again."""
    dimension = sum(prod(part.shape) for part in run.arrays(MODEL).values())
    try:
        solver = build("solvers", run.config.solver)
        found = capped(target, run.exchange, solver, run.plan.law, run.original, dimension, run.config.scaling)
        charged = mechanism_of(run.exchange, dimension)
    except ExceededError as error:
        return fails(f"{name_of(run)} does not keep to its own budget: {error.args[0]}.")
    except UsageError as error:
        return unclear(f"Whether {name_of(run)} keeps to its budget cannot be computed here: {error.args[0]}.")
    for line in run.ledger.of_kind("round"):
        told = [event for event in line.get("told", []) if event["kind"] == "released"]
        if any((event["mechanism"], event["parameters"]) != (charged.mechanism, charged.parameters) for event in told):
            return fails(
                f"In round {line['round']} of {name_of(run)} another mechanism was told than its budget charges."
            )
    return holds(
        f"The {counted(found.rounds, 'participation')} that a client of {name_of(run)} can have keep to the budget of "
        f"its config, epsilon {target.epsilon:g} at delta {target.delta:g}. Rounds that other runs of the lineage "
        "executed are not counted.",
        f"{assumed(found, target)}{_covered(run)}",
    )


def _covered(run: Run) -> str:
    """Whom a budget leaves out, as a sentence; empty for nobody."""
    named = ", ".join(map(str, byzantine(run.exchange)))
    return f" Clients who are Byzantine by the config are not covered: {named}." if named else ""
