"""Compares the robust rules with ByzFL's where definitions coincide.

Prints the largest difference of a coordinate over drawn and attacked rows, in float64.
"""

from __future__ import annotations

from collections.abc import Callable

import byzfl
import numpy as np
import torch
from fuaudit_plugins.clipping import CenteredClipping
from fuaudit_plugins.krum import Krum, MultiKrum
from fuaudit_plugins.medians import CoordinateMedian, GeometricMedian, TrimmedMean
from numpy.typing import NDArray
from torch import Tensor

from fuaudit.testing.contexts import context_of

BAD = 2
STEPS = 400


def inputs() -> list[Tensor]:
    """Rows ``(n, 6)`` of which the first two are bad: drawn far and near, copies, and what pulls to a side."""
    found = []
    for key in range(8):
        generator = torch.Generator().manual_seed(key)
        honest = torch.randn(5 + key % 6, 6, generator=generator, dtype=torch.float64)
        drawn = torch.randn(BAD, 6, generator=generator, dtype=torch.float64)
        pull = (honest.mean(0) - 1.5 * honest.std(0)).expand(BAD, 6)
        attacks = (drawn / 3, drawn * 100, honest[:1].expand(BAD, 6), pull, -10 * honest.mean(0).expand(BAD, 6))
        found += [torch.cat([bad, honest]) for bad in attacks]
    return found


def centred(rows: Tensor) -> Tensor:
    """Three steps of centered clipping from 0."""
    context = context_of([place % 6 for place in range(len(rows))], rows.dtype)
    start = {"centre": rows.new_zeros(1, rows.shape[1])}
    left: Tensor = CenteredClipping(1.0, steps=3).apply(rows, context, start)[0]
    return left


Theirs = Callable[[NDArray[np.float64]], NDArray[np.float64]]

# ByzFL's Krum for f has as many neighbours as the printed one for f - 1
RULES: dict[str, tuple[Callable[[], Theirs], Callable[[Tensor], Tensor]]] = {
    "coordinate-median": (lambda: byzfl.Median(), CoordinateMedian().aggregate),
    "trimmed-mean": (lambda: byzfl.TrMean(f=BAD), TrimmedMean(BAD).aggregate),
    "krum": (lambda: byzfl.Krum(f=BAD), Krum(BAD - 1).aggregate),
    "multi-krum": (lambda: byzfl.MultiKrum(f=BAD), lambda rows: MultiKrum(BAD - 1, len(rows) - BAD).aggregate(rows)),
    "geometric-median": (
        lambda: byzfl.GeometricMedian(nu=1e-9, T=STEPS),
        GeometricMedian(steps=STEPS, smoothing=1e-9).aggregate,
    ),
    "centered-clipping": (lambda: byzfl.CenteredClipping(L=3, tau=1.0), centred),
}


def apart(name: str) -> list[float]:
    """The largest difference of a coordinate, input by input."""
    theirs, ours = RULES[name]
    return [float(abs(theirs()(rows.numpy()) - ours(rows)[0].numpy()).max()) for rows in inputs()]


def main() -> None:
    for name in RULES:
        differences = apart(name)
        print(f"{name:18} {max(differences):.1e} over {len(differences)} inputs")


if __name__ == "__main__":
    main()
