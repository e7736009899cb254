"""Which account of noisy steps holds for which law: what it may assume of batches.

| law of batches | a row is in | amplification |
|---|---|---|
| Poisson batches | a batch by itself, with one chance | by the theorem of the sampled Gaussian |
| fresh batches, and those of uniform and weighted cohorts | any batch of so many | none without a theorem |
| permuted epochs | one batch an epoch | none: each epoch counts |

A client that is drawn several times in a round, as by FATS, takes part as often, with noise of its own each time.
"""

from __future__ import annotations

from math import nextafter

from fuaudit.budgets.dpsgd.clients import Batches
from fuaudit.budgets.dpsgd.laws import FIXED, POISSON
from fuaudit.plans.availability import AvailabilityLaw, PermutedEpochs, PoissonBatches
from fuaudit.plans.law import Law
from fuaudit.plans.population import Population
from fuaudit.plans.strange_laws import is_foreign


def batches_of(law: Law, population: Population) -> Batches | None:
    """What an account may assume of the batches of any client; None of a stranger's law.

    Args:
        population: the largest one that batches are drawn over (:attr:`fuaudit.plans.Plan.widest`).
    """
    if is_foreign(law):
        return None
    if not isinstance(law, AvailabilityLaw):
        return Batches(FIXED, law.steps)
    if isinstance(law.batches, PermutedEpochs):
        return Batches(FIXED, law.batches.epochs)
    if not isinstance(law.batches, PoissonBatches):
        return Batches(FIXED, law.steps)
    batches, largest = law.batches, max(map(len, population.samples.values()))
    rate = float(batches.rate)
    rate = rate if rate >= batches.rate else nextafter(rate, 1.0)  # a float that is no smaller
    return Batches(POISSON, law.steps, rate, batches.chance_of_cut(largest + 1))
