"""The contract of audits."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from fuaudit.data.dataset import Dataset
from fuaudit.declared import must_say
from fuaudit.errors import FuauditError
from fuaudit.plans import Request
from fuaudit.registry import entries
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.run import load_run
from fuaudit.testing.problems import Problems
from fuaudit.testing.tiny import key_of, tiny_config, tiny_dataset
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.verification.apart import changes, copied
from fuaudit.verification.audit import declared, wrong_in
from fuaudit.verification.case import Case
from fuaudit.verification.effort import Effort
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

SUBJECTS = ("training", "retrain", "fats", "noop", "finetune")
"""The tiny runs that an audit is tried on: a training run, and its children by these unlearners."""

OTHER_PROCESS = 2**22 + 1
"""A number that no process has: Linux counts to 2**22."""

BUDGET = 32
"""Training runs that an audit may execute."""


def check_audit(audit: object, expected: Mapping[str, str] | None = None, subjects: Sequence[str] = SUBJECTS) -> None:
    """Check that an audit keeps its contract, on tiny runs made by the real ``train`` and ``unlearn``.

    It declares what it must, and returns a Finding of the form that ``verify`` asks for, in the name under which the
    audit is registered, where its package is installed; it repeats itself byte for byte, whatever clock, process and
    working directory; it leaves the run, its parent, the rows and the global generators alone. Without data or parent
    it still answers, or says by an error of fuaudit why not; it does not PASS there what it does not PASS with them,
    and answers otherwise there only if its ``uses`` names them. A training run names no unlearner, so a finding about
    the *algorithm* cannot PASS there.

    Args:
        expected: verdicts that are known beforehand, by subject (see :data:`SUBJECTS`): the controls. An audit
            that refutes nothing passes this check, so give at least one that must FAIL.
        subjects: the runs that it is tried on.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(audit, "audits")
    alpha = 1.0
    with problems.during("its declarations"):
        alpha = declared(audit, "it").alpha(audit)
    known = dict(expected or {})
    for name in sorted({*known, *subjects} - set(SUBJECTS)):
        raise ValueError(f"there is no subject {name!r}: choose from {', '.join(SUBJECTS)}")
    with threads_restored():
        for name in dict.fromkeys((*subjects, *known)):
            with TemporaryDirectory() as folder:
                _write(Path(folder), _runs())
                _check_run(audit, name, Path(folder) / name, known.get(name), alpha, problems)
    problems.conclude()


@cache
def _runs() -> dict[str, bytes]:
    """The files of all subjects, made once a process."""
    dataset = tiny_dataset()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        parent = train(tiny_config(), root / "training", secret=bytes(32), data=dataset)
        for name in SUBJECTS[1:]:
            unlearn(parent, name, Request.of(clients=[0]), root / name, data=dataset)
        return _contents(root)


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _check_run(audit: object, name: str, run: Path, expected: str | None, alpha: float, problems: Problems) -> None:
    before = _contents(run.parent)
    first = _examined(audit, name, _case(run, tiny_dataset()), alpha, problems)
    if _contents(run.parent) != before:
        problems.require(False, f"{name}: it writes into the folders of the runs")
        return
    with _another_day(), _elsewhere():
        second = _examined(audit, name, _case(run, tiny_dataset()), alpha, problems)
    if first is not None and second is not None:
        problems.require(_bytes(first) == _bytes(second), f"{name}: repeated later, its finding has other bytes")
        is_claim = first.subject is Subject.ALGORITHM and first.verdict is Verdict.PASS
        problems.require(
            name != "training" or not is_claim, "it passes the algorithm of a training run, which has no unlearner"
        )
        if expected is not None:
            problems.require(
                first.verdict == expected, f"{name}: the verdict is {first.verdict}, expected {expected}: {first.shows}"
            )
    without = {"data": _case(run, None), "parent": _case(run, tiny_dataset(), alone=True)}
    for word, case in without.items():
        found = _examined(audit, f"{name}, {word} not at hand", case, alpha, problems)
        _check_less(audit, name, word, first, found, problems)
    problems.require(_contents(run.parent) == before, f"{name}: it writes into the folders of the runs")


def _check_less(
    audit: Any, name: str, word: str, whole: Finding | None, less: Finding | None, problems: Problems
) -> None:
    """What an audit may not say with less evidence; None is where it said by an error that it cannot answer."""
    verdict = Verdict.INCONCLUSIVE if whole is None else whole.verdict
    problems.require(
        less is None or less.verdict is not Verdict.PASS or verdict is Verdict.PASS,
        f"{name}: it is PASS where {word} is not at hand, and {verdict} where it is: what is missing is INCONCLUSIVE",
    )
    unlike = (None if whole is None else _bytes(whole)) != (None if less is None else _bytes(less))
    problems.require(
        not unlike or word in (must_say(audit, "uses") or ()),
        f"{name}: its finding is another one where {word} is not at hand, and uses does not name {word!r}",
    )


def _case(run: Path, dataset: Dataset | None, alone: bool = False) -> Case:
    """A case without anything cached by an earlier one."""
    opened = load_run(run)
    case = Case(Evidence(opened, None if alone else parent_of(opened), dataset), key_of(7), Effort(budget=BUDGET))
    if dataset is not None:
        _ = case.rerun.ready  # building a module is no work of the audit
    return case


def _examined(audit: Any, name: str, case: Case, alpha: float, problems: Problems) -> Finding | None:
    """The finding, checked for form; None where the audit said by an error of fuaudit that it cannot answer."""
    with problems.during(name):
        ours = copied(case.evidence)
        try:
            finding = audit.examine(case)
        except FuauditError:
            return None
        finally:
            for what in changes(ours, case.evidence):
                problems.require(False, f"{name}: it changes {what}, which it was given: compute on a copy")
        own = finding.audit if isinstance(finding, Finding) else ""
        names = [entry.name for entry in entries("audits").values() if entry.loaded is type(audit)] or [own]
        if wrong := wrong_in(finding, own if own in names else names[0], alpha):
            for text in wrong:
                problems.require(False, f"{name}: {text}")
            return None
        today = datetime.date.today().isoformat().encode()
        problems.require(today not in _bytes(finding), f"{name}: the finding holds today's date")
        return finding  # type: ignore[no-any-return]
    return None


def _bytes(finding: Finding) -> bytes:
    return json.dumps(asdict(finding), sort_keys=True, allow_nan=False).encode()


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def _another_day() -> Iterator[None]:
    """All clocks of the time module stand a day and a bit later."""
    with ExitStack() as patches:
        for name in ("time", "monotonic", "perf_counter", "process_time"):
            patches.enter_context(mock.patch.object(time, name, _later(getattr(time, name))))
        yield


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Another process in another working directory, as far as its number tells."""
    with TemporaryDirectory() as folder, chdir(folder), mock.patch.object(os, "getpid", return_value=OTHER_PROCESS):
        yield


def _later(clock: Callable[[], float]) -> Callable[[], float]:
    return lambda: clock() + 100_000.5
