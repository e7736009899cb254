"""Level 2: the model is execute(retained data, plan), from scratch, bit for bit.

One half of exactness. It catches kept rounds that still know the erased data through aggregation weights,
scaling constants, or an aggregator's memory, and models that were made in any other way. On another platform
it judges by a tolerance (:mod:`fuaudit.audits.replay.tolerance`); a spot check replays stretches drawn by the
key of the audit (:mod:`fuaudit.audits.replay.stretches`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import ClassVar

import torch
from torch import Tensor

from fuaudit.audits.replay.edited import before_edits, of_edited
from fuaudit.audits.replay.events import OTHER_TALE, as_told, wrong_events
from fuaudit.audits.replay.judgement import OTHER_MODEL, Judgement
from fuaudit.audits.replay.messages import of_messages
from fuaudit.audits.replay.stretches import spot_check
from fuaudit.audits.replay.tolerance import within_tolerance
from fuaudit.data.adversaries import suspected
from fuaudit.errors import UsageError
from fuaudit.runs.encoding import digest_of_vector, same_round
from fuaudit.runs.ledger import models_told
from fuaudit.text import counted
from fuaudit.training.execute import initial_state
from fuaudit.training.rounds import State
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, Verdict
from fuaudit.verification.rerun import EQUAL_BITS

TESTS = "Test rows have no ids, so all of them have to be at hand, in their order."
"""Why fewer test rows are other ones."""

SHOWS_NOT = "It does not show that the plan has the law that it should have; that is for enumeration."
BITWISE = "bitwise comparison of stored and recomputed models"


@dataclass(frozen=True)
class Replay:
    """Executes the run's plan on the retained data, erased rows overwritten by NaN, and compares every stored model.

    Attributes:
        stretches: how many stretches between stored models to replay, drawn by the key of the audit, each from
            the model stored before it; 0 replays everything from scratch. ``effort.spot_check`` goes before it.
        detection: the probability with which a spot check must have seen one forged stretch in order to pass,
            in (0, 1]; at 1 only a check of all stretches passes.
        tolerance: on another platform, in units of the machine epsilon of the run's dtype (256 are 3.1e-5 in
            float32 and 5.7e-14 in float64), relative to the largest entry of a tensor, or
            of a client's row in it; 0 allows none.

    Raises:
        UsageError: an option is out of range.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"data", "erased", "parent", "spot_check"})
    knows_received: ClassVar[bool] = True
    recomputes: ClassVar[str] = "stored models, from the retained data: all of them, or where the check says so a part"

    stretches: int = 0
    detection: float = 1.0
    tolerance: int = 256

    def __post_init__(self) -> None:
        if self.stretches < 0 or not 0 < self.detection <= 1 or self.tolerance < 0:
            raise UsageError("replay needs stretches >= 0, detection in (0, 1] and tolerance >= 0")

    @property
    def evidence(self) -> frozenset[str]:
        """None where a PASS may leave stretches that nobody looked at."""
        return frozenset({"execution"}) if self.detection == 1 else frozenset()

    def examine(self, case: Case) -> Finding:
        """PASS on equal bits, FAIL on others on the same platform; elsewhere by the tolerance. Draws a spot check.

        Of an edited run the model that was edited is replayed, on the rows that it was trained on.
        """
        if judged := without_rows(case):
            return judged.finding("replay", SHOWS_NOT)
        if not case.evidence.is_editor:
            return of_messages(self._of_plan(case), case.run)
        found = before_edits(case)
        if isinstance(found, Judgement):
            return found.finding("replay", SHOWS_NOT)
        return of_edited(of_messages(self._of_plan(found), found.run), found)

    def _of_plan(self, case: Case) -> Finding:
        """Of a run whose rows are at hand."""
        stretches = self.stretches if case.effort.spot_check is None else case.effort.spot_check
        if wrong_records := contradictions(case):
            reason = "The run contradicts itself about the models that it stores."
            return Judgement(Verdict.FAIL, reason, details=wrong_records).finding("replay", SHOWS_NOT)
        if stretches:
            return spot_check(case, stretches, self.detection)
        return self._whole(case).finding("replay", SHOWS_NOT + as_told(case))

    def _whole(self, case: Case) -> Judgement:
        stored = {round_number: case.run.checkpoint(round_number) for round_number in case.rerun.stored_rounds}
        differences = [
            (round_number, _difference(vector, stored[round_number][0]))
            for round_number, (vector, state) in sorted(case.rerun.replayed.items())
            if not same_round((vector, state), stored[round_number])
        ]
        executed = range(1, case.run.rounds_executed + 1)
        if number := wrong_events(case, case.rerun.events, executed):
            elsewhere = case.rerun.elsewhere(case.run)
            if refuted := wrong_events(case, case.rerun.events, executed, everywhere=bool(elsewhere)):
                # a model that was another one before can be why: clients then agree on other coordinates, for example
                before = [f"before that, after round {r}, {how}" for r, how in differences if r < refuted]
                return Judgement(Verdict.FAIL, OTHER_TALE.format(refuted), details=tuple(before[:1]))
            return Judgement(Verdict.INCONCLUSIVE, OTHER_TALE.format(number), details=elsewhere)
        if not differences:
            of = f"the retained data{' and of what came in messages' * bool(case.run.received_rounds)}"
            shows = f"All {len(stored)} stored models are what the plan makes of {of}, bit for bit."
            again = "as the run records them; all were executed again"
            figures = (
                Figure("models", "Stored models compared", len(stored), "each computed anew from the retained data"),
                Figure("rounds", "Rounds executed", case.run.rounds_executed, again),
            )
            return Judgement(Verdict.PASS, shows, figures)
        figures = (
            Figure("first_difference", "First round that differs", differences[0][0], BITWISE),
            Figure("differences", "Stored models that differ", len(differences), BITWISE),
        )
        details = tuple(f"after round {r} {how}" for r, how in differences)
        elsewhere = case.rerun.elsewhere(case.run, until=differences[0][0])
        if not elsewhere:
            reason = "Stored models are not what the plan makes of the retained data."
            return Judgement(Verdict.FAIL, reason, figures, "", (), (EQUAL_BITS,), details, plainly=OTHER_MODEL)
        judged = within_tolerance(case, stored, self.tolerance)
        return replace(judged, figures=(*figures, *judged.figures), details=(*judged.details, *elsewhere, *details))


