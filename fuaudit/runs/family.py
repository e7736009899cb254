"""The family of a run: all runs at hand that were made of one training, and what they released.

Runs of one training have one commitment, and a ledger begins with it. What lies beside the run is looked through; a run
that cannot be opened is a gap, and no run that nothing is known of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

from fuaudit.budgets.family import Family, Member, Release, rounds_in_words
from fuaudit.declared import is_agreement, must_say
from fuaudit.errors import EvidenceError, FuauditError
from fuaudit.formats.files import read_bytes
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json, parse_canonical
from fuaudit.registry import build, find
from fuaudit.runs.layout import (
    CHECKPOINT,
    FILES,
    LEDGER,
    MANIFEST,
    MODEL,
    SECRETS,
    TOMBSTONE,
    file_of,
    round_of,
)
from fuaudit.runs.listing import is_run
from fuaudit.runs.platforms import makers_of
from fuaudit.runs.pruned_contents import former_of
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.tombstone import Tombstone, read_tombstone
from fuaudit.training.capped import beside_rows

UNFINISHED = "it was begun and not finished, so how many rounds it executed is not known"
EDITED = "an editor asked clients for more than their rounds released, and no ledger tells how much"
BEHIND = "it stands behind an agreement on coordinates, which was made of rows as they were before it"
NOISE = "gaussian-noise"
NO_WORD = "nothing compares what it lets out with what it tells"
ONE_DIGEST = "it says that before a prune it was what another run is: as its parent's, that would hide its own rounds"


@dataclass(frozen=True)
class Kin:
    """A run of a family, or its tombstone, by a name that no other has."""

    name: str
    found: Run | Tombstone

    @property
    def sealed(self) -> str:
        """Its digest before any prune."""
        return str(self.found.ledger.of_kind("sealed")[0]["digest"])

    @cached_property
    def is_told(self) -> bool:
        """Whether its digest before a prune is as told: nothing has it any more, or not the manifest of before."""
        if self.sealed == self.found.digest or isinstance(self.found, Tombstone):
            return self.sealed != self.found.digest
        try:
            former_of(self.found)
        except EvidenceError:
            return True
        return False

    @property
    def parent(self) -> str:
        """The digest of its parent; empty for a training run."""
        return str(self.found.info["parent"]["digest"]) if self.found.is_child else ""


@dataclass(frozen=True)
class Kinship:
    """What lies beside a run of the same training; ``gaps`` says of others why they cannot be opened."""

    run: Kin
    kin: tuple[Kin, ...]
    gaps: dict[str, str] = field(default_factory=dict)


def kinship(run: Run, also: Iterable[Path] = ()) -> Kinship:
    """The runs beside a run, and in other folders, that were made of the same training; of copies one.

    Raises:
        EvidenceError: a folder cannot be read.
    """
    own = Kin(run.path.resolve().name, run)
    found, gaps = {own.sealed: own}, dict[str, str]()
    for folder in _folders([run.path.resolve().parent, *also]):
        name = folder.name if folder.name not in {own.name, *gaps, *(kin.name for kin in found.values())} else folder
        try:
            if _commitment(folder) != _commitment(run.path):
                continue
            kin = Kin(str(name), _opened(folder, run))
        except FuauditError as error:
            gaps[str(name)] = str(error.args[0])
        else:
            key = kin.found.digest if kin.is_told else kin.sealed
            # of a run and its copy of before a prune the one counts that children of both can name
            if key not in found or (found[key] is not own and len(_digests(kin)) > len(_digests(found[key]))):
                found[key] = kin
    runs, doubles = apart(own, found.values())
    return Kinship(own, tuple(sorted(runs, key=lambda kin: kin.name)), gaps | doubles)


def apart(own: Kin, kin: Iterable[Kin]) -> tuple[list[Kin], dict[str, str]]:
    """Runs without copies; and of those that say that they were another one of them, why that is a gap."""
    runs, told, gaps = list[Kin](), list[Kin](), dict[str, str]()
    for one in kin:
        (told if one.is_told and one is not own else runs).append(one)
    for one in told:
        alike = [other for other in runs if _digests(one) & _digests(other)]
        if not alike:
            runs.append(one)
        elif all(other.found.digest != one.found.digest for other in alike):
            gaps[one.name] = ONE_DIGEST
    return runs, gaps


def _folders(places: Sequence[Path]) -> Iterator[Path]:
    """The folders in some places that hold a run with a ledger; runs before tombstones."""
    for place in places:
        try:
            inside = sorted(item for item in place.iterdir() if (item / LEDGER).is_file() and is_run(item))
        except OSError as error:
            raise EvidenceError(f"cannot look through {place}: {error.strerror or error}") from error
        yield from sorted(inside, key=lambda item: not (item / MANIFEST).is_file())


def _commitment(folder: Path) -> str:
    """What the first line of a ledger commits to; EvidenceError where it is none."""
    path = folder / LEDGER
    event = parse_canonical(read_bytes(path, MAX_JSON_BYTES).partition(b"\n")[0], path)
    if not isinstance(event, dict) or not isinstance(event.get("commitment"), str):
        raise EvidenceError(f"{path} does not begin with a commitment")
    return str(event["commitment"])


def _opened(folder: Path, run: Run) -> Run | Tombstone:
    if (folder / MANIFEST).exists():
        return load_run(folder)
    if (folder / TOMBSTONE).exists():
        return read_tombstone(folder, run.config)
    raise EvidenceError(UNFINISHED)


def family_of(kinship: Kinship) -> Family:
    """What an account needs of a family."""
    by_digest = {digest: kin for kin in kinship.kin for digest in _digests(kin)}
    members = tuple(_member(kin, by_digest.get(kin.parent)) for kin in kinship.kin)
    return Family(kinship.run.name, members, kinship.gaps, _same_draws(kinship.kin, by_digest))


def _digests(kin: Kin) -> frozenset[str]:
    return frozenset({kin.sealed, kin.found.digest})


def _member(kin: Kin, parent: Kin | None) -> Member:
    info, ledger = kin.found.info, kin.found.ledger
    told = {line["round"]: tuple(_releases(line.get("told", ()))) for line in ledger.of_kind("round")}
    first = info["first_change"][0] if kin.parent else 1
    return Member(
        kin.name, _digests(kin), kin.parent, first, kin.found.rounds_executed, told, _beyond(kin, parent, first)
    )


def _releases(told: Iterable[dict[str, Any]]) -> Iterator[Release]:
    for event in told:
        if event["kind"] == "released":
            parameters = tuple((name, _plain(value)) for name, value in sorted(event["parameters"].items()))
            yield Release(event["part"], event["mechanism"], parameters)


def _plain(value: Any) -> int | float | str:
    """A parameter; a ledger may hold tables in the place of one, which no mechanism has."""
    return value if type(value) in (int, float, str) else canonical_json(value).decode()


def _beyond(kin: Kin, parent: Kin | None, first: int) -> str:
    """Why the rounds of a run that count are not all that it released; empty for nothing."""
    if kin.found.by_editor:
        return _of_editor(kin.found)
    if parent is None:
        return ""
    (told,) = kin.found.ledger.of_kind("unlearning")
    # kept rounds behind the last model that was kept are executed again
    again = range(told["kept_rounds"] + 1, min(first, parent.found.rounds_executed + 1))
    if again and _computed_otherwise(kin, parent, again):
        return (
            f"it executed what it keeps, {rounds_in_words(again)}, again on another platform, so the same noise may "
            "lie over rows that are rounded otherwise"
        )
    return ""


def _of_editor(found: Run | Tombstone) -> str:
    try:
        asked = must_say(found.unlearner, "participants") - {"server"}
    except FuauditError as error:
        return f"what its editor asked clients for is not known: {error.args[0]}"
    return EDITED if asked else ""


def _computed_otherwise(one: Kin, other: Kin, rounds: range) -> bool:
    """Whether two runs were made on platforms that compute some rounds otherwise, or may."""
    pairs = product(*(makers_of(kin.found.ledger, rounds[-1], rounds[0] - 1) for kin in (one, other)))
    return any(mine.unlike(theirs) for mine, theirs in pairs)


def _same_draws(kin: Sequence[Kin], by_digest: Mapping[str, Kin]) -> dict[tuple[str, str], str]:
    """Two names -> that these runs have the same draws, and may have them over other rows.

    One request by one method on one run, or one training, is drawn alike whenever it is carried out.
    """
    found = {}
    for one, other in combinations(kin, 2):
        rounds = range(1, min(one.found.rounds_executed, other.found.rounds_executed) + 1)
        alike = _drawn_from(one, by_digest) == _drawn_from(other, by_digest)
        if rounds and alike and _computed_otherwise(one, other, rounds):
            found[one.name, other.name] = (
                f"{one.name} and {other.name} have the same draws, and were made on different platforms: the same "
                "noise may lie over rows that are rounded otherwise"
            )
    return found


def _drawn_from(kin: Kin, by_digest: Mapping[str, Kin]) -> bytes:
    """All that a run's draws follow from, beside the commitment."""
    if not kin.parent:
        return b""
    (asked,), method = kin.found.ledger.of_kind("request"), kin.found.info["unlearner"]
    parent = by_digest[kin.parent].sealed if kin.parent in by_digest else kin.parent
    return canonical_json([parent, asked["clients"], asked["samples"], method["use"], method["options"]])


