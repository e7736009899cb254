"""Figures: the numbers of a finding, each with its name in words and how it was obtained."""

from __future__ import annotations

from dataclasses import dataclass

Value = int | float | str | bool | None


@dataclass(frozen=True)
class Figure:
    """One figure, made where it is computed: whoever reads it needs to know nothing of the audit.

    Attributes:
        key: its word for programs, once in a finding.
        label: its name for people. One that ends in "at least", "at most" or "below" names a bound: a report rounds
            the value to that side.
        value: a finite number, a truth, a text (exact fractions are text), or None where there is none.
        how: how it was obtained, one sentence.
        unit: what follows the number; empty for counts.
        interval: the limits that it lies within, (low, high), where it is an estimate.
        error_rate: the chance that what it states is wrong, at most, in [0, 1]; None where nothing is left to chance.
        absent: what stands for no value.
    """

    key: str
    label: str
    value: Value
    how: str
    unit: str = ""
    interval: tuple[float, float] | None = None
    error_rate: float | None = None
    absent: str = "none"
