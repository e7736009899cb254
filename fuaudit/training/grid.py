"""Grid: what a client stage says of the whole numbers that it leaves, so that a suite can add them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp
from typing import TYPE_CHECKING, Any

from fuaudit.declared import offers, says
from fuaudit.errors import AnswerError, PluginError
from fuaudit.registry import called
from fuaudit.secure.names import BITS
from fuaudit.training.asking import Kind, asked

if TYPE_CHECKING:
    from torch import Tensor

A_STEP = Kind(
    "a power of two",
    lambda answer: type(answer) is float and answer > 0 and frexp(answer)[0] == 0.5,  # infinity and NaN are none
    "Sums of whole numbers of another step are not exact, and depend on their order.",
)


@dataclass(frozen=True)
class Grid:
    """The whole numbers that a client stage leaves: numbers of so many bits, each of which counts a step."""

    stage: Any
    bits: int

    @property
    def largest(self) -> int:
        """The largest whole number; the smallest is minus that, for the range is symmetric."""
        return (1 << self.bits - 1) - 1

    def step_of(self, columns: int) -> float:
        """The step of rows of so many columns, a power of two.

        Raises:
            PluginError: the stage says another, or two of them.
        """
        step, again = (float(asked(self.stage, "step_of", A_STEP, columns)) for _ in range(2))
        if step != again:
            raise AnswerError(
                f"{called(self.stage)}, step_of, says {step} and {again} of rows of {columns} columns",
                "A step follows from the options of its stage, and from how many columns there are.",
            )
        return step


def grid_of(stage: object) -> Grid | None:
    """What a client stage says of its whole numbers, by ``bits`` and ``step_of``; None where it leaves others.

    Raises:
        PluginError: its ``bits`` are no whole number from 0; or it has a step, and no ``bits`` that a suite adds up.
    """
    bits: object = says(stage, "bits")
    if type(bits) is not int or bits < 0:
        raise PluginError(f"{called(stage)} declares bits as {bits!r}, which is no whole number from 0")
    if not offers(stage, "step_of"):
        return None
    least, most = BITS
    if not least <= bits <= most:
        raise PluginError(
            f"{called(stage)} has the method step_of, and declares {bits} bits of a number",
            f"Whole numbers that are added up have {least} to {most} bits: say bits, or leave step_of out.",
        )
    return Grid(stage, bits)


def whole_numbers(rows: Tensor, grid: Grid, clients: Sequence[int], number: int) -> Tensor:
    """Finite rows ``(n, c)`` of some clients in a round as whole numbers of the step, int64 ``(n, c)``.

    Raises:
        PluginError: a row is not of whole numbers of the step, or not within the bits that its stage declares.
    """
    import torch

    if not rows.numel():
        return rows.to(torch.int64)
    step, who = grid.step_of(rows.shape[-1]), called(grid.stage)
    scaled = rows.to(torch.float64) / step
    broken = (scaled != scaled.round()) | (scaled.abs() > grid.largest)
    if bool(broken.any()):
        place, column = (int(one) for one in broken.nonzero()[0])
        raise AnswerError(
            f"{who}, apply in round {number}, leaves what it does not declare by bits and step_of: of client "
            f"{clients[place]} {int(broken[place].sum())} of {rows.shape[-1]} numbers are no whole multiples of the "
            f"step {step} from -{grid.largest} to {grid.largest}, as {grid.bits} bits hold them; the first is "
            f"{float(rows[place, column])}",
            "Divide by the step, round, clamp to the largest whole number, and multiply by the step: whatever the rows "
            "are. A number is never cut behind a stage, for sums would be wrong.",
        )
    return scaled.to(torch.int64)
