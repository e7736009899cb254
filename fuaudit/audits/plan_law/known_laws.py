"""The tests that decide where a method draws otherwise than the reference: its plans against the known law.

The null hypothesis is that a few statistics of plans have their laws under exactness; the test is that of
:mod:`fuaudit.statistics.known_law`, averaged over the statistics. It is valid for any method. It sees only deviations
from these laws, and what was to be forgotten in a plan.

So how many plans it takes follows from suspects that are named beforehand, whichever method is audited: a method that
leaves plans as they are, and the faults that fuaudit's own unlearners declare
(:class:`fuaudit.unlearning.faults.KnownFault`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np
from scipy.special import log_ndtr, ndtr

from fuaudit.audits.plan_law.plan_statistics import Ids, Statistic, statistics
from fuaudit.audits.plan_law.simulate import Trial
from fuaudit.plans import exact_laws
from fuaudit.plans.exact_laws import Number, quarters
from fuaudit.statistics.known_law import WEIGHTS, average, log_wealth
from fuaudit.statistics.sequential import SequentialTest, tested
from fuaudit.statistics.violation_rates import RateBound, plans_needed, rate_bound
from fuaudit.unlearning.faults import Facts, KnownFault, known_faults

POWER = 0.9
"""With this probability every named suspect is rejected by a test of the size that PASS asks for."""

UNTOUCHED = "plans left untouched"


def test(numbers: Ids, chosen: tuple[Statistic, ...], alpha: float) -> tuple[SequentialTest, dict[str, float]]:
    """The test of scores ``(n, 5)`` by averaged wealth, and the largest log wealth of each statistic."""
    paths = {s.name: log_wealth(s.of(numbers), s.law, s.believed) for s in chosen}
    return tested(average(paths.values()), alpha), {name: float(path.max()) for name, path in paths.items()}


def first_involvement(trial: Trial) -> Statistic:
    """The first round of training that draws the target of the first request, in categories, with its law."""
    missed = exact_laws.missed_round(trial.uniform, trial.population, trial.steps[0].request)
    categories = quarters(trial.uniform.rounds)
    return Statistic(
        "first involvement", 0, categories, categories.merge(exact_laws.first_of(missed, trial.uniform.rounds))
    )


def chance(trial: Trial) -> float:
    """The exact probability that what was executed before the last request draws its target."""
    missed = exact_laws.missed_round(trial.uniform, trial.drawn_over, trial.steps[-1].request)
    executed = min(trial.steps[-1].not_before.round - 1, trial.uniform.rounds)
    return float(1 - missed**executed)


def bounds_of(trial: Trial, numbers: Ids, chosen: tuple[Statistic, ...], alpha: float) -> list[RateBound]:
    """Upper bounds on the rates of the violations whose laws are known."""
    shown = chance(trial)
    target = np.minimum(numbers[:, 0], 1)
    bounds = [rate_bound(target, (1.0, 0.0), (1 - shown, shown), alpha, UNTOUCHED)]
    for statistic in chosen:
        for fault, law in statistic.suspects.items():
            bounds.append(rate_bound(statistic.of(numbers), statistic.law, law, alpha, fault))
    return bounds


def registered(trial: Trial) -> tuple[Statistic, ...]:
    """The statistics of a trial, each with the faults that are suspected and whose law of it is known."""
    facts, faults = _facts(trial), _faults(trial)
    chosen = statistics(trial.uniform, trial.retained, trial.probe)
    return tuple(replace(statistic, suspects=_suspected(statistic, facts, faults)) for statistic in chosen)


def _facts(trial: Trial) -> Facts:
    last = trial.steps[-1]
    return Facts(trial.uniform, trial.before, last.request, last.not_before, trial.probe.client)


def _faults(trial: Trial) -> list[KnownFault]:
    """Those that may be; none behind an editor, where a method that keeps anything is refused."""
    return [] if trial.behind_edit else [fault for fault in known_faults() if fault.applies(_facts(trial))]


def _suspected(statistic: Statistic, facts: Facts, faults: Sequence[KnownFault]) -> dict[str, tuple[Number, ...]]:
    terms = max(statistic.categories.edges)
    laws = {fault.name: fault.law_of(statistic.name, facts, terms) for fault in faults}
    return {name: statistic.categories.merge(law) for name, law in laws.items() if law is not None}


@dataclass(frozen=True)
class Suspect:
    """A violation named beforehand, and the plans after which it shows with power :data:`POWER`.

    None where that is not known, or no number of plans will do.
    """

    name: str
    plans: int | None


def suspects(trial: Trial, alpha: float, effect: float) -> tuple[Suspect, ...]:
    """What the tests must be able to see before they may pass anything, computed before any plan is drawn."""
    found = [
        Suspect(f"{UNTOUCHED} at a rate of {effect:g}", plans_needed(effect, chance(trial), min(alpha, 1 - POWER)))
    ]
    faults = [fault.name for fault in _faults(trial)]
    chosen = registered(trial) if faults else ()
    for fault in faults:
        telling = [s for s in chosen if fault in s.suspects]
        sizes = [plans_for(s.law, s.suspects[fault], s.believed, len(chosen), alpha) for s in telling]
        found.append(Suspect(fault, min((size for size in sizes if size is not None), default=None)))
    return tuple(found)


def plans_for(
    law: Sequence[float], truth: Sequence[float], believed: Sequence[Sequence[float]], paths: int, alpha: float
) -> int | None:
    """How many plans of a suspect's law ``truth`` are rejected with power :data:`POWER`; None if no number of them.

    The log wealth of the bettor who expects the suspect's law grows by log(truth / law) a plan. He has one of
    ``paths * bettors`` equal shares, so he alone rejects when his wealth reaches ``paths * bettors / alpha``. The
    chance that a random walk of this mean and variance has reached that level by n plans is taken from Brownian motion.
    It leaves out overshoot and the gains of all other bettors, which add to it.
    """
    q, v = np.array(law, dtype=np.float64), np.array(truth, dtype=np.float64)
    if (v[q == 0] > 0).any():
        return 1  # what the law makes impossible settles it
    there = v > 0
    gains = np.log(v[there] / q[there])
    mean = float(v[there] @ gains)
    spread = sqrt(float(v[there] @ (gains - mean) ** 2))
    level = -log(alpha) + log(paths * (len(WEIGHTS) + len(believed)))
    if mean <= 1e-12:
        return None
    if spread < 1e-9 * mean:
        return int(np.ceil(level / mean))
    low, high = 1, int(np.ceil(level / mean)) + 1
    while reached(mean, spread, level, high) < POWER:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(mean, spread, level, middle) >= POWER else (middle + 1, high)
    return low


def reached(mean: float, spread: float, level: float, steps: int) -> float:
    """The chance that Brownian motion of this drift and spread has reached a level by then."""
    scale = spread * sqrt(steps)
    beyond = float(ndtr((mean * steps - level) / scale))
    return beyond + exp(2 * mean * level / spread**2 + float(log_ndtr(-(level + mean * steps) / scale)))
