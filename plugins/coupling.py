"""Exact unlearning by a maximal coupling of cohorts, for laws that are not closed under conditioning.

Keeping a draw because it does not name the target is exact only where "a draw given that it does not name the
target" has the law of a draw over the rest. Weighted draws without replacement have not: with weights 1, 2, 3, 4,
two clients a round and the client of weight 1 erased, keeping is at total variation 13/1890 from drawing anew.
A maximal coupling repairs it (Lindvall, "Lectures on the Coupling Method", 1992, I.5): with p the law of a
cohort over the old clients and q that over the retained ones, keep a cohort S with probability min(1, q(S) / p(S)),
and otherwise draw from the law proportional to max(0, q - p). The result has the law q exactly, and the chance
that anything changes is the total variation between p and q, which no method can undercut.

Rounds are independent, so the first rejected round decides: before it everything stays, after it everything is
drawn anew. All probabilities are exact fractions. The price: p and q are tabulated over all cohorts, so this is a
method for small federations, and an example of one whose acceptance an audit must check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from math import lcm, perm
from typing import ClassVar

from fuaudit.plugins import (
    END,
    Address,
    Draws,
    Plan,
    Population,
    Position,
    Purpose,
    Request,
    UsageError,
    WeightedLaw,
    WrongRelative,
    exact_under,
)

Cohorts = Mapping[tuple[int, ...], Fraction]
MOST = 50_000
"""Cohorts that may be tabulated."""


@dataclass(frozen=True)
class MaximalCoupling:
    """Keeps every round that the coupling accepts; the first rejected one gets a cohort of the residual law.

    Guarantee: exact for weighted cohorts without replacement. Samples are erased as FATS does: the cohort stays,
    batches are drawn anew from the first one that holds the sample.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"plan"})
    participants: ClassVar[frozenset[str]] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "exact, for weighted cohorts without replacement and non-adaptive requests"
    cite: ClassVar[str] = "Lindvall, Lectures on the Coupling Method, Wiley 1992, I.5"
    exact_for: ClassVar[frozenset[tuple[str, str]]] = exact_under("weighted without replacement")
    assumes: ClassVar[tuple[str, ...]] = (
        "draws of a law it is exact for",
        "fixed cohort and batch sizes",
        "a partition that is never drawn again",
        "non-adaptive requests",
    )
    selftest_faults: ClassVar[tuple[WrongRelative, ...]] = (
        WrongRelative(
            "wrong acceptance probability",
            right="coupling",
            wrong="coupling-wrong-acceptance",
            law=WeightedLaw(1, 2, 1, 1, tuple((client, client + 1) for client in range(4))),
            population=Population({client: (client,) for client in range(4)}),
            request=Request.of(clients=[0]),
        ),
    )

    def acceptance(self, ratio: Fraction, clients: int) -> Fraction:
        """The probability of keeping a cohort whose probability changes by ``ratio = q / p``."""
        return min(Fraction(1), ratio)

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        first = min(plan.first_involvement(request) or END, not_before)
        if not request.clients:
            return plan.erase(request, fresh, first)
        law = plan.law
        if not isinstance(law, WeightedLaw):
            raise UsageError(f"the coupling tabulates weighted cohorts, not those of {law.name!r}")
        version = len(plan.populations)
        before = cohorts_of(law, plan.retained.clients)
        after = cohorts_of(law, plan.retained.without(request).clients)
        for round_number in range(1, law.rounds + 1):
            if first < Position(round_number, 0):
                break  # a sample of the same request, or training that was stopped, decides first
            old = plan.cohort(round_number)
            ratio = after.get(old, Fraction(0)) / before[old]
            keep = self.acceptance(ratio, len(plan.retained.clients))
            at = Address(Purpose.COUPLING, round_number, version=version)
            if not _happens(fresh, at, keep):
                cohort = _drawn(fresh, at._replace(occurrence=1), _residual(before, after))
                return plan.erase(request, fresh, Position(round_number, 0)).recorded({round_number: cohort})
        return plan.erase(request, fresh, first)


@dataclass(frozen=True)
class WrongAcceptance(MaximalCoupling):
    """The coupling with an acceptance that is too small by a factor 1 - 1/M. Not exact.

    A named mutant: it exists so that audits can be seen to catch it.
    """

    guarantee: ClassVar[str] = "none: a mutant, whose acceptance probability is off by one in M"
    mutant: ClassVar[bool] = True

    def acceptance(self, ratio: Fraction, clients: int) -> Fraction:
        """See :meth:`MaximalCoupling.acceptance`; too small."""
        return super().acceptance(ratio, clients) * Fraction(clients - 1, clients)


@lru_cache(maxsize=64)
def cohorts_of(law: WeightedLaw, clients: tuple[int, ...]) -> Cohorts:
    """The probability of every cohort, in drawn order.

    Raises:
        UsageError: there are more than ``MOST``.
    """
    count = min(law.cohort_size, len(clients))
    if perm(len(clients), count) > MOST:
        raise UsageError(
            f"{perm(len(clients), count):,} cohorts are too many to tabulate; at most {MOST:,}",
            "Use retrain, or a law that is closed under conditioning.",
        )
    weight = dict(law.weights)
    table = {}
    for cohort in permutations(clients, count):
        left, probability = sum(weight[c] for c in clients), Fraction(1)
        for client in cohort:
            probability *= Fraction(weight[client], left)
            left -= weight[client]
        table[cohort] = probability
    return table


def _residual(before: Cohorts, after: Cohorts) -> Cohorts:
    """What q has more than p, not normalised."""
    return {cohort: gap for cohort, q in after.items() if (gap := q - before.get(cohort, Fraction(0))) > 0}


def _happens(draws: Draws, at: Address, probability: Fraction) -> bool:
    if probability in (0, 1):
        return probability == 1
    weights = (probability.numerator, probability.denominator - probability.numerator)
    return draws.weighted(at, (1, 0), weights, 1) == (1,)


def _drawn(draws: Draws, at: Address, table: Cohorts) -> tuple[int, ...]:
    """One cohort, proportional to its entry in a table of fractions."""
    cohorts = sorted(table)
    scale = lcm(*(table[cohort].denominator for cohort in cohorts))
    (rank,) = draws.weighted(at, range(len(cohorts)), [int(table[cohort] * scale) for cohort in cohorts], 1)
    return cohorts[rank]
