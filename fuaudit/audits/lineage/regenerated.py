"""Regenerated files: what follows from a run's plan and models, compared with what the run holds."""

from __future__ import annotations

import json
from math import isclose
from typing import Any

from fuaudit import registry
from fuaudit.audits.lineage.unused_draws import unused_draws
from fuaudit.formats.files import sha256
from fuaudit.runs.derived_files import OWN, derived, participation
from fuaudit.runs.layout import (
    CHECKPOINT,
    FILES,
    MEMORIES,
    METRICS,
    PARTICIPATION,
    RECORDED,
    SECRETS,
    checkpoint_name,
    clients_own,
    file_of,
)
from fuaudit.verification.case import Case

MODELS = [file for file in FILES if file.name in (CHECKPOINT, MEMORIES)]


def data_at_hand(case: Case) -> bool:
    """Whether the data of the run, retained rows and test rows, is at hand."""
    return case.dataset is not None and not case.evidence.differences


def follow_from_models(case: Case) -> dict[str, bytes]:
    """Every file but the checkpoints, as it follows from the stored models and the plan."""
    run, population = case.run, case.run.plan.retained
    rerun = case.rerun
    return derived(rerun.ready, population, rerun.schedule, run.checkpoints, lambda at: run.checkpoint(at)[0])


def _digests(case: Case) -> dict[str, str]:
    """The digests of the run's files that something has to regenerate."""
    return {
        name: entry["sha256"]
        for name, entry in case.run.files.items()
        if (file := file_of(name)) is None or file.regenerated
    }


def differ(case: Case, expected: dict[str, bytes]) -> list[str]:
    """The files whose bytes are not those expected."""
    found = _digests(case)
    return sorted(name for name, content in expected.items() if found.get(name) != sha256(content))


def strays(case: Case, followed: dict[str, bytes]) -> list[str]:
    """Files that nothing regenerates, and files that are missing; the same on every platform."""
    rounds = case.rerun.stored_rounds
    stored = {*map(checkpoint_name, rounds), *clients_own(case.run.exchange, rounds)} - {SECRETS}
    expected = {*stored, *(name for name in followed if file_of(name) not in MODELS)}
    found = _digests(case)
    unused = unused_draws(case.run)
    return [
        *(f"{RECORDED} holds a draw that the plan does not make: {at}" for at in unused[:3]),
        *(f"left behind, nothing regenerates it: {name}" for name in sorted(found.keys() - expected)),
        *(f"missing: {name}" for name in sorted(expected - found.keys())),
    ]


def differ_anywhere(case: Case, followed: dict[str, bytes]) -> list[str]:
    """The files whose bytes differ where every platform gives the same ones: where no arithmetic on models is."""
    arithmetic = {METRICS}
    if _of_plan(case.run.participation) == _of_plan(json.loads(followed[PARTICIPATION])):
        arithmetic.add(PARTICIPATION)
    return [name for name in differ(case, followed) if name not in arithmetic]


def _of_plan(table: dict[str, Any]) -> dict[str, Any]:
    """What of ``participation.json`` follows from the plan alone."""
    return {name: value for name, value in table.items() if name != OWN}


def follows_from_plan(case: Case) -> bool:
    """Whether the run tells of who took part what its plan shows, as far as no model is needed. Needs no data."""
    run, config = case.run, case.run.config
    solver = registry.build("solvers", config.solver)
    expected = participation(run.learner, solver, run.exchange, run.plan.retained, case.rerun.schedule)
    return bool(_of_plan(case.run.participation) == _of_plan(json.loads(json.dumps(expected))))


def same_figures(case: Case, followed: dict[str, bytes], limit: float) -> bool:
    """Whether the run's figures are those that follow: losses within a relative limit, everything else exactly."""
    ours, theirs = case.run.metrics, json.loads(followed[METRICS])
    return (
        case.run.participation == json.loads(followed[PARTICIPATION])
        and [{**row, "test_loss": None} for row in ours] == [{**row, "test_loss": None} for row in theirs]
        and all(_close(a["test_loss"], b["test_loss"], limit) for a, b in zip(ours, theirs, strict=True))
    )


def _close(a: float | None, b: float | None, limit: float) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and isclose(a, b, rel_tol=limit))
