"""Append: add an event to the ledger of a run, or cut what a kill left at its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fuaudit.errors import PluginError
from fuaudit.formats.files import append_line, read_bytes, sha256, write_bytes
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json
from fuaudit.formats.schema import LATEST
from fuaudit.runs.layout import LEDGER, is_timed
from fuaudit.runs.ledger import PLATFORM, Ledger, ledger_of, opens_sums

SPARE = 2**20
"""Bytes of a ledger that rounds leave to what ends it: a seal, a prune."""


def append(run: Path, ledger: Ledger, event: str, **facts: Any) -> Ledger:
    """Add an event, with the time where events of its kind have one; returns the grown ledger.

    Raises:
        PluginError: stages tell so much of a round that the ledger would be too large to be read.
    """
    time = _time_after(ledger.time) if is_timed(event) else ledger.time
    entry = {"event": event, "previous": ledger.head, **({"time": time} if is_timed(event) else {}), **facts}
    line = canonical_json(entry)
    size = ledger.size + len(line) + 1
    if event == "round" and size > MAX_JSON_BYTES - SPARE:
        raise PluginError(
            f"with what stages tell of round {facts['round']}, {run / LEDGER} would be larger than can be read",
            "All rounds before are kept. Let the stages tell less.",
        )
    append_line(run / LEDGER, line)
    return Ledger(ledger.events.with_one(entry), sha256(line), size, time)


def _time_after(last: str) -> str:
    """The second of UTC, or the last one told again: clocks are set back, and runs are resumed on other machines."""
    return min(max(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), last), LATEST)


def unmended(run: Path) -> Ledger:
    """The ledger as a kill left it, as far as its lines are whole."""
    path = run / LEDGER
    return ledger_of(read_bytes(path, MAX_JSON_BYTES).split(b"\n")[:-1], path)


def mend_ledger(run: Path, keep_rounds: int) -> Ledger:
    """Cut a torn last line, the rounds after ``keep_rounds`` (to be executed again), and a seal without manifest.

    A platform that went on after those rounds stored nothing: it is cut, with what it told after that. Where a suite
    may have opened sums there it stays: no other platform may go on, however often the run breaks off.
    """
    path = run / LEDGER
    content = read_bytes(path, MAX_JSON_BYTES)
    lines = content.split(b"\n")[:-1]
    ledger = ledger_of(lines, path)
    # everything from the first event that goes: what is left is a beginning, whose chain holds
    stays = opens_sums(ledger)
    lost = (place for place, event in enumerate(ledger.events) if _is_lost(event, keep_rounds, stays))
    kept = lines[: next(lost, len(lines))]
    whole = b"".join(line + b"\n" for line in kept)
    if whole != content:
        write_bytes(path, whole)
    return ledger_of(kept, path)


def _is_lost(event: Mapping[str, Any], kept: int, stays: bool) -> bool:
    """Whether an event tells of what came after so many stored rounds; ``stays``: whether its platform does."""
    if event["event"] == PLATFORM:
        return bool(event["since"] >= kept and not stays)
    return bool(event.get("round", 0) > kept or event["event"] == "sealed")
