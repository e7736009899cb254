"""Two unlearners from outside fuaudit: a rewriter of plans that is exact, and an editor of models that is not.

What may be kept? A rewriter looks at the old draws to decide, and what it looked at is no longer random for
what it keeps. Two plausible ways to "rewind a bit further, to be on the safe side" show the difference:

- :class:`RoundRewind` goes back to the beginning of the first round whose batches hold an erased sample, keeps
  the clients of that round and draws all its batches anew. Given the clients, "no batch of this round holds the
  sample" leaves the batches uniform over the rest, and the fresh ones are uniform over the rest too. So the
  rounds have the law of retraining, whichever branch was taken: exact.
- :class:`RewindToTheStart` draws everything anew, clients too, as soon as an erased sample was seen. It keeps
  *less*, and is wrong: runs whose clients had few chances to show the sample are kept more often, so the
  clients that are kept are tilted away from its owner, and fresh ones do not make up for it. It is not
  registered; its test finds the total variation, 1/8 on the smallest federation.

For a whole client both are exact: there the clients are all that is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit.plugins import END, Context, Draws, Plan, Position, Request, UsageError, exact_under

if TYPE_CHECKING:
    from torch import Tensor

UNIFORM = ("uniform with replacement", "uniform without replacement")


@dataclass(frozen=True)
class RoundRewind:
    """Draws the batches of the first involved round anew from its first step, and all later rounds."""

    needs: ClassVar[frozenset[str]] = frozenset({"plan"})
    participants: ClassVar[frozenset[str]] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "exact, for uniform cohorts and non-adaptive requests: proved by enumeration only"
    cite: ClassVar[str] = "an example; after Tao et al., VLDB 2024"
    exact_for: ClassVar[frozenset[tuple[str, str]]] = exact_under(*UNIFORM)

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """The plan from the first change on, at the first step of its round unless its clients change."""
        first = min(plan.first_involvement(request) or END, not_before)
        if first < END and first.step > 1:
            first = Position(first.round, 1)
        return plan.erase(request, fresh, first)


@dataclass(frozen=True)
class RewindToTheStart(RoundRewind):
    """Trains anew once anything requested was drawn. Looks safe; exact for clients, not for samples."""

    guarantee: ClassVar[str] = "none: refuted at sample level, total variation 1/8 on a toy"

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """Everything or nothing."""
        return (
            plan.restart(request, fresh) if plan.first_involvement(request) else plan.erase(request, fresh, not_before)
        )


@dataclass(frozen=True)
class Shrink:
    """Pulls the final model towards the initial one by a share in [0, 1]. Only the server takes part."""

    share: float = 0.5
    needs: ClassVar[frozenset[str]] = frozenset({"model", "round models"})
    participants: ClassVar[frozenset[str]] = frozenset({"server"})
    guarantee: ClassVar[str] = "empirical only"
    cite: ClassVar[str] = "an example, without a paper"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UsageError(f"share must be in [0, 1], not {self.share}")

    def edit(self, context: Context) -> Tensor:
        """The model after round 0 is the initial one."""
        return context.model + self.share * (context.round_models[0] - context.model)
