"""Rosters: which party signs under which public key, as a list that came from outside, and as a run holds it.

A list is a text: a line a party, with its name and 64 hexadecimal digits. A client is called by name, or by id, with
"client" before it or without; the two parties that are no clients are "witness" and "key holder".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fuaudit.commitments.identities import PARTIES
from fuaudit.data.partition import by_owners, look_of
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import read_bytes, sha256
from fuaudit.formats.forms import MAX_JSON_BYTES
from fuaudit.formats.schema import is_digest
from fuaudit.registry import build
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
    """The list of a run in the form of a list from outside: each name once, and by id whoever's name is not there."""
    names = _names(run)
    called = _called(names)
    return [f"{_word(who, names.get(who), called)} {key}" for who, key in committed_keys(run).items()]


BY_ID = "client "
"""What stands before an id among names, for a number can be the name of another; several times where that is one, too.
"""


def _word(who: Party, name: str | None, called: Mapping[str, Party]) -> str:
    """What a list calls a party, who may have a name: a word that means nobody else."""
    if isinstance(who, str):
        return who
    if name is not None and called.get(look_of(name)) == who:
        return name
    word = f"{BY_ID}{who}"
    while look_of(word) in called:
        word = BY_ID + word
    return word


def _id_of(word: str) -> str:
    """The id that a word means which is nobody's name; whatever else it says, as it is."""
    while word.startswith(BY_ID):
        word = word.removeprefix(BY_ID)
    return word


def _names(run: Run) -> dict[Party, str | None]:
    """The names of clients; None of whom may have had one, and it is not here.

    Only owners have names. So a run that withholds names, and was dealt otherwise, has ids in their place.
    """
    numbered = run.redacted and not by_owners(build("partitions", run.config.partition))
    return {client: str(client) if numbered else run.name(client) for client in run.signatories.identities}


def _called(names: Mapping[Party, str | None]) -> dict[str, Party]:
    """Whom a name in a list means, by its look. A party's word comes before a client's name."""
    clients = {look_of(name): client for client, name in names.items() if name is not None}
    return clients | {look_of(party): party for party in PARTIES}


@dataclass(frozen=True)
class Compared:
    """A list from outside beside what a run was committed to with.

    Attributes:
        differences: where they differ, in sentences.
        doubts: where nobody can tell whether they do, in sentences.
        nameless: how many clients were found by their keys alone.
    """

    differences: tuple[str, ...]
    doubts: tuple[str, ...]
    nameless: int


def compared(run: Run, roster: Roster) -> Compared:
    """Compare a list from outside with what a run was committed to with.

    A client whose name is not here, as after a prune and in a sealed view, is found by her key: a list names her as she
    was called, and that can be a number. Where it is the number of another whose name is not here either, keys may as
    well be exchanged.

    Raises:
        UsageError: nobody signs in the run.
    """
    keys, names = committed_keys(run), _names(run)
    called, ids = _called(names), {str(client): client for client in names}
    nameless = {keys[client]: client for client, name in names.items() if name is None}
    found, differences, doubts = set[Party](), list[str](), list[str]()
    for name, key in roster.keys.items():
        numbered, without = ids.get(_id_of(name)), nameless.get(key)
        who = called.get(look_of(name), numbered if without is None else without)
        if who is None:
            differences.append(f"The list has {name!r}, and nobody of that name was committed to.")
            continue
        if who in found:
            differences.append(f"{_whom(run, who)} is in the list twice, the second time as {name!r}.")
        elif keys[who] != key:
            differences.append(f"{_whom(run, who)} was committed to with another key than the list says.")
        elif who == without and numbered not in (None, who) and names[numbered] is None:
            doubts.append(
                f"The list has {name!r} with the key of client {who}, and neither her name nor that of client "
                f"{numbered} is here: she may have been called so, or their keys were exchanged."
            )
        found.add(who)
    differences += [f"{_whom(run, who)} is not in the list." for who in keys if who not in found]
    return Compared(tuple(differences), tuple(doubts), len(found & {*nameless.values()}))


def _whom(run: Run, who: Party) -> str:
    whom = f"the {who}" if isinstance(who, str) else run.called(who)
    return whom[0].upper() + whom[1:]
