"""Training in which clients drop out: the learners of FedAvg and its rivals under three patterns of availability.

Sun, Mao, Zhang: "MimiC: Combating Client Dropouts in Federated Learning by Mimicking Central Updates" (IEEE
Transactions on Mobile Computing 2024, arXiv 2306.12212), section 7.1. Who is available is a draw of the plan
(:mod:`fuaudit.plans.availability`), so it is replayed, enumerated and audited like every other draw.

What differs from print, and why:

- "Round-robin" with a period of 0 must mean always available; so does 1. The published code draws periods from a
  rounded half-normal law instead of the printed uniform one; here they are uniform.
- Static probability is the printed one, the same for all; the published code gives five levels up to 1.
- P N clients are max(1, floor(P N)). The weights are whole numbers from 1 to 10, so that draws stay exact.
- The published code takes two random clients when fewer are available. Here nobody is added, and a round with
  nobody in it leaves model and memory as they are: availability stays independent from client to client, which is
  what makes keeping draws exact.
- Local epochs are passes over a fresh permutation. Clients with fewer samples take fewer steps.

Guarantee: none by themselves. FATS is exact for these laws but the share of clients; see docs/dropouts.md for what
the memories of the methods do to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from fuaudit.errors import UsageError
from fuaudit.plans import AvailabilityLaw
from fuaudit.plans.availability import (
    Availability,
    Batches,
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.training.learner import PLAIN, require_step_sizes

PAPER = "Sun, Mao and Zhang, IEEE TMC 2024, arXiv 2306.12212"

_OF_SCENARIO = {"round-robin": ("tau_max",), "static": ("probability",), "time-varying": ("share", "active")}


@dataclass(frozen=True)
class Dropouts:
    """FedAvg among whoever is available: plain SGD, mean over the participants.

    Attributes:
        scenario: who is available: "round-robin" (with ``tau_max`` and ``phase``), "static" (with ``probability``) or
            "time-varying" (with ``share``, or with ``active``).
        rounds: how many rounds are trained.
        batch: the samples of a step; fewer where the client has fewer. With ``rate`` what the gradients of a batch are
            divided by when they are added up, whatever its length is.
        step_size: the step size of clients in the first round.
        decay: what the step size is multiplied by from round to round, in (0, 1].
        steps: local work as so many batches, each drawn afresh; or give ``epochs``.
        epochs: local work as so many passes over the client's samples; or give ``steps``.
        largest_client: the most samples that a client may have; needed with ``epochs``.
        tau_max: the longest period of a client in rounds; for "round-robin".
        phase: whether all periods begin with round 1 ("aligned") or where a draw says ("drawn"); for "round-robin".
        probability: the chance that a client is available in a round; for "static".
        share: the share of the clients that is available in a round; for "time-varying".
        active: how many clients are available in a round; for "time-varying".
        first_all: whether everybody takes part in the first round.
        rate: with ``steps``: Poisson batches. Each sample of a client is in each of her batches by itself, with this
            chance.
        largest_batch: the most samples that a Poisson batch may hold; larger ones are cut. Needed with ``rate``.
    """

    scenario: Literal["round-robin", "static", "time-varying"]
    rounds: int
    batch: int
    step_size: float
    decay: float = 1.0
    steps: int | None = None
    epochs: int | None = None
    largest_client: int | None = None
    tau_max: int | None = None
    phase: Literal["aligned", "drawn"] = "aligned"
    probability: float | None = None
    share: float | None = None
    active: int | None = None
    first_all: bool = True
    rate: float | None = None
    largest_batch: int | None = None
    cite: ClassVar[str] = PAPER
    guarantee: ClassVar[str] = "none: with dropouts, FedAvg need not approach a stationary point (section 4)"
    solver: ClassVar[dict[str, Any]] = PLAIN
    server: ClassVar[tuple[dict[str, Any], ...]] = ({"use": "mean"},)

    def __post_init__(self) -> None:
        require_step_sizes(self.step_size, self.decay)
        _ = self.law

    @property
    def law(self) -> AvailabilityLaw:
        """How rounds are drawn."""
        return AvailabilityLaw(self.rounds, self._availability, self._batches, self.first_all)

    @property
    def _availability(self) -> Availability:
        given = {name for names in _OF_SCENARIO.values() for name in names if getattr(self, name) is not None}
        allowed = _OF_SCENARIO[self.scenario]
        if len(given) != 1 or not given <= set(allowed):
            raise UsageError(f"the scenario {self.scenario!r} takes {' or '.join(allowed)}, and no other's option")
        if self.phase != "aligned" and self.scenario != "round-robin":
            raise UsageError(f"the scenario {self.scenario!r} has no phase: only round-robin does")
        if self.scenario == "round-robin":
            assert self.tau_max is not None
            return BoundedRoundRobin(self.tau_max, self.phase)
        if self.scenario == "static":
            return StaticProbability(_fraction(self.probability))
        return TimeVaryingWeights(self.active, None if self.share is None else _fraction(self.share))

    @property
    def _batches(self) -> Batches:
        if (self.steps is None) == (self.epochs is None):
            raise UsageError("local work is given by steps or by epochs, one of them")
        if (self.rate is None) != (self.largest_batch is None):
            raise UsageError("Poisson batches need rate and largest_batch, both of them")
        if self.steps is not None:
            if self.largest_client is not None:
                raise UsageError("largest_client belongs to epochs: with steps a client may have any number of samples")
            if self.rate is None or self.largest_batch is None:
                return FreshBatches(self.steps, self.batch)
            return PoissonBatches(self.steps, _fraction(self.rate), self.largest_batch, self.batch)
        if self.rate is not None:
            raise UsageError("Poisson batches are given by steps: an epoch has every sample once")
        if self.largest_client is None:
            raise UsageError("epochs need largest_client, the most samples that a client may have")
        assert self.epochs is not None
        return PermutedEpochs(self.epochs, self.batch, self.largest_client)


def _fraction(number: float | None) -> Fraction:
    """A decimal number as it is written: 0.1 is one tenth."""
    try:
        return Fraction(str(number))
    except ValueError:
        raise UsageError(f"a probability or share must be above 0 and at most 1, not {number}") from None
