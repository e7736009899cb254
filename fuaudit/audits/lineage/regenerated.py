"""Regenerated files: what follows from a run's plan and models, compared with what the run holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fuaudit import registry
from fuaudit.audits.lineage.unused_draws import unread, unused_draws
from fuaudit.formats.files import sha256
from fuaudit.formats.schema import SALT
from fuaudit.runs.derived_files import derived, of_plan
from fuaudit.runs.forms import Json
from fuaudit.runs.layout import file_of, files_of_such, form_of, round_of
from fuaudit.verification.case import Case

if TYPE_CHECKING:
    from torch import Tensor


def data_at_hand(case: Case) -> bool:
    """Whether the data of the run, retained rows and test rows, is at hand."""
    return case.dataset is not None and not case.evidence.differences


def follow_from_models(case: Case) -> dict[str, bytes]:
    """Every file but those of rounds, as it follows from the stored models and the plan."""
    run, population = case.run, case.run.plan.retained
    rerun, salt, known = case.rerun, run.participation_salt, case.rerun.measures

    def model(at: int) -> Tensor:
        return run.checkpoint(at)[0]

    return derived(rerun.ready, population, rerun.schedule, run.checkpoints, model, salt=salt, measures=known)


def _digests(case: Case) -> dict[str, str]:
    """The digests of the run's files that something has to regenerate."""
    return {name: entry["sha256"] for name, entry in case.run.files.items() if _is_regenerated(name)}


def _is_regenerated(name: str) -> bool:
    file = file_of(name)
    return file is None or file.regenerated


def differ(case: Case, expected: dict[str, bytes]) -> list[str]:
    """The files whose bytes are not those expected."""
    found = _digests(case)
    return sorted(name for name, content in expected.items() if found.get(name) != sha256(content))


def strays(case: Case, followed: dict[str, bytes]) -> list[str]:
    """Files that nothing regenerates, and files that are missing; the same on every platform."""
    run = case.run
    such = files_of_such(run.having(run.pruned, run.exchange), case.rerun.stored_rounds)
    stored = {name for name in such if round_of(name) is not None and _is_regenerated(name)}
    expected = {*stored, *(name for name in followed if round_of(name) is None)}
    found = _digests(case)
    return [
        *unread(unused_draws(run)[:3]),
        *(f"left behind, nothing regenerates it: {name}" for name in sorted(found.keys() - expected)),
        *(f"missing: {name}" for name in sorted(expected - found.keys())),
    ]


def differ_anywhere(case: Case, followed: dict[str, bytes]) -> list[str]:
    """The files that differ where every platform gives the same: where nothing was measured on models."""
    return [name for name in differ(case, followed) if not _is_exact(case, name, followed[name])]


def _is_exact(case: Case, name: str, content: bytes) -> bool:
    """Whether a file that differs does so in what was measured on models alone."""
    form = form_of(name)
    return isinstance(form, Json) and form.exact(case.run.document(name)) == form.exact(json.loads(content))


def unlike_the_plan(case: Case) -> list[str]:
    """The files that tell otherwise than the plan shows, as far as no model is needed. Needs no data."""
    run, config = case.run, case.run.config
    solver = registry.build("solvers", config.solver)
    followed = of_plan(run.learner, solver, run.exchange, run.plan.retained, case.rerun.schedule)
    return [
        name
        for name, value in followed.items()
        # a salt follows from secrets, and is compared where the run is opened
        if form_of(name).exact({**run.document(name)} | {SALT: ""}) != form_of(name).exact({**value} | {SALT: ""})
    ]


def last_digits(case: Case, followed: dict[str, bytes]) -> int | None:
    """How many figures of the run differ from those that follow, each by one in its last digit; None for others."""
    found = [
        form.last_digits(case.run.document(name), json.loads(content))
        for name, content in followed.items()
        if isinstance(form := form_of(name), Json)
    ]
    return None if None in found else sum(count for count in found if count is not None)
