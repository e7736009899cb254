"""The largest |row - mean|^2 / (delta rho^2) of robust rules that a search finds: a lower bound on their c.

Prints the table of docs/robust.md. ``--write`` puts it there, and stores the inputs that reach it. The search begins at
drawn honest rows under simple attacks, and climbs: each step changes some rows by chance, and what made the ratio
smaller is dropped. Batched twins of the rules lead the search; the numbers are those of the rules themselves.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path

import torch
from fuaudit_plugins.krum import Krum, MultiKrum
from fuaudit_plugins.medians import CoordinateMedian, GeometricMedian, TrimmedMean
from fuaudit_plugins.robust import observed_constant
from torch import Tensor

SIZES = [(6, 2), (8, 1), (7, 2), (16, 3), (16, 7)]
DRAWS = 300
WIDTH = 3
CLIMBS = [(300, 500), (100, 1600), (50, 3200), (25, 6400)]
"""How many of the best inputs climb on, and for how many steps."""
DOCS = Path(__file__).parents[1] / "docs"
PAGE, INPUTS = DOCS / "robust.md", DOCS / "results" / "robust-constants.json"
TABLE = re.compile(r"\| \| n = 6.*?\n(?=\n)", re.DOTALL)

Twin = Callable[[Tensor], Tensor]
"""Rows ``(*s, n, d)``, bad ones first, to what a rule leaves of them, ``(*s, 1, d)``."""


def inputs(n: int, f: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows ``(n, 3)``, f bad ones first, in one to three dimensions; where there are fewer the others are 0."""
    for number in range(DRAWS):
        drawn = torch.randn(n, WIDTH, generator=generator, dtype=torch.float64)
        drawn[:, 1 + number // 3 % WIDTH :] = 0
        noise, far = drawn[f:], drawn[:f]
        honest = (noise, noise.sign(), (noise > 1) + noise / 1000)[number % 3]
        pull = honest.mean(0) + 1.2 * honest.std(0)
        ends = honest.max(0).values, -honest.max(0).values, honest[0], pull, torch.zeros_like(pull)
        for bad in (far, far * 1e8, *(end.expand(f, -1) for end in ends)):
            if bool((honest != honest[0]).any()):
                yield torch.cat([bad, honest])


def constants(row: Tensor, rows: Tensor, f: int) -> Tensor:
    """``observed_constant`` of many inputs; 0 where honest rows are all but equal."""
    honest, n = rows[..., f:, :], rows.shape[-2]
    mean = honest.mean(-2, keepdim=True)
    apart = (honest - mean).square().sum((-1, -2)) * 2 / (n - f - 1)
    return torch.where(apart > 1e-6, (row - mean).square().sum((-1, -2)) / (f / n) / apart, 0.0)


def middle(rows: Tensor, trim: int) -> Tensor:
    return rows.sort(-2).values[..., trim : rows.shape[-2] - trim, :].mean(-2, keepdim=True)


def stepped(rows: Tensor) -> Tensor:
    """The geometric median, as its defaults are."""
    row, least = middle(rows, (rows.shape[-2] - 1) // 2), None
    for _ in range(GeometricMedian().steps):
        away = (rows - row).norm(dim=-1, keepdim=True)
        if least is None:
            least = (away.median(-2, keepdim=True).values * GeometricMedian().smoothing).clamp(min=1e-300)
        weights = 1 / away.maximum(least)
        row = (weights * rows).sum(-2, keepdim=True) / weights.sum(-2, keepdim=True)
    return row


def nearest(rows: Tensor, f: int, keep: int) -> Tensor:
    """Multi-Krum; Krum where one row is kept."""
    apart = (rows.unsqueeze(-2) - rows.unsqueeze(-3)).square().sum(-1)
    scores = apart.sort(-1).values[..., 1 : rows.shape[-2] - f - 1].sum(-1)
    best = scores.sort(dim=-1, stable=True).indices[..., :keep, None]
    return rows.gather(-2, best.expand(*best.shape[:-1], rows.shape[-1])).mean(-2, keepdim=True)


def rules(n: int, f: int) -> dict[str, tuple[Twin, Twin]]:
    """Each rule by its name, and its twin."""
    return {
        "trimmed-mean": (TrimmedMean(f).aggregate, lambda rows: middle(rows, f)),
        "coordinate-median": (CoordinateMedian().aggregate, lambda rows: middle(rows, (n - 1) // 2)),
        "geometric-median": (GeometricMedian().aggregate, stepped),
        "krum": (Krum(f).aggregate, lambda rows: nearest(rows, f, 1)),
        "multi-krum": (MultiKrum(f).aggregate, lambda rows: nearest(rows, f, n - f - 2)),
    }


def proved(n: int, f: int) -> dict[str, float]:
    """What c is at most, by rule, from docs/robust.md."""
    median = (n - 1) / (n + 1 - 2 * f) if n % 2 else (n - 2) / (n + 2 - 2 * f)
    krum = (sqrt(2 * (n - f)) + sqrt(f + 1)) ** 2 / (n - 2 * f - 1)
    kappa = {
        "trimmed-mean": f / (n - 2 * f),
        "coordinate-median": median,
        "geometric-median": ((2 * (n - f) + n * sqrt(median)) / (n - 2 * f)) ** 2,
        "krum": krum,
        "multi-krum": krum,
    }
    return {name: number * n / (2 * f) * (1 - 1 / (n - f)) for name, number in kappa.items()}


def changed(rows: Tensor, f: int, step: int, generator: torch.Generator) -> Tensor:
    """Other inputs ``(s, n, d)``, each changed by chance, by a size of its own between 1e-4 and 1.

    By turns: one row moves, it goes to another row, it is scaled, all rows move, or all bad rows move together.
    """
    count, n = rows.shape[:2]
    sizes = 10 ** (-4 * torch.rand(count, 1, 1, generator=generator, dtype=torch.float64))
    moves = sizes * torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    places = torch.randint(n, (2, count), generator=generator)
    one = torch.nn.functional.one_hot(places[0], n).unsqueeze(-1)
    moves = moves * (rows != 0).any(dim=1, keepdim=True)  # an input stays in its dimensions
    if step % 5 == 0:
        return rows + one * moves
    if step % 5 == 1:
        return rows + one * (rows[torch.arange(count), places[1]].unsqueeze(1) - rows + moves / 10)
    if step % 5 == 2:
        return rows * (1 + one * moves[..., :1])
    if step % 5 == 3:
        return rows + moves / 3
    return rows + (torch.arange(n) < f).view(-1, 1) * moves[:, :1]


def climbed(twin: Twin, n: int, f: int) -> Tensor:
    """The inputs ``(25, n, 3)`` that the search ends at; its key is n + f."""
    generator = torch.Generator().manual_seed(n + f)
    rows = torch.stack(list(inputs(n, f, generator)))
    best = constants(twin(rows), rows, f)
    for keep, steps in CLIMBS:
        first = best.sort(descending=True, stable=True).indices[:keep]
        rows, best = rows[first], best[first]
        for step in range(steps):
            tried = changed(rows, f, step, generator)
            found = constants(twin(tried), tried, f)
            better = found >= best
            rows, best = torch.where(better[:, None, None], tried, rows), torch.where(better, found, best)
    return rows


def found(n: int, f: int, name: str) -> Tensor:
    """The input ``(n, d)``, rounded to six decimals, of which the rule itself is furthest away."""
    rule, twin = rules(n, f)[name]
    ends = (climbed(twin, n, f) * 1e6).round() / 1e6
    best: Tensor = max(ends, key=lambda rows: reached(rule, rows, f))
    return best[:, (best != 0).any(dim=0)]


def reached(rule: Twin, rows: Tensor, f: int) -> float:
    """The rule's ratio on an input ``(n, d)`` whose first f rows are bad."""
    constant: float = observed_constant(rule(rows), rows[f:], len(rows))
    return constant


def table(stored: dict[str, list[list[float]]]) -> str:
    """The table of the page, of inputs by size and rule."""
    lines = ["| | " + " | ".join(f"n = {n}, f = {f}" for n, f in SIZES) + " |", "| --- " * (len(SIZES) + 1) + "|"]
    for name in proved(*SIZES[0]):
        cells = []
        for n, f in SIZES:
            rows = torch.tensor(stored[f"{n} {f} {name}"], dtype=torch.float64)
            cells.append(f"{reached(rules(n, f)[name][0], rows, f):.3f} ({proved(n, f)[name]:.3f})")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--write", action="store_true", help="write table and inputs into docs")
    write = reader.parse_args().write
    torch.set_num_threads(1)
    stored = {f"{n} {f} {name}": found(n, f, name).tolist() for n, f in SIZES for name in proved(n, f)}
    print(table(stored))
    if write:
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(rows)}" for key, rows in stored.items())
        INPUTS.write_text(f"{{\n{lines}\n}}\n")
        PAGE.write_text(TABLE.sub(lambda _: table(stored), PAGE.read_text()))


if __name__ == "__main__":
    main()
