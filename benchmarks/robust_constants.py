"""The largest observed |row - mean|^2 / (delta rho^2) of robust rules, a lower bound on their c: takes three minutes.

Prints, for some numbers n of rows and f of bad ones, the largest over drawn inputs, and in brackets what is proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import torch
from fuaudit_plugins.krum import Krum, MultiKrum
from fuaudit_plugins.medians import CoordinateMedian, GeometricMedian, TrimmedMean
from fuaudit_plugins.robust import observed_constant
from torch import Tensor

SIZES = [(8, 1), (7, 2), (16, 3), (16, 7)]
DRAWS = 300


def inputs(n: int, f: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Honest rows ``(n - f, d)`` in one or two dimensions, and bad rows ``(f, d)``."""
    generator = torch.Generator().manual_seed(n + f)
    for number in range(DRAWS):
        drawn = torch.randn(n, 1 + number % 2, generator=generator, dtype=torch.float64)
        noise, far = drawn[f:], drawn[:f]
        honest = (noise, noise.sign(), (noise > 1) + noise / 1000)[number % 3]
        pull = honest.mean(0) + 1.2 * honest.std(0)
        ends = honest.max(0).values, -honest.max(0).values, honest[0], pull, torch.zeros_like(pull)
        for bad in (far, far * 1e8, *(end.expand(f, -1) for end in ends)):
            yield honest, bad


def proved(n: int, f: int) -> dict[str, float]:
    """kappa by rule, from docs/robust.md."""
    median = (n - 1) / (n + 1 - 2 * f) if n % 2 else (n - 2) / (n + 2 - 2 * f)
    krum = (sqrt(2 * (n - f)) + sqrt(f + 1)) ** 2 / (n - 2 * f - 1)
    steps = ((2 * (n - f) + n * sqrt(median)) / (n - 2 * f)) ** 2
    return {
        "trimmed-mean": f / (n - 2 * f),
        "coordinate-median": median,
        "geometric-median": steps,
        "krum": krum,
        "multi-krum": krum,
    }


def main() -> None:
    for n, f in SIZES:
        rules = (TrimmedMean(f), CoordinateMedian(), GeometricMedian(), Krum(f), MultiKrum(f))
        for rule, (name, kappa) in zip(rules, proved(n, f).items(), strict=True):
            seen = [
                observed_constant(rule.aggregate(torch.cat([bad, honest])), honest, n)
                for honest, bad in inputs(n, f)
                if bool((honest != honest[0]).any())
            ]
            c = kappa * n / (2 * f) * (1 - 1 / (n - f))
            print(f"n = {n:2}, f = {f}  {name:18} {max(seen):7.3f}  ({c:.3f})")


if __name__ == "__main__":
    main()
