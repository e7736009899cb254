"""Spot checks: a few stretches between stored models, replayed, and the probability of having seen a forgery.

A stretch goes from one stored model to the next. It is forged when the model at its end is not what the plan
makes of the model at its start. One forged stretch is enough to leave erased data in everything after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, pairwise
from math import comb

import numpy as np

from fuaudit.audits.replay.events import OTHER_TALE, as_told, wrong_events
from fuaudit.audits.replay.judgement import OTHER_MODEL, UNKNOWN_KEY
from fuaudit.commitments.keys import derive
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.plans.expanded import SelectedRuns
from fuaudit.runs.encoding import digest_of_vector, same_round
from fuaudit.runs.ledger import models_told
from fuaudit.statistics.rounding import down
from fuaudit.text import counted
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.execute import RoundState, execute, initial_state
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.verification.rerun import EQUAL_BITS

SHOWS_NOT = (
    "It starts from stored models, so it does not show that a start was made without the erased data: only all "
    "stretches from round 0 on do. Nor does it show that the plan has the law that it should have."
)

Stretch = tuple[int, int]
"""The rounds of two stored models, one after the other."""


def detection(stretches: int, replayed: int, forged: int) -> Fraction:
    """The probability that a uniform subset of ``replayed`` of so many stretches holds one of the ``forged`` ones.

    Hypergeometric: one minus the subsets without a forged stretch over all subsets.
    """
    return 1 - Fraction(comb(stretches - forged, replayed), comb(stretches, replayed))


def suffices(chance: Fraction, asked: float) -> bool:
    """Whether a probability is at least the one asked for, which is meant as it is written: .2 is a fifth."""
    return chance >= Fraction(str(asked))


def drawn_stretches(case: Case, count: int) -> tuple[list[Stretch], list[Stretch]]:
    """All stretches of the run, and ``count`` of them (at most all) drawn without replacement by the audit's key."""
    rounds = case.rerun.stored_rounds
    whole = list(pairwise(rounds))
    source = Keyed(derive(case.key.secret, "spot check"))
    chosen = source.subset(Address(Purpose.AUDIT), range(len(whole)), min(count, len(whole)))
    return whole, [whole[number] for number in chosen]


def spot_check(case: Case, count: int, asked: float) -> Finding:
    """FAIL on a forged stretch; PASS when one would have been seen with the probability asked for, or more.

    Args:
        count: stretches to replay, at least 1; the initial model is always made anew from its key.
        asked: the probability of seeing one forged stretch that a PASS needs.

    Raises:
        UsageError: no data is at hand.
    """
    whole, chosen = drawn_stretches(case, count)
    chance = detection(len(whole), len(chosen), 1)
    problem = case.rerun.ready.client_problem(case.run.plan.retained)
    found = {stretch: list(_differences(case, stretch, problem)) for stretch in chosen}
    found = {(0, 0): list(_wrong_start(case))} | found
    wrong = [difference for stretch in found.values() for difference in stretch]
    # a stretch is judged by who made it alone: it starts from what is stored
    elsewhere = {at: case.rerun.elsewhere(case.run, at[1], at[0]) for at, stretch in found.items() if stretch}
    refuted = [one for at, stretch in found.items() for one in stretch if one.everywhere or not elsewhere[at]]
    models = [one for one in refuted if not one.tale]
    if not wrong:
        shows = (
            f"{len(chosen)} of {counted(len(whole), 'stretch', 'stretches')}, drawn by the audit's "
            "key, and the initial model are what the "
            f"plan makes of the stored models before them, bit for bit; one forged stretch would have been seen with "
            f"probability {chance}."
        )
        verdict = Verdict.PASS if suffices(chance, asked) else Verdict.INCONCLUSIVE
    elif refuted:
        tale = OTHER_TALE.format(refuted[0].round)
        shows = "A stored model is not what the plan makes of the stored model before it." if models else tale
        verdict = Verdict.FAIL
    else:
        shows = "A spot check compares bits, and this platform gives others than the run's; replay everything here."
        verdict = Verdict.INCONCLUSIVE
    return Finding(
        "replay",
        Subject.RUN,
        verdict,
        shows,
        SHOWS_NOT + as_told(case),
        _figures(len(whole), len(chosen), asked, "the spec" if case.effort.spot_check is None else "the auditor"),
        plainly=OTHER_MODEL if models else "",
        detectable="" if wrong else f"one forged stretch of {len(whole)}, with probability {down(float(chance), 4)}",
        assumptions=(
            UNKNOWN_KEY,
            *([EQUAL_BITS] if models else []),
        ),
        details=(
            *(difference.text for difference in wrong),
            *dict.fromkeys(chain(*elsewhere.values())),
            f"stretches replayed: {', '.join(f'{a + 1} to {b}' for a, b in chosen)}",
        ),
    )


