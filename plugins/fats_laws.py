"""Laws about FATS: how often, and how much, it computes again, and what its algorithm does as printed.

Tao, Wang, Pan, Yu, Cheng, Wang: "Communication Efficient and Provable Federated Unlearning" (VLDB 2024, arXiv
2401.11018): with rho_C = K R / M and rho_S = b K R E / (N M), the probability of computing again for w requests is
at most w rho (Theorem 2), and the expected number of recomputations at most 4 w min(1, rho) (section 5.3.1).

The exact values: a plan over a population has the law of retraining whatever was erased before. So each request of a
stream meets a fresh plan over the population left by then, and nothing at all is computed again iff the training plan
draws nothing of all requests together. The population shrinks with every request, so rho grows while K, b, R and E
stay. The second bound, printed with the first rho, therefore fails for streams that erase nearly everybody
(docs/results/stability.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from fuaudit.plugins import END, Facts, Population, Request, UniformLaw, UsageError, exact_laws

Number = exact_laws.Number
Polynomial = exact_laws.Polynomial


@dataclass(frozen=True)
class Cost:
    """One request: ``probability`` of computing again, and the expected number of ``rounds`` to compute again.

    A round that is restarted inside counts as a whole.
    """

    probability: Number
    rounds: Number


def cost(law: UniformLaw, population: Population, request: Request, one: Number = 1.0) -> Cost:
    """The exact cost of one request on a plan over a population; with ``one = Fraction(1)`` in fractions."""
    missed = exact_laws.missed_round(law, population, request, one)
    return Cost(one - missed**law.rounds, exact_laws.rounds_from_first(missed, law.rounds))


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
    return client_bound(law, population, one) * law.steps * exact_laws.share(law, population, client, one)


def printed_participations(
    law: UniformLaw, population: Population, request: Request, terms: int, one: Number = 1.0
) -> Polynomial:
    """How often the owner of a requested sample takes part after Algorithm 2 of the paper *as printed*.

    The printed algorithm draws the client set anew when the restart falls on the first step of a round. Let G(s)
    be the generating function of a round in which each participation is spared with probability s: of a round
    before the restart, s is that of E steps. A restart at the first step has probability 1 - G(that of one
    step) and leaves a fresh round; one at a later step leaves the difference of both; rounds after it are fresh.

    Raises:
        UsageError: the request is not for samples of one client.
    """
    owners = {population.owner[s] for s in request.samples}
    if request.clients or len(owners) != 1:
        raise UsageError("the printed form is described for samples of one client")
    miss = one - exact_laws.batch_hit_probability(law, population, owners.pop(), len(request.samples), one)

    def spared(probability: Number) -> Polynomial:
        return exact_laws.round_pgf(law, population, [0 * one, probability], terms, one)

    fresh, first, kept = spared(one), spared(miss), spared(miss**law.steps)
    # the value at 1 of the untruncated polynomial: participations contribute the number ``miss``
    at_first_step = one - exact_laws.value_at(exact_laws.round_pgf(law, population, [miss], 1, one), one)
    restarted = exact_laws.plus(exact_laws.plus(first, kept, -1), fresh, at_first_step)
    total, before = [0 * one], [one]
    for r in range(law.rounds):
        after = exact_laws.power(fresh, law.rounds - 1 - r, terms)
        total = exact_laws.plus(total, exact_laws.times(exact_laws.times(before, restarted, terms), after, terms))
        before = exact_laws.times(before, kept, terms)
    return exact_laws.plus(total, before)


@dataclass(frozen=True)
class Printed:
    """Algorithm 2 as printed, a fault known beforehand (:class:`fuaudit.unlearning.faults.KnownFault`).

    Its law is known for samples of one client that are forgotten after training.
    """

    name: str = "FATS as printed (client sets drawn anew on the first step of a round)"

    def applies(self, facts: Facts) -> bool:
        """For clients the printed form is right."""
        return bool(facts.request.samples)

    def law_of(self, statistic: str, facts: Facts, terms: int) -> Polynomial | None:
        """Of the participations of the samples' owner; None elsewhere."""
        owners = {facts.population.owner[s] for s in facts.request.samples}
        single = not facts.request.clients and len(owners) == 1
        if statistic != "participations" or not single or facts.not_before != END:
            return None
        return printed_participations(facts.law, facts.population, facts.request, terms)
