"""The figures of the comparison of repeated unlearning with repeated retraining."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fuaudit.statistics.sequential import SequentialTest
from fuaudit.statistics.two_sample.batch import BatchTest
from fuaudit.statistics.two_sample.bounds import epsilon_bound, mean_gap_interval, threshold_bounds
from fuaudit.verification.figure import Figure

DELTA = 1e-5
"""Of the lower bound on epsilon."""

BOUNDS = 4
"""Total variation, thresholds, epsilon of the subject and of the control: each at its own level alpha."""

ENDED = "none where the data ended the pairs"
REACHED = "first pair at which the wealth reaches one over its part of alpha"

Floats = NDArray[np.float64]


def sizes(pairs: int, runs: int, decided: bool, needed: int | None, basis: str) -> Iterator[Figure]:
    """How much was sampled, and how much more would tell; ``basis`` is what ``needed`` is computed from, in words."""
    yield Figure(
        "pairs",
        "Pairs of runs",
        pairs,
        "each pair trains one original and two retrained runs, all with fresh keys; an editor's pairs one run more",
    )
    yield Figure("runs", "Training runs", runs, "counted over all arms")
    yield Figure(
        "stopping",
        "The number of pairs was",
        "decided" if decided else "fixed",
        "fixed in advance, or left to a decision; the test by betting allows either",
    )
    yield Figure(
        "pairs_needed",
        "Pairs that would show the effect of the spec",
        needed,
        f"extrapolated from {basis}; log wealth is taken to grow with the square of the rate of untouched models",
    )


def rates(alpha: float, betting: float, batch: float | None) -> Iterator[Figure]:
    """How alpha is divided over the tests and bounds."""
    yield Figure(
        "alpha",
        "Error rate alpha",
        alpha,
        "set in the spec; bounds the chance that all tests of the subject together reject equal laws",
    )
    yield Figure("alpha_betting", "Part of alpha for the test by betting", betting, "fixed in advance")
    yield Figure(
        "alpha_batch",
        "Part of alpha for the batch tests",
        batch,
        "fixed in advance; none where the pairs were not of a fixed number, so that no batch test was made",
    )
    yield Figure(
        "alpha_bounds",
        "Error rate of all bounds on distances together",
        BOUNDS * alpha,
        "bounds the chance that any bound on a distance stated beside the tests is wrong: their error rates, summed; "
        "the limit of the power is not among them, its confidence is .9, approximately",
    )


def tests(subject: SequentialTest, batch: BatchTest | None, alpha: float) -> Iterator[Figure]:
    """The subject against retraining; ``alpha`` is that of the test by betting."""
    yield Figure(
        "p_value",
        "p-value of the subject",
        subject.p_value,
        "one over the largest wealth reached; valid at any stopping",
    )
    yield Figure(
        "rejected_at", "Subject rejected at pair", subject.rejected_at, REACHED, error_rate=alpha, absent="never"
    )
    yield Figure(
        "batch_p_value",
        "p-value of the batch tests of the subject",
        batch.p_value if batch else None,
        "MMD, energy distance, Kolmogorov-Smirnov and a classifier, combined; pairs swapped at random",
    )


def controls(untouched: SequentialTest, batch: BatchTest | None, rate: float | None) -> Iterator[Figure]:
    """The untouched models against retraining, and what the test would have seen of them."""
    yield Figure(
        "untouched_rejected_at", "Untouched models rejected at pair", untouched.rejected_at, REACHED, absent="never"
    )
    yield Figure(
        "untouched_batch_p_value",
        "p-value of the batch tests of untouched models",
        batch.p_value if batch else None,
        "as that of the subject; this control should be rejected",
    )
    yield Figure(
        "detectable_rate",
        "Smallest detectable rate",
        rate,
        "simulated: the share of planted untouched models from which on a lower limit of the power, at confidence .9, "
        "is at least .9; it comes from resamples of the audit's runs, so that confidence is approximate",
        unit="of runs",
    )


def bounds(arms: dict[str, Floats], fixed: int, alpha: float) -> Iterator[Figure]:
    """What is bounded of the subject's distance from retraining, each at its own level.

    Args:
        arms: statistics ``(n, 10)`` by arm.
        fixed: how many of the pairs were fixed in advance; 0 for none.
    """
    yield Figure(
        "total_variation_at_least",
        "Total variation of the models' laws, at least",
        float(mean_gap_interval(arms["subject"], arms["retrained"], alpha)[-1]),
        "an anytime-valid lower bound at confidence 1 - alpha; there is no upper bound",
        error_rate=alpha,
    )
    first = {arm: rows[:fixed] for arm, rows in arms.items()}
    thresholds = threshold_bounds(first["subject"], first["retrained"], alpha) if fixed else None
    epsilon = epsilon_bound(first["subject"], first["retrained"], DELTA, alpha) if fixed else None
    control = epsilon_bound(first["untouched"], first["retrained"], DELTA, alpha) if fixed else None
    yield Figure(
        "thresholds_at_most",
        "Advantage of a threshold on one statistic, at most",
        thresholds.upper if thresholds else None,
        "Dvoretzky-Kiefer-Wolfowitz bands over all statistics at once, confidence 1 - alpha; no bound on other "
        f"adversaries; {ENDED}",
        interval=(thresholds.lower, thresholds.upper) if thresholds else None,
        error_rate=alpha,
    )
    yield Figure(
        "thresholds_ceiling",
        "The least such bound that so many pairs allow",
        thresholds.width if thresholds else None,
        "the width of the bands: what would be stated if no difference were observed at all",
    )
    yield Figure(
        "epsilon_at_least",
        "Epsilon of unlearning, at least",
        epsilon.lower if epsilon else None,
        "at delta 1e-5, in the statistics; threshold chosen on half of the pairs, Clopper-Pearson limits on the other, "
        f"confidence 1 - alpha; {ENDED}",
        error_rate=alpha,
    )
    yield Figure(
        "epsilon_ceiling",
        "The largest such bound that so many pairs allow",
        epsilon.ceiling if epsilon else None,
        "what would be stated if every run of the held-out half were told rightly",
    )
    yield Figure(
        "untouched_epsilon_at_least",
        "Epsilon of leaving the model untouched, at least",
        control.lower if control else None,
        "as that of the subject, for the untouched control",
        error_rate=alpha,
    )


def without(test: SequentialTest, alpha: float) -> Iterator[Figure]:
    """An editor's subject against the same editor on runs that never had the target."""
    yield Figure(
        "without_p_value",
        "p-value against the same editor on runs that never had the target",
        test.p_value,
        "one over the largest wealth reached; beside the comparison with retraining, it decides nothing",
    )
    yield Figure(
        "without_rejected_at",
        "Told from the same editor without the target at pair",
        test.rejected_at,
        "first pair at which that wealth reaches one over its part of alpha",
        error_rate=alpha,
        absent="never",
    )
