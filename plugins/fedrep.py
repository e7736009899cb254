"""FedREP: everybody takes part, with a momentum of its own, in a round of consensus sparsification and robust sums.

Yang, Wang, Li: "FedREP: A Byzantine-Robust, Communication-Efficient and Privacy-Preserving Framework for Federated
Learning", Algorithms 1 and 2; the momentum is equation 180 of appendix B. With I steps a round:

    m_k^{t+1,0} = m_k^{t,I},   m <- beta m + (1 - beta) gradient,   w <- w - eta m

A config names the other parts, as in ``examples/fedrep.toml``: the client stages ``error-feedback``, ``consensus`` and
``quantise``, and the transport ``secure-sum``. Without client stages it is SHARE (Velicheti and others, 2021), which is
FedREP with k = d.

What differs from print, and why:

- A batch is drawn afresh in every step, where print counts epochs. Everybody is a cohort of all clients, drawn by the
  uniform law without replacement, of which it is known what an unlearner may keep.
- A client without samples takes no step: its momentum stays, and does not move it.
- The rule is the geometric median, of those in print the one without an option that depends on scales. It is the one
  of this project, see docs/robust.md; print takes five of Weiszfeld's steps.

Guarantee: Theorems 3 and 4 bound mean squared gradients under assumptions that no run shows. For local momentum the
bound says nothing: its error has the term 2 A_1 D, Proposition 3 makes A_1 at least D, and Assumption 5 has every
squared gradient within D^2, of any algorithm and also of one that never moves (docs/fedrep.md).

For unlearning: everybody takes part in round 1, so erasing a client starts there anew. Rounds before the first batch
with an erased sample are kept, with memories as they were then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fuaudit.plugins import (
    MemoryKept,
    Outcome,
    Population,
    Request,
    RoundContext,
    State,
    StateShape,
    Steps,
    UniformLearner,
    UsageError,
    exact_laws,
    rows_of,
    with_rows,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LocalMomentum:
    """SGD with a momentum that each client carries from round to round: ``momenta (M, d)``, kept by the clients.

    Attributes:
        momentum: beta, the share of the momentum that is kept from step to step, in [0, 1).
    """

    momentum: float = 0.9
    per_client_state: ClassVar[frozenset[str]] = frozenset({"momenta"})
    private: ClassVar[bool] = True
    selftest_faults: ClassVar[tuple[MemoryKept, ...]] = (
        MemoryKept("local-momentum", {"solver": {"use": "local-momentum"}, "server": [{"use": "mean"}]}),
    )

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum must be in [0, 1), not {self.momentum}")

    def init(self, shape: StateShape) -> State:
        """Zeros."""
        return {"momenta": shape.zeros(shape.clients, shape.dimension)}

    def before(self, context: RoundContext, state: State) -> Steps:
        """Steps that begin with the momenta of the last round, dampened by 1 - beta."""
        start = rows_of(state["momenta"], context.cohort)
        return Steps(context.step_size, momentum=self.momentum, dampening=self.momentum, velocity=start)

    def after(self, outcome: Outcome, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """The updates as they are; the momenta after the last step. Without momentum nothing is kept."""
        if outcome.velocity is None:
            return outcome.updates, state
        return outcome.updates, {"momenta": with_rows(state["momenta"], context.cohort, outcome.velocity)}


@dataclass(frozen=True)
class FedRep(UniformLearner):
    """Everybody, in every round, with local momentum; the geometric median of what is delivered.

    Attributes:
        cohort: the number of all clients; fewer are drawn without replacement.
        steps: I, the steps of a participation.
    """

    cite: ClassVar[str] = "Yang, Wang and Li, FedREP, 2023"
    guarantee: ClassVar[str] = (
        "under assumptions that no run shows, the mean squared gradient is bounded up to an error that does not vanish "
        "(Theorem 4); with local momentum the printed error is above the bound that is assumed of every gradient"
    )
    solver: ClassVar[dict[str, Any]] = {"use": "local-momentum"}
    server: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "geometric-median", "steps": 5},)

    def stability(self, population: Population) -> list[str]:
        """What an exact unlearner computes again for one more client, and for one more sample, in words."""
        law, clients = self.law, population.clients
        owners = [client for client in clients if population.samples[client]]
        one_client = Request.of(clients=owners[:1])
        left = population.without(one_client)
        a_round = law.steps * min(law.places(left), sum(map(bool, left.samples.values())))
        again = exact_laws.cost(law, population, one_client)
        if self.cohort >= len(clients):
            first = f"everybody is in round 1, so all {law.rounds} rounds are computed anew"
        else:
            first = f"on average {again.rounds:.1f} of {law.rounds} rounds are computed anew"
        smallest = min(owners, key=lambda client: len(population.samples[client]))
        one_sample = Request.of(samples=population.samples[smallest][:1])
        sample = exact_laws.cost(law, population, one_sample)
        return [
            f"forgetting one more client: {first}, about {round(again.rounds * a_round):,} client steps",
            "forgetting one more sample of the smallest client: rounds before its first batch are kept; on average "
            f"{sample.rounds:.1f} of {law.rounds} rounds are computed anew",
        ]
