"""Error feedback: what a round did not send is added to the next update.

Stich, Cordonnier, Jaggi: "Sparsified SGD with Memory" (NeurIPS 2018), Algorithm 1, as Yang, Wang, Li use it: "FedREP"
(section 3.2 and Algorithm 2). With w - w_k the update of client k:

    g_k = u_k + (w - w_k),   u_k <- g_k - what was sent of g_k

What differs from print, and why: print takes off the coordinates that were agreed on. Here it is what the transport
says that it sent: after rounding and clipping, and nothing where a buffer was discarded or the round failed. Then
nothing is lost. A client that takes no part keeps its u_k; in print all take part.

Guarantee: u_k + what was sent = the former u_k + update. It is exact where floats are: where a coordinate goes as it
is or not at all, and on values of one binary scale; rounded by the last bit where a client stage behind it rounds.
What was sent of a Byzantine client is, to its own memory, what it meant to send (docs/attacks.md).
For unlearning none: u_k is made of all updates since the first round, so an unlearner must rewind it with the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import TYPE_CHECKING, Any, ClassVar

from fuaudit_plugins.robust import lengths

from fuaudit.plugins import MemoryKept, RoundContext, State, StateShape, rows_of, with_rows

if TYPE_CHECKING:
    from torch import Tensor

_SPARSE: dict[str, Any] = {
    "client": [{"use": "error-feedback"}, {"use": "consensus", "per_client": 20}],
    "server": [{"use": "mean"}],
}


@dataclass(frozen=True)
class ErrorFeedback:
    """A client stage: ``memory (M, d)`` keeps what was not sent, ``lost (M, 1)`` its share |u_k| / |g_k| of the row.

    It never leaves the clients.
    """

    vectorised: ClassVar[bool] = True
    per_client_state: ClassVar[frozenset[str]] = frozenset({"memory", "lost"})
    selftest_faults: ClassVar[tuple[MemoryKept, ...]] = (MemoryKept("error-feedback", _SPARSE),)

    def init(self, shape: StateShape) -> State:
        """Zeros."""
        return {"memory": shape.zeros(shape.clients, shape.dimension), "lost": shape.zeros(shape.clients, 1)}

    def apply(self, updates: Tensor, context: RoundContext, state: State) -> tuple[Tensor, State]:
        """The rows g_k. Until the round is settled the client keeps g_k, of which u_k will be made."""
        rows = updates + rows_of(state["memory"], context.cohort)
        return rows, state | {"memory": with_rows(state["memory"], context.cohort, rows)}

    def settle(self, sent: Tensor, answer: Tensor, context: RoundContext, state: State) -> State:
        """u_k <- g_k - what was sent ``(*s, n, c)``."""
        cohort, whole = context.cohort, rows_of(state["memory"], context.cohort)
        left = whole - context.on_all(sent)
        return {
            "memory": with_rows(state["memory"], cohort, left),
            "lost": with_rows(state["lost"], cohort, shares(left, whole)),
        }


def shares(left: Tensor, whole: Tensor) -> Tensor:
    """|left| / |whole| of each row of ``(*s, n, d)``: ``(*s, n, 1)``; |left| where ``whole`` is zero.

    Both are divided by a power of two near the largest number of ``whole``, so no square of it overflows or vanishes,
    and no bit changes. What is too large for a float is the largest one.
    """
    import torch

    limit, columns = torch.finfo(left.dtype).max, left.shape[-1]
    most, origin = frexp(limit)[1] - 2, left.new_zeros(1, columns)
    found = torch.empty(left.shape[:-1], dtype=torch.float64)
    pairs = zip(left.reshape(-1, columns), whole.reshape(-1, columns), strict=True)
    for place, (rest, row) in enumerate(pairs):
        low, high = row.aminmax()
        scale = 2.0 ** -min(max(frexp(max(-float(low), float(high)))[1], -most), most)
        after, before = (float(lengths(one.unsqueeze(0) * scale, origin)) for one in (rest, row))
        found.view(-1)[place] = after / (before or 1.0)
    return found.clamp(max=limit).unsqueeze(-1).to(left)
