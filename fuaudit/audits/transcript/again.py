"""The sums of a run once more, in the clear: what its clients' rows add up to, and which models that makes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fuaudit.audits.replay.audit import without_rows
from fuaudit.audits.transcript.known import told_rounds
from fuaudit.runs.encoding import same_round
from fuaudit.secure.envelope import terms_of
from fuaudit.secure.messages import Message
from fuaudit.secure.recheck.shown import Wrong
from fuaudit.secure.suites import Books, Kept
from fuaudit.secure.terms import Opened
from fuaudit.secure.transcript import opened_in
from fuaudit.training.execute import RoundState, execute
from fuaudit.verification.case import Case


@dataclass(frozen=True)
class Again:
    """What the rows of a run's own rounds give, from the model that is stored before the first of them.

    Attributes:
        opened: round and buffer -> the sum.
        columns: round -> how many columns were summed, and their digest.
        others: the first round after which another model is stored; None for none.
    """

    opened: Mapping[tuple[int, int], Opened]
    columns: Mapping[int, tuple[int, str]]
    others: int | None


def not_at_hand(case: Case) -> str:
    """Why nobody can make the sums again here; empty where it can be done."""
    if case.run.sealed:
        return "The run is a sealed view: it holds no partition and no secrets of clients."
    if case.run.redacted:
        return "The run is redacted: the secrets are not there with which its clients drew."
    judged = without_rows(case)
    return "" if judged is None else judged.shows


def again(case: Case) -> Again:
    """Execute the run's own rounds with the suite "plain"; its messages are looked at and dropped."""
    run, ready, told = case.run, case.rerun.ready, list[Message]()

    def noted(message: Message) -> None:
        if message.step in ("terms", "opened"):  # the rows themselves are not kept
            told.append(message)

    exchange = ready.procedure.exchange.secured("plain", Books(kept=Kept(noted)))
    procedure, retained = replace(ready.procedure, exchange=exchange), run.plan.retained
    numbers = [event["round"] for event in told_rounds(run)]
    opened, columns, others = dict[tuple[int, int], Opened](), dict[int, tuple[int, str]](), list[int]()
    if not numbers:
        return Again(opened, columns, None)
    start = RoundState.of_run(*run.checkpoint(numbers[0] - 1), ready.device)
    problem, draws = ready.client_problem(retained), run.stage_draws(run.plan)
    rounds = execute(procedure, problem, retained, case.rerun.schedule, start, ready.engine, numbers[0], draws)
    for number, state in rounds:
        opened |= {(number, buffer): one for buffer, one in opened_in(told).items()}
        for terms in (terms_of(message) for message in told if message.step == "terms"):
            columns[number] = terms.columns, terms.coordinates
        told.clear()
        if not same_round(state.of(0), run.checkpoint(number)):
            others.append(number)
        case.effort.progress("making sums again", number, run.rounds_executed)
    return Again(opened, columns, min(others, default=None))


def other_sums(
    found: Mapping[tuple[int, int], Opened], due: Again, unknown: Collection[tuple[int, int]] = ()
) -> Iterator[Wrong]:
    """Where sums that were opened are not those of the rows, but for rounds and buffers of which nothing is known."""
    for at in sorted((found.keys() | due.opened.keys()) - {*unknown}):
        one, other = found.get(at), due.opened.get(at)
        if one is None or other is None:
            what = "was not opened, and the rows have one" if one is None else "was opened, and the rows have none"
            yield Wrong("sum", f"a sum {what}", *at)
        elif one.members != other.members or not np.array_equal(one.sums, other.sums):
            yield Wrong("sum", "what was opened is not the sum of the rows of the clients that were drawn", *at)
    if due.others is not None:
        yield Wrong("sum", "the stored model is not the one that the sums of the rows make", due.others)
