"""The contract of agreements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import is_agreement
from fuaudit.testing.client_stages import ALONE
from fuaudit.testing.contexts import DIMENSION, FIRST, Step, others_changed, wide_rounds
from fuaudit.testing.problems import Problems
from fuaudit.testing.trials import DTYPES, Trial, trials
from fuaudit.training.rounds import RoundContext, State, telling

ALL_COLUMNS, SOME = torch.arange(DIMENSION), torch.tensor([0, 2, 3])
"""The columns that there are where nothing was agreed on before, and where something was."""


def check_agreement(agreement: object) -> None:
    """Check that an agreement keeps its contract.

    Over rounds of one row and of four, on all columns of the model and on those that another agreement left: each
    proposal is columns that there are, int64, and **depends on its own row and its own client's draws alone**, also in
    a late round of nine rows and 40 columns, of sizes far apart, of which each comes again without the others; what is
    agreed on follows from proposals and shared draws, whatever rows were seen. Agreed columns are ascending, distinct,
    int64, columns that there are, also where nobody proposes one, everybody one twice, or one client what is no
    column, as a Byzantine one can: else it stops the training of all. The same when repeated, inputs left alone; what
    it does not declare has no effect: draws, how many clients and samples there are. No global generator is touched.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(agreement, "client_stages")
    problems.require(is_agreement(agreement), "it is no agreement: it has no propose and agree")
    problems.conclude()
    for columns in (ALL_COLUMNS, SOME):
        for count, dtype in ((1, DTYPES[0]), (4, DTYPES[0]), (4, DTYPES[1])):
            step = _step(agreement, columns, problems)
            with problems.during(f"{count} rows of {len(columns)} columns, {dtype}"):
                for trial in trials(agreement, step, count, dtype, problems, own=None, makes=torch.int64):
                    _check_alone(agreement, trial, columns, problems)
    with problems.during("a wide round"):
        _check_wide(agreement, problems)
    problems.conclude()


def _step(agreement: Any, columns: Tensor, problems: Problems) -> Step:
    """Proposals and what is agreed, by names."""

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        context = replace(context, coordinates=None if columns is ALL_COLUMNS else columns.clone())
        found, together = agreement.propose(updates[:, columns], context), context.without_own()
        require_proposals(found, len(updates), len(columns), problems)
        given = [one.clone() for one in found]
        agreed = agreement.agree(found, together)
        left = all(map(torch.equal, given, found))
        problems.require(left, "it changes the proposals that it was given, in place")
        for proposals in (found, [one[:0] for one in found], [one.repeat(2).flip(0) for one in found]):
            _require_agreed(agreement.agree(proposals, together), len(columns), problems)
        _check_strange(agreement, found, len(columns), together, problems)
        for number in (context.number - 1, context.number):
            agreement.propose(-updates[:, columns].flip(1), replace(context, number=number))
        again = torch.equal(agreement.agree(found, together), agreed)
        problems.require(again, "what is agreed depends on more than the proposals: no other number was sent")
        kept = context.coordinates is None or torch.equal(context.coordinates, columns)
        problems.require(kept, "it changes the coordinates that it is shown, in place")
        return {"agreed": agreed, **{str(row): one for row, one in enumerate(found)}}, state

    return step


def _check_strange(
    agreement: Any, found: list[Tensor], columns: int, context: RoundContext, problems: Problems
) -> None:
    """One client proposes what is no column, or far too many; agreed is all the same on columns that there are."""
    unheard = replace(context, tell=telling([]))  # what is told of it may hang on what honest clients propose
    for strange in ([columns], [-1, 0], [0, 2**62], [*range(columns)] * 3):
        proposals = [torch.tensor(strange), *(one.clone() for one in found[1:])]
        told = "one client can stop all by proposing what is no column: leave it out, and tell Rejected"
        try:
            agreed = agreement.agree(proposals, unheard)
            _require_agreed(agreed, columns, alone := Problems(agreement))
            problems.require(not alone.found, told)
        except Exception as error:
            raise ValueError(f"{told} (it raised {error!r})") from error


def require_proposals(found: Any, rows: int, columns: int, problems: Problems) -> None:
    """Proposals are a list of tensors, one a row, of columns that there are. TypeError for others."""
    require_whole(found, rows, problems)
    there = all(bool(((one >= 0) & (one < columns)).all()) for one in found)
    problems.require(there, "it proposes what are no int64 columns of those that there are")


def require_whole(found: Any, rows: int, problems: Problems) -> None:
    """Proposals are a list of int64 tensors, one a row: what Byzantine clients can send. TypeError for no such list."""
    if not isinstance(found, list) or len(found) != rows or not all(map(_is_row, found)):
        raise TypeError("proposals must be a list of tensors (k,), one for each row")
    problems.require(all(one.dtype == torch.int64 for one in found), "it proposes what are no int64 columns")


def _is_row(found: object) -> bool:
    return isinstance(found, Tensor) and found.ndim == 1


def _require_agreed(agreed: Tensor, columns: int, problems: Problems) -> None:
    if not _is_row(agreed) or agreed.dtype != torch.int64:
        raise TypeError("agree must return int64 columns (c,)")
    problems.require(bool((agreed[1:] > agreed[:-1]).all()), "it agrees on columns that are not ascending and distinct")
    there = bool(((agreed >= 0) & (agreed < columns)).all())
    problems.require(there, "it agrees on columns that there are not: they count among those that it was given")


def _check_alone(agreement: Any, trial: Trial, columns: Tensor, problems: Problems) -> None:
    """The proposal of each row, with other clients in all other places."""
    for place in range(len(trial.updates)):
        updates, whole = others_changed(trial.updates, trial.whole, place)
        context = replace(whole.at(FIRST, agreement, None), coordinates=None if columns is ALL_COLUMNS else columns)
        alone = agreement.propose(updates[:, columns], context)[place]
        told = f"a proposal {ALONE}"
        problems.require(torch.equal(alone, trial.made[str(place)]), told)


def _check_wide(agreement: Any, problems: Problems) -> None:
    """The proposal of each row, in a round of its own."""
    updates, whole = next(wide_rounds(DTYPES[0]))
    found = agreement.propose(updates, whole.at(FIRST, agreement, None))
    for place in torch.eye(len(updates), dtype=torch.bool):
        own = replace(whole, cohort=whole.cohort.among(place)).at(FIRST, agreement, None)
        alone = agreement.propose(updates[place], own)[0]
        problems.require(torch.equal(alone, found[int(place.nonzero())]), f"a proposal {ALONE}")
