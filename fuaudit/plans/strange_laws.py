"""Laws of strangers: what they raise is told by name and line."""

from __future__ import annotations

from fuaudit.errors import FuauditError, PluginError, line_of
from fuaudit.registry import is_strange

SEE = "docs/plugin-guide.md has a law as a whole, with what it draws from, and at which addresses."


def require_unbroken(law: object, what: str, error: Exception) -> None:
    """Raises PluginError where a law of a stranger raised what is no FuauditError."""
    if is_strange(law) and not isinstance(error, FuauditError):
        raise PluginError(
            f"the law {type(law).__name__}, {what}, raised {error!r}{line_of(law, error)}", SEE
        ) from error
