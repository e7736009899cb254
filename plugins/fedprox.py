"""FedProx: local steps are pulled back towards the model that was sent.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks" (MLSys 2020,
arXiv 1812.06127), Algorithm 2: client k minimises F_k(w) + (mu / 2) |w - w_t|^2, inexactly.

What differs from print: the inexact minimiser is SGD on the objective with its proximal term, so every step's
gradient gains mu (w - w_t); the printed gamma-inexactness is not measured. mu = 0 is FedAvg, bit for bit.

Guarantee: none by itself. It keeps no memory, so an unlearner is as exact as with plain SGD.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from fuaudit.plugins import Dropouts, Outcome, RoundContext, State, StateShape, Steps, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Proximal:
    """SGD with the proximal term ``mu``.

    Attributes:
        mu: the weight of the proximal term, at least 0; at 0 this is FedAvg.
    """

    mu: float = 0.01
    per_client_state: ClassVar[frozenset[str]] = frozenset()
    uploads: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not self.mu >= 0 or not isfinite(self.mu):
            raise UsageError(f"mu must be at least 0, not {self.mu}")

    def init(self, shape: StateShape) -> State:
        """No state."""
        return {}

    def before(self, context: RoundContext, state: State) -> Steps:
        """See :class:`~fuaudit.training.solvers.Solver`."""
        return Steps(context.step_size, proximal=self.mu)

    def after(self, outcome: Outcome, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """The updates as they are."""
        return outcome.updates, state


@dataclass(frozen=True)
class FedProx(Dropouts):
    """FedProx among whoever is available."""

    cite: ClassVar[str] = "Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, MLSys 2020, arXiv 1812.06127"
    guarantee: ClassVar[str] = "none under dropouts"
    solver: ClassVar[dict[str, Any]] = {"use": "fedprox"}
