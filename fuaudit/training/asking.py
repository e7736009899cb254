"""Asking: the one door to the parts of a round, solver, stages and transport, which may be code of a stranger.

What a part raises, and what it answers in another kind than was asked for, is an error that names part, method, round
and line. Without it the arithmetic behind would fail far away, or go on with something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from fuaudit.errors import AnswerError, FuauditError, PluginError, line_of
from fuaudit.registry import called
from fuaudit.training.rounds import Outline, RoundContext

if TYPE_CHECKING:
    from torch import Tensor

    from fuaudit.training.events import Event


_unsteady: ContextVar[list[str] | None] = ContextVar("unsteady", default=None)


@contextmanager
def asking_twice() -> Iterator[list[str]]:
    """Within it every part is asked twice; the list says which gave other bits the second time."""
    found: list[str] = []
    token = _unsteady.set(found)
    try:
        yield found
    finally:
        _unsteady.reset(token)


@contextmanager
def asking_once() -> Iterator[None]:
    """Within it parts are asked once, also inside of :func:`asking_twice`."""
    token = _unsteady.set(None)
    try:
        yield
    finally:
        _unsteady.reset(token)


def is_tried() -> bool:
    """Whether parts are asked twice: then they are tried, and what they say of their rows is held against these."""
    return _unsteady.get() is not None


@dataclass(frozen=True)
class Kind:
    """What is asked for: in words, whether an answer is one, and what to do about one that is not."""

    words: str
    holds: Callable[[Any], bool]
    hint: str = ""


def asked(part: object, method: str, kind: Kind, *arguments: Any) -> Any:
    """What a part answers.

    Raises:
        PluginError: it raises what is no FuauditError.
        AnswerError: it answers in another kind.
        FuauditError: it raises one; part, method, round and line are added, but to an AnswerError of another part.
    """
    if (unsteady := _unsteady.get()) is None:
        return _answer(part, method, kind, arguments)
    again, heard_again = _heard(deepcopy(arguments))
    arguments, heard = _heard(arguments)
    answer = _answer(part, method, kind, arguments)
    if _bits(arguments) != _bits(again):
        unsteady.append(f"{_who(part, method, arguments)} writes into what it is given")
    elif _bits(answer) != _bits(_answer(part, method, kind, again)) or heard != heard_again:
        unsteady.append(f"{_who(part, method, arguments)} gives other bits when it is asked twice on this machine")
    return answer


def _heard(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[str]]:
    """The same arguments, and a list to which is added what is told through them."""
    heard: list[str] = []

    def listening(context: RoundContext) -> RoundContext:
        def tell(event: Event) -> None:
            context.tell(event)
            heard.append(repr(event))

        return replace(context, tell=tell)

    return tuple(listening(one) if isinstance(one, RoundContext) else one for one in arguments), heard


def _answer(part: object, method: str, kind: Kind, arguments: tuple[Any, ...]) -> Any:
    try:
        answer = getattr(part, method)(*arguments)
    except AnswerError:
        raise  # of another part that this one asked: it says of which
    except FuauditError as error:
        told = f"{_who(part, method, arguments)} says: {error.args[0]}{line_of(part, error)}"
        named = type(error)(told, error.hint)
        vars(named).update(vars(error))  # whom it blames, and why
        raise named from error
    except (Exception, SystemExit) as error:
        raise PluginError(f"{_who(part, method, arguments)} raised {error!r}{line_of(part, error)}") from error
    if not kind.holds(answer):
        told = f"{_who(part, method, arguments)} returned {_told(answer)}, and not {kind.words}"
        raise AnswerError(told, kind.hint)
    return answer


LIKE_GIVEN = "Make rows like those that were given: torch.as_tensor(made).to(updates)."


def a(expected: type) -> Kind:
    """Something of a type."""
    return Kind(f"a {expected.__name__}", lambda answer: isinstance(answer, expected))


def rows_and_state(rows: Tensor, columns_alone: bool = False) -> Kind:
    """A pair: a tensor like ``rows (*s, n, c)``, or with any number of rows, and a state."""
    shape = [*rows.shape[:-2], "n" if columns_alone else rows.shape[-2], rows.shape[-1]]

    def fits(answer: object) -> bool:
        if not (isinstance(answer, tuple) and len(answer) == 2 and is_tensor(answer[0], rows) and _is_state(answer[1])):
            return False
        made = answer[0].shape
        return len(made) == len(shape) and all(wanted in ("n", came) for wanted, came in zip(shape, made, strict=True))

    alone = f" An aggregator leaves one row, (1, {rows.shape[-1]}): mean(dim=-2, keepdim=True)." * columns_alone
    return Kind(f"({', '.join(map(str, shape))}) of {rows.dtype} and a state", fits, LIKE_GIVEN + alone)


def proposals(count: int) -> Kind:
    """A list of so many proposals, each of columns."""
    return Kind(
        f"a list of {count} times int64 columns (k,)",
        lambda answer: isinstance(answer, list) and len(answer) == count and all(map(_is_columns, answer)),
    )


def _is_state(state: object) -> bool:
    """Whether it is named tensors; before the first round also outlines of them, which need no torch."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        return False
    return all(isinstance(tensor, Outline) or is_tensor(tensor) for tensor in state.values())


def is_tensor(tensor: object, like: Tensor | None = None) -> bool:
    """Whether it is a tensor, with the type and on the device of another.

    One of a class of its own is none: it could answer for the tensors that it meets.
    """
    import torch

    if type(tensor) is not torch.Tensor:
        return False
    return like is None or (tensor.dtype, tensor.device) == (like.dtype, like.device)


def are_columns(columns: Tensor, count: int) -> bool:
    """Whether columns ``(c,)`` int64 ascend from 0 to ``count`` - 1, each once."""
    if not _is_columns(columns) or not len(columns):
        return _is_columns(columns)
    inside = 0 <= int(columns[0]) <= int(columns[-1]) < count
    return inside and bool((columns[1:] > columns[:-1]).all())


def _is_columns(columns: Any) -> bool:
    return is_tensor(columns) and str(columns.dtype) == "torch.int64" and columns.dim() == 1


STATE = Kind("a state, named tensors", _is_state)
COLUMNS = Kind("int64 columns (c,)", _is_columns)


def _bits(answer: Any) -> Any:
    """All bits of an answer, to be compared."""
    if is_tensor(answer):
        import torch

        return answer.shape, answer.dtype, answer.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    if is_dataclass(answer) and not isinstance(answer, type):
        return [type(answer), *(_bits(getattr(answer, field.name)) for field in fields(answer))]
    if isinstance(answer, dict):
        return {name: _bits(value) for name, value in answer.items()}
    if isinstance(answer, tuple | list):
        return [*map(_bits, answer)]
    return repr(answer) if isinstance(answer, int | float | str) else type(answer)


def _who(part: object, method: str, arguments: tuple[Any, ...]) -> str:
    number = next((f" in round {one.number}" for one in arguments if isinstance(one, RoundContext)), "")
    return f"{called(part)}, {method}{number},"


def _told(answer: object) -> str:
    """What came, in few words."""
    if isinstance(answer, tuple | list):
        return f"{type(answer).__name__} of {len(answer)}: {', '.join(map(_told, answer[:2]))}"
    import numpy as np
    import torch

    name = type(answer).__name__
    if type(answer) in (bool, int, float):
        return f"{name} {answer}"
    return f"{name} {tuple(answer.shape)} of {answer.dtype}" if isinstance(answer, torch.Tensor | np.ndarray) else name
