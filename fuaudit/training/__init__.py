"""Training: the server's chain of stages, the engines that run clients, and the loop over rounds."""

from fuaudit.training.execute import Learning, Moment, execute
from fuaudit.training.rounds import Cohort, RoundContext, State, StateShape
from fuaudit.training.solvers import Outcome, Solver, Steps
from fuaudit.training.stages import Chain, Stage

__all__ = [
    "Chain",
    "Cohort",
    "Learning",
    "Moment",
    "Outcome",
    "RoundContext",
    "Solver",
    "Stage",
    "State",
    "StateShape",
    "Steps",
    "execute",
]
