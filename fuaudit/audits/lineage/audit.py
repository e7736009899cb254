"""Level 8: every file of the run is regenerated from retained data and test rows alone, and other copies are listed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from fuaudit.audits.lineage.equal_rows import with_equal_rows
from fuaudit.audits.lineage.for_testing import IN_USE, hers, read_by
from fuaudit.audits.lineage.other_copies import other_copies
from fuaudit.audits.lineage.regenerated import (
    data_at_hand,
    differ,
    differ_anywhere,
    follow_from_models,
    last_digits,
    strays,
    unlike_the_plan,
)
from fuaudit.audits.lineage.unused_draws import with_records_of_before
from fuaudit.audits.replay.judgement import Judgement
from fuaudit.audits.replay.tolerance import within_tolerance
from fuaudit.errors import UsageError
from fuaudit.runs.rounding import DIGITS
from fuaudit.text import counted, span
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, ResidualCopy, Verdict
from fuaudit.verification.rerun import EQUAL_BITS

DO = ("file of the run does", "files of the run do")

OTHER_FIGURES = "The figures of the run differ from those of its stored models by more than one in the last digit."

LAST_DIGITS = "Nothing is hidden in last digits: {} here, each by one in the last of {} digits."
"""What a PASS takes on trust that a run of another platform does not get its figures bit for bit."""

SHOWS_NOT = f"It does not show that no copy exists elsewhere: backups, participants, exported models. {IN_USE}"


@dataclass(frozen=True)
class Lineage:
    """Executes the plan with the erased rows overwritten by NaN and compares every file, byte for byte.

    On another platform models are judged as :class:`~fuaudit.audits.replay.audit.Replay` does, by ``tolerance``
    (in units of the machine epsilon), and every other file must follow from the stored models. Models of equal bits
    need no tolerance. Figures are stored with few digits. A figure may differ by one in the last of them, and a PASS
    says how many do. Where the auditor
    asked for a spot check, files are compared with what follows from the stored models, and nothing is passed.

    Retained rows that equal erased ones are listed, and a PASS says how many there are: another client may hold the
    same row honestly, and nobody asked her. With ``equal = "fail"`` one of them is a FAIL.

    Attributes:
        tolerance: on another platform, in units of the machine epsilon, as that of replay; 0 allows models none.
        equal: what retained rows do that equal erased ones: they are listed ("list"), or make a FAIL
            ("fail").

    Raises:
        UsageError: the tolerance is negative.
    """

    evidence: ClassVar[frozenset[str]] = frozenset({"regeneration"})
    uses: ClassVar[frozenset[str]] = frozenset({"data", "erased", "parent", "spot_check", "receipts"})
    recomputes: ClassVar[str] = "every file of the run that holds models or figures"
    knows_received: ClassVar[bool] = True

    tolerance: int = 256
    equal: Literal["list", "fail"] = "list"

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise UsageError("lineage needs tolerance >= 0")

    def examine(self, case: Case) -> Finding:
        """FAIL on a file that is not regenerated, or that nothing regenerates; copies elsewhere are listed."""
        own = hers(case)
        tests = (ResidualCopy("the test rows", f"{own}; figures are measured on them"),) if own else ()
        copies = (*other_copies(case), *tests)
        found = _of_messages(case, with_equal_rows(case, self._judge(case), fails=self.equal == "fail"))
        judged = with_records_of_before(case, found)
        others = Figure(
            "other_copies",
            "Other places that may hold the contribution",
            sum(copy.holds for copy in copies),
            "counted from the plans of all ancestors at hand, the rounds they stored, and the keys and plans of runs "
            "of the same training beside this one",
        )
        return replace(judged, figures=(others, *judged.figures)).finding("lineage", SHOWS_NOT, copies)

    def _judge(self, case: Case) -> Judgement:
        at_hand = data_at_hand(case)
        if case.evidence.is_editor:
            return self._figures_of_an_edited_model(case, at_hand)
        if not at_hand:
            reason = "The data of the run, retained rows and test rows, is not at hand."
            return Judgement(Verdict.INCONCLUSIVE, reason, details=("Give --data ROOT.",))
        followed = follow_from_models(case) if case.effort.spot_check else case.rerun.regenerated
        if found := strays(case, followed):
            reason = f"{counted(len(found), *DO)} not follow from its plan."
            return Judgement(Verdict.FAIL, reason, details=tuple(found))
        other = differ(case, followed)
        if other and not case.rerun.same_platform:
            judged = self._elsewhere(case, other, followed if case.effort.spot_check else follow_from_models(case))
            judged = replace(judged, details=(*judged.details, *case.rerun.elsewhere(case.run)))
        else:
            judged = _judged(other, len(followed), spot_check=bool(case.effort.spot_check))
            judged = replace(judged, assumptions=(EQUAL_BITS,) if other else ())
        regenerated = Figure(
            "regenerated",
            "Files regenerated",
            len(followed) - len(other),
            "computed anew without the rows in question; compared bytewise",
        )
        return replace(judged, figures=(regenerated, *judged.figures))

    def _figures_of_an_edited_model(self, case: Case, at_hand: bool) -> Judgement:
        """No plan makes an edited model, but a plan says who took part, and stored models make figures."""
        followed = follow_from_models(case) if at_hand else {}
        if not at_hand:
            other = unlike_the_plan(case)
        else:
            other = differ(case, followed) if case.rerun.same_platform else differ_anywhere(case, followed)
        if other:
            shows = f"{counted(len(other), *DO)} not follow from its plan and its stored models."
            return Judgement(Verdict.FAIL, shows, details=tuple(f"not regenerated: {name}" for name in other))
        if at_hand and last_digits(case, followed) is None:
            return Judgement(Verdict.INCONCLUSIVE, OTHER_FIGURES, details=case.rerun.elsewhere(case.run))
        return Judgement(Verdict.NOT_APPLICABLE, "The model was edited: no plan regenerates it.", details=read_by(case))

    def _elsewhere(self, case: Case, other: list[str], followed: dict[str, bytes]) -> Judgement:
        """On another platform: exact where no arithmetic is, by the tolerance for models and figures.

        ``other`` are the files that differ, ``followed`` is what follows from the stored models: no files of rounds.
        """
        if exact := differ_anywhere(case, followed):
            return _judged(exact, len(followed))
        if case.effort.spot_check:
            return _judged([], len(followed), spot_check=True)
        if all(name in followed for name in other):
            return self._of_equal_models(case, followed)
        stored = {round_number: case.run.checkpoint(round_number) for round_number in case.rerun.replayed}
        judged = within_tolerance(case, stored, self.tolerance)
        if judged.verdict is not Verdict.PASS:
            return judged
        count = last_digits(case, followed)
        if count is None:
            return replace(judged, verdict=Verdict.INCONCLUSIVE, shows=OTHER_FIGURES, detectable="")
        return replace(judged, assumptions=(*judged.assumptions, *_on_last_digits(count)))

    def _of_equal_models(self, case: Case, followed: dict[str, bytes]) -> Judgement:
        """Models agree in every bit, so nothing could be left in them; figures may differ in their last digits.

        Measuring rounds on every platform, so a tolerance of 0 is one for models alone.
        """
        count = last_digits(case, followed)
        if count is None:
            return Judgement(Verdict.INCONCLUSIVE, OTHER_FIGURES)
        near = differ(case, followed)
        shows = (
            "All files that hold models or figures follow from the retained data and the test rows, byte for byte but "
            f"for the last digit of {counted(count, 'figure')}, which this platform measures otherwise."
        )
        details = tuple(f"other last digits: {name}" for name in near)
        return Judgement(Verdict.PASS, shows, assumptions=_on_last_digits(count), details=details)


def _of_messages(case: Case, judged: Judgement) -> Judgement:
    """Nothing is passed where files follow from messages as well: they are no retained data."""
    if judged.verdict is not Verdict.PASS or not case.run.received_rounds:
        return judged
    shows = (
        f"{judged.shows} Of rounds {span(case.run.received_rounds)} they follow from messages as they were recorded, "
        "which nothing regenerates and which can hold anything."
    )
    return replace(judged, verdict=Verdict.INCONCLUSIVE, shows=shows)


def _on_last_digits(count: int) -> tuple[str, ...]:
    """What a PASS rests on where so many figures differ."""
    return (LAST_DIGITS.format(counted(count, "figure differs", "figures differ"), DIGITS),) if count else ()


def _judged(other: list[str], count: int, spot_check: bool = False) -> Judgement:
    """By bytes alone; for a spot check, files were compared with what follows from the stored models."""
    if other:
        shows = f"{counted(len(other), *DO)} not follow from the retained data and the test rows."
        return Judgement(Verdict.FAIL, shows, details=tuple(f"not regenerated: {name}" for name in other))
    if spot_check:
        shows = "The stored models were only spot-checked; whether they follow from the retained data stays open."
        return Judgement(Verdict.INCONCLUSIVE, shows)
    shows = (
        f"All {count} files that hold models or figures follow from the retained data and the test rows, byte for byte."
    )
    return Judgement(Verdict.PASS, shows)
