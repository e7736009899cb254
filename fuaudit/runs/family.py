"""The family of a run: all runs at hand that were made of one training, and what they released.

Runs of one training have one commitment, and a ledger begins with it. What lies beside the run is looked through; a run
that cannot be opened is a gap, and no run that nothing is known of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

from fuaudit.budgets.family import Family, Member, Release, rounds_in_words
from fuaudit.declared import is_agreement, must_say, says
from fuaudit.errors import EvidenceError, FuauditError
from fuaudit.formats.files import read_bytes, sha256
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json, parse_canonical
from fuaudit.registry import build, find
from fuaudit.runs.layout import (
    CHECKPOINT,
    CONFIG,
    FILES,
    LEDGER,
    MANIFEST,
    MODEL,
    RUN,
    SECRETS,
    TOMBSTONE,
    file_of,
    round_of,
)
from fuaudit.runs.ledger import PLATFORM
from fuaudit.runs.platforms import makers_of
from fuaudit.runs.pruned_contents import former_of
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.tombstone import Tombstone, read_tombstone
from fuaudit.training.capped import SCALED, beside_rows, past
from fuaudit.training.events import as_table

UNFINISHED = "it was begun and not finished, so how many rounds it executed is not known"
EDITED = "an editor asked clients for more than their rounds released, and no ledger tells how much"
BEHIND = "it stands behind an agreement on coordinates, which was made of rows as they were before it"
NOISE = "gaussian-noise"
NO_WORD = "nothing compares what it lets out with what it tells"
ONE_DIGEST = "it says that before a prune it was what another run is: as its parent's, that would hide its own rounds"
OTHER_TALE = "it is a copy of {}, and its ledger tells otherwise of rounds"


@dataclass(frozen=True)
class Kin:
    """A run of a family, or its tombstone, by a name that no other has."""

    name: str
    found: Run | Tombstone
    copies: tuple[Kin, ...] = ()
    """Those at hand, also of after a prune, or of before it."""

    @property
    def digests(self) -> frozenset[str]:
        """All by which children can name it.

        What is told alone counts where the ledger is all there is: an account says of a tombstone that it is as told.
        """
        alike = (self, *self.copies)
        before = {kin.sealed for kin in alike if isinstance(self.found, Tombstone) or not kin.is_told}
        return frozenset(before | {kin.found.digest for kin in alike})

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
    """What lies beside a run of the same training.

    ``gaps`` says of others why they cannot be opened, ``doubles`` why it is not known which run they are.
    """

    run: Kin
    kin: tuple[Kin, ...]
    gaps: dict[str, str] = field(default_factory=dict)
    doubles: dict[str, str] = field(default_factory=dict)


def kinship(run: Run, also: Iterable[Path] = ()) -> Kinship:
    """The runs beside a run, and in other folders, that were made of the same training; of copies one.

    Raises:
        EvidenceError: a folder cannot be read.
    """
    own = Kin(run.path.resolve().name, run)
    found, gaps = [own], dict[str, str]()
    for folder in _folders([run.path.resolve().parent, *also]):
        name = folder.name if folder.name not in {*gaps, *(kin.name for kin in found)} else folder
        try:
            if folder.resolve() != run.path.resolve() and _commitment(folder) == _commitment(run.path):
                found.append(Kin(str(name), _opened(folder, run)))
        except FuauditError as error:
            gaps[str(name)] = str(error.args[0])
    kin, other_tales = without_copies(found)
    runs, doubles = apart(own, kin)
    return Kinship(own, tuple(sorted(runs, key=lambda kin: kin.name)), gaps, other_tales | doubles)


def without_copies(kin: Iterable[Kin]) -> tuple[list[Kin], dict[str, str]]:
    """Of copies of one run the first, with names and digests of all; then why those are a gap that tell otherwise.

    A copy of before a prune, or after it, is one of the same run where it holds the manifest of before.
    """
    groups, gaps = dict[str, list[Kin]](), dict[str, str]()
    for one in kin:
        groups.setdefault(one.found.digest if one.is_told else one.sealed, []).append(one)
    for first, *copies in groups.values():
        gaps |= {copy.name: OTHER_TALE.format(first.name) for copy in copies if _tale(copy) != _tale(first)}
    return [replace(first, copies=tuple(rest)) for first, *rest in groups.values()], gaps


def _tale(kin: Kin) -> object:
    """What an account takes from a ledger, which no digest covers."""
    platforms = kin.found.ledger.of_kind(PLATFORM)
    makers = {canonical_json([event[name] for name in ("versions", "plugins", "canary")]) for event in platforms}
    return _told(kin), makers, [event.get("kept_rounds") for event in kin.found.ledger.of_kind("unlearning")]


def apart(own: Kin, kin: Iterable[Kin]) -> tuple[list[Kin], dict[str, str]]:
    """Runs without those that say that they were another one of them, and why each of those is a gap."""
    runs, told, gaps = list[Kin](), list[Kin](), dict[str, str]()
    for one in kin:
        (told if one.is_told else runs).append(one)
    # the run that is asked about counts in any case, and so it is judged last
    for one in sorted(told, key=lambda one: one.found is own.found):
        alike = [other for other in runs if {one.sealed, *one.digests} & other.digests]
        if not alike or one.found is own.found:
            runs.append(one)
        if alike and all(other.found.digest != one.found.digest for other in alike):
            gaps[one.name] = ONE_DIGEST
    return runs, gaps


def _folders(places: Sequence[Path]) -> Iterator[Path]:
    """The folders in some places that hold a run; runs before tombstones."""
    for place in places:
        try:
            inside = sorted(filter(_is_ours, place.iterdir()))
        except OSError as error:
            raise EvidenceError(f"cannot look through {place}: {error.strerror or error}") from error
        yield from sorted(inside, key=lambda item: not (item / MANIFEST).is_file())


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a run, also one of which a file was taken away; others have a manifest.json as well."""
    there = [name for name in (MANIFEST, RUN, CONFIG, TOMBSTONE, LEDGER) if (folder / name).is_file()]
    return len(there) > 1 or there == [TOMBSTONE]  # all that is left of a buried run, beside its ledger


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
    by_digest = {digest: kin for kin in kinship.kin for digest in kin.digests}
    members = tuple(_member(kin, by_digest.get(kin.parent)) for kin in kinship.kin)
    return Family(kinship.run.name, members, kinship.gaps, kinship.doubles, _same_draws(kinship.kin, by_digest))


