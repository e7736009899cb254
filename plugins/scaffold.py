"""SCAFFOLD: every local step is corrected by the difference between the server's and the client's control variate.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning"
(ICML 2020, arXiv 1910.06378), Algorithm 1 with option II:

    client:  y <- y - eta_l (g_i(y) - c_i + c),  K_i times, from y = x
             c_i+ = c_i - c + (x - y) / (K_i eta_l)
    server:  x <- x + (eta_g / |S|) sum_S (y_i - x),   c <- c + (1 / N) sum_S (c_i+ - c_i)

What differs from print: K_i is the number of steps that client i took, which may differ between clients; one that
took none (it has no samples left) keeps its control variate. eta_g is 1; another one is a ``server-step`` behind the
mean. There is no local momentum, because (x - y) / (K_i eta_l) would then be no mean gradient.

A participation is sent two vectors, x and c, and uploads two, y_i - x and c_i+ - c_i. Guarantee for unlearning: none
kept. The server's control variate is a mean over all N clients, so rounds that an unlearner keeps know how many there
were; see docs/dropouts.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fuaudit.plugins import (
    Dropouts,
    MemoryKept,
    Outcome,
    RoundContext,
    State,
    StateShape,
    Steps,
    rows_of,
    weighted_sum,
    with_rows,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ControlVariates:
    """SGD corrected by control variates: ``control (1, d)`` of the server, ``controls (M, d)`` of the clients."""

    per_client_state: ClassVar[frozenset[str]] = frozenset({"controls"})
    uploads: ClassVar[int] = 2
    downloads: ClassVar[int] = 2
    depends_on: ClassVar[frozenset[str]] = frozenset({"clients"})
    selftest_faults: ClassVar[tuple[MemoryKept, ...]] = (
        MemoryKept("scaffold", {"solver": {"use": "scaffold"}, "server": [{"use": "mean"}]}),
    )

    def init(self, shape: StateShape) -> State:
        """Zeros."""
        return {
            "control": shape.zeros(1, shape.dimension),
            "controls": shape.zeros(shape.clients, shape.dimension),
        }

    def before(self, context: RoundContext, state: State) -> Steps:
        """The drift of client i is c - c_i."""
        return Steps(context.step_size, drift=state["control"] - rows_of(state["controls"], context.cohort))

    def after(self, outcome: Outcome, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """The updates as they are; new control variates."""
        import torch

        cohort, updates = context.cohort, outcome.updates
        old = rows_of(state["controls"], cohort)
        taken = cohort.steps.clamp(min=1).to(updates.dtype).unsqueeze(-1)
        gradient = updates / (taken * context.step_size)
        new = torch.where((cohort.steps > 0).unsqueeze(-1), old - state["control"] + gradient, old)
        share = cohort.present.to(updates.dtype) / cohort.members
        return updates, {
            "control": state["control"] + weighted_sum(new - old, share),
            "controls": with_rows(state["controls"], cohort, new),
        }


@dataclass(frozen=True)
class Scaffold(Dropouts):
    """SCAFFOLD among whoever is available."""

    cite: ClassVar[str] = "Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, ICML 2020, arXiv 1910.06378"
    guarantee: ClassVar[str] = "converges under uniform participation; none under dropouts"
    solver: ClassVar[dict[str, Any]] = {"use": "scaffold"}
