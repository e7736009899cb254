"""What clients' rows hold, committed to before training: a hash tree over salted digests.

A row's digest covers the type and shape of its input, its target, and the bytes that the reader gave, before scaling.
Its leaf covers a salt, its id and that digest. A client's node covers its id, its salted name, the number of its rows
and the root over their leaves; the root of all covers all clients and the test rows. Leaves, inner nodes, names,
clients and the root of all are hashed apart by a first byte; trees have the shape of :mod:`fuaudit.draws.seeds`.

Salts are the leaves of a tree of seeds, kept bare: no root of salts is asked for. A prune destroys those of what was
erased and leaves the digests of rows and names, so the root of all can still be computed, and no guess of an erased row
or name can be compared with what is left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.commitments.blocks import BLOCK_BYTES, state_after
from fuaudit.commitments.identities import PARTIES
from fuaudit.commitments.keys import derive
from fuaudit.commitments.tree import DIGEST_BYTES, tree_root
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import look_of
from fuaudit.draws.seeds import Seeds
from fuaudit.errors import EvidenceError
from fuaudit.plans import Population

if TYPE_CHECKING:
    from torch import Tensor

Digests = NDArray[np.uint8]
"""Digests one below the other, ``(n, 32)``."""

Names = Mapping[int, str]
"""Client id -> name; of erased clients none after a prune."""


def row_digests(inputs: Tensor, targets: Tensor, rows: Iterable[int] | None = None) -> list[bytes]:
    """Digests of rows of inputs ``(n, *shape)`` and targets ``(n,)``, of all or some, without salt: 32 bytes each."""
    array = inputs.detach().cpu().contiguous().numpy()
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    form = f"fuaudit row {array.dtype.name} {'x'.join(map(str, array.shape[1:]))}"
    size = int(np.prod(array.shape[1:])) * array.itemsize
    content = memoryview(array.reshape(-1).view(np.uint8).data)
    begun = {target: hashlib.sha256(f"{form} {target}\n".encode()) for target in targets.unique().tolist()}
    found, classes = [], targets.tolist()
    for row in range(len(classes)) if rows is None else rows:
        hasher = begun[classes[row]].copy()
        hasher.update(content[row * size : (row + 1) * size])
        found.append(hasher.digest())
    return found


def row_leaf(salt: bytes, row: int, digest: bytes) -> bytes:
    """The leaf of a row with an id: 32 bytes."""
    return hashlib.sha256(b"\0" + salt + row.to_bytes(8, "little") + digest).digest()


def name_digest(salt: bytes, name: str | None) -> bytes:
    """The salted digest of a name, or of that there is none, 32 bytes: the two are hashed apart."""
    return hashlib.sha256(b"\5" + salt if name is None else b"\2" + salt + name.encode()).digest()


_NODES = b"\3", b"\6", b"\7", b"\x08"
"""First bytes of a client's node: of her rows alone; with her secret; with her identity; with her chain."""


@dataclass(frozen=True)
class Own:
    """What a client's node covers beside her rows, 32 bytes each or none; whoever has one has those before it.

    Attributes:
        secret: the digest of her secret.
        identity: the public key that she signs with.
        lot: the end of the chain of her contributions to lots.

    Raises:
        EvidenceError: she lacks one and has a later one.
    """

    secret: bytes = b""
    identity: bytes = b""
    lot: bytes = b""

    def __post_init__(self) -> None:
        if (self.identity and not self.secret) or (self.lot and not self.identity):
            raise EvidenceError("a client has an identity without a secret, or a chain without an identity")

    def text(self, content: bytes) -> bytes:
        """What a node says of her rows, and of these: nodes with more and with less are hashed apart."""
        parts = [part for part in (self.secret, self.identity, self.lot) if part]
        return _NODES[len(parts)] + content + b"".join(parts)


def client_digest(client: int, name: bytes, rows: int, root: bytes, own: Own) -> bytes:
    """A client's node, from its id, its salted name, the number of its rows and the root over their leaves."""
    return hashlib.sha256(client_text(client, name, rows, root, own)).digest()


def client_text(client: int, name: bytes, rows: int, root: bytes, own: Own) -> bytes:
    """What a client's node is the digest of."""
    numbers = client.to_bytes(8, "little") + rows.to_bytes(8, "little")
    return own.text(numbers + name + root)


