"""The ledger: events of a run, one JSON line each, every line holding the digest of the line before.

Dropping, inserting, reordering or changing a line breaks the chain. A torn last line (a crash while writing)
is cut off when a run is resumed, and rejected when a run is read as evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError
from fuaudit.runs.files import append_line, canonical_json, parse_json, read_bytes, sha256, write_bytes
from fuaudit.runs.shapes import Shape, are_ids, is_count, is_digest, is_position, is_text, wrong_fields

NAME = "ledger.jsonl"
GENESIS = "0" * 64
EVENTS: Mapping[str, tuple[Mapping[str, Shape], ...]] = {
    "commitment": ({"commitment": is_digest},),
    "request": ({"clients": are_ids, "samples": are_ids, "parent": is_digest},),
    "unlearning": ({"first_change": is_position, "kept_rounds": is_count}, {"messages": is_count, "bytes": is_count}),
    "round": ({"round": is_count, "model": is_digest},),
    "sealed": ({"digest": is_digest},),
    "pruned": ({"digest": is_digest, "before": is_digest},),
}
"""Kind of event -> the fields that it has; an event of unlearning is that of a rewriter or that of an editor."""


@dataclass(frozen=True)
class Ledger:
    """The events of a run in order, and the digest of the last line (``head``)."""

    events: tuple[dict[str, Any], ...] = ()
    head: str = GENESIS

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events, in order."""
        return [event["event"] for event in self.events]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [event for event in self.events if event["event"] == kind]


def _verified(lines: list[bytes], path: Path) -> Ledger:
    head, events = GENESIS, []
    for number, line in enumerate(lines, 1):
        event = parse_json(line, path)
        if not isinstance(event, dict) or not isinstance(event.get("event"), str) or event.get("previous") != head:
            raise EvidenceError(f"{path}: line {number} does not follow from the line before it")
        forms = EVENTS.get(event["event"], ())
        if not is_text(event.get("time")) or all(wrong_fields(event, form) for form in forms):
            raise EvidenceError(f"{path}: line {number} is no event that a run can have")
        events.append(event)
        head = sha256(line)
    return Ledger(tuple(events), head)


def read_ledger(run: Path) -> Ledger:
    """The ledger of a run, its chain checked. EvidenceError when it is broken or its last line is torn."""
    path = run / NAME
    content = read_bytes(path)
    if not content.endswith(b"\n"):
        raise EvidenceError(f"{path}: the last line is torn", f"If a run was interrupted: fuaudit resume {run}")
    return _verified(content[:-1].split(b"\n"), path)


def wrong_course(ledger: Ledger, info: Mapping[str, Any]) -> str:
    """What the ledger of a sealed run tells otherwise than its ``run.json`` (shape checked); empty for nothing.

    One commitment, first; in children one request and one unlearning, before any round; and every round that the
    run executed itself, once and in order.
    """
    is_child = info["kind"] == "unlearning"
    kinds = ledger.kinds
    if kinds.count("commitment") != 1 or kinds[0] != "commitment":
        return "it does not begin with its one commitment"
    course = [kind for kind in kinds if kind in ("request", "unlearning", "round")]
    rounds = [event["round"] for event in ledger.of_kind("round")]
    if course != ["request", "unlearning"] * is_child + ["round"] * len(rounds):
        return "a request or an unlearning is missing, surplus, or out of order"
    kept, executed = 0, info["executed_rounds"]
    if is_child:
        (told,) = ledger.of_kind("unlearning")
        if ("kept_rounds" in told) != (info["unlearner"]["kind"] == "rewriter"):
            return "its unlearning is not of the kind of its unlearner"
        if told.get("first_change", info["first_change"]) != info["first_change"]:
            return "it names another first change"
        # an editor executes no round of the plan
        kept = told.get("kept_rounds", executed)
        if kept > max(info["first_change"][0] - 1, 0):
            return "it keeps rounds that were drawn anew"
    if rounds != list(range(kept + 1, executed + 1)):
        return f"it does not tell rounds {kept + 1} to {executed}, each once and in order"
    return ""


def mend_ledger(run: Path, keep_rounds: int) -> Ledger:
    """Cut a torn last line, the rounds after ``keep_rounds`` (to be executed again), and a seal without manifest."""
    path = run / NAME
    content = read_bytes(path)
    lines = content.split(b"\n")[:-1]
    ledger = _verified(lines, path)
    kept = [
        line
        for line, event in zip(lines, ledger.events, strict=True)
        if event["event"] != "sealed" and not (event["event"] == "round" and event["round"] > keep_rounds)
    ]
    whole = b"".join(line + b"\n" for line in kept)
    if whole != content:
        write_bytes(path, whole)
    return _verified(kept, path)


def append(run: Path, ledger: Ledger, event: str, **facts: Any) -> Ledger:
    """Add an event, with the time; returns the grown ledger."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = {"event": event, "previous": ledger.head, "time": moment, **facts}
    line = canonical_json(entry)
    append_line(run / NAME, line)
    return Ledger((*ledger.events, entry), sha256(line))
