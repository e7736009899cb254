"""Rosters: which party signs under which public key, as a list that came from outside, and as a run holds it.

A list is a text: a line a party, with its name and 64 hexadecimal digits. A client is called by name, or by id; the two
parties that are no clients are "witness" and "key holder".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fuaudit.commitments.identities import PARTIES
from fuaudit.data.partition import look_of
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import read_bytes, sha256
from fuaudit.formats.forms import MAX_JSON_BYTES
from fuaudit.formats.schema import is_digest
from fuaudit.runs.run import Run

Party = int | str
"""A client by its id, or one of the parties by its word."""


@dataclass(frozen=True)
class Roster:
    """A list from outside: name -> public key, 64 hexadecimal digits; and the SHA-256 of its file."""

    keys: Mapping[str, str]
    sha256: str


def read_roster(path: Path) -> Roster:
    """A list from its file; empty lines are passed over. EvidenceError where a line is none, or two are of one name."""
    content, keys, looks = read_bytes(path, MAX_JSON_BYTES), dict[str, str](), set[str]()
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise EvidenceError(f"{path} is no list of names and keys: it is not text in UTF-8") from None
    for number, line in enumerate(lines, 1):
        name, _, key = line.strip().rpartition(" ")
        if not line.strip():
            continue
        if not name or not is_digest(key.lower()):
            raise EvidenceError(
                f"line {number} of {path} is not a name, a space and 64 hexadecimal digits",
                "fuaudit show RUN --roster prints the list of a run in this form.",
            )
        if look_of(name.strip()) in looks:
            raise EvidenceError(f"line {number} of {path} is the second for {name.strip()!r}")
        looks.add(look_of(name.strip()))
        keys[name.strip()] = key.lower()
    return Roster(keys, sha256(content))


def committed_keys(run: Run) -> dict[Party, str]:
    """The public key of every client and party that a run was committed to with, 64 hexadecimal digits.

    Raises:
        UsageError: its server sees rows, so nobody signs.
    """
    found = run.signatories
    if not found.identities:
        raise UsageError(
            f"the server of {run.path} sees the rows of its clients: nobody signs anything, so there is no roster"
        )
    keys = [key.hex() for key in (*found.identities.values(), *found.parties)]
    return dict(zip((*found.identities, *PARTIES), keys, strict=True))


def lines_of(run: Run) -> list[str]:
    """The list of a run in the form of a list from outside; by id whoever's name is not there."""
    return [f"{_name(run, who)} {key}" for who, key in committed_keys(run).items()]


def _name(run: Run, who: Party) -> str:
    name = who if isinstance(who, str) else run.name(who)
    # a client who has the name of a party, or whose name is the number of another, is told by id
    return str(who) if name is None or _called(run).get(look_of(name)) != who else name


def _called(run: Run) -> dict[str, Party]:
    """Whom a name in a list means, by its look. Parties come first, then names, then numbers that are nobody's name."""
    clients = run.signatories.identities
    names = {look_of(name): client for client in clients if (name := run.name(client)) is not None}
    numbers = {str(client): client for client in clients}
    return {**numbers, **names, **{look_of(party): party for party in PARTIES}}


def differences(run: Run, roster: Roster) -> Iterator[str]:
    """Where a list from outside is not what the run was committed to with, in sentences.

    A client whose name a prune dropped is found by her key: a list names her as she was called.

    Raises:
        UsageError: nobody signs in the run.
    """
    keys, called = committed_keys(run), _called(run)
    nameless = {keys[client]: client for client in run.signatories.identities if run.name(client) is None}
    found = set[Party]()
    for name, key in roster.keys.items():
        who = called.get(look_of(name), nameless.get(key))
        if who is None:
            yield f"The list has {name!r}, and nobody of that name was committed to."
        elif keys[who] != key:
            yield f"{_whom(run, who)} was committed to with another key than the list says."
        found |= set() if who is None else {who}
    for who in keys:
        if who not in found:
            yield f"{_whom(run, who)} is not in the list."


def _whom(run: Run, who: Party) -> str:
    whom = f"the {who}" if isinstance(who, str) else run.called(who)
    return whom[0].upper() + whom[1:]
