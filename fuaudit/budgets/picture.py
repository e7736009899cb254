"""Pictures of budgets, as files."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fuaudit.errors import StorageError, UsageError
from fuaudit.text import in_full

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_format(path: Path) -> None:
    """Raises UsageError for a file whose ending names no format that is written."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(f"--plot writes .svg, .png or .pdf, not {path.name!r}")


def write(figure: Figure, path: Path) -> None:
    """Write a figure without the date on which it was drawn.

    Raises:
        StorageError: the file cannot be written.
    """
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    try:
        figure.savefig(path, metadata=undated.get(path.suffix))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from None


POINTS = 30
"""Of a curve, at most."""
DASHES = "-", "--", ":", "-."


class Curves(NamedTuple):
    """Epsilons over numbers of rounds or steps: each line has a value for each number, and what it is."""

    numbers: Sequence[int]
    lines: Sequence[tuple[Sequence[float], str]]


def places(most: int) -> list[int]:
    """Numbers from 1 to ``most``, at most :data:`POINTS`, evenly on a log scale."""
    return sorted({round(most ** (i / (POINTS - 1))) for i in range(POINTS)})


def draw(curves: Curves, over: str, delta: float, path: Path) -> None:
    """Draw curves into a file whose ending says the format. ``over``: what the numbers count.

    A curve ends where its guarantee does, and its label says so.

    Raises:
        UsageError: there is no such format, or no guarantee to draw.
        StorageError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    require_format(path)
    if all(value == inf for values, _ in curves.lines for value in values):
        raise UsageError("there is no guarantee, so there is no curve to plot")
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, (values, label) in enumerate(curves.lines):
        none = [there for there, value in zip(curves.numbers, values, strict=True) if value == inf]
        ends = f"; no guarantee from {none[0]:,} {over} on" if none else ""
        shown = [nan if value == inf else value for value in values]
        axes.plot(curves.numbers, shown, label=label + ends, linestyle=DASHES[number % len(DASHES)])
    axes.set(xlabel=over, ylabel=f"epsilon at delta {in_full(delta)}", xscale="log", yscale="log")
    figure.legend(loc="outside upper left", fontsize="small", frameon=False)  # labels are as long as they are
    write(figure, path)