def strangers(run: Run) -> dict[str, str]:
    """Part of a round -> why its word is not taken; none of a client stage of fuaudit's own that stands alone."""
    behind = "acts behind the clients, and is not accounted for"
    found = {f"server.{number}": f"a server stage {behind}" for number in range(len(run.config.server))}
    stages: tuple[Any, ...] = run.exchange.client_stages.stages
    for number, table in enumerate(run.config.client):
        if not _is_own("client_stages", table["use"]):
            found[f"client.{number}"] = f"the stage {table['use']!r} is not fuaudit's own, and {NO_WORD}"
        elif any(map(is_agreement, stages[:number])):
            found[f"client.{number}"] = BEHIND
        elif table["use"] == NOISE and (beside := beside_rows(build("solvers", run.config.solver))):
            found[f"client.{number}"] = beside
    return found | {"transport": f"the transport {behind}"}


def _is_own(kind: str, name: str) -> bool:
    try:
        return find(kind, name).own
    except FuauditError:
        return False


def with_secrets(kin: Iterable[Kin]) -> tuple[str, ...]:
    """The runs with which the clients' secrets lie; with a redacted one they lay when it was redacted."""
    return tuple(one.name for one in kin if isinstance(one.found, Run) and SECRETS in one.found.files)


def tombstones(kin: Iterable[Kin]) -> tuple[str, ...]:
    """Those of which a prune left no more than a ledger."""
    return tuple(one.name for one in kin if isinstance(one.found, Tombstone))


