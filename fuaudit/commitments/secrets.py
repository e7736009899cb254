"""Secrets of clients: what their stages draw with, and nobody else can.

A client has a secret of 32 bytes from its system's generator. Where a master secret is given, all follow from it, and
the run says so. The digest of each stands in its client's node of the contents, so the commitment fixes it.

A draw follows from the secret, the commitment and the context of the generation, so one secret in two federations never
makes one noise. For a request each retained client makes its next secret from its last one, the commitment, the
request, the method with its options, and the round after which the request came. Two children of one parent never
share noise: it would cancel in the difference of their models.

Where the server sees sums, the key that a client signs with, and her contributions to lots, follow from her first
secret, and the commitment fixes them too (:mod:`fuaudit.commitments.identities`, :mod:`fuaudit.commitments.lots`).

What all draw together has a secret of its own, which goes the same way. The first one is one more leaf of the tree of
seeds, from which no plan is drawn.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fuaudit.commitments.contents import Committed, Opening
from fuaudit.commitments.identities import public_key
from fuaudit.commitments.keys import KEY_BYTES, derive
from fuaudit.commitments.lots import Lots, chain_end, chain_length
from fuaudit.draws import Seeds
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import canonical_json
from fuaudit.plans import Plan
from fuaudit.plans.stage_draws import Generation, PlannedDraws

MADE = "apart", "from one secret"
"""How the secrets of training can have been made."""

Secrets = Mapping[int, bytes]
"""Client id -> its secret of 32 bytes, in one generation."""


@dataclass(frozen=True)
class ClientSecrets:
    """What ``clients/secrets.json`` holds beside names and salts.

    Attributes:
        made: whether the secrets of training were made "apart", or all "from one secret".
        generations: the secrets of training, and of every request after it.
        shared: those of all together.
        parties: those of witness and key holder, where the server sees sums: their identities follow from them.
    """

    made: str
    generations: tuple[Secrets, ...] = field(repr=False)
    shared: tuple[bytes, ...] = field(repr=False)
    parties: tuple[bytes, ...] = field(repr=False, default=())

    def table(self, opening: Opening) -> dict[str, Any]:
        """``clients/secrets.json``."""
        rows = [{str(client): secret.hex() for client, secret in sorted(own.items())} for own in self.generations]
        shared = [secret.hex() for secret in self.shared]
        parties = {"parties": [secret.hex() for secret in self.parties]} if self.parties else {}
        return {"made": self.made, "generations": rows, "shared": shared, **parties, **opening.table()}

    @classmethod
    def of_table(cls, table: Mapping[str, Any]) -> ClientSecrets:
        """The inverse of :meth:`table`, for a table of its shape."""
        rows = [{int(client): bytes.fromhex(text) for client, text in row.items()} for row in table["generations"]]
        shared, parties = (tuple(map(bytes.fromhex, table.get(name, ()))) for name in ("shared", "parties"))
        return cls(table["made"], tuple(rows), shared, parties)

    def among(self, clients: Collection[int]) -> ClientSecrets:
        """The secrets of some clients."""
        return replace(self, generations=tuple({c: own[c] for c in own if c in clients} for own in self.generations))

    def after(self, clients: Collection[int], renewal: Renewal) -> ClientSecrets:
        """With the generation of a request that leaves these clients."""
        renewed = renewal.renewed
        last = {client: renewed(secret) for client, secret in self.generations[-1].items() if client in clients}
        return replace(self, generations=(*self.generations, last), shared=(*self.shared, renewed(self.shared[-1])))

    def draws(self, plan: Plan, commitment: str, contexts: Sequence[str], lots: Lots | None = None) -> PlannedDraws:
        """What stages draw under a plan; ``contexts`` has that of every generation.

        ``lots``: where a lot says who is in which sum.
        """
        made = [
            _generation(own, shared, commitment, context)
            for own, shared, context in zip(self.generations, self.shared, contexts, strict=True)
        ]
        if lots is not None:
            keys = [partial(lots.key, commitment, context, number) for number, context in enumerate(contexts)]
            made = [replace(one, lot=key) for one, key in zip(made, keys, strict=True)]
        return PlannedDraws(plan, tuple(made))

    def lots(self, rounds: int, requests: int) -> Lots:
        """The contributions of clients to lots, which follow from their first secrets: see :class:`Lots`."""
        return Lots(self.generations[0], rounds, requests)

    @property
    def salt(self) -> bytes:
        """The salt of files of memories, 32 bytes: without it a digest in a manifest would confirm guesses.

        From the latest secrets of the retained clients: a prune leaves them.
        """
        hasher = hashlib.sha256(b"fuaudit memories")
        for client, secret in sorted(self.generations[-1].items()):
            hasher.update(client.to_bytes(8, "little") + secret)
        return hasher.digest()

    @property
    def participation_salt(self) -> str:
        """The salt of ``participation.json``, 64 digits; it does not tell that of files of memories."""
        return derive(self.salt, "participation").hex()


def committed_by(own: ClientSecrets | None, lots_of: tuple[int, int] | None) -> Committed:
    """What is committed to of the secrets of training; nothing where clients have none.

    ``lots_of``: of how many rounds and requests their contributions to lots are, where there are lots.
    """
    if own is None:
        return Committed()
    first, signs = [secret for _, secret in sorted(own.generations[0].items())], bool(own.parties)
    return Committed(
        [secret_digest(secret, own.made) for secret in first],
        [public_key(secret) for secret in first] if signs else (),
        [chain_end(secret, chain_length(*lots_of)) for secret in first] if lots_of else (),
        [public_key(secret) for secret in own.parties],
    )


def secret_digest(secret: bytes, made: str) -> bytes:
    """All that is committed to of a secret, and of how it was made: 32 bytes."""
    return hashlib.sha256(f"fuaudit secret {made} ".encode() + secret).digest()


def first_secrets(
    clients: Sequence[int], master: bytes | None, seeds: Seeds, parties: Sequence[str] = ()
) -> ClientSecrets:
    """The secrets of training: from the system's generator, or all from a master secret where one is given.

    Args:
        seeds: the tree whose last leaf is what all draw with.
        parties: who has a secret and is no client.
    """
    shared = (seeds.leaf(seeds.size - 1),)
    if master is None:
        own = {client: secrets.token_bytes(KEY_BYTES) for client in clients}
        return ClientSecrets("apart", (own,), shared, tuple(secrets.token_bytes(KEY_BYTES) for _ in parties))
    own = {client: derive(master, "client", str(client)) for client in clients}
    return ClientSecrets("from one secret", (own,), shared, tuple(derive(master, "party", name) for name in parties))


@dataclass(frozen=True)
class Renewal:
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

    def renewed(self, secret: bytes) -> bytes:
        """A secret of the new generation from the one before."""
        method = canonical_json([self.unlearner["use"], self.unlearner["options"], self.executed]).decode()
        return derive(secret, "next", self.commitment, self.context, method)


def _generation(own: Secrets, shared: bytes, commitment: str, context: str) -> Generation:
    """The keys of a generation of secrets, under the commitment of their run."""

    def key(client: int) -> bytes:
        if client not in own:
            raise EvidenceError(f"the secret of client {client}, with which its stages drew, was destroyed by a prune")
        return derive(own[client], "stages", commitment, context)

    return Generation(key, derive(shared, "stages", commitment, context))
