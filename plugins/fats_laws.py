"""Laws about FATS: how often, and how much, it computes again, and what its algorithm does as printed.

Tao, Wang, Pan, Yu, Cheng, Wang: "Communication Efficient and Provable Federated Unlearning" (VLDB 2024, arXiv
2401.11018): with rho_C = K R / M and rho_S = b K R E / (N M), the probability of computing again for w requests is
at most w rho (Theorem 2), and the expected number of recomputations at most 4 w min(1, rho) (section 5.3.1).

Exact values are those of ``exact_laws.stream`` and ``exact_laws.recompute_probability``. The population shrinks with
every request, so rho grows while K, b, R and E stay. The second bound, printed with the first rho, therefore fails for
streams that erase nearly everybody (docs/results/stability.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.plugins import END, Facts, Population, Request, UniformLaw, UsageError, exact_laws

Number = exact_laws.Number
Polynomial = exact_laws.Polynomial


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