def contents_digest(clients: int, tests: int, root: bytes, test_root: bytes, parties: bytes = b"") -> str:
    """The root of all, in hexadecimal: from how many clients and test rows there are, and the roots over them.

    ``parties``: the public keys of those who sign and are no clients, where there are some.
    """
    numbers = clients.to_bytes(8, "little") + tests.to_bytes(8, "little")
    return hashlib.sha256((b"\x09" if parties else b"\4") + numbers + root + test_root + parties).hexdigest()


@dataclass(frozen=True)
class Signatories:
    """Who signs in rounds, by what was committed to.

    Attributes:
        identities: client -> her public key, 32 bytes; empty where the server sees rows.
        ends: client -> the end of the chain of her contributions, 32 bytes; empty where no lots are drawn.
        parties: the public keys of witness and key holder, 32 bytes each; empty where nobody signs.
    """

    identities: Mapping[int, bytes]
    ends: Mapping[int, bytes]
    parties: tuple[bytes, ...]


def _split(digests: Digests) -> list[bytes]:
    content = digests.tobytes()
    return [content[at : at + DIGEST_BYTES] for at in range(0, len(content), DIGEST_BYTES)]


@dataclass(frozen=True)
class Contents:
    """The leaves of what was committed to; they never change.

    Attributes:
        clients: the ids of the clients of the training run, ascending ``(M,)``.
        sizes: how many rows each had, ``(M,)``.
        names: salted digests of their names, ``(M, 32)``.
        rows: leaves of their rows, client by client and in ascending ids, ``(N, 32)``.
        tests: leaves of the test rows, ``(T, 32)``.
        secrets: digests of the clients' secrets, ``(M, 32)``; None where they have none.
        identities: the public keys that clients sign with, ``(M, 32)``; None where the server sees rows.
        lots: the ends of the chains of their contributions, ``(M, 32)``; None where no lot says who is in which sum.
        parties: the public keys of witness and key holder, ``(2, 32)``; there where identities are.
    """

    clients: tuple[int, ...]
    sizes: tuple[int, ...]
    names: Digests
    rows: Digests
    tests: Digests
    secrets: Digests | None = None
    identities: Digests | None = None
    lots: Digests | None = None
    parties: Digests | None = None

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Where the rows of each client end; they begin where those before end."""
        return tuple(accumulate(self.sizes))

    @cached_property
    def _rank(self) -> dict[int, int]:
        return {client: rank for rank, client in enumerate(self.clients)}

    def rank(self, client: int) -> int:
        """The place of a client, from 0. EvidenceError where nothing was committed to for it."""
        if client not in self._rank:
            raise EvidenceError(f"nothing was committed to for client {client}")
        return self._rank[client]

    def leaves_of(self, client: int) -> list[bytes]:
        """The leaves of a client's rows, erased or not, in ascending ids."""
        rank = self.rank(client)
        return _split(self.rows[self.ends[rank] - self.sizes[rank] : self.ends[rank]])

    def opened(self, client: int, rows: Sequence[int], opening: Opening) -> dict[int, tuple[bytes | None, bytes]]:
        """Row id -> salt and leaf of a client with these rows at training, ascending.

        Nothing where other rows, or another client, were committed to.
        """
        if client not in self._rank or len(rows) != self.sizes[self.rank(client)]:
            return {}
        where = self.salts_of(client)
        salts = opening.salts.between(where.start + 1, where.stop)
        return dict(zip(rows, zip(salts, self.leaves_of(client), strict=True), strict=True))

    @cached_property
    def nodes(self) -> list[bytes]:
        """The node of every client, ``(M,)``."""
        names = _split(self.names)
        return [
            client_digest(client, names[rank], self.sizes[rank], tree_root(self.leaves_of(client)), self.own_of(client))
            for rank, client in enumerate(self.clients)
        ]

    def halves_of(self, client: int) -> tuple[bytes, bytes]:
        """The state of SHA-256 after the first 64 bytes of what a client's node is of, and what follows these."""
        rank = self.rank(client)
        root = tree_root(self.leaves_of(client))
        text = client_text(client, self.names[rank].tobytes(), self.sizes[rank], root, self.own_of(client))
        return state_after(text[:BLOCK_BYTES]), text[BLOCK_BYTES:]

    def own_of(self, client: int) -> Own:
        """What the node of a client covers beside her rows."""
        rank = self.rank(client)
        return Own(*(b"" if table is None else table[rank].tobytes() for table in self._own))

    @property
    def _own(self) -> tuple[Digests | None, ...]:
        """The tables of what nodes cover beside rows, as :class:`Own` has them."""
        return self.secrets, self.identities, self.lots

    @property
    def signatories(self) -> Signatories:
        """Who signs."""
        identities, lots = (
            {} if table is None else dict(zip(self.clients, _split(table), strict=True))
            for table in (self.identities, self.lots)
        )
        return Signatories(identities, lots, () if self.parties is None else tuple(_split(self.parties)))

    @property
    def party_keys(self) -> bytes:
        """The public keys of witness and key holder, one behind the other; empty where nobody signs."""
        return b"" if self.parties is None else self.parties.tobytes()

    @cached_property
    def test_root(self) -> bytes:
        """The root over the leaves of the test rows."""
        return tree_root(_split(self.tests))

    @cached_property
    def root(self) -> str:
        """The root of all, which the commitment covers, in hexadecimal."""
        own = tree_root(self.nodes), self.test_root, self.party_keys
        return contents_digest(len(self.clients), len(self.tests), *own)

    @property
    def salts(self) -> int:
        """How many salts there are: one a client for its name, one a row, one a test row."""
        return len(self.clients) + len(self.rows) + len(self.tests)

    def salts_of(self, client: int) -> range:
        """The salts of a client: first that of its name, then those of its rows in ascending ids."""
        rank = self.rank(client)
        first = rank + self.ends[rank] - self.sizes[rank]
        return range(first, first + 1 + self.sizes[rank])

    @property
    def salts_of_tests(self) -> range:
        """The salts of the test rows."""
        return range(self.salts - len(self.tests), self.salts)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """``contents.safetensors``."""
        tables: dict[str, NDArray[Any]] = {
            "clients": np.array(self.clients, dtype=np.int64),
            "ends": np.array(self.ends, dtype=np.int64),
            "names": self.names,
            "rows": self.rows,
            "tests": self.tests,
        }
        more = zip(MORE, (*self._own, self.parties), strict=True)
        return tables | {name: table for name, table in more if table is not None}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, NDArray[Any]], where: object) -> Contents:
        """The inverse of :meth:`tensors`, for tensors of its names and kinds; EvidenceError where they do not fit."""
        names, rows, tests, *more = [tensors.get(name) for name in ("names", "rows", "tests", *MORE)]
        *own, parties = more
        tables = [table for table in (names, rows, tests, *more) if table is not None]
        if names is None or rows is None or tests is None or any(t.shape[1:] != (DIGEST_BYTES,) for t in tables):
            raise EvidenceError(f"{where} does not hold the leaves of contents")
        if (parties is None) != (own[1] is None) or (parties is not None and len(parties) != len(PARTIES)):
            raise EvidenceError(f"{where} holds identities of clients, or of witness and key holder, but not both")
        clients, ends = tensors["clients"].tolist(), tensors["ends"].tolist()
        bounds = [0, *ends]
        if (
            clients != sorted(set(clients))
            or min(clients, default=0) < 0
            or bounds != sorted(bounds)
            or any(len(table) != len(clients) for table in (ends, names, *own) if table is not None)
            or bounds[-1] != len(rows)
        ):
            raise EvidenceError(f"{where}: clients, ends and leaves do not fit together")
        sizes = tuple(b - a for a, b in zip(bounds, ends, strict=False))
        return cls(tuple(clients), sizes, names, rows, tests, *more)


