"""View: what opens the commitment to the server, who has no key, no row, no name, and does not know who has how many.

The commitment covers the root of the contents, and that covers every client's node. A node is SHA-256 over her number,
how many rows she has, her salted name, the root over her rows, the digest of her secret, her public key and the end of
her chain, in this order. The server is given the state of SHA-256 after the first 64 bytes (:mod:`.blocks`) and the
rest: the end of the root over salted leaves, and what she signs with. Nobody can try numbers of rows against a state,
for the salted name is in its block. Which number a client has is not bound by it; her signatures have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fuaudit.commitments.blocks import BLOCK_BYTES, STATE_BYTES, digest_from
from fuaudit.commitments.contents import Contents, Signatories, contents_digest
from fuaudit.commitments.identities import PARTIES
from fuaudit.commitments.keys import Keys
from fuaudit.commitments.tree import DIGEST_BYTES, tree_root
from fuaudit.errors import EvidenceError

_ROOT_BYTES = 17
"""Of the root over a client's rows, behind the first block of her node."""

IDENTITY, LOT = slice(_ROOT_BYTES + 32, _ROOT_BYTES + 64), slice(_ROOT_BYTES + 64, _ROOT_BYTES + 96)
"""Where the rest of a node has them, where it has them: behind the digest of her secret."""


@dataclass(frozen=True)
class Node:
    """A client's node as the server is given it.

    Attributes:
        client: her number, as told.
        state: of SHA-256 after the first 64 bytes, 32 bytes.
        rest: what follows: 17 bytes and 32 for each of secret, identity and lot that she has.
    """

    client: int
    state: bytes
    rest: bytes

    @property
    def digest(self) -> bytes:
        """Her node, 32 bytes."""
        return digest_from(self.state, BLOCK_BYTES, self.rest)


@dataclass(frozen=True)
class View:
    """What opens a commitment to the server.

    Attributes:
        partition: the digest of the key that dealt the partition.
        seeds: the root of the tree of seeds.
        nodes: of the clients of training, ascending by their numbers.
        tests: how many test rows there are.
        test_root: the root over their leaves, 32 bytes.
        parties: the public keys of witness and key holder, 64 bytes; empty where nobody signs.
        contexts: what draws depended on after each request.
    """

    partition: str
    seeds: str
    nodes: tuple[Node, ...]
    tests: int
    test_root: bytes
    parties: bytes
    contexts: tuple[str, ...]

    @classmethod
    def of(cls, contents: Contents, keys: Keys, contexts: Sequence[str]) -> View:
        """That of what a run holds; ``contexts`` are those after its requests."""
        nodes = (Node(client, *contents.halves_of(client)) for client in contents.clients)
        tests = len(contents.tests), contents.test_root
        return cls(
            keys.partition_digest, keys.seeds.root, tuple(nodes), *tests, contents.party_keys, tuple(contexts)
        )  # fmt: skip

    @cached_property
    def root(self) -> str:
        """The root of the contents, in hexadecimal."""
        nodes = tree_root([node.digest for node in self.nodes])
        return contents_digest(len(self.nodes), self.tests, nodes, self.test_root, self.parties)

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients of training, ascending."""
        return tuple(node.client for node in self.nodes)

    @property
    def empty(self) -> tuple[int, ...]:
        """The clients who had no rows when training started: the root over none is known."""
        return tuple(node.client for node in self.nodes if not any(node.rest[:_ROOT_BYTES]))

    @property
    def signatories(self) -> Signatories:
        """Who signs."""
        identities, ends = (
            {node.client: node.rest[where] for node in self.nodes if len(node.rest) >= where.stop}
            for where in (IDENTITY, LOT)
        )
        return Signatories(identities, ends, tuple(_split(self.parties)))

    def table(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "partition_digest": self.partition,
            "seeds_digest": self.seeds,
            "clients": [[node.client, node.state.hex(), node.rest.hex()] for node in self.nodes],
            "tests": self.tests,
            "tests_digest": self.test_root.hex(),
            "parties": [key.hex() for key in _split(self.parties)],
            "contexts": [*self.contexts],
        }

    @classmethod
    def of_table(cls, table: Mapping[str, Any], signs: bool, lots: bool, secrets: bool, where: object) -> View:
        """The inverse of :meth:`table`, for a table of its shape from the file at ``where``.

        Raises:
            EvidenceError: clients do not ascend, or have other parts than those of a run in whose rounds clients have
                ``secrets``, sign, and cast ``lots``.
        """
        nodes = tuple(
            Node(client, bytes.fromhex(state), bytes.fromhex(rest)) for client, state, rest in table["clients"]
        )
        clients, due = [node.client for node in nodes], _ROOT_BYTES + DIGEST_BYTES * sum((secrets, signs, lots))
        if clients != sorted(set(clients)) or any(len(node.rest) != due for node in nodes):
            raise EvidenceError(f"{where} does not hold the clients of such a run, or what each committed to")
        if len(table["parties"]) != (len(PARTIES) if signs else 0):
            raise EvidenceError(f"{where} lacks the keys of witness and key holder, or has some where nobody signs")
        return cls(
            table["partition_digest"], table["seeds_digest"], nodes, table["tests"],
            bytes.fromhex(table["tests_digest"]), b"".join(map(bytes.fromhex, table["parties"])),
            tuple(table["contexts"]),
        )  # fmt: skip


def is_node(value: object) -> bool:
    """Whether a value of JSON has the shape of a node: a number, and two texts of hexadecimal digits."""
    if not (isinstance(value, list) and len(value) == 3 and type(value[0]) is int and value[0] >= 0):
        return False
    texts = [one for one in value[1:] if isinstance(one, str) and not set(one) - set("0123456789abcdef")]
    sizes = {2 * (_ROOT_BYTES + DIGEST_BYTES * parts) for parts in range(4)}
    return len(texts) == 2 and len(texts[0]) == 2 * STATE_BYTES and len(texts[1]) in sizes


def _split(keys: bytes) -> list[bytes]:
    return [keys[at : at + DIGEST_BYTES] for at in range(0, len(keys), DIGEST_BYTES)]
