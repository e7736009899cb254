"""Refusals: why a sum is not opened, without a secret on the error.

A traceback keeps the locals of every frame that it went through, and an error keeps the one that it was raised from.
So an error that leaves a function with keys would keep them alive for as long as somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Literal, ParamSpec, TypeVar, get_args

from fuaudit.errors import FuauditError

Reason = Literal["silent", "few", "again", "broke", "wrong"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""What a transcript tells of why a buffer is not opened, a word: a text could hold anything.

A party did not answer; too few clients are left; a party has answered before, or the buffer was tried often; a process
or a library broke off; something that was sent is wrong.
"""

ANEW = (
    "Training anew is another run. As far as it has the same rows, whoever has the sums of both can subtract them "
    "(docs/secure-aggregation.md, Not seen)."
)
"""What to know before another training takes the place of one that cannot go on."""

P = ParamSpec("P")
T = TypeVar("T")


class RefusedError(FuauditError):
    """A secure sum was not opened: a message is missing, altered or wrong. Nothing of the buffer was told.

    Attributes:
        blamed: the client whose own signed message is wrong; None where that is not known.
        reason: what a transcript tells of it, one of :data:`REASONS`.
    """

    def __init__(self, message: str, hint: str = "", blamed: int | None = None, reason: Reason = "wrong") -> None:
        super().__init__(message, hint)
        self.blamed, self.reason = blamed, reason

    @property
    def broke(self) -> bool:
        """Whether a process or a library broke off on this machine: it says nothing of what was sent."""
        return self.reason == "broke"


def forgetting(work: Callable[P, T]) -> Callable[P, T]:
    """``work`` whose errors keep nothing of it: no frame, and no error of before.

    An error of a library becomes a RefusedError that names its class alone, for its text may hold what it was given.
    """

    @wraps(work)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except FuauditError as error:
            failed: BaseException = error
        except Exception as error:
            failed = RefusedError(
                f"{work.__name__} of a secure sum broke off ({type(error).__name__})",
                "Nothing was opened. Start the buffer anew; report it if that happens again.",
                reason="broke",
            )
        except BaseException as error:  # an interrupt goes on as it is
            failed = error
        # Outside the blocks above, so that the old error does not become the context of this one.
        failed.__traceback__ = failed.__context__ = failed.__cause__ = None
        raise failed

    return guarded
