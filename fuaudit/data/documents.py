"""JSON that users bring as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fuaudit.errors import UsageError


def parse(content: bytes, path: Path) -> Any:
    """The value of a JSON text from ``path``.

    Raises:
        UsageError: it is cut short or no JSON, nested too deeply, or an object has a key twice.
    """
    try:
        return json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is cut short or is no JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return result
