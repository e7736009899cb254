"""The ledger: events of a run, one JSON line each, every line holding the digest of the line before.

Dropping, inserting, reordering or changing a line breaks the chain. A torn last line (a crash while writing)
is cut off when a run is resumed, and rejected when a run is read as evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from fuaudit.errors import EvidenceError
from fuaudit.formats.files import read_bytes, sha256
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json, parse_canonical
from fuaudit.formats.schema import EARLIEST
from fuaudit.runs.layout import EVENTS, LEDGER, MANIFEST
from fuaudit.text import WITH_DATA, command
from fuaudit.training.events import fails

GENESIS = "0" * 64
PLATFORM, SECURED = "platform", "secured"


class Events(Sequence[dict[str, Any]]):
    """Events in order. One with an event more shares what it holds: a run adds one a round."""

    __slots__ = ("_held", "_size")

    def __init__(self, held: Iterable[dict[str, Any]] = ()) -> None:
        self._held = list(held)
        self._size = len(self._held)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[dict[str, Any], ...]: ...
    def __getitem__(self, place: int | slice) -> dict[str, Any] | tuple[dict[str, Any], ...]:
        chosen = range(self._size)[place]  # others may have added more since
        return tuple(self._held[i] for i in chosen) if isinstance(chosen, range) else self._held[chosen]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Events | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # events are tables, which have none

    def __repr__(self) -> str:
        return repr(tuple(self))

    def with_one(self, event: dict[str, Any]) -> Events:
        """These and one more. The list is shared, unless another was added to these before."""
        held = self._held if len(self._held) == self._size else self._held[: self._size]
        held.append(event)
        more = Events()
        more._held, more._size = held, self._size + 1
        return more


@dataclass(frozen=True)
class Ledger:
    """The events of a run in order, the digest of the last line (``head``), and the bytes of all lines.

    ``time`` is the last one told: what is added is not earlier. A child's begins with the last of its parent.
    """

    events: Events = field(default_factory=Events)
    head: str = GENESIS
    size: int = 0
    time: str = EARLIEST

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events, in order."""
        return [event["event"] for event in self.events]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [event for event in self.events if event["event"] == kind]

    def line_with(self, head: str) -> int:
        """The number of the line that has this SHA-256, from 1; 0 for none. All lines up to it follow from it."""
        heads = [*(event["previous"] for event in self.events[1:]), self.head] if self.events else []
        return heads.index(head) + 1 if head in heads else 0


def ledger_of(lines: list[bytes], path: Path) -> Ledger:
    """The ledger of lines without their ends, its chain checked. EvidenceError when it is broken."""
    head, time, events = GENESIS, EARLIEST, []
    for number, line in enumerate(lines, 1):
        event = parse_canonical(line, path)
        if not isinstance(event, dict) or not isinstance(event.get("event"), str) or event.get("previous") != head:
            raise EvidenceError(f"{path}: line {number} does not follow from the line before it")
        if not any(form(event) for form in EVENTS.get(event["event"], ())):
            raise EvidenceError(f"{path}: line {number} is no event that a run can have")
        if event.get("time", time) < time:
            raise EvidenceError(f"{path}: line {number} tells an earlier time than a line before it")
        events.append(event)
        head, time = sha256(line), event.get("time", time)
    return Ledger(Events(events), head, sum(map(len, lines)) + len(lines), time)


def suite_of(ledger: Ledger) -> str | None:
    """The suite that makes the sums of a run, as its ledger tells; None where none does."""
    return next((event["suite"] for event in ledger.of_kind(SECURED)), None)


def opens_sums(ledger: Ledger) -> bool:
    """Whether a suite may have opened sums of a run that grows: not before a child tells what it keeps."""
    kinds = ledger.kinds
    return SECURED in kinds and ("unlearning" in kinds or "request" not in kinds)


def read_ledger(run: Path) -> Ledger:
    """The ledger of a run, its chain checked. EvidenceError when it is broken or its last line is torn."""
    path = run / LEDGER
    content = read_bytes(path, MAX_JSON_BYTES)
    if not content.endswith(b"\n"):
        # a run that was finished has nothing to resume: its file was damaged since
        broken_off = f"If a run was interrupted: {command('resume', run)}{WITH_DATA}"
        damaged = "The run was complete, so the file was damaged since: take it from a copy of the folder."
        raise EvidenceError(f"{path}: the last line is torn", damaged if (run / MANIFEST).exists() else broken_off)
    return ledger_of(content[:-1].split(b"\n"), path)


