"""Noise: how much of it honest clients put on what they send, beside the grid on which sums are opened.

Rounding hides a step of a number, whatever is sent. Noise below one step hides no more than that. Above it, what is
hidden is a matter of the noise beside what a row is clipped to, and of how often it is used: an account tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from torch import Tensor

from fuaudit.budgets.family import Release
from fuaudit.declared import is_agreement, must_say, offers, says
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.released import by_config, strangers
from fuaudit.runs.run import Run
from fuaudit.training.execute import StepSizes
from fuaudit.training.grid import grid_of
from fuaudit.training.releases import NOISY

FAR = 2
"""So many standard deviations of noise have room in the numbers that are added up, or rounding clips much of it."""


@dataclass(frozen=True)
class Noise:
    """The noise of one client in the round with the least of it, as it is drawn.

    Attributes:
        share: its standard deviation, a multiple of what is clipped in front of it.
        steps: the same in steps of the numbers that are opened; None where nobody can say it.
        cancels: whether a stage in front remembers what was not sent, and so takes the noise back in the next round.
    """

    share: float
    steps: float | None
    cancels: bool = False

    @property
    def hides(self) -> bool:
        """Whether it hides more than rounding does."""
        return self.steps is not None and self.steps >= 1

    @property
    def in_words(self) -> str:
        """How much it is."""
        share = f"{self.share:.3g} times what is clipped in front of it"
        if self.steps is None:
            return (
                f"the noise of a client is {share}, and nobody can say how many steps of the numbers that are opened, "
                "as a stage behind it may clip it"
            )
        return (
            f"the noise of a client has a standard deviation of {self.steps:.3g} steps of the numbers that are opened, "
            f"and of {share}"
        )


def step_of(run: Run, model: Tensor | None = None) -> float | None:
    """The step of the numbers that a suite opened, as the transport makes a row of them; None where it does not say.

    ``model`` is any of a run that has none yet.

    Raises:
        UsageError: the transport has no sums that the run's suite could make.
    """
    sums = run.exchange.summation(str(suite_of(run.ledger)))
    if not sums.shows_means:
        return None
    model = run.model if model is None else model
    one = np.ones(model.numel(), dtype=np.int64)
    return float(sums.mean_of(one, 1, model.double())[0])


def noise_of(run: Run, model: Tensor | None = None) -> Noise | None:
    """The most noise that a part of the clients draws, of those whose word an account takes; None for none.

    ``model`` is any of a run that has none yet.

    Raises:
        UsageError: no suite of the run's name could have made its sums.
    """
    model = run.model if model is None else model
    said = by_config(run, strangers(run, model.numel()), model.numel())
    found = [_noise(run, one, model) for one in said if one.mechanism in NOISY]
    return max(found, key=lambda one: (one.steps or 0, one.share), default=None)


def _noise(run: Run, release: Release, model: Tensor) -> Noise:
    told: dict[str, Any] = dict(release.parameters)
    share, cancels = float(told["noise"]), _is_taken_back(run, release.part)
    step = step_of(run, model) if _is_sent_as_drawn(run, release.part) else None
    if release.mechanism == "skellam":
        return Noise(share, None if step is None else share * sqrt(told["squares"]), cancels)
    deviation, least, most = share * float(told["norm"]), 1.0, 1.0
    if release.mechanism == "dpsgd":  # one step of a client at least, in the round with the shortest
        sizes = StepSizes(run.learner.step_size, run.learner.decay)
        least, most = sorted((sizes.at(1), sizes.at(run.law.rounds)))
        most *= sqrt(run.law.steps)
        batch = _divisor(run)
        deviation, step = deviation / max(1, batch), step if batch else None
    if step is None or FAR * most * deviation > step * _largest(run):
        return Noise(share, None, cancels)
    return Noise(share, least * deviation / step, cancels)


def _largest(run: Run) -> int:
    """The largest whole number that is added up: beyond it rounding clips."""
    return (1 << run.exchange.summation(str(suite_of(run.ledger))).bits - 1) - 1


def _is_taken_back(run: Run, part: str) -> bool:
    """Whether a stage in front of the one that draws the noise remembers the difference from what was sent."""
    kind, _, number = part.partition(".")
    before = run.exchange.client_stages.stages[: int(number)] if kind == "client" else ()
    return any(offers(stage, "settle") and not says(stage, "answered") for stage in before)


def _is_sent_as_drawn(run: Run, part: str) -> bool:
    """Whether the noise of a part is in what honest clients send as it was drawn.

    Behind it they choose coordinates or round, which leaves it there if rounding does not clip. Any other stage, such
    as one that clips, may make it less, and nobody can say by how much.
    """
    stages, (kind, _, number) = run.exchange.client_stages.stages, part.partition(".")
    behind = range(int(number) + 1 if kind == "client" else 0, len(stages))
    honest = [stages[at] for at in behind if at not in run.exchange.byzantine]
    return all(is_agreement(stage) or grid_of(stage) is not None for stage in honest)


def _divisor(run: Run) -> int:
    """What gradients of a batch are divided by, at most; 0 where nobody can say it."""
    told: object = says(run.law, "divisor") or must_say(run.law, "slots")
    return told if type(told) is int else 0
