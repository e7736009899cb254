"""Faults that plugins declare beside their methods: what audits of plans suspect, and what the self-test plants.

They are values. An unlearner declares ``known_faults``, a tuple of :class:`KnownFault`; ``selftest_faults`` holds
:class:`WrongRelative` on an unlearner, and :class:`MemoryKept` on an aggregator, a client stage or a solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fuaudit import registry
from fuaudit.declared import says
from fuaudit.draws import Position
from fuaudit.plans import Law, Population, Request, UniformLaw
from fuaudit.plans.exact_laws import Number


@dataclass(frozen=True)
class Facts:
    """What the law of a fault may depend on.

    Attributes:
        law: of the draws.
        population: before the last request.
        request: the last one.
        not_before: the first position not yet executed when it came.
        client: the retained client that the statistics look at, next to what is erased.
    """

    law: UniformLaw
    population: Population
    request: Request
    not_before: Position
    client: int


class KnownFault(Protocol):
    """A way in which a method is known to go wrong, hashable. The audit plan-law bets on it.

    The audit suspects the faults of all of fuaudit's own unlearners, whichever is audited: with those of the audited
    one alone, the size of a test would depend on its name. Those of other packages do not enter. All bets share one
    stake, so whoever declares many faults would make each bet smaller.
    """

    @property
    def name(self) -> str:
        """The fault in words, for findings."""
        ...

    def applies(self, facts: Facts) -> bool:
        """Whether the fault changes the law of plans here."""
        ...

    def law_of(self, statistic: str, facts: Facts, terms: int) -> Sequence[Number] | None:
        """The first ``terms`` probabilities of a statistic under the fault, of the values 0, 1, ...

        None where that law is not known. The statistics are those of
        :data:`fuaudit.audits.plan_law.plan_statistics.NUMBERS`.
        """
        ...


@dataclass(frozen=True)
class WrongRelative:
    """A method that is right on a small federation, and a relative that has one fault; both by registered names."""

    name: str
    right: str
    wrong: str
    law: Law
    population: Population
    request: Request


@dataclass(frozen=True)
class MemoryKept:
    """A memory of clients that a careless operator leaves as it is when the model goes back.

    ``tables`` of a config put the memory into a run with the learner ``fedavg``.
    """

    name: str
    tables: Mapping[str, Any]


def known_faults() -> tuple[KnownFault, ...]:
    """The faults that fuaudit's own unlearners declare, each once, in the order of the unlearners' names."""
    return tuple(_declared("known_faults", "unlearners"))


def selftest_faults(tested: str) -> tuple[WrongRelative | MemoryKept, ...]:
    """What fuaudit's own plugins declare for the self-test, and the unlearner ``tested``; each once."""
    return tuple(_declared("selftest_faults", "unlearners", "aggregators", "client_stages", "solvers", besides=tested))


def _declared(word: str, *kinds: str, besides: str = "") -> list[Any]:
    found: list[Any] = []
    for kind in kinds:
        for name, entry in sorted(registry.entries(kind).items()):
            if entry.own or (kind, name) == ("unlearners", besides):
                found += [fault for fault in says(entry.load(), word) if fault not in found]
    return found