def released(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What parts of a round told that they released, by its line."""
    return [event for event in line.get("told", ()) if event["kind"] == "released"]


def has_failed(told: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the events of a round say that none of its rows was applied."""
    return any(map(fails, told))


def failed_rounds(ledger: Ledger) -> list[int]:
    """The rounds that a run executed itself in which rows came and none was applied, or too few could come."""
    return [line["round"] for line in ledger.of_kind("round") if has_failed(line.get("told", ()))]


def wrong_course(ledger: Ledger, info: Mapping[str, Any], stored: Collection[int]) -> str:
    """What the ledger of a sealed run tells otherwise than its ``run.json`` (shape checked); empty for nothing.

    One commitment, first, and behind it what makes the sums, where a suite does; in children one request and one
    unlearning, before any round; every round that the run executed itself, once and in order, with its model where that
    is ``stored``; one seal, and after it a prune at most.
    """
    is_child = info["kind"] == "unlearning"
    kinds = ledger.kinds
    if kinds.count("commitment") != 1 or kinds[0] != "commitment":
        return "it does not begin with its one commitment"
    rounds = [event["round"] for event in ledger.of_kind("round")]
    course = ["request", "unlearning"] * is_child + ["round"] * len(rounds)
    if SECURED in kinds[2:]:
        return "it names a suite for its sums elsewhere than behind its commitment"
    told_of = [kind for kind in kinds[1:] if kind not in (PLATFORM, SECURED)]
    if told_of not in ([*course, "sealed"], [*course, "sealed", "pruned"]):
        return "a request, an unlearning or a seal is missing, surplus, or out of order"
    if PLATFORM in kinds[kinds.index("sealed") :]:
        return "a platform went on with it after its seal"
    if kinds[-1] == "pruned" and ledger.events[-1]["before"] != ledger.events[-2]["digest"]:
        return "it was pruned, and another run was sealed before"
    kept, rounds_executed = 0, info["rounds_executed"]
    if is_child:
        (told,) = ledger.of_kind("unlearning")
        if ("kept_rounds" in told) != (info["unlearner"]["kind"] == "rewriter"):
            return "its unlearning is not of the kind of its unlearner"
        if told.get("first_change", info["first_change"]) != info["first_change"]:
            return "it names another first change"
        # an editor executes no round of the plan
        kept = told.get("kept_rounds", rounds_executed)
        if kept > max(info["first_change"][0] - 1, 0):
            return "it keeps rounds that were drawn anew"
    if len(rounds) != rounds_executed - kept or rounds != list(range(kept + 1, rounds_executed + 1)):
        return f"it does not tell rounds {kept + 1} to {rounds_executed}, each once and in order"
    if any(("transcript" in event) != (SECURED in kinds) for event in ledger.of_kind("round")):
        return "a round of it names a transcript where no suite made sums, or none where one did"
    if any(("model" in event) != (event["round"] in stored) for event in ledger.of_kind("round")):
        return "it names models of other rounds than those whose models are stored"
    return _wrong_platforms(ledger, info, told.get("kept_rounds", 0) if is_child else 0, stored)


def _wrong_platforms(ledger: Ledger, info: Mapping[str, Any], kept: int, stored: Collection[int]) -> str:
    """What is wrong with the platforms of a run that keeps so many rounds; empty for nothing.

    First those that made what is kept, then the one that ``run.json`` names, and one each time that another went on
    from a stored round. Of one whose work was lost nothing can be compared, so none is told of.
    """
    since, rounds, own, last = -1, 0, list[Mapping[str, Any]](), None
    plugins = _names(info["plugins"])
    for event in ledger.events:
        rounds += event["event"] == "round"
        if event["event"] != PLATFORM:
            continue
        if event["since"] <= since:
            return "several of its platforms went on from one round"
        if event["since"] not in {0, kept, *stored}:
            return "a platform went on from a round whose model is not stored"
        if rounds != max(event["since"] - kept, 0):
            return "its platforms did not begin where it says, one after another"
        if _names(event["plugins"]) != plugins:
            return "its platforms used other plugins than its run.json names"
        same = {word: event[word] for word in ("versions", "plugins", "canary")}
        if same == last and own:
            return "it names one platform twice"
        since, last = event["since"], same
        own += [event] if since >= kept else []
    if not own or own[0]["since"] != kept or (kept and own[0] is ledger.of_kind(PLATFORM)[0]):
        return "it does not tell of all platforms that made its models"
    if any(own[0][word] != info[word] for word in ("versions", "plugins")):
        return "it names other versions or plugins than its run.json"
    return ""


def _names(plugins: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Plugins without their versions, which may differ from platform to platform."""
    return [(plugin["kind"], plugin["use"], plugin["distribution"]) for plugin in plugins]


def models_told(ledger: Ledger) -> dict[int, str]:
    """Round -> the digest of its model, of the rounds that a run executed itself and whose models it stores."""
    return {event["round"]: event["model"] for event in ledger.of_kind("round") if "model" in event}


EventsByRound = dict[int, Sequence[dict[str, Any]]]
"""Round -> the events that its stages tell; no round that tells nothing."""


def other_events(ledger: Ledger, events: EventsByRound, rounds: range, everywhere: bool = False) -> int:
    """The first of some rounds of which a ledger tells other ``events``; 0 for none.

    ``everywhere``: of which it tells otherwise than any platform does.
    """
    of = _everywhere if everywhere else list
    lines = {event["round"]: event.get("told", []) for event in ledger.of_kind("round") if event["round"] in rounds}
    return next((n for n in lines if canonical_json(of(lines[n])) != canonical_json(of(events.get(n, [])))), 0)


def _everywhere(told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events as each platform tells them: how much is not zero, and what is finite, can hang on rounding."""
    return [event | {"size": 0} for event in told if event["kind"] not in ("rejected", "suspected", "summed", "failed")]
