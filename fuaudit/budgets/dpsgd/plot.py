"""A picture of the budget of DP-SGD against steps."""

from __future__ import annotations

from dataclasses import replace

from fuaudit.budgets.dpsgd.account import account
from fuaudit.budgets.dpsgd.laws import BatchLaw
from fuaudit.budgets.dpsgd.steps import Steps
from fuaudit.budgets.dpsgd.targets import COARSE
from fuaudit.budgets.picture import Curves, places


def curves(one: Steps, delta: float, law: BatchLaw, times: int = 1) -> Curves:
    """The account of 1 to as many steps as there are; where sampling amplifies, also what holds without it."""
    numbers = places(one.count)
    found = [account([replace(one, count=number)], delta, law, times, COARSE, figures=False) for number in numbers]
    lines = [([each.total for each in found], f"{law.name} batches")]
    lines += [([each.plain for each in found], "without amplification")] if law.amplified else []
    return Curves(numbers, lines)
