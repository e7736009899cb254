"""The contract of transports."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import must_say, offers, says
from fuaudit.testing.contexts import DIMENSION, Step, context_of, updates_of
from fuaudit.testing.problems import Problems
from fuaudit.testing.sums import check_sums
from fuaudit.testing.trials import DTYPES, Trial, is_stacked, require_stacks, trials
from fuaudit.training.contracts import Delivery
from fuaudit.training.rounds import ARRAYS, Cohort, RoundContext, State


def check_transport(transport: Any) -> None:
    """Check that a transport keeps its contract.

    Over rounds of no row, one and four, in float32 and float64, and one each of five, six, seven, nine and sixteen: as
    many places in the cohort as rows, ``sent`` with one row for each that was given, dtype kept, finite in finite out,
    the same when repeated, inputs left alone. **What it shows is so.** What was sent of a participation follows from
    its own row. "rows": each is what was sent by the client that the cohort names, and of one whose row does not come
    nothing was sent. "sums": the cohort is counted and no more; each row is, up to rounding, the mean of what was sent
    of two participations or more with samples, or of none, and of all where it is sparse; nobody is in two sums. Where
    a row is not finite, no sum is shown that is not, and nothing of the row was sent that is not. Where no number of
    rows is ``enough`` for the server's rule, no sum is shown, and nothing was sent. Of equal rows all is sent alike,
    and where it is sparse times one number of 1 or more. Nothing was sent of whom ``taken`` leaves out, and no more
    rows come than ``rows_left`` says. Numbers of all clients and samples are those that it got. What it does
    not declare has no effect: shared draws, how many clients and samples there are. ``in_the_clear`` makes the same
    deliveries. No global generator is touched.

    **What a suite opens is what it says**, where it has ``secured``: in rounds by the suite "plain", of many numbers of
    clients, with samples and without, with all columns and with those of an agreement. ``secured`` makes the deliveries
    of ``in_the_clear``, bit for bit, also where nobody keeps messages. Clients reveal their parts in the lot before it
    is drawn. Sums are of the clients of ``members``, under the numbers and by the sizes of ``buffers``, and each is
    opened from as many rows on as that says. ``mean_of`` makes of them what is delivered. What an audit of the messages
    finds is wrong.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(transport, "transports")
    shows, step = must_say(transport, "shows"), _step(transport)
    problems.require(shows in ("rows", "sums"), 'it must say in shows whether the server sees "rows" or "sums"')
    problems.conclude()
    for dtype in DTYPES:
        if is_stacked(transport):
            require_stacks(transport, step, 4, dtype, problems)
            with problems.during("unused places"):
                _check_places(transport, dtype, problems)
        for count in FEW:
            _check_rounds(transport, step, count, dtype, None, problems)
    for count in MANY:
        _check_rounds(transport, step, count, DTYPES[0], 1, problems)
    problems.conclude()
    if offers(transport, "secured"):
        check_sums(transport, problems)
        problems.conclude()


FEW, MANY = (0, 1, 4), (5, 6, 7, 9, 16)
"""The numbers of rows that are tried in all rounds, and in one."""


def _check_rounds(
    transport: Any, step: Step, count: int, dtype: torch.dtype, rounds: int | None, problems: Problems
) -> None:
    """Rounds of ``count`` rows, the first ones or all."""
    with problems.during(f"{count} rows of {dtype}"):
        for trial in islice(trials(transport, step, count, dtype, problems), rounds):
            came = transport.deliver(trial.updates, trial.context)
            others = [_turned(transport, trial, row) for row in range(count)]
            _check_sent(transport, came, others, trial, problems)
            if must_say(transport, "shows") == "sums":
                _check_sums(transport, came, trial, _bears(came, others), problems)
                _check_finite(transport, trial, problems)
                _check_enough(transport, trial, problems)
            else:
                _check_rows(came, trial, _bears(came, others), problems)
            if count:
                _check_equal(transport, trial, problems)


