"""An audit from outside, with a figure, a kind of evidence and a claim of its own.

How often a client takes part bounds what it can put into a model, and what a budget of privacy has to pay for. The plan
says it: no model is looked at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from fuaudit.plugins import Case, Claim, Figure, Finding, Subject, UsageError, Verdict

SHOWS = "no client takes part in more rounds than the spec allows"

RATIONED = Claim(
    "rationed",
    "a ration of rounds for every client",
    frozenset({"files", "provenance", "ration"}),
    editors=False,
    shows="No client took part in more rounds than its ration. What a client left in the model is not shown.",
    question="The checks asked how often each participant was drawn. They did not ask whether anything is forgotten.",
    of_request=False,
)

SHOWS_NOT = "It does not show what a client put into a round."


@dataclass(frozen=True)
class Ration:
    """Counts the rounds that each client takes part in, over the plan of the run.

    Attributes:
        most: the ration.
    """

    evidence: ClassVar[frozenset[str]] = frozenset({"ration"})
    uses: ClassVar[frozenset[str]] = frozenset()
    recomputes: ClassVar[str] = "the rounds that each client takes part in, counted over the plan"

    most: int

    def __post_init__(self) -> None:
        if self.most < 1:
            raise UsageError("ration needs most >= 1")

    def examine(self, case: Case) -> Finding:
        """FAIL where a client takes part more often; PASS where none does."""
        plan = case.run.plan
        counts = Counter(client for number in range(1, plan.law.rounds + 1) for client in set(plan.cohort(number)))
        client, rounds = max(counts.items(), key=lambda pair: (pair[1], -pair[0]), default=(0, 0))
        figure = Figure(
            "most_rounds",
            "The most rounds that one client takes part in",
            rounds,
            "counted over every round of the plan",
            unit=f"of {plan.law.rounds} rounds",
        )
        told = f"client {client} takes part in {rounds} rounds, of {self.most} that are allowed."
        if rounds > self.most:
            return Finding("ration", Subject.RUN, Verdict.FAIL, f"A ration is exceeded: {told}", SHOWS_NOT, (figure,))
        return Finding("ration", Subject.RUN, Verdict.PASS, f"The ration is kept: {told}", SHOWS_NOT, (figure,))
