"""What training begins with: a federation dealt from a secret, its keys, its contents, and the commitment to all."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuaudit.commitments.contents import commit
from fuaudit.commitments.identities import PARTIES
from fuaudit.commitments.keys import NO_BEACON, Keys, commitment, first_context, partition_key
from fuaudit.commitments.secrets import ClientSecrets, committed_by, first_secrets
from fuaudit.config import Config, read_config, resolve
from fuaudit.data.adversaries import require_steady
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import names_of, partition
from fuaudit.draws import Keyed, Leaves, Seeded
from fuaudit.formats.files import sha256
from fuaudit.plans import Plan
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.plans.tried_laws import require_law
from fuaudit.registry import build
from fuaudit.runs.contained import Foundation
from fuaudit.runs.run import config_bytes
from fuaudit.training.capped import capped
from fuaudit.training.federation import require_federation
from fuaudit.training.releases import require_releases
from fuaudit.training.setup import Setup, setup


@dataclass(frozen=True)
class Beginning:
    """All that a training run is committed to, and what it is made of."""

    ready: Setup
    secret: bytes = field(repr=False)
    leaves: Leaves
    common: Foundation
    secrets: ClientSecrets | None

    def plan(self, beacon: str | None) -> Plan:
        """The plan, drawn as a whole; a beacon bears on it and on nothing else."""
        source = Seeded(self.common.keys.seeds, self.leaves, 0, first_context(beacon))
        return Plan.fresh(self.ready.learner.law, self.common.original, source)


def resolved_config(config: Config | Path | str | dict[str, Any]) -> Config:
    """A config, of its tables, or of the path of its TOML file."""
    if isinstance(config, Config):
        return config
    return resolve(config) if isinstance(config, dict) else read_config(Path(config))


def begun(
    config: Config | Path | str | dict[str, Any],
    data: Path | str | Dataset | None,
    secret: bytes,
    apart: bool = False,
    beacon: str = NO_BEACON,
) -> Beginning:
    """Set a config up, deal its federation, and form its keys.

    Args:
        apart: clients make secrets of their own; else all follow from the master secret.
        beacon: what the commitment says of it: whether one is to come.

    Raises:
        UsageError: a wrong config or secret, data that cannot be read or dealt, more seeds than a tree can have, or
            rounds that exceed the config's budget.
    """
    resolved = resolved_config(config)
    ready = setup(resolved, data)
    dealer = build("partitions", resolved.partition)
    population = partition(dealer, ready.dataset, Keyed(partition_key(secret)))
    # turned before anything is made of contents: what is committed to is what is trained on
    dealt, ready = ready.dataset, ready.turned(population.owner)
    if resolved.adversary:
        require_steady(dealt, ready.dataset, resolved.adversary, population.owner)
    law = ready.learner.law
    if is_foreign(law):
        require_law(law, population)
    learns = ready.procedure
    require_federation(ready.config, learns.exchange, learns.solver, law, population)
    dimension, scaling = learns.layout.dimension, resolved.scaling
    require_releases(learns.exchange, dimension)
    if resolved.budget is not None:
        capped(resolved.budget, learns.exchange, learns.solver, law, population, dimension, scaling)
    leaves = Leaves(population.clients, law.rounds, law.steps)
    has_secrets = learns.exchange.has_secrets
    keys = Keys.of_secret(secret, leaves.in_all(resolved.run.requests, has_secrets))
    parties = PARTIES if learns.exchange.signs else ()
    master = None if apart else secret
    secrets = first_secrets(population.clients, master, keys.seeds, parties) if has_secrets else None
    lots_of = (law.rounds, resolved.run.requests) if learns.exchange.casts_lots else None
    names = names_of(dealer, ready.dataset, population)
    contents, opening = commit(ready.dataset, population, names, secret, committed_by(secrets, lots_of))
    committed = keys.committed(sha256(config_bytes(ready.config)), beacon)
    made = commitment(**committed, contents=contents.root)
    common = Foundation(ready.config, population, frozenset(), keys, contents, opening, made)
    return Beginning(ready, secret, leaves, common, secrets)
