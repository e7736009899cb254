"""Training: the server's chain of stages, the engines that run clients, and the loop over rounds."""

from fuaudit.training.execute import Learning, Moment, execute
from fuaudit.training.stages import Chain, Cohort, Stage, State

__all__ = ["Chain", "Cohort", "Learning", "Moment", "Stage", "State", "execute"]
