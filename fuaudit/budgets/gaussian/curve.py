"""Rounds of Gaussian noise, exactly: together they are one round with less noise.

A round adds noise of standard deviation z times the sensitivity. T rounds, each chosen in view of those before, are as
private as one with mu = sqrt(T) / z, whose curve is

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu)

*Source*: Balle and Wang, Improving the Gaussian Mechanism, 2018, Theorem 8; Dong, Roth and Su, Gaussian Differential
Privacy, 2022, Corollary 3.3.
"""

from __future__ import annotations

from bisect import bisect_left
from math import erfc, exp, inf, log, sqrt

from fuaudit.budgets.compose import UNIT, crossing
from fuaudit.budgets.statement import epsilon_in_words
from fuaudit.budgets.target import require_delta
from fuaudit.errors import UsageError
from fuaudit.text import in_full

ROUNDS = 10**9
"""Rounds that are accounted for, at most."""
SMALLEST_MU, LARGEST_MU = 1e-9, 1e6
"""Between them a target is looked for; beyond them rounding counts for more than the noise."""


def delta_of(epsilon: float, mu: float) -> float:
    """The delta at an epsilon of at least 0, rounded up: no smaller than the exact one.

    With x and y = epsilon / mu -+ mu / 2 and Mills' ratio m it is phi(x) (m(x) - m(y)): nothing overflows.
    """
    from scipy.special import erfcx

    if mu == 0:
        return 0.0
    x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    height = exp(-x * x / 2)
    above = erfc(x / sqrt(2)) / 2 if x < 0 else height * float(erfcx(x / sqrt(2))) / 2
    below = height * float(erfcx(y / sqrt(2))) / 2
    # x is off by a few units of the larger of its parts, and the exponential by as many times x as that
    wrong = UNIT * (16 + 8 * abs(x) * (epsilon / mu + mu / 2)) * (above + below)
    return min(1.0, above - below + wrong)


def mu_of(noise: float, rounds: int, participations: int = 1) -> float:
    """Mu of so many rounds, in each of which a client takes part so often: its sensitivity is as many times larger."""
    if not 0 <= noise < inf:
        raise UsageError(f"noise is a number of at least 0, not {noise}")
    if not 1 <= rounds <= ROUNDS:
        raise UsageError(f"rounds are 1 to {ROUNDS:,}, not {rounds}")
    if participations < 1:
        raise UsageError(f"a client takes part at least once in a round, not {participations} times")
    return participations * sqrt(rounds) / noise * (1 + 8 * UNIT) if noise else inf


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon at a delta, rounded up; infinite at delta 0, and without noise."""
    require_delta(delta)
    if mu == 0:
        return 0.0
    if delta == 0 or mu > LARGEST_MU:
        return inf
    most = mu * mu / 2 + mu * sqrt(-2 * log(delta))  # by concentrated differential privacy
    return crossing(lambda epsilon: delta_of(epsilon, mu), delta, most * (1 + 1e-9))[1] * (1 + 1e-12)


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu that keeps to a target, rounded down.

    Raises:
        UsageError: there is none, as at delta 0.
    """
    require_delta(delta)
    if not 0 <= epsilon < inf:
        raise UsageError(f"a target is an epsilon of at least 0, not {epsilon}")
    low, high = log(SMALLEST_MU), log(LARGEST_MU)
    if delta == 0 or delta_of(epsilon, SMALLEST_MU) > delta:
        raise UsageError(
            "no Gaussian noise that floats can account for keeps to epsilon "
            f"{in_full(epsilon)} at delta {in_full(delta)}",
            "At delta 0 none does. Take a larger delta.",
        )
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(epsilon, exp(middle)) > delta else (middle, high)
    return exp(low) * (1 - 1e-12)


def noise_for(epsilon: float, delta: float, rounds: int, participations: int = 1) -> float:
    """The least noise that keeps so many rounds to a target, rounded up: a multiple of the sensitivity."""
    return mu_of(1.0, rounds, participations) / mu_for(epsilon, delta) * (1 + 8 * UNIT)


def rounds_for(epsilon: float, delta: float, noise: float, participations: int = 1) -> int:
    """The most rounds with so much noise that keep to a target; UsageError where one is too many already."""
    most = mu_for(epsilon, delta)
    rounds = bisect_left(range(1, ROUNDS + 1), True, key=lambda rounds: mu_of(noise, rounds, participations) > most)
    if rounds == 0:
        told = epsilon_in_words(epsilon_of(mu_of(noise, 1, participations), delta))
        raise UsageError(f"one round has {told} already, and the target is {in_full(epsilon)}", "Add more noise.")
    return rounds
