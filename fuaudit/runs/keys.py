"""Keys and commitments: who could have chosen which random numbers, and when.

A run holds two keys of 32 bytes: ``draws`` makes its random numbers, ``children`` makes the keys of the runs
that unlearning writes. Training publishes a hash of both before it starts. A child's keys follow from the
parent's ``children`` key, its commitment and the digest of the request alone, so for a given parent and request
nobody can try keys until they like the outcome. What is not given can still be tried: decoy requests before the
real one, for each changes the key of the next child, and the round at which training is said to have stopped. The
order of requests and that round have to be published as they happen.

The two keys are independent: ``draws`` can be destroyed (an old key over the old population gives every erased
draw back) while the chain of children stays checkable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from fuaudit.draws import Purpose
from fuaudit.draws.keyed import philox_key
from fuaudit.errors import UsageError
from fuaudit.plans.population import Request

KEY_BYTES = 32


def derive(key: bytes, label: str, *parts: str) -> bytes:
    """A key of 32 bytes from another: BLAKE2b keyed by ``key`` over length-prefixed text."""
    hasher = hashlib.blake2b(key=key, digest_size=KEY_BYTES, person=b"fuaudit keys")
    for text in (label, *parts):
        data = text.encode()
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.digest()


def digest_of_key(key: bytes) -> str:
    """SHA-256 of a key, in hexadecimal: all that is published of it."""
    return hashlib.sha256(b"fuaudit key" + key).hexdigest()


def digest_of_request(request: Request) -> str:
    """SHA-256 of what is to be forgotten and nothing else, so that no free field can steer the child's key."""
    text = f"clients {','.join(map(str, request.clients))} samples {','.join(map(str, request.samples))}"
    return hashlib.sha256(text.encode()).hexdigest()


def initial_key(draws: bytes) -> bytes:
    """What makes the initial draw and nothing else: the Philox key of that purpose, 16 bytes, one-way in ``draws``."""
    first, second = philox_key(draws, Purpose.INIT)
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")


def leaf(client: int, samples: tuple[int, ...]) -> str:
    """SHA-256 of who a client was when training started: its id and those of its samples."""
    return hashlib.sha256(f"fuaudit client {client} samples {','.join(map(str, samples))}".encode()).hexdigest()


def digest_of_partition(leaves: Mapping[int, str]) -> str:
    """The digest of a partition, from one leaf a client.

    From leaves and not from the file, so that a prune can take an erased client out, keep its leaf, and leave the
    others bound to what was committed to.
    """
    text = "".join(f"{client} {digest}\n" for client, digest in sorted(leaves.items()))
    return hashlib.sha256(b"fuaudit partition\n" + text.encode()).hexdigest()


def commitment(draws: str, children: str, initial: str, config: str, partition: str) -> str:
    """The published commitment of a run, from SHA-256 digests of its keys, its config and its partition.

    Config and partition are part of it, so that neither can be chosen again after the draws are known.
    """
    text = f"fuaudit commitment {draws} {children} {initial} {config} {partition}"
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class RunKeys:
    """The two keys of a run; never shown in ``repr``."""

    draws: bytes = field(repr=False)
    children: bytes = field(repr=False)

    @classmethod
    def of_secret(cls, secret: bytes) -> RunKeys:
        """The keys of a training run from its master secret of 32 bytes."""
        if len(secret) != KEY_BYTES:
            raise UsageError(f"a master secret has {KEY_BYTES} bytes, this one has {len(secret)}")
        return cls(derive(secret, "draws"), derive(secret, "children"))

    def child(self, parent: str, request: Request) -> RunKeys:
        """The keys of the run that carries out ``request`` on the run with the commitment ``parent``.

        The commitment, not the digest of the folder: it is fixed before training, so that nothing that is
        written later can steer the child's draws.
        """
        parts = parent, digest_of_request(request)
        return RunKeys(derive(self.children, "child draws", *parts), derive(self.children, "child children", *parts))

    def commitment(self, config: str, partition: str) -> str:
        """See :func:`commitment`; ``config`` is a digest of its file, ``partition`` of :func:`digest_of_partition`."""
        return commitment(
            digest_of_key(self.draws),
            digest_of_key(self.children),
            digest_of_key(initial_key(self.draws)),
            config,
            partition,
        )
