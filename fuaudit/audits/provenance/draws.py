"""The last plan: no draw holds what any request names, and whether there was anything to forget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fuaudit import registry
from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.declared import says
from fuaudit.plans import Plan, Request
from fuaudit.plans.participation import Involvement
from fuaudit.plans.plan import occurrences
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.runs.drawn import drawn_plan, first_drawn
from fuaudit.runs.encoding import involvement_of
from fuaudit.runs.layout import INVOLVEMENT
from fuaudit.runs.names import carried_out
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import span
from fuaudit.training.setup import depended_on
from fuaudit.verification.case import Case


@dataclass(frozen=True)
class Use:
    """Whether there was nothing to forget: the answer, and what it means to the person concerned and for a PASS.

    ``unused_by`` is what never used it, as the beginning of a sentence; empty where it was used, or nobody can tell.
    """

    answer: str
    plainly: str = ""
    unused_by: str = ""
    alone: bool = True

    @property
    def qualification(self) -> str:
        """One sentence for a PASS; empty for none."""
        if not self.unused_by:
            return ""
        if self.alone:
            return f"{self.unused_by} never used what was to be forgotten: {SHOWS_NOTHING}"
        return f"{self.unused_by} never used what was asked for: this run does not show how it would be forgotten."

    @property
    def is_untold(self) -> bool:
        """Whether nobody can tell any more what the training used."""
        return self.answer.startswith("unknown")


SHOWS_NOTHING = "this run shows nothing of how the method forgets."
BEFORE, TRAINING = "The run before", "The training"


def absence(case: Case) -> CheckResult:
    """No draw holds what was to be forgotten: of the plan that made the model, or the one that editors worked on."""
    run = case.evidence.planned
    if run is case.run:
        return _absence(run)
    if not isinstance(run, Run):
        return unclear("The run whose model was edited is not at hand, so its draws cannot be read.")
    if not run.is_child:
        return holds(f"The model of {name_of(run)} was edited, which was asked to forget nothing before.")
    found = _absence(run)
    return replace(found, text=f"Of {name_of(run)}, whose model was edited: {found.text}")


def _absence(run: Run) -> CheckResult:
    """No draw of the expanded plan of a run holds what was to be forgotten, in any of its requests so far."""
    plan = run.plan
    if run.rounds_executed != plan.law.rounds:
        return fails("The run was stopped: not all of its draws were executed.")
    clients = {c for request in run.requests for c in request.clients}
    samples = {s for request in run.requests for s in request.samples}
    allowed = plan.retained.samples
    for round_number in range(1, plan.law.rounds + 1):
        cohort = plan.cohort(round_number)
        strangers = [c for c in cohort if c in clients or c not in allowed]
        if strangers:
            return fails(f"Round {round_number} draws client {strangers[0]}, which was to be forgotten.")
        for client, occurrence in occurrences(cohort):
            own = set(allowed[client])
            for step in range(1, plan.law.steps + 1):
                place = round_number, step, client, occurrence
                # a law of a stranger may say that something else was included than what is left
                named = {*plan.batch(*place), *(plan.included(*place) if says(plan.law, "cuts") else ())}
                wrong = sorted(s for s in named if s in samples or s not in own)
                if wrong:
                    where = f"Round {round_number}, step {step} draws sample {wrong[0]} of client {client}"
                    return fails(f"{where}, which was to be forgotten.")
    return holds("No draw at any position holds anything that was to be forgotten.")


def key_reuse(plan: Plan) -> CheckResult:
    """The draws of a request serve the population after it and no other, so no random number is used twice."""
    if plan.mixes_generations:
        return fails("Draws of one request were used over the population of another.")
    return holds("The draws of every request were used over one population only.")


def otherwise(run: Run) -> str:
    """In words that a run recorded other draws than its plan has now; "" where not, or where no stranger draws.

    A law of a stranger can answer by what its module remembers, and a learner of a stranger make another law of one
    config. What training wrote down was written before that.
    """
    own = not is_foreign(run.law) and registry.find("learners", run.config.learner["use"]).own
    if own or run.by_editor:
        return ""
    plan, told = drawn_plan(run), [tuple(cohort) for cohort in run.participation["cohorts"]]
    for number, cohort in enumerate(told, 1):
        if plan.cohort(number) != cohort:
            return f"{name_of(run)} records another cohort of round {number} than its law draws now"
    now = Involvement.of(LazySchedule([plan], run.rounds_executed))
    if run.has(INVOLVEMENT) and involvement_of(run.arrays(INVOLVEMENT)) != now:
        return f"{name_of(run)} records other first draws of samples than its law draws now"
    return ""


def remembered(run: Run) -> Iterator[CheckResult]:
    """Unclear where a run recorded other draws than its plan has now."""
    if words := otherwise(run):
        yield unclear(f"{words}: the law answers otherwise than in training, or the record is wrong.")


def never_drawn(case: Case) -> dict[int, Use]:
    """Whether there was nothing to forget, by the number of the request; see :func:`_before`.

    Asked of what the auditor has in hand, in the requests that carried it out; without that, of the last request.
    """
    run, expected = case.run, case.known.request
    last = len(run.requests)
    if case.request is None:
        return {0: Use("no request")}
    parts = ({} if expected is None else carried_out(run, expected)) or {last: case.request}
    alone = parts == {last: case.request}
    return {number: replace(_before(case, number, part), alone=alone) for number, part in parts.items()}


def _before(case: Case, number: int, part: Request) -> Use:
    """Whether the run before a request holds nothing of a part of it: it never drew it, nor used it otherwise."""
    # a request further back was carried out by a run further up
    above = case.evidence.ancestors[len(case.run.requests) - number :]
    if not above or not isinstance(parent := above[0], Run):
        return Use("unknown: the parent is not at hand")
    if first_drawn(parent, part):
        return Use("no: it was drawn")
    if words := otherwise(parent):
        return Use(f"unknown: {words}")
    if rounds := parent.received_rounds:
        return Use(
            f"unknown: rounds {span(rounds)} of {name_of(parent)} came in messages, and no plan says what was in them"
        )
    if parent.by_editor:
        return Use("unknown: the parent's model was edited, and what its editor read is in no plan")
    if known := depended_on(parent.config, part):
        return Use(f"no: it was never drawn, but rounds depend on {known}")
    return _of_earlier(above[1:], number, part)


def _of_earlier(earlier: Sequence[Run | Tombstone], number: int, part: Request) -> Use:
    """Where the parent never drew it: a request before may have drawn anew what an earlier run had used."""
    for run in earlier:
        if isinstance(run, Run) and first_drawn(run, part):
            return Use(
                f"yes: the run before never drew it, but {name_of(run)} had",
                "The model before held nothing of this data, but an earlier model had been trained with it.",
                BEFORE,
            )
    if changed := [words for run in earlier if isinstance(run, Run) and (words := otherwise(run))]:
        return Use(
            f"yes: the run before never drew it; whether an earlier one had is not known, for {changed[0]}",
            "The model before held nothing of this data. Whether an earlier one did is not known.",
            BEFORE,
        )
    if told := [name_of(run) for run in earlier if run.received_rounds]:
        return Use(
            f"yes: the run before never drew it; but rounds of {told[0]} came in messages, and no plan says what was "
            "in them",
            "The model before held nothing of this data. Whether an earlier one did is not known.",
            BEFORE,
        )
    if edited := [name_of(run) for run in earlier if isinstance(run, Run) and run.by_editor]:
        return Use(
            f"yes: the run before never drew it; but the model of {edited[0]} was edited, and what its editor read is "
            "in no plan",
            "The model before held nothing of this data. Whether an earlier one did is not known.",
            BEFORE,
        )
    if len(earlier) < number - 1 or not all(isinstance(run, Run) for run in earlier):
        return Use(
            "yes: the run before never drew it; whether an earlier one had is not known, for not all are at hand",
            "The model before held nothing of this data. Whether an earlier one did is not known.",
            BEFORE,
        )
    return Use(
        "yes: it was never drawn",
        "The training had never used this data, so this model held nothing of it.",
        TRAINING,
    )


def in_words(uses: Mapping[int, Use]) -> str:
    """The answers of :func:`never_drawn`; by the numbers of requests where there are several."""
    if len(uses) > 1:
        return "; ".join(f"request {number}: {use.answer}" for number, use in uses.items())
    (use,) = uses.values()
    nothing = use.unused_by == TRAINING and use.alone
    return f"{use.answer}, this run contains nothing to forget" if nothing else use.answer
