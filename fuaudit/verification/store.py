"""Where findings last: a file of its own for every verification, and a log of all of them, beside the run.

``RUN.audit/`` holds ``findings-NNNN-<digest>.json`` (NNNN counts the verifications of this folder, the rest begins the
SHA-256 of the file) and ``log.jsonl``: a line before the audits of each, a line after. A verification that was
interrupted has the first line only. Nothing here is overwritten, and nothing is written through a link.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError, StorageError, UsageError
from fuaudit.formats.files import (
    locked,
    make_folder,
    named,
    read_bytes,
    read_json,
    refuse_link,
    sha256,
    storage,
    write_bytes,
)
from fuaudit.formats.forms import canonical_json, parse_json, pretty_json
from fuaudit.formats.schema import is_time
from fuaudit.formats.versions import LAST_READER
from fuaudit.runs.layout import AUDIT, TOMBSTONE
from fuaudit.runs.listing import is_run
from fuaudit.text import WITH_DATA, command, counted
from fuaudit.verification.finding import Verdict, require_findings

LOG = "log.jsonl"
MOST = 10**9
"""Numbers of verifications are smaller: a log is no place for one that makes the name of a file too long."""

SHORT = 12
"""Hexadecimal digits of a digest in the name of a file."""

READ_ONLY = 0o444
"""The mode of findings: whoever edits them has to mean it, and their name no longer fits."""

THIS = "by this spec"

PATIENCE = 10.0
"""Seconds to wait for another verification that is writing its line."""

_NAME = re.compile(rf"findings-([0-9]{{4,9}})-([0-9a-f]{{{SHORT}}})\.json")
_BEGUN = {
    "number": int,
    "time": str,
    "run": str,
    "ledger": str,
    "spec": dict,
    "key_given": bool,
    "arguments": list,
}
_DONE = {"number": int, "time": str, "verdict": str, "findings": str, "sha256": str}


@dataclass(frozen=True)
class Verified:
    """One verification of a folder, as its log tells.

    Attributes:
        number: from 1, in the order in which they began.
        begun, done: times by the clock of the machine, in UTC; ``done`` is empty where it did not end.
        run: digest of the run that was audited.
        ledger: head of its ledger, which the digest does not cover.
        spec: its id, origin and digest.
        key_given: whether the auditor chose the key.
        arguments: what else was given, folders by placeholders.
        verdict: empty where it did not end.
        findings, sha256: name and digest of the file of findings; empty where it did not end.
        kept: whether that file lies beside the log, has that digest, and says what the log says.
    """

    number: int
    begun: str
    run: str
    ledger: str
    spec: dict[str, str]
    key_given: bool
    arguments: tuple[str, ...]
    done: str = ""
    verdict: str = ""
    findings: str = ""
    sha256: str = ""
    kept: bool = False

    @property
    def of(self) -> tuple[str, str]:
        """What was audited: a digest, and the head of a ledger."""
        return self.run, self.ledger

    @property
    def outcome(self) -> str:
        """The verdict, where the findings bear it out."""
        return (self.verdict if self.kept else "missing or altered") if self.verdict else "not finished"


def audit_folder(run: Path) -> Path:
    """Where the findings and reports of a run lie: beside it, for a run is never edited."""
    folder = named(run)
    return folder.with_name(folder.name + AUDIT)


def folder_of(findings: Path) -> Path:
    """The run that a file of findings lies beside; UsageError where it lies in no folder of findings."""
    folder = named(findings).parent
    if not folder.name.endswith(AUDIT):
        raise UsageError(f"{findings} lies in no folder RUN{AUDIT}: it is not said which run it is of", "Give the run.")
    return folder.with_name(folder.name.removesuffix(AUDIT))


def findings_name(number: int, content: bytes) -> str:
    """The name of a file of findings."""
    return f"findings-{number:04d}-{sha256(content)[:SHORT]}.json"


def begin(folder: Path, run: str, ledger: str, spec: dict[str, str], key_given: bool, arguments: list[str]) -> int:
    """Number a verification, and log that it begins; what cannot be written is found out here, before the audits.

    Raises:
        StorageError: the folder or its log cannot be written, or is a link or of another kind.
        EvidenceError: a run lies there, or a log that is none; or the numbers are used up.
    """
    refuse_link(folder)
    if is_run(folder):
        raise EvidenceError(f"{folder} is a run, and findings would spoil it", "Rename that run.")
    with storage(folder):
        make_folder(folder)
    with _alone(folder):
        lines = _lines(folder)
        taken = [line["number"] for line in lines] + [int(match[1]) for _, match in _files(folder)]
        number = max(taken, default=0) + 1
        if number >= MOST:
            raise EvidenceError(f"{folder} counts {number - 1:,} verifications", "Put it elsewhere, and verify again.")
        facts = {"run": run, "ledger": ledger, "spec": spec, "key_given": key_given, "arguments": arguments}
        _write(folder, [*lines, {"event": "begun", "number": number, "time": _now(), **facts}])
    return number


def finish(folder: Path, number: int, verdict: str, document: dict[str, Any]) -> Path:
    """Store the findings of a verification that was begun, log that it ended, and return their file."""
    content = pretty_json(document)
    path = folder / findings_name(number, content)
    with _alone(folder):
        write_bytes(path, content, READ_ONLY)
        facts = {"verdict": verdict, "findings": path.name, "sha256": sha256(content)}
        _write(folder, [*_lines(folder), {"event": "done", "number": number, "time": _now(), **facts}])
    return path


def history(folder: Path) -> tuple[Verified, ...]:
    """All verifications that the log of a folder tells of, in the order in which they began; none without a log.

    Raises:
        EvidenceError: the log is none.
    """
    found: dict[int, Verified] = {}
    for line in _lines(folder):
        number = line["number"]
        if line["event"] == "begun":
            begun = {word: line[word] for word in ("run", "ledger", "spec", "key_given")}
            found[number] = Verified(number, line["time"], arguments=tuple(line["arguments"]), **begun)
            continue
        ended = {word: line[word] for word in ("verdict", "findings", "sha256")}
        entry = replace(found[number], done=line["time"], **ended)
        found[number] = replace(entry, kept=_is_borne_out(entry, folder / entry.findings))
    return tuple(found.values())


def reason(folder: Path, entry: Verified) -> str:
    """Why a verification ended as it did, by its findings; "" where these are not as they were stored."""
    try:
        path = folder / entry.findings
        told = require_findings(read_json(path), path).get("reason") if entry.kept else ""
    except EvidenceError:
        return ""
    return told if isinstance(told, str) else ""


def standing(entries: tuple[Verified, ...], number: int) -> str:
    """Which of the verifications of a folder one is, and how the others ended, by the log beside it.

    They are counted by spec, for a FAIL of one and a PASS of another are no contradiction.
    """
    if not entries:
        return "No log lies beside the findings: how often the run was audited is not known."
    here = next((entry for entry in entries if entry.number == number), None)
    if here is None:
        return f"{counted(len(entries), 'verification')} by the log beside the findings."
    ended: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry is not here:
            ended.setdefault(_beside(entry, here), Counter())[entry.outcome] += 1
    told = [
        f"{by} {', '.join(f'{count} {word}' for word, count in sorted(counts.items()))}"
        for by, counts in sorted(ended.items(), key=lambda item: (not item[0].startswith(THIS), item[0]))
    ]
    others = f"; the others: {'; '.join(told)}" if told else ""
    last = max(entry.number for entry in entries)
    lost = f". Missing there: {last - len(entries)} of verifications 1 to {last}" if last > len(entries) else ""
    return f"This is verification {number} of {len(entries)} by the log beside the findings{others}{lost}."


def _beside(entry: Verified, here: Verified) -> str:
    """By which spec a verification was, and of what, as one beside it sees that."""
    spec = THIS if entry.spec["digest"] == here.spec["digest"] else f"by {entry.spec['id']!a}"
    return spec if entry.of == here.of else f"{spec} of the run as it was"


def latest(run: Path) -> Path:
    """The findings of the last verification that ended.

    Raises:
        EvidenceError: there are none.
        StorageError: their folder is a link.
    """
    folder = audit_folder(run)
    refuse_link(folder)
    found = sorted((int(match[1]), path) for path, match in _files(folder)) if folder.is_dir() else []
    ended = [entry.findings for entry in history(folder) if entry.findings]
    name = ended[-1] if ended else found[-1][1].name if found else ""
    if not name:
        gone = (run / TOMBSTONE).is_file()
        hint = "" if gone else f"Make them with: {command('verify', run)}{WITH_DATA}"
        raise EvidenceError(f"{run} has no findings{'' if gone else ' yet'}", hint)
    return folder / name


def read_findings(path: Path, run: str, ledger: str) -> dict[str, Any]:
    """The stored findings of a run with this digest and this head of its ledger.

    Raises:
        EvidenceError: they are missing, of another run, not what their name says, or the log beside them does not
            name them.
    """
    content, anew = read_bytes(path), "Make them anew with: fuaudit verify"
    document = require_findings(parse_json(content, path), path)
    match = _NAME.fullmatch(path.name)
    if match is None or sha256(content)[:SHORT] != match[2]:
        raise EvidenceError(f"{path} does not hold the findings that its name is made of", anew)
    if content != pretty_json(document):
        raise EvidenceError(f"{path} is not in the form in which it was stored", anew)
    if document.get("run") != run:
        raise EvidenceError(f"{path} holds the findings of another run, or of this one before it was pruned", anew)
    if document.get("ledger") != ledger:
        raise EvidenceError(f"{path} judged this run with another ledger than lies in it now", anew)
    known = history(path.parent)
    if known and sha256(content) not in {entry.sha256 for entry in known}:
        raise EvidenceError(f"{path} is not what a line of {LOG} beside it names", anew)
    return document


def number_of(path: Path) -> int:
    """Which verification a file of findings is of, by its name; 0 where it has none."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _files(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    return [(path, match) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]


