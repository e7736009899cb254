"""Suites: five ways to one function of whole numbers, ``sums(rows (s, c), bits) -> (c,)``.

All give the same sums. What differs is who could have seen a row (docs/secure-aggregation.md has a table). Here all
parties are objects of one process, and a round is played between them: it shows sums and costs, and hides nothing from
whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from fuaudit.errors import UsageError, nearest
from fuaudit.secure import bfv, ckks
from fuaudit.secure.encrypted import Client, KeyHolder, Server, Witness, has_masks
from fuaudit.secure.masked import MaskClient, MaskServer
from fuaudit.secure.messages import Identity, Message, require_enough
from fuaudit.secure.names import SCARY
from fuaudit.secure.refusal import forgetting
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import LIBRARY, Once, Opened, Terms, layout_of, new_attempt

STEPS = ("announce", "share", "send", "unmask")
NOBODY: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True)
class Books:
    """What every party of a run remembers from round to round, so that no buffer is opened twice."""

    clients: dict[int, Once] = field(default_factory=dict)
    witness: Once = field(default_factory=Once)
    holder: Once = field(default_factory=Once)

    def client(self, number: int) -> Once:
        """That of a client."""
        return self.clients.setdefault(number, Once())


@dataclass(frozen=True)
class Suite:
    """A way to add up rows.

    Attributes:
        name: "bfv+mask", "bfv", "mask" or "plain". CKKS is there to be attacked, under a name that says so.
        most: of how many clients the largest buffer is: 2 s - 1 where buffers have a size of s.
    """

    name: str = "bfv+mask"
    most: int = 8

    def __post_init__(self) -> None:
        if self.name == "ckks-demo":
            raise UsageError(
                "with CKKS whoever sees a decrypted sum recovers the key and opens every client's row",
                f'Use "bfv+mask". To attack it yourself, ask for it by its whole name: "{SCARY}".',
            )
        if self.name not in SUITES:
            raise UsageError(f"there is no suite {self.name!r}", nearest(self.name, SUITES))
        layout_of(2, self.most)

    def start(self) -> None:
        """The start-up test, once a process: the version of TenSEAL and the margin of noise. UsageError if it fails."""
        if self.name.startswith("bfv"):
            bfv.require_margin(layout_of(2, self.most).ring)

    def sums(self, rows: Ints, bits: int) -> Ints:
        """The sums ``(c,)`` of rows ``(s, c)`` int64, whose values have so many bits.

        Raises:
            UsageError: a value is outside its field, or there are too few or too many rows.
        """
        return self.opened(rows, bits).sums

    @forgetting
    def opened(
        self,
        rows: Ints,
        bits: int,
        clients: Sequence[int] | None = None,
        absent: Mapping[int, str] = NOBODY,
        smallest: int | None = None,
        at: tuple[int, int] = (0, 0),
        books: Books | None = None,
    ) -> Opened:
        """A buffer of rows ``(s, c)``, opened once.

        Args:
            rows: int64, from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1.
            bits: of a value.
            clients: whose the rows are, each once; None is 0, 1, ...
            absent: client -> the step from which on it is silent: "announce", "share", "send" or "unmask".
            smallest: from how many rows on the sum is opened; None is all of them.
            at: numbers of round and buffer.
            books: what the parties remember of the run; None is nothing.

        Raises:
            UsageError: a value is outside its field, or rows, absent or smallest do not fit.
            RefusedError: the buffer is discarded.
        """
        names = tuple(range(len(rows))) if clients is None else tuple(map(int, clients))
        if rows.ndim != 2 or len(names) != len(rows) or not set(absent) <= set(names) or len(set(names)) != len(names):
            raise UsageError(f"a buffer is of rows (s, c) of s clients, and not {rows.shape} of {names}")
        if not set(absent.values()) <= set(STEPS):
            raise UsageError(f"who is absent is so from one of the steps {', '.join(STEPS)}")
        self.start()
        with ExitStack() as parties:
            members = tuple(sorted(names))
            identities = {one: parties.enter_context(Identity()) for one in members}
            keys = tuple(identities[one].public for one in members)
            few = len(rows) if smallest is None else smallest
            terms = Terms(self.name, members, rows.shape[1], bits, self.most, few, keys, LIBRARY, *at, new_attempt())
            play = Play(terms, dict(zip(names, rows, strict=True)), identities, absent, books or Books(), parties)
            return SUITES[self.name](play)


@dataclass(frozen=True)
class Play:
    """One buffer as it is played; rows and identities by client. ``parties`` ends all of them, also after an error."""

    terms: Terms
    rows: Mapping[int, Ints]
    identities: Mapping[int, Identity]
    absent: Mapping[int, str]
    books: Books
    parties: ExitStack

    def here(self, step: str) -> list[int]:
        """Who is not silent yet."""
        before = STEPS.index(step)
        return [one for one in self.terms.members if one not in self.absent or before < STEPS.index(self.absent[one])]


def _plain(play: Play) -> Opened:
    """Rows as they are."""
    came = play.here("send")
    for one in came:
        play.terms.require_values(play.rows[one], one)
    require_enough(came, play.terms)
    return Opened(tuple(came), np.sum([play.rows[one] for one in came], axis=0))


def _mask(play: Play) -> Opened:
    """See :mod:`fuaudit.secure.masked`."""
    clients = {
        one: play.parties.enter_context(
            MaskClient(play.terms, one, play.rows[one], play.identities[one], play.books.client(one))
        )
        for one in play.terms.members
    }
    announced = [clients[one].announce() for one in play.here("announce")]
    shared = [clients[one].share(announced) for one in play.here("share")]
    sent = [clients[one].send(shared) for one in play.here("send")]
    came = [message.sender for message in sent]
    unmasked = [clients[one].unmask(came) for one in play.here("unmask")]
    return MaskServer(play.terms).opened(announced, shared, sent, unmasked)


def _encrypted(play: Play) -> Opened:
    """See :mod:`fuaudit.secure.encrypted`."""
    terms, enter = play.terms, play.parties.enter_context
    witness_identity = enter(Identity())
    holder = enter(KeyHolder(terms, witness_identity.public, play.books.holder))
    keyless = holder.keyless()
    clients = {
        one: enter(
            Client(terms, one, play.rows[one], play.identities[one], holder.handout(one), play.books.client(one))
        )
        for one in terms.members
    }
    announced: list[Message] = []
    if has_masks(terms):
        announced = [clients[one].announce() for one in play.here("announce")]
    sent = [clients[one].send(announced) for one in play.here("send")]
    total = Server(terms, keyless).total(sent, announced)
    witness = Witness(terms, keyless, witness_identity, play.books.witness)
    return holder.opened(total, witness.signature(sent, total, announced))


def _ckks(play: Play) -> Opened:
    """See :mod:`fuaudit.secure.ckks`; only sums of all."""
    came = play.here("send")
    require_enough(came, play.terms)
    for one in came:
        play.terms.require_values(play.rows[one], one)
    holder = play.parties.enter_context(ckks.DemoKeyHolder(play.terms.bits, play.terms.most))
    total = ckks.added(holder.keyless(), [ckks.encrypted(holder.public(), play.rows[one]) for one in came])
    decrypted = holder.opened(total)[: play.terms.columns]
    return Opened(tuple(came), np.rint(decrypted).astype(np.int64))


SUITES: Mapping[str, Callable[[Play], Opened]] = {
    "bfv+mask": _encrypted,
    "bfv": _encrypted,
    "mask": _mask,
    "plain": _plain,
    SCARY: _ckks,
}
