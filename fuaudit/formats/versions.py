"""Which format a document is in, and which version reads it: asked before any field or digest is looked at."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

from fuaudit.errors import EvidenceError

LAST_READER = {"fuaudit run 1": "0.1.0", "fuaudit findings 1": "0.1.0"}
"""Former format -> the last version that reads it."""


def require_format(value: object, expected: str, path: Path) -> None:
    """Refuse a document in a former or a later format of its kind. What names no format is left to its fields.

    Args:
        value: what was read of it.
        expected: the format to be read, such as ``fuaudit run 2``.

    Raises:
        EvidenceError: it is in another one; the message names the version that reads it.
    """
    found, kind = value.get("format") if isinstance(value, dict) else None, expected.rpartition(" ")[0]
    if found == expected or not (
        isinstance(found, str) and re.fullmatch(f"{re.escape(kind)} [1-9][0-9]{{0,3}}", found)
    ):
        return
    former, own = LAST_READER.get(found), version("fuaudit")
    raise EvidenceError(
        f"{path} is in the format {found!r}, and fuaudit {own} reads {expected!r}",
        f"Read it with fuaudit {former or f'of a later version than {own}'}.",
    )
