"""Receipts: what a client keeps in order to show later which of her rows a commitment covers.

A receipt holds her name and ids, the salts and leaves of her rows, and the way from her node to the commitment. Made
while the run still has them; a prune drops them from the run. Whoever has a receipt and the rows can check both. A
receipt without the rows tells nobody what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuaudit.commitments.contents import (
    Own,
    client_digest,
    contents_digest,
    name_digest,
    row_digests,
    row_leaf,
)
from fuaudit.commitments.identities import PARTIES, public_key
from fuaudit.commitments.keys import BEACON_TO_COME, NO_BEACON, commitment
from fuaudit.commitments.lots import chain_end, chain_length
from fuaudit.commitments.secrets import MADE, secret_digest
from fuaudit.commitments.tree import root_over, tree_path, tree_root
from fuaudit.config import parse_toml
from fuaudit.data.adversaries import clients_of, turned
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import is_name
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import read_bytes, sha256
from fuaudit.formats.forms import MAX_JSON_BYTES, parse_pretty, pretty_json
from fuaudit.formats.schema import is_count, is_digest
from fuaudit.registry import build
from fuaudit.runs.layout import CONFIG
from fuaudit.runs.run import Run

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "fuaudit receipt 1"
_FIELDS = {
    *("format", "commitment", "committed", "client", "name", "salt", "rows", "place", "clients", "path", "tests"),
    *("test_root", "config"),
}
_OWN = "secret", "identity", "lot"
"""What not all receipts have, as :class:`~fuaudit.commitments.contents.Own` names it."""


@dataclass(frozen=True)
class Row:
    """A row of hers: its id, its salt and its leaf."""

    id: int
    salt: bytes = field(repr=False)
    leaf: bytes

    def holds(self, digest: bytes) -> bool:
        """Whether a row with this digest is what the leaf is about."""
        return row_leaf(self.salt, self.id, digest) == self.leaf


@dataclass(frozen=True)
class Receipt:
    """A client's receipt. Opening it compares her id, her name and her leaves with the commitment that it names.

    The commitment covers neither ids nor salts of rows but through leaves, which only her rows open: a forged receipt
    may give others, under which no row fits. Whoever compares rows by a receipt takes it on trust that they are hers;
    :func:`check` with her rows shows it.

    Attributes:
        commitment: of the training run, in hexadecimal.
        committed: what else the commitment covers, by name.
        client, name, salt: her id, her name (None where clients have none), and the salt of its digest.
        rows: in ascending ids.
        place, clients, path: where her node stands among so many, and what lies beside its way to the root.
        tests, test_root: how many test rows there are, and the root over their leaves.
        config: the config that was committed to, as TOML: it names the reader of such rows.
        own: the digest of her secret, the key that she signs with, and the end of her chain, where clients have some.
        parties: the public keys of witness and key holder, one behind the other, where clients sign.

    Raises:
        EvidenceError: it does not open to its commitment.
    """

    commitment: str
    committed: Mapping[str, str]
    client: int
    name: str | None
    salt: bytes = field(repr=False)
    rows: tuple[Row, ...]
    place: int
    clients: int
    path: tuple[bytes, ...]
    tests: int
    test_root: bytes
    config: str
    own: Own = field(default_factory=Own)
    parties: bytes = b""

    def __post_init__(self) -> None:
        name, rows = name_digest(self.salt, self.name), tree_root([row.leaf for row in self.rows])
        node = client_digest(self.client, name, len(self.rows), rows, self.own)
        root = root_over(node, self.place, self.clients, self.path)
        contents = contents_digest(self.clients, self.tests, root, self.test_root, self.parties)
        try:
            found = commitment(**self.committed, contents=contents)
        except TypeError:
            raise EvidenceError("the receipt does not name what its commitment covers") from None
        if found != self.commitment:
            raise EvidenceError(f"the receipt of {self.whose!r} does not open to the commitment that it names")
        if sha256(self.config.encode()) != self.committed["config"]:
            raise EvidenceError(f"the receipt of {self.whose!r} holds another config than was committed to")

    @property
    def data(self) -> dict[str, Any]:
        """The table ``data`` of the config: which reader reads such rows."""
        table: dict[str, Any] = parse_toml(self.config)["data"]
        return table

    @property
    def adversaries(self) -> list[dict[str, Any]]:
        """The tables of the config of adversaries that turned her rows before they were committed to."""
        tables: list[dict[str, Any]] = parse_toml(self.config).get("adversary", [])
        return [table for table in tables if self.client in clients_of(build("adversaries", table), table["use"])]

    @property
    def whose(self) -> str:
        """Her name, which is her id where clients have none."""
        return str(self.client) if self.name is None else self.name

    def table(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": FORMAT,
            "commitment": self.commitment,
            "committed": dict(self.committed),
            "client": self.client,
            "name": self.name,
            "salt": self.salt.hex(),
            "rows": [[row.id, row.salt.hex(), row.leaf.hex()] for row in self.rows],
            "place": self.place,
            "clients": self.clients,
            "path": [digest.hex() for digest in self.path],
            "tests": self.tests,
            "test_root": self.test_root.hex(),
            "config": self.config,
        } | {name: digest.hex() for name, digest in self._digests.items() if digest}

    @property
    def _digests(self) -> dict[str, bytes]:
        return {**{name: getattr(self.own, name) for name in _OWN}, "parties": self.parties}

    def content(self) -> bytes:
        """The file of a receipt."""
        return pretty_json(self.table())


def receipt_of(run: Run, client: int) -> Receipt:
    """The receipt of a client, from a run that still has her salts.

    Raises:
        UsageError: a prune has dropped her name or salts.
        EvidenceError: nothing was committed to for her.
    """
    contents, opening, committed = run.contents, run.opening, run.committed
    where = contents.salts_of(client)
    salt, *salts = opening.salts.between(where.start, where.stop)
    name = opening.name(client)
    if name is None or salt is None or None in salts:
        raise UsageError(
            f"what a receipt of client {client} needs was dropped by a prune", "Receipts are made before a prune."
        )
    rows = zip(run.numbered(client), salts, contents.leaves_of(client), strict=True)
    return Receipt(
        run.commitment,
        committed,
        client,
        None if opening.names is None else name,
        salt,
        tuple(Row(number, salt or b"", leaf) for number, salt, leaf in rows),
        contents.rank(client),
        len(contents.clients),
        tuple(tree_path(contents.nodes, contents.rank(client))),
        len(contents.tests),
        contents.test_root,
        run.read(CONFIG).decode(),
        contents.own_of(client),
        contents.party_keys,
    )


def opens_erased(receipt: Receipt, run: Run) -> bool:
    """Whether a receipt is of one whom a request of a run names, or of whom it names a sample."""
    clients = {client for request in run.requests for client in request.clients}
    samples = {sample for request in run.requests for sample in request.samples}
    return receipt.client in clients or not samples.isdisjoint(row.id for row in receipt.rows)


def read_receipt(path: Path) -> Receipt:
    """A receipt from its file.

    Raises:
        EvidenceError: it is none, is written in another way than receipts are, or does not open to its commitment.
    """
    content = read_bytes(path, MAX_JSON_BYTES)
    try:
        table = parse_pretty(content, path, FORMAT)
    except EvidenceError as error:
        raise EvidenceError(f"this is no receipt: {error}") from None
    try:
        if not isinstance(table, dict) or table.keys() - {*_OWN, "parties"} != _FIELDS or table["format"] != FORMAT:
            raise ValueError(f"it does not have the fields of {FORMAT!r}")
        committed, config = table["committed"], table["config"]
        if not isinstance(committed, dict) or committed.get("beacon") not in (NO_BEACON, BEACON_TO_COME):
            raise ValueError("committed does not say whether a beacon is to come")
        if not all(is_digest(value) for name, value in committed.items() if name != "beacon"):
            raise ValueError("committed holds no digests")
        adversaries = parse_toml(config).get("adversary", []) if isinstance(config, str) else None
        if not isinstance(adversaries, list) or not all(isinstance(one, dict) and "use" in one for one in adversaries):
            raise ValueError("its config holds no tables of adversaries where these stand")
        named = table["name"] is None or is_name(table["name"])
        if not isinstance(config, str) or not isinstance(parse_toml(config)["data"]["use"], str) or not named:
            raise ValueError("it names no reader, or no client")
        rows = tuple(Row(_count(number), _bytes(salt), _bytes(leaf)) for number, salt, leaf in table["rows"])
        if any(a.id >= b.id for a, b in pairwise(rows)):
            raise ValueError("its rows are not in the order of their ids")
        place, clients, path_up = _count(table["place"]), _count(table["clients"]), tuple(map(_bytes, table["path"]))
        if place >= clients:
            raise ValueError("it stands outside its tree")
        receipt = Receipt(
            _bytes(table["commitment"]).hex(),
            committed,
            _count(table["client"]),
            table["name"],
            _bytes(table["salt"]),
            rows,
            place,
            clients,
            path_up,
            _count(table["tests"]),
            _bytes(table["test_root"]),
            config,
            Own(*(_bytes(table[name]) if name in table else b"" for name in _OWN)),
            _keys_of_parties(table.get("parties", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EvidenceError(f"this is no receipt: {path}: {error}") from None
    return receipt


def _bytes(text: object) -> bytes:
    if not isinstance(text, str) or not is_digest(text):
        raise ValueError("a digest or salt does not have 64 hexadecimal digits")
    return bytes.fromhex(text)


def _keys_of_parties(text: object) -> bytes:
    """The keys of witness and key holder; nothing where there are none."""
    if text == "":
        return b""
    if not isinstance(text, str) or len(text) != 64 * len(PARTIES):
        raise ValueError("its keys of witness and key holder do not have 64 hexadecimal digits each")
    return b"".join(_bytes(text[at : at + 64]) for at in range(0, len(text), 64))


def _count(value: object) -> int:
    if not isinstance(value, int) or not is_count(value):
        raise ValueError("a number is no id or count")
    return value


@dataclass(frozen=True)
class Checked:
    """What a check of a receipt against rows found.

    Attributes:
        missing: ids of rows of the receipt that no row at hand fits.
        surplus: how many rows at hand fit no leaf of the receipt.
    """

    missing: tuple[int, ...]
    surplus: int


def check(receipt: Receipt, inputs: Tensor, targets: Tensor, absent: frozenset[int] = frozenset()) -> Checked:
    """Find the rows of a receipt among rows ``inputs (n, *shape)`` and ``targets (n,)``, in any order.

    A row is looked for at its own id first, then everywhere: that costs a hash a row at hand for every row not found.
    Rows that are ``absent`` are passed over.
    """
    digests = row_digests(inputs, targets)
    left = {place: digest for place, digest in enumerate(digests) if place not in absent}
    missing = []
    for row in receipt.rows:
        found = _place(row, left)
        if found is None:
            missing.append(row.id)
        else:
            del left[found]
    return Checked(tuple(missing), len(left))


def _place(row: Row, left: Mapping[int, bytes]) -> int | None:
    if row.id in left and row.holds(left[row.id]):
        return row.id
    return next((place for place, digest in left.items() if row.holds(digest)), None)


def not_hers(receipt: Receipt, secret: bytes) -> tuple[str, ...]:
    """What in a receipt does not follow from a client's first secret of 32 bytes, in words: nothing where it is hers.

    Raises:
        UsageError: the receipt has no digest of a secret, because clients of its run have none.
    """
    own = receipt.own
    if not own.secret:
        raise UsageError(f"the receipt of {receipt.whose!r} is of a run whose clients have no secrets")
    rounds = build("learners", parse_toml(receipt.config)["learner"]).law.rounds
    length = chain_length(rounds, parse_toml(receipt.config)["run"]["requests"])
    follow = {
        "secret": own.secret in [secret_digest(secret, made) for made in MADE],
        "key": own.identity in (b"", public_key(secret)),
        "end of her chain": not own.lot or own.lot == chain_end(secret, length),
    }
    return tuple(name for name, same in follow.items() if not same)


def check_dataset(receipt: Receipt, dataset: Dataset) -> Checked:
    """See :func:`check`; for the training rows at hand, turned as adversaries turned hers."""
    found = turned(dataset, receipt.adversaries, dict.fromkeys(range(dataset.size), receipt.client))
    return check(receipt, found.inputs, found.targets, found.absent)


def held_by(rows: Sequence[Row], digests: Mapping[int, bytes]) -> Iterator[tuple[int, int]]:
    """Pairs of (id at hand, id of the receipt) that hold the same: a hash for every pair of a digest and a row."""
    places: dict[bytes, list[int]] = {}
    for place, digest in digests.items():
        places.setdefault(digest, []).append(place)
    for row in rows:
        for digest, found in places.items():
            if row.holds(digest):
                yield from ((place, row.id) for place in found)
