"""Terms: what all parties of one opening agree on. Everything that is signed or derived has their digest in it.

A buffer is a few clients whose rows are added up. It is opened at most once under one set of terms; another attempt
has a number of its own, and all keys anew.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fuaudit.errors import FuauditError, UsageError
from fuaudit.formats.forms import canonical_json, parse_canonical
from fuaudit.secure.names import BITS, HOLDER, NO_BUFFER, WITNESS, floor_of, has_key_holder
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.streams import Ints

LIBRARY = "0.3.18"
"""The version of TenSEAL. Ciphertexts of another one cannot be read, so all parties have this one."""

SLOTS = 4096
"""Numbers in one ciphertext: the degree of the polynomials."""

CHECKS = 1
"""Slots of each ciphertext that hold its check."""

MOST_NUMBER = 2**53 - 1
"""Of clients, rounds and buffers: numbers that every reader of JSON takes."""

_KEY, _ATTEMPT = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{32}")

COLUMN_BYTES, MOST_COLUMNS = 4, 2**28
"""Of the number of a column as a message tells it; and how many columns can be summed."""


@dataclass(frozen=True)
class Plaintexts:
    """A ring of plaintexts.

    Attributes:
        modulus: t, a prime that is 1 modulo twice the number of slots.
        bits: of a slot that fields may fill, so that it stays below t.
        summands: at most so many ciphertexts are added up; the start-up test has so many.
    """

    modulus: int
    bits: int
    summands: int


RINGS = (Plaintexts(70368743669761, 45, 8), Plaintexts(17592186028033, 43, 32))
"""Few summands leave more bits to values."""


@dataclass(frozen=True)
class Layout:
    """How whole numbers lie in slots: several fields side by side, each wide enough for the largest sum.

    Attributes:
        bits: of a value.
        most: of how many summands the largest buffer is.
        ring: of plaintexts.
    """

    bits: int
    most: int
    ring: Plaintexts

    @property
    def width(self) -> int:
        """Bits of a field: s (2**b - 2) is below 2**width, so a sum never reaches its neighbour."""
        return self.bits + (self.most - 1).bit_length()

    @property
    def fields(self) -> int:
        """Values in a slot."""
        return self.ring.bits // self.width

    def ciphertexts(self, columns: int) -> int:
        """How many ciphertexts a row of so many values takes."""
        return -(-columns // (self.fields * (SLOTS - CHECKS)))


def layout_of(bits: int, most: int) -> Layout:
    """The layout for values of so many bits, in buffers of so many clients at most.

    Raises:
        UsageError: there is none.
    """
    if not BITS[0] <= bits <= BITS[1]:
        raise UsageError(f"values of a secure sum have {BITS[0]} to {BITS[1]} bits, not {bits}", "Quantise to fewer.")
    for ring in RINGS:
        if 2 <= most <= ring.summands:
            return Layout(bits, most, ring)
    raise UsageError(
        f"a secure sum is of 2 to {RINGS[-1].summands} clients, not of {most}",
        "Where the size is s a buffer can have 2 s - 1 clients: take smaller buffers.",
    )


class LibraryError(UsageError):
    """TenSEAL is not here, or another version of it: this machine's fault, which says nothing of any message."""


def installed() -> str:
    """The version of TenSEAL that is installed; LibraryError where none is, or it cannot be loaded."""
    try:
        import tenseal  # noqa: F401

        return version("tenseal")
    except ImportError as error:  # a missing distribution is one as well
        raise LibraryError(
            f"tenseal {LIBRARY} is needed for encrypted sums, and cannot be loaded ({error})",
            f"Install it in every party's environment: pip install tenseal=={LIBRARY}. The suites mask and plain need "
            "none, but attacks on encrypted sums are controls of the audit aggregation-attacks.",
        ) from None


def require_library(found: str) -> None:
    """LibraryError for a version of TenSEAL that is not :data:`LIBRARY`."""
    if found != LIBRARY:
        raise LibraryError(
            f"tenseal {LIBRARY} is needed for encrypted sums, not {found}: ciphertexts of two versions do not mix",
            f"Install it in every party's environment: pip install tenseal=={LIBRARY}",
        )


