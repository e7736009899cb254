"""Level 8: every file of the run is regenerated from the retained data alone, and other copies are listed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import reduce
from math import isclose
from operator import or_
from typing import Any

import torch

from fuaudit import registry
from fuaudit.config import build_stage
from fuaudit.data.dataset import digest_of_test
from fuaudit.draws import END
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Request
from fuaudit.runs.files import sha256
from fuaudit.runs.ledger import NAME as LEDGER
from fuaudit.runs.products import METRICS, OWN, PARTICIPATION, derived, participation
from fuaudit.runs.prune import TOMBSTONE, Tombstone, other_holders
from fuaudit.runs.run import Run
from fuaudit.runs.tables import checkpoint_name
from fuaudit.training.setup import depended_on
from fuaudit.training.stages import Chain
from fuaudit.verification.case import Case, drawn_plan
from fuaudit.verification.counterfactual import changed_clients
from fuaudit.verification.finding import Copy, Finding, Verdict
from fuaudit.verification.replay.tolerance import Judgement, within_tolerance

SHOWS_NOT = "It does not show that no copy exists elsewhere: backups, participants, exported models."

BOOKKEEPING = frozenset(
    {"run.json", "plan.json", "keys.json", "config.toml", "partition.safetensors", "recorded.safetensors", "edit.json"}
)
"""Files that record how the run came about rather than what was learnt; none holds data or models."""


CHECKPOINTS = "checkpoints/"


@dataclass(frozen=True)
class Lineage:
    """Executes the plan with the erased rows overwritten by NaN and compares every file, byte for byte.

    On another platform models are judged as :class:`~fuaudit.verification.replay.audit.Replay` does, by ``tolerance``
    (in units of the machine epsilon), and every other file must follow from the stored models. Where the auditor
    asked for a spot check, files are compared with what follows from the stored models, and nothing is passed.

    Raises:
        UsageError: the tolerance is negative.
    """

    tolerance: int = 256

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise UsageError("lineage needs tolerance >= 0")

    def examine(self, case: Case) -> Finding:
        """FAIL on a file that is not regenerated, or that nothing regenerates; copies elsewhere are listed."""
        copies = other_copies(case)
        judged = self._judge(case)
        statistic = {"other_copies": sum(copy.holds for copy in copies), **judged.statistic}
        return replace(judged, statistic=statistic).finding("lineage", SHOWS_NOT, copies)

    def _judge(self, case: Case) -> Judgement:
        at_hand = _at_hand(case)
        if case.is_editor:
            return self._figures_of_an_edited_model(case, at_hand)
        if not at_hand:
            reason = "The data of the run, retained rows and test rows, is not at hand."
            return Judgement(Verdict.INCONCLUSIVE, reason, {}, details=("Give --data ROOT.",))
        followed = _of_models(case) if case.spot else case.regenerated
        if strays := _strays(case, followed):
            reason = f"{len(strays)} files of the run do not follow from its plan."
            return Judgement(Verdict.FAIL, reason, {}, details=tuple(strays))
        other = _others(case, followed)
        if other and not case.same_platform:
            judged = self._elsewhere(case, followed if case.spot else _of_models(case))
        else:
            judged = _judged(other, len(followed), spot=bool(case.spot))
        return replace(judged, statistic={"regenerated": len(followed) - len(other), **judged.statistic})

    def _figures_of_an_edited_model(self, case: Case, at_hand: bool) -> Judgement:
        """No plan makes an edited model, but a plan says who took part, and stored models make figures."""
        judged = Judgement(Verdict.NOT_APPLICABLE, "The model was edited: no plan regenerates it.", {})
        if at_hand:
            followed = _of_models(case)
            other = _others(case, followed) if case.same_platform else _exact(case, followed)
            if not other and not self._same_figures(case, followed):
                return replace(judged, details=("the figures differ from those of the stored models",))
        else:
            other = [] if _follows_from_plan(case) else [PARTICIPATION]
        if other:
            shows = f"{len(other)} files of the run do not follow from its plan and its stored models."
            return Judgement(Verdict.FAIL, shows, {}, details=tuple(f"not regenerated: {name}" for name in other))
        return judged

    def _elsewhere(self, case: Case, followed: dict[str, bytes]) -> Judgement:
        """On another platform: exact where no arithmetic is, by the tolerance for models and figures.

        ``followed`` is what follows from the stored models.
        """
        if exact := _exact(case, followed):
            return _judged(exact, len(followed))
        if case.spot:
            return _judged([], len(followed), spot=True)
        stored = {round: case.run.checkpoint(round) for round in case.replayed}
        judged = within_tolerance(case, stored, self.tolerance)
        if judged.verdict is Verdict.PASS and not self._same_figures(case, followed):
            shows = "The figures of the run differ from those of its stored models by more than the tolerance."
            return replace(judged, verdict=Verdict.INCONCLUSIVE, shows=shows, detectable="")
        return judged

    def _same_figures(self, case: Case, followed: dict[str, bytes]) -> bool:
        """Whether the figures are those of the stored models: losses within the tolerance, accuracies exactly."""
        limit = self.tolerance * torch.finfo(case.ready.learning.dtype).eps
        same = _agree(case.run.metrics, json.loads(followed[METRICS]), limit)
        return same and case.run.participation == json.loads(followed[PARTICIPATION])


def _at_hand(case: Case) -> bool:
    """Whether the data of the run, retained rows and test rows, is at hand."""
    data = case.dataset
    return data is not None and not changed_clients(case.run, data) and digest_of_test(data) == case.run.test_digest


def _of_plan(table: dict[str, Any]) -> dict[str, Any]:
    """What of ``participation.json`` follows from the plan alone."""
    return {name: value for name, value in table.items() if name != OWN}


def _follows_from_plan(case: Case) -> bool:
    """Whether the run tells of who took part what its plan shows, as far as no model is needed. Needs no data."""
    run, config = case.run, case.run.config
    solver, chain = registry.build("solvers", config.solver), Chain(tuple(map(build_stage, config.server)))
    expected = participation(run.learner, solver, chain, run.plan.retained, case.schedule)
    return bool(_of_plan(case.run.participation) == _of_plan(json.loads(json.dumps(expected))))


def _exact(case: Case, followed: dict[str, bytes]) -> list[str]:
    """The files other than those expected, on any platform: of figures, what is no arithmetic on models."""
    arithmetic = {METRICS}
    if _of_plan(case.run.participation) == _of_plan(json.loads(followed[PARTICIPATION])):
        arithmetic.add(PARTICIPATION)
    return [name for name in _others(case, followed) if name not in arithmetic]


def _found(case: Case) -> dict[str, str]:
    return {name: entry["sha256"] for name, entry in case.run.files.items() if name not in BOOKKEEPING}


def _strays(case: Case, followed: dict[str, bytes]) -> list[str]:
    """Files that nothing regenerates, and files that are missing; the same on every platform."""
    expected = {*map(checkpoint_name, case.stored_rounds), *(n for n in followed if not n.startswith(CHECKPOINTS))}
    found = _found(case)
    return [
        *(f"left behind, nothing regenerates it: {name}" for name in sorted(found.keys() - expected)),
        *(f"missing: {name}" for name in sorted(expected - found.keys())),
    ]


def _others(case: Case, expected: dict[str, bytes]) -> list[str]:
    """The files whose bytes are not those expected."""
    found = _found(case)
    return sorted(name for name, content in expected.items() if found.get(name) != sha256(content))


def _of_models(case: Case) -> dict[str, bytes]:
    """Every file but the checkpoints, as it follows from the stored models and the plan."""
    run, population = case.run, case.run.plan.retained
    return derived(case.ready, population, case.schedule, run.checkpoints, lambda round: run.checkpoint(round)[0])


def _judged(other: list[str], count: int, spot: bool = False) -> Judgement:
    """By bytes alone; for a spot check, files were compared with what follows from the stored models."""
    if other:
        shows = f"{len(other)} files of the run do not follow from the retained data."
        return Judgement(Verdict.FAIL, shows, {}, details=tuple(f"not regenerated: {name}" for name in other))
    if spot:
        shows = "The stored models were only spot-checked; whether they follow from the retained data stays open."
        return Judgement(Verdict.INCONCLUSIVE, shows, {})
    shows = f"All {count} files that hold models or figures follow from the retained data, byte for byte."
    return Judgement(Verdict.PASS, shows, {})


def _agree(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], limit: float) -> bool:
    """Whether losses agree within the tolerance, relatively, and everything else exactly."""
    rest = [[{**row, "test_loss": None} for row in rows] for rows in (ours, theirs)]
    losses = [(a["test_loss"], b["test_loss"]) for a, b in zip(ours, theirs, strict=False)]
    return rest[0] == rest[1] and all(
        a == b or (isinstance(a, float) and isinstance(b, float) and isclose(a, b, rel_tol=limit)) for a, b in losses
    )


def other_copies(case: Case) -> tuple[Copy, ...]:
    """Where the contribution of what any request of the lineage erased may still lie: named, not judged.

    These are the ancestors at hand, and runs beside the run that hold a key of its earlier populations.
    """
    run = case.run
    if not run.is_child:
        return ()
    found = []
    for ancestor in case.ancestors:
        if isinstance(ancestor, Tombstone):
            found.append(_buried(ancestor))
        else:
            later = run.requests[len(ancestor.requests) :]
            found += [Copy(f"{ancestor.path.name}/{name}", why) for name, why in _holding(ancestor, later)]
    oldest = case.ancestors[-1] if case.ancestors else run
    if oldest.is_child:
        missing = oldest.info["parent"]["digest"][:16]
        where = f"the parent {missing} of {oldest.path.name}"
        found.append(Copy(where, "is not at hand; it may hold models with the contribution"))
    return *found, *_beside(case)


def _buried(stone: Tombstone) -> Copy:
    """What is left of a pruned ancestor; a prune that was killed may have left more than a tombstone."""
    rest = sorted(item.name for item in stone.path.iterdir() if item.name not in (TOMBSTONE, LEDGER))
    if rest:
        why = f"was pruned, but {', '.join(rest[:5])} still lie there; call fuaudit prune again"
        return Copy(stone.path.name, why)
    return Copy(stone.path.name, "was pruned; its tombstone holds digests only", holds=False)


def _holding(ancestor: Run, later: tuple[Request, ...]) -> list[tuple[str, str]]:
    """Files of an ancestor that hold what later requests erased, and why."""
    plan = drawn_plan(ancestor)
    drawn = min((at for request in later if (at := plan.first_involvement(request))), default=END).round
    known = depended_on(ancestor.config, reduce(or_, later, Request()))
    keys = "gives every erased draw back; prune destroys it"
    if drawn > plan.law.rounds:
        keys = "with the partition, gives the draws over the old population back"

    def holding(round: int) -> str:
        """How a model came to hold it; empty where it does not."""
        if round >= drawn:
            return "trained with the erased data"
        return f"made in rounds that depend on {known}" if known and round else ""

    last = holding(plan.law.rounds)
    return [
        *((checkpoint_name(r), f"model after round {r}, {holding(r)}") for r in ancestor.checkpoints if holding(r)),
        *([("model.safetensors", f"final model, {last}")] if last else []),
        ("keys.json", keys),
    ]


def _beside(case: Case) -> list[Copy]:
    """Runs beside this one, of no part in its lineage, that hold a key of its earlier populations."""
    lineage = {ancestor.path.resolve() for ancestor in case.ancestors}
    try:
        holding, unread = other_holders(case.run, lineage)
    except EvidenceError as error:  # beside it lies another run under the name of an ancestor
        return [Copy("runs beside this one", f"could not be looked through: {error}")]
    why = "gives draws over an earlier population back; its models may hold the contribution"
    return [
        *(Copy(f"{path.name}/keys.json", why) for path in holding),
        *(Copy(f"{path.name}/keys.json", "cannot be read, and may give such draws back") for path in unread),
    ]
