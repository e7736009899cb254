"""What a run committed to: the contents of rows, and who is who."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fuaudit.commitments.contents import (
    APART,
    Contents,
    Differences,
    Opening,
    compare,
    found_under,
    require_opening,
)
from fuaudit.commitments.keys import Keys
from fuaudit.commitments.lots import Lots
from fuaudit.commitments.names import client_called
from fuaudit.commitments.secrets import ClientSecrets, secret_digest
from fuaudit.commitments.tree import DIGEST_BYTES
from fuaudit.config import Config
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Plan, Population
from fuaudit.plans.stage_draws import PlannedDraws
from fuaudit.runs.layout import CLIENTS, SECRETS
from fuaudit.runs.planned import WithPlan
from fuaudit.text import client_in_words, span

if TYPE_CHECKING:
    from fuaudit.data.dataset import Dataset


@dataclass(frozen=True)
class Foundation:
    """What a training run and all its children have in common, but for what a prune takes out.

    Attributes:
        original: the population of training; ``stand_ins`` are its ids in the place of those that a prune took out.
    """

    config: Config
    original: Population
    stand_ins: frozenset[int]
    keys: Keys
    contents: Contents
    opening: Opening
    commitment: str


MOST_SOUGHT = 5
"""Of how many clients a row is looked for under other ids: each takes a hash for every row at hand."""


@dataclass(frozen=True)
class WithContents(WithPlan):
    """A run that opens its commitment, and knows clients by name and samples by number."""

    @cached_property
    def opening(self) -> Opening:
        """Names of clients, and the salts of the leaves; of what a prune dropped neither.

        Raises:
            EvidenceError: names or salts do not belong to the leaves, or some are missing or surplus.
        """
        name = SECRETS if self.exchange.has_secrets else CLIENTS
        path, table = self.path / name, self.document(name)
        opening, contents = Opening.of_table({word: table[word] for word in APART}, path), self.contents
        require_opening(contents, opening, path)
        if not self.opens_just(opening):
            raise EvidenceError(f"{path} lacks names or salts of what is retained, or has some of what was erased")
        return opening

    def opens_just(self, opening: Opening) -> bool:
        """Whether names and salts are those that the run must hold: all, or those that the last prune left."""
        contents, before, after = self.contents, self.original.samples, self.populations
        return any(
            opening.is_that_of(contents, after[at], before) if at else opening.is_whole(contents) for at in self._prunes
        )

    @property
    def _prunes(self) -> Sequence[int]:
        """After which request the last prune can have been: of this run, or of an ancestor; 0 where there was none."""
        last = len(self.requests)
        return [last] if self.pruned else range(1, last) if self.keys.partition is None else [0]

    @cached_property
    def secrets(self) -> ClientSecrets | None:
        """The clients' secrets; None where they have none.

        Raises:
            EvidenceError: there are others than those of the clients that the run must hold, or another one than a
                client was committed to with.
        """
        if not self.exchange.has_secrets:
            return None
        path, found = self.path / SECRETS, ClientSecrets.of_table(self.document(SECRETS))
        if not self._holds_just(found):
            raise EvidenceError(f"{path} lacks secrets of clients, or has some that the run must not hold")
        for client, secret in found.generations[0].items():
            if secret_digest(secret, found.made) != self.contents.own_of(client).secret:
                raise EvidenceError(f"{path}: the secret of client {client} is not the one that was committed to")
        if len(found.parties) != len(self.contents.party_keys) // DIGEST_BYTES:
            raise EvidenceError(f"{path} lacks secrets of witness and key holder, or has some where nobody signs")
        if found.shared[0] != self.keys.seeds.leaf(self.keys.seeds.size - 1):
            raise EvidenceError(f"{path}: the shared secret is not the one that was committed to")
        return found

    def _holds_just(self, secrets: ClientSecrets) -> bool:
        """Whether each generation has the secrets of just the clients of its time; after a prune, of the retained."""
        there = [population.samples.keys() for population in self.populations]
        if not len(secrets.generations) == len(secrets.shared) == len(there):
            return False
        rows = [own.keys() for own in secrets.generations]
        return any(all(row == there[max(number, at)] for number, row in enumerate(rows)) for at in self._prunes)

    @property
    def salt(self) -> bytes | None:
        """That of the files of what clients keep; None where they keep nothing."""
        return self.secrets.salt if self.secrets and self.exchange.remembers else None

    @property
    def participation_salt(self) -> str | None:
        """What ``participation.json`` holds as its salt; None where clients have no secrets."""
        return self.secrets.participation_salt if self.secrets else None

    def stage_draws(self, plan: Plan) -> tuple[PlannedDraws, ...]:
        """What stages draw under a plan of this lineage, whose sources are generations of this run."""
        if not self.secrets or not self.exchange.draws:
            return ()
        return (self.secrets.draws(plan, self.commitment, self.contexts, self.lots),)

    @cached_property
    def lots(self) -> Lots | None:
        """What clients add to lots, as far as their secrets are there; None where no lot says who is in which sum."""
        if not self.secrets or not self.exchange.casts_lots:
            return None
        return self.secrets.lots(self.law.rounds, self.config.run.requests)

    @property
    def foundation(self) -> Foundation:
        """What a child of the run begins with, too."""
        return Foundation(
            self.config, self.original, self.stand_ins, self.keys, self.contents, self.opening, self.commitment
        )

    def name(self, client: int) -> str | None:
        """The name of a client; None where a prune dropped it, or there never was one."""
        if self.redacted:  # no salt is there that would open a name
            return None
        return self.opening.name(client) if client in self.contents.clients else None

    def called(self, client: int) -> str:
        """A client in words: by its number, and its name where that is another."""
        return client_in_words(client, self.name(client))

    def client(self, text: str) -> int:
        """The id of the client with a name. Names are ids where the data names nobody.

        A client whose name was dropped by a prune is found by its id.

        Raises:
            UsageError: nobody has that name, or it is not said who is meant.
        """
        return client_called(text, self.contents.clients, self.opening)

    def numbered(self, client: int) -> tuple[int, ...]:
        """The samples of a client when training started, erased ones included: what CLIENT:INDEX counts.

        Raises:
            UsageError: there is no such client.
        """
        samples = self.original.samples
        if client not in samples:
            raise UsageError(f"this federation has no client {client}", f"Clients are {span(self.original.clients)}.")
        return samples[client]

    def sample(self, client: int, index: int) -> int:
        """The id of a client's sample by its number, from 0, among those it had when training started.

        Raises:
            UsageError: there is no such client or sample, or a prune took its id out.
        """
        owned = self.numbered(client)
        if not 0 <= index < len(owned):
            raise UsageError(f"client {client} has samples 0 to {len(owned) - 1}, not {index}")
        if owned[index] in self.stand_ins:
            raise UsageError(f"client {client} was erased, and a prune took out the ids of its samples")
        return owned[index]

    def differences(self, dataset: Dataset) -> Differences:
        """Where the retained rows and the test rows at hand are not those that were committed to."""
        kept = self.plan.retained
        return compare(self.contents, self.opening, kept, {c: self.numbered(c) for c in kept.clients}, dataset)

    def moved(self, dataset: Dataset, found: Differences) -> tuple[int, int] | None:
        """A retained row that lies under another id at hand: its id, and that of the row that opens its leaf.

        One of each client's rows that are other ones is looked for, of a few clients. None where it is nowhere.
        """
        at_hand = [row for row in range(dataset.size) if row not in dataset.absent]
        wanted = [(client, rows[0]) for client, rows in {**found.rows, **found.absent}.items()][:MOST_SOUGHT]
        opened = [self.contents.opened(client, self.numbered(client), self.opening).get(row) for client, row in wanted]
        for (_, row), leaf in zip(wanted, opened, strict=True):
            if leaf is not None and (place := found_under(row, *leaf, at_hand, dataset)) is not None:
                return row, place
        return None
