"""Stability: how often, and how much, FATS computes again; exact values beside the bounds of its paper.

Tao, Wang, Pan, Yu, Cheng, Wang: "Communication Efficient and Provable Federated Unlearning" (VLDB 2024, arXiv
2401.11018): with rho_C = K R / M and rho_S = b K R E / (N M), the probability of computing again for w requests is
at most w rho (Theorem 2), and the expected number of recomputations at most 4 w min(1, rho) (section 5.3.1).

The exact values: a plan over a population has the law of retraining whatever was erased before, so each request
of a stream meets a fresh plan over the population left by then, and nothing at all is computed again iff
the training plan draws nothing of all requests together. As requests are carried out the population shrinks, so
rho grows while K, b, R and E stay; the second bound, printed with the first rho, therefore fails for streams that
erase nearly everybody: see :func:`fuaudit.audits.plan_law.stability.stream` and docs/results/stability.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from fuaudit.plans import Population, Request, UniformLaw
from fuaudit.plans.exact_laws import Number, missed_round, share


@dataclass(frozen=True)
class Cost:
    """One request: ``probability`` of computing again, and the expected number of ``rounds`` to compute again.

    A round that is restarted inside counts as a whole.
    """

    probability: Number
    rounds: Number


def cost(law: UniformLaw, population: Population, request: Request, one: Number = 1.0) -> Cost:
    """The exact cost of one request on a plan over a population; with ``one = Fraction(1)`` in fractions."""
    missed = missed_round(law, population, request, one)
    rounds = sum((one - missed**r for r in range(1, law.rounds + 1)), start=0 * one)
    return Cost(one - missed**law.rounds, rounds)


def stream(law: UniformLaw, population: Population, requests: Sequence[Request], one: Number = 1.0) -> list[Cost]:
    """The exact costs of requests carried out one after another, none of which looks at the draws."""
    costs = []
    for request in requests:
        costs.append(cost(law, population, request, one))
        population = population.without(request)
    return costs


def recompute_probability(
    law: UniformLaw, population: Population, requests: Sequence[Request], one: Number = 1.0
) -> Number:
    """The exact probability that a stream of requests makes anything be computed again."""
    return cost(law, population, reduce(or_, requests), one).probability


def client_bound(law: UniformLaw, population: Population, one: Number = 1.0) -> Number:
    """rho_C = K R / M, of the realised sizes; K is min(K, M) for distinct clients."""
    return one * law.places(population) * law.rounds / len(population.clients)


def sample_bound(law: UniformLaw, population: Population, client: int, one: Number = 1.0) -> Number:
    """rho_S = b K R E / (N M) of the samples of one client with N of them; b is min(b, N)."""
    return client_bound(law, population, one) * law.steps * share(law, population, client, one)
