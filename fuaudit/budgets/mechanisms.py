"""The mechanisms that there is an account of, by the name and the parameters that a stage tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import TypeAlias

from fuaudit.budgets.conspar import account as conspar
from fuaudit.budgets.conspar.account import BINS, ConSparAccount
from fuaudit.budgets.conspar.law import ConSpar, decimal
from fuaudit.budgets.conspar.targets import for_rounds
from fuaudit.budgets.dpsgd import clients as dpsgd
from fuaudit.budgets.dpsgd.clients import Batches, ClientsAccount, NoisySteps
from fuaudit.budgets.dpsgd.composed import CELLS
from fuaudit.budgets.gaussian import account as gaussian
from fuaudit.budgets.gaussian.account import GaussianAccount
from fuaudit.budgets.gaussian.curve import rounds_for
from fuaudit.budgets.shares import SHARED
from fuaudit.budgets.skellam import account as skellam
from fuaudit.budgets.skellam.account import SkellamAccount
from fuaudit.budgets.skellam.law import Skellam
from fuaudit.budgets.skellam.targets import rounds_within as skellam_rounds
from fuaudit.budgets.statement import Statement
from fuaudit.budgets.target import ExceededError, Target
from fuaudit.errors import UsageError
from fuaudit.text import counted

Parameters = Mapping[str, int | float | str]
Account: TypeAlias = ConSparAccount | GaussianAccount | ClientsAccount | SkellamAccount
Mechanism: TypeAlias = ConSpar | NoisySteps | Skellam | float
"""Of one participation: ConSpar, noisy steps, Skellam noise, or the multiplier of Gaussian noise."""
ROW = "the row of a client, with no noise but the client's own"


NO_BATCHES = "batches are drawn by a law that nobody accounts for: it is not one of fuaudit's own"


def mechanism_of(name: str, parameters: Parameters, differ: int = 1, batches: Batches | None = None) -> Mechanism:
    """The mechanism that a part of a round tells. ``batches`` are those of its steps, where it takes some.

    Raises:
        ExceededError: nobody accounts for it, or for its batches.
        UsageError: there cannot be such a round, or no two sets that differ in so many elements.
    """
    try:
        if name == "conspar":
            dim, per_client, alpha = (str(parameters[each]) for each in ("dim", "per_client", "alpha"))
            shape = int(dim), int(per_client), decimal(alpha)  # a ledger may hold any text: of 1e-999999 no fraction
        elif name not in ("gaussian", "dpsgd", "skellam") or not 0 < (noise := float(parameters["noise"])) < inf:
            raise KeyError(name)
        elif name == "skellam":
            return Skellam(int(str(parameters["squares"])), int(str(parameters["dim"])), Fraction(str(noise)))
    except (KeyError, ValueError):
        told = ", ".join(f"{each} {value}" for each, value in parameters.items())
        raise ExceededError(
            f"nobody accounts for the mechanism {name!r} with {told or 'no parameters'}",
            "There is an account of conspar, with dim, per_client and alpha, of gaussian and dpsgd, with noise, and of "
            "skellam, with noise, squares and dim.",
        ) from None
    if name != "dpsgd":
        return ConSpar(*shape, differ) if name == "conspar" else noise
    if batches is None:
        raise ExceededError(NO_BATCHES, "Use a learner of fuaudit: its laws of batches are known.")
    return NoisySteps(noise, batches)


def unaccounted(name: str, parameters: Parameters, batches: Batches | None = None) -> str:
    """Why nobody accounts for what a part of a round tells; empty where somebody does."""
    try:
        mechanism_of(name, parameters, batches=batches)
    except UsageError as error:
        return str(error.args[0])
    return ""


def account_for(mechanism: Mechanism, rounds: int, delta: float, coarse: bool = False) -> Account:
    """The account of so many participations of one client, each under the mechanism.

    ``coarse`` composes on fewer cells: less exact, and never too private. Noise is accounted for as if nobody else
    added any: what is seen of the row alone.
    """
    if isinstance(mechanism, ConSpar):
        return conspar.account(mechanism, rounds, delta, conspar.COARSE if coarse else BINS)
    if isinstance(mechanism, NoisySteps):
        return dpsgd.account_for(mechanism, rounds, delta, dpsgd.COARSE if coarse else CELLS)
    if isinstance(mechanism, Skellam):
        return skellam.account(mechanism, rounds, delta, seen=ROW)
    return replace(gaussian.account(mechanism, rounds, delta), seen=ROW, trust=SHARED)


def statement_for(found: Account) -> Statement:
    """What an epsilon is about."""
    if isinstance(found, ClientsAccount | SkellamAccount):
        return found.statement()
    return conspar.statement(found) if isinstance(found, ConSparAccount) else gaussian.statement(found)


def rounds_within(mechanism: Mechanism, target: Target, below: int) -> int:
    """The most participations that keep to a target; 0, or UsageError, where one is too many or delta does not do.

    ``below`` is a number that does not keep to it.
    """
    if isinstance(mechanism, NoisySteps):
        return dpsgd.rounds_within(mechanism, target, below)
    if isinstance(mechanism, Skellam):
        return skellam_rounds(mechanism, target, below)
    if isinstance(mechanism, ConSpar):
        return for_rounds(mechanism, target.delta, target.epsilon)
    return rounds_for(target.epsilon, target.delta, mechanism)


def assumed(found: Account, target: Target) -> str:
    """What a target rests on, apart from the account."""
    if isinstance(found, ConSparAccount):
        sets = counted(target.differ, "element")
        return f"In every round two top sets differ in at most {sets}, as the budget assumes."
    if isinstance(found, SkellamAccount):
        return "Nobody without a client's key foretells its draws of SHAKE-256."
    bits = "The last bits of the noise tell nothing: it is rounded to floats, and accounted for as real numbers."
    if isinstance(found, ClientsAccount) and found.amplified:
        return f"{bits} Whoever the budget is to hold against has neither the plan nor the key of its draws."
    return bits
