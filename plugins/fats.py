"""FATS: exact federated unlearning by total-variation stability.

Tao, Wang, Pan, Yu, Cheng, Wang: "Communication Efficient and Provable Federated Unlearning" (VLDB 2024,
arXiv 2401.11018). Algorithm 1 is the learner :class:`Fats`; Algorithms 2 (samples) and 3 (clients) are the
unlearner :class:`FatsUnlearning`.

What differs from print, and why:

- Algorithm 2 restarts with Algorithm 1, which draws the client set anew when the restart falls on the first
  step of a round. The trigger "the sample was drawn" depends on that client set, so the new one tilts its law:
  with 2 clients of 2 samples, 1 client a round, batches of 1, 1 step and 1 round the output is at total
  variation 1/8 from retraining. Keeping the client set of that round and drawing only batches anew gives 0.
  The printed form is kept as :class:`FatsAsPrinted`. Algorithm 3 is exact as printed.
- K and b stay as they are after a deletion; recomputing them from rho would change the law.
- Clients may have unequal numbers of samples; a batch is min(b, n_k), the aggregation stays 1 / K.
- A mid-round restart starts from the model before that step; here by executing the round's kept steps again.

Guarantee: exact, for uniform cohorts with or without replacement, and where clients are available independently of
each other (fuaudit.plans.availability.CLOSED); for requests that do not depend on the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fuaudit_plugins.fats_laws import Printed, client_bound, sample_bound

from fuaudit.plugins import (
    CLOSED,
    END,
    PLAIN,
    Draws,
    KnownFault,
    Plan,
    Population,
    Position,
    Request,
    UniformLaw,
    UniformLearner,
    exact_laws,
    exact_under,
)

UNIFORM = ("uniform with replacement", "uniform without replacement")
PAPER = "Tao, Wang, Pan, Yu, Cheng and Wang, VLDB 2024, arXiv 2401.11018"


@dataclass(frozen=True)
class Fats(UniformLearner):
    """FATS learning (Algorithm 1): K clients a round with replacement, E steps of plain SGD, mean 1 / K.

    ``cohort`` is K, ``steps`` E, ``batch`` b; ``step_size`` is the clients' learning rate, times ``decay`` a round.

    Attributes:
        cohort: K, the places of a round; a client can have several.
        batch: b, the samples of a step; fewer where the client has fewer.
    """

    cite: ClassVar[str] = PAPER
    guarantee: ClassVar[str] = "TV-stable: min(rho_S, 1) at sample level, min(rho_C, 1) at client level (Lemma 1)"
    solver: ClassVar[dict[str, Any]] = PLAIN
    server: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "mean"},)

    @property
    def law(self) -> UniformLaw:
        """How rounds are drawn."""
        return UniformLaw(self.rounds, self.cohort, self.steps, self.batch, replacement=True)

    def stability(self, population: Population) -> list[str]:
        """Realised rho and exact probabilities of computing again, in words, for one client and one sample."""
        law, clients = self.law, population.clients
        smallest = min((c for c in clients if population.samples[c]), key=lambda c: len(population.samples[c]))
        one_client = Request.of(clients=clients[:1])
        one_sample = Request.of(samples=population.samples[smallest][:1])
        client, sample = (exact_laws.cost(law, population, each).probability for each in (one_client, one_sample))
        return [
            f"forgetting one more client with fats: rounds are computed anew with probability {client:.6f} "
            f"(rho_C = {client_bound(law, population):.4g})",
            f"forgetting one more sample of the smallest client, likewise: with probability {sample:.6f} "
            f"(rho_S = {sample_bound(law, population, smallest):.4g})",
        ]


@dataclass(frozen=True)
class FatsUnlearning:
    """FATS-SU and FATS-CU (Algorithms 2 and 3), for clients, samples, mixed batches and streams of requests.

    Keeps every draw before the first involvement of what is requested (or before the first step not yet
    executed) and draws anew from there; inside a round the client set is kept.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"plan"})
    participants: ClassVar[frozenset[str]] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = (
        "exact, for uniform cohorts and independent availability, non-adaptive requests (Theorem 2, repaired at "
        "sample level)"
    )
    cite: ClassVar[str] = PAPER
    exact_for: ClassVar[frozenset[tuple[str, str]]] = exact_under(*UNIFORM, *CLOSED)
    by_first_involvement: ClassVar[bool] = True
    assumes: ClassVar[tuple[str, ...]] = (
        "draws of a law it is exact for",
        "fixed cohort and batch sizes",
        "a partition that is never drawn again",
        "non-adaptive requests",
    )
    known_faults: ClassVar[tuple[KnownFault, ...]] = (Printed(),)
    follows_reference: ClassVar[bool] = True

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        return plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before))


@dataclass(frozen=True)
class FatsAsPrinted(FatsUnlearning):
    """Algorithm 2 as printed: a restart on the first step of a round draws the client set anew. Not exact for samples.

    A named mutant: it exists so that audits can be seen to catch it at sample level. For clients it is Algorithm 3.
    """

    guarantee: ClassVar[str] = (
        "exact for clients; for samples claimed exact (Theorem 2), and false as printed: total variation 1/8 on a toy"
    )
    exact_for: ClassVar[frozenset[tuple[str, str]]] = exact_under(*UNIFORM, *CLOSED, kinds=("client",))
    by_first_involvement: ClassVar[bool] = True
    follows_reference: ClassVar[bool] = False
    mutant: ClassVar[bool] = True

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`~fuaudit.unlearning.protocol.Rewriter`."""
        first = min(plan.first_involvement(request) or END, not_before)
        return plan.erase(request, fresh, Position(first.round, 0) if first.step == 1 else first)