@dataclass(frozen=True)
class Terms:
    """What is agreed on before anything is sent.

    Attributes:
        suite: the name of the suite.
        members: ids of the clients of the buffer, ascending.
        columns: c, values of a row.
        bits: of a value, from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1. Nobody asks for it elsewhere.
        most: of how many clients the largest buffer of the run is.
        smallest: from how many rows on the sum is opened.
        roster: of each member the public key that its messages are signed under, 64 hexadecimal digits.
        library: the version of TenSEAL.
        round: number of the round.
        buffer: number of the buffer in the round.
        attempt: 32 hexadecimal digits, new for every attempt at a buffer.
        coordinates: digest of the columns of the model that are summed, see :func:`coordinates_digest`.
        witness: its public key; empty in suites that have none.
        holder: that of the key holder; as the witness's.
        context: digest of what the buffer belongs to, as a lot has it: of a run and a generation of it; empty where it
            belongs to none.
    """

    suite: str
    members: tuple[int, ...]
    columns: int
    bits: int
    most: int
    smallest: int
    roster: tuple[str, ...]
    library: str
    round: int
    buffer: int
    attempt: str
    coordinates: str
    witness: str = ""
    holder: str = ""
    context: str = ""

    def __post_init__(self) -> None:
        several = len(self.members)
        if several < 2 or list(self.members) != sorted(set(self.members)) or several != len(self.roster):
            raise UsageError(f"a buffer is of two clients or more, each once, ascending, with a key: {self.members}")
        if several > self.most or not floor_of(several) <= self.smallest <= several or self.columns < 1:
            raise UsageError(
                f"a buffer of {several} clients with {self.columns} columns cannot be opened from {self.smallest} rows "
                f"on where {self.most} is the most",
                "The smallest is from 2 of 2, and from 3 of more, to all of them.",
            )
        if (
            not 0 <= self.members[0] <= self.members[-1] <= MOST_NUMBER >= self.round
            or min(self.round, self.buffer) < 0
        ):
            raise UsageError(f"clients, rounds and buffers have numbers from 0 to {MOST_NUMBER}")
        if {bool(self.witness), bool(self.holder)} != {has_key_holder(self.suite)}:
            raise UsageError(
                f"a buffer of {self.suite!r} has witness and key holder if it has ciphertexts, and only then"
            )
        layout_of(self.bits, self.most)

    @classmethod
    def of(cls, body: bytes) -> Terms:
        """Terms from their bytes, each of its type and in the one form that :attr:`body` has.

        Raises:
            RefusedError: these are no terms.
        """
        try:
            value: dict[str, Any] = parse_canonical(body, Path("terms"))
            given: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in value.items()}
            found = cls(**given)
            kinds = all(isinstance(getattr(found, name), kind) for name, kind in _KINDS.items())
            if kinds and found._has_plain_parts() and found.body == body:
                return found
        except (FuauditError, TypeError, ValueError, AttributeError, IndexError):
            pass
        raise RefusedError("what was sent as terms of a buffer are none")

    def _has_plain_parts(self) -> bool:
        """Whether numbers are numbers and no truth values, and keys and digests hexadecimal digits."""
        whole = [*self.members, *(getattr(self, name) for name, kind in _KINDS.items() if kind is int)]
        keys = [*self.roster, self.coordinates, *(one for one in (self.witness, self.holder, self.context) if one)]
        return (
            all(type(one) is int for one in whole)
            and all(map(_is_key, keys))
            and bool(_ATTEMPT.fullmatch(self.attempt))
        )

    @property
    def body(self) -> bytes:
        """All of it in canonical JSON."""
        return canonical_json(asdict(self))

    @cached_property
    def layout(self) -> Layout:
        """How values lie in slots."""
        return layout_of(self.bits, self.most)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all of it, 32 bytes."""
        return hashlib.sha256(b"fuaudit secure terms" + self.body).digest()

    def signer(self, party: int) -> str | None:
        """The public key of a client, the witness or the key holder; None for who is no member, or has none."""
        return _signer(party, self.members, self.roster, {WITNESS: self.witness, HOLDER: self.holder})

    @property
    def largest(self) -> int:
        """L, the largest value that a client may send."""
        return (1 << self.bits - 1) - 1

    def require_values(self, values: Ints, client: int) -> None:
        """UsageError for a row that is not ``(c,)`` int64, or has a value outside its field: none is ever cut."""
        if values.dtype != np.int64 or values.shape != (self.columns,):
            raise UsageError(
                f"client {client} has values {values.shape} of {values.dtype}, where ({self.columns},) of int64 is due"
            )
        # The smallest int64 has no absolute value.
        outside = (values < -self.largest) | (values > self.largest)
        if outside.any():
            raise UsageError(
                f"client {client}: {int(outside.sum())} of {self.columns} values are outside "
                f"[-{self.largest}, {self.largest}], the range of {self.bits} bits; the first is in column "
                f"{int(outside.argmax())}",
                'Clip and round in front of the sum, with as many bits: the client stage "quantise" does both.',
            )


_KINDS = {
    each.name: {"int": int, "str": str}.get(str(each.type), tuple) for each in fields(Terms)
}  # fmt: skip


def _signer(party: int, members: Sequence[int], roster: Sequence[str], others: Mapping[int, str]) -> str | None:
    return roster[members.index(party)] if party in members else others.get(party) or None


def _is_key(digits: object) -> bool:
    return isinstance(digits, str) and bool(_KEY.fullmatch(digits))


@dataclass(frozen=True)
class Lot:
    """What the clients of a round agree on before they reveal their contributions to its lot.

    Attributes:
        context: digest of what the round belongs to, 64 hexadecimal digits: of a run and a generation of it.
        round: number of the round.
        clients: ids of all clients of the round, ascending, each once.
        roster: of each its public key, 64 hexadecimal digits.
    """

    context: str
    round: int
    clients: tuple[int, ...]
    roster: tuple[str, ...]

    @property
    def buffer(self) -> int:
        """That of no buffer."""
        return NO_BUFFER

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all of it, 32 bytes."""
        return hashlib.sha256(b"fuaudit secure lot" + canonical_json(asdict(self))).digest()

    def signer(self, party: int) -> str | None:
        """The public key of a client; None for who is not in the round."""
        return _signer(party, self.clients, self.roster, {})


