"""Run the self-test: every fault must be caught, and every right method must pass."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuaudit import registry
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.progress import Progress, silent
from fuaudit.selftest.faults import Caught, Ground, all_faults, passes
from fuaudit.unlearning.protocol import claims_exactness, is_editor


@dataclass(frozen=True)
class Row:
    """One line of the self-test."""

    name: str
    level: str
    certain: bool
    held: bool
    caught: Caught

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name,
            "level": self.level,
            "certain": self.certain,
            "held": self.held,
            "power": self.caught.power,
            "tries": self.caught.tries,
            "evidence": self.caught.evidence,
            "cost": self.caught.cost,
        }


EDITORS = "Audits of editors are shown by: fuaudit selftest"
OTHER_LAWS = (
    "Faults are planted under this law alone. check_unlearner, of fuaudit.plugins, tries a rewriter under the laws "
    "that it claims; the audits are shown by: fuaudit selftest"
)
"""Where a method goes that the self-test does not take."""


@dataclass(frozen=True)
class Selftest:
    """The rows of a self-test: the faults and the controls."""

    unlearner: str
    rows: tuple[Row, ...]

    @property
    def held(self) -> bool:
        """Whether every level did what it is there for."""
        return all(row.held for row in self.rows)


def selftest(
    name: str = "fats", key: bytes = bytes(32), repetitions: int = 30, pairs: int = 32, progress: Progress = silent
) -> Selftest:
    """Plant faults around a rewriter, and see each caught; the rewriter itself and ``retrain`` must pass.

    Args:
        name: a registered rewriter that is exact for uniform cohorts with replacement.
        key: of everything that is drawn; the same key gives the same result.
        repetitions: of statistical levels; their power is estimated from so many audits, each of a federation of its
            own. All of 30 rejected puts it at .905 or more, with confidence .95. A right method is failed by chance
            with probability at most ``repetitions`` times the spec's alpha, .03 by default.
        pairs: of runs in each of those audits.

    Raises:
        UsageError: an unknown name, an editor, or a rewriter that claims no exactness for this law.
    """
    unlearner = registry.build("unlearners", name)
    law = "uniform with replacement"
    if is_editor(unlearner):
        raise UsageError(f"{name!r} edits models: it has no right form to spoil", EDITORS)
    if not claims_exactness(unlearner, law, "client"):
        raise UsageError(
            f"{name!r} does not claim to be exact for clients under the law {law!r}: it has no right form to spoil",
            OTHER_LAWS,
        )
    rows = []
    with tempfile.TemporaryDirectory(prefix="fuaudit-selftest-") as folder:
        ground = Ground(name, Path(folder), Keyed(key), repetitions, pairs, progress)
        faults = all_faults(name)
        for number, fault in enumerate(faults, 1):
            caught = fault.plant(ground)
            rows.append(Row(fault.name, fault.level, fault.certain, fault.held(caught), caught))
            progress("faults", number, len(faults))
        for method in dict.fromkeys((name, "retrain")):
            caught = passes(ground, method)
            rows.append(Row(f"{method} passes", "all", False, caught.power == 1, caught))
    return Selftest(name, tuple(rows))
