"""Refusals: why a sum is not opened, without a secret on the error.

A traceback keeps the locals of every frame that it went through, and an error keeps the one that it was raised from.
So an error that leaves a function with keys would keep them alive for as long as somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fuaudit.errors import FuauditError

P = ParamSpec("P")
T = TypeVar("T")


class RefusedError(FuauditError):
    """A secure sum was not opened: a message is missing, altered or wrong. Nothing of the buffer was told.

    Attributes:
        blamed: the client whose own signed message is wrong; None where that is not known.
    """

    def __init__(self, message: str, hint: str = "", blamed: int | None = None) -> None:
        super().__init__(message, hint)
        self.blamed = blamed


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
            )
        except BaseException as error:  # an interrupt goes on as it is
            failed = error
        # Outside the blocks above, so that the old error does not become the context of this one.
        failed.__traceback__ = failed.__context__ = failed.__cause__ = None
        raise failed

    return guarded
