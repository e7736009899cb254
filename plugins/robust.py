"""What the robust rules share: the rows that are used, distances with fixed bits, sorting, and what keeps NaN in sight.

docs/robust.md has the rules, their guarantees with proofs, and who is right where libraries differ.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import inf, isfinite
from typing import TYPE_CHECKING

from fuaudit.plugins import RoundContext, UsageError

if TYPE_CHECKING:
    from torch import Tensor


def of_rows(rule: Callable[[Tensor], Tensor], updates: Tensor, context: RoundContext) -> Tensor:
    """What a rule makes of the rows of the places that are used; see :func:`marked`."""
    rows = updates[context.cohort.present]
    return marked(rule(rows), rows)


def marked(row: Tensor, rows: Tensor) -> Tensor:
    """A row ``(1, d)``, NaN as a whole where one of the rows that it is made of, ``(n, d)``, is not finite.

    A rule that drops or sorts rows would hide it.
    """
    return row if all_finite(rows) else row.new_full(row.shape, float("nan"))


def all_finite(numbers: Tensor) -> bool:
    """Whether none of the numbers is infinite or NaN."""
    # a sum is finite only if its terms are; it may overflow where all are
    return bool(numbers.sum().isfinite()) or bool(numbers.isfinite().all())


def squares(rows: Tensor, centre: Tensor) -> Tensor:
    """Squared distances ``(*s, n)`` of rows ``(*s, n, d)`` from a centre ``(*s, 1, d)``, in float64.

    Bits depend on row, centre and d alone: neither on n and the other rows, nor on threads. The square of no float32
    overflows or vanishes.
    """
    import torch

    # one piece of memory for all rows: to take a new one each time costs more than the arithmetic
    middle, apart, found = centre[..., 0, :], torch.empty_like(rows[..., 0, :]), []
    terms = torch.empty_like(apart, dtype=torch.float64)
    for row in rows.unbind(dim=-2):
        found.append(_added(terms.copy_(torch.sub(row, middle, out=apart)).square_()).clone())
    return torch.stack(found, dim=-1)


def table_of_squares(rows: Tensor) -> Tensor:
    """Squared distances ``(n, n)`` of rows ``(n, d)`` from each other, as :func:`squares`; symmetric bit for bit."""
    import torch

    count = len(rows)
    table = torch.zeros((count, count), dtype=torch.float64, device=rows.device)
    for place in range(count - 1):
        apart = squares(rows[place + 1 :], rows[place : place + 1])
        table[place, place + 1 :] = table[place + 1 :, place] = apart
    return table


def lengths(rows: Tensor, centre: Tensor) -> Tensor:
    """Distances, as :func:`squares`."""
    return squares(rows, centre).sqrt()


def _added(terms: Tensor) -> Tensor:
    """The sum ``(*s)`` of terms ``(*s, d)``, which it overwrites: halves are added elementwise until one is left."""
    left = terms.shape[-1]
    while left > 1:
        half = (left + 1) // 2
        terms[..., : left - half] += terms[..., half:left]
        left = half
    return terms.sum(dim=-1) if not left else terms[..., 0]


NETWORK = 64
"""Up to so many rows are sorted by a network; for more of them its comparisons take longer than a library's sort."""
CHUNK = 2**18
"""How many numbers are sorted at once: what a processor keeps near it."""


def ascending(rows: Tensor, first: int, last: int) -> Tensor:
    """Of each coordinate of rows ``(n, d)`` the values from place ``first`` to before ``last``, ascending.

    They are compared as numbers, and each zero is left as 0.0: bits do not depend on the order of rows. Where one is
    NaN, nothing is said of its coordinate.
    """
    count, columns = rows.shape
    if count > NETWORK:
        return rows.sort(dim=0).values[first:last] + 0
    kept, width = rows.new_empty(last - first, columns), CHUNK // count
    for start in range(0, columns, width):
        some = slice(start, start + width)
        for value, place in zip(_sorted(rows[:, some] + 0)[first:last], kept, strict=True):
            place[some] = value
    return kept


def _sorted(rows: Tensor) -> list[Tensor]:
    """The least values ``(d,)`` of rows ``(n, d)``, which it overwrites, then the next ones, and so on."""
    import torch

    values, spare = [*rows], torch.empty_like(rows[0])
    for upper, lower in _comparisons(len(values)):
        least = torch.minimum(values[upper], values[lower], out=spare)
        torch.maximum(values[upper], values[lower], out=values[lower])
        values[upper], spare = least, values[upper]
    return values


@cache
def _comparisons(count: int) -> tuple[tuple[int, int], ...]:
    """The pairs of places that sort so many values: merge exchange (Batcher; Knuth, volume 3, 5.2.2, algorithm M)."""
    pairs, whole = [], 1 << max(0, count - 1).bit_length()
    step = whole // 2
    while step:
        apart, rest, jump = step, 0, whole // 2
        while True:
            pairs += [(place, place + apart) for place in range(count - apart) if place & step == rest]
            if jump == step:
                break
            apart, rest, jump = jump - step, step, jump // 2
        step //= 2
    return tuple(pairs)


def require_rows(rule: str, rows: int, least: int, remedy: str) -> None:
    """Refuse fewer rows than a rule needs.

    Raises:
        UsageError: they are fewer.
    """
    if rows < least:
        raise UsageError(f"{rule} needs at least {least} rows, and the round has {rows}", remedy)


def require_trim(trim: int | float) -> None:
    """Raises UsageError unless it is a number of rows from 0, or a fraction of them below 0.5."""
    if not 0 <= trim < (inf if isinstance(trim, int) else 0.5):
        raise UsageError(
            f"trim must be a whole number, or a fraction from 0 to below 0.5, not {trim}",
            "Write 7 for seven rows, 0.25 for a quarter of the rows; trimmed-mean takes them on each side.",
        )


def trimmed(trim: int | float, rows: int) -> int:
    """How many of so many rows are left out; a fraction is the decimal it is written as, and rounded down."""
    return trim if isinstance(trim, int) else int(Fraction(str(trim)) * rows)


def observed_constant(row: Tensor, honest: Tensor, rows: int) -> float:
    """``|row - mean|^2 / (delta rho^2)``: a lower bound on the c of a (delta, c)-robust rule that made the row.

    The mean is that of the honest rows, delta the share of the others among all ``rows``, rho^2 the mean squared
    distance of two honest ones, which is theirs in an order by lot. The largest over many inputs bounds best.

    Args:
        row: what the rule made, ``(1, d)`` as it leaves it.
        honest: the honest rows, ``(g, d)``.
        rows: n, how many there were in all.

    Raises:
        UsageError: the shapes are others, all are honest, so that delta is 0, all honest rows are equal, or their
            squares overflow.
    """
    if honest.ndim != 2 or row.shape != (1, honest.shape[1]):
        shapes = f"{tuple(row.shape)} and {tuple(honest.shape)}"
        raise UsageError(f"observed_constant needs a row (1, d) and honest rows (g, d), not {shapes}")
    good = len(honest)
    apart = sum(float(squares(honest, one.unsqueeze(0)).sum()) for one in honest)
    if good >= rows or not apart:
        raise UsageError("c is observed where some rows are not honest, and honest ones differ")
    error = float(squares(row, honest.sum(dim=0, keepdim=True) / good))
    if not (isfinite(apart) and isfinite(error)):
        raise UsageError("c is not observed of numbers whose squares overflow", "Divide all rows by one number.")
    return error / (1 - good / rows) / (apart / (good * (good - 1)))
