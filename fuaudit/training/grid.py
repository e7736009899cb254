"""Grid: what a client stage says of the whole numbers that it leaves, so that a suite can add them up."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import Any

from fuaudit.declared import offers, says
from fuaudit.errors import PluginError
from fuaudit.registry import called
from fuaudit.training.asking import Kind, asked

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

    def step_of(self, columns: int) -> float:
        """The step of rows of so many columns, a power of two.

        Raises:
            PluginError: the stage says another.
        """
        return float(asked(self.stage, "step_of", A_STEP, columns))


def grid_of(stage: object) -> Grid | None:
    """What a client stage says of its whole numbers, by ``bits`` and ``step_of``; None where it leaves others.

    Raises:
        PluginError: its ``bits`` are no whole number from 0.
    """
    bits: object = says(stage, "bits")
    if type(bits) is not int or bits < 0:
        raise PluginError(f"{called(stage)} declares bits as {bits!r}, which is no whole number from 0")
    return Grid(stage, bits) if bits and offers(stage, "step_of") else None
