"""Reports: findings for those who must read them. Pure functions of the stored document; nothing is judged here.

``render`` makes the bytes of a report, ``write_report`` stores one beside its findings. The same document gives
the same bytes. matplotlib is imported for HTML only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fuaudit.errors import UsageError, nearest

EXTENSIONS = {"html": "html", "json": "json", "md": "md", "junit": "xml"}
"""Format -> file extension."""

_HOME = {"html": "page", "md": "markdown", "junit": "junit"}

__all__ = ["EXTENSIONS", "render", "write_report"]


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


def write_report(run: Path | str, form: str = "html", findings: Path | None = None) -> Path:
    """Write a report beside the findings that it is made of, under their name, and return its path.

    ``findings-0003-<digest>.json`` gives ``report-0003-<digest>.html``: a report of other findings is another file.

    Args:
        findings: the file of findings; by default that of the last verification that ended.

    Raises:
        UsageError: there is no such format.
        EvidenceError: there are no findings, or their file is not as it was stored.
        StorageError: the file system refused.
    """
    from fuaudit.formats.files import write_bytes
    from fuaudit.runs.run import load_run
    from fuaudit.verification import store

    folder = Path(run)
    path = store.latest(folder) if findings is None else Path(findings)
    document = store.read_findings(path, load_run(folder).digest)
    content = render(document, form, store.standing(store.history(path.parent), store.number_of(path)))
    report = path.with_name(path.name.replace("findings", "report", 1)).with_suffix(f".{EXTENSIONS[form]}")
    write_bytes(report, content)
    return report
