"""RCGD-EF: the largest coordinates of each row, and the mean without the longest rows.

Ghosh, Maity, Kadhe, Mazumdar, Ramchandran: "Communication-Efficient and Byzantine-Robust Distributed Learning with
Error Feedback" (IEEE JSAIT 2021), with top-k as its compressor, as "FedREP" compares itself with it (section 6). In a
config ``error-feedback`` stands in front of ``top-k``. With w - w_k the update of client k, and C the sent rows of all:

    g_k = u_k + (w - w_k),   c_k = top-k of g_k,   u_k <- g_k - c_k
    w <- w - the mean of C without the share beta of largest norm

What differs from print, and why:

- Print takes one gradient times the step size. Here, as in FedREP, it is the update of any number of local steps.
- beta is a number of rows, or a fraction that is rounded down. Print needs beta above the share of Byzantine clients;
  nothing here knows that share.
- Norms are those of the rows that came. A norm that a client only tells could be a lie.
- Rows differ in which coordinates they have. So the answer is dense, and the server sees who wanted what.

Guarantee: where ``trim`` is at least f, no row that is kept is longer than the longest honest one: with that norm M the
error is at most 2 M. It is not (delta, c)-robust: f rows opposite to honest ones that are all equal can stay, so the
error does not shrink with the distance of honest rows. Print has convergence, under assumptions on gradients that no
run shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fuaudit_plugins.conspar import BYTES, top
from fuaudit_plugins.robust import lengths, of_rows, require_rows, require_trim, trimmed

from fuaudit.plugins import COORDINATES, VALUES, RoundContext, Sent, State, Stateless, UsageError, mean

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TopK(Stateless):
    """A client stage: sends the largest coordinates of each row by absolute value; of equal ones the lower index.

    Attributes:
        per_client: k, how many coordinates a client sends, at least 1; all where there are fewer.
    """

    per_client: int
    abrupt: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise UsageError(f"top-k needs a per_client of at least 1, not {self.per_client}")

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.contracts.ClientStage`."""
        rows = updates.new_zeros(updates.shape)
        for client, row, whole in zip(context.cohort.clients.tolist(), rows, updates, strict=True):
            sent = top(whole, self.per_client)
            row[sent] = whole[sent]
            context.tell(Sent(client, COORDINATES, BYTES * len(sent)))
            context.tell(Sent(client, VALUES, updates.element_size() * len(sent)))
        return rows, state


@dataclass(frozen=True)
class NormThresholding(Stateless):
    """The mean of the rows without those of largest norm; of equal ones those at lower places stay.

    Added from the shortest on: without ties the bits do not depend on the order of rows. It publishes one row as it is
    where one is kept.

    Attributes:
        trim: how many rows are left out, a whole number, or which fraction of the rows, below 0.5.
    """

    trim: int | float
    guarantee: ClassVar[str] = "none that shrinks with the spread of honest rows"
    cite: ClassVar[str] = "Ghosh and others, JSAIT 2021"

    def __post_init__(self) -> None:
        require_trim(self.trim)

    @property
    def least_rows(self) -> int:
        """See :data:`fuaudit.declared.WORDS`; a fraction leaves a row of any number."""
        return self.trim + 1 if isinstance(self.trim, int) else 1

    @property
    def abrupt(self) -> bool:
        """Whether rows are left out; see :data:`fuaudit.declared.WORDS`."""
        return self.trim > 0

    def publishes(self, rows: int) -> str:
        """A row, where one is kept."""
        return "row" if rows - trimmed(self.trim, rows) == 1 else ""

    def aggregate(self, rows: Tensor) -> Tensor:
        """One row ``(1, d)`` of the rows ``(n, d)``; UsageError where they are too few."""
        trim = trimmed(self.trim, len(rows))
        keep = len(rows) - trim
        require_rows("norm-thresholding", len(rows), self.least_rows, f"Trim fewer than {trim}, or let more take part.")
        order = lengths(rows, rows.new_zeros(1, rows.shape[1])).sort(stable=True).indices
        return mean(rows[order[:keep]])

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """See :class:`~fuaudit.training.stages.Stage`."""
        return of_rows(self.aggregate, updates, context), state
