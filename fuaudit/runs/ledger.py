"""The ledger: events of a run, one JSON line each, every line holding the digest of the line before.

Dropping, inserting, reordering or changing a line breaks the chain. A torn last line (a crash while writing)
is cut off when a run is resumed, and rejected when a run is read as evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError
from fuaudit.runs.files import append_line, canonical_json, parse_json, read_bytes, sha256, write_bytes

NAME = "ledger.jsonl"
GENESIS = "0" * 64


@dataclass(frozen=True)
class Ledger:
    """The events of a run in order, and the digest of the last line (``head``)."""

    events: tuple[dict[str, Any], ...] = ()
    head: str = GENESIS

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [event for event in self.events if event["event"] == kind]


def _verified(lines: list[bytes], path: Path) -> Ledger:
    head, events = GENESIS, []
    for number, line in enumerate(lines, 1):
        event = parse_json(line, path)
        if not isinstance(event, dict) or not isinstance(event.get("event"), str) or event.get("previous") != head:
            raise EvidenceError(f"{path}: line {number} does not follow from the line before it")
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
