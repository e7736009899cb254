"""Secured: rounds whose sums a suite of :mod:`fuaudit.secure` makes, and what then must not be done again.

A sum that was opened is known. Another sum of nearly the same rows tells what differs: a round that is executed again
over other values, or a child's round that its retained clients answer as they answered its parent's. All buffers of a
round add up to the sum of all rows, whoever was in which. So such rounds are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from fuaudit.config import Config
from fuaudit.errors import EvidenceError, UsageError, nearest
from fuaudit.plans import Plan, Population
from fuaudit.runs.layout import LEDGER
from fuaudit.runs.ledger import Ledger, opens_sums, suite_of
from fuaudit.runs.noise import Noise, noise_of
from fuaudit.runs.platforms import Platform, platforms_of
from fuaudit.runs.run import Run
from fuaudit.secure.names import EXACT
from fuaudit.secure.refusal import ANEW, RefusedError
from fuaudit.secure.sizes import lot_bytes, recorded
from fuaudit.secure.suites import Books, Suite, remembered
from fuaudit.training.exchange import exchange_of
from fuaudit.training.publishing import buffers_in, require_unpublished
from fuaudit.training.setup import Setup
from fuaudit.unlearning.protocol import is_editor
from fuaudit.workflow.transcripts import Keeper, kept
from fuaudit.workflow.writer import RunWriter


@contextmanager
def secured(ready: Setup, suite: str | None, books: Books, apart: bool = False) -> Iterator[Setup]:
    """A setup whose sums a suite makes; the same where there is none. Its parties end behind the block.

    Args:
        books: what its parties remember.
        apart: whether they are processes of their own.

    Raises:
        UsageError: the transport has no such sums, rows are not whole numbers, or not every round is stored.
    """
    if suite is None and apart:
        raise UsageError("parties apart are those of a suite, and none is named", "Say which with --secure SUITE.")
    if suite is None:
        yield ready
        return
    _require_fitting(ready, suite)
    exchange, sums = ready.procedure.exchange.secured(suite, books, apart), ready.procedure.exchange.summation(suite)
    Suite(suite, sums.most).start(sums.bits)
    try:
        yield replace(ready, procedure=replace(ready.procedure, exchange=exchange))
    finally:
        books.end()


def require_suite(config: Config, suite: str | None) -> None:
    """Refuse a suite that no training uses, or that has no sums of a config's rows: before clients are dealt.

    Whether so many may be Byzantine is asked later. A buffer that is too large for the suite is told first.
    """
    if suite is not None:
        _require_named(suite)
        exchange_of(config).summation(suite)


def _require_named(suite: str) -> None:
    if suite not in EXACT:
        raise UsageError(f"there is no suite {suite!r} for training", nearest(suite, EXACT))


def _require_fitting(ready: Setup, suite: str) -> None:
    _require_named(suite)
    if ready.config.run.checkpoint_every != 1:
        raise UsageError(
            f"sums by {suite!r} need every round stored, and checkpoint_every is {ready.config.run.checkpoint_every}",
            "Say checkpoint_every = 1 under [run]: a round that is not stored would be opened again after a break.",
        )


def books_of(writer: RunWriter, plan: Plan) -> Books:
    """What the parties of a run that was begun remember; see :func:`remembering`."""
    return Books() if writer.transcript is None else remembering(writer.run, writer.transcript, plan)


def remembering(run: Run, keeper: Keeper, plan: Plan) -> Books:
    """What the parties of a run remember: they sign by what it committed to, and all of it is kept.

    Of a round that broke off they know what they answered, and what was opened is not opened again. Of an attempt that
    was begun and told nobody they are new parties, which make the same sum.

    Raises:
        EvidenceError: the run has no secrets, or the messages of that round are none of one run.
    """
    try:
        books = remembered(keeper.messages)
        books.kept = kept(run, keeper, plan)
    except RefusedError as error:
        raise EvidenceError(f"the messages of the last round of {run.path} do not fit: {error.args[0]}") from None
    return books


def require_secured(ready: Setup, suite: str | None, population: Population, apart: bool) -> None:
    """Refuse, before anything is written, what :func:`secured` refuses, and a rule that may publish a sum of two.

    ``population`` is that which rounds are drawn over.
    """
    with secured(ready, suite, Books(), apart):
        exchange = ready.procedure.exchange
        if suite is not None:
            law = ready.learner.law
            buffers = buffers_in(exchange, law, suite, law.places(population.of_laws))
            require_unpublished(exchange, buffers, suite, law, population.empty)


def size_of_transcript(ready: Setup, suite: str | None, places: int, rounds: int) -> int:
    """Bytes of the messages of so many rounds at most, with ``places`` participations in each.

    0 where no suite makes the sums, and where clients agree on some columns: how many these are nobody knows before.
    """
    exchange = ready.procedure.exchange
    if suite is None or exchange.agrees or not (buffers := exchange.buffers(places)):
        return 0
    columns, asked = ready.procedure.layout.dimension, exchange.summation(suite)
    most = max(size for size, _ in buffers)
    sums = sum(recorded(suite, size, columns, asked.bits, most) for size, _ in buffers if size > 1)
    return rounds * (sums + lot_bytes(places))


def require_same_platform(ledger: Ledger, begun: bool, here: Platform) -> None:
    """Refuse to resume a run where a round would be opened again, and other values may come out here.

    Args:
        begun: whether there are messages of a sum already.

    Raises:
        UsageError: another platform began it.
        EvidenceError: the ledger does not tell which.
    """
    told = platforms_of(ledger) if opens_sums(ledger) else ()
    if begun and not told:
        raise EvidenceError(
            f"sums were begun by {suite_of(ledger)!r}, and {LEDGER} does not tell on which platform",
            f"Another one may compute other rows, so nothing goes on from there. {ANEW}",
        )
    if told and (other := told[-1].unlike(here)):
        raise UsageError(
            f"the last round that was begun may have been opened by {suite_of(ledger)!r}, and this machine may compute "
            f"other rows ({other})",
            f"Two sums of nearly the same rows tell what differs. Resume where it was begun. {ANEW}",
        )


def require_fresh_noise(run: Run, unlearner: object) -> None:
    """UsageError where sums of a child would tell the row of who is erased: parent minus child."""
    suite = suite_of(run.ledger)
    if suite is None:
        return
    error = _uncovered(run, suite, None if is_editor(unlearner) else noise_of(run))
    if error is not None:
        raise error


def never_unlearned(run: Run, model: Tensor | None = None) -> str:
    """Why no request can be carried out on a run, by whatever method; empty where one can, or no suite made its sums.

    ``model`` is any of a run that has none yet.
    """
    suite = suite_of(run.ledger)
    error = None if suite is None else _uncovered(run, suite, noise_of(run, model))
    return "" if error is None else f"no request can be carried out on this run: {error.args[0]}"


def _uncovered(run: Run, suite: str, noise: Noise | None) -> UsageError | None:
    """What is said where noise does not cover what sums of parent and child tell together."""
    if noise is not None and noise.hides:
        return None
    if noise is not None:
        return UsageError(
            f"the sums of {run.path} were opened by {suite!r}, and {noise.in_words}: below one step it hides no more "
            "than rounding does, and the sums of the parent minus those of the child can be the row of who is erased",
            "Train with more noise, or with smaller steps: how much is enough is a matter of its epsilon (fuaudit "
            "budget run). Or train without --secure, where nothing is hidden from you.",
        )
    return UsageError(
        f"the sums of {run.path} were opened by {suite!r}: where retained clients send again what they sent before, "
        "the sums of the parent minus those of the child are the row of who is erased",
        'Only noise of the clients that is drawn anew covers it: train with the client stage "skellam-noise" or '
        '"gaussian-noise", and use an unlearner that rewrites plans. Or train without --secure, where nothing is '
        "hidden from you.",
    )
