"""The reference: a rewriter that is proved exact at every size, and its plan found position by position.

The theorem is on docs/theorem.md. A law is *closed under conditioning* if a draw that does not name what was requested
has the law of a draw over the rest. Under such a law everything before the first involvement may be kept; under any
other law the reference keeps nothing. Enumeration checks both on small federations (tests/test_reference.py).

:func:`resampled` gives the same plan as carrying out the requests one after another. It looks at every position once,
and only at draws under sources that were in force there, so it works where a prune has destroyed all other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar

from fuaudit.draws import END, START, Draws, Position, Stream
from fuaudit.plans.availability import (
    AvailabilityLaw,
    BoundedRoundRobin,
    FreshBatches,
    PermutedEpochs,
    PoissonBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.plans.cuts import by_first_involvement
from fuaudit.plans.law import Law, UniformLaw
from fuaudit.plans.plan import WHOLE, Plan, Segment, cut, occurrences
from fuaudit.plans.population import Population, Request
from fuaudit.plans.strange_laws import is_foreign, is_just


def is_closed(law: Law) -> bool:
    """Whether a law is proved to be closed under conditioning, for clients, samples and both.

    By exact classes: the proof is about their code, and another law may carry any name.
    """
    if is_foreign(law):
        return False
    if type(law) is UniformLaw:
        return True
    if type(law) is not AvailabilityLaw or not is_just(law.batches, FreshBatches, PermutedEpochs, PoissonBatches):
        return False
    who = law.availability
    if type(who) is TimeVaryingWeights:
        return who.share is None  # a share of the clients changes in number with the population
    return is_just(who, BoundedRoundRobin, StaticProbability)


@dataclass(frozen=True)
class Reference:
    """Keeps what comes before the first involvement where the law is closed under conditioning, and else nothing.

    Guarantee: exact for every law, every size and requests that do not depend on the draws (docs/theorem.md).
    """

    by_first_involvement: ClassVar[bool] = True

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`fuaudit.unlearning.protocol.Rewriter`."""
        if not is_closed(plan.law):
            return plan.restart(request, fresh)
        return plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before))


@dataclass(frozen=True)
class Anew:
    """Draws everything anew whatever was drawn before; the initial model too, unless it is kept.

    Guarantee: exact for every law, every size and the same requests, because no draw decides what is kept.
    """

    by_first_involvement: ClassVar[bool] = True
    keeps_initial: bool = False

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`fuaudit.unlearning.protocol.Rewriter`."""
        return plan.erase(request, fresh, START) if self.keeps_initial else plan.restart(request, fresh)


KEEPS, ANEW = "keeps what is before the first involvement", "draws everything anew"

PROVED: Mapping[str, Any] = {
    KEEPS: Reference(),
    ANEW: Anew(),
    "draws everything anew but the initial model": Anew(keeps_initial=True),
}
"""The rewriters that are proved at every size, by what they do."""


@dataclass(frozen=True)
class Edited:
    """What an editor makes of a plan: it changes the model and keeps every draw, also those of the target."""

    by_first_involvement: ClassVar[bool] = True

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`fuaudit.unlearning.protocol.Rewriter`."""
        return plan.erase(request, fresh, END)


@dataclass(frozen=True)
class BehindEdit:
    """A rewriter behind an editor: what keeps a draw there is refused, and one starts over instead."""

    method: Any

    @property
    def by_first_involvement(self) -> bool:
        """Whether its method declares so."""
        return by_first_involvement(self.method)

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        """See :class:`fuaudit.unlearning.protocol.Rewriter`."""
        new: Plan = self.method.rewrite(plan, request, fresh, not_before)
        return new if new.redrawn_from(new.first_change(plan)) == START else plan.restart(request, fresh)


def in_turn(methods: Sequence[Any]) -> tuple[Any, ...]:
    """The methods of a stream, of which editors are :class:`Edited`, as each acts behind the one before it."""
    pairs = zip((None, *methods), methods, strict=False)
    return tuple(
        BehindEdit(own) if isinstance(before, Edited) and not isinstance(own, Edited) else own for before, own in pairs
    )


EDITS = "keeps every draw"
REFERENCES: Mapping[str, Any] = {**PROVED, EDITS: Edited()}
"""What the methods of a lineage are compared with: the proved ones, and editors with what their plans are."""


def candidates(method: Any) -> Sequence[str]:
    """The names of the references that a method of a stream (:func:`in_turn`) may be compared with."""
    if isinstance(method, Edited):
        return (EDITS,)
    return [name for name in PROVED if name != KEEPS or not isinstance(method, BehindEdit)]


def positions(law: Law) -> Iterator[Position]:
    """All positions of the rounds of a law, in order."""
    for round_number in range(1, law.rounds + 1):
        for step in range(law.steps + 1):
            yield Position(round_number, step)


def resampled(
    law: Law,
    population: Population,
    sources: Sequence[Draws],
    requests: Sequence[Request],
    moments: Sequence[Position],
    restarted: int = 0,
) -> Plan:
    """The plan that the reference makes of training and a stream of requests, under a law that is closed.

    At every position the source in force draws. If what it drew names a later request, the source of that request takes
    over from there on. Equal to :meth:`Reference.rewrite` for one request after another (tested): the source that takes
    over earlier also draws what a request changes later on.

    Args:
        population: before all requests.
        sources: of training, and of every request, ``(w + 1,)``.
        moments: for each request the first position not yet executed when it came.
        restarted: number of the last request that was carried out by keeping nothing; 0 for none. Positions are drawn
            by its source to begin with.

    Raises:
        EvidenceError: a draw is needed whose seed was destroyed.
    """
    populations = tuple(accumulate(requests, Population.without, initial=population))
    whole = (Segment(START, restarted, restarted),)
    plan = Plan(law, populations, tuple(sources), dict.fromkeys(Stream, whole) if restarted else WHOLE)
    current = restarted
    for at in positions(law):
        for number in range(current + 1, len(requests) + 1):
            if moments[number - 1] <= at or names(plan, requests[number - 1], at):
                current = number
                new = Segment(at, current, current)
                drawn = {name: cut(plan.streams[name], new) for name in (Stream.COHORTS, Stream.BATCHES)}
                plan = replace(plan, streams={**plan.streams, **drawn})
    return plan


def names(plan: Plan, request: Request, at: Position) -> bool:
    """Whether a plan draws something of a request at a position: its client in a cohort, its sample for a batch."""
    cohort = plan.cohort(at.round)
    if at.step == 0:
        return not set(request.clients).isdisjoint(cohort)
    owners = {owner for sample in request.samples if (owner := plan.populations[0].owner.get(sample)) is not None}
    steps = [step for step in range(at.step, plan.law.steps + 1) if plan.law.drawn_at(step) == at.step]
    return any(
        not set(request.samples).isdisjoint(plan.included(at.round, step, client, occurrence))
        for client, occurrence in occurrences(cohort)
        if client in owners
        for step in steps
    )
