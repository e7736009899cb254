"""The account of rounds of Gaussian noise, and the statement that comes with its epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuaudit.budgets.gaussian.curve import epsilon_of, mu_of
from fuaudit.budgets.statement import Statement, delta_in_words, finite, version_of
from fuaudit.text import counted

NO_NOISE = "there is no noise, so there is no guarantee"
NO_DELTA = "delta is 0, and Gaussian noise has no pure epsilon: choose one above 0, by --delta"
CENTRAL = "whoever adds the noise is trusted: it sees the rows, and nobody else does"


@dataclass(frozen=True)
class GaussianAccount:
    """The epsilon of ``rounds`` rounds at ``delta``.

    Args:
        noise: the standard deviation of the noise on what is seen, a multiple of the clipping norm.
        participations: how often a client takes part in a round, at most.
        epsilon: exact but for rounding, which goes up; infinite where there is none.
        seen: what is seen, in words.
        trust: who is trusted with what.
    """

    noise: float
    rounds: int
    delta: float
    participations: int
    epsilon: float
    seen: str = "the noisy sum of all rows"
    trust: str = CENTRAL

    @property
    def total(self) -> float:
        """The smallest epsilon that is known to hold; infinite where none does."""
        return self.epsilon

    @property
    def note(self) -> str:
        """Why there is no epsilon; empty where there is one."""
        if self.epsilon < float("inf"):
            return ""
        return NO_NOISE if self.noise == 0 else NO_DELTA if self.delta == 0 else "there is too little noise to account"

    def as_json(self) -> dict[str, Any]:
        """Null is an epsilon that is unbounded."""
        return {
            "noise": self.noise, "rounds": self.rounds, "delta": self.delta, "participations": self.participations,
            "epsilon_total": finite(self.epsilon), "reason": self.note or None, "statement": statement(self).as_json(),
        }  # fmt: skip


def account(noise: float, rounds: int, delta: float, participations: int = 1) -> GaussianAccount:
    """The account of so many rounds; UsageError for numbers out of range."""
    return GaussianAccount(
        noise, rounds, delta, participations, epsilon_of(mu_of(noise, rounds, participations), delta)
    )


def statement(found: GaussianAccount) -> Statement:
    """What an epsilon is about."""
    return Statement(
        delta=delta_in_words(found.delta),
        unit="all rows of one client in the rounds covered, each clipped to a norm before noise is added",
        adjacency=f"the rows of the client count, or are zero{_at_most(found.participations)}",
        adversary=f"sees {found.seen}, of every round, and knows all settings; it does not see the noise",
        trust_model=found.trust,
        sampling_assumption="none: the client takes part in every round, and no amplification is counted. Towards "
        "whoever has the plan, or the key of its draws, there is none: operator, server and auditor have them",
        accountant=f"fuaudit {version_of('fuaudit')}, closed form of composed Gaussians",
        rounds_covered=counted(found.rounds, "round"),
        outside_it="other runs on the same data, rounds that a request executes again, tuning, audits; metrics and "
        "stored rows that were computed from private rows; rounding of noise to floats or integers",
        remark=(
            "normal noise is assumed",
            "the figure is that of real numbers. Floats are assumed to tell no more by their last bits; a sum of "
            "discrete Gaussians is none, and has another account",
        ),
    )


def _at_most(participations: int) -> str:
    return f"; in each round it takes part at most {counted(participations, 'time')}" if participations > 1 else ""