@dataclass(frozen=True)
class Unlimited:
    """What was computed from private rows, and left under no mechanism."""

    where: str
    what: str
    given_to: str
    rounds: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Names, words and rounds."""
        return {"where": self.where, "what": self.what, "given_to": self.given_to, "rounds": list(self.rounds)}


FROM_ROWS = frozenset({LEDGER, CHECKPOINT, MODEL})
"""Files that are made of what clients send in rounds; where that has noise, they tell no more than it."""


def unlimited(kin: Kin, shows: str, distrusted: Collection[str] = ()) -> tuple[Unlimited, ...]:
    """What left a run that nothing limits: in its rounds, then in its files, also where these were removed since.

    Args:
        shows: what the transport shows the server of a round.
        distrusted: parts whose word is not taken.
    """
    lines = kin.found.ledger.of_kind("round")
    noisy = bool(lines) and all(_is_noisy(line.get("told", ()), distrusted) for line in lines)
    values = f"what clients send beside what is accounted for: the server is shown {shows}"
    rows = Unlimited("rounds", values, "server", tuple(line["round"] for line in lines))
    found = [rows] if lines and not noisy else []
    names = {*kin.found.files, LEDGER}
    for file in FILES.values():
        own = [name for name in names if file.tells and file_of(name) is file]
        if noisy and file.name in FROM_ROWS:
            continue
        rounds = tuple(sorted(number for name in own if (number := round_of(name)) is not None))
        found += [Unlimited(file.name, file.tells, file.given_to, rounds)] if own else []
    return tuple(found)


def _is_noisy(told: Iterable[dict[str, Any]], distrusted: Collection[str]) -> bool:
    """Whether all rows of a round had noise before anybody saw them."""
    return any(
        event["kind"] == "released" and event["mechanism"] == "gaussian" and event["part"] not in distrusted
        for event in told
    )
