"""Asking: the one door to the parts of a round, solver, stages and transport, which may be code of a stranger.

What a part raises, and what it answers in another kind than was asked for, is a PluginError that names part, method and
round. Without it the arithmetic behind would fail far away, or go on with something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuaudit.errors import FuauditError, PluginError
from fuaudit.training.rounds import Outline, RoundContext

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Kind:
    """What is asked for: in words, and whether an answer is one."""

    words: str
    holds: Callable[[Any], bool]


def asked(part: Any, method: str, kind: Kind, *arguments: Any) -> Any:
    """What a part answers.

    Raises:
        PluginError: it raises what is no FuauditError, or answers in another kind.
    """
    try:
        answer = getattr(part, method)(*arguments)
    except FuauditError:
        raise
    except Exception as error:
        raise PluginError(f"{_who(part, method, arguments)} raised {error!r}") from error
    if not kind.holds(answer):
        raise PluginError(f"{_who(part, method, arguments)} returned {_told(answer)}, and not {kind.words}")
    return answer


def a(expected: type) -> Kind:
    """Something of a type."""
    return Kind(f"a {expected.__name__}", lambda answer: isinstance(answer, expected))


def rows_and_state(rows: Tensor, columns_alone: bool = False) -> Kind:
    """A pair: a tensor like ``rows (*s, n, c)``, or with any number of rows, and a state."""

    def fits(answer: Any) -> bool:
        if not (isinstance(answer, tuple) and len(answer) == 2 and is_tensor(answer[0], rows) and _is_state(answer[1])):
            return False
        made, given = answer[0].shape, rows.shape
        if columns_alone:
            return len(made) == len(given) and (*made[:-2], made[-1]) == (*given[:-2], given[-1])
        return bool(made == given)

    shape = ", ".join(map(str, rows.shape)) if not columns_alone else f"n, {rows.shape[-1]}"
    return Kind(f"({shape}) of {rows.dtype} and a state", fits)


def proposals(count: int) -> Kind:
    """A list of so many proposals, each of columns."""
    return Kind(
        f"a list of {count} times int64 columns (k,)",
        lambda answer: isinstance(answer, list) and len(answer) == count and all(map(_is_columns, answer)),
    )


def _is_state(state: Any) -> bool:
    """Whether it is named tensors; before the first round also outlines of them, which need no torch."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        return False
    return all(isinstance(tensor, Outline) or is_tensor(tensor) for tensor in state.values())


def is_tensor(tensor: Any, like: Tensor | None = None) -> bool:
    """Whether it is a tensor, with the type and on the device of another."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return False
    return like is None or (tensor.dtype == like.dtype and tensor.device == like.device)


def _is_columns(columns: Any) -> bool:
    import torch

    return isinstance(columns, torch.Tensor) and columns.dtype == torch.int64 and columns.dim() == 1


STATE = Kind("a state, named tensors", _is_state)
COLUMNS = Kind("int64 columns (c,)", _is_columns)


def _who(part: Any, method: str, arguments: tuple[Any, ...]) -> str:
    number = next((f", round {one.number}," for one in arguments if isinstance(one, RoundContext)), "")
    return f"{type(part).__name__}.{method}{number}"


def _told(answer: Any) -> str:
    """What came, in few words."""
    if isinstance(answer, tuple | list):
        return f"{type(answer).__name__} of {len(answer)}: {', '.join(map(_told, answer[:2]))}"
    shape = getattr(answer, "shape", None)
    return type(answer).__name__ if shape is None else f"{tuple(shape)} of {getattr(answer, 'dtype', '?')}"
