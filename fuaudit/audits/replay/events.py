"""What ledgers tell of rounds, against what the stages of these rounds tell when they are executed."""

from __future__ import annotations

from fuaudit.runs.ledger import EventsByRound, other_events
from fuaudit.verification.case import Case


def wrong_events(case: Case, events: EventsByRound, rounds: range) -> int:
    """The first of some rounds of which a ledger tells other events than ``events``; 0 for none.

    Of rounds that the run keeps its ancestors tell: their ledgers bind no digest of a run.
    """
    last = rounds.stop
    for ledger in (run.ledger for run in (case.run, *case.evidence.ancestors)):
        if number := other_events(ledger, events, range(rounds.start, last)):
            return number
        # further above only what all below kept is asked for: the rest was executed anew, by others
        last = min([last, *(event.get("kept_rounds", 0) + 1 for event in ledger.of_kind("unlearning"))])
    return 0
