"""What runs of one training released: the rounds that each charges, whose word is taken, and what nothing limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from fuaudit.budgets.family import Family, Member, Release, rounds_in_words
from fuaudit.declared import must_say, says
from fuaudit.errors import FuauditError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import canonical_json
from fuaudit.plans.stage_draws import OF_SOLVER, Part
from fuaudit.registry import build
from fuaudit.runs.kin import Kin, Kinship
from fuaudit.runs.layout import CHECKPOINT, FILES, LEDGER, MODEL, PLAN, RECORDED, file_of, round_of
from fuaudit.runs.ledger import models_told, released
from fuaudit.runs.platforms import makers_of, went_on_elsewhere
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import span
from fuaudit.training.events import as_table
from fuaudit.training.releases import NOISY, in_the_way, no_word, outside_parts, released_by

EDITED = "an editor asked clients for more than their rounds released, and no ledger tells how much"


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
    return {line["round"]: releases_of(line) for line in kin.found.ledger.of_kind("round")}


def releases_of(line: Mapping[str, Any]) -> tuple[Release, ...]:
    """What parts of a round told that they released, by its line."""
    return tuple(map(_release, released(line)))


def _release(event: Mapping[str, Any]) -> Release:
    parameters = tuple((name, _plain(value)) for name, value in sorted(event["parameters"].items()))
    return Release(event["part"], event["mechanism"], parameters)


def _plain(value: Any) -> int | float | str:
    """A parameter; a ledger may hold tables in the place of one, which no mechanism has."""
    return value if type(value) in (int, float, str) else canonical_json(value).decode()


def _beyond(kin: Kin, parent: Kin | None, first: int) -> str:
    """Why the rounds of a run that count are not all that it released; empty for nothing."""
    if kin.found.by_editor:
        return asked_of_clients(kin.found)
    if rounds := kin.found.received_rounds:
        return f"its rounds {span(rounds)} came in messages, and nothing shows what clients let out in them"
    if lost := lost_elsewhere(kin.found):
        return lost
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


def lost_elsewhere(found: Run | Tombstone) -> str:
    """Why rounds may have been executed twice, with the same noise, before a run was complete; empty for nothing."""
    kept = sum(event.get("kept_rounds", 0) for event in found.ledger.of_kind("unlearning"))
    if not (since := went_on_elsewhere(found.ledger, kept)):
        return ""
    return (
        f"it was broken off and went on behind round {since[0]} on another platform, so rounds that were lost may have "
        "had the same noise over rows that are rounded otherwise"
    )


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
        if rounds and alike and (why := _over_other_rows(one, other, rounds)):
            found[one.name, other.name] = f"{one.name} and {other.name} have the same draws, and {why}"
    return found


def _over_other_rows(one: Kin, other: Kin, rounds: range) -> str:
    """Why equal draws of two runs may lie over other rows; empty for nothing.

    Draws follow from the name of a method. Another version of it may keep other rounds, and so may what is no version.
    """
    if _planned(one) != _planned(other):
        return "other plans: the same noise may lie over other rows"
    if _computed_otherwise(one, other, rounds):
        return "were made on different platforms, or by different code: the same noise may lie over other rows"
    mine, theirs = models_told(one.found.ledger), models_told(other.found.ledger)
    if apart := [number for number in sorted(mine.keys() & theirs.keys()) if mine[number] != theirs[number]]:
        return f"other models after round {apart[0]}: other code made them, and the same noise may lie over other rows"
    return ""


def _planned(kin: Kin) -> list[object]:
    """The digests of the files from which a run's plan follows, beside its keys."""
    return [kin.found.files.get(name) for name in (PLAN, RECORDED)]


def _drawn_from(kin: Kin, by_digest: Mapping[str, Kin], passed: frozenset[str] = frozenset()) -> str:
    """The digest of all that a run's draws follow from, beside the commitment; ``passed``: parents on the way to it."""
    if not kin.parent:
        return ""
    (asked,), method = kin.found.ledger.of_kind("request"), kin.found.info["unlearner"]
    # two trainings of one commitment have the same draws, and other digests where platforms differ
    at_hand = kin.parent in by_digest and kin.parent not in passed  # tombstones can say that they are in a circle
    parent = _drawn_from(by_digest[kin.parent], by_digest, passed | {kin.parent}) if at_hand else kin.parent
    return sha256(canonical_json([parent, asked["clients"], asked["samples"], method["use"], method["options"]]))


