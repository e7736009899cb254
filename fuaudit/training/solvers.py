"""Local solvers: how a client turns the model it was sent into what it uploads.

Engines know one family of steps, :class:`Steps`. A solver chooses its terms before the round, and may transform the
updates after it. Its memory, one for all clients or one row for each, is part of the recorded state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from fuaudit.errors import UsageError
from fuaudit.training.rounds import RoundContext, State, StateShape

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Steps:
    """How the participations of a round take their steps, one for every batch that is not empty:

        direction = gradient + proximal * (w - w_sent) + drift
        velocity  = momentum * velocity + (1 - dampening) * direction
        w         = w - size * velocity

    The gradient is that of the mean loss over the batch. With a ``divisor`` it is that of the sum over the batch,
    divided by it, whatever the length of the batch is; a law says it for its batches, and no solver.

    With a norm to ``clip`` to, the gradient of each sample by itself is scaled down to it before they are added up.
    ``noise`` has what is added to that sum, in each step of each participation: ``(*s, n, E, d)``. With noise a step is
    taken on an empty batch too: that none was taken would tell that nobody was in it. Without a divisor the noise is
    divided by the places of a batch there.

    Without momentum the direction is the velocity. ``drift`` and ``velocity`` (at the start of the round; zero
    when None) have a row for every participation, ``(*s, n, d)``.
    """

    size: float
    proximal: float = 0.0
    drift: Tensor | None = None
    momentum: float = 0.0
    dampening: float = 0.0
    velocity: Tensor | None = None
    divisor: int = 0
    clip: float = 0.0
    noise: Tensor | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and not self.clip:
            raise UsageError("steps with noise clip the gradient of each sample: else no noise is large enough")

    @property
    def plain(self) -> bool:
        """Whether the direction is the gradient alone, and no momentum is kept."""
        return not self.proximal and self.drift is None and not self.momentum

    def __getitem__(self, at: slice | tuple[int, int]) -> Steps:
        """The steps of some runs, or of one participation (run, place)."""
        drift = None if self.drift is None else self.drift[at]
        velocity = None if self.velocity is None else self.velocity[at]
        noise = None if self.noise is None else self.noise[at]
        return replace(self, drift=drift, velocity=velocity, noise=noise)


@dataclass(frozen=True)
class Outcome:
    """What the participations of a round end with: updates, sent minus final model, and velocities; ``(*s, n, d)``.

    ``velocity`` is None without momentum.
    """

    updates: Tensor
    velocity: Tensor | None = None

    def __getitem__(self, runs: slice) -> Outcome:
        return Outcome(self.updates[runs], None if self.velocity is None else self.velocity[runs])


class Solver(Protocol):
    """A registered solver (group ``solvers``): a frozen dataclass that treats leading axes of runs elementwise.

    ``per_client_state`` names the tensors of its state that keep one row a client, ``(*s, M, d)``. What else it
    declares is in :data:`fuaudit.declared.WORDS`.
    """

    per_client_state: ClassVar[frozenset[str]]

    def init(self, shape: StateShape) -> State:
        """The state before the first round, of one run; every tensor has the shape it keeps."""

    def before(self, context: RoundContext, state: State) -> Steps:
        """The terms of this round's steps."""

    def after(self, outcome: Outcome, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """What is uploaded, ``(*s, n, d)``, and the new state."""


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent, plain or with momentum that starts from zero in every round.

    Attributes:
        momentum: the share of the velocity that is kept from step to step, in [0, 1).
    """

    momentum: float = 0.0
    per_client_state: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum must be in [0, 1), not {self.momentum}")

    def init(self, shape: StateShape) -> State:
        """No state."""
        return {}

    def before(self, context: RoundContext, state: State) -> Steps:
        """See :class:`Solver`."""
        return Steps(context.step_size, momentum=self.momentum)

    def after(self, outcome: Outcome, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """The updates as they are."""
        return outcome.updates, state
