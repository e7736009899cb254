"""The account of a run's family: what its rounds released towards the server and towards the public, and what else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuaudit.budgets.family import Charge, Family, Spent, spent_towards_public, spent_towards_server
from fuaudit.budgets.spent import NOTHING, PartAccount, Terms, accounts
from fuaudit.errors import UsageError, nearest
from fuaudit.plans import Population
from fuaudit.plans.batch_laws import batches_of
from fuaudit.runs.kin import Kin, kinship, kinship_of, tombstones, with_secrets
from fuaudit.runs.ledger import released
from fuaudit.runs.released import Unlimited, by_config, family_of, strangers, unlimited
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.training.capped import most_at_once

SERVER = "sees all that the server saw in these runs"
LINEAGE = "sees all that the server saw in this run and its ancestors"
SIBLINGS = "runs beside this lineage, such as siblings, which a budget of the whole family adds up"
PUBLIC = "sees what was published of these runs, which is no more than the server saw"


@dataclass(frozen=True)
class Towards:
    """What one reader can have seen: the rounds that count, and an account for each part that told of a mechanism."""

    spent: Spent
    accounts: tuple[PartAccount, ...]
    terms: Terms

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why there is no guarantee whatever the parts are; empty where nothing is in the way."""
        return self.spent.reasons if self.accounts else (*self.spent.reasons, NOTHING)

    def as_json(self) -> dict[str, Any]:
        """Rounds by run, and accounts."""
        return {
            "runs": {charge.name: _ends(charge) for charge in self.spent.charges},
            "rounds": self.spent.rounds,
            "reasons": list(self.reasons),
            "accounts": [one.as_json() for one in self.accounts],
        }


def _ends(charge: Charge) -> list[int]:
    """The first and the last round that count; empty for none."""
    return [charge.rounds[0], charge.rounds[-1]] if charge.rounds else []


@dataclass(frozen=True)
class FamilyAccount:
    """Both accounts, and what left each run that nothing limits.

    ``published``: the runs whose rounds count towards the public, and what was named beside them.
    """

    run: str
    terms: Terms
    published: tuple[str, ...]
    towards: Mapping[str, Towards]
    unlimited: Mapping[str, tuple[Unlimited, ...]]

    def as_json(self) -> dict[str, Any]:
        """The whole account."""
        return {
            "run": self.run,
            "delta": self.terms.delta,
            "differ": self.terms.differ,
            "participations": self.terms.times,
            "published": list(self.published),
            "towards": {name: towards.as_json() for name, towards in self.towards.items()},
            "without_noise": {name: [one.as_json() for one in rows] for name, rows in self.unlimited.items()},
        }


def account_of(
    run: Run,
    delta: float | None = None,
    differ: int | None = None,
    published: Collection[str] = (),
    also: Iterable[Path] = (),
) -> FamilyAccount:
    """The account of a run with all runs of its training beside it.

    Args:
        delta, differ: by default those of the budget of the config; 0 and 1 where it names none.
        published: names of folders of other runs whose results were published, beside the run and its ancestors.
        also: other folders with runs of the family.

    Raises:
        UsageError: no such run was published, or an account cannot be made under these terms.
        EvidenceError: a folder cannot be read.
    """
    related = kinship(run, also)
    family = family_of(related)
    called = {copy.name: kin.name for kin in related.kin for copy in kin.copies}
    published = {called.get(name, name) for name in published}
    _require_known(family, published)
    terms = _terms(run, related.kin, delta, differ)
    seen = {
        "server": (spent_towards_server(family), SERVER),
        "public": (spent_towards_public(family, published), PUBLIC),
    }
    told = {one.mechanism for releases in seen["server"][0].releases.values() for one in releases}
    if differ is not None and "conspar" not in told:
        raise UsageError(
            f"no run of the family of {family.run} told of conspar, and differing elements are those of its sets",
            "Leave --differ out.",
        )
    return FamilyAccount(
        related.run.name,
        terms,
        tuple(sorted({family.run, *published, *(charge.name for charge in seen["public"][0].charges)})),
        {name: _towards(spent, terms, reader) for name, (spent, reader) in seen.items()},
        unlimited(related.kin, _shown(run), terms.by_config),
    )


def account_of_lineage(run: Run, ancestors: Iterable[Run | Tombstone], delta: float | None = None) -> FamilyAccount:
    """The account of a run and its ancestors alone, with differing elements as its config has them, and delta too
    unless one is given.

    Raises:
        UsageError: an account cannot be made under these terms.
    """
    related = kinship_of(run, ancestors)
    terms, spent = _terms(run, related.kin, delta), spent_towards_server(family_of(related))
    found = _towards(spent, terms, LINEAGE)
    beside = replace(found, accounts=tuple(one.with_outside(SIBLINGS) for one in found.accounts))
    left = unlimited(related.kin, _shown(run), terms.by_config)
    own = related.run.name
    return FamilyAccount(own, terms, (own,), {"lineage": beside}, left)


def _towards(spent: Spent, terms: Terms, reader: str) -> Towards:
    """What one reader can have seen.

    Rows that are seldom sampled are charged less towards the public alone, and there only while nothing but a training
    run was published: which rounds a request drew anew tells when a row was first drawn.
    """
    hidden = reader == PUBLIC and len(spent.charges) == 1
    if terms.batches is not None and not hidden:
        terms = replace(terms, batches=terms.batches.known())
    return Towards(spent, accounts(spent, terms, reader), terms)


def told_anything(chain: Iterable[Run | Tombstone]) -> bool:
    """Whether a round of these told that it released anything under a mechanism."""
    lines = (line for found in chain for line in found.ledger.of_kind("round"))
    return any(map(released, lines))


def _terms(run: Run, kin: Sequence[Kin], delta: float | None = None, differ: int | None = None) -> Terms:
    target = run.config.budget
    return Terms(
        delta=delta if delta is not None else target.delta if target else 0.0,
        differ=differ if differ is not None else target.differ if target else 1,
        times=most_at_once(run.plan.law, _drawn_over(run, kin)),
        batches=batches_of(run.plan.law, run.plan.widest),
        secrets_with=with_secrets(kin),
        trusted=tombstones(kin),
        strangers=(why := strangers(run)),
        by_config=by_config(run, why),
        byzantine=tuple(sorted(run.exchange.deviating)),
    )


def _drawn_over(run: Run, kin: Iterable[Kin]) -> list[Population]:
    """The populations that rounds were drawn over; of fuaudit's own laws, whose places follow from the config, one."""
    runs = [one.found for one in kin if isinstance(one.found, Run)] if run.plan.by_strangers else []
    return [run.original, *(population for one in runs for population in one.populations)]


def _shown(run: Run) -> str:
    """What the server is shown of a round, in words."""
    return "sums of rows" if run.exchange.transport.shows == "sums" else "every row"


def _require_known(family: Family, published: Collection[str]) -> None:
    known = {*family.gaps, *family.doubles, *(member.name for member in family.members)}
    for name in sorted({*published} - known):
        raise UsageError(f"no run of the family of {family.run} is called {name!r}", nearest(name, sorted(known)))