MORE = "secrets", "identities", "lots", "parties"
"""Tensors that not all contents have."""

APART = {"names": None, "salts": None}
"""``clients.json`` where names and salts lie with the clients' secrets."""


@dataclass(frozen=True)
class Opening:
    """What opens the leaves: names of clients, and salts. ``names`` is None where ids are the names."""

    names: Names | None
    salts: Seeds

    def name(self, client: int) -> str | None:
        """The name of a client; None where a prune dropped it."""
        return str(client) if self.names is None else self.names.get(client)

    def table(self) -> dict[str, Any]:
        """For JSON."""
        names = None if self.names is None else {str(client): name for client, name in sorted(self.names.items())}
        return {"names": names, "salts": self.salts.as_rows()}

    @classmethod
    def of_table(cls, table: Mapping[str, Any], where: object) -> Opening:
        """The inverse of :meth:`table`, for a table of its shape from the file at ``where``.

        Raises:
            EvidenceError: salts are no tree, or one that is not bare; or two clients have one name.
        """
        names, salts = table["names"], Seeds.of_rows(table["salts"])
        if salts != salts.bare:
            raise EvidenceError(f"{where} holds more of salts that are gone than zeros")
        if names is None:
            return cls(None, salts)
        if len(set(map(look_of, names.values()))) != len(names):
            raise EvidenceError(f"{where}: two clients have one name")
        return cls({int(key): name for key, name in names.items()}, salts)

    def without(self, contents: Contents, kept: Population, before: Mapping[int, Sequence[int]]) -> Opening:
        """What is left after a prune: names of the clients that are ``kept``, and salts of them and of their rows.

        ``before``: the ids of every kept client's rows at training, ascending. Nothing else of the rest stays.
        """
        names = None if self.names is None else {c: name for c, name in self.names.items() if c in kept.samples}
        return Opening(names, self.salts.keeping(salts_for(contents, kept, before)).bare)

    def is_whole(self, contents: Contents) -> bool:
        """Whether all names and salts are there, as in a run of which nothing was pruned.

        Salts are one seed then, as they were made: a tree that is split holds salts of erased rows that nothing opens.
        """
        named = self.names is None or self.names.keys() == set(contents.clients)
        return named and len(self.salts.parts) == 1 and self.salts.holds_just([range(contents.salts)])

    def is_that_of(self, contents: Contents, kept: Population, before: Mapping[int, Sequence[int]]) -> bool:
        """Whether names and salts are those of the clients and rows that are ``kept``: none is missing or surplus."""
        named = self.names is None or self.names.keys() == set(kept.clients)
        return named and self.salts.holds_just(salts_for(contents, kept, before))