def strangers(run: Run, columns: int | None = None) -> dict[str, str]:
    """Part of a round -> why its word is not taken; none of fuaudit's own solver, or stage that stands alone.

    ``columns`` are the parameters of a run that has no model yet.
    """
    behind = "acts behind the clients, and is not accounted for"
    found = {f"server.{number}": f"a server stage {behind}" for number in range(len(run.config.server))}
    solver, dimension = build("solvers", run.config.solver), columns or run.model.numel()
    parts = {OF_SOLVER: run.config.solver} | {Part("client", n): table for n, table in enumerate(run.config.client)}
    for part, table in parts.items():
        why = no_word(part, table["use"]) or in_the_way(run.exchange, solver, run.config.scaling, part, dimension)
        why = why or outside_parts(run.config, run.exchange, part)
        found |= {str(part): why} if why else {}
    return found | {"transport": f"the transport {behind}"}


def by_config(run: Run, distrusted: Collection[str], columns: int | None = None) -> frozenset[Release]:
    """What solver and client stages release under in every round, as the config has them; where their word is taken.

    ``columns`` are the parameters of a run that has no model yet.
    """
    stages: tuple[Any, ...] = run.exchange.client_stages.stages
    parts: dict[str, Any] = {str(OF_SOLVER): build("solvers", run.config.solver)}
    parts |= {f"client.{number}": stage for number, stage in enumerate(stages)}
    said = {part: stage for part, stage in parts.items() if part not in distrusted and says(stage, "releases")}
    return frozenset(release_of(part, stage, columns or run.model.numel()) for part, stage in said.items())


def release_of(part: str, stage: Any, columns: int) -> Release:
    """What a client stage says that it releases under in every round, over so many columns.

    Raises:
        PluginError: it answers with something that is no mechanism.
    """
    return _release(as_table(part, released_by(stage, columns)))


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


def unlimited(
    family: Collection[Kin], shows: str, by_config: Collection[Release] = ()
) -> dict[str, tuple[Unlimited, ...]]:
    """Name of a run -> what left it that nothing limits: in its rounds, then in its files, also if removed since.

    Args:
        shows: what the transport shows the server of a round.
        by_config: what client stages release under, as the config has them.
    """
    by_digest = {digest: kin for kin in family for digest in kin.digests}
    return {kin.name: _unlimited(kin, shows, _is_noisy(kin, by_digest, by_config)) for kin in family}


def _unlimited(kin: Kin, shows: str, noisy: bool) -> tuple[Unlimited, ...]:
    lines = kin.found.ledger.of_kind("round")
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


def _is_noisy(kin: Kin, by_digest: Mapping[str, Kin], by_config: Collection[Release]) -> bool:
    """Whether all rows that a run's models are made of had noise before anybody saw them; those it keeps too."""
    on_the_way = set[str]()
    while not kin.found.by_editor:
        lines, empty = kin.found.ledger.of_kind("round"), _empty(kin)
        came = [line for line in lines if line["round"] not in empty]
        if not all(_has_noise(line, by_config) for line in came):
            return False
        if not kin.parent or (lines and lines[0]["round"] == 1):
            return bool(came)
        on_the_way.add(kin.name)
        above = by_digest.get(kin.parent)
        if above is None or above.name in on_the_way:
            return False
        kin = above
    return False


def _empty(kin: Kin) -> frozenset[int]:
    """Rounds in which nobody took part, as far as the run still tells: nothing left in them."""
    if not isinstance(kin.found, Run):
        return frozenset()
    return frozenset(number for number, cohort in enumerate(kin.found.participation["cohorts"], 1) if not cohort)


def _has_noise(line: Mapping[str, Any], by_config: Collection[Release]) -> bool:
    """Whether all rows of a round had noise before anybody saw them."""
    return any(one.mechanism in NOISY and one in by_config for one in releases_of(line))
