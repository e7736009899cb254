"""Lots: who is with whom behind sums, drawn in each round under a key that all its clients make together.

Each client has a hash chain (:mod:`fuaudit.draws.chains`) whose last element follows from her first secret. Its end
stands in her node of the contents, so the commitment fixes all contributions at once. Round r of generation g, each of
R rounds, uses element g R + r. What a client reveals in a round tells earlier contributions alone, so who knows it
cannot tell in which buffer anybody will be later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fuaudit.commitments.keys import derive
from fuaudit.draws.chains import Chain, back, lot_key
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import canonical_json


def chain_length(rounds: int, requests: int) -> int:
    """How many contributions a chain has: one for each round of training, and of every request there is room for."""
    return rounds * (requests + 1)


def chain_end(secret: bytes, length: int) -> bytes:
    """The end, 32 bytes, of the chain that follows from a client's first secret; a hash an element."""
    return back(_last(secret), length)


def _last(secret: bytes) -> bytes:
    return derive(secret, "lot")


def context_of(commitment: str, context: str) -> str:
    """What parties sign beside all that they send: which run it is for, and which generation; 64 hexadecimal digits."""
    return sha256(canonical_json([commitment, context]))


@dataclass(frozen=True)
class Lots:
    """The contributions of clients whose secrets are at hand.

    Attributes:
        secrets: client id -> its first secret, of which a prune leaves those of retained clients.
        rounds: R, of a generation.
        requests: how many generations there can be after training.
    """

    secrets: Mapping[int, bytes] = field(repr=False)
    rounds: int
    requests: int

    @cached_property
    def _chains(self) -> dict[int, Chain]:
        return {}

    def chain(self, client: int) -> Chain:
        """The chain of a client, made when it is asked for first. EvidenceError where a prune destroyed its secret."""
        if client not in self._chains:
            if client not in self.secrets:
                raise EvidenceError(
                    f"the secret of client {client}, by which it contributes to lots, was destroyed by a prune"
                )
            self._chains[client] = Chain(_last(self.secrets[client]), chain_length(self.rounds, self.requests))
        return self._chains[client]

    def contribution(self, client: int, generation: int, number: int) -> bytes:
        """What a client reveals in a round, from 1, of a generation, from 0: 32 bytes.

        Raises:
            EvidenceError: a prune destroyed the client's secret.
            UsageError: generations have fewer rounds: the element would be one of the next generation.
        """
        if not 1 <= number <= self.rounds:
            raise UsageError(
                f"round {number} has no lot: clients committed to contributions for {self.rounds} rounds after each "
                "request",
                f"A method that trains further behind sums has rounds 1 to {self.rounds}: ask it for fewer.",
            )
        return self.chain(client).element(generation * self.rounds + number)

    def key(self, commitment: str, context: str, generation: int, number: int, clients: Sequence[int]) -> bytes:
        """The key of what some distinct clients draw together in a round; see :func:`~fuaudit.draws.chains.lot_key`."""
        given = {client: self.contribution(client, generation, number) for client in clients}
        return lot_key(commitment, context, number, given)
