"""The tests that decide where a method draws otherwise than the reference: its plans against the known law.

They are valid for any method, and see only what they were made to see: a deviation from the laws of a few statistics,
and what was to be forgotten in a plan. So their size follows from suspects that are named beforehand: a method that
leaves plans as they are, and the faults that fuaudit's own unlearners declare, whichever method is audited
(:class:`fuaudit.unlearning.faults.KnownFault`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from fuaudit.audits.plan_law.plan_statistics import Ids, Statistic, statistics
from fuaudit.audits.plan_law.simulate import KEPT, Scores, Trial
from fuaudit.draws import END
from fuaudit.plans import Population, exact_laws
from fuaudit.plans.exact_laws import Number, quarters
from fuaudit.statistics.known_law import WEIGHTS, average, log_wealth
from fuaudit.statistics.rounding import up
from fuaudit.statistics.sequential import SequentialTest, tested
from fuaudit.statistics.violation_rates import RateBound, plans_needed, rate_bound
from fuaudit.unlearning.faults import Facts, known_faults
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Control, Finding, Subject, Verdict

NAME = "plan-law"
POWER = 0.9
"""With this probability every named suspect is rejected by a test of the size that PASS asks for."""

UNTOUCHED = "plans left untouched"
SHOWS_NOT = (
    "A deviation from the law that these statistics miss stays unseen, and so does one at a rate below those stated; "
    "it says nothing about requests that depend on the draws, nor about what is computed along a plan."
)


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
    missed = exact_laws.missed_round(trial.uniform, trial.before, trial.steps[-1].request)
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
    facts = _facts(trial)
    chosen = statistics(trial.uniform, trial.retained, trial.probe)
    return tuple(replace(statistic, suspects=_suspected(statistic, facts)) for statistic in chosen)


def _facts(trial: Trial) -> Facts:
    last = trial.steps[-1]
    return Facts(trial.uniform, trial.before, last.request, last.not_before, trial.probe.client)


def _suspected(statistic: Statistic, facts: Facts) -> dict[str, tuple[Number, ...]]:
    terms = max(statistic.categories.edges)
    faults = [fault for fault in known_faults() if fault.applies(facts)]
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
    found = [Suspect(f"{UNTOUCHED} at a rate of {effect:g}", plans_needed(effect, chance(trial), alpha))]
    faults = [fault.name for fault in known_faults() if fault.applies(_facts(trial))]
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

    The bettor who believes in the suspect gains log(truth / law) a plan. His wealth is one of ``paths`` times all
    bettors', and rejects by itself where it reaches so many over alpha. The chance that a random walk of this mean and
    variance has reached a level after n steps is that of Brownian motion; overshoot and all other bettors come on top.
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


def finding(trial: Trial, scores: Scores, fresh: Ids, alpha: float, effect: float) -> Finding:
    """What scores ``scores`` of rewritten and ``fresh (n, 5)`` of retrained plans say.

    Args:
        alpha: false alarms of the tests, and of each stated bound.
        effect: PASS needs that plans which the method leaves untouched occur at a rate below this.
    """
    chosen = registered(trial)
    plans = len(fresh)
    subject, wealths = test(scores.unlearned, chosen, alpha)
    null, _ = test(fresh, chosen, alpha)
    involved = first_involvement(trial)
    training = tested(log_wealth(involved.of(scores.first[:, None]), involved.law), alpha)
    bounds = bounds_of(trial, scores.unlearned, chosen, alpha)
    violations = np.flatnonzero(scores.unlearned[:, 0])
    untouched = bounds[0].below
    controls = (
        Control("retrained plans", "not rejected", _word(null)),
        Control("first involvement in training", "not rejected", _word(training)),
        Control("untouched plans", "rejected", "rejected" if scores.touched.any() else "not rejected"),
    )
    named = suspects(trial, alpha, effect)
    faults = " and ".join(suspect.name for suspect in named[1:])
    missed = [suspect for suspect in named if suspect.plans is None or suspect.plans > plans]
    detectable = "; ".join(
        f"{suspect.name}: "
        + ("the power is not known" if suspect.plans is None else f"power {POWER} from {suspect.plans:,} plans on")
        for suspect in named
    )
    names = ", then ".join(repr(step.name) for step in trial.steps)
    if len(violations):
        verdict = Verdict.FAIL
        shows = f"{names} leaves what was to be forgotten in {len(violations)} of {plans} plans."
    elif null.rejected_at is not None or training.rejected_at is not None:
        verdict = Verdict.INCONCLUSIVE
        shows = "The test rejects plans drawn by the law itself: a false alarm, or the law is not as stated."
    elif subject.rejected_at is not None:
        verdict = Verdict.FAIL
        shows = f"{names} has not the law of retraining: rejected after {subject.rejected_at} plans (alpha {alpha})."
    elif missed or untouched is None or not scores.touched.any():
        verdict = Verdict.INCONCLUSIVE
        needed = max((suspect.plans or 0 for suspect in missed), default=0)
        shows = f"No deviation in {plans} plans, but too few of them could have shown one" + (
            f": about {needed:,} plans are needed." if needed > plans else "."
        )
        if blind := [suspect.name for suspect in missed if suspect.plans is None]:
            shows = f"No deviation in {plans} plans, but how often these tests see {blind[0]} is not known here."
    else:
        verdict = Verdict.PASS
        shows = (
            f"In {plans} plans nothing erased is drawn and the law of retraining is not rejected; plans left "
            f"untouched occur at a rate below {up(untouched)}"
            + (f", and {faults} would have been rejected with power {POWER}." if faults else ".")
        )
    bounds_rate = alpha * sum(bound.below is not None for bound in bounds)
    probe = trial.probe
    return Finding(
        NAME,
        Subject.ALGORITHM,
        verdict,
        shows,
        SHOWS_NOT,
        (
            plans_drawn(plans),
            *_test_figures(subject, alpha, bounds_rate, len(violations)),
            *_counts(trial, scores, float(1 - involved.law[-1])),
            untouched_below(untouched, alpha),
        ),
        detectable=detectable,
        controls=controls,
        assumptions=("Bounds on rates hold for the stated violations alone, each at its own level.",),
        details=(
            *(
                f"plan {int(number)}: {int(scores.unlearned[number, 0])} draws of the target"
                for number in violations[:3]
            ),
            f"looked at: client {probe.client}"
            + (f" and sample {probe.sample}" if probe.sample >= 0 else "")
            + ", next to what is erased",
            *(
                f"{s.name}: {len(s.law)} categories from {', '.join(map(str, (0, *s.categories.edges)))}; "
                f"known law {', '.join(f'{p:.4f}' for p in s.law)}; "
                f"frequencies {', '.join(f'{f:.4f}' for f in _frequencies(s, scores.unlearned))}; "
                f"largest log wealth {wealths[s.name]:.2f}"
                for s in chosen
            ),
            *map(str, bounds),
            _bookkeeping(trial, scores),
        ),
        series={"log wealth": _thinned(subject.log_wealth), "log wealth of retrained plans": _thinned(null.log_wealth)},
        error_rate=alpha,
        bounds_rate=min(1.0, bounds_rate),
    )


def plans_drawn(plans: int) -> Figure:
    """How many plans were looked at."""
    return Figure(
        "plans",
        "Plans drawn",
        plans,
        "counted; each is drawn with a key of its own and then changed by the method, and nothing is trained",
    )


def untouched_below(rate: float | None, alpha: float) -> Figure:
    """The bound on the rate of plans that a method leaves as they were."""
    return Figure(
        "untouched_below",
        "The method leaves plans as they were at a rate below",
        rate,
        "an upper bound at confidence 1 - alpha, from plans that would have shown it",
        error_rate=alpha,
    )


def _test_figures(subject: SequentialTest, alpha: float, bounds_rate: float, with_target: int) -> Iterator[Figure]:
    yield Figure(
        "alpha",
        "Error rate alpha",
        alpha,
        "fixed in the spec; bounds the chance that the test rejects equal laws, and that a stated rate is too small",
    )
    yield Figure(
        "alpha_bounds",
        "Error rate of all stated bounds together",
        bounds_rate,
        "bounds the chance that any of the bounds stated beside the tests is wrong: the sum of their error rates",
    )
    yield Figure(
        "plans_with_target",
        "Plans that still hold what was to be forgotten",
        with_target,
        "every draw was looked at; one such plan is a counterexample",
    )
    yield Figure(
        "p_value",
        "p-value of the law of plans",
        subject.p_value,
        "one over the largest wealth of a bettor against the known law; valid at any stopping",
    )
    yield Figure(
        "rejected_at",
        "Law rejected at plan",
        subject.rejected_at,
        "first plan at which the wealth reaches one over alpha",
        error_rate=alpha,
        absent="never",
    )


def _counts(trial: Trial, scores: Scores, exact: float) -> Iterator[Figure]:
    """Counts beside the tests; ``exact`` is the probability that training draws the target of the first request."""
    yield Figure(
        "recomputed",
        "Plans that the last request changed",
        int((scores.redrawn[:, -1] > 0).sum()),
        "counted; how many there should be is no part of exactness, so it is not tested",
    )
    yield Figure(
        "first_involved",
        "Plans whose training drew what the first request names",
        int((scores.first < trial.uniform.rounds).sum()),
        "counted before anything was to be forgotten; a control of the simulation",
    )
    yield Figure(
        "first_involved_exact",
        "The probability of that",
        exact,
        "exact, from the law of training; the count above over the plans drawn should be near it",
    )
    yield Figure(
        "rounds_redrawn_mean",
        "Rounds drawn anew, on average",
        float(scores.redrawn.sum(axis=1).mean()),
        "mean over all plans and requests; a measure of cost, not tested",
    )


def _bookkeeping(trial: Trial, scores: Scores) -> str:
    """Where plans were restarted: no part of the test, for exactness says nothing about it."""
    restarts, inside = int((scores.restarted != KEPT).sum()), int((scores.restarted == 1).sum())
    text = (
        f"bookkeeping, not tested: the last request restarted {restarts} plans; in {inside} of them client "
        f"{trial.probe.client} is in the cohort of the restarted round"
    )
    if all(step.not_before == END for step in trial.steps):
        text += f"; {_least_rounds(trial):.4f} rounds are to be drawn anew on average if none is that need not be"
    return text


def _least_rounds(trial: Trial) -> float:
    """The expected number of rounds that requests after training make anew, if each goes back no further than it must.

    Each request of an exact stream meets a plan with the law of a fresh one.
    """
    law, requests = trial.uniform, [step.request for step in trial.steps]
    left = accumulate(requests[:-1], Population.without, initial=trial.population)
    missed = (exact_laws.missed_round(law, each, request) for each, request in zip(left, requests, strict=True))
    return float(sum(exact_laws.rounds_from_first(one, law.rounds) for one in missed))


def _word(result: SequentialTest) -> str:
    return "not rejected" if result.rejected_at is None else "rejected"


def _frequencies(statistic: Statistic, numbers: Ids) -> NDArray[np.float64]:
    return np.bincount(statistic.of(numbers), minlength=len(statistic.law)) / len(numbers)


def _thinned(path: NDArray[np.float64]) -> list[float]:
    """At most 256 points of a path, the last one among them; infinite wealth is drawn at the largest float."""
    places = np.unique(np.linspace(0, len(path) - 1, min(256, len(path))).astype(np.int64))
    return [float(v) for v in np.nan_to_num(path[places])]
