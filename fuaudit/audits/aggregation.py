"""Attacks on the secure sums of a run: played on small openings of its suite, beside suites where they must succeed.

Nothing of the run is attacked but the code that made its sums: rows of the audit's own are summed by the suite that the
ledger names, in buffers like those of the run. An attack that gets a row where the page says that nobody can is a
counterexample. One that gets nothing where it must is broken, and its failure elsewhere says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.run import Run
from fuaudit.runs.sums import buffers_of
from fuaudit.secure.attacks.opening import Opening
from fuaudit.secure.attacks.table import ATTACKS, HIDING, Played, played
from fuaudit.secure.exposure import Buffer
from fuaudit.secure.names import EXACT, SCARY
from fuaudit.secure.terms import RINGS
from fuaudit.text import counted
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Control, Finding, Subject, Verdict

NAME = "aggregation-attacks"
SHOWS_NOT = (
    "It attacks the suite as it is installed here, and no message of the run: it shows neither that the run's sums "
    "were made by it, nor that nobody colluded, nor that no other attack works."
)
NO_SUITE = "The ledger of the run names no suite that made its sums."
PLAIN = "The suite 'plain' hides rows from nobody, so no attack on it can fail."
ROW, NOTHING = "the row", "nothing"

CLIENTS, COLUMNS, BITS = 4, 4096, 12
"""Of an opening: with so many columns CKKS has the two ciphertexts that the key takes."""


@dataclass(frozen=True)
class AggregationAttacks:
    """Plays every attack of fuaudit on the suite that made the sums of the run, with controls on others."""

    evidence: ClassVar[frozenset[str]] = frozenset({"attack"})
    uses: ClassVar[frozenset[str]] = frozenset()
    knows_sealed: ClassVar[bool] = True
    recomputes: ClassVar[str] = "what colluding parties get of small openings of the run's suite"

    def examine(self, case: Case) -> Finding:
        """FAIL where an attack gets a row that it must not; INCONCLUSIVE where one gets nothing where it must."""
        suite = suite_of(case.run.ledger)
        if suite is None:
            return Finding(NAME, Subject.RUN, Verdict.NOT_APPLICABLE, NO_SUITE, SHOWS_NOT)
        found = [one for each in _openings(case.run, case.key) for one in played(suite, each)]
        beside = [one for other in (*EXACT, SCARY) if other != suite for one in _controls(other, case.key)]
        controls = tuple(map(_control, [one for one in found if one.due] + beside))
        broke = [one for one in found if one.got and not one.due]
        idle = [control.name for control in controls if not control.held]
        details = tuple(_told(one) for one in [*found, *beside])
        verdict, shows = _verdict(suite, broke, idle, sum(not one.due for one in found))
        assumptions = _trusted(suite) if verdict is Verdict.PASS else ()
        return Finding(
            NAME, Subject.RUN, verdict, shows, SHOWS_NOT, _figures(found, controls), "", controls, assumptions, details
        )


def _openings(run: Run, key: Keyed) -> list[Opening]:
    """One for each kind of buffer that the largest round of the run has."""
    kinds = {*buffers_of(run)} or {Buffer(CLIENTS, CLIENTS)}
    return [_opening(kind, key) for kind in sorted(kinds, key=lambda kind: (kind.size, kind.smallest))]


def _opening(buffer: Buffer, key: Keyed) -> Opening:
    """Rows and noise of the audit's own, each over half of the range."""
    clients = max(CLIENTS, buffer.size)
    limit = 1 << BITS - 3
    drawn = key.uniform(Address(Purpose.AUDIT), 3 * clients * COLUMNS).reshape(3, clients, COLUMNS)
    values = np.floor(drawn * (2 * limit + 1)).astype(np.int64) - limit
    most = next(ring.summands for ring in RINGS if clients <= ring.summands)
    return Opening(values[0], values[1:], BITS, most, buffer.size, min(buffer.smallest, buffer.size))


def _controls(suite: str, key: Keyed) -> list[Played]:
    """Attacks on another suite that must succeed there."""
    opening = _opening(Buffer(CLIENTS, CLIENTS), key)
    return [
        Played(name, suite, True, attack.play(suite, opening).succeeded)
        for name, attack in ATTACKS.items()
        if suite in attack.opens
    ]


def _control(one: Played) -> Control:
    return Control(f"{one.attack}, on {one.suite}", ROW, ROW if one.got else NOTHING)


def _told(one: Played) -> str:
    must = "as it must" if one.got == one.due else "as it must not"
    return f"{one.attack} ({ATTACKS[one.attack].by}) on {one.suite}: gets {ROW if one.got else NOTHING}, {must}"


def _verdict(suite: str, broke: Sequence[Played], idle: Sequence[str], tried: int) -> tuple[Verdict, str]:
    if broke:
        return Verdict.FAIL, f"On {suite!r} an attack gets a client's row that it must not get: {broke[0].attack}."
    if idle:
        return Verdict.INCONCLUSIVE, f"An attack gets nothing where it must get a row: {idle[0]}."
    if suite not in HIDING:
        return Verdict.INCONCLUSIVE, PLAIN
    return (
        Verdict.PASS,
        f"{counted(tried, 'attack')} on {suite!r} got nothing, and those that must succeed did, there or elsewhere.",
    )


def _trusted(suite: str) -> tuple[str, ...]:
    """What attacks that succeed on a suite stand for."""
    return tuple(
        f"Nobody did what opens a row of {suite!r}: {name}, by {attack.by}."
        for name, attack in ATTACKS.items()
        if suite in attack.opens
    )


def _figures(found: Sequence[Played], controls: Sequence[Control]) -> tuple[Figure, ...]:
    how = "played on rows of the audit's own; a row counts as got where more than a tenth of its values is right"
    return (
        Figure("attacks", "Attacks that must get nothing", sum(not one.due for one in found), how),
        Figure("rows", "Rows that they got", sum(one.got and not one.due for one in found), how),
        Figure("controls", "Attacks that must get a row", len(controls), how),
        Figure("held", "Rows that these got", sum(control.held for control in controls), how),
    )
