"""What the tests of plans amount to: a verdict, in words, with its figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from fuaudit.audits.plan_law.known_laws import POWER, Suspect, bounds_of, first_involvement, registered, suspects, test
from fuaudit.audits.plan_law.plan_statistics import Ids, Statistic
from fuaudit.audits.plan_law.simulate import KEPT, Scores, Trial
from fuaudit.draws import END
from fuaudit.plans import Population, exact_laws
from fuaudit.statistics.known_law import log_wealth
from fuaudit.statistics.rounding import rate_up, up
from fuaudit.statistics.sequential import SequentialTest, tested
from fuaudit.statistics.violation_rates import RateBound
from fuaudit.text import counted
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Control, Finding, Subject, Verdict

NAME = "plan-law"
SHOWS_NOT = (
    "A deviation from the law that these statistics miss stays unseen, and so does one at a rate below those stated; "
    "it says nothing about requests that depend on the draws, nor about what is computed along a plan."
)


@dataclass(frozen=True)
class Outcome:
    """What was tested, and what came of it.

    Attributes:
        plans: how many were rewritten, and how many were retrained.
        subject: the test of rewritten plans; ``wealths`` are the largest log wealths of its statistics by name.
        null, training: the tests of retrained plans and of training, which must not reject.
        bounds: on the rates of violations, that of untouched plans first.
        named: what the tests must be able to see.
    """

    trial: Trial
    scores: Scores
    plans: int
    alpha: float
    chosen: tuple[Statistic, ...]
    subject: SequentialTest
    wealths: dict[str, float]
    null: SequentialTest
    training: SequentialTest
    bounds: list[RateBound]
    named: tuple[Suspect, ...]

    @property
    def violations(self) -> NDArray[np.int64]:
        """The numbers of the plans that still draw what was to be forgotten."""
        return np.flatnonzero(self.scores.unlearned[:, 0])

    @property
    def missed(self) -> list[Suspect]:
        """What so many plans do not show with the power that is asked for."""
        return [suspect for suspect in self.named if suspect.plans is None or suspect.plans > self.plans]

    @property
    def bounds_rate(self) -> float:
        """The chance that any stated bound is wrong, at most."""
        return self.alpha * sum(bound.below is not None for bound in self.bounds)


def finding(trial: Trial, scores: Scores, fresh: Ids, alpha: float, effect: float) -> Finding:
    """What scores ``scores`` of rewritten and ``fresh (n, 5)`` of retrained plans say.

    Args:
        alpha: false alarms of the tests, and of each stated bound.
        effect: PASS needs that plans which the method leaves untouched occur at a rate below this.
    """
    outcome = tested_outcome(trial, scores, fresh, alpha, effect)
    verdict, shows = judged(outcome)
    paths = {"log wealth": outcome.subject, "log wealth of retrained plans": outcome.null}
    return Finding(
        NAME,
        Subject.ALGORITHM,
        verdict,
        shows,
        SHOWS_NOT,
        tuple(_figures(outcome)),
        detectable="; ".join(map(_power, outcome.named)),
        controls=(
            Control("retrained plans", "not rejected", _word(outcome.null)),
            Control("first involvement in training", "not rejected", _word(outcome.training)),
            Control("untouched plans", "rejected", "rejected" if scores.touched.any() else "not rejected"),
        ),
        assumptions=("Bounds on rates hold for the stated violations alone, each at its own level.",),
        details=tuple(_details(outcome)),
        series={name: _thinned(test.log_wealth) for name, test in paths.items()},
        error_rate=alpha,
        bounds_rate=min(1.0, outcome.bounds_rate),
    )


def tested_outcome(trial: Trial, scores: Scores, fresh: Ids, alpha: float, effect: float) -> Outcome:
    """All tests and bounds; the arguments are those of :func:`finding`."""
    chosen = registered(trial)
    subject, wealths = test(scores.unlearned, chosen, alpha)
    null, _ = test(fresh, chosen, alpha)
    involved = first_involvement(trial)
    training = tested(log_wealth(involved.of(scores.first[:, None]), involved.law), alpha)
    bounds = bounds_of(trial, scores.unlearned, chosen, alpha)
    named = suspects(trial, alpha, effect)
    return Outcome(trial, scores, len(fresh), alpha, chosen, subject, wealths, null, training, bounds, named)


def judged(outcome: Outcome) -> tuple[Verdict, str]:
    """The verdict, and what it shows. A counterexample goes before every test, a broken control before the subject."""
    plans, missed, untouched = outcome.plans, outcome.missed, outcome.bounds[0].below
    names = outcome.trial.names
    if count := len(outcome.violations):
        return Verdict.FAIL, f"{names} leaves what was to be forgotten in {count:,} of {counted(plans, 'plan')}."
    if outcome.null.rejected_at is not None or outcome.training.rejected_at is not None:
        return (
            Verdict.INCONCLUSIVE,
            "The test rejects plans drawn by the law itself: a false alarm, or the law is not as stated.",
        )
    if (at := outcome.subject.rejected_at) is not None:
        return (
            Verdict.FAIL,
            f"{names} has not the law of retraining: rejected after {counted(at, 'plan')} (alpha "
            f"{rate_up(outcome.alpha)}).",
        )
    if missed or untouched is None or not outcome.scores.touched.any():
        return Verdict.INCONCLUSIVE, _too_few(plans, missed)
    faults = " and ".join(suspect.name for suspect in outcome.named[1:])
    return Verdict.PASS, (
        f"In {counted(plans, 'plan')} nothing erased is drawn and the law of retraining is not rejected; plans left "
        f"untouched occur at a rate below {up(untouched)}"
        + (f", and {faults} would have been rejected with power {POWER}." if faults else ".")
        + " The tests look at one client and one of its samples, not at two clients together."
    )


def _too_few(plans: int, missed: list[Suspect]) -> str:
    if blind := [suspect.name for suspect in missed if suspect.plans is None]:
        return f"No deviation in {counted(plans, 'plan')}, but how often these tests see {blind[0]} is not known here."
    needed = max((suspect.plans or 0 for suspect in missed), default=0)
    more = f": about {needed:,} plans are needed." if needed > plans else "."
    return f"No deviation in {counted(plans, 'plan')}, but too few of them could have shown one{more}"


def _power(suspect: Suspect) -> str:
    known = "the power is not known" if suspect.plans is None else f"power {POWER} from {suspect.plans:,} plans on"
    return f"{suspect.name}: {known}"


def _details(outcome: Outcome) -> Iterator[str]:
    scores, probe = outcome.scores, outcome.trial.probe
    for number in outcome.violations[:3]:
        yield f"plan {int(number)}: {counted(int(scores.unlearned[number, 0]), 'draw')} of the target"
    sample = f" and sample {probe.sample}" if probe.sample >= 0 else ""
    yield f"looked at: client {probe.client}{sample}, next to what is erased"
    for s in outcome.chosen:
        yield (
            f"{s.name}: {len(s.law)} categories from {', '.join(map(str, (0, *s.categories.edges)))}; "
            f"known law {', '.join(f'{p:.4f}' for p in s.law)}; "
            f"frequencies {', '.join(f'{f:.4f}' for f in _frequencies(s, scores.unlearned))}; "
            f"largest log wealth {outcome.wealths[s.name]:.2f}"
        )
    yield from map(str, outcome.bounds)
    yield _bookkeeping(outcome.trial, scores)


def _figures(outcome: Outcome) -> Iterator[Figure]:
    yield plans_drawn(outcome.plans)
    yield from _test_figures(outcome)
    yield from _counts(outcome.trial, outcome.scores)
    yield untouched_below(outcome.bounds[0].below, outcome.alpha)


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


def _test_figures(outcome: Outcome) -> Iterator[Figure]:
    yield Figure(
        "alpha",
        "Error rate alpha",
        outcome.alpha,
        "fixed in the spec; bounds the chance that the test rejects equal laws, and that a stated rate is too small",
    )
    yield Figure(
        "alpha_bounds",
        "Error rate of all stated bounds together",
        outcome.bounds_rate,
        "bounds the chance that any of the bounds stated beside the tests is wrong: the sum of their error rates",
    )
    yield Figure(
        "plans_with_target",
        "Plans that still hold what was to be forgotten",
        len(outcome.violations),
        "every draw was looked at; one such plan is a counterexample",
    )
    yield Figure(
        "p_value",
        "p-value of the law of plans",
        outcome.subject.p_value,
        "one over the largest wealth of a bettor against the known law; valid at any stopping",
    )
    yield Figure(
        "rejected_at",
        "Law rejected at plan",
        outcome.subject.rejected_at,
        "first plan at which the wealth reaches one over alpha",
        error_rate=outcome.alpha,
        absent="never",
    )


def _counts(trial: Trial, scores: Scores) -> Iterator[Figure]:
    """Counts beside the tests."""
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
        float(1 - first_involvement(trial).law[-1]),
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
        f"bookkeeping, not tested: the last request restarted {counted(restarts, 'plan')}; in {inside} of them client "
        f"{trial.probe.client} is in the cohort of the restarted round"
    )
    if all(step.not_before == END and not step.edits for step in trial.steps):
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
