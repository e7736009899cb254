"""Inverse questions: how much noise, how large a sampling rate or how many steps an epsilon allows.

An answer is computed as any account is, from bounds that are never too small, so it holds. Epsilon falls with the
noise, and grows with the rate and with the steps (docs/budgets.md).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from fuaudit.budgets.dpsgd.account import account, by_whole_orders, unamplified
from fuaudit.budgets.dpsgd.composed import bracket
from fuaudit.budgets.dpsgd.laws import BatchLaw
from fuaudit.budgets.dpsgd.steps import STEPS, Steps
from fuaudit.budgets.statement import epsilon_in_words
from fuaudit.budgets.target import require_delta
from fuaudit.errors import UsageError
from fuaudit.text import counted, in_full

COARSE = 2**16
"""Cells for many accounts at once: less exact, and never too private."""
LEAST_NOISE, MOST_NOISE, LEAST_RATE = 0.01, 1e6, 1e-12
"""Between which noise is looked for, and above which a rate."""


@dataclass(frozen=True)
class Asked:
    """What is known of the steps; the one number that is None is searched for. Without amplification the rate is 1."""

    noise: float | None
    rate: float | None
    count: int | None
    delta: float
    law: BatchLaw
    times: int = 1


def answer(asked: Asked, target: float) -> Steps:
    """The steps with the missing number as the target allows it: the least noise, the largest rate, the most steps.

    Noise and rates have four significant digits.

    Raises:
        UsageError: not exactly one number is missing, the target is no epsilon, or nothing keeps to it.
    """
    if not 0 <= target < inf:
        raise UsageError(f"a target is an epsilon of at least 0, not {target}")
    require_delta(asked.delta)
    match (asked.noise, asked.rate, asked.count):
        case (None, float(rate), int(count)):
            found = _first(lambda noise: Steps(noise, rate, count), _noises(), asked, target)
        case (float(noise), None, int(count)) if asked.law.amplified:
            found = _first(lambda rate: Steps(noise, rate, count), _rates(), asked, target)
        case (float(noise), float(rate), None):
            found = _first(lambda count: Steps(noise, rate, int(count)), range(STEPS, 0, -1), asked, target)
        case _:
            raise UsageError("with a target one of noise, rate and steps is left out")
    return found


def _noises() -> list[float]:
    return [each for each in _decimals(-5, 3) if LEAST_NOISE <= each <= MOST_NOISE]


def _rates() -> list[float]:
    return [1.0, *(each for each in reversed(_decimals(-15, -4)) if each >= LEAST_RATE)]


def _decimals(first: int, last: int) -> list[float]:
    """Numbers of four digits times powers of ten, upwards."""
    return [float(f"{digits}e{power}") for power in range(first, last + 1) for digits in range(1000, 10_000)]


def _first(steps_with: Callable[[float], Steps], choices: Sequence[float], asked: Asked, target: float) -> Steps:
    """The steps of the first choice that keeps to the target; those of choices before it are less private."""
    found = bisect_left(choices, True, key=lambda each: _fits(steps_with(each), asked, target))
    if found < len(choices):
        return steps_with(choices[found])
    least = steps_with(choices[-1])
    epsilon = account([least], asked.delta, asked.law, asked.times, COARSE).total
    rate = f" at rate {in_full(least.rate)}" if asked.law.amplified else ""
    raise UsageError(
        f"the target is {in_full(target)}, and there is {epsilon_in_words(epsilon)} already for "
        f"{counted(least.count, 'step')} with noise {in_full(least.noise)}{rate}",
        "Nothing more private is looked for. Take a larger --target, or change the other numbers.",
    )


def _fits(one: Steps, asked: Asked, target: float) -> bool:
    """Whether one of the bounds of an account keeps to the target."""
    if unamplified([one], asked.delta, asked.times) <= target:
        return True
    if not asked.law.amplified or one.noise == 0 or asked.delta == 0:
        return False
    if exact := bracket([one], asked.delta, COARSE):
        return exact.high <= target
    whole = by_whole_orders([one], asked.delta)
    return whole is not None and whole <= target
