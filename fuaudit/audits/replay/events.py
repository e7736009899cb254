"""What ledgers tell of rounds, against what the stages of these rounds tell when they are executed."""

from __future__ import annotations

from collections.abc import Iterator

from fuaudit.audits.gone import last_compared
from fuaudit.runs.ledger import EventsByRound, Ledger, other_events
from fuaudit.verification.case import Case

OTHER_TALE = "What a ledger tells of round {} is not what its stages tell when it is executed."


def wrong_events(case: Case, events: EventsByRound, rounds: range, everywhere: bool = False) -> int:
    """The first of some rounds of which a ledger tells other events than ``events``; 0 for none.

    Of rounds that the run keeps its ancestors tell: their ledgers bind no digest of a run. ``everywhere``: other events
    than on any platform.
    """
    for ledger, last in _ledgers(case):
        if number := other_events(ledger, events, range(rounds.start, min(rounds.stop, last + 1)), everywhere):
            return number
    return 0


def as_told(case: Case) -> str:
    """A sentence about releases of ancestors that nothing here compares; empty where there are none."""
    tells = any("told" in event for ledger, _ in _ledgers(case) for event in ledger.of_kind("round"))
    more = any(event["round"] > last for ledger, last in _ledgers(case) for event in ledger.of_kind("round"))
    return AS_TOLD if tells and more else ""


AS_TOLD = (
    " What an ancestor's ledger tells of rounds that the run does not keep is taken as told: a verification of the "
    "ancestor compares it."
)


def _ledgers(case: Case) -> Iterator[tuple[Ledger, int]]:
    """The ledgers of the run and of its ancestors, each with the last round of which it is asked."""
    chain = (case.run, *case.evidence.ancestors)
    yield from zip((run.ledger for run in chain), last_compared(chain), strict=True)
