"""Level 4: proof on small federations shaped like the run that the rewritten plan has the law of retraining."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fuaudit import registry
from fuaudit.audits.bearing import KEEPING_NOTHING, bearing
from fuaudit.draws import END, Keyed
from fuaudit.plans import Law, Population
from fuaudit.plans.reference import Edited
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.proofs.sweep import Made, Reached, Sweep, swept
from fuaudit.proofs.toys import Shape
from fuaudit.runs.ancestors import moment
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.unlearning.protocol import is_editor
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import NO_REQUEST, NON_ADAPTIVE, Finding, Subject, Verdict

if TYPE_CHECKING:
    from fuaudit.verification.case import Case

SHOWS_NOT = (
    "It does not cover larger federations by itself, ids in other places, requests that depend on the draws, "
    "bookkeeping (segments, keys, ledger), timing, or the pair of old and new model."
)


def requests_made(case: Case) -> tuple[Made, list[str]]:
    """Those of the lineage at hand, oldest first, and the names of their methods.

    What does not bear on the run is carried out by the method that starts over, and an editor keeps every draw: later
    ones may count the requests.
    """
    chain, bearers = (case.run, *case.evidence.ancestors), len(bearing(case))
    steps = list(zip(chain, (*chain[1:], None), strict=True))
    made: list[tuple[Any, Shape]] = []
    names: list[str] = []
    for number, (run, parent) in enumerate(steps):
        if isinstance(run, Run) and run.is_child:
            bears = number < bearers
            name = run.info["unlearner"]["use"] if bears else KEEPING_NOTHING
            method = run.unlearner if bears else registry.build("unlearners", {"use": KEEPING_NOTHING})
            made.append((Edited() if is_editor(method) else method, _shape(run, parent)))
            names.append(name)
    return made[::-1], names[::-1]


def _shape(run: Run, parent: Run | Tombstone | None) -> Shape:
    shape = Shape.of(run.request, run.plan.populations[-2])
    # small federations stop after one round, and after two; a tombstone tells how many were executed, too
    stopped = parent is not None and moment(parent, run.plan.law.rounds) < END
    return replace(shape, moment=1) if stopped else shape


@dataclass(frozen=True)
class Enumeration:
    """Sweeps small federations with requests shaped like those of the run, within a budget of ``leaves``.

    Attributes:
        leaves: how many outcomes may be walked for each method and shape of request, and for all as they were made,
            by a method that keeps what it may. One that draws more may walk 16 times as many.
    """

    evidence: ClassVar[frozenset[str]] = frozenset({"law"})
    uses: ClassVar[frozenset[str]] = frozenset({"parent"})
    recomputes: ClassVar[str] = "the law of the method on small federations, in exact fractions"

    leaves: int = 50_000

    def examine(self, case: Case) -> Finding:
        """FAIL with the smallest witness when a federation is refuted; PASS when none is and they reach far enough."""
        if case.request is None or case.evidence.is_editor:
            reason = NO_REQUEST if case.request is None else "An editor has no plan whose law could be compared."
            return Finding("enumeration", Subject.ALGORITHM, Verdict.NOT_APPLICABLE, reason, SHOWS_NOT)
        plan, (made, names) = case.run.plan, requests_made(case)
        return self.judged(plan.law, plan.populations[-2], made, names, case.effort.progress, case.key)

    def judged(
        self,
        law: Law,
        before: Population,
        made: Made,
        names: Sequence[str],
        progress: object = None,
        key: Keyed | None = None,
    ) -> Finding:
        """What is found of methods under a law, for requests like those made.

        Args:
            before: the population before the last request.
            names: what the method of each request is called.
            key: draws federations beside those of lists; none without it.
        """
        found, reached = swept(law, before, made, self.leaves, progress, key)
        figures = _figures(found, law)
        if found.smallest and reached.refuted:
            toy, result = found.smallest
            rewriters = [names[at] for at in reached.refuted.steps if not isinstance(made[at][0], Edited)]
            far, name = str(result.total_variation), " then ".join(map(repr, rewriters))
            shows = f"{name} is not exact: on a small federation the law is {far} away from retraining."
            details = (
                f"refuted for {reached.refuted.words}",
                f"smallest federation: {toy}",
                f"witness: {result.witness}",
            )
            return _finding(Verdict.FAIL, shows, (*figures, _distance(far)), details)
        if not found.proved:
            shows = f"No small federation of the law {law.name!r} could be enumerated."
            return _finding(Verdict.INCONCLUSIVE, shows, figures)
        if reached.short:
            shows = (
                f"{counted(len(found.proved), 'small federation was', 'small federations were')} proved, but "
                f"within {self.leaves:,} leaves that does not reach far enough: not reached: "
                f"{'; '.join(reached.short)}. A spec of your own may allow more leaves."
            )
            return _finding(Verdict.INCONCLUSIVE, shows, figures, reached.details)
        shows = (
            f"On {counted(len(found.proved), 'small federation')} the plan has exactly the law of "
            f"retraining (total variation 0). {' '.join((*reached.numbers, *reached.rates, *_by_chance(reached)))}"
        )
        found_exact = _finding(Verdict.PASS, shows, (*figures, _distance("0")), reached.details)
        trusted = (*found_exact.assumptions, *_on_the_dear(reached.dear), *_on_the_law(law))
        return replace(found_exact, assumptions=trusted)


def _by_chance(reached: Reached) -> Iterator[str]:
    """In sentences: how many federations the key of the audit drew, and how many of these were not walked."""
    if reached.drawn:
        were = "was" if reached.drawn == 1 else "were"
        drawn = f"{reached.drawn:,} of the federations {were} drawn by the key of the audit"
        yield f"{drawn}, with sizes, ids and owners as they came."
    if reached.drawn and reached.dear:
        yield f"{reached.dear:,} more of that key {'was' if reached.dear == 1 else 'were'} not walked."


def _on_the_dear(dear: int) -> list[str]:
    """What a PASS takes on trust where federations were too large for the method alone."""
    if not dear:
        return []
    were = "was" if dear == 1 else "were"
    return [
        f"Nothing is wrong where the method draws far more than one that keeps what it may: {dear} of the small "
        f"federations that the key drew {were} not walked for that."
    ]


def _on_the_law(law: Law) -> list[str]:
    """What a PASS takes on trust where the law is outside code."""
    if not is_foreign(law):
        return []
    return [
        f"The small laws of {law.name!r} are like the law of the run: they are what its code makes of it (smaller)."
    ]


def _figures(found: Sweep, law: Law) -> tuple[Figure, ...]:
    every = "all draws enumerated, exact fractions"
    return (
        Figure("proved", "Small federations without a difference", len(found.proved), every),
        Figure("refuted", "Small federations with a difference", len(found.refuted), every),
        Figure(
            "too_large",
            "Small federations not enumerated",
            found.too_large,
            "their size exceeds the budget of the spec",
        ),
        Figure(
            "costly",
            "Small federations too large for the method alone",
            found.costly,
            "a method that keeps what it may would take far fewer outcomes there",
        ),
        Figure(
            "leaves",
            "Outcomes enumerated",
            found.leaves,
            "counted over all federations, once for each method; what the spec bounds is what a method takes that "
            "keeps what it may",
        ),
        Figure("law", "Law of the draws", law.name, "as the learner of the run declares it"),
    )


def _distance(value: str) -> Figure:
    return Figure(
        "total_variation",
        "Total variation from retraining",
        value,
        "half the sum of all differences of probabilities, in exact fractions; where it is not 0, on the smallest "
        "federation that differs",
    )


def _finding(verdict: Verdict, shows: str, figures: tuple[Figure, ...], details: tuple[str, ...] = ()) -> Finding:
    return Finding(
        "enumeration",
        Subject.ALGORITHM,
        verdict,
        shows,
        SHOWS_NOT,
        figures,
        assumptions=(NON_ADAPTIVE,),
        details=details,
    )
