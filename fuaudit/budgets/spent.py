"""The accounts of what runs of a family released, one for each part of a round, with the statement of its epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuaudit.budgets.dpsgd.clients import Batches, ClientsAccount
from fuaudit.budgets.family import Release, Spent
from fuaudit.budgets.mechanisms import Account, Mechanism, account_for, mechanism_of, statement_for, unaccounted
from fuaudit.budgets.statement import Statement
from fuaudit.text import counted

NOTHING = "no run told of a mechanism, so nothing limits what left their rounds"
OTHERWISE = "a ledger tells of another mechanism than the config has there, or of other parameters"
TWICE = "it told of several releases in one round"


@dataclass(frozen=True)
class Terms:
    """Under which assumptions something is accounted for.

    Attributes:
        delta: at which an epsilon holds.
        differ: in how many elements two top sets of a round may differ, at most.
        times: how often a client can take part in a round, at most.
        batches: of noisy steps; None where nobody accounts for their law.
        secrets_with: the runs with which the clients' secrets lie.
        trusted: tombstones, of whose rounds nothing is left but the ledger.
        strangers: part -> why its word is not taken.
        byzantine: clients who send what they like by the config, so that no account is theirs.
        by_config: what the others release under, as the config has them. No ledger may tell otherwise.
    """

    delta: float
    differ: int
    times: int = 1
    batches: Batches | None = None
    secrets_with: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    strangers: Mapping[str, str] | None = None
    by_config: frozenset[Release] = frozenset()
    byzantine: tuple[int, ...] = ()

    def mechanism(self, one: Release) -> Mechanism:
        """What was told, under these terms; see :func:`fuaudit.budgets.mechanisms.mechanism_of`."""
        return mechanism_of(one.mechanism, dict(one.parameters), self.differ, self.batches)


@dataclass(frozen=True)
class PartAccount:
    """What the rounds of some runs release at one part, together.

    Attributes:
        reason: why no epsilon holds; empty where one does.
    """

    part: str
    releases: tuple[Release, ...]
    rounds: int
    silent: int
    reason: str
    found: Account | None
    statement: Statement | None

    @property
    def epsilon(self) -> float:
        """The smallest epsilon that is known to hold; infinite where none is."""
        return float("inf") if self.found is None else self.found.total

    def with_outside(self, more: str) -> PartAccount:
        """The same account, with more that its statement leaves out."""
        if self.statement is None:
            return self
        return replace(self, statement=replace(self.statement, outside_it=f"{more}; {self.statement.outside_it}"))

    @property
    def under(self) -> str:
        """Its mechanisms with their parameters, in words."""
        return " and ".join(
            f"{release.mechanism} ({', '.join(f'{name} {value}' for name, value in release.parameters)})"
            for release in self.releases
        )

    def as_json(self) -> dict[str, Any]:
        """Null is an epsilon that is unbounded, or not known."""
        figures = self.found.as_json() if self.found else {}
        return {
            "part": self.part,
            "mechanism": [{"name": one.mechanism, "parameters": dict(one.parameters)} for one in self.releases],
            "rounds": self.rounds, "rounds_that_told_nothing": self.silent,
            "epsilon_total": figures.get("epsilon_total"),
            "epsilon_total_at_least": figures.get("epsilon_total_at_least"),
            "reason": self.reason or None,
            "statement": self.statement and self.statement.as_json(),
        }  # fmt: skip


def accounts(spent: Spent, terms: Terms, reader: str) -> tuple[PartAccount, ...]:
    """One account for each part that told of a mechanism; they are of different releases, and do not add up.

    ``reader``: who has seen these runs, in words.

    Raises:
        UsageError: sets cannot differ in so many elements, rounds are too many, or no library composes at a delta.
    """
    return tuple(_account(spent, terms, part, releases, reader) for part, releases in spent.releases.items())


def _account(spent: Spent, terms: Terms, part: str, releases: Sequence[Release], reader: str) -> PartAccount:
    reason = "; ".join([*spent.reasons, *_in_the_way(spent, terms, part, releases)])
    told = PartAccount(part, tuple(releases), spent.rounds, spent.silent(part), reason, None, None)
    if reason:
        return told
    one = terms.mechanism(releases[0])
    found = account_for(one, spent.rounds * terms.times, terms.delta)
    return replace(told, reason=found.note, found=found, statement=_statement(found, spent, terms, told, reader))


def _in_the_way(spent: Spent, terms: Terms, part: str, releases: Sequence[Release]) -> list[str]:
    """Why a part has no account, apart from what is in the way of all."""
    found = [why for who, why in (terms.strangers or {}).items() if who == part]
    found += [] if found or terms.by_config.issuperset(releases) else [OTHERWISE]
    found += [TWICE] if spent.at_once(part) > 1 else []
    return found + [why for one in releases if (why := unaccounted(one.mechanism, dict(one.parameters), terms.batches))]


def _statement(found: Account, spent: Spent, terms: Terms, told: PartAccount, reader: str) -> Statement:
    """The statement of one round's mechanism, for rounds of several runs."""
    of_one = statement_for(found)
    covered, seen = spent.covered, {charge.name for charge in spent.charges}
    covered += f"; in each a client takes part up to {terms.times} times" if terms.times > 1 else ""
    if told.silent:
        covered += f". {counted(told.silent, 'round')} told of nothing and count too"
    if alone := [name for name in terms.trusted if name in seen]:
        covered += f". Of {', '.join(alone)} there is the ledger alone, which is taken as told"
    return replace(
        of_one,
        unit=_unit(found, of_one, terms),
        adversary=f"{reader}; {of_one.adversary}",
        trust_model=_trust(of_one.trust_model, [name for name in terms.secrets_with if name in seen]),
        sampling_assumption=_sampling(found, of_one),
        rounds_covered=covered,
        outside_it=f"{OUTSIDE}; {of_one.outside_it}",
    )


def _unit(found: Account, of_one: Statement, terms: Terms) -> str:
    """Whom or what the account protects in all runs, and of whom it does not."""
    it, of = ("it", "of none") if isinstance(found, ClientsAccount) else ("she", "is none")
    named = ", ".join(map(str, terms.byzantine))
    honest = f", and {of} of those who are Byzantine by the config: {named}" if named else ""
    return f"{of_one.unit}; {it} is in all of these runs{honest}"


def _sampling(found: Account, of_one: Statement) -> str:
    """What is assumed of sampling: of clients nothing; of the rows of Poisson batches where it is counted."""
    charged = "a client is charged for every round, drawn or not"
    if isinstance(found, ClientsAccount) and found.amplified:
        return f"clients are not sampled: {charged}. Of rows: {of_one.sampling_assumption}"
    return (
        f"none: {charged}. Towards whoever has the plan, or the key of its draws, nothing is amplified: operator, "
        "server and auditor have them"
    )


UNTOLD = "rounds that were lost in a break, where no model of their platform was stored"
"""No ledger tells of them, and no account counts them."""

OUTSIDE = (
    f"runs of this training that lie elsewhere or were not kept; {UNTOLD}; what code of other packages takes without "
    "being given it; verifications, which train on the same rows; what is listed as released without noise"
)


def _trust(of_one: str, places: Sequence[str]) -> str:
    """Who is trusted, where the clients' secrets lie with some runs."""
    if not places:
        return of_one
    held = f"the clients' secrets lie with {', '.join(places)}, and whoever reads them knows all draws"
    return f"simulation only: {held}. {of_one[:1].upper()}{of_one[1:]}"
