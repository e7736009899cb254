"""What can go wrong, and what the reader can do about it.

Every error that reaches a user says what happened, where, and what to do next (``hint``). The exit code of
the command line belongs to the class, so that scripts can tell a bad argument from tampered evidence.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path


class FuauditError(Exception):
    """Base of all errors meant for users.

    Args:
        message: what happened, and where.
        hint: what to do next; empty when the message says it all.
    """

    exit_code = 70

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  {self.hint}" if self.hint else message


class UsageError(FuauditError):
    """The question was wrong: an unknown name, option, client or sample, or values that do not fit together."""

    exit_code = 2


class EvidenceError(FuauditError):
    """A run folder cannot be used as evidence: missing, incomplete, corrupt or altered."""

    exit_code = 4


class RedactedError(EvidenceError):
    """What is asked for was left out of a redacted run, or of a sealed view. An audit cannot tell then."""


class PluginError(FuauditError):
    """A plugin raised, returned something of the wrong kind, or touched what it had not declared."""

    exit_code = 5


class StorageError(FuauditError):
    """The file system refused (full disk, no permission). What was complete before is still complete."""

    exit_code = 70


class AnswerError(PluginError):
    """A part answered what it must not, whatever it was given: another kind than was asked for, or its word is broken.

    The message names the part and its method. Whoever asked another part, which asked this one, passes it on as it is.
    """


class KeyReuseError(PluginError):
    """One key and address were asked for a draw over two different populations.

    The two answers would be one and the same random number, so they would not be independent. Plans cannot do that by
    themselves, so it is a rewriter's doing.
    """


class BudgetError(FuauditError):
    """The work asked for is larger than the stated budget."""

    exit_code = 2


def line_of(part: object, error: BaseException) -> str:
    """The innermost line of a part's own package that an error came through; empty where there is none."""
    return line_in(type(part).__module__.partition(".")[0], error)


def line_in(package: str, error: BaseException) -> str:
    """The innermost line of a package that an error came through, in brackets; empty where there is none."""
    at = ""
    trace = error.__traceback__
    while trace is not None:
        code, home = trace.tb_frame.f_code, trace.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if home == package and not code.co_filename.startswith("<"):  # what dataclasses write has no file
            at = f" ({Path(code.co_filename).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return at


def nearest_beside(path: Path, fitting: Callable[[Path], bool]) -> str:
    """A sentence that offers what lies beside a path that is not there, fits and has a like name; empty for nothing."""
    try:
        beside = [item.name for item in path.parent.iterdir() if fitting(item)]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, beside, n=1)
    return f"Nearest to it: {path.with_name(close[0])}" if close else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the known name nearest to a misspelt one, or lists what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    close = close or [one for one in names if name and name.casefold() in one.casefold()]
    listed = ", ".join(one if {*"(),;"}.isdisjoint(one) else repr(one) for one in names)  # so that none looks like two
    if close:
        return f"Did you mean {close[0]!r}? Known: {listed}."
    return f"Known: {listed or 'none'}."
