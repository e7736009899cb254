"""Secure sums of buffers, in plain form: the server is given means of few clients, and nobody's row.

Yang, Wang, Li: "FedREP" (section 3.3 and Algorithm 1), as SHARE before it. A permutation of the m participations puts
them into buffers, by lot and before anything is rejected. The server is given the mean of each buffer. A robust rule
works on these means. The permutation has a key to which every client of the round adds a contribution that was
committed to before training (docs/run-format.md, Lots), so neither server nor clients choose who is with whom.

What differs from print, and why:

- s need not divide m. There are b = max(1, floor(m / s)) buffers, whose sizes differ by at most one: none is below s
  where m is not, and the largest has ceil(m / b) <= 2s - 1.
- A round of fewer than s is one buffer. Its model is that sum, so whoever is in a sum of two has the other's row. Who
  says a size of 2 says that such sums may be. Of a size of 3 or more none is opened of fewer than three, and a round of
  two fails.
- In print everybody answers. Here a mean is over those whose rows were summed: one over absent ones too would be an
  outlier that silence makes. How many they were is told. With fewer than ``smallest`` a buffer is discarded: a sum of
  few tells more of each.
- An emptied client stays in its buffer, and hides nobody: its row is what its memory holds, and 0 or noise after that.
  So only clients who have samples, and took a step, count: for ``smallest``, and for the two, or three where s is 3 or
  more, without whom no buffer is opened. Who has none is public.
- A row that is not finite goes into its sum, for behind sums nobody sees it. A buffer whose mean is not finite, also
  because finite rows overflow, is discarded, and the clients in it are told: one of them at least is Byzantine.
- Where at least half of the buffers that are left may be bad no rule has a guarantee. Then the round fails: nothing is
  delivered, the model and what the server remembers stay, and every client's memory keeps its whole update. f clients
  are feared. Each whose row was rejected by name is one less, and so is one in each buffer that is not finite, so at
  most so many of the others are bad. It fails too where fewer buffers are left than the server's rule needs: over a
  model that stays the lot of the next round would open other sums of the same rows.

Here no cryptography hides the rows: the simulator sees them. ``fuaudit train --secure SUITE`` has the sums made by a
suite of ``fuaudit.secure``, whose parties are objects or processes, and changes no bit of what is delivered. Behind
``quantise`` rows are whole numbers of a power of two, and sums are exact in any order, as those of a cryptographic sum
are. Else they are added in the order of places. A suite is not asked for the sum of a buffer in which a row is not
finite: whole numbers cannot hold it.

Guarantee: the server is given no row of one client, and no mean of which all but one row tell of no data; where s is 3
or more, all but two. What a mean of s tells is not hidden, nor is what a member of a sum of two can subtract. Means of
several rounds over one model can be solved for rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

from fuaudit_plugins.robust import all_finite

from fuaudit.plugins import Delivery, RoundContext, Summed, Suspected, UsageError, grid_of, whole_numbers

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray
    from torch import Tensor

    from fuaudit.plugins import Books, Grid, Labelled, Suite

    Ints = NDArray[int64]


def sizes(rows: int, size: int) -> list[int]:
    """How many of so many participations each buffer has; the larger ones come first."""
    buffers = max(1, rows // size)
    return [rows // buffers + (place < rows % buffers) for place in range(buffers)]


def _added(rows: Tensor) -> Tensor:
    """The sum ``(c,)`` of rows ``(s, c)`` in float64."""
    import torch

    total = rows.new_zeros(rows.shape[-1], dtype=torch.float64)
    for row in rows:  # one after the other: a library's order may depend on the shape
        total += row
    return total


@dataclass(frozen=True)
class SecureSum:
    """A transport: means of buffers of ``size`` clients or a few more, put together by lot.

    Attributes:
        size: s, how many clients a buffer has at least, from 2; fewer where fewer take part.
        smallest: from how many summed rows of clients with samples on a buffer counts, from 2, and from 3 where the
            size is 3 or more; "complete" is all of its clients, so many of them with samples.
        byzantine: f, how many Byzantine clients are feared.
    """

    size: int = 2
    smallest: int | Literal["complete"] = "complete"
    byzantine: int = 0
    shows: ClassVar[Literal["rows", "sums"]] = "sums"
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 2 or self.byzantine < 0 or (self.smallest != "complete" and self.smallest < 2):
            raise UsageError("secure-sum needs a size and a smallest of at least 2, and a byzantine of at least 0")
        if self.smallest == 2 < self.size:
            raise UsageError(
                f"secure-sum needs a smallest of at least 3 where the size is 3 or more: of {self.size} it opens no "
                "sum of two",
                "Take a smallest of 3 or more, or leave it out: then all of a buffer have to come.",
            )

    @property
    def least_trained(self) -> int:
        """How many rows of clients with samples a buffer needs, see :data:`fuaudit.declared.WORDS`."""
        return min(self.size, 3) if self.smallest == "complete" else self.smallest

    def _counts(self, size: int, came: int, trained: int) -> bool:
        """Whether a buffer counts: so many clients are in it, rows of so many came, so many of these with samples."""
        return trained >= self.least_trained and (came == size or self.smallest != "complete")

    def require_places(self, places: int, trained: int) -> None:
        """Raises UsageError where rounds of so many participations, so many with samples, fail from the start."""
        buffers = self.rows_left(places, trained)
        if 2 * self.byzantine >= buffers:
            empty = f", {places - trained} of them without samples," * (trained < places)
            raise UsageError(
                f"every round of {places}{empty} would fail: at most {buffers} of its buffers count, for each needs "
                f"{self.least_trained} rows of clients with samples, and {self.byzantine} of them may be bad",
                "Fear fewer Byzantine clients, take smaller buffers, or let them count with fewer rows (smallest): "
                "fewer than half of the buffers may be bad.",
            )

    def rows_left(self, places: int, trained: int) -> int:
        """How many buffers of so many participations, so many with samples, count at most."""
        large = sum(size >= self.least_trained for size in sizes(places, self.size))
        return min(large, trained // self.least_trained)

    def fails(self, counted: int, known: int) -> bool:
        """Whether half of so many buffers may be bad, where so many of the clients that are feared were found."""
        return 2 * max(0, self.byzantine - known) >= counted

    def buffers(self, places: int) -> list[tuple[int, int]]:
        """Of each buffer of so many participations how many the lot puts into it, and from how many rows on it opens.

        That a complete one needs clients with samples, ``least_trained`` of them, is not counted.
        """
        least, complete = self.least_trained, self.smallest == "complete"
        return [(size, max(least, size) if complete else least) for size in sizes(places, self.size)]

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """The means ``(b, c)`` of the buffers that count, of rows ``(n, c)``."""
        import torch

        came = rows.new_ones(len(rows), dtype=torch.bool) if context.accepted is None else context.accepted
        buffers, of, trained = self._buffers(came, context), sizes(len(came), self.size), context.cohort.trained
        opened = {
            number: some
            for number, (some, size) in enumerate(zip(buffers, of, strict=True))
            if self._counts(size, len(some), int(trained[some].sum()))
        }
        means = rows.new_empty(len(opened), rows.shape[-1])
        counted: dict[int, Tensor] = {}
        for number, some in opened.items():
            mean = means[len(counted)].copy_(_added(rows[some]) / len(some))
            if all_finite(mean):
                counted[number] = some
            else:
                context.tell(Suspected(tuple(sorted({*context.cohort.clients[some].tolist()})), "not finite"))
        known = int((~came).sum()) + len(opened) - len(counted)
        failed = self.fails(len(counted), known) or not context.enough(len(counted))
        context.tell(Summed(tuple(map(len, buffers)), len(buffers) - len(counted), failed))
        counted = {} if failed else counted
        taken, sent = torch.zeros(len(rows), dtype=torch.bool, device=rows.device), torch.zeros_like(rows)
        for some in counted.values():
            taken[some], sent[some] = True, rows[some]
        shown = self._shown(means[: len(counted)], rows, counted, context)
        return Delivery(shown, context.cohort.counted(len(shown)), sent, taken)

    def _buffers(self, came: Tensor, context: RoundContext) -> list[Tensor]:
        """The rows of each buffer that were not rejected, ascending; the lot is over all, bool ``(n,)``."""
        import torch

        order = torch.from_numpy(context.shared.permutation("order", len(came))).to(came.device)
        number = came.cumsum(dim=0) - 1  # of each participation among those that were not rejected
        return [number[one[came[one]]].sort().values for one in order.split(sizes(len(came), self.size))]

    def _shown(self, means: Tensor, rows: Tensor, buffers: Mapping[int, Tensor], context: RoundContext) -> Tensor:
        """What the server is shown, ``(b, c)``, of buffers, by their numbers, with these means, all of them finite."""
        return means

    def in_the_clear(self) -> SecureSum:
        """The same without cryptography."""
        return SecureSum(self.size, self.smallest, self.byzantine)

    def members(self, places: Sequence[int], lot: Labelled) -> list[tuple[int, ...]]:
        """The clients of each buffer, by those at the places of a round and what its lot draws."""
        order = lot.permutation("order", len(places)).tolist()
        ends = [*accumulate(sizes(len(places), self.size))]
        return [tuple(sorted(places[p] for p in order[a:b])) for a, b in pairwise([0, *ends])]

    def summable(self, suite: str, before: Sequence[object]) -> WholeSums:
        """What a suite is asked to add up; ``before`` are the client stages in front of it.

        Raises:
            UsageError: rows are no whole numbers there, or no suite opens such buffers.
        """
        numbers = grid_of(before[-1]) if before else None
        if numbers is None:
            raise UsageError(
                f"the suite {suite!r} adds up whole numbers, and the last client stage does not make them",
                'Put the client stage "quantise" or "skellam-noise" last, in front of secure-sum, or another one that '
                "declares bits and has the method step_of.",
            )
        return WholeSums(2 * self.size - 1, numbers)

    def secured(self, suite: str, before: Sequence[object], books: Books, apart: bool) -> SecuredSum:
        """The same with sums by a suite; ``before`` are the client stages in front of it.

        ``books`` is what its parties remember, and who keeps their messages; they are objects, or processes ``apart``.

        Raises:
            UsageError: rows are no whole numbers there, or there is no such suite, or none for such buffers.
        """
        from fuaudit.plugins import Suite  # cryptography, which no other use of this file needs

        sums = self.summable(suite, before)
        own = (self.size, self.smallest, self.byzantine)
        return SecuredSum(*own, suite=Suite(suite, most=sums.most, apart=apart), sums=sums, books=books)


@dataclass(frozen=True)
class WholeSums:
    """Sums of whole numbers of a step.

    Attributes:
        most: of how many clients the largest buffer of any round can be.
        numbers: what the last client stage says of the whole numbers that it leaves.
    """

    most: int
    numbers: Grid

    @property
    def bits(self) -> int:
        """Of a value that is summed."""
        return self.numbers.bits

    def mean_of(self, total: Ints, rows: int, like: Tensor) -> Tensor:
        """What the server is shown, ``(c,)`` of the kind of ``like``, of an opened sum ``(c,)`` of so many rows."""
        import torch

        summed = torch.from_numpy(total).to(like.device, torch.float64) * self.numbers.step_of(len(total))
        return like.new_empty(len(total)).copy_(summed / rows)


@dataclass(frozen=True)
class SecuredSum(SecureSum):
    """Means of buffers whose sums a suite makes, exactly those of :class:`SecureSum`; no config names it.

    Rows are whole numbers of a step, and the step is a power of two. A suite adds them up exactly, as float64 does, so
    nothing that is delivered depends on which suite it was, nor on any key.

    Attributes:
        suite: of ``fuaudit.secure``.
        sums: what it is asked to add up.
        books: what the parties remember of what they opened.
    """

    suite: Suite = field(kw_only=True)
    sums: WholeSums = field(kw_only=True)
    books: Books = field(kw_only=True, repr=False, compare=False)

    @property
    def bits(self) -> int:
        """Of a value that is summed."""
        return self.sums.bits

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """As :class:`SecureSum`; clients reveal their parts in the lot before anything is drawn by it."""
        if self.books.kept is not None:
            self.books.kept.reveal(context.number, sorted({*context.cohort.clients.tolist()}))
        return super().deliver(rows, context)

    def _shown(self, means: Tensor, rows: Tensor, buffers: Mapping[int, Tensor], context: RoundContext) -> Tensor:
        if buffers and self.books.kept is not None and context.coordinates is not None:
            clients = sorted({*context.cohort.clients.tolist()})
            self.books.kept.tell(context.number, clients, context.coordinates.cpu().numpy())
        for mean, (number, some) in zip(means, buffers.items(), strict=True):
            mean.copy_(self.sums.mean_of(self._opened(rows[some], some, number, context), len(some), mean))
        return means

    def _opened(self, rows: Tensor, places: Tensor, number: int, context: RoundContext) -> Ints:
        """The sum ``(c,)`` of the rows of a buffer ``(s, c)``, in steps, of these places of the cohort ``(s,)``."""
        from fuaudit.plugins import coordinates_digest

        clients = context.cohort.clients[places].tolist()
        whole = whole_numbers(rows, self.sums.numbers, clients, context.number).cpu().numpy()
        at, columns = (context.number, number), context.coordinates
        named = None if columns is None else coordinates_digest(columns.cpu().numpy())
        few = None if self.smallest == "complete" else max(self.smallest, self.suite.floor(len(clients)))
        largest = max(sizes(int(context.cohort.present.sum()), self.size))
        suite = replace(self.suite, most=largest)
        opened = suite.opened(whole, self.bits, clients, smallest=few, at=at, books=self.books, coordinates=named)
        return opened.sums