def _figures(whole: int, chosen: int, asked: float, chosen_by: str) -> tuple[Figure, ...]:
    several = [forged for forged in (2, 5, 10, 20, 50) if forged <= whole]
    table = "; ".join(f"{forged}: {down(float(detection(whole, chosen, forged)), 4)}" for forged in several)
    return (
        Figure("stretches", "Stretches between stored models", whole, "counted from the rounds that the run stores"),
        Figure(
            "stretches_replayed",
            "Stretches replayed",
            chosen,
            "drawn without replacement by the audit's key; each from the model stored before it, compared bit for bit",
        ),
        Figure(
            "detection",
            "Probability of seeing one forged stretch",
            str(detection(whole, chosen, 1)),
            "hypergeometric, exact: stretches replayed over all stretches",
        ),
        Figure("detection_asked", "Probability that a pass needs", asked, "set in the spec; 1 asks for all stretches"),
        Figure("chosen_by", "Who asked for a spot check", chosen_by, "the spec, or the auditor with --spot-check"),
        Figure(
            "detection_of_more",
            "Probability of seeing one of several forged stretches",
            table or "there is one stretch only",
            "hypergeometric; the number of forged stretches before each colon",
        ),
    )


@dataclass(frozen=True)
class Difference:
    """What is wrong with a model, or with the ``tale`` of a round; ``everywhere``: on any platform."""

    text: str
    round: int
    tale: bool = False
    everywhere: bool = False


def _wrong_start(case: Case) -> Iterator[Difference]:
    """Whether the stored initial model is not the one that its key makes."""
    ready, plan = case.rerun.ready, case.run.plan
    start = initial_state(ready.procedure, [plan], plan.retained, ready.device)
    if not same_round(start.of(0), case.run.checkpoint(0)):
        yield Difference("the stored initial model is not the one that its key makes", 0)


def _differences(case: Case, stretch: Stretch, problem: ClientProblem) -> Iterator[Difference]:
    """What differs when a stretch is executed on the retained data from the model stored before it."""
    ready, run = case.rerun.ready, case.run
    before, after = stretch
    retained = run.plan.retained
    start = RoundState.of_run(*run.checkpoint(before), ready.device)
    schedule = SelectedRuns(case.rerun.schedule, np.zeros(1, dtype=np.int64), after)
    logged = models_told(run.ledger)
    round_state = start
    draws, received = run.stage_draws(run.plan), run.received
    for round_number, round_state in execute(
        ready.procedure, problem, retained, schedule, start, ready.engine, before + 1, draws, received
    ):
        if round_number in logged and logged[round_number] != digest_of_vector(round_state.vectors[0]):
            other = f"the ledger names another model for round {round_number}"
            yield Difference(f"from the model stored after round {before}, {other}", round_number)
        asked = case, {round_number: round_state.events}, range(round_number, round_number + 1)
        if wrong_events(*asked):
            text = f"a ledger tells of round {round_number} what its stages do not tell"
            yield Difference(text, round_number, tale=True, everywhere=bool(wrong_events(*asked, everywhere=True)))
    if not same_round(round_state.of(0), run.checkpoint(after)):
        text = f"from the model stored after round {before}, the plan makes another one after round {after}"
        yield Difference(text, after)
