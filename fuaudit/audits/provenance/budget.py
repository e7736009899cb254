"""The budget of a config: its rounds keep to it, and every round was under the mechanism that was charged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod
from typing import Any

from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.budgets.mechanisms import assumed
from fuaudit.budgets.spent import UNTOLD
from fuaudit.budgets.target import ExceededError, Target
from fuaudit.errors import UsageError
from fuaudit.plans.stage_draws import OF_SOLVER, Part
from fuaudit.registry import build
from fuaudit.runs.layout import MODEL
from fuaudit.runs.released import asked_of_clients, lost_elsewhere, release_of, releases_of
from fuaudit.runs.run import Run
from fuaudit.text import counted, in_full, span
from fuaudit.training.capped import capped, charged, most_at_once
from fuaudit.training.releases import no_word, outside_parts, part_at


def budget(run: Run, target: Target) -> CheckResult:
    """The cap of a config that names a target, computed again."""
    if rounds := run.received_rounds:
        return unclear(
            f"Whether {name_of(run)} keeps to its budget is not known: what clients let out in rounds {span(rounds)}, "
            "which came in messages, nothing shows."
        )
    dimension = sum(prod(part.shape) for part in run.arrays(MODEL).values())
    try:
        solver = build("solvers", run.config.solver)
        terms = run.exchange, solver, run.plan.law, run.original, dimension, run.config.scaling
        found = capped(target, *terms)
        part = charged(run.exchange, solver)
        of_part = release_of(str(part), part_at(run.exchange, solver, part), dimension)
    except ExceededError as error:
        return fails(f"{name_of(run)} does not keep to its own budget: {error.args[0]}.")
    except UsageError as error:
        return unclear(f"Whether {name_of(run)} keeps to its budget cannot be computed here: {error.args[0]}.")
    if most_at_once(law := run.plan.law, run.populations) > most_at_once(law, [run.original]):
        return unclear(
            f"Whether {name_of(run)} keeps to its budget is not known: after a request a client can take part more "
            "often in a round than the budget charges."
        )
    others = set[str]()
    for line in run.ledger.of_kind("round"):
        told = [one for one in releases_of(line) if one.part == of_part.part]
        others |= {one.part for one in releases_of(line)} - {of_part.part}
        if any(one != of_part for one in told):
            return fails(
                f"In round {line['round']} of {name_of(run)} another mechanism was told than its budget charges."
            )
        if len(told) > 1:
            return unclear(
                f"The mechanism of its budget was told several times in round {line['round']} of {name_of(run)}, and "
                "is charged once."
            )
    if of_clients := sorted(part for part in others if part.split(".")[0] in ("solver", "client")):
        return unclear(
            f"In {name_of(run)} {', '.join(of_clients)} told of releases that it does not say before training, so the "
            "budget does not charge them."
        )
    if asked := asked_of_clients(run):
        return unclear(f"Whether {name_of(run)} keeps to its budget is not known: {asked}.")
    beyond = _told_by_a_request(run, target, terms)
    return holds(
        f"{'Of a training alone, the' if beyond else 'The'} {counted(found.rounds, 'participation')} that a client of "
        f"{name_of(run)} can have keep to the budget of its config, epsilon {in_full(target.epsilon)} at delta "
        f"{in_full(target.delta)}. What other runs of the lineage released is not counted.",
        f"{beyond}{assumed(found, target)}{_at_its_word(run, part)}{_behind(others)}{_lost(run)}{_covered(run)}",
    )


def _told_by_a_request(run: Run, target: Target, terms: tuple[Any, ...]) -> str:
    """That a child does not keep to a target towards the public, as its training alone did; empty where it does.

    The cap was decided before training. What a request drew anew tells when a row was first drawn, and from then
    on none is charged less for being seldom sampled.
    """
    if not run.is_child or target.towards is None:
        return ""
    try:
        capped(replace(target, towards=None), *terms)
    except ExceededError as error:
        return (
            f"{name_of(run)} does not keep to its budget towards the public, as its training alone did: what a request "
            f"drew anew tells when a row was drawn, and then {error.args[0]}. "
        )
    return ""


def _behind(others: Collection[str]) -> str:
    """Which parts behind the clients told of releases of their own, as a sentence; empty for none.

    Each has an account of its own, in ``fuaudit budget run`` too: it treats what clients have sent.
    """
    if not others:
        return ""
    return f" What {', '.join(sorted(others))} told of acts behind the clients, and the budget does not charge it."


def _at_its_word(run: Run, part: Part) -> str:
    """What an account takes on the word of other packages, as sentences; empty where all parts are fuaudit's own."""
    table = run.config.solver if part == OF_SOLVER else run.config.client[part.number]
    found = (no_word(part, table["use"]), outside_parts(run.config, run.exchange, part))
    return "".join(f" The budget takes parts of other packages at their word: {why}." for why in found if why)


def _lost(run: Run) -> str:
    """Which rounds may have been executed twice, as sentences: those of which a ledger tells, and others."""
    why = lost_elsewhere(run)
    told = f" Each round is counted once: {why}." if why else ""
    return f"{told} Not counted are {UNTOLD}."


def _covered(run: Run) -> str:
    """Whom a budget leaves out, as a sentence; empty for nobody."""
    named = ", ".join(map(str, sorted(run.exchange.deviating)))
    return f" Clients who are Byzantine by the config are not covered: {named}." if named else ""
