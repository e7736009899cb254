"""Laws of strangers: what they raise is told by name and line."""

from __future__ import annotations

from fuaudit.errors import FuauditError, PluginError, line_of
from fuaudit.registry import OWN_MODULES

SEE = "docs/plugin-guide.md has a law as a whole, with what it draws from, and at which addresses."


def is_strange(law: object) -> bool:
    """Whether a law is no code of fuaudit."""
    return type(law).__module__.partition(".")[0] not in OWN_MODULES


def require_unbroken(law: object, what: str, error: Exception) -> None:
    """Raises PluginError where a law of a stranger raised what is no FuauditError."""
    if is_strange(law) and not isinstance(error, FuauditError):
        raise PluginError(
            f"the law {type(law).__name__}, {what}, raised {error!r}{line_of(law, error)}", SEE
        ) from error