def without_rows(case: Case) -> Judgement | None:
    """What is said where the retained rows are not all at hand as they were; None where they are."""
    if case.dataset is None:
        reason = "The retained data is not at hand: nothing was replayed."
        return Judgement(Verdict.INCONCLUSIVE, reason, details=("Give --data ROOT.",))
    if case.evidence.differences.contradict:
        return _other_rows(case)
    if missing := case.evidence.differences.absent:
        count = sum(map(len, missing.values()))
        whose = f"{counted(count, 'retained row')} of {counted(len(missing), 'client')}"
        reason = f"{whose} {'is' if count == 1 else 'are'} not at hand: nothing was replayed."
        return Judgement(Verdict.INCONCLUSIVE, reason, details=tuple(_rows_in_words(case, missing)))
    return None


def _other_rows(case: Case) -> Judgement:
    """Rows at hand are not those committed to: a FAIL where they are read as they were for the run."""
    found = case.evidence.differences
    count = sum(map(len, found.rows.values()))
    parts = [f"{counted(count, 'retained row')} of {counted(len(found.rows), 'client')}"] if count else []
    parts += [counted(len(found.tests), "test row")] if found.tests else []
    differ = "differs" if count + len(found.tests) == 1 else "differ"
    reason = f"The data at hand is not what was committed to: {' and '.join(parts)} {differ}."
    details = [case.evidence.moved] if case.evidence.moved else []
    here, then = len(case.evidence.rows.test_targets), len(case.run.contents.tests)
    if here != then:
        details.append(f"{counted(here, 'test row')} are at hand, and the run committed to {then:,}. {TESTS}")
    details += _rows_in_words(case, found.rows)
    details += [f"test rows: {_some(found.tests)}"] if found.tests else []
    details.append("Either the data was changed after the commitment, or other data is at hand.")
    details += [] if found.tests else suspected(case.run.config.adversary, found.rows)
    verdict = Verdict.FAIL
    if not case.evidence.same_reader:
        verdict = Verdict.INCONCLUSIVE
        details.append("Rows are read here by another reader, or on another platform, than for the run.")
    how = "the digest of each row at hand was compared with the contents that were committed to"
    figures = (
        Figure("other_rows", "Retained rows at hand that are other ones", count, how),
        Figure("other_clients", "Clients whose rows they are", len(found.rows), how),
        Figure("other_test_rows", "Test rows at hand that are other ones", len(found.tests), how),
    )
    return Judgement(verdict, reason, figures, details=tuple(details))


def _rows_in_words(case: Case, rows: Mapping[int, tuple[int, ...]]) -> Iterator[str]:
    """A line for each of the first clients of some rows."""
    for client in list(rows)[:SOME]:
        yield f"{case.run.called(client)}: rows {_some(rows[client])}"
    if len(rows) > SOME:
        yield f"and {len(rows) - SOME} more clients"


def _some(rows: tuple[int, ...]) -> str:
    return ", ".join(map(str, rows[:SOME])) + (f" and {len(rows) - SOME} more" if len(rows) > SOME else "")


SOME = 10
"""How many rows, and clients, a finding names."""


def contradictions(case: Case) -> tuple[str, ...]:
    """What is wrong with the stored models on any platform: their rounds, their form, or what the ledger says."""
    run = case.run
    if run.checkpoints != case.rerun.stored_rounds:
        return (f"rounds stored: {list(run.checkpoints)}; rounds expected: {list(case.rerun.stored_rounds)}",)
    stored = {round_number: run.checkpoint(round_number) for round_number in run.checkpoints}
    start = initial_state(case.rerun.ready.procedure, [run.plan], run.plan.retained, case.rerun.ready.device)
    form = _form(*start.of(0))
    logged = models_told(run.ledger)
    return (
        *(
            f"what is stored after round {round_number} has not the form of this model"
            for round_number in stored
            if _form(*stored[round_number]) != form
        ),
        *(
            f"the ledger names another model for round {round_number}"
            for round_number, (vector, _) in stored.items()
            if round_number in logged and logged[round_number] != digest_of_vector(vector)
        ),
    )


def _form(vector: Tensor, state: State) -> list[tuple[str, torch.Size, torch.dtype]]:
    return [(name, tensor.shape, tensor.dtype) for name, tensor in [("", vector), *sorted(state.items())]]


def _difference(replayed: Tensor, stored: Tensor) -> str:
    """In words: by how much two models ``(d,)`` differ, or that replay ran into the NaN that stands for erased rows."""
    if replayed.isnan().any() and stored.isfinite().all():
        return "replay gives NaN: the mark that the plan reads erased rows, which replay overwrites by NaN"
    gap = float((replayed - stored).abs().max())
    return (
        f"the stored model differs by up to {gap:.3g}" if isfinite(gap) else "a model holds numbers that are not finite"
    )
