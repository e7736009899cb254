"""Pictures of budgets, as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fuaudit.errors import StorageError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_format(path: Path) -> None:
    """Raises UsageError for a file whose ending names no format that is written."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(f"--plot writes .svg, .png or .pdf, not {path.name!r}")


def write(figure: Figure, path: Path) -> None:
    """Write a figure without the date on which it was drawn.

    Raises:
        StorageError: the file cannot be written.
    """
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    try:
        figure.savefig(path, metadata=undated.get(path.suffix))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from None