def _member(kin: Kin, parent: Kin | None) -> Member:
    first = kin.found.info["first_change"][0] if kin.parent else 1
    beyond = _beyond(kin, parent, first)
    return Member(kin.name, kin.digests, kin.parent, first, kin.found.rounds_executed, _told(kin), beyond)


def _told(kin: Kin) -> dict[int, tuple[Release, ...]]:
    """Round -> what a run told that it released in it."""
    return {line["round"]: tuple(_releases(line.get("told", ()))) for line in kin.found.ledger.of_kind("round")}


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
    if kin.found.by_editor or parent is None:
        return asked_of_clients(kin.found)
    (told,) = kin.found.ledger.of_kind("unlearning")
    # kept rounds behind the last model that was kept are executed again
    again = range(told["kept_rounds"] + 1, min(first, parent.found.rounds_executed + 1))
    if again and _computed_otherwise(kin, parent, again):
        return (
            f"it executed what it keeps, {rounds_in_words(again)}, again on another platform, so the same noise may "
            "lie over rows that are rounded otherwise"
        )
    return ""


def asked_of_clients(found: Run | Tombstone) -> str:
    """Why nobody knows what clients of a run released, where an editor asked them for more; empty for nothing."""
    if not found.by_editor:
        return ""
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


def _drawn_from(kin: Kin, by_digest: Mapping[str, Kin], passed: frozenset[str] = frozenset()) -> str:
    """The digest of all that a run's draws follow from, beside the commitment; ``passed``: parents on the way to it."""
    if not kin.parent:
        return ""
    (asked,), method = kin.found.ledger.of_kind("request"), kin.found.info["unlearner"]
    # two trainings of one commitment have the same draws, and other digests where platforms differ
    at_hand = kin.parent in by_digest and kin.parent not in passed  # tombstones can say that they are in a circle
    parent = _drawn_from(by_digest[kin.parent], by_digest, passed | {kin.parent}) if at_hand else kin.parent
    return sha256(canonical_json([parent, asked["clients"], asked["samples"], method["use"], method["options"]]))


def strangers(run: Run) -> dict[str, str]:
    """Part of a round -> why its word is not taken; none of a client stage of fuaudit's own that stands alone."""
    behind = "acts behind the clients, and is not accounted for"
    found = {f"server.{number}": f"a server stage {behind}" for number in range(len(run.config.server))}
    stages: tuple[Any, ...] = run.exchange.client_stages.stages
    for number, table in enumerate(run.config.client):
        if why := no_word(table["use"]):
            found[f"client.{number}"] = why
        elif any(map(is_agreement, stages[:number])):
            found[f"client.{number}"] = BEHIND
        elif way := past(run.exchange, number):
            found[f"client.{number}"] = way
        elif table["use"] == NOISE and (beside := _beside(run)):
            found[f"client.{number}"] = beside
    return found | {"transport": f"the transport {behind}"}


def _beside(run: Run) -> str:
    """What of rows leaves beside their noise, or makes them depend on others; empty for nothing."""
    return beside_rows(build("solvers", run.config.solver)) or (SCALED if run.config.scaling != "none" else "")


def by_config(run: Run, distrusted: Collection[str]) -> frozenset[Release]:
    """What client stages release under in every round, as the config has them; of parts whose word is taken."""
    stages: tuple[Any, ...] = run.exchange.client_stages.stages
    parts = {f"client.{number}": stage for number, stage in enumerate(stages)}
    said = {part: stage for part, stage in parts.items() if part not in distrusted and says(stage, "releases")}
    tables = [as_table(part, stage.releases(run.model.numel())) for part, stage in said.items()]
    return frozenset(_releases(tables))


def no_word(name: str) -> str:
    """Why the word of a client stage is not taken by itself; empty for one of fuaudit's own, which tests look at."""
    try:
        own = find("client_stages", name).own
    except FuauditError:
        own = False
    return "" if own else f"the stage {name!r} is not fuaudit's own, and {NO_WORD}"


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


def unlimited(kin: Kin, shows: str, by_config: Collection[Release] = ()) -> tuple[Unlimited, ...]:
    """What left a run that nothing limits: in its rounds, then in its files, also where these were removed since.

    Args:
        shows: what the transport shows the server of a round.
        by_config: what client stages release under, as the config has them.
    """
    lines = kin.found.ledger.of_kind("round")
    noisy = bool(lines) and all(_is_noisy(line.get("told", ()), by_config) for line in lines)
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


def _is_noisy(told: Iterable[dict[str, Any]], by_config: Collection[Release]) -> bool:
    """Whether all rows of a round had noise before anybody saw them."""
    return any(one.mechanism == "gaussian" and one in by_config for one in _releases(told))
