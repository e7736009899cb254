"""Which assumptions of the guarantee that a method claims does this run meet?

A guarantee is a sentence of the form "if ..., then ...". An unlearner names what it assumes in ``assumes``; those
that can be read off a run are checked here, the others are listed as taken on trust. The figures of other
levels show whether the conclusion holds; this audit shows whether the guarantee speaks of this run at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from fuaudit import registry
from fuaudit.declared import says
from fuaudit.runs.layout import CONFIG
from fuaudit.runs.run import Run
from fuaudit.text import counted
from fuaudit.unlearning.protocol import claimed_laws, claims_exactness, is_editor
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import NO_REQUEST, NON_ADAPTIVE, Finding, Subject, Verdict

SHOWS_NOT = "It shows neither that the guarantee is true nor that its conclusion holds for this run."

MET, NOT_MET, ON_TRUST = "met", "not met", "on trust"


@dataclass(frozen=True)
class AssumptionStatus:
    """Whether an assumption is met, and what that was read off."""

    word: str
    evidence: str


@dataclass(frozen=True)
class Assumptions:
    """Checks what the last unlearner assumes, one assumption a line."""

    evidence: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[frozenset[str]] = frozenset({"parent"})
    recomputes: ClassVar[str] = "the assumptions of the method's own claim that can be read off a run"

    def examine(self, case: Case) -> Finding:
        """PASS when none is broken; INCONCLUSIVE when one is, for then the guarantee says nothing of this run."""
        if case.request is None:
            return _finding(Verdict.NOT_APPLICABLE, NO_REQUEST)
        unlearner = case.evidence.unlearner
        names = assumed(unlearner)
        used = case.run.info["unlearner"]["use"]
        if not names:
            claims = f"its guarantee: {unlearner.guarantee!r}"
            reason = f"{used!r} claims exactness for nothing and declares no assumptions ({claims})."
            return _finding(Verdict.NOT_APPLICABLE, reason)
        states = {name: CHECKS[name](case) if name in CHECKS else UNCHECKED for name in names}
        broken = [name for name, state in states.items() if state.word == NOT_MET]
        trusted = tuple(_on_trust(name, used) for name, state in states.items() if state.word == ON_TRUST)
        counts = {word: sum(state.word == word for state in states.values()) for word in (MET, NOT_MET, ON_TRUST)}
        figures = _figures(counts)
        details = tuple(f"{name}: {state.word}; {state.evidence}" for name, state in states.items())
        if broken:
            reason = f"The guarantee of {used!r} does not speak of this run: not met: {', '.join(broken)}."
            return _finding(Verdict.INCONCLUSIVE, reason, figures, trusted, details)
        reason = f"{counts[MET]} of {len(names)} assumptions of {used!r} are met, {counts[ON_TRUST]} taken on trust."
        return _finding(Verdict.PASS, reason, figures, trusted, details)


def _on_trust(name: str, used: str) -> str:
    """An assumption in words; in whose name, where fuaudit does not know it and the method is not its own."""
    entry = registry.find("unlearners", used)
    return SAID.get(name, name if entry.own or name in CHECKS else f"The {entry} assumes: {name!r}")


def _figures(counts: dict[str, int]) -> tuple[Figure, ...]:
    return (
        Figure("met", "Assumptions that hold", counts[MET], "each read off this run and its ancestors at hand"),
        Figure(
            "not_met",
            "Assumptions that do not hold",
            counts[NOT_MET],
            "each read off this run and its ancestors; with one of them, the method's own claim is not about this run",
        ),
        Figure(
            "on_trust",
            "Assumptions that no run can show",
            counts[ON_TRUST],
            "named under what was taken on trust",
        ),
    )


def _finding(
    verdict: Verdict,
    shows: str,
    figures: tuple[Figure, ...] = (),
    trusted: tuple[str, ...] = (),
    details: tuple[str, ...] = (),
) -> Finding:
    return Finding("assumptions", Subject.RUN, verdict, shows, SHOWS_NOT, figures, assumptions=trusted, details=details)


LAW = "draws of a law it is exact for"
"""What every rewriter that claims exactness assumes, by its ``exact_for``."""


def assumed(unlearner: Any) -> tuple[str, ...]:
    """What a method assumes: what it declares, and what it claims to be exact for."""
    declared: tuple[str, ...] = says(unlearner, "assumes")
    claims = not is_editor(unlearner) and bool(unlearner.exact_for)
    return tuple(dict.fromkeys(((LAW,) if claims else ()) + declared))


def exact_law(case: Case) -> AssumptionStatus:
    """The method claims exactness for the law of the run's draws and the kind of its request."""
    assert case.request is not None
    name, kind = case.run.plan.law.name, case.request.kind
    claimed = ", ".join(map(repr, claimed_laws(case.evidence.unlearner, kind))) or "none"
    met = claims_exactness(case.evidence.unlearner, name, kind)
    return AssumptionStatus(MET if met else NOT_MET, f"the law is {name!r}; claimed for {kind} requests: {claimed}")


def fixed_sizes(case: Case) -> AssumptionStatus:
    """Cohort size, batch size, steps and rounds are those of training, in every run of the lineage."""
    runs = [case.run, *case.evidence.ancestors]
    if len({run.files[CONFIG]["sha256"] for run in runs}) > 1:
        return AssumptionStatus(NOT_MET, "the configs of the lineage differ")
    if not case.evidence.complete_lineage:
        return AssumptionStatus(
            ON_TRUST, f"{counted(len(runs), 'run has', 'runs have')} one config; the older ones are not at hand"
        )
    return AssumptionStatus(MET, f"all {len(runs)} runs of the lineage have one config")


def fixed_partition(case: Case) -> AssumptionStatus:
    """The partition was drawn once, and no deletion has drawn it anew."""
    partitions = {run.contents.root for run in (case.run, *case.evidence.ancestors) if isinstance(run, Run)}
    if len(partitions) > 1:
        return AssumptionStatus(NOT_MET, "runs of the lineage were committed to different partitions")
    return AssumptionStatus(MET, f"one partition, {partitions.pop()[:16]}, in all runs at hand")


def non_adaptive(case: Case) -> AssumptionStatus:
    """Requests do not depend on the draws: nobody can read that off a run."""
    return AssumptionStatus(ON_TRUST, "no run can show why its request was made")


NON_ADAPTIVE_REQUESTS = "non-adaptive requests"
SAID = {NON_ADAPTIVE_REQUESTS: NON_ADAPTIVE}
"""Assumptions that other audits name too, in the sentence of all."""

CHECKS: dict[str, Callable[[Case], AssumptionStatus]] = {
    LAW: exact_law,
    "fixed cohort and batch sizes": fixed_sizes,
    "a partition that is never drawn again": fixed_partition,
    NON_ADAPTIVE_REQUESTS: non_adaptive,
}
"""What can be said of assumptions by name; any other is listed as taken on trust."""

UNCHECKED = AssumptionStatus(ON_TRUST, "no check is known for it")
