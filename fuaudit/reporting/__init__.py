"""Reports: findings for those who must read them. Pure functions of the stored document; nothing is judged here.

``render`` makes the bytes of a report, ``report`` and ``write_report`` store one. The same document gives the same
bytes. matplotlib is imported for HTML only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuaudit.errors import EvidenceError, UsageError, nearest

if TYPE_CHECKING:
    from fuaudit.runs.run import Run
    from fuaudit.runs.tombstone import Tombstone
    from fuaudit.verification.verification import Verification

EXTENSIONS = {"html": "html", "json": "json", "md": "md", "junit": "xml"}
"""Format -> file extension."""

_SUFFIXES = {"": "html", ".html": "html", ".htm": "html", ".json": "json", ".md": "md", ".xml": "junit"}
"""What the name of a file ends in -> the format that is written where none is named."""

REMAINS = (
    "The run is not there any more: a tombstone is left, which says that a prune of a run made from it removed it."
)
BEFORE = "It judged the run as its ledger says that it was before its prune; the run has another digest since then."
"""What a report says beside the number of the verification where the run is gone, or was pruned."""

_HOME = {"html": "page", "md": "markdown", "junit": "junit"}

__all__ = ["EXTENSIONS", "render", "report", "write_report"]


def render(document: dict[str, Any], form: str, standing: str = "") -> bytes:
    """A report of findings in one of the formats of :data:`EXTENSIONS`.

    Args:
        standing: which verification of the run it is, in a sentence; it comes from the log, not from the findings.

    Raises:
        UsageError: there is no such format.
        EvidenceError: the document does not hold findings.
    """
    from fuaudit.reporting.contents import read_contents, stored_form

    if form not in EXTENSIONS:
        raise UsageError(f"there is no report format {form!r}", nearest(form, EXTENSIONS))
    contents = read_contents(document)
    if form == "json":
        return stored_form(document)
    work: Callable[..., str] = import_module(f"fuaudit.reporting.{_HOME[form]}").render
    return work(replace(contents, standing=standing)).encode()


def format_of(out: Path | str | None) -> str:
    """The format that the name of a file asks for; UsageError for an ending that says none.

    >>> format_of("mine.md"), format_of(None)
    ('md', 'html')
    """
    suffix = Path(out or "").suffix.lower()
    if suffix not in _SUFFIXES:
        endings = ", ".join(filter(None, _SUFFIXES))
        raise UsageError(
            f"no report format is written to files that end in {suffix}", f"Name one, or end in: {endings}."
        )
    return _SUFFIXES[suffix]


def report(of: Verification | Run | Path | str, format: str | None = None, out: Path | str | None = None) -> Path:
    """Write a report, and return its path.

    Args:
        of: what ``verify`` returned; or a run or its folder, for its last verification; or a file of findings.
        format: one of :data:`EXTENSIONS`; by default what ``out`` ends in, else HTML.
        out: the file to write; by default beside the findings, under their name.

    Raises:
        UsageError: there is no such format, ``out`` exists or has no folder, or findings that were not stored and no
            ``out``.
        EvidenceError: there is no run, there are no findings, or their file is not as it was stored.
        StorageError: the file system refused.
    """
    from fuaudit.formats.files import require_new_file, write_bytes
    from fuaudit.runs.run import Run
    from fuaudit.verification.store import folder_of
    from fuaudit.verification.verification import Verification

    if isinstance(of, Verification) and of.path is None:
        if out is None:
            raise UsageError("these findings were not stored: nothing says where their report belongs", "Give out.")
        require_new_file(Path(out))
        write_bytes(Path(out), render(of.as_json(), format or format_of(out)))
        return Path(out)
    if isinstance(of, Verification):
        return write_report(of.run, format, of.path, out)
    if isinstance(of, Run):
        return write_report(of.path, format, None, out)
    path = Path(of)
    return write_report(folder_of(path), format, path, out) if path.is_file() else write_report(path, format, None, out)


def write_report(
    run: Path | str, form: str | None = None, findings: Path | None = None, out: Path | str | None = None
) -> Path:
    """Write a report beside the findings that it is made of, under their name, and return its path.

    ``findings-0003-<digest>.json`` gives ``report-0003-<digest>.html``: a report of other findings is another file.

    Args:
        form: one of :data:`EXTENSIONS`; by default what ``out`` ends in, else HTML.
        findings: the file of findings; by default that of the last verification that ended.
        out: another file to write.

    Raises:
        UsageError: there is no such format, or ``out`` exists or has no folder.
        EvidenceError: there is no run, there are no findings, or their file is not as it was stored.
        StorageError: the file system refused.
    """
    from fuaudit.formats.files import require_new_file, write_bytes
    from fuaudit.runs.ancestors import run_or_remains
    from fuaudit.verification import store

    if out is not None:
        require_new_file(Path(out))
    form, folder = form or format_of(out), Path(run)
    found = run_or_remains(folder)
    path = store.latest(folder) if findings is None else Path(findings)
    document, since = _judged(found, path, chosen=findings is not None)
    standing = store.standing(store.history(path.parent), store.number_of(path))
    content = render(document, form, f"{standing} {since}".strip())
    beside = path.with_name(path.name.replace("findings", "report", 1)).with_suffix(f".{EXTENSIONS[form]}")
    written = beside if out is None else Path(out)
    write_bytes(written, content)
    return written


def _judged(found: Run | Tombstone, path: Path, chosen: bool) -> tuple[dict[str, Any], str]:
    """Findings of a run as it is, or, where somebody chose them, as it was before its prune; then what became of it.

    Raises:
        EvidenceError: they are of neither, or their file is not as it was stored.
    """
    from fuaudit.runs.run import Run
    from fuaudit.verification.store import read_findings

    try:
        document = read_findings(path, found.digest, found.ledger.head)
    except EvidenceError:
        if not (chosen and isinstance(found, Run) and found.pruned):
            raise
        last = found.ledger.events[-1]
        with suppress(EvidenceError):
            return read_findings(path, last["before"], last["previous"]), BEFORE
        raise
    return document, "" if isinstance(found, Run) else REMAINS