def _step(transport: Any) -> Step:
    """A delivery, by names, if it has the right shapes; in the clear it is the same."""

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        came, clear = transport.deliver(updates, context), transport.in_the_clear().deliver(updates, context)
        if not isinstance(came, Delivery):
            raise TypeError("deliver must return a Delivery")
        if came.rows.ndim != updates.ndim or came.rows.shape[-1] != DIMENSION or came.sent.shape != updates.shape:
            told = f"rows {tuple(came.rows.shape)} and sent {tuple(came.sent.shape)} of {tuple(updates.shape)}"
            raise TypeError(f"it delivers {told}, not (b, c) and (n, c)")
        if any(getattr(came.cohort, name).shape != came.rows.shape[:-1] for name in ARRAYS):
            raise TypeError("its cohort has not as many places as there are rows delivered")
        if not all(map(torch.equal, _tensors(came), _tensors(clear))):
            raise ValueError("in_the_clear makes other deliveries")
        return {"rows": came.rows, "sent": came.sent}, state

    return step


def _tensors(came: Delivery) -> list[Tensor]:
    return [came.rows, came.sent, *(getattr(came.cohort, name) for name in ARRAYS)]


def _turned(transport: Any, trial: Trial, row: int) -> Delivery:
    """What it delivers where one row has the other sign."""
    turned = trial.updates.clone()
    turned[row] *= -1
    came: Delivery = transport.deliver(turned, trial.context)
    return came


def _bears(came: Delivery, others: list[Delivery]) -> Tensor:
    """Which rows that were given bear on which that are delivered: bool ``(n, b)``, each with its sign turned."""
    bears = torch.zeros(len(others), len(came.rows), dtype=torch.bool)
    for row, other in enumerate(others):
        bears[row] = other.rows.shape != came.rows.shape or (other.rows != came.rows).any(dim=-1)
    return bears


def _check_sent(transport: Any, came: Delivery, others: list[Delivery], trial: Trial, problems: Problems) -> None:
    """What is said to be sent of a participation changes with its row, and with no other; how much came is so."""
    for row, other in enumerate(others):
        changed = (other.sent != came.sent).any(dim=-1)
        alone = not bool(changed[torch.arange(len(changed)) != row].any())
        problems.require(alone, "what it says was sent of a participation depends on the rows of others")
        follows = bool(changed[row]) or not bool(came.sent[row].any())
        problems.require(follows, "what it says was sent of a participation is not of its row")
    given, told = trial.context.cohort, came.cohort
    if came.taken is not None:
        right = came.taken.shape == given.present.shape and came.taken.dtype == torch.bool
        problems.require(right, "it says by taken what is no bool (n,)")
        right = right and not bool(came.sent[~came.taken].any())
        problems.require(right, "it says of a participation that is not taken that something was sent")
    if offers(transport, "rows_left"):
        left = transport.rows_left(len(others), int(given.trained.sum()))
        problems.require(len(came.rows) <= left, f"it delivers {len(came.rows)} rows of {len(others)}, and says {left}")
    problems.require(
        (given.members, given.total) == (told.members, told.total),
        "it tells of other numbers of all clients or samples than it was given",
    )


def _check_sums(transport: Any, came: Delivery, trial: Trial, bears: Tensor, problems: Problems) -> None:
    sparse, least = says(transport, "sparse"), says(transport, "least_trained")
    counted = _places(trial.context.cohort.counted(len(came.rows)))
    told = "behind sums it names who is in them: cohort.counted(b) is all that may be known"
    problems.require(torch.equal(_places(came.cohort), counted), told)
    numbers = bears.sum(dim=0)
    problems.require(bool((numbers != 1).all()), "what it shows as a sum is the row of one participation")
    trained = trial.context.cohort.trained
    behind = bears[trained].sum(dim=0)
    told = "what it shows as a sum is of one participation with samples: others (not cohort.trained) hide nobody"
    problems.require(bool((behind != 1).all()), told)
    told = f"what it shows as a sum is of fewer participations with samples than least_trained, which is {least}"
    problems.require(bool(((behind <= 1) | (behind >= least)).all()), told)
    few = (came.sent[trained] != 0).sum(dim=0) == 1
    problems.require(not (sparse and bool(few.any())), "a coordinate that it shows is of one participation")
    once = bool((bears.sum(dim=1) <= 1).all())
    problems.require(once, "a participation is in two of its sums: their difference shows who is in one of them")
    among, kind = bears.T.to(came.sent.dtype), torch.finfo(came.sent.dtype)
    # each of the additions and the division may round once, and what is nearly zero becomes zero
    near = 2 * len(bears) * (kind.eps * (among @ came.sent.abs()) + kind.tiny)
    # who drew no coordinate bears on none, and is one of those a sparse sum is divided by
    divided = torch.full_like(numbers, len(bears)) if sparse else numbers
    off = (came.rows * divided.unsqueeze(1) - among @ came.sent).abs()
    problems.require(bool((off <= near).all()), "a sum is not the mean of what was sent of its rows")


