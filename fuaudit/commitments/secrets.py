"""Secrets of clients: what their stages draw with, and nobody else can.

A client has a secret of 32 bytes from its system's generator; where a master secret is given, all of them follow from
that one, and the run says so. Its digest stands in the client's node of the contents, so the commitment fixes it. What
it draws with follows from the secret, the commitment and the generation's context: one secret in two federations never
makes one noise. For a request each retained client makes its next secret from its last one, the commitment, the
request, the method with its options, and the round after which the request came: siblings that shared noise would tell
the noiseless difference of their models.

What all draw together has a secret of its own, which goes the same way. The first one is one more leaf of the tree of
seeds, from which no plan is drawn.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fuaudit.commitments.keys import KEY_BYTES, derive
from fuaudit.draws import Address, Draws, Keyed, Labelled, Position, Purpose, Seeds, Stream
from fuaudit.draws.address import NOBODY
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import canonical_json
from fuaudit.plans import Plan

Secrets = Mapping[int, bytes]
"""Client id -> its secret of 32 bytes, in one generation."""


@dataclass(frozen=True)
class Private:
    """What ``clients/secrets.json`` holds beside the salts.

    Attributes:
        made: whether the secrets of training were made "apart", or all "from one secret".
        generations: the secrets of training, and of every request after it.
        shared: those of all together.
    """

    made: str
    generations: tuple[Secrets, ...] = field(repr=False)
    shared: tuple[bytes, ...] = field(repr=False)

    def table(self, salts: list[list[Any]]) -> dict[str, Any]:
        """For JSON."""
        rows = [{str(client): secret.hex() for client, secret in sorted(own.items())} for own in self.generations]
        shared = [secret.hex() for secret in self.shared]
        return {"made": self.made, "generations": rows, "shared": shared, "salts": salts}

    @classmethod
    def of_table(cls, table: Mapping[str, Any]) -> Private:
        """The inverse of :meth:`table`, for a table of its shape."""
        rows = [{int(client): bytes.fromhex(text) for client, text in row.items()} for row in table["generations"]]
        return cls(table["made"], tuple(rows), tuple(map(bytes.fromhex, table["shared"])))

    def among(self, clients: Collection[int]) -> Private:
        """The secrets of some clients."""
        return replace(self, generations=tuple({c: own[c] for c in own if c in clients} for own in self.generations))

    def after(self, clients: Collection[int], step: Step) -> Private:
        """With the generation of a request that leaves these clients."""
        last = {client: step.next(secret) for client, secret in self.generations[-1].items() if client in clients}
        return replace(self, generations=(*self.generations, last), shared=(*self.shared, step.next(self.shared[-1])))


def secret_digest(secret: bytes, made: str) -> bytes:
    """All that is committed to of a secret, and of how it was made: 32 bytes."""
    return hashlib.sha256(f"fuaudit secret {made} ".encode() + secret).digest()


def first_secrets(clients: Sequence[int], master: bytes | None, seeds: Seeds) -> Private:
    """The secrets of training: from the system's generator, or all from a master secret where one is given.

    ``seeds`` is the tree whose last leaf is what all draw with.
    """
    shared = (seeds.leaf(seeds.size - 1),)
    if master is None:
        return Private("apart", ({client: secrets.token_bytes(KEY_BYTES) for client in clients},), shared)
    return Private("from one secret", ({client: derive(master, "client", str(client)) for client in clients},), shared)


@dataclass(frozen=True)
class Step:
    """What made a generation out of the one before.

    Attributes:
        commitment: of the lineage.
        context: of the new generation; it tells of all requests so far.
        unlearner: what the run records of its method: of this, name and options count.
        executed: the rounds that the parent had executed when the request came.
    """

    commitment: str
    context: str
    unlearner: Mapping[str, Any]
    executed: int

    def next(self, secret: bytes) -> bytes:
        """A secret of the new generation from the one before."""
        method = canonical_json([self.unlearner["use"], self.unlearner["options"], self.executed]).decode()
        return derive(secret, "next", self.commitment, self.context, method)


def salt_of(private: Secrets) -> bytes:
    """The salt of files of memories, 32 bytes: without it a digest in a manifest would confirm guesses.

    From the latest secrets of the retained clients: a prune leaves them.
    """
    hasher = hashlib.sha256(b"fuaudit memories")
    for client, secret in sorted(private.items()):
        hasher.update(client.to_bytes(8, "little") + secret)
    return hasher.digest()


class Generation(Protocol):
    """What the stages of one generation draw with."""

    def own(self, client: int) -> bytes:
        """A client's key; EvidenceError where it was destroyed."""
        ...

    @property
    def shared(self) -> bytes:
        """Everybody's key."""
        ...


@dataclass(frozen=True)
class Committed:
    """The generation of a run: its secrets, under its commitment."""

    secrets: Secrets = field(repr=False)
    together: bytes = field(repr=False)
    commitment: str
    context: str

    def own(self, client: int) -> bytes:
        """See :class:`Generation`."""
        if client not in self.secrets:
            raise EvidenceError(f"the secret of client {client}, with which its stages drew, was destroyed by a prune")
        return derive(self.secrets[client], "stages", self.commitment, self.context)

    @property
    def shared(self) -> bytes:
        """See :class:`Generation`."""
        return derive(self.together, "stages", self.commitment, self.context)


@dataclass(frozen=True)
class Flat:
    """The generation of a plan of statistics, whose draws have one flat key."""

    key: bytes = field(repr=False)

    def own(self, client: int) -> bytes:
        """See :class:`Generation`."""
        return derive(self.key, "stages", str(client))

    @property
    def shared(self) -> bytes:
        """See :class:`Generation`."""
        return derive(self.key, "stages")


@dataclass(frozen=True)
class PlannedDraws:
    """The draws of the stages of one run; see :class:`fuaudit.training.rounds.StageDraws`.

    Each stands behind the steps of its round, and is drawn anew where they are. So an unlearner decides nothing about
    them: where it draws a batch anew, it draws anew everything that the stages of that round draw.
    """

    plan: Plan
    generations: tuple[Generation, ...]

    @classmethod
    def committed(cls, plan: Plan, private: Private, commitment: str, told: Sequence[str]) -> PlannedDraws:
        """Of a run: its secrets, its commitment, and the context of every generation."""
        triples = zip(private.generations, private.shared, told, strict=True)
        return cls(plan, tuple(Committed(own, shared, commitment, context) for own, shared, context in triples))

    @classmethod
    def flat(cls, plan: Plan, sources: Sequence[Draws]) -> PlannedDraws:
        """Of a plan of statistics that is drawn from these flat sources, also where a method recorded some."""
        return cls(plan, tuple(Flat(source.secret) for source in sources if isinstance(source, Keyed)))

    def own(self, number: int, place: int, client: int, occurrence: int) -> Labelled:
        """See :class:`~fuaudit.training.rounds.StageDraws`."""
        generation, at = self._at(number, place)
        return Labelled(generation.own(client), at._replace(client=client, occurrence=occurrence))

    def shared(self, number: int, place: int) -> Labelled:
        """See :class:`~fuaudit.training.rounds.StageDraws`."""
        generation, at = self._at(number, place)
        return Labelled(generation.shared, at)

    def _at(self, number: int, place: int) -> tuple[Generation, Address]:
        position = Position(number, self.plan.law.steps + 1 + place)
        segment = self.plan.segment(Stream.BATCHES, position)
        at = Address(Purpose.STAGE, *position, NOBODY, version=segment.version)
        return self.generations[segment.source], at
