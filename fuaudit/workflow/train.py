"""Train: from a config to a run. Commits to its keys before the first draw."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fuaudit.commitments.keys import BEACON_TO_COME, NO_BEACON, beacon_of, promised
from fuaudit.config import Config
from fuaudit.data.dataset import Dataset
from fuaudit.errors import UsageError
from fuaudit.formats.files import claimed, write_bytes
from fuaudit.plans import Plan, Population
from fuaudit.plans.expanded import Rounds
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import StageDraws
from fuaudit.progress import Progress, silent
from fuaudit.renamed import renamed
from fuaudit.runs.derived_files import derived
from fuaudit.runs.encoding import digest_of_vector, read_checkpoint
from fuaudit.runs.layout import mode_of, stored_rounds
from fuaudit.runs.platforms import Platform
from fuaudit.runs.run import Run, load_run
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.training.execute import RoundState, execute, initial_state, require_finite
from fuaudit.training.measuring import commonest
from fuaudit.training.setup import Setup
from fuaudit.workflow.begin import Beginning, begun, resolved_config
from fuaudit.workflow.commit import Promise, read_promise
from fuaudit.workflow.memory import require_memory
from fuaudit.workflow.secured import (
    books_of,
    never_unlearned,
    require_secured,
    require_suite,
    secured,
    size_of_transcript,
)
from fuaudit.workflow.writer import RunWriter, estimated_size, require_new, require_space


@renamed(until="stop_after", root="data", dataset="data")
@threads_restored()
def train(
    config: Config | Path | str | dict[str, Any],
    out: Path | str,
    data: Path | str | Dataset | None = None,
    secret: bytes | None = None,
    stop_after: int | None = None,
    progress: Progress = silent,
    announce: Any = None,
    promise: Promise | Path | str | None = None,
    beacon: str | None = None,
    baseline: Any = None,
    secure: str | None = None,
    apart: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Run:
    """Train a federation and save the run.

    Args:
        config: a config, its tables, or the path of its TOML file.
        out: the folder to write; it must not exist or be empty.
        data: the folder of the data, for datasets that need one, or the rows themselves.
        secret: the master secret, 32 bytes; by default from the operating system.
        stop_after: stop and seal after this round, as when a request comes in during training.
        announce: called with the commitment before training starts.
        promise: a secret that was committed to before, or the file that holds it (:mod:`fuaudit.workflow.commit`).
        beacon: what was published since, 16 to 64 bytes in hexadecimal; it is mixed into all draws. Given just where
            the promise says that one is to come.
        baseline: called with the most common class of the test rows, and its share of them.
        secure: the suite of :mod:`fuaudit.secure` that makes the sums; its name stands in the ledger, and nothing else
            in the run depends on it.
        apart: whether its parties are processes of their own; else they are objects of this one.
        warn: called before the first row is sent, where no request can be carried out on the run, with the reason.

    Raises:
        UsageError: a wrong config or option, an existing folder, or config and data that are not those promised.
        StorageError: the file system refused; ``resume`` finishes the run later.
    """
    out = Path(out)
    require_new(out)
    config = resolved_config(config)
    require_suite(config, secure)
    prepared = prepare(config, data, secret, stop_after, promise, beacon)
    ready = prepared.first.ready
    places = ready.learner.law.places(prepared.first.common.original.of_laws)
    require_secured(ready, secure, prepared.first.common.original, apart)
    require_memory(ready, prepared.first.common.original)
    messages = size_of_transcript(ready, secure, places, prepared.rounds_executed)
    require_space(out, size_of_run(ready, prepared.first.common.original) + messages)
    platform = Platform.here(ready, 0)
    if announce:
        announce(prepared.first.common.commitment)
    if baseline:
        baseline(*commonest(ready.dataset.test_targets))
    with claimed(out):
        writer = prepared.begin(out, platform, secure)
        if warn and (why := never_unlearned(writer.run, torch.zeros(ready.procedure.layout.dimension))):
            warn(why)
        with secured(ready, secure, books_of(writer, prepared.plan), apart) as sums:
            return finish(writer, sums, prepared.plan, prepared.rounds_executed, progress)


@dataclass(frozen=True)
class Prepared:
    """What a training run begins with, its plan, how many rounds are to be executed, and what is mixed into draws."""

    first: Beginning
    plan: Plan
    rounds_executed: int
    beacon: str | None

    def begin(self, out: Path, platform: Platform, suite: str | None = None, **more: Any) -> RunWriter:
        """Write all that is known before the first round; ``more`` is what ``run.json`` has beside.

        ``suite`` makes the sums.
        """
        writer = RunWriter(out)
        info = {"kind": "training", "rounds_executed": self.rounds_executed, **more}
        writer.begin(self.first.common, info, self.plan, self.first.secrets, beacon=self.beacon, suite=suite)
        writer.record_platform(platform)
        return writer


def prepare(
    config: Config | Path | str | dict[str, Any],
    data: Path | str | Dataset | None,
    secret: bytes | None,
    stop_after: int | None,
    promise: Promise | Path | str | None,
    beacon: str | None,
) -> Prepared:
    """All that stands before the first round; see :func:`train`. Nothing is written."""
    mixed = None if beacon is None else beacon_of(beacon)
    before = promise if isinstance(promise, Promise | None) else read_promise(Path(promise))
    master = _secret(secret, before, mixed)
    first = begun(config, data, master, apart=secret is None and before is None, beacon=promised(mixed))
    commitment = first.common.commitment
    if before is not None and commitment != before.commitment:
        raise UsageError(
            f"config or data are not those that {before.commitment[:16]} was promised for: with its secret they "
            f"have the commitment {commitment[:16]}",
            "Train with what was promised, on a machine that chooses the same engine; or commit anew.",
        )
    plan = first.plan(mixed)
    rounds_executed = plan.law.rounds if stop_after is None else stop_after
    if not 1 <= rounds_executed <= plan.law.rounds:
        raise UsageError(f"training cannot stop after round {rounds_executed}: it has rounds 1 to {plan.law.rounds}")
    return Prepared(first, plan, rounds_executed, mixed)


def _secret(secret: bytes | None, promise: Promise | None, beacon: str | None) -> bytes:
    """The master secret: given, promised or new."""
    if promise is None and beacon is not None:
        raise UsageError(
            "a beacon shows nothing unless the secret was committed to before it was published",
            "Commit first: fuaudit commit CONFIG --out FILE; publish the commitment; then train with --promise FILE.",
        )
    if promise is not None and beacon is None and promise.beacon == BEACON_TO_COME:
        raise UsageError(
            f"{promise.commitment[:16]} was promised for a beacon to come, and none is given",
            "Give what was published since with --beacon HEX; or commit anew with --no-beacon.",
        )
    if promise is not None and beacon is not None and promise.beacon == NO_BEACON:
        raise UsageError(
            f"{promise.commitment[:16]} was promised for no beacon: the commitment says that none is to come",
            "Leave --beacon out; or commit anew, without --no-beacon.",
        )
    if promise is not None and secret is not None:
        raise UsageError("a promise holds its secret: give one of them")
    if promise is not None:
        return promise.secret
    return secret if secret is not None else secrets.token_bytes(32)


def size_of_run(ready: Setup, population: Population) -> int:
    """About how many bytes a run with this setup takes."""
    layout, run = ready.procedure.layout, ready.config.run
    state = ready.procedure.initial_memory(len(population.clients), torch.device("cpu"))
    element = torch.empty(0, dtype=ready.procedure.dtype).element_size()
    numel = sum(t.numel() for t in state.values())
    return estimated_size(
        layout.dimension, element, ready.learner.law.rounds, run.checkpoint_every, numel, population.size
    )


def state_after(writer: RunWriter, ready: Setup, plan: Plan, stored: Sequence[int]) -> RoundState:
    """The state after the last stored round; the first one of the plan, which is stored now, where none is."""
    if stored:
        return RoundState.of_run(*read_checkpoint(writer.path, stored[-1]), ready.device)
    start = initial_state(ready.procedure, [plan], plan.retained, ready.device)
    writer.checkpoint(0, *start.of(0))
    return start


def finish(
    writer: RunWriter,
    ready: Setup,
    plan: Plan,
    rounds_executed: int,
    progress: Progress,
    start: RoundState | None = None,
    draws: Sequence[StageDraws] = (),
) -> Run:
    """Execute the rounds of a plan after the last stored one, up to ``rounds_executed``, and seal the run.

    The self-test gives another ``start`` than what is stored, or other ``draws`` of stages than those of the run.
    """
    population, stored = plan.retained, writer.stored
    schedule = LazySchedule([plan], rounds_executed)
    to_store = stored_rounds(ready.config.run.checkpoint_every, rounds_executed)
    problem = ready.client_problem(population)
    start = start or state_after(writer, ready, plan, stored)
    first, draws = stored[-1] + 1 if stored else 1, draws or writer.run.stage_draws(plan)
    for round_number, round_state in execute(
        ready.procedure, problem, population, schedule, start, ready.engine, first, draws, writer.run.received
    ):
        store_round(writer, round_number, round_state, round_number in to_store)
        progress("rounds", round_number, rounds_executed)
    return complete(writer, ready, population, schedule, progress)


def store_round(writer: RunWriter, round_number: int, round_state: RoundState, stored: bool) -> None:
    """Tell of a round, and keep the state after it where it is ``stored``; UsageError where that is not finite."""
    require_finite(round_state, round_number)
    told: dict[str, Any] = {"told": round_state.events} if round_state.events else {}
    if writer.transcript is not None:
        writer.transcript.settle(round_number)
        told["transcript"] = writer.transcript.head
    if not stored:
        writer.record("round", round=round_number, **told)
    else:  # the ledger first: resume cuts a line whose model is missing, and never one that is there
        writer.record("round", round=round_number, model=digest_of_vector(round_state.vectors[0]), **told)
        writer.checkpoint(round_number, *round_state.of(0))


def complete(
    writer: RunWriter, ready: Setup, population: Population, schedule: Rounds, progress: Progress = silent
) -> Run:
    """Write all that follows from the stored models, and close the run."""

    def model(round_number: int) -> Tensor:
        return read_checkpoint(writer.path, round_number)[0]

    salt = writer.run.participation_salt
    for name, content in derived(ready, population, schedule, writer.stored, model, progress, salt).items():
        write_bytes(writer.path / name, content, mode=mode_of(name))
    writer.close("sealed")
    return load_run(writer.path)
