"""Level 5: the methods of a lineage beside a proved reference at full size, and this run's own plan beside it too.

Nothing is trained: a plan is all that the question needs. Where method and reference draw alike on all plans, the
distance from retraining is bounded; where they do not, tests against known laws decide. A method can tell a run by its
draws, so what it does on other plans says nothing of this one: the run's own plan is compared by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from fuaudit import registry
from fuaudit.audits.bearing import bearing, by_the_reference
from fuaudit.audits.plan_law import comparison, outcome
from fuaudit.audits.plan_law.comparison import (
    Comparison,
    Difference,
    alone,
    compare,
    differences,
    first_difference,
    first_holding,
    references,
)
from fuaudit.audits.plan_law.known_laws import POWER, chance, suspects
from fuaudit.audits.plan_law.outcome import NAME, plans_drawn, untouched_below
from fuaudit.audits.plan_law.simulate import Scores, Step, Trial, chunks, retrained, simulate, trained
from fuaudit.draws import END, START, Stream
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import UniformLaw
from fuaudit.plans.attendance import Attendance
from fuaudit.plans.reference import ANEW, KEEPS, PROVED, REFERENCES, BehindEdit, Edited, in_turn, is_closed
from fuaudit.progress import Progress, silent
from fuaudit.registry import is_strange
from fuaudit.runs.ancestors import moment, repeated
from fuaudit.runs.drawn import drawn_plan
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.statistics.rounding import confidence, rate_up, up
from fuaudit.statistics.violation_rates import undetected_rate_limit
from fuaudit.unlearning.protocol import is_editor
from fuaudit.verification.case import Case, made_by_another
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import NO_REQUEST, NON_ADAPTIVE, Control, Finding, Subject, Verdict

SHOWS_NOT = (
    "It says nothing about requests that depend on the draws, nor about what is computed along a plan; a method that "
    "draws otherwise in fewer plans than the bound says stays unseen."
)
LARGEST_EFFECT = 0.05
"""The largest ``effect`` at which a PASS is evidence for a claim: at 1 every method has it."""

LARGEST_ALPHA = 0.05
"""The largest ``alpha`` at which it is: near 1 one plan suffices for any bound."""

ONE_BY_ONE = 50
"""How many draws in arrays take the time of one by itself, about."""

LOOKED_THROUGH = 64
"""Plans, from the first that differs on, in which what was to be forgotten is looked for where no test is known."""


@dataclass(frozen=True)
class Own:
    """The run's own plan beside that of the references: whether it was compared, and where it differs first.

    ``excused``: nothing is left to compare it with, as after a prune; else what was not compared is no PASS.
    """

    compared: bool
    difference: Difference | None = None
    why: str = ""
    excused: bool = False

    @property
    def settled(self) -> bool:
        """Whether a PASS may be given, as far as it goes."""
        return self.compared or self.excused

    @property
    def answer(self) -> str:
        """In a word."""
        return (f"differs: {self.difference}" if self.difference else "equal") if self.compared else "not compared"

    @property
    def unseen(self) -> str:
        """What is added to a sentence where it was not compared."""
        return "" if self.compared else f" {self}"

    def __str__(self) -> str:
        if not self.compared:
            return f"The run's own plan was not compared: {self.why}."
        if self.difference is None:
            return "The run's own plan equals that of a proved method."
        return f"The run's own plan differs from that of a proved method: {self.difference}."


FOLLOWED = {KEEPS: False, ANEW: True}
"""The references whose plans can be followed from seeds alone, and whether they keep nothing."""

NO_RUN = Own(False, why="there is no run", excused=True)


@dataclass(frozen=True)
class PlanLaw:
    """The comparison with the reference, and the tests of the law of plans.

    Attributes:
        plans: how many are compared, fixed in advance.
        draws: under laws that are not uniform, as many plans as hold so many clients' rounds, if that is fewer; where
            plans of a law cannot be read in arrays, a fiftieth.
        most: tests, where they decide, take as many plans as their power needs, but at most so many.
        alpha: false alarms, and the error rate of each stated bound.
        effect: PASS needs a distance from retraining below this; where tests decide, that plans which the method
            leaves untouched occur at a rate below this.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"data", "erased", "parent"})
    alpha_option: ClassVar[str] = "alpha"
    recomputes: ClassVar[str] = "draws of the method at full size, without training, beside those of a proved method"

    plans: int = 20_000
    draws: int = 100_000_000
    most: int = 100_000
    alpha: float = 0.001
    effect: float = 0.01

    def __post_init__(self) -> None:
        sizes = min(self.plans, self.draws, self.most)
        if sizes < 1 or not 0 < self.alpha < 1 or not 0 < self.effect <= 1:
            raise UsageError("plan-law needs plans, draws and most >= 1, alpha in (0, 1) and effect in (0, 1]")

    @property
    def evidence(self) -> frozenset[str]:
        """None where a PASS may leave the law of the method further from retraining's, or with less confidence."""
        shows = self.effect <= LARGEST_EFFECT and self.alpha <= LARGEST_ALPHA
        return frozenset({"reference"}) if shows else frozenset()

    def cost(self, case: Case) -> str:
        """How many plans the methods will rewrite, at most; each takes what their own code takes."""
        if case.request is None or case.evidence.is_editor:
            return ""
        more = f", up to {self.most:,} more where it draws otherwise" if type(case.run.plan.law) is UniformLaw else ""
        return f"plan law: each method rewrites at most {self.plans:,} plans{more}"

    def examine(self, case: Case) -> Finding:
        """FAIL on a plan that draws the target, on rejection, or where the run alone is told from other plans."""
        if case.request is None or case.evidence.is_editor:
            reason = NO_REQUEST if case.request is None else "An editor has no plan whose law could be tested."
            return Finding(NAME, Subject.ALGORITHM, Verdict.NOT_APPLICABLE, reason, SHOWS_NOT)
        trial = trial_of(case)
        return self.judged(trial, case.key.secret, lambda beside: own_plan(case, trial, beside), case.effort.progress)

    def judged(
        self,
        trial: Trial,
        key: bytes,
        own: Callable[[Sequence[str]], Own] = lambda beside: NO_RUN,
        progress: Progress = silent,
    ) -> Finding:
        """The finding on a trial, under a key of the audit, and on a run of it.

        Args:
            own: the run's own plan beside the references that are given.
        """
        plans = self.planned(trial)
        beside = references(trial, key)
        compared = Comparison(0, None, 0)
        for chunk in chunks(trial, range(plans)):
            compared = compared.then(compare(trial, beside, key, chunk))
            progress("plans", chunk.stop, plans)
            if compared.first is not None:
                break
        seen = Seen(trial, beside, compared, own(beside), plans)
        return self._bounded(seen) if compared.first is None else self._decided(seen, key, progress)

    def planned(self, trial: Trial) -> int:
        """How many plans are compared: decided by the law and the population, before anything is drawn."""
        if type(trial.law) is UniformLaw:
            return self.plans
        arrays = Attendance.fits(trained(trial, bytes(32), range(1)))
        a_plan = trial.law.rounds * len(trial.population.clients) * (1 if arrays else ONE_BY_ONE)
        return max(1, min(self.plans, self.draws // a_plan))

    def share_of_run(self, plans: int) -> float:
        """The part of alpha that is kept for the run's own plan; the tests have the rest, as both can reject.

        0 where it would be half or more: the run alone convicts nobody then.
        """
        return alone(plans) if alone(plans) < self.alpha / 2 else 0.0

    def _bounded(self, seen: Seen) -> Finding:
        """What follows where all plans were equal."""
        plans, below, share = seen.plans, seen.compared.below(self.alpha), self.share_of_run(seen.plans)
        names = seen.names
        distance = (
            f"its law is less than {up(below)} away from that of retraining (total variation, confidence "
            f"{confidence(self.alpha)})"
        )
        held = Control(
            "the reference draws anew", "in some plans", "in some plans" if seen.compared.redrawn else "never"
        )
        verdict = Verdict.PASS
        shows = f"{names} draws what a proved method draws in all {plans:,} plans: {distance}. {seen.own}"
        if seen.own.difference is not None:
            verdict = Verdict.FAIL if share else Verdict.INCONCLUSIVE
            shows = f"{names} draws what a proved method draws in all {plans:,} plans, but not in this run: " + (
                f"{seen.own.difference}. A method that is exact does so with a chance of at most {up(alone(plans))}."
            )
            if not share:
                shows += f" At alpha {rate_up(self.alpha)} that may be chance: more plans are needed."
        elif below > self.effect:
            verdict = Verdict.INCONCLUSIVE
            needed = comparison.needed(self.effect, self.alpha)
            shows = f"All {plans:,} plans are equal, but bound the distance by {up(below)} only: {needed:,} are needed."
        elif not held.held:
            verdict = Verdict.INCONCLUSIVE
            shows = f"In none of {plans:,} plans was there anything to draw anew, so nothing was compared."
        elif not seen.own.settled:
            verdict = Verdict.INCONCLUSIVE
            shows = f"{shows} A method can tell a run by its draws."
        bound = Figure(
            "differs_below",
            "Distance from the law of retraining, below",
            below,
            "total variation, at confidence 1 - alpha: 1 - alpha ** (1 / plans), where all plans are equal",
            error_rate=self.alpha,
        )
        figures = [plans_drawn(plans), *seen.figures, bound]
        if type(seen.trial.law) is UniformLaw:
            shown = chance(seen.trial)
            rate = undetected_rate_limit(plans, shown, self.alpha) if shown > 0 else None
            figures.append(untouched_below(rate, self.alpha))
        return replace(
            seen.finding(verdict, shows),
            figures=tuple(figures),
            assumptions=(NON_ADAPTIVE, *seen.as_it_acts_now),
            detectable=f"a method that draws otherwise in {up(undetected_rate_limit(plans, 1.0, 1 - POWER))} "
            f"of plans or more "
            f"would have shown a difference with probability {POWER} or more",
            controls=(held,),
            error_rate=self.alpha,
            bounds_rate=self.alpha,
            qualification="" if seen.own.compared else str(seen.own),
        )

    def _decided(self, seen: Seen, key: bytes, progress: Progress) -> Finding:
        """What the tests say where a plan differs."""
        number, first = seen.compared.equal, seen.compared.first
        void = f"plan {number + 1} differs from that of a proved method ({first})"
        if type(seen.trial.law) is not UniformLaw:
            verdict, law = Verdict.INCONCLUSIVE, seen.trial.law.name
            shows = f"No bound holds for {seen.names}: {void}. {WITHOUT_TEST.format(law)}"
            if held := first_holding(seen.trial, key, range(number, number + LOOKED_THROUGH)):
                verdict, shows = Verdict.FAIL, f"{seen.names} leaves what was to be forgotten in a plan: {held}."
            return replace(
                seen.finding(verdict, shows),
                figures=(plans_drawn(number + 1), *seen.figures),
                error_rate=self.alpha,
            )
        alpha = self.alpha - self.share_of_run(seen.plans)
        wanted = max([seen.plans, *(s.plans or 0 for s in suspects(seen.trial, alpha, self.effect))])
        plans = min(wanted, max(self.most, seen.plans))
        parts = []
        for chunk in chunks(seen.trial, range(plans)):
            parts.append(simulate(seen.trial, key, chunk))
            progress("plans", chunk.stop, plans)
        fresh = retrained(seen.trial, key, range(plans))
        found = outcome.finding(seen.trial, Scores.joined(parts), fresh, alpha, self.effect)
        rests = (
            f"{seen.otherwise}, so at full size this rests on small federations, on "
            f"tests of {plans:,} plans, and on the code of {seen.code}."
        )
        passed = found.verdict is Verdict.PASS
        return replace(
            found,
            verdict=Verdict.INCONCLUSIVE if passed and not seen.own.settled else found.verdict,
            shows=f"{found.shows} {rests}{seen.own.unseen}" if passed else found.shows,
            figures=(*found.figures, *seen.figures),
            assumptions=(NON_ADAPTIVE, *found.assumptions, *((rests,) if passed else ())),
            details=(f"no bound: {void}", *seen.lines, *found.details),
            error_rate=self.alpha,
            qualification=f"{rests}{seen.own.unseen}" if passed else "",
        )


WITHOUT_TEST = (
    "Plans of the law {!r} have no test, so this speaks neither for nor against the method. What draws as a proved "
    "method passes here under every law, as 'retrain' does. A spec with asks = \"run\" does not need this check."
)
"""What is said of a method that draws otherwise than a proved one, under a law of whose statistics nothing is known."""


@dataclass(frozen=True)
class Seen:
    """What was compared, and what came of it."""

    trial: Trial
    beside: Sequence[str]
    compared: Comparison
    own: Own
    plans: int

    @property
    def names(self) -> str:
        """The methods in order."""
        return self.trial.names

    @property
    def otherwise(self) -> str:
        """That somebody draws otherwise: of several methods it is not looked through all plans which of them do."""
        if len(set(self.trial.rewriters)) == 1:
            return f"{self.trial.rewriters[0]!r} draws otherwise than a proved method"
        return f"At least one method of the lineage ({self.names}) draws otherwise than a proved one"

    @property
    def code(self) -> str:
        """The methods with distribution and version."""
        entries = [registry.find("unlearners", name) for name in dict.fromkeys(self.trial.rewriters)]
        return ", ".join(f"{e.name!r} ({e.distribution} {e.version})" for e in entries)

    @property
    def as_it_acts_now(self) -> tuple[str, ...]:
        """What equal draws do not show of outside code."""
        # by whom it is registered, too: an object can have another class by now
        own = {name for name, entry in registry.entries("unlearners").items() if entry.own}
        steps = [step for step in self.trial.steps if step.name not in own or is_strange(_own_method(step))]
        outside = dict.fromkeys(step.name for step in steps if not step.edits)
        return tuple(
            f"{name!r} follows the proved method that it followed when the run was made: it did not choose one by the "
            "draws, and remember which. It is compared as it acts now, so that is a matter of its code."
            for name in outside
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """What each method is compared with, and the run's own plan."""
        steps = zip(self.trial.steps, self.beside, strict=True)
        return (*(_line(step, name) for step, name in steps), str(self.own))

    @property
    def figures(self) -> tuple[Figure, ...]:
        """What came of the comparison."""
        return (
            Figure(
                "equal",
                "Plans equal to those of a proved method",
                self.compared.equal,
                "counted up to the first that differs; both were given the same plans and the same new keys",
            ),
            Figure(
                "own_plan",
                "The run's own plan beside that of a proved method",
                self.own.answer,
                "made again from the keys of the lineage, draw for draw and in the initial model",
            ),
        )

    def finding(self, verdict: Verdict, shows: str) -> Finding:
        """A finding without figures."""
        return Finding(
            NAME, Subject.ALGORITHM, verdict, shows, SHOWS_NOT, assumptions=(NON_ADAPTIVE,), details=self.lines
        )


def _own_method(step: Step) -> object:
    """The method of a step, also of one that acts behind an editor."""
    return step.unlearner.method if isinstance(step.unlearner, BehindEdit) else step.unlearner


def _line(step: Step, name: str) -> str:
    """What a method is compared with."""
    if step.edits:
        return f"{step.name!r} edits models and {name}; who comes next starts over"
    return f"{step.name!r} is compared with a proved method that {name}"


def trial_of(case: Case) -> Trial:
    """The requests of the lineage at hand as they were made; only the last one where the lineage is cut short."""
    links: Sequence[tuple[Run, Run | Tombstone | None]] = _whole(case) or [(case.run, case.parent)]
    methods = in_turn([Edited() if is_editor(run.unlearner) else run.unlearner for run, _ in links])
    law = case.run.plan.law
    steps = [
        Step(method, run.info["unlearner"]["use"], run.request, moment(parent, law.rounds) if parent else END)
        for (run, parent), method in zip(links, methods, strict=True)
    ]
    return Trial(law, case.run.populations[-len(steps) - 1], tuple(steps))


def _whole(case: Case) -> Sequence[tuple[Run, Run]]:
    """Every child of the lineage with its parent, oldest first; none where it is pruned, or not whole at hand."""
    chain = [case.run, *case.evidence.ancestors][::-1]
    if case.evidence.is_pruned or not case.evidence.complete_lineage:
        return []
    runs = [run for run in chain if isinstance(run, Run)]
    return list(zip(runs[1:], runs, strict=False))


def own_plan(case: Case, trial: Trial, beside: Sequence[str]) -> Own:
    """The run's plan beside what the references make of the training plan, with the keys of the lineage."""
    if strangers := [words for run in (case.run, *case.evidence.ancestors) if (words := made_by_another(run))]:
        return Own(False, why=f"made by another version: {strangers[0]}; what is said of plans is of the one installed")
    if case.evidence.is_pruned:
        return _where_pruned(case, beside)
    links = _whole(case)
    if not links:
        return Own(False, why="not all runs that it was made from are at hand")
    plan = drawn_plan(links[0][1])
    for (child, _), step, name in zip(links, trial.steps, beside, strict=True):
        plan = REFERENCES[name].rewrite(plan, step.request, child.sources[-1], step.not_before)
    found = drawn_plan(case.run)
    return Own(True, next(differences([found], [plan])))


def _where_pruned(case: Case, beside: Sequence[str]) -> Own:
    """The links that a prune left whole, each for itself, and then what the seeds give of the plan as a whole.

    The last method was run beside its reference. Nothing runs an earlier one here, so where it is nobody's reference,
    and draws otherwise in this run, that is no proof against it, and none for the run.
    """
    chain = (case.run, *case.evidence.ancestors)
    if apart := _link(case.run, case.parent, beside[-1:]):
        return Own(True, apart)
    for child, parent in pairwise(chain[1 : len(bearing(case)) + 1]):
        if not by_the_reference(child) and (apart := _link(child, parent, tuple(PROVED))):
            name = child.info["unlearner"]["use"]
            return Own(False, why=f"the lineage is pruned, and {name!r} draws otherwise than a proved method: {apart}")
    return _followed(case, beside)


def _link(run: Run | Tombstone, parent: Run | Tombstone | None, names: Sequence[str]) -> Difference | None:
    """Where a run differs from what each of some references makes of its parent, if both are at hand as they were made.

    Draws that a prune took away cannot be read; then it shows nothing.
    """
    if not (isinstance(run, Run) and isinstance(parent, Run)) or run.pruned or is_editor(run.unlearner):
        return None
    found, before, not_before = drawn_plan(run), drawn_plan(parent), moment(parent, run.plan.law.rounds)
    apart = None
    try:
        for name in names:
            made = REFERENCES[name].rewrite(before, run.request, run.sources[-1], not_before)
            if (apart := first_difference(found, made)) is None:
                return None
    except EvidenceError:
        return None
    return apart


def _followed(case: Case, beside: Sequence[str]) -> Own:
    """The run's plan beside the one that its seeds give position by position: what can be compared after a prune.

    Seeds do not tell which request kept nothing, so :func:`repeated` takes that from the run. It is compared with the
    references: each of them keeps nothing, or all that it may, and every method was run beside one.
    """
    requests = len(case.run.requests)
    if len(beside) < requests:
        what = f"the lineage is pruned: of its {requests} methods only the last was looked at"
        return Own(False, why=what, excused=True)
    unknown = Own(False, why="the lineage is pruned, and its plan does not follow from the seeds left", excused=True)
    if not is_closed(case.run.plan.law):
        return unknown
    try:
        same = repeated(case.run, (case.run, *case.evidence.ancestors)).streams == case.run.plan.streams
    except EvidenceError:
        same = False
    (first,) = case.run.plan.streams[Stream.INITIAL]
    if not same or any(name not in FOLLOWED for name in beside):
        return unknown
    expected = max((number for number, name in enumerate(beside, 1) if FOLLOWED[name]), default=0)
    if first.source == expected:
        return Own(True)
    ours, theirs = (f"it anew for request {n}" if n else "that of training" for n in (first.source, expected))
    return Own(True, Difference(START, ours, theirs))
