"""Sums: whom the sums of a run's transport hide a row among, by its config and what its ledger tells.

Exposure is that of the rounds as they were, each with the clients it had, over a lot that is uniform, to colluders who
take part in every round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from fuaudit.declared import offers, says
from fuaudit.errors import UsageError
from fuaudit.runs.layout import MODEL
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.run import Run
from fuaudit.runs.untrained import all_told, hiding_nobody
from fuaudit.secure.exposure import Buffer, exposed, meeting, within_all
from fuaudit.secure.names import EXACT
from fuaudit.statistics.rounding import up
from fuaudit.text import counted
from fuaudit.training.events import VALUES
from fuaudit.training.publishing import buffers_in

if TYPE_CHECKING:
    from fuaudit.secure.sizes import Sent

POINTS = 12
"""For at most about so many numbers of colluders exposure is told."""


def buffers_of(run: Run) -> tuple[Buffer, ...]:
    """The buffers of a round of a run with the most participations; none where its transport says nothing of them."""
    if not offers(run.exchange.transport, "buffers"):  # then nobody counts places
        return ()
    return buffers_in(run.exchange, run.law, suite_of(run.ledger), _places(run))


def _participations(run: Run) -> tuple[list[int], int]:
    """How many participations each round had that the run executed or kept, and of how many more nothing tells that.

    A sealed view tells it of rounds that were executed for it alone: by the messages of their lots, or by the rows that
    the ledger tells of where no suite made the sums.
    """
    if not run.sealed:
        return [len(cohort) for cohort in run.participation["cohorts"]], 0
    lines = run.ledger.of_kind("round")
    if suite_of(run.ledger) is None:
        rows = [sum(sum(one["rows"]) for one in line.get("told", ()) if one["kind"] == "summed") for line in lines]
    else:
        rows = [_contributions(run, line["round"]) for line in lines]
    return rows, run.rounds_executed - len(rows)


def _empties(run: Run, rounds: int) -> list[int]:
    """How many of the clients of so many rounds are without samples in each; of a sealed view nobody is known to be."""
    return [0] * rounds if run.sealed else [len(hiding_nobody(run, number)) for number in range(1, rounds + 1)]


def _places(run: Run) -> int:
    """The most participations that a round can have; of a sealed view those of its largest round, by its messages."""
    if not run.sealed:
        return run.law.places(run.plan.widest.of_laws)  # kept rounds, and those before an edit, have who was there then
    if suite_of(run.ledger) is None:
        return run.places
    return max((_contributions(run, number) for number in run.chain.rounds), default=0)


def _contributions(run: Run, number: int) -> int:
    """How many contributions to its lot a round has among the messages of a run: one a participation."""
    return len(run.chain.senders(number, "lot"))


@dataclass(frozen=True)
class Alike:
    """Rounds of a run whose buffers are alike.

    Attributes:
        rounds: how many they are.
        buffers: those of each; none where nobody took part.
        empty: how many clients of each are without samples in it.
    """

    rounds: int
    buffers: tuple[Buffer, ...]
    empty: int = 0

    @property
    def places(self) -> int:
        """m, the participations of each."""
        return sum(buffer.size for buffer in self.buffers)

    def chance(self, suite: str | None, colluders: int) -> Fraction:
        """With which chance a row is open in one of them, at most; see :func:`fuaudit.secure.exposure.exposed`."""
        if self.places <= self.empty:  # nobody has a row
            return Fraction(0)
        return exposed(suite, self.buffers, min(colluders, self.places - self.empty - 1), self.empty)

    def table(self) -> dict[str, Any]:
        """For JSON: buffers of one kind are counted."""
        kinds = sorted(Counter(self.buffers).items(), key=lambda kind: (-kind[0].size, kind[0].smallest))
        buffers = [
            {"size": one.size, "opens_from": one.smallest, "with_samples": one.trained, "number": number}
            for one, number in kinds
        ]
        return {"rounds": self.rounds, "without_samples": self.empty, "buffers": buffers}


@dataclass(frozen=True)
class Sums:
    """What a report tells of the sums of a run.

    Attributes:
        suite: what made them; None where the simulator did.
        alike: the rounds that the run executed or kept, by their buffers, the largest first.
        untold: of how many more nothing tells how many took part.
        feared: how many clients the config fears, or has, as Byzantine.
        parties: what each party sends in the largest buffer at most; none without a suite with messages.
        holds: what the run holds that tells of rows: "messages", "memories" of clients, their "secrets", "seeds".
        all_told: whether the run tells of all who are without samples in a round.
    """

    suite: str | None
    alike: tuple[Alike, ...]
    untold: int
    feared: int
    parties: tuple[Sent, ...]
    holds: tuple[str, ...] = ()
    all_told: bool = True

    @property
    def rounds(self) -> int:
        """R, how many rounds are told of; a client's row is in as many at most."""
        return sum(some.rounds for some in self.alike)

    @property
    def places(self) -> int:
        """m, the participations of the largest round."""
        return max(some.places for some in self.alike)

    @property
    def empty(self) -> int:
        """How many clients are without samples in a round at most, because they have none or drew none."""
        return max(some.empty for some in self.alike)

    @property
    def _trained(self) -> int:
        """How many clients have samples in a round at most."""
        return max(some.places - some.empty for some in self.alike)

    def over(self, colluders: int) -> tuple[float, float]:
        """With which chance a row is open in the worst round, and at least once in all rounds, at most."""
        chances = [(some.chance(self.suite, colluders), some.rounds) for some in self.alike]
        return float(max(chance for chance, _ in chances)), within_all(chances)

    @property
    def fewest(self) -> int | None:
        """How many colluders open a row in some round, at least; None where no number does."""
        numbers = range(max(1, self._trained))
        found = bisect_left(numbers, True, key=lambda number: self.over(number)[0] > 0)  # more never open less
        return found if found < len(numbers) else None

    @property
    def colluders(self) -> list[int]:
        """Numbers of colluders from none to half of the largest round, those that are feared, and the fewest."""
        half = self.places // 2
        some = {*range(0, half + 1, -(-(half + 1) // POINTS)), half, self.feared, 1, self.fewest or 0}
        return sorted(number for number in some if number < self._trained)

    @property
    def meetings(self) -> tuple[float, float]:
        """How often two given clients are in one buffer on average, and with which chance they ever are."""
        chances = [(meeting(some.buffers), some.rounds) for some in self.alike]
        return float(sum(chance * rounds for chance, rounds in chances)), within_all(chances)

    @property
    def in_short(self) -> str:
        """The line that matters: how often a row is open to those that are feared, or to one where nobody is."""
        fewest, asked = self.fewest, max(0, min(self.feared or 1, self._trained - 1))
        if self.over(0)[0] == 1:
            return "every client's row is open to the server, and nobody need help it"
        most = "up to " * (len({some.empty for some in self.alike}) > 1)
        noisy = ", whose noise is all that hides it" * any(
            one.trained < 2 for some in self.alike for one in some.buffers
        )
        beside = f", beside {most}{counted(self.empty, 'client')} without samples{noisy}" * bool(self.empty)
        if fewest is None:
            return f"no number of colluding clients{beside} opens a row to the server: no buffer opens"
        fewer = ", and not with fewer" * (asked < fewest and self.all_told)
        number = max(asked, fewest) if fewest else min(self.feared, asked)
        help_ = f"with {counted(number, 'colluding client')}" if number else "with nobody's help"
        untold = "; who drew no samples in a round is not told: with them fewer do, and more often" * (
            not self.all_told
        )
        a_round, ever = self.over(number)
        worst = ", the worst of them," * (len(self.alike) > 1)
        return (
            f"a client's row is open to the server {help_}{fewer}{beside}: in a round{worst} with a chance of "
            f"{percent(a_round)}; at least once in {counted(self.rounds, 'round')} with a chance of {percent(ever)}"
            f"{untold}"
        )

    @property
    def messages(self) -> str:
        """Bytes that parties send for the largest buffer at most, in a line; empty without a suite with messages."""
        return "; ".join(f"{one.party} to {one.to} {one.size:,} B" for one in self.parties)

    def table(self) -> dict[str, Any]:
        """For JSON: chances rounded to six digits."""
        mean, ever = self.meetings
        rows = [(number, *self.over(number)) for number in self.colluders]
        return {
            "suite": self.suite,
            "rounds": self.rounds,
            "rounds_alike": [some.table() for some in self.alike],
            "rounds_untold": self.untold,
            "feared": self.feared,
            "without_samples": self.empty,
            "without_samples_told": self.all_told,
            "fewest": self.fewest,
            "exposed": [
                {"colluders": number, "in_the_worst_round": _rounded(a_round), "in_the_run": _rounded(run)}
                for number, a_round, run in rows
            ],
            "meetings": {"on_average": _rounded(mean), "ever": _rounded(ever)},
            "parties": [{"party": one.party, "to": one.to, "bytes": one.size} for one in self.parties],
            "holds": list(self.holds),
        }


def percent(chance: float) -> str:
    """A chance, rounded up in its third digit."""
    return f"{up(100 * _rounded(chance), 3)} %"


def _rounded(chance: float) -> float:
    """With six significant digits: the last bits of a power are of one platform."""
    return float(f"{chance:.6g}")


def sums_of(run: Run) -> Sums | None:
    """The sums of a run; None where its transport shows rows, or says nothing of its buffers."""
    if run.exchange.transport.shows != "sums" or not offers(run.exchange.transport, "buffers"):
        return None
    numbers, untold = _participations(run)
    suite, kinds = suite_of(run.ledger), Counter(zip(numbers, _empties(run, len(numbers)), strict=True))
    alike = tuple(
        Alike(rounds, buffers_in(run.exchange, run.law, suite, places), empty)
        for (places, empty), rounds in sorted(kinds.items(), reverse=True)
    )
    if not any(buffer.size > 1 for some in alike for buffer in some.buffers):
        return None
    feared: object = says(run.exchange.transport, "byzantine")
    feared = max(feared if type(feared) is int else 0, len(run.exchange.deviating))
    largest = max(buffer.size for some in alike for buffer in some.buffers)
    return Sums(suite, alike, untold, feared, _parties(run, suite, largest), _holds(run, suite), all_told(run))


def _holds(run: Run, suite: str | None) -> tuple[str, ...]:
    """What of a run tells its reader of rows, see :class:`Sums`."""
    parts = {
        "messages": suite is not None and not run.pruned,
        "memories": run.exchange.remembers and not run.redacted,
        "secrets": not run.redacted,
        "seeds": not run.sealed,
    }
    return tuple(part for part, there in parts.items() if there)


def _parties(run: Run, suite: str | None, largest: int) -> tuple[Sent, ...]:
    """What parties send in the largest buffer, by the transport that had the sums made.

    Empty where no suite did, and where no suite of that name could: the ledger says what it likes, and audits judge it.
    """
    if suite not in EXACT:
        return ()
    from fuaudit.secure.sizes import sent  # imports cryptography, which no listing of a run needs

    try:
        sums = run.exchange.summation(suite)
    except UsageError:
        return ()
    return sent(suite, largest, _columns(run), sums.bits, largest, run.exchange.agrees)


def _columns(run: Run) -> int:
    """How many values a row has at most in the rounds that the run executed itself."""
    model = run.arrays(MODEL)
    size, itemsize = sum(part.size for part in model.values()), next(iter(model.values())).itemsize
    told = [event for line in run.ledger.of_kind("round") for event in line.get("told", ())]
    agreed = [event["size"] // itemsize for event in told if event["kind"] == "answered" and event["what"] == VALUES]
    return max(agreed, default=int(size))
