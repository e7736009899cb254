"""The exact laws of statistics of plans that are drawn on a population, under the uniform laws.

Every law is the power of a small generating function: rounds are independent and alike, places of a round too if
clients are drawn with replacement, and steps of a participation. A polynomial is the list of its coefficients;
the coefficient of z^j is the probability of the value j. All functions take ``one``, the number 1 in the
arithmetic that is wanted: ``Fraction(1)`` gives the exact law, 1.0 the same in floats (sums and products of
positive numbers only, so nothing cancels). The exact form is tested against the enumeration of every plan.

Notation: M clients, K places a round, R rounds, E steps, a batch of min(b, n) of a client's n samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import accumulate, pairwise
from math import comb, prod, sqrt
from operator import or_
from typing import Any

from fuaudit.plans import Population, Request, UniformLaw

Number = Any
"""A Fraction or a float; all numbers of one computation are of one kind."""
Polynomial = list[Number]

LARGEST_CATEGORIES = 10
SMALLEST_SHARE = Fraction(1, 100)
"""Values are merged until a category has at least this probability, or until there are few enough categories."""


def times(a: Sequence[Number], b: Sequence[Number], terms: int) -> Polynomial:
    """The first ``terms`` coefficients of a product."""
    return [
        sum((a[i] * b[j - i] for i in range(max(0, j - len(b) + 1), min(j, len(a) - 1) + 1)), start=0 * a[0])
        for j in range(min(terms, len(a) + len(b) - 1))
    ]


def power(a: Sequence[Number], exponent: int, terms: int) -> Polynomial:
    """The first ``terms`` coefficients of ``a ** exponent``."""
    result: Polynomial = [a[0] * 0 + 1]
    square = list(a)[:terms]
    while exponent:
        if exponent & 1:
            result = times(result, square, terms)
        exponent >>= 1
        if exponent:
            square = times(square, square, terms)
    return result


def plus(a: Sequence[Number], b: Sequence[Number], factor: Number = 1) -> Polynomial:
    """``a + factor * b``."""
    zero = 0 * (a[0] + b[0])
    length = max(len(a), len(b))
    left, right = [*a, *[zero] * (length - len(a))], [*b, *[zero] * (length - len(b))]
    return [x + factor * y for x, y in zip(left, right, strict=True)]


def value_at(a: Sequence[Number], z: Number) -> Number:
    """The polynomial at ``z``."""
    return sum((coefficient * z**j for j, coefficient in enumerate(a)), start=0 * a[0])


def round_pgf(law: UniformLaw, population: Population, drawn: Sequence[Number], terms: int, one: Number) -> Polynomial:
    """The generating function of one round, if each participation of one client contributes ``drawn``."""
    clients, count = len(population.clients), law.places(population)
    if law.replacement:
        return power(plus([one * (clients - 1) / clients], drawn, one / clients), count, terms)
    return plus([one * (clients - count) / clients], drawn, one * count / clients)[:terms]


def share(law: UniformLaw, population: Population, client: int, one: Number) -> Number:
    """The probability that one sample of a client is in one batch of that client: min(b, n) / n, 0 if n is 0."""
    size = len(population.samples[client])
    return one * min(law.batch_size, size) / size if size else 0 * one


def batch_hit_probability(law: UniformLaw, population: Population, client: int, samples: int, one: Number) -> Number:
    """The probability that one batch of a client holds any of so many of its samples."""
    size = len(population.samples[client])
    count = min(law.batch_size, size)
    return one - one * comb(size - samples, count) / comb(size, count)


def participations(law: UniformLaw, population: Population, terms: int, one: Number = 1.0) -> Polynomial:
    """How often one client takes part in the whole run: at most ``terms`` coefficients."""
    return power(round_pgf(law, population, [0 * one, one], terms, one), law.rounds, terms)


def memberships(law: UniformLaw, population: Population, client: int, terms: int, one: Number = 1.0) -> Polynomial:
    """In how many batches one sample of a client is."""
    p = share(law, population, client, one)
    steps = power([one - p, p], law.steps, terms)
    return power(round_pgf(law, population, steps, terms, one), law.rounds, terms)


def repeats(law: UniformLaw, population: Population, terms: int, one: Number = 1.0) -> Polynomial:
    """In how many rounds some client takes part twice or more."""
    if not law.replacement:
        return [one]
    clients = len(population.clients)
    distinct = prod((one * max(clients - i, 0) / clients for i in range(law.cohort_size)), start=one)
    return power([distinct, one - distinct], law.rounds, terms)


def first_round(law: UniformLaw, population: Population, one: Number = 1.0) -> Polynomial:
    """The first round of one client: coefficients of rounds 1 to R, then that of never, ``R + 1`` of them."""
    missed = value_at(round_pgf(law, population, [0 * one], 2, one), one)
    return first_of(missed, law.rounds)


def first_of(missed: Number, rounds: int) -> Polynomial:
    """The law of the first round that is not missed, if each is with probability ``missed``; the last is never."""
    return [missed**r * (1 - missed) for r in range(rounds)] + [missed**rounds]


def rounds_from_first(missed: Number, rounds: int) -> Number:
    """The expected number of rounds from the first that is not missed on, if each is with probability ``missed``."""
    return sum((1 - missed**r for r in range(1, rounds + 1)), start=0 * missed)


def missed_round(law: UniformLaw, population: Population, request: Request, one: Number = 1.0) -> Number:
    """The probability that a round draws nothing of a request: neither a client of it nor a sample.

    Whoever keeps what comes before the first involvement computes again with probability 1 - missed ** R. That is also
    the total variation between training on the population and on what the request leaves: given that nothing
    requested is drawn, the plan has the law of retraining.
    """
    clients, count = len(population.clients), law.places(population)
    wanted: dict[int, int] = {}
    for sample in request.samples:
        wanted[population.owner[sample]] = wanted.get(population.owner[sample], 0) + 1
    spared = {c: (one - batch_hit_probability(law, population, c, n, one)) ** law.steps for c, n in wanted.items()}
    spared |= {client: 0 * one for client in request.clients}
    others = clients - len(spared)
    if law.replacement:
        return ((one * others + sum(spared.values(), start=0 * one)) / clients) ** count
    # coefficient j: the sum over sets of j special clients of the probability that all of them are spared
    symmetric: Polynomial = [one]
    for probability in spared.values():
        symmetric = times(symmetric, [one, probability], count + 1)
    ways = [comb(others, count - j) * s for j, s in enumerate(symmetric)]
    return sum(ways, start=0 * one) / comb(clients, count)


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
    return Cost(one - missed**law.rounds, rounds_from_first(missed, law.rounds))


def stream(law: UniformLaw, population: Population, requests: Sequence[Request], one: Number = 1.0) -> list[Cost]:
    """The exact costs of requests carried out one after another, none of which looks at the draws.

    A plan over a population has the law of retraining whatever was erased before. So each request of a stream meets a
    fresh plan over the population left by then.
    """
    costs = []
    for request in requests:
        costs.append(cost(law, population, request, one))
        population = population.without(request)
    return costs


def recompute_probability(
    law: UniformLaw, population: Population, requests: Sequence[Request], one: Number = 1.0
) -> Number:
    """The exact probability that a stream of requests makes anything be computed again.

    Nothing is iff the training plan draws nothing of all requests together.
    """
    return cost(law, population, reduce(or_, requests), one).probability


@dataclass(frozen=True)
class Categories:
    """Consecutive values merged: category i holds the values from ``edges[i - 1]`` on, up to below ``edges[i]``.

    ``edges (k - 1,)`` increase; category 0 starts below everything.
    """

    edges: tuple[int, ...]

    def merge(self, probabilities: Sequence[Number]) -> tuple[Number, ...]:
        """The probabilities ``(k,)`` of the categories; what the coefficients leave to 1 belongs to the last."""
        one = 0 * probabilities[0] + 1
        bounds = [0, *self.edges]
        head = [sum(probabilities[a:b], start=0 * one) for a, b in pairwise(bounds)]
        return (*head, max(one - sum(head, start=0 * one), 0 * one))


def counting(probabilities: Callable[[int], Sequence[Number]], mean: float, largest: int) -> Categories:
    """Categories for a count with a mean and a largest value, whose first coefficients a function gives."""
    terms = min(largest, int(mean + 10 * sqrt(mean) + 12)) + 1
    return _merged([float(p) for p in probabilities(terms)])


def _merged(law: list[float]) -> Categories:
    """Neighbours merged until every category has the smallest share, with twice the share while there are too many."""
    smallest = float(SMALLEST_SHARE)
    while True:
        edges, mass = [], 0.0
        left = list(accumulate(reversed(law)))[::-1]  # the probability of a value or any later one
        for value, probability in enumerate(law):
            if mass >= smallest and left[value] >= smallest:
                edges.append(value)
                mass = 0.0
            mass += probability
        if len(edges) < LARGEST_CATEGORIES:
            return Categories(tuple(edges))
        smallest *= 2


def quarters(rounds: int) -> Categories:
    """Categories for a first round, counted from 0: at most four blocks of rounds, and never (the value R)."""
    blocks = min(4, rounds)
    return Categories((*(-(-rounds * i // blocks) for i in range(1, blocks)), rounds))
