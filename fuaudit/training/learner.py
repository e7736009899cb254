"""What a learner declares: who takes part, with which step sizes, and the solver and stages it is meant for."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Protocol

from fuaudit.errors import UsageError
from fuaudit.plans import Law, UniformLaw


class Learner(Protocol):
    """A registered learner (group ``learners``): a frozen dataclass whose fields are its options.

    Attributes:
        law: how cohorts and batches are drawn.
        step_size, decay: clients' steps of round t have the size ``step_size * decay ** (t - 1)``.
        solver: the table of its solver, where a config names none.
        server: the tables of its chain of stages, where a config names none.

    What else it may declare is in :data:`fuaudit.declared.WORDS`. Its method ``conclusions(seen, clients, solver,
    exchange)`` is given the participations of the executed rounds
    (:class:`~fuaudit.plans.participation.Participations`), the ids of the retained clients, the clients' solver and
    the :class:`~fuaudit.training.exchange.Exchange`. It returns JSON entries that a run records in
    ``participation.json`` beside who took part. It must be a function of these, because audits call it again. It must
    not raise, because training is over by then.
    """

    solver: ClassVar[dict[str, Any]]
    server: ClassVar[tuple[dict[str, Any], ...]]

    @property
    def law(self) -> Law: ...
    @property
    def step_size(self) -> float: ...
    @property
    def decay(self) -> float: ...


PLAIN: dict[str, Any] = {"use": "sgd"}
"""The table of plain SGD."""


def require_step_sizes(step_size: float, decay: float) -> None:
    """Raises UsageError unless the step size is above 0 and finite, and its decay in (0, 1]."""
    if not 0 < step_size < inf:
        raise UsageError(f"step_size must be above 0 and finite, not {step_size}")
    if not 0 < decay <= 1:
        raise UsageError(f"decay must be above 0 and at most 1, not {decay}")


@dataclass(frozen=True)
class UniformLearner:
    """The options of a learner whose cohorts and batches are drawn by the uniform law, and that law.

    A learner is made from it: it adds what else a learner declares.

    Attributes:
        rounds: how many rounds are trained.
        cohort: K, the distinct clients of a round.
        steps: E, the steps of a participation.
        batch: the samples of a step; fewer where the client has fewer.
        step_size: the step size of clients in the first round.
        decay: what the step size is multiplied by from round to round, in (0, 1].
    """

    rounds: int
    cohort: int
    steps: int
    batch: int
    step_size: float
    decay: float = 1.0

    def __post_init__(self) -> None:
        require_step_sizes(self.step_size, self.decay)
        _ = self.law

    @property
    def law(self) -> UniformLaw:
        """How rounds are drawn: clients without replacement."""
        return UniformLaw(self.rounds, self.cohort, self.steps, self.batch, replacement=False)
