"""Keys and the commitment: who could have chosen which random numbers, and when.

A training run derives three keys from its master secret: the root of a tree of seeds, from which all draws of the run
and of every child of it are made; the key that deals the partition; the root of the salts of its contents. It publishes
one commitment before it starts: to the tree, the partition, the config and the contents. A lineage has no other one.
The draws of a child follow from the tree and the requests so far alone, so for a given request nobody can try keys
until they like the outcome. What is not given can still be tried: decoy requests before the real one, for each changes
the draws of all that follow, and the round at which training is said to have stopped. The order of requests and that
round have to be published as they happen.

A secret can be ground before it is committed to. Who mixes in a *beacon*, something unforeseeable that was published
after the commitment, cannot have done so: the beacon bears on all draws, and on nothing that is committed to. The
commitment says whether one is to come. Else whoever committed to none could try beacons until he likes the draws, at
any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from fuaudit.draws import Seeds
from fuaudit.draws.keyed import derive as derive
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.schema import is_beacon
from fuaudit.plans.population import Population, Request, named_twice

KEY_BYTES = 32
NO_BEACON, BEACON_TO_COME = "none", "to come"
"""What a commitment says of the beacon."""


def digest_of_key(key: bytes) -> str:
    """SHA-256 of a key, in hexadecimal: all that is published of it."""
    return hashlib.sha256(b"fuaudit key" + key).hexdigest()


def digest_of_request(request: Request, original: Population) -> str:
    """SHA-256 of what is to be forgotten and nothing else, so that no free field can steer the child's draws.

    A sample is its client and its place among the client's samples when training started. The commitment binds both.
    The sample's id it does not bind: once the row is gone nobody can open its leaf, and another id could be tried.

    Raises:
        EvidenceError: the request names a sample that nobody had, or that goes with its client anyway: one wish would
            have many digests.
    """
    if unknown := [sample for sample in request.samples if sample not in original.owner]:
        raise EvidenceError(f"a request names sample {unknown[0]}, which no client had when training started")
    if twice := named_twice(request, original):
        raise EvidenceError(f"a request names client {original.owner[twice[0]]}, and sample {twice[0]} of hers besides")
    owned = [(client := original.owner[sample], original.samples[client].index(sample)) for sample in request.samples]
    places = ",".join(f"{client}:{place}" for client, place in sorted(owned))
    return hashlib.sha256(f"clients {','.join(map(str, request.clients))} samples {places}".encode()).hexdigest()


def beacon_of(text: str) -> str:
    """A beacon as runs record it; UsageError for what can be none."""
    value = text.strip().lower()
    if not is_beacon(value):
        raise UsageError("a beacon has 16 to 64 bytes, in hexadecimal digits")
    return value


def promised(beacon: str | None) -> str:
    """What the commitment of a run with this beacon says of it."""
    return NO_BEACON if beacon is None else BEACON_TO_COME


def first_context(beacon: str | None) -> str:
    """What the draws of training depend on besides the tree: nothing, or the beacon."""
    return "" if beacon is None else hashlib.sha256(f"fuaudit beacon {beacon}".encode()).hexdigest()


def next_context(context: str, request: Request, original: Population) -> str:
    """What the draws for a request depend on besides the tree, from that of the generation before."""
    return hashlib.sha256(f"fuaudit context {context} {digest_of_request(request, original)}".encode()).hexdigest()


def contexts(first: str, requests: Iterable[Request], original: Population) -> tuple[str, ...]:
    """The contexts of training, which is the ``first``, and of every request so far.

    ``original`` is the population of training.
    """
    after = partial(next_context, original=original)
    return tuple(accumulate(requests, after, initial=first))


def commitment(partition: str, seeds: str, config: str, contents: str, beacon: str) -> str:
    """The published commitment of a lineage.

    Args:
        partition: the digest of the key that dealt the partition.
        seeds: the root of the tree of seeds.
        config: SHA-256 of ``config.toml``.
        contents: the root of the contents, which tell who owns what.
        beacon: whether one is to come: ``NO_BEACON`` or ``BEACON_TO_COME``.
    """
    covered = f"fuaudit commitment {partition} {seeds} {config} {contents} {beacon}"
    return hashlib.sha256(covered.encode()).hexdigest()


@dataclass(frozen=True)
class Keys:
    """What ``keys.json`` holds: the keys of a lineage, as far as no prune destroyed them. Never shown in ``repr``.

    Attributes:
        seeds: the tree from which all draws are made.
        partition: the key that dealt the partition; None after a prune, for it gives the ids of erased rows back.
        partition_digest: its digest.
    """

    seeds: Seeds = field(repr=False)
    partition: bytes | None = field(repr=False)
    partition_digest: str

    @classmethod
    def of_secret(cls, secret: bytes, leaves: int) -> Keys:
        """The keys of a training run from its master secret of 32 bytes, with a tree of so many leaves."""
        partition = partition_key(secret)
        tree = Seeds.of(derive(secret, "draws"), leaves)
        return cls(tree, partition, digest_of_key(partition))

    def as_table(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seeds": self.seeds.as_rows(),
            "partition": self.partition and self.partition.hex(),
            "partition_digest": self.partition_digest,
        }

    @classmethod
    def of_table(cls, table: Mapping[str, Any], path: Path) -> Keys:
        """The inverse of :meth:`as_table`, for a table of its shape from the file at ``path``.

        Raises:
            EvidenceError: the rows are no tree, or the key has another digest.
        """
        try:
            seeds = Seeds.of_rows(table["seeds"])
        except EvidenceError as error:
            raise EvidenceError(f"{path}: {error}") from None
        partition = table["partition"] and bytes.fromhex(table["partition"])
        if partition is not None and digest_of_key(partition) != table["partition_digest"]:
            raise EvidenceError(f"{path}: the key of the partition does not have its digest")
        return cls(seeds, partition, table["partition_digest"])

    def committed(self, config: str, beacon: str) -> dict[str, str]:
        """All that :func:`commitment` covers but the contents; ``config`` is the digest of its file."""
        return {"partition": self.partition_digest, "seeds": self.seeds.root, "config": config, "beacon": beacon}


def partition_key(secret: bytes) -> bytes:
    """The key that deals the partition, from the master secret. UsageError when that does not have 32 bytes."""
    if len(secret) != KEY_BYTES:
        raise UsageError(f"a master secret has {KEY_BYTES} bytes, this one has {len(secret)}")
    return derive(secret, "partition")