def salts_for(contents: Contents, kept: Population, before: Mapping[int, Sequence[int]]) -> list[range]:
    """The salts that a run must hold, and no others: of names and rows that are ``kept``, and of test rows.

    Without a prune all clients and rows are kept; after one those of the population that it left. ``before``: see
    :meth:`Opening.without`.
    """
    ranges = [contents.salts_of_tests]
    for client in kept.clients:
        salts, rows = contents.salts_of(client), set(kept.samples[client])
        ranges.append(salts[:1])
        ranges += [salts[place : place + 1] for place, row in enumerate(before[client], 1) if row in rows]
    return ranges


@dataclass(frozen=True)
class Committed:
    """What clients commit to beside rows, 32 bytes each, in ascending ids; empty where they have none.

    Attributes:
        secrets, identities, lots: see :class:`Own`.
        parties: the public keys of witness and key holder.
    """

    secrets: Sequence[bytes] = ()
    identities: Sequence[bytes] = ()
    lots: Sequence[bytes] = ()
    parties: Sequence[bytes] = ()

    @property
    def tables(self) -> list[Digests | None]:
        """As :class:`Contents` has them."""
        every = self.secrets, self.identities, self.lots, self.parties
        return [_joined(digests) if digests else None for digests in every]


def commit(
    dataset: Dataset, population: Population, names: Names | None, secret: bytes, committed: Committed
) -> tuple[Contents, Opening]:
    """The leaves of what clients hold and of the test rows, under salts of a master secret; and what opens them."""
    count = len(population.clients) + population.size + len(dataset.test_targets)
    opening = Opening(names, Seeds.of(derive(secret, "salts"), count))
    return commit_under(dataset, population, opening, committed), opening


def commit_under(dataset: Dataset, population: Population, opening: Opening, committed: Committed) -> Contents:
    """The leaves of what clients hold and of the test rows, under names and salts that are there, all of them."""
    clients, names = population.clients, opening.names
    sizes = tuple(len(population.samples[client]) for client in clients)
    salts = [salt or b"" for salt in opening.salts.between(0, opening.salts.size)]
    digests = _digests_by_id(dataset, [row for client in clients for row in population.samples[client]])
    named, rows, place = list[bytes](), list[bytes](), 0
    for client in clients:
        named.append(name_digest(salts[place], None if names is None else names[client]))
        own = sorted(population.samples[client])
        rows += [row_leaf(salts[place + number], row, digests[row]) for number, row in enumerate(own, 1)]
        place += 1 + len(own)
    tests = [
        row_leaf(salts[place + row], row, digest)
        for row, digest in enumerate(row_digests(dataset.test_inputs, dataset.test_targets))
    ]
    leaves = _joined(named), _joined(rows), _joined(tests)
    return Contents(clients, sizes, *leaves, *committed.tables)


def _joined(digests: Iterable[bytes]) -> Digests:
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def _digests_by_id(dataset: Dataset, rows: Sequence[int]) -> dict[int, bytes]:
    """The digests of some rows by their ids."""
    return dict(zip(rows, row_digests(dataset.inputs, dataset.targets, rows), strict=True))


