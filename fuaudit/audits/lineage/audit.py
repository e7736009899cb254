"""Level 8: every file of the run is regenerated from the retained data alone, and other copies are listed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import isclose
from operator import or_
from typing import Any, ClassVar, Literal

import torch

from fuaudit import registry
from fuaudit.audits.lineage.equal_rows import HERS, NEAR, NO_NEAR, Equal, equal_rows
from fuaudit.audits.replay.tolerance import Judgement, within_tolerance
from fuaudit.commitments.contents import span
from fuaudit.config import build_stage
from fuaudit.draws import END, Address, Recorded
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import sha256
from fuaudit.plans import Request
from fuaudit.plans.expanded import expand
from fuaudit.runs.derived_files import OWN, derived, participation
from fuaudit.runs.layout import (
    CHECKPOINT,
    FILES,
    KEYS,
    LEDGER,
    METRICS,
    MODEL,
    PARTICIPATION,
    RECORDED,
    TOMBSTONE,
    checkpoint_name,
    file_of,
)
from fuaudit.runs.neighbours import other_holders
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.training.setup import depended_on
from fuaudit.training.stages import Chain
from fuaudit.verification.case import Case, drawn_plan
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, ResidualCopy, Verdict
from fuaudit.verification.rerun import EQUAL_BITS

SHOWS_NOT = "It does not show that no copy exists elsewhere: backups, participants, exported models."

CHECKPOINTS = next(file for file in FILES if file.name == CHECKPOINT)


@dataclass(frozen=True)
class Lineage:
    """Executes the plan with the erased rows overwritten by NaN and compares every file, byte for byte.

    On another platform models are judged as :class:`~fuaudit.audits.replay.audit.Replay` does, by ``tolerance``
    (in units of the machine epsilon), and every other file must follow from the stored models. Where the auditor
    asked for a spot check, files are compared with what follows from the stored models, and nothing is passed.

    Retained rows that equal erased ones are listed, and a PASS says how many there are: another client may hold the
    same row honestly, and nobody asked her. With ``equal = "fail"`` one of them is a FAIL.

    Attributes:
        tolerance: on another platform, in units of the machine epsilon, as that of replay.
        equal: what retained rows do that equal erased ones: they are listed ("list"), or make a FAIL
            ("fail").

    Raises:
        UsageError: the tolerance is negative.
    """

    evidence: ClassVar[frozenset[str]] = frozenset({"regeneration"})
    uses: ClassVar[frozenset[str]] = frozenset({"data", "erased", "parent", "spot_check", "receipts"})
    recomputes: ClassVar[str] = "every file of the run that holds models or figures"

    tolerance: int = 256
    equal: Literal["list", "fail"] = "list"

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise UsageError("lineage needs tolerance >= 0")

    def examine(self, case: Case) -> Finding:
        """FAIL on a file that is not regenerated, or that nothing regenerates; copies elsewhere are listed."""
        copies = other_copies(case)
        judged = _with_records_of_before(case, self._with_equal_rows(case, self._judge(case)))
        others = Figure(
            "other_copies",
            "Other places that may hold the contribution",
            sum(copy.holds for copy in copies),
            "counted from the plans of all ancestors at hand, the rounds they stored, and the keys of runs beside this "
            "one",
        )
        return replace(judged, figures=(others, *judged.figures)).finding("lineage", SHOWS_NOT, copies)

    def _with_equal_rows(self, case: Case, judged: Judgement) -> Judgement:
        """The judgement, and what is known of retained rows that equal erased ones."""
        if not case.run.is_child:
            return judged
        if wrong := [receipt for receipt in case.known.receipts if receipt.commitment != case.run.commitment]:
            shows = f"The receipt of {wrong[0].whose!r} is under another commitment than the run."
            both = (f"receipt: {wrong[0].commitment}", f"run: {case.run.commitment}")
            return replace(judged, verdict=Verdict.FAIL, shows=shows, details=(*both, *judged.details))
        if case.dataset is None:
            return replace(judged, details=(*judged.details, "Retained rows were not compared with erased ones."))
        found = equal_rows(case.run, case.dataset, case.evidence.at_hand, case.known.receipts)
        looked = (
            f"Retained rows were compared with {found.compared} erased rows at hand and {found.opened} by receipts. "
            + NEAR
        )
        unknown = f"No retained row equals one of {found.unknown} erased rows, which are neither at hand nor opened."
        assumed = ((unknown,) if found.unknown else ()) + ((HERS,) if found.opened else ()) + (NO_NEAR,)
        details = (
            *(_equal_in_words(case, *pair) for pair in found.pairs[:MOST_EQUAL]),
            *judged.details,
            looked,
            *not_compared(found),
        )
        judged = replace(
            judged,
            figures=(*_of_equal_rows(found), *judged.figures),
            assumptions=(*judged.assumptions, *assumed),
            details=details,
        )
        if not found.pairs and found.unknown and self.equal == "fail" and judged.verdict is Verdict.PASS:
            # a spec that refuses equal rows has to know that there are none: what was not looked at shows nothing
            shows = f"{found.unknown} rows that were to be forgotten are neither at hand nor opened: none was compared."
            return replace(judged, verdict=Verdict.INCONCLUSIVE, shows=shows)
        if not found.pairs:
            return judged
        shows = f"{len({kept for kept, _ in found.pairs})} retained rows equal rows that were to be forgotten."
        if self.equal == "fail":
            return replace(judged, verdict=Verdict.FAIL, shows=shows)
        unasked = f"{shows} Their owners did not ask, and models follow from them."
        return replace(judged, qualification=f"{unasked} {judged.qualification}".strip())

    def _judge(self, case: Case) -> Judgement:
        at_hand = _at_hand(case)
        if case.evidence.is_editor:
            return self._figures_of_an_edited_model(case, at_hand)
        if not at_hand:
            reason = "The data of the run, retained rows and test rows, is not at hand."
            return Judgement(Verdict.INCONCLUSIVE, reason, details=("Give --data ROOT.",))
        followed = _of_models(case) if case.effort.spot_check else case.rerun.regenerated
        if strays := _strays(case, followed):
            reason = f"{len(strays)} files of the run do not follow from its plan."
            return Judgement(Verdict.FAIL, reason, details=tuple(strays))
        other = _others(case, followed)
        if other and not case.rerun.same_platform:
            judged = self._elsewhere(case, followed if case.effort.spot_check else _of_models(case))
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
        judged = Judgement(Verdict.NOT_APPLICABLE, "The model was edited: no plan regenerates it.")
        if at_hand:
            followed = _of_models(case)
            other = _others(case, followed) if case.rerun.same_platform else _exact(case, followed)
            if not other and not self._same_figures(case, followed):
                return replace(judged, details=("the figures differ from those of the stored models",))
        else:
            other = [] if _follows_from_plan(case) else [PARTICIPATION]
        if other:
            shows = f"{len(other)} files of the run do not follow from its plan and its stored models."
            return Judgement(Verdict.FAIL, shows, details=tuple(f"not regenerated: {name}" for name in other))
        return judged

    def _elsewhere(self, case: Case, followed: dict[str, bytes]) -> Judgement:
        """On another platform: exact where no arithmetic is, by the tolerance for models and figures.

        ``followed`` is what follows from the stored models.
        """
        if exact := _exact(case, followed):
            return _judged(exact, len(followed))
        if case.effort.spot_check:
            return _judged([], len(followed), spot_check=True)
        stored = {round_number: case.run.checkpoint(round_number) for round_number in case.rerun.replayed}
        judged = within_tolerance(case, stored, self.tolerance)
        if judged.verdict is Verdict.PASS and not self._same_figures(case, followed):
            shows = "The figures of the run differ from those of its stored models by more than the tolerance."
            return replace(judged, verdict=Verdict.INCONCLUSIVE, shows=shows, detectable="")
        return judged

    def _same_figures(self, case: Case, followed: dict[str, bytes]) -> bool:
        """Whether the figures are those of the stored models: losses within the tolerance, accuracies exactly."""
        limit = self.tolerance * torch.finfo(case.rerun.ready.procedure.dtype).eps
        same = _agree(case.run.metrics, json.loads(followed[METRICS]), limit)
        return same and case.run.participation == json.loads(followed[PARTICIPATION])


def _of_equal_rows(found: Equal) -> tuple[Figure, ...]:
    return (
        Figure(
            "equal_rows",
            "Retained rows that equal rows in question",
            len(found.pairs),
            "by their inputs where those at hand open their leaves, and by receipts; near copies are not looked for",
        ),
        Figure(
            "compared_rows",
            "Rows in question that retained ones were compared with",
            found.known,
            "those at hand that open their leaves, and those of receipts; each counted once",
        ),
    )


MOST_EQUAL = 20
"""How many equal rows a finding lists."""


def not_compared(found: Equal) -> Iterator[str]:
    """Rows at hand under erased ids that were not compared, in words."""
    for rows, why in (
        (found.others.other, "open no leaf of the commitment: they are other rows"),
        (found.others.unknown, "cannot be told from other rows: no salt is left that opens their leaves"),
    ):
        if rows:
            yield f"{len(rows)} rows at hand under erased ids {why}, and were not compared: {span(rows)}"


def _equal_in_words(case: Case, kept: int, erased: int) -> str:
    owner = case.run.called(case.run.plan.retained.owner[kept])
    return f"row {kept} of {owner} equals the erased row {erased}"


def _at_hand(case: Case) -> bool:
    """Whether the data of the run, retained rows and test rows, is at hand."""
    return case.dataset is not None and not case.evidence.differences


def _of_plan(table: dict[str, Any]) -> dict[str, Any]:
    """What of ``participation.json`` follows from the plan alone."""
    return {name: value for name, value in table.items() if name != OWN}


def _follows_from_plan(case: Case) -> bool:
    """Whether the run tells of who took part what its plan shows, as far as no model is needed. Needs no data."""
    run, config = case.run, case.run.config
    solver, chain = registry.build("solvers", config.solver), Chain(tuple(map(build_stage, config.server)))
    expected = participation(run.learner, solver, chain, run.plan.retained, case.rerun.schedule)
    return bool(_of_plan(case.run.participation) == _of_plan(json.loads(json.dumps(expected))))


def _exact(case: Case, followed: dict[str, bytes]) -> list[str]:
    """The files other than those expected, on any platform: of figures, what is no arithmetic on models."""
    arithmetic = {METRICS}
    if _of_plan(case.run.participation) == _of_plan(json.loads(followed[PARTICIPATION])):
        arithmetic.add(PARTICIPATION)
    return [name for name in _others(case, followed) if name not in arithmetic]


def _found(case: Case) -> dict[str, str]:
    return {
        name: entry["sha256"]
        for name, entry in case.run.files.items()
        if (file := file_of(name)) is None or file.regenerated
    }


def _strays(case: Case, followed: dict[str, bytes]) -> list[str]:
    """Files that nothing regenerates, and files that are missing; the same on every platform."""
    stored = map(checkpoint_name, case.rerun.stored_rounds)
    expected = {*stored, *(name for name in followed if file_of(name) is not CHECKPOINTS)}
    found = _found(case)
    unused = unused_draws(case.run)
    return [
        *(f"{RECORDED} holds a draw that the plan does not make: {at}" for at in unused[:3]),
        *(f"left behind, nothing regenerates it: {name}" for name in sorted(found.keys() - expected)),
        *(f"missing: {name}" for name in sorted(expected - found.keys())),
    ]


class _Watched(dict[Address, tuple[int, ...]]):
    """Answers, and which of them were asked for."""

    def __init__(self, answers: Mapping[Address, tuple[int, ...]]) -> None:
        super().__init__(answers)
        self.asked: set[Address] = set()

    def __getitem__(self, at: Address) -> tuple[int, ...]:
        self.asked.add(at)
        return super().__getitem__(at)


def _with_records_of_before(case: Case, judged: Judgement) -> Judgement:
    """The judgement, where an ancestor was pruned and the run holds draws of earlier requests that nobody reads.

    Elsewhere they are compared with the parent's. Nothing can be compared with a tombstone.
    """
    if judged.verdict is not Verdict.PASS or not any(isinstance(above, Tombstone) for above in case.evidence.ancestors):
        return judged
    if not (unused := unused_draws(case.run, all_of_them=True)):
        return judged
    shows = (
        f"{RECORDED} holds {len(unused)} draws of earlier requests that the plan does not read; an ancestor was "
        "pruned, so nothing shows that a method recorded them."
    )
    advice = f"The first of them is {unused[0]}. A prune of this run takes them out."
    return replace(judged, verdict=Verdict.INCONCLUSIVE, shows=shows, details=(*judged.details, advice))


def unused_draws(run: Run, all_of_them: bool = False) -> list[Address]:
    """The recorded draws of a run that its plan does not read, ascending.

    Those of earlier requests stay as they were recorded, also where a later request put others in their place; that
    they are the parent's is asked by the audit provenance. A prune leaves only what is read.

    Args:
        all_of_them: those of earlier requests too.
    """
    last, every = len(run.plan.sources) - 1, run.pruned or all_of_them
    watched = {
        n: _Watched(s.answers)
        for n, s in enumerate(run.plan.sources)
        if isinstance(s, Recorded) and (n == last or every)
    }
    if not watched:
        return []
    sources = tuple(Recorded(watched[n]) if n in watched else s for n, s in enumerate(run.plan.sources))
    expand(replace(run.plan, sources=sources))
    return sorted({at for answers in watched.values() for at in answers.keys() - answers.asked})


def _others(case: Case, expected: dict[str, bytes]) -> list[str]:
    """The files whose bytes are not those expected."""
    found = _found(case)
    return sorted(name for name, content in expected.items() if found.get(name) != sha256(content))


def _of_models(case: Case) -> dict[str, bytes]:
    """Every file but the checkpoints, as it follows from the stored models and the plan."""
    run, population = case.run, case.run.plan.retained
    rerun = case.rerun
    return derived(rerun.ready, population, rerun.schedule, run.checkpoints, lambda at: run.checkpoint(at)[0])


def _judged(other: list[str], count: int, spot_check: bool = False) -> Judgement:
    """By bytes alone; for a spot check, files were compared with what follows from the stored models."""
    if other:
        shows = f"{len(other)} files of the run do not follow from the retained data."
        return Judgement(Verdict.FAIL, shows, details=tuple(f"not regenerated: {name}" for name in other))
    if spot_check:
        shows = "The stored models were only spot-checked; whether they follow from the retained data stays open."
        return Judgement(Verdict.INCONCLUSIVE, shows)
    shows = f"All {count} files that hold models or figures follow from the retained data, byte for byte."
    return Judgement(Verdict.PASS, shows)


def _agree(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], limit: float) -> bool:
    """Whether losses agree within the tolerance, relatively, and everything else exactly."""
    rest = [[{**row, "test_loss": None} for row in rows] for rows in (ours, theirs)]
    losses = [(a["test_loss"], b["test_loss"]) for a, b in zip(ours, theirs, strict=False)]
    return rest[0] == rest[1] and all(
        a == b or (isinstance(a, float) and isinstance(b, float) and isclose(a, b, rel_tol=limit)) for a, b in losses
    )


def other_copies(case: Case) -> tuple[ResidualCopy, ...]:
    """Where the contribution of what any request of the lineage erased may still lie: named, not judged.

    These are the ancestors at hand, and runs beside the run that hold seeds of its earlier populations.
    """
    run = case.run
    if not run.is_child:
        return ()
    found = []
    for ancestor in case.evidence.ancestors:
        if isinstance(ancestor, Tombstone):
            found.append(_buried(ancestor))
        else:
            later = run.requests[len(ancestor.requests) :]
            found += [ResidualCopy(f"{ancestor.path.name}/{name}", why) for name, why in _holding(ancestor, later)]
    oldest = case.evidence.ancestors[-1] if case.evidence.ancestors else run
    if oldest.is_child:
        missing = oldest.info["parent"]["digest"][:16]
        where = f"the parent {missing} of {oldest.path.name}"
        found.append(ResidualCopy(where, "is not at hand; it may hold models with the contribution"))
    return *found, *_beside(case)


def _buried(stone: Tombstone) -> ResidualCopy:
    """What is left of a pruned ancestor; a prune that was killed may have left more than a tombstone."""
    rest = sorted(item.name for item in stone.path.iterdir() if item.name not in (TOMBSTONE, LEDGER))
    if rest:
        why = f"was pruned, but {', '.join(rest[:5])} still lie there; call fuaudit prune again"
        return ResidualCopy(stone.path.name, why)
    return ResidualCopy(stone.path.name, "was pruned; its tombstone holds no file of it but run.json", holds=False)


def _holding(ancestor: Run, later: tuple[Request, ...]) -> list[tuple[str, str]]:
    """Files of an ancestor that hold what later requests erased, and why."""
    plan = drawn_plan(ancestor)
    drawn = min((at for request in later if (at := plan.first_involvement(request))), default=END).round
    known = depended_on(ancestor.config, reduce(or_, later, Request()))
    keys = "gives every erased draw back; prune destroys it"
    if drawn > plan.law.rounds:
        keys = "with the partition, gives the draws over the old population back"

    def holding(round_number: int) -> str:
        """How a model came to hold it; empty where it does not."""
        if round_number >= drawn:
            return "trained with the erased data"
        return f"made in rounds that depend on {known}" if known and round_number else ""

    last = holding(plan.law.rounds)
    return [
        *((checkpoint_name(r), f"model after round {r}, {holding(r)}") for r in ancestor.checkpoints if holding(r)),
        *([(MODEL, f"final model, {last}")] if last else []),
        (KEYS, keys),
    ]


def _beside(case: Case) -> list[ResidualCopy]:
    """Runs beside this one, of no part in its lineage, that hold seeds of its earlier populations."""
    lineage = {ancestor.path.resolve() for ancestor in case.evidence.ancestors}
    try:
        holding, unread = other_holders(case.run, lineage)
    except EvidenceError as error:  # beside it lies another run under the name of an ancestor
        return [ResidualCopy("runs beside this one", f"could not be looked through: {error}")]
    why = "gives draws over an earlier population back; its models may hold the contribution"
    return [
        *(ResidualCopy(f"{path.name}/{KEYS}", why) for path in holding),
        *(ResidualCopy(f"{path.name}/{KEYS}", "cannot be read, and may give such draws back") for path in unread),
    ]