def _is_borne_out(entry: Verified, path: Path) -> bool:
    """Whether findings lie at a path that have the digest of a verification, and say what its lines say."""
    try:
        content = read_bytes(path)
        found = require_findings(parse_json(content, path), path)
    except EvidenceError:
        return False
    spec, context = (part if isinstance(part := found.get(name), dict) else {} for name in ("spec", "context"))
    told = found.get("run"), found.get("ledger")
    return (number_of(path), sha256(content), *told, found.get("verdict"), context.get("arguments")) == (
        entry.number,
        entry.sha256,
        *entry.of,
        entry.verdict,
        list(entry.arguments),
    ) and all(spec.get(name) == said for name, said in entry.spec.items())


def _lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of the log, checked for their form."""
    path = folder / LOG
    refuse_link(path)
    if not path.exists():
        return []
    if not path.is_file():
        raise StorageError(f"cannot write {path}: it is no regular file", "See who made it, and remove it.")
    lines = [parse_json(line, path) for line in read_bytes(path).splitlines()]
    stage: dict[int, str] = {}
    for line in lines:
        _require_present(line, path)
        if not _is_line(line) or stage.get(line["number"], "") != ("" if line["event"] == "begun" else "begun"):
            raise EvidenceError(f"{path} is no log of verifications", "Put it elsewhere, and verify again.")
        stage[line["number"]] = line["event"]
    return lines


def _require_present(line: object, path: Path) -> None:
    """Raises EvidenceError for a line that another version of fuaudit wrote: it says less than this one's, or more."""
    if not isinstance(line, dict) or line.get("event") not in ("begun", "done") or not {"number", "time"} <= {*line}:
        return
    shape = {"event", *(_BEGUN if line["event"] == "begun" else _DONE)}
    own, lacking, more = version("fuaudit"), sorted(shape - line.keys()), sorted(line.keys() - shape)
    if lacking == more == []:
        return
    who = f"an earlier version than fuaudit {own}" if lacking else f"a later version than fuaudit {own}"
    what = f"do not say {', '.join(lacking)}" if lacking else f"say {', '.join(more)} too"
    which = f"fuaudit {LAST_READER['fuaudit findings 1']}, or what else wrote it," if lacking else "That version"
    raise EvidenceError(
        f"{path} was written by {who}: its lines {what}",
        f"{which} lists it (fuaudit history). To go on with this one, rename the folder {path.parent}, which keeps the "
        "count of before, and verify again.",
    )


def _is_line(line: object) -> bool:
    if not isinstance(line, dict) or line.get("event") not in ("begun", "done"):
        return False
    shape = _BEGUN if line["event"] == "begun" else _DONE
    if line.keys() != {"event", *shape} or any(type(line[word]) is not kind for word, kind in shape.items()):
        return False
    if not 0 < line["number"] < MOST or not is_time(line["time"]):
        return False
    if line["event"] == "done":
        return bool(_NAME.fullmatch(line["findings"])) and line["verdict"] in {str(word) for word in Verdict}
    texts = [*line["arguments"], *line["spec"].values()]
    return all(type(text) is str for text in texts) and line["spec"].keys() == {"id", "origin", "digest"}


def _write(folder: Path, lines: list[dict[str, Any]]) -> None:
    """The log is written anew and put in the place of the old one: a link to another file is never written through."""
    write_bytes(folder / LOG, b"".join(canonical_json(line) + b"\n" for line in lines))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder for the time of one change; another verification that changes it is waited for."""
    until = time.monotonic() + PATIENCE
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(folder, f"another process is writing {folder}"))
                break
            except UsageError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        yield


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
