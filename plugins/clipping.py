"""Clipping of rows: around a centre that the server remembers, and of each by itself.

Karimireddy, He, Jaggi: "Learning from History for Byzantine Robust Optimization" (ICML 2021) for centered clipping;
Sun, Kairouz, Suresh, McMahan: "Can You Really Backdoor Federated Learning?" (2019) for clipping of norms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit_plugins.robust import lengths, marked

from fuaudit.plugins import RoundContext, State, Stateless, StateShape, UsageError, weighted_sum

if TYPE_CHECKING:
    from torch import Tensor


def factors(rows: Tensor, centre: Tensor, radius: float) -> Tensor:
    """What the differences of rows ``(*s, n, d)`` from a centre are multiplied by: float64 ``(*s, n)``, at most 1."""
    away: Tensor = lengths(rows, centre)
    return (radius / away).masked_fill(away <= radius, 1.0)


def in_their_type(rows: Tensor, by: Tensor) -> tuple[Tensor, Tensor]:
    """Rows ``(*s, n, d)`` and factors ``(*s, n)`` of their type, of the same products.

    A factor of a huge row can be too small for the type and lose its digits. Such a row comes multiplied, and has 1.
    """
    import torch

    lost = by < torch.finfo(rows.dtype).tiny
    if bool(lost.any()):
        rows = rows.clone()
        rows[lost] = (rows[lost].to(torch.float64) * by[lost].unsqueeze(-1)).to(rows.dtype)
    return rows, by.masked_fill(lost, 1.0).to(rows.dtype)


@dataclass(frozen=True)
class CenteredClipping:
    """Moves a centre by the mean of the rows' differences from it, each clipped to a radius; some times over.

    The centre begins where it was left in the round before, at first at 0. It is kept on all coordinates of the model,
    ``centre (1, d)``.

    What differs from print, and why: print has a radius for each step, from distances that nobody can measure. Here
    one radius is for all. Print clips momenta of clients; here rows are what clients send, and a solver makes momenta.
    Print has no rounds that agree on coordinates. Such a round begins at the restriction of the centre, and leaves 0
    elsewhere: what is kept is the row that was applied.

    Guarantee: one step from a distance B from the mean x of the honest rows, whose mean squared distance from x is s^2,
    leads within delta B + (1 - delta) (s^2 + B^2) / (4 radius) + delta radius of x (docs/robust.md). That is
    (delta, c)-robust while B is at most some multiple of rho, with a radius near
    sqrt((1 - delta) (s^2 + B^2) / delta) / 2. A fixed radius fits one scale of updates.

    The server's memory holds updates of earlier rounds, an erased client's among them; it is recorded with the round
    and rewound with the model. Rows are added in the order of places, so the last bits depend on it. It publishes
    averages over all rows; a single row, scaled, where all others are at the centre.

    Attributes:
        radius: the longest difference from the centre that counts in full, above 0; infinite for the plain mean.
        steps: how often the centre is moved in a round, at least 1.
    """

    radius: float
    steps: int = 1
    guarantee: ClassVar[str] = "none but of one step from a start within B of the honest mean"
    cite: ClassVar[str] = "Karimireddy and others, ICML 2021"
    per_client_state: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if not self.radius > 0 or self.steps < 1:
            raise UsageError(
                f"centered-clipping needs a radius above 0, and at least 1 step, not {self.radius} and {self.steps}"
            )

    def init(self, shape: StateShape) -> State:
        """``centre (1, d)``, zero."""
        return {"centre": shape.zeros(1, shape.dimension)}

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        rows, centre = updates[context.cohort.present], state["centre"]
        if context.coordinates is not None:
            centre = centre[:, context.coordinates]
        for _ in range(self.steps):
            apart, by = in_their_type(rows - centre, factors(rows, centre, self.radius))
            centre = centre + weighted_sum(apart, by / len(rows))
        row = marked(centre, rows)
        return row, {"centre": context.on_all(row)}


@dataclass(frozen=True)
class NormClipping(Stateless):
    """Scales every row to a norm of at most a bound, up to the last bits of its type.

    What differs from print: print adds noise behind it, at the server. Here noise is a stage of its own.

    Guarantee: one row moves the mean behind it by at most 2 norm / n. It is not (delta, c)-robust: f rows move the mean
    by up to 2 delta norm however near the others are to each other, and honest rows that are longer are moved too.
    Rows keep their direction, so a rule behind it publishes what it publishes without it, scaled.

    Attributes:
        norm: the longest row that is left as it is, above 0.
    """

    norm: float
    guarantee: ClassVar[str] = "none that shrinks with the spread of honest rows"
    cite: ClassVar[str] = "Sun and others, 2019"
    vectorised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.norm > 0:
            raise UsageError(f"norm-clipping needs a norm above 0, not {self.norm}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        origin = updates.new_zeros(updates.shape[-1]).expand(updates[..., :1, :].shape)
        rows, by = in_their_type(updates, factors(updates, origin, self.norm))
        return rows * by.unsqueeze(-1), state