def coordinates_digest(columns: Ints) -> str:
    """The digest of the columns of the model that are summed, ``(c,)`` int64 ascending: 64 hexadecimal digits."""
    return hashlib.sha256(b"fuaudit coordinates" + columns.astype("<i8").tobytes()).hexdigest()


def columns_bytes(columns: Ints) -> bytes:
    """The columns of the model that are summed, ``(c,)`` int64 ascending, as a message tells them."""
    return columns.astype("<u4").tobytes()


def columns_of(content: bytes) -> Ints:
    """The inverse, of a multiple of 4 bytes. RefusedError where columns do not ascend."""
    if len(content) % COLUMN_BYTES:
        raise RefusedError(f"columns have {COLUMN_BYTES} bytes each, and {len(content)} bytes are none")
    columns = np.frombuffer(content, dtype="<u4").astype(np.int64)
    if (columns[1:] <= columns[:-1]).any():
        raise RefusedError("columns do not ascend, or one comes twice")
    return columns


def new_attempt() -> str:
    """The number of an attempt: 32 hexadecimal digits from the operating system's generator."""
    return secrets.token_hex(16)


class Once:
    """A party's memory of what it opened in a run, so that it opens nothing twice; kept from round to round."""

    def __init__(self) -> None:
        self._done: set[tuple[int, ...]] = set()

    @property
    def done(self) -> tuple[tuple[int, ...], ...]:
        """What was done, ascending."""
        return tuple(sorted(self._done))

    def remember(self, done: Iterable[Sequence[int]]) -> None:
        """Take over what was done before."""
        self._done |= set(map(tuple, done))

    def require_first(self, *what: int) -> None:
        """Remember; RefusedError where it was done before. A round, or a round and a buffer."""
        if what in self._done:
            named = ", ".join(f"{name} {number}" for name, number in zip(("round", "buffer"), what, strict=False))
            raise RefusedError(
                f"this party has answered already in {named}",
                "A second sum of one buffer over other rows would tell the difference of both. It answers again in "
                "another round.",
                reason="again",
            )
        self._done.add(what)


@dataclass(frozen=True)
class Opened:
    """What an opening tells the server.

    Attributes:
        members: whose rows were added up, ascending.
        sums: ``(c,)`` int64.
        liars: clients whose signed answers were wrong, and were not needed.
    """

    members: tuple[int, ...]
    sums: Ints
    liars: tuple[int, ...] = ()
