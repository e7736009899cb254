"""Reports: findings made readable. Pure functions of the stored findings; nothing is judged here."""

from __future__ import annotations

from pathlib import Path

from fuaudit.reporting.render import EXTENSIONS, render

__all__ = ["EXTENSIONS", "render", "write_report"]


def write_report(run: Path | str, form: str = "html") -> Path:
    """Write ``<run>.audit/report.<extension>`` from the findings of a run, and return its path.

    Raises:
        EvidenceError: the run has no findings yet.
        UsageError: there is no such format.
    """
    from fuaudit.runs.files import write_bytes
    from fuaudit.verification.verify import audit_folder, read_findings

    folder = Path(run)
    content = render(read_findings(folder), form)
    path = audit_folder(folder) / f"report.{EXTENSIONS[form]}"
    write_bytes(path, content)
    return path
