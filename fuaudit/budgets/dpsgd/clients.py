"""DP-SGD at the clients of a run: the account of what one client's participations tell of one of its rows.

A participation is so many steps, of which what is sent is the last model alone: to see every step is to see more. Rows
of other clients bear on later rounds by the models that were sent out, and noise was added to these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import expm1, log1p
from typing import Any

from fuaudit.budgets.dpsgd.account import DpSgdAccount, account, statement
from fuaudit.budgets.dpsgd.composed import CELLS
from fuaudit.budgets.dpsgd.laws import FIXED, BatchLaw
from fuaudit.budgets.dpsgd.steps import STEPS, Steps
from fuaudit.budgets.losses import joining
from fuaudit.budgets.statement import Statement
from fuaudit.budgets.target import Target, most_within
from fuaudit.errors import UsageError

SEES = "sees a client's model after every step, and knows all settings and all other rows; it does not see the noise"
OF_A_RUN = "The config names the law, and a replay draws the batches again"
HIDDEN = "; that nobody foretells draws of Philox4x64, no cryptographic generator, without their key is assumed"
OUTSIDE = (
    "other runs on the same data, rounds that a request executes again, tuning, audits; metrics and stored rows that "
    "were computed from private rows; rounding of noise to floats"
)


@dataclass(frozen=True)
class Batches:
    """How batches of a run come about, as far as an account of one row needs it.

    Attributes:
        law: says whether a row that is seldom sampled is charged less.
        steps: in how many steps of a participation a row can be, at most.
        rate: the chance that it is in the batch of a step, at most; 1 without amplification.
        cut: the chance that such a batch is cut to fit, at most.
    """

    law: BatchLaw
    steps: int
    rate: float = 1.0
    cut: float = 0.0

    def known(self) -> Batches:
        """The same towards whoever knows which rows a batch has: nothing is amplified."""
        return Batches(FIXED, self.steps)


@dataclass(frozen=True)
class NoisySteps:
    """The mechanism of one participation: steps with noise, a multiple of the clipping norm."""

    noise: float
    batches: Batches


@dataclass(frozen=True)
class ClientsAccount:
    """The account of so many participations of one client, ``rounds``, for one of its rows."""

    rounds: int
    found: DpSgdAccount

    @property
    def total(self) -> float:
        """The smallest epsilon that is known to hold; infinite where none does."""
        return self.found.total

    @property
    def delta(self) -> float:
        """At which that holds, with what cuts add."""
        return self.found.delta_in_all

    @property
    def note(self) -> str:
        """Why there is no epsilon; empty where there is one."""
        return self.found.note

    @property
    def amplified(self) -> bool:
        """Whether a row that is seldom sampled was charged less."""
        return self.found.law.amplified

    def as_json(self) -> dict[str, Any]:
        """Null is an epsilon that is unbounded."""
        return self.found.as_json() | {"participations": self.rounds, "statement": self.statement().as_json()}

    def statement(self) -> Statement:
        """What an epsilon is about."""
        of_steps = statement(self.found, OF_A_RUN + HIDDEN * self.amplified)
        return replace(
            of_steps,
            unit="one row of one client; its gradient is clipped to a norm by itself, before gradients are added up",
            adjacency="the row counts, or its gradients are zero; how many rows clients have is known",
            adversary=f"{SEES}, nor which rows a batch has: keys, plans and findings tell that"
            if self.amplified
            else f"{SEES}. It may know all batches",
            trust_model="each client is trusted with its own rows alone, and adds its own noise to every step",
            outside_it=OUTSIDE,
        )


def account_for(one: NoisySteps, participations: int, delta: float, cells: int = CELLS) -> ClientsAccount:
    """The account of participations at delta, in which the chance of any cut is: as 1 + e^epsilon times it.

    Where cuts are too likely for this delta, nothing is amplified: a cut does not matter then.

    Raises:
        UsageError: too many steps, or no library that composes.
    """
    batches, count = one.batches, participations * one.batches.steps
    if count > STEPS:
        raise UsageError(f"{count:,} steps are more than the {STEPS:,} that are accounted for")
    steps = [Steps(one.noise, batches.rate, count)]

    def at(law: BatchLaw, base: float, cut: float = 0.0) -> ClientsAccount:
        return ClientsAccount(participations, account(steps, base, law, cells=cells, cut=cut, figures=False))

    if not batches.law.amplified or not delta:
        return at(FIXED, delta)
    if not (cut := any_of(batches.cut, count)):
        return at(batches.law, delta)
    # epsilon falls with delta: what cuts add at half of it is enough for all that is above
    added = joining(at(batches.law, delta / 2).total, cut)
    if added > delta / 2:
        return at(FIXED, delta)
    found, plain = at(batches.law, (delta - added) * (1 - 1e-12), cut), at(FIXED, delta)
    return found if found.total < plain.total and found.delta <= delta else plain


def any_of(chance: float, count: int) -> float:
    """The chance that any of so many independent batches is cut, rounded up."""
    return 1.0 if chance >= 1 else min(1.0, -expm1(count * log1p(-chance)) * (1 + 1e-12))


def rounds_within(one: NoisySteps, target: Target, below: int) -> int:
    """The most participations, fewer than ``below``, that keep to a target; 0 for none."""
    return most_within(lambda rounds: account_for(one, rounds, target.delta, COARSE).total <= target.epsilon, below)


COARSE = 2**16
"""Cells for many accounts at once: less exact, and never too private."""