@dataclass(frozen=True)
class Differences:
    """Where rows at hand are not those that were committed to.

    Attributes:
        rows: ids of retained rows with other contents, by client; also those without a leaf, or whose salt is gone.
        absent: ids of retained rows that are not at hand, by client.
        tests: numbers of test rows with other contents; all of them where there are more or fewer.
    """

    rows: Mapping[int, tuple[int, ...]]
    absent: Mapping[int, tuple[int, ...]]
    tests: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.rows or self.absent or self.tests)

    @property
    def contradict(self) -> bool:
        """Whether something at hand is other than what was committed to; what is absent contradicts nothing."""
        return bool(self.rows or self.tests)


def compare(
    contents: Contents, opening: Opening, kept: Population, before: Mapping[int, Sequence[int]], dataset: Dataset
) -> Differences:
    """Compare rows at hand with leaves.

    Args:
        kept: the rows to compare, by client.
        before: the ids of every kept client's rows at training, ascending, which tell where the leaf of a row lies.
    """
    wanted, size = [row for client in kept.clients for row in kept.samples[client]], dataset.size
    at_hand = [row for row in wanted if row < size and row not in dataset.absent]
    digests = _digests_by_id(dataset, at_hand)
    other, absent = dict[int, tuple[int, ...]](), dict[int, tuple[int, ...]]()
    for client in kept.clients:
        leaves = contents.opened(client, before[client], opening)
        own = sorted(kept.samples[client])
        if missing := tuple(row for row in own if row not in digests):
            absent[client] = missing
        found = [row for row in own if row in digests]
        if wrong := tuple(row for row in found if row not in leaves or not _opens(*leaves[row], row, digests[row])):
            other[client] = wrong
    return Differences(other, absent, _other_tests(contents, opening, dataset))


@dataclass(frozen=True)
class Candidate:
    """A row at hand that may be the one that a leaf was made of, and the salts that are left of it."""

    row: int
    leaf: bytes
    salts: tuple[bytes | None, ...]


def committed(candidates: Sequence[Candidate], dataset: Dataset) -> list[bool | None]:
    """Whether each row at hand is the one that was committed to; None where there is no salt to tell it by.

    Only a leaf that opens is sure: salts are not committed to, so one that does not open a leaf may be a wrong one.
    """
    digests = _digests_by_id(dataset, sorted({candidate.row for candidate in candidates}))
    return [
        any(_opens(salt, candidate.leaf, candidate.row, digests[candidate.row]) for salt in candidate.salts)
        if any(salt is not None for salt in candidate.salts)
        else None
        for candidate in candidates
    ]


def found_under(row: int, salt: bytes | None, leaf: bytes, ids: Sequence[int], dataset: Dataset) -> int | None:
    """The first of some ids at hand under which lies what a leaf was made of for a row; None for none."""
    digests = _digests_by_id(dataset, ids)
    return next((place for place in ids if _opens(salt, leaf, row, digests[place])), None)


def _opens(salt: bytes | None, leaf: bytes, row: int, digest: bytes) -> bool:
    return salt is not None and row_leaf(salt, row, digest) == leaf


def _other_tests(contents: Contents, opening: Opening, dataset: Dataset) -> tuple[int, ...]:
    found = row_digests(dataset.test_inputs, dataset.test_targets)
    leaves = _split(contents.tests)
    if len(found) != len(leaves):
        return tuple(range(max(len(found), len(leaves))))
    where = contents.salts_of_tests
    salts = opening.salts.between(where.start, where.stop)
    opened = enumerate(zip(salts, leaves, found, strict=True))
    return tuple(row for row, (salt, leaf, digest) in opened if not _opens(salt, leaf, row, digest))


def require_opening(contents: Contents, opening: Opening, where: object) -> None:
    """Raises EvidenceError unless there are as many salts as leaves, and every salt of a name opens its digest.

    A client has either both name and salt or, after a prune, neither. Without names the digest says so.
    Which clients must have them, :func:`salts_for` says.
    """
    if opening.salts.size != contents.salts:
        raise EvidenceError(f"{where} has {opening.salts.size} salts for {contents.salts} leaves")
    if opening.names is not None and not opening.names.keys() <= set(contents.clients):
        raise EvidenceError(f"{where} names a client that nothing was committed to for")
    for client, digest in zip(contents.clients, _split(contents.names), strict=True):
        (salt,) = opening.salts.between(contents.salts_of(client)[0], contents.salts_of(client)[0] + 1)
        name = None if opening.names is None else opening.names.get(client)
        if opening.names is not None and (name is None) != (salt is None):
            raise EvidenceError(f"{where} holds the name of client {client} or its salt, but not both")
        if salt is not None and name_digest(salt, name) != digest:
            raise EvidenceError(f"{where}: {name!r} is not the name that client {client} was committed to under")
