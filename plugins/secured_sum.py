"""Sums of buffers that a suite of ``fuaudit.secure`` makes: what ``secure-sum`` delivers, bit for bit.

Rows come from ``quantise``: whole numbers of a step, and the step is a power of two. A suite adds them up exactly, as
float64 does, so nothing in a run depends on which suite it was, nor on any key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fuaudit_plugins.quantise import Quantise
from fuaudit_plugins.secure_sum import SecureSum

from fuaudit.plugins import Books, RoundContext, Suite, UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SecuredSum(SecureSum):  # type: ignore[misc]
    """Means of buffers whose sums a suite makes, exactly those of :class:`SecureSum`; no config names it.

    Attributes:
        suite: of ``fuaudit.secure``.
        bits: of a whole number; those that ``quantise`` has.
        step: what one counts.
        books: what the parties remember of what they opened.
    """

    suite: Suite = field(default_factory=Suite)
    bits: int = 12
    step: float = 1.0
    books: Books = field(default_factory=Books, repr=False, compare=False)

    def _sum(self, rows: Tensor, places: Tensor, number: int, context: RoundContext) -> Tensor:
        import torch

        scaled = rows.to(torch.float64) / self.step
        if bool((scaled != scaled.round()).any()):
            raise UsageError(f"a row is not of whole numbers of {self.step}", 'Put "quantise" in front of secure-sum.')
        whole = scaled.to(torch.int64).cpu().numpy()
        clients = context.cohort.clients[places].tolist()
        opened = self.suite.opened(whole, self.bits, clients, at=(context.number, number), books=self.books)
        return torch.from_numpy(opened.sums).to(rows.device, torch.float64) * self.step


def secured(plain: SecureSum, suite: str, before: Sequence[object]) -> SecuredSum:
    """See :meth:`SecureSum.secured`."""
    if not before or not isinstance(before[-1], Quantise):
        raise UsageError(
            f"the suite {suite!r} adds up whole numbers, and the last client stage does not make them",
            'Put the client stage "quantise" last, in front of secure-sum.',
        )
    if plain.smallest == 2 < plain.size:
        raise UsageError(
            f"the suite {suite!r} opens no buffer of {plain.size} from 2 rows on", "Take a smallest of 3 or more."
        )
    made, rounding = Suite(suite, most=2 * plain.size - 1), before[-1]
    made.start()
    return SecuredSum(plain.size, plain.smallest, plain.byzantine, made, rounding.bits, rounding.step)
