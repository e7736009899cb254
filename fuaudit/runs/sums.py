"""Sums: whom the sums of a run's transport hide a row among, by its config and what its ledger tells.

Exposure is that of the largest round of the run, over a lot that is uniform, to colluders who take part in every round.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuaudit.declared import offers, says
from fuaudit.errors import UsageError
from fuaudit.plans import Population
from fuaudit.runs.layout import MODEL
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.run import Run
from fuaudit.runs.transcripts import chain_of
from fuaudit.secure.exposure import Buffer, exposed, meeting, within
from fuaudit.secure.names import EXACT
from fuaudit.statistics.rounding import up
from fuaudit.text import counted
from fuaudit.training.events import VALUES

if TYPE_CHECKING:
    from fuaudit.secure.sizes import Sent

POINTS = 12
"""For at most about so many numbers of colluders exposure is told."""


def buffers_of(run: Run) -> tuple[Buffer, ...]:
    """The buffers of a round of a run with the most participations; none where its transport says nothing of them."""
    if not offers(run.exchange.transport, "buffers"):  # then nobody counts places
        return ()
    return tuple(Buffer(*pair) for pair in run.exchange.buffers(_places(run)))


def _places(run: Run) -> int:
    """The most participations that a round can have; of a sealed view those of its largest round, by its messages."""
    if not run.sealed:
        return run.law.places(run.plan.widest.of_laws)  # kept rounds, and those before an edit, have who was there then
    if suite_of(run.ledger) is None:
        return run.law.places(Population(dict.fromkeys(run.members, ())))
    return max(Counter(entry.round for entry in chain_of(run.path).entries if entry.step == "lot").values(), default=0)


@dataclass(frozen=True)
class Sums:
    """What a report tells of the sums of a run.

    Attributes:
        suite: what made them; None where the simulator did.
        buffers: those of the largest round.
        rounds: how many the run has executed; a client's row is in as many at most.
        feared: how many clients the config fears, or has, as Byzantine.
        empty: how many clients have no samples: their rows are known, so they hide nobody.
        parties: what each party sends in the largest buffer at most; none without a suite with messages.
    """

    suite: str | None
    buffers: tuple[Buffer, ...]
    rounds: int
    feared: int
    empty: int
    parties: tuple[Sent, ...]

    @property
    def places(self) -> int:
        """m, the participations of a round."""
        return sum(buffer.size for buffer in self.buffers)

    def over(self, colluders: int) -> tuple[float, float]:
        """With which chance a row is open in a round, and at least once in all rounds, at most.

        Rows without samples are known. A complete buffer opens with two rows that have some, so not to these alone.
        """
        chance = exposed(self.suite, self.buffers, colluders)
        if colluders and self.empty:
            known = [min(number, self.places - 1) for number in (colluders + self.empty, self.empty)]
            more, alone = (exposed(self.suite, self.buffers, number) for number in known)
            complete = all(buffer.smallest >= buffer.size for buffer in self.buffers)
            chance = max(chance, more - alone if complete else more)
        return float(chance), within(chance, self.rounds)

    @property
    def colluders(self) -> list[int]:
        """Numbers of colluders from none to half of the round, and those that are feared."""
        half = self.places // 2
        some = {*range(0, half + 1, -(-(half + 1) // POINTS)), half, self.feared, 1}
        return sorted(number for number in some if number < self.places - self.empty)

    @property
    def meetings(self) -> tuple[float, float]:
        """How often two given clients are in one buffer on average, and with which chance they ever are."""
        chance = meeting(self.buffers)
        return float(chance * self.rounds), within(chance, self.rounds)

    @property
    def in_short(self) -> str:
        """The line that matters: how often a row is open to those that are feared, or to one where nobody is."""
        number = max(0, min(self.feared or 1, self.places - self.empty - 1))
        a_round, ever = self.over(number)
        beside = f", beside {counted(self.empty, 'client')} without samples," * bool(self.empty)
        return (
            f"a client's row is open to the server with {counted(number, 'colluding client')}{beside} in "
            f"{percent(a_round)} of "
            f"rounds; at least once in {counted(self.rounds, 'round')} with a chance of {percent(ever)}"
        )

    def table(self) -> dict[str, Any]:
        """For JSON: chances rounded to six digits."""
        mean, ever = self.meetings
        rows = [(number, *self.over(number)) for number in self.colluders]
        return {
            "suite": self.suite,
            "buffers": [{"size": buffer.size, "opens_from": buffer.smallest} for buffer in self.buffers],
            "rounds": self.rounds,
            "feared": self.feared,
            "without_samples": self.empty,
            "exposed": [
                {"colluders": number, "in_a_round": _rounded(a_round), "in_the_run": _rounded(run)}
                for number, a_round, run in rows
            ],
            "meetings": {"on_average": _rounded(mean), "ever": _rounded(ever)},
            "parties": [{"party": one.party, "to": one.to, "bytes": one.size} for one in self.parties],
        }


def percent(chance: float) -> str:
    """A chance, rounded up in its third digit."""
    return f"{up(100 * _rounded(chance), 3)} %"


def _rounded(chance: float) -> float:
    """With six significant digits: the last bits of a power are of one platform."""
    return float(f"{chance:.6g}")


def sums_of(run: Run) -> Sums | None:
    """The sums of a run; None where its transport shows rows, or says nothing of its buffers."""
    buffers = buffers_of(run) if run.exchange.transport.shows == "sums" else ()
    if not any(buffer.size > 1 for buffer in buffers):
        return None
    suite = suite_of(run.ledger)
    feared: object = says(run.exchange.transport, "byzantine")
    feared = max(feared if type(feared) is int else 0, len(run.exchange.deviating))
    empty = 0 if run.sealed else run.plan.retained.empty
    return Sums(suite, buffers, run.rounds_executed, feared, empty, _parties(run, suite, buffers))


def _parties(run: Run, suite: str | None, buffers: tuple[Buffer, ...]) -> tuple[Sent, ...]:
    """What parties send in the largest buffer, by the transport that had the sums made.

    Empty where no suite did, and where no suite of that name could: the ledger says what it likes, and audits judge it.
    """
    if suite not in EXACT:
        return ()
    from fuaudit.secure.sizes import sent  # imports cryptography, which no listing of a run needs
    from fuaudit.secure.suites import Books

    largest, columns = max(buffer.size for buffer in buffers), _columns(run)
    try:
        return sent(suite, largest, columns, *run.exchange.secured(suite, Books()).fields)
    except UsageError:
        return ()


def _columns(run: Run) -> int:
    """How many values a row has at most in the rounds that the run executed itself."""
    model = run.arrays(MODEL)
    size, itemsize = sum(part.size for part in model.values()), next(iter(model.values())).itemsize
    told = [event for line in run.ledger.of_kind("round") for event in line.get("told", ())]
    agreed = [event["size"] // itemsize for event in told if event["kind"] == "answered" and event["what"] == VALUES]
    return max(agreed, default=int(size))
