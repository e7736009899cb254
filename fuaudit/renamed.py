"""Names of before version 0.2.0. Each is refused with the name that came after it; none is understood."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fuaudit.errors import UsageError

SINCE = "0.2.0"

PLUGINS = {"audits": {"parameters": "model-law", "plan": "provenance"}}
"""Kind of plugin -> former name -> name."""

WORDS = {
    "client_rows": "per_client_state",
    "one_row": "after_aggregation",
    "stackable": "vectorised",
    "tells_of": "depends_on",
}
"""What plugins declare: former word -> word."""

FLAGS = {
    "--anyway": ("--allow-inexact",),
    "--keep": ("--cache",),
    "--spot": ("--spot-check",),
    "--until": ("--stop-after", "--stopping"),
}
"""Former flag -> what it is called now; where that is several, each by a command of its own."""

Args = ParamSpec("Args")
Result = TypeVar("Result")


def sentence(former: str, name: str) -> str:
    """What became of a name."""
    return f"Since fuaudit {SINCE}, {former} is called {name}."


def renamed(**names: str) -> Callable[[Callable[Args, Result]], Callable[Args, Result]]:
    """Refuse former keywords of a function: former name -> name. UsageError where one is given."""

    def decorate(function: Callable[Args, Result]) -> Callable[Args, Result]:
        @wraps(function)
        def checked(*args: Args.args, **kwargs: Args.kwargs) -> Result:
            for former in names.keys() & kwargs.keys():
                raise UsageError(
                    f"{function.__name__}() has no argument {former!r}", sentence(repr(former), repr(names[former]))
                )
            return function(*args, **kwargs)

        return checked

    return decorate
