"""Receive: train with a real federation, whose messages come from outside. The run records what came.

A server opens a run from a config, asks which round is next, hands in what clients send, and gets the next model. Local
steps and client stages are the clients' own. What the server's stages make of the messages is computed here, and by
whoever replays the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fuaudit.config import Config
from fuaudit.data.dataset import Dataset
from fuaudit.errors import EvidenceError, FuauditError, UsageError
from fuaudit.formats.files import claimed
from fuaudit.plans import Plan, Request
from fuaudit.plans.stacked import LazySchedule
from fuaudit.runs.layout import RECEIVED, of_round, stored_rounds
from fuaudit.runs.platforms import Platform
from fuaudit.runs.run import Run, read_config_of, read_info, require_begun
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.training.events import LATE, NOT_IN_ROUND, Rejected
from fuaudit.training.execute import RoundState, execute, require_finite
from fuaudit.training.received import Received
from fuaudit.training.setup import Setup
from fuaudit.workflow.append import mend_ledger, unmended
from fuaudit.workflow.commit import Promise
from fuaudit.workflow.inbox import Inbox, whole
from fuaudit.workflow.memory import require_memory
from fuaudit.workflow.receiving import receiving, size_of_records
from fuaudit.workflow.resume import remove_torn
from fuaudit.workflow.train import complete, prepare, size_of_run, state_after, store_round
from fuaudit.workflow.unfinished import looked_at, require_made
from fuaudit.workflow.unlearn import begun_child, keep_rounds
from fuaudit.workflow.writer import RunWriter, require_new, require_space


@dataclass(frozen=True)
class OpenRound:
    """A round that waits for messages.

    Attributes:
        number: from 1.
        clients: who takes part, in the order of places; a law may name a client twice.
        model: the one that is sent out, ``(d,)``.
        step_size: of the clients' steps.
        batches: ids of the samples of every place and step, ``(n, E, B)``, -1 in unused slots.
    """

    number: int
    clients: tuple[int, ...]
    model: Tensor
    step_size: float
    batches: NDArray[np.int64]


class Reception:
    """A run that is being made of messages. It is one server's, in one thread.

    Every message names its round. One that cannot be used is :class:`~fuaudit.training.events.Rejected`, and the round
    goes on. What came is written before the model that follows from it.
    """

    def __init__(self, writer: RunWriter, ready: Setup, plan: Plan, rounds: int) -> None:
        """Go on after the last stored round, through kept rounds and those whose messages have come already."""
        self._writer, self._ready, self._plan, self._rounds = writer, ready, plan, rounds
        self._schedule = LazySchedule([plan], rounds)
        self._to_store = stored_rounds(ready.config.run.checkpoint_every, rounds)
        self._problem, self._draws = ready.client_problem(plan.retained), writer.run.stage_draws(plan)
        stored = writer.stored
        self._state, self._done = state_after(writer, ready, plan, stored), max(stored, default=0)
        records, own = writer.run.received, writer.run.own_rounds
        while (number := self._done + 1) <= rounds and (number in records or number < own.start):
            # what a parent simulated behind its last stored round is simulated again
            self._go_on({number: records[number]} if number in records else {})
        self._inbox = self._next()

    @property
    def commitment(self) -> str:
        """To be published before the first message comes."""
        return str(self._writer.ledger.events[0]["commitment"])

    @property
    def round(self) -> OpenRound | None:
        """The round that waits for messages; None when all are over."""
        if self._inbox is None:
            return None
        number, clients = self._done + 1, self._inbox.cohort
        batches = self._schedule.round(number).batches[0, : len(clients)].copy()
        step_size = self._ready.procedure.step_sizes.at(number)
        return OpenRound(number, clients, self._state.of(0)[0].clone(), step_size, batches)

    def receive(self, number: Any, client: Any, update: Any) -> Rejected | None:
        """Take a client's update ``(c,)`` in a round: the model sent out minus the one that came back.

        Returns:
            Why it is not taken: no numbers, another length, NaN or infinity, a second one, one of an earlier round, of
            a later one or of none, or of nobody who takes part. None where it is taken.

        Raises:
            UsageError: the transport of the config shows sums, or clients have still to agree on coordinates.
        """
        inbox = self._inbox
        if inbox is None:
            return Rejected(client, self._stray(number))
        if whole(number) != self._done + 1:
            return inbox.stray(client, self._stray(number))
        return inbox.row(client, update)

    def receive_sum(self, number: Any, total: Any, count: Any) -> str:
        """Take the sum ``(c,)`` of the updates of so many clients in a round.

        Returns:
            Why it is not taken; empty where it is. Nobody is named: any member of the sum may have spoilt it.

        Raises:
            UsageError: the transport of the config shows rows, or a number of rows is none of this round.
        """
        if self._inbox is None or whole(number) != self._done + 1:
            return self._stray(number)
        return self._inbox.total(total, count)

    def _stray(self, number: Any) -> str:
        """Why a message of another round than the open one is not taken."""
        named = whole(number)
        return NOT_IN_ROUND if named is None or named > self._done else LATE

    def reject(self, client: Any, why: str) -> Rejected:
        """Note that the server itself did not take a client's message, for one of the known reasons.

        The client's row, where it was taken in the open round, is dropped, and the client may send another. It stays
        for the reasons "twice", "late" and "not in the round", which are about another message.

        Raises:
            UsageError: no round is open, or the reason is not known.
        """
        return self._open.reject(client, why)

    def agree(self, coordinates: Any) -> None:
        """Say which coordinates all agreed on in the open round, ascending ``(c,)``; needed where the config has it.

        Raises:
            UsageError: nothing is to be agreed on, or they are none of the model.
        """
        self._open.agree(coordinates)

    @threads_restored()
    def advance(self, absent: Collection[int] = (), allow_failed: bool = False) -> Tensor:
        """Close the round: apply the server's stages to what came. Returns the model ``(d,)`` after it.

        Where nothing came the model stays. Where a stage needs more than came, nothing is written, and the round stays
        open for more.

        Args:
            absent: behind sums the clients who did not answer; where rows are shown that is known.
            allow_failed: close it all the same, as a round that failed: the model stays. Behind sums also where a stage
                cannot treat them, or the model would be no longer finite: none is recorded, and all are counted as
                discarded.

        Raises:
            UsageError: no round is open, what is said of it does not fit, too few rows came, or the model is no longer
                finite.
            PluginError: a stage of the server cannot treat what came.
        """
        number, came, drawn = self._done + 1, self._open.closed(absent), len(self._open.cohort)
        try:
            state = self._after(number, came, allow_failed and not came.counts)
        except FuauditError:
            if not (allow_failed and came.counts):
                raise
            # a record would show these sums beside those of the next round, over the same model
            came = came.without_sums(drawn)
            state = self._after(number, came)
        self._writer.received(number, came)
        self._keep(number, state)
        self._inbox = self._next()
        return self._state.of(0)[0].clone()

    @threads_restored()
    def close(self) -> Run:
        """Measure, seal and open the run, when all rounds are over.

        Raises:
            UsageError: a round waits for messages.
        """
        if self._inbox is not None:
            raise UsageError(f"round {self._done + 1} of {self._rounds} waits for messages", "Advance it first.")
        return complete(self._writer, self._ready, self._plan.retained, self._schedule)

    @property
    def _open(self) -> Inbox:
        if self._inbox is None:
            raise UsageError("no round waits for messages: all are over", "Close the run.")
        return self._inbox

    def _next(self) -> Inbox | None:
        """The inbox of the next round."""
        if self._done == self._rounds:
            return None
        exchange, procedure = self._ready.procedure.exchange, self._ready.procedure
        return Inbox(
            self._plan.cohort(self._done + 1),
            self._plan.retained.samples.keys(),
            procedure.layout.dimension,
            procedure.dtype,
            exchange.transport.shows == "sums",
            exchange.agrees,
        )

    def _go_on(self, received: Mapping[int, Received]) -> None:
        """Execute the next round, entered at what came; simulated where nothing is said of it."""
        number = self._done + 1
        state = self._executed(number, received)
        require_finite(state, number)
        self._keep(number, state)

    def _after(self, number: int, came: Received, allow_failed: bool = False) -> RoundState:
        """The state after what came; UsageError where the round may not be closed with it."""
        state, sums = self._executed(number, {number: came}), came.counts is not None
        close = "close it with allow_failed=True: the model stays" + ", and no sum is recorded" * sums
        if not allow_failed and any(event["kind"] == "failed" for event in state.events):
            raise UsageError(
                f"too few rows came in round {number} for the rule of the server, so the round would fail",
                f"Wait for more messages, or {close}.",
            )
        try:
            require_finite(state, number)
        except UsageError as error:
            drop = 'Drop a row that is too large: reject(client, "not finite"). She may send another.'
            raise UsageError(error.args[0], f"There is one way: {close}." if sums else drop) from error
        return state

    def _executed(self, number: int, received: Mapping[int, Received]) -> RoundState:
        ready = self._ready
        rounds = execute(
            ready.procedure,
            self._problem,
            self._plan.retained,
            self._schedule,
            self._state,
            ready.engine,
            number,
            self._draws,
            received,
        )
        return next(rounds)[1]

    def _keep(self, number: int, state: RoundState) -> None:
        store_round(self._writer, number, state, number in self._to_store)
        self._state, self._done = RoundState(state.vectors, state.state), number


@contextmanager
def receive(
    config: Config | Path | str | dict[str, Any],
    out: Path | str,
    data: Path | str | Dataset | None = None,
    secret: bytes | None = None,
    stop_after: int | None = None,
    promise: Promise | Path | str | None = None,
    beacon: str | None = None,
) -> Iterator[Reception]:
    """Open a run whose rounds come in messages. Its folder is held as long as the context lasts.

    A context that is left before :meth:`Reception.close` leaves a folder with which :func:`receive_rest` goes on.

    Args:
        config, out, data, secret, stop_after, promise, beacon: as of :func:`fuaudit.train`. The rows say who owns what,
            and are committed to; no round reads them.

    Raises:
        UsageError: as :func:`fuaudit.train`; or a budget, or a solver whose clients send the server more than a row.
    """
    out = Path(out)
    require_new(out)
    with threads_restored():
        prepared = prepare(config, data, secret, stop_after, promise, beacon)
        platform = Platform.here(prepared.first.ready, 0)
    ready, population = receiving(prepared.first.ready), prepared.first.common.original
    require_memory(ready, population)
    require_space(out, size_of_run(ready, population) + size_of_records(ready, population))
    with claimed(out):
        with threads_restored():
            writer = prepared.begin(out, platform, received=True)
            reception = Reception(writer, ready, prepared.plan, prepared.rounds_executed)
        yield reception


@contextmanager
def receive_child(
    parent: Run | Path | str,
    name: str,
    request: Request,
    out: Path | str,
    options: Mapping[str, object] | None = None,
    data: Path | str | Dataset | None = None,
    allow_inexact: bool = False,
) -> Iterator[Reception]:
    """Open a child run after a request: rounds are kept as an unlearner says, and those after them come in messages.

    No spec that asks for erasure ever passes such a run.

    Args:
        parent, name, request, out, options, data, allow_inexact: as of :func:`fuaudit.unlearn`.

    Raises:
        UsageError: as :func:`fuaudit.unlearn` and :func:`receive`; or rounds are kept after which only simulated
            clients know what they keep.
    """
    with begun_child(parent, name, request, out, options, data, allow_inexact, received=True) as child:
        ready = receiving(child.ready)
        with threads_restored():
            keep_rounds(child.writer, child.ready, child.parent, child.plan)
            reception = Reception(child.writer, ready, child.plan, child.plan.law.rounds)
        yield reception


@contextmanager
def receive_rest(
    path: Path | str, data: Path | str | Dataset | None = None, parent: Path | None = None
) -> Iterator[Reception]:
    """Go on with a run that :func:`receive` or :func:`receive_child` began and did not close.

    Rounds whose messages were written are taken from there.

    Raises:
        UsageError: the run is complete, or its rounds do not come in messages.
        EvidenceError: nothing was begun there, or what is stored does not fit.
    """
    folder = Path(path)
    require_begun(folder)
    with claimed(folder):
        # All that can be refused is looked at first: a refusal leaves the folder as it was.
        info, config = read_info(folder), read_config_of(folder)
        if not info.get("received"):
            raise UsageError(f"the rounds of {folder} do not come in messages", "Go on with: fuaudit resume FOLDER.")
        stored = RunWriter(folder).stored
        unfinished = Run(folder, "", info, {}, unmended(folder), config)
        plain, above = looked_at(unfinished, stored, data, parent)
        ready = receiving(plain)
        _require_usable(unfinished, ready)
        with threads_restored():
            here = Platform.here(plain, max(stored, default=0))
            require_made(unfinished, ready, stored, above, here)
        # What a kill left is cut, and the run goes on.
        remove_torn(folder)
        writer = RunWriter(folder, mend_ledger(folder, max(stored, default=0)), unfinished.salt)
        with threads_restored():
            if above is not None:
                keep_rounds(writer, plain, above, unfinished.plan)
            else:
                writer.record_platform(here)
            reception = Reception(writer, ready, unfinished.plan, info["rounds_executed"])
        yield reception


def _require_usable(run: Run, ready: Setup) -> None:
    """Raises EvidenceError where what came of a round cannot have come: rounds are made from it again."""
    sums, dimension = run.exchange.transport.shows == "sums", ready.procedure.layout.dimension
    for number, record in run.received.items():
        for wrong in record.wrong(run.plan.cohort(number), dimension, run.exchange.agrees, sums):
            raise EvidenceError(f"{run.path} has {wrong} in {of_round(RECEIVED, number)}")