def _check_finite(transport: Any, trial: Trial, problems: Problems) -> None:
    """Of a row that is not finite nothing comes: a sum with it is discarded."""
    for row in range(len(trial.updates)):
        updates = trial.updates.clone()
        updates[row] = torch.inf
        came = transport.deliver(updates, trial.context)
        finite = bool(came.rows.isfinite().all()) and bool(came.sent.isfinite().all())
        problems.require(finite, "of a row that is not finite it shows a sum that is not: discard it, and send nothing")


def _check_enough(transport: Any, trial: Trial, problems: Problems) -> None:
    """Nothing comes of a round that fails: over a model that stays the next one would open sums of other clients."""
    came = transport.deliver(trial.updates.clone(), replace(trial.context, enough=lambda rows: False))
    nothing = not len(came.rows) and not bool(came.sent.any())
    problems.require(nothing, "it shows sums in a round that fails: deliver none where context.enough(b) is False")


def _check_equal(transport: Any, trial: Trial, problems: Problems) -> None:
    """Of equal rows each that is delivered is that row, and so is what was sent; some may not come."""
    one = trial.updates[:1].sign() + 0.5
    came = transport.deliver(one.expand(trial.updates.shape).clone(), trial.context)
    told = "of equal rows it delivers others: divide each sum by the number of rows in it, and weigh nobody"
    if says(transport, "sparse"):
        scales = (came.sent / one)[came.sent != 0]
        problems.require(bool((scales >= 1).all()) and torch.allclose(scales, scales[:1]), told)
        return
    problems.require(torch.allclose(came.rows, one.expand(came.rows.shape), rtol=0.25), told)
    sent = came.sent[came.sent.any(dim=-1)]
    problems.require(torch.allclose(sent, one.expand(sent.shape), rtol=0.25), told)


def _check_rows(came: Delivery, trial: Trial, bears: Tensor, problems: Problems) -> None:
    given, names = trial.context.cohort, came.cohort.clients
    places = _places(came.cohort).unsqueeze(1)
    among = [(places == _places(cohort)).all(dim=-1).sum(dim=-1) for cohort in (came.cohort, given)]
    problems.require(bool((among[0] <= among[1]).all()), "its cohort has a place that is none of those that it got")
    own = given.clients.unsqueeze(1) == names
    problems.require(not bool((bears & ~own).any()), "a row that it delivers is not that of the client that is named")
    sent = ((came.sent.unsqueeze(0) == came.rows.unsqueeze(1)).all(dim=-1) & own.T).any(dim=-1)
    problems.require(bool(sent.all()), "a row that it delivers is not what it says was sent by that client")
    left = ~torch.isin(given.clients, names)
    problems.require(not bool(came.sent[left].any()), "it says of a row that does not come that something was sent")


def _check_places(transport: Any, dtype: torch.dtype, problems: Problems) -> None:
    """What lies in unused places of a cohort does not come."""
    updates, noise = updates_of(0, 2, dtype), torch.full((2, DIMENSION), 9.0, dtype=dtype)
    plain = transport.deliver(updates, context_of([0, 2], dtype))
    wide = transport.deliver(torch.cat([updates, noise]), context_of([0, 2, -1, -1], dtype))
    equal = torch.equal(wide.rows[wide.cohort.present], plain.rows)
    problems.require(equal, "unused places of a cohort (present is False) change what it delivers")


def _places(cohort: Cohort) -> Tensor:
    """What is said of each place, ``(n, 5)``."""
    return torch.stack([getattr(cohort, name).to(torch.int64) for name in ARRAYS], dim=-1)
