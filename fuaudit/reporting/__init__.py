"""Reports: findings for those who must read them. Pure functions of the stored document; nothing is judged here.

``render`` makes the bytes of a report, ``write_report`` stores one beside the findings. The same document gives
the same bytes. matplotlib is imported for HTML only.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError, UsageError, nearest

EXTENSIONS = {"html": "html", "json": "json", "md": "md", "junit": "xml"}
"""Format -> file extension."""

_HOME = {"html": "page", "md": "markdown", "junit": "junit"}

__all__ = ["EXTENSIONS", "render", "write_report"]


def render(document: dict[str, Any], form: str) -> bytes:
    """A report of findings in one of the formats of :data:`EXTENSIONS`.

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
    return work(contents).encode()


def write_report(run: Path | str, form: str = "html") -> Path:
    """Write ``<run>.audit/report.<extension>`` from the findings of a run, and return its path.

    Raises:
        UsageError: there is no such format.
        EvidenceError: there are no findings, or their file is not as it was stored.
        StorageError: the file system refused.
    """
    from fuaudit.reporting.contents import stored_form
    from fuaudit.runs.files import read_bytes, write_bytes
    from fuaudit.verification.verify import FINDINGS, audit_folder, read_findings

    folder = Path(run)
    document = read_findings(folder)
    content = render(document, form)
    findings = audit_folder(folder) / FINDINGS
    if read_bytes(findings) != stored_form(document):
        raise EvidenceError(f"{findings} is not in the form in which it was stored", f"Run: fuaudit verify {folder}")
    path = audit_folder(folder) / f"report.{EXTENSIONS[form]}"
    write_bytes(path, content)
    return path
