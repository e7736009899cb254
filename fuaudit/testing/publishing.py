"""What a rule of the server leaves of single rows: by how alike they are, and by which of them it changes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import says
from fuaudit.testing.contexts import CPU, SIZES, WIDE_DIMENSION, clients_of, updates_of, wide_context
from fuaudit.testing.problems import Problems
from fuaudit.training.rounds import ExchangeContext, State, StateShape
from fuaudit.training.stages import PUBLISHED, Chain, Mean, published

LEFT = {
    "": "nothing as it is",
    "coordinates": "coordinates of single rows as they are, or times a number",
    "row": "a row as it is, or times a number",
}
FOLLOWS = {
    "coordinates": "columns that follow from one row each: whoever knows the rule takes the rest off again",
    "row": "what follows from one row alone: whoever knows the rule takes the rest off again",
}

LOUD = 1, 10, 0.1
"""How many times as long as the others one row is: there are rules that choose a row only where one stands out."""

ROUNDS = 2
"""How many rounds each is tried in, with what it keeps: there are rules that choose by what they remember."""

DISGUISE = 1e-3
"""What share of the largest number a row may be off, and is still told."""

NUDGE = 1e-6
"""By what share of themselves rows are changed: far below what changes a choice, far above rounding."""

Rule = Callable[[Tensor], Tensor]
"""Rows ``(n, c)`` -> the row ``(1, c)`` that is left of them."""


def tried_rows(fewest: int, rows: Sequence[int]) -> list[int]:
    """Of how many rows it is tried what is published: odd and even numbers from the fewest on, and those of the trial.

    A rule needs as many rows as it says, so a range that is the same for all would leave some rules untried.
    """
    fewest = max(2, fewest)
    return sorted({*range(fewest, max(fewest + 4, 7)), *(count for count in rows if count > fewest)})


def check_published(stage: Any, counts: Sequence[int], problems: Problems) -> None:
    """A row, or a coordinate of some row, is left as it is where a rule says so, and nowhere else.

    So is one from which it can be computed: it times a number, nearly it, or whatever follows from it and no other row.
    Tried with rows of clients, and with sums of which nobody knows who is behind them.
    """
    for count, loud in product(counts, LOUD):
        said, seen = PUBLISHED.index(published(stage, count)), list[Tensor]()
        for rule, rows in _rounds(stage, count, loud):
            made = rule(rows)
            if any(torch.equal(made, one) for one in seen):
                continue  # behind sums it does what it does elsewhere
            seen.append(made)
            for found, words in ((left(made, rows), LEFT), (_following(rule, rows), FOLLOWS)):
                told = f"of {count} rows it leaves {words.get(found, '')}, and publishes({count}) says"
                problems.require(PUBLISHED.index(found) <= said, f"{told} {PUBLISHED[said]!r}")


def _is_refused_behind_sums(stage: Any) -> bool:
    return bool(stage.per_client_state) or "samples" in says(stage, "depends_on")


def _rounds(stage: Any, count: int, loud: float) -> Iterator[tuple[Rule, Tensor]]:
    """The rule in some rounds, with what it kept of those before, and the rows of each; then behind sums."""
    chain, dtype = Chain((stage,)), torch.float64
    clients = clients_of(bool(stage.per_client_state), 0, count)
    for behind_sums in (False,) if _is_refused_behind_sums(stage) else (False, True):
        state = chain.init(StateShape(WIDE_DIMENSION, len(SIZES), dtype, CPU))
        for number in range(1, ROUNDS + 1):
            rows = updates_of(10 * count + number, count, dtype, WIDE_DIMENSION)
            rows[0] *= loud
            context = wide_context(clients, dtype, number, WIDE_DIMENSION)
            context = replace(context, cohort=context.cohort.counted(count)) if behind_sums else context
            yield _rule(chain, context, state), rows
            state = chain.apply(rows, context, state)[1]


def _rule(chain: Chain, context: ExchangeContext, state: State) -> Rule:
    """What is left in a round. Of a stage that leaves many rows their mean: one that keeps one row publishes it."""

    def made(rows: Tensor) -> Tensor:
        one = chain.apply(rows, context, state)[0]
        return one if one.shape[0] == 1 else Chain((*chain.stages, Mean())).apply(rows, context, state)[0]

    return made


def left(made: Tensor, rows: Tensor) -> str:
    """What of single rows ``(n, d)`` is left in a row ``(1, d)``, up to a factor: whoever knows the rule knows that."""
    largest = int(made.abs().argmax())
    off = DISGUISE * float(made.abs().max())
    factors = (made[0, largest] / rows[:, largest]).tolist() if off else []
    found = [(made - factor * rows).abs() <= off for factor in factors]
    if any(bool(alike.all(dim=1).any()) for alike in found):
        return "row"
    return "coordinates" if any(bool(alike.any(dim=0).all()) for alike in found) else ""


def _following(rule: Rule, rows: Tensor) -> str:
    """What changes with one row ``(n, d)`` alone, twice as much where the row changes twice as much.

    A rule that rounds changes by steps: that one of them is at hand for one row alone tells of nothing.
    """
    whole, changed, evenly = rule(rows), list[Tensor](), list[Tensor]()
    direction = updates_of(0, 1, rows.dtype, rows.shape[1])[0]
    for place in range(len(rows)):
        nudge = torch.zeros_like(rows)
        nudge[place] = NUDGE * rows[place].norm() * direction  # not along the row, of which a rule may take the length
        once, twice = (rule(rows + turns * nudge) - whole for turns in (1, 2))
        noise = NUDGE**2 * float(rows.abs().max())
        changed.append((once.abs() > noise) | (twice.abs() > noise))
        evenly.append((twice - 2 * once).abs() <= DISGUISE * once.abs())
    moved = torch.cat(changed)
    alone = moved & torch.cat(evenly) & (moved.sum(dim=0) == 1)
    if bool(alone.all(dim=1).any()):
        return "row"
    return "coordinates" if bool(alone.any()) else ""
