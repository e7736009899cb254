"""Contracts: what authors of the parts of an exchange promise, and what a transport hands on.

Up to the transport a row, one participation, belongs to its client. Behind it there is what the server sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from fuaudit.training.rounds import (
    Cohort,
    RoundContext,
    State,
)
from fuaudit.training.stages import Stage

if TYPE_CHECKING:
    from torch import Tensor

    from fuaudit.draws import Labelled
    from fuaudit.secure.streams import Ints
    from fuaudit.secure.suites import Books, Suite


class ClientStage(Stage, Protocol):
    """A registered client stage (group ``client_stages``): a frozen dataclass that maps each row alone.

    All that it keeps has one row a client, ``(*s, M, d)``, and the server is never given it. ``settle`` may be left
    out. What else it declares is in :data:`fuaudit.declared.WORDS`.
    """

    def settle(self, sent: Tensor, answer: Tensor, context: RoundContext, state: State) -> State:
        """The state after the round: from what was sent of each row ``(*s, n, c)`` and the aggregator's row."""


class Agreement(Protocol):
    """A client stage by which all agree on the coordinates of the rest of the round, before a value is sent."""

    def propose(self, updates: Tensor, context: RoundContext) -> list[Tensor]:
        """The columns that each row ``(n, c)`` proposes, ``(k,)`` each."""

    def agree(self, proposals: list[Tensor], context: RoundContext) -> Tensor:
        """The columns that are agreed on, ascending, ``(c',)``, of the c that there were."""


class Byzantine(Stage, Protocol):
    """A stage of Byzantine clients (group ``byzantine``), named by their ids ``clients``. It may look at every row.

    Only their rows are taken from what ``apply`` returns. ``proposals(found, updates, context)`` may be left out: what
    they propose in an agreement, where the honest stages propose ``found``.
    """

    clients: tuple[int, ...]


@dataclass(frozen=True)
class Delivery:
    """What came of a round's rows.

    Attributes:
        rows: what the server sees, ``(*s, b, c)``.
        cohort: who is behind them: as many places as there are rows.
        sent: what was sent of each participation, ``(*s, n, c)``; zero where nothing was.
        taken: which participations are behind the rows, bool ``(n,)``. None for those whom the cohort names; behind
            sums for all, or for none where no row is.
    """

    rows: Tensor
    cohort: Cohort
    sent: Tensor
    taken: Tensor | None = None

    @property
    def undone(self) -> Delivery:
        """The same where nothing came of it: what was sent of anybody is nothing."""
        taken = None if self.taken is None else self.taken & False
        return replace(self, sent=self.sent.new_zeros(self.sent.shape), taken=taken)


class Transport(Protocol):
    """A registered transport (group ``transports``): a frozen dataclass that brings rows to the server.

    ``shows`` says what the server sees: the "rows" of clients, or "sums" of several. ``in_the_clear`` makes the same
    deliveries without cryptography; audits replay with it. It may have each method of :class:`Limited`,
    :class:`Buffered` and :class:`Securable`. What else it declares is in :data:`fuaudit.declared.WORDS`.
    """

    shows: ClassVar[Literal["rows", "sums"]]

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """Bring the rows ``(*s, n, c)`` of a round to the server."""

    def in_the_clear(self) -> Transport:
        """A transport with the same deliveries, without cryptography."""


class Limited(Protocol):
    """What a transport may have that delivers fewer rows than it gets, or nothing.

    It is asked with how many participations a round has at most, and how many of them can be of clients with samples.
    """

    def require_places(self, places: int, trained: int) -> None:
        """Raise UsageError where such rounds could deliver nothing."""

    def rows_left(self, places: int, trained: int) -> int:
        """How many rows come at most; without it one a participation, or one of two with samples as sums."""


class Buffered(Protocol):
    """What a transport may have that puts participations into buffers by a uniform lot."""

    def buffers(self, places: int) -> list[tuple[int, int]]:
        """Of so many participations how many are in each buffer, and from how many rows on it opens."""

    def fails(self, counted: int, known: int) -> bool:
        """Whether a round delivers nothing in which so many sums are left, and so many bad clients were found.

        It may be left out: then nobody without rows can tell whether a buffer was left out for a reason.
        """

    def members(self, places: Sequence[int], lot: Labelled) -> list[tuple[int, ...]]:
        """The clients in each sum, of those at the places of a round; the place of a sum is the number of its terms."""


class Summable(Protocol):
    """What a suite is asked to add up. It opens nothing, and needs no suite: whoever reads a run asks for it.

    It may leave ``mean_of`` out: nobody can tell models from sums then.
    """

    @property
    def bits(self) -> int:
        """Of a value that is summed."""

    @property
    def most(self) -> int:
        """Of how many clients the largest buffer is."""

    def mean_of(self, total: Ints, rows: int, like: Tensor) -> Tensor:
        """What the server is shown, ``(c,)`` of the kind of ``like``, of an opened sum ``(c,)`` of so many rows."""


class Securable(Protocol):
    """What a transport may have whose sums a suite of :mod:`fuaudit.secure` can make.

    Then it draws its lot, and is :class:`Buffered`: who chooses who is with whom learns rows. It may leave
    ``summable`` out. What it says is read off ``secured`` then, which should need no library.
    """

    def summable(self, suite: str, before: Sequence[object]) -> Summable:
        """What a suite is asked to add up, behind the client stages ``before``. UsageError where it cannot."""

    def secured(self, suite: str, before: Sequence[object], books: Books, apart: bool) -> Secured:
        """A transport with the same deliveries, whose sums a suite makes, behind the client stages ``before``.

        ``books`` is what its parties remember, ``apart`` says whether these are processes. UsageError where it cannot.
        """


class Secured(Transport, Protocol):
    """A transport whose sums a suite makes. Without ``summable`` its ``mean_of`` is asked, where it has one."""

    suite: Suite
    """Its name, and of how many clients the largest buffer is."""

    @property
    def bits(self) -> int:
        """Of a value that is summed."""
