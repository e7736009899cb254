"""MIFA: the server remembers every client's latest update, and takes it in place of one that did not come.

Gu, Huang, Zhang, Huang: "Fast Federated Learning in the Presence of Arbitrary Device Unavailability" (NeurIPS 2021,
arXiv 2106.04159), Algorithm 1: G_i = (w_t - w_i) / eta_t where client i is active in round t, its former value
otherwise; w <- w - eta_t (1 / N) sum_i G_i over all N clients.

What differs from print, and why:

- G_i is kept free of the step size, as printed; an active client's own update is taken as it came, not divided and
  multiplied again. With everybody active the result is then FedAvg's mean, bit for bit. The authors' code divides and
  multiplies; the MIFA in the code of the MimiC paper keeps updates with the step size of their round inside.
  ``memory = "scaled"`` is that form, another one once step sizes decay.
- A client that was never heard of counts as zero, until it is, as in the variant of the authors' code that does not
  wait for everybody at the start; with ``first_all`` there is none.
- A round in which nobody takes part leaves everything as it is.

Guarantee for unlearning: the row of an erased client goes with it, but kept rounds have divided by the number of all
clients, so an unlearner that keeps rounds is not exact for clients; replay and stress show it (docs/dropouts.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fuaudit.plugins import Dropouts, MemoryKept, RoundContext, State, StateShape, weighted_sum, with_rows

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LatestUpdates:
    """The mean over the latest updates of all clients. ``updates (M, d)`` keeps one row a client.

    ``memory`` is "free" of step sizes, or "scaled" by those of the rounds in which updates came.

    Attributes:
        memory: how updates are kept: "free" of step sizes, or "scaled" by those of the rounds in which they
            came.
    """

    memory: Literal["free", "scaled"] = "free"
    vectorised: ClassVar[bool] = True
    per_client_state: ClassVar[frozenset[str]] = frozenset({"updates"})
    depends_on: ClassVar[frozenset[str]] = frozenset({"clients"})
    selftest_faults: ClassVar[tuple[MemoryKept, ...]] = (MemoryKept("mifa", {"server": [{"use": "mifa"}]}),)

    def init(self, shape: StateShape) -> State:
        """Zeros."""
        return {"updates": shape.zeros(shape.clients, shape.dimension)}

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        remembered, cohort = state["updates"], context.cohort
        rate = context.step_size if self.memory == "free" else 1.0
        latest = with_rows(remembered * rate, cohort, updates)
        equal = latest.new_ones(latest.shape[:-1]) / cohort.members
        return weighted_sum(latest, equal), {"updates": with_rows(remembered, cohort, updates / rate)}


@dataclass(frozen=True)
class Mifa(Dropouts):
    """MIFA among whoever is available."""

    cite: ClassVar[str] = "Gu, Huang, Zhang and Huang, NeurIPS 2021, arXiv 2106.04159"
    guarantee: ClassVar[str] = "converges when absences are bounded and everybody is heard of at the start"
    server: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "mifa"},)
