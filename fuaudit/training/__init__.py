"""Training: the server's chain of stages, the engines that run clients, and the loop over rounds.

The loop, :func:`fuaudit.training.execute.execute`, and what it works on need torch, and are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fuaudit.training.rounds import Cohort, RoundContext, State, StateShape
from fuaudit.training.solvers import Outcome, Solver, Steps
from fuaudit.training.stages import Chain, Stage

if TYPE_CHECKING:
    from fuaudit.training.execute import Procedure, RoundState

__all__ = [
    "Chain",
    "Cohort",
    "Outcome",
    "Procedure",
    "RoundContext",
    "RoundState",
    "Solver",
    "Stage",
    "State",
    "StateShape",
    "Steps",
]


def __getattr__(name: str) -> Any:
    if name in ("Procedure", "RoundState"):
        return getattr(import_module("fuaudit.training.execute"), name)
    raise AttributeError(f"module 'fuaudit.training' has no attribute {name!r}")
