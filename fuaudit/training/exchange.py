"""An exchange: the parts of a round behind the local steps, and what can be said of them before a round is played.

    local steps -> client stages -> transport -> server stages -> one row
                        ^               |             |
                        +---- settle: what was sent, what came of it

All three are chains of stages. Most exchanges are plain: no client stage, and a transport that shows every row as it
is. :mod:`fuaudit.training.one_round` plays a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fuaudit.config import CLEAR, Config, build_stage, stage_kind
from fuaudit.declared import is_agreement, offers, says
from fuaudit.errors import PluginError, UsageError, nearest
from fuaudit.plans.availability import always_draws
from fuaudit.plans.stage_draws import Part
from fuaudit.registry import build, called
from fuaudit.secure.names import EXACT
from fuaudit.secure.terms import layout_of
from fuaudit.training.asking import STATE, Kind, asked, is_tensor
from fuaudit.training.contracts import Delivery, Transport
from fuaudit.training.events import NOT_FINITE, REJECTED_FOR
from fuaudit.training.rounds import (
    CLIENT,
    SERVER,
    ExchangeContext,
    Outline,
    RoundContext,
    State,
    owner_of,
    prefix_of,
    stripped,
    under,
)
from fuaudit.training.stages import NO_STAGES, Chain, least_rows

if TYPE_CHECKING:
    from torch import Tensor

    from fuaudit.draws import Labelled
    from fuaudit.plans import Law
    from fuaudit.secure.streams import Ints
    from fuaudit.secure.suites import Books


@dataclass(frozen=True)
class Clear:
    """Shows the server every row as it is."""

    shows: ClassVar[Literal["rows", "sums"]] = "rows"
    vectorised: ClassVar[bool] = True

    def deliver(self, rows: Tensor, context: RoundContext) -> Delivery:
        """See :class:`Transport`."""
        return Delivery(rows, context.cohort, rows)

    def in_the_clear(self) -> Clear:
        """Itself."""
        return self


TOO_FEW, LOST = "too few rows", "a memory that is not finite"
"""Why a round fails, and why a memory is set to zero."""
OF_ITS_OWN = NOT_FINITE, TOO_FEW, LOST
"""What it tells of a round itself, in this order."""

BUFFERS = Kind(
    "a list of pairs of whole numbers",
    lambda answer: (
        isinstance(answer, list)
        and all(isinstance(pair, tuple) and [*map(type, pair)] == [int, int] and pair[0] > 0 for pair in answer)
    ),
)
A_FAILURE = Kind("True or False", lambda answer: type(answer) is bool)
MEMBERS = Kind(
    "a list of tuples of clients",
    lambda answer: (
        isinstance(answer, list)
        and all(isinstance(some, tuple) and all(type(client) is int for client in some) for some in answer)
    ),
)
SUMMABLE = Kind(
    "what has whole numbers bits and most",
    lambda answer: [type(getattr(answer, name, None)) for name in ("bits", "most")] == [int, int],
)
A_TRANSPORT = Kind("a transport", lambda answer: offers(answer, "deliver"))


def _row_of(columns: int, like: Tensor) -> Kind:
    """A row of so many columns, of the kind of a tensor."""
    return Kind(
        f"a row ({columns},) of {like.dtype}",
        lambda answer: is_tensor(answer, like) and answer.shape == (columns,),
    )


@dataclass(frozen=True)
class Summation:
    """What a suite is asked to add up in an exchange, and what becomes of a sum. Nothing of it opens one.

    Attributes:
        bits: of a value.
        most: of how many clients the largest buffer of any round can be.
        part: who says what the server is shown of a sum.
    """

    bits: int
    most: int
    part: Any

    @property
    def shows_means(self) -> bool:
        """Whether anybody says what the server is shown of a sum."""
        return offers(self.part, "mean_of")

    def mean_of(self, total: Ints, rows: int, like: Tensor) -> Tensor:
        """What the server is shown, ``(c,)`` of the kind of ``like``, of an opened sum ``(c,)`` of so many rows.

        Where anybody says it.
        """
        made: Tensor = asked(self.part, "mean_of", _row_of(len(total), like), total, rows, like)
        return made


@dataclass(frozen=True)
class Exchange:
    """The parts of a round behind the local steps.

    Attributes:
        server: the server's stages.
        client_stages: what stands before the transport.
        transport: how rows come to the server.
        byzantine: which of the client stages, counted from 0, are those of Byzantine clients.
        private_solver: whether the clients keep what the solver does, which stands in front of all.
        drawing_solver: whether the solver adds noise to their steps.
        received: whether rounds of the run came in messages: then what clients keep is with them, and nothing of it is
            here.
    """

    server: Chain
    client_stages: Chain = NO_STAGES
    transport: Transport = Clear()
    byzantine: frozenset[int] = frozenset()
    private_solver: bool = False
    drawing_solver: bool = False
    received: bool = False

    @property
    def parts(self) -> tuple[Any, ...]:
        """Client stages, transport and server stages."""
        return (*self.client_stages.stages, self.transport, *self.server.stages)

    @property
    def plain(self) -> bool:
        """Whether the server's stages get every row as the solver leaves it."""
        return not self.client_stages.stages and type(self.transport) is Clear

    @property
    def downloads(self) -> int:
        """How many vectors of the model's size each participation is sent, beside those that the solver counts."""
        return int(any(says(stage, "answered") for stage in self.client_stages.stages))

    @property
    def vectorised(self) -> bool:
        """Whether many runs are treated together; where a rule needs some rows, each run may fail by itself."""
        choosy = self.draws or any(least_rows(stage) > 1 for stage in self.server.stages)
        run_by_run = self.byzantine or choosy or self.agrees
        return not run_by_run and all(says(part, "vectorised") for part in self.parts)

    @property
    def abrupt(self) -> tuple[str, ...]:
        """Its parts that rank, round or choose, in words: one last bit of a row can become another model there."""
        return tuple(called(part) for part in self.parts if says(part, "abrupt"))

    @property
    def clients_keep(self) -> bool:
        """Whether clients keep something from round to round."""
        return self.private_solver or bool(self.client_stages.per_client_state)

    @property
    def remembers(self) -> bool:
        """Whether a run holds what clients keep."""
        return self.clients_keep and not self.received

    @property
    def agrees(self) -> bool:
        """Whether clients agree on coordinates."""
        return any(map(is_agreement, self.client_stages.stages))

    @property
    def draws(self) -> bool:
        """Whether a part of a round draws: of it, or the solver."""
        return self.drawing_solver or any(says(part, "draws") for part in self.parts)

    @property
    def signs(self) -> bool:
        """Whether the server sees sums: then each client has an identity, whoever makes the sums."""
        return bool(self.transport.shows == "sums")

    @property
    def casts_lots(self) -> bool:
        """Whether a lot says who is with whom in sums: then each client has a part in it."""
        return self.signs and bool(says(self.transport, "draws"))

    @property
    def has_secrets(self) -> bool:
        """Whether clients keep, draw or sign something: then each of them has a secret."""
        return self.clients_keep or self.draws or self.signs

    def trains_all(self, law: Law) -> bool:
        """Whether each participant with samples surely trains in her round, see :attr:`~.rounds.Cohort.trained`.

        Her steps have noise, or the law draws some of her samples. Else her batches may be empty: then her row tells
        nothing of data, and hides nobody.
        """
        return self.drawing_solver or always_draws(law)

    def counts_all(self, law: Law) -> bool:
        """Whether all participants count in sums, also who has no samples, see :attr:`~.rounds.Cohort.empties`."""
        return self.drawing_solver and bool(says(law, "divisor"))

    @property
    def telling(self) -> frozenset[str]:
        """The parts that may tell of a round: fuaudit's own tell nothing, and neither do Byzantine clients.

        Of a solver that draws is told what it releases.
        """
        honest = (n for n in range(len(self.client_stages.stages)) if n not in self.byzantine)
        named = {f"client.{n}": self.client_stages.stages[n] for n in honest} | {"transport": self.transport}
        named |= {f"server.{n}": stage for n, stage in enumerate(self.server.stages)}
        told = {name for name, part in named.items() if type(part).__module__.partition(".")[0] != "fuaudit"}
        return frozenset(told | ({"solver"} if self.drawing_solver else set()))

    def may_tell(self, event: Mapping[str, Any]) -> bool:
        """Whether an event, as a table, may be one of its rounds.

        Of itself it tells that rounds fail, where rules need rows, and what of Byzantine clients is not finite; of
        their memories in the clear alone. Of a round that came in messages the record tells why some were not taken.
        """
        kind, part, why = event["kind"], event["part"], event.get("why")
        if self.received and ((kind, part) == ("summed", "transport") or (part == "exchange" and why in REJECTED_FOR)):
            return True
        if part != "exchange":
            return part in self.telling
        if kind == "failed":
            return why == TOO_FEW and any(least_rows(stage) > 1 for stage in self.server.stages)
        memories = bool(self.client_stages.per_client_state) and self.transport.shows == "rows"
        whys = (NOT_FINITE, LOST) if memories else (NOT_FINITE,)
        return kind == "rejected" and why in whys and event["client"] in self.deviating

    @property
    def deviating(self) -> frozenset[int]:
        """The clients of its Byzantine stages."""
        stages: list[Any] = [self.client_stages.stages[number] for number in self.byzantine]
        return frozenset(client for stage in stages for client in stage.clients)

    def in_the_clear(self) -> Exchange:
        """The same without cryptography."""
        return replace(self, transport=asked(self.transport, "in_the_clear", A_TRANSPORT))

    def secured(self, suite: str, books: Books, apart: bool = False) -> Exchange:
        """The same with sums by a suite of :mod:`fuaudit.secure`, whose parties are objects, or processes ``apart``.

        Who made ``books``, what the parties remember, ends them. Who opens nothing asks for :meth:`summation`.

        Raises:
            UsageError: the transport adds up nothing, or rows are not whole numbers there.
        """
        self._require_sums()
        transport = asked(self.transport, "secured", A_TRANSPORT, suite, self.client_stages.stages, books, apart)
        return replace(self, transport=transport)

    def summation(self, suite: str) -> Summation:
        """What a suite is asked to add up; it takes no library of a suite, so whoever reads a run can ask for it.

        Raises:
            UsageError: there is no such suite, the transport adds up nothing, rows are not whole numbers there, or
                there is no layout for them.
        """
        if suite not in EXACT:
            raise UsageError(f"there is no suite {suite!r} that makes the sums of a run", nearest(suite, EXACT))
        self._require_sums()
        before = self.client_stages.stages
        if offers(self.transport, "summable"):
            part = asked(self.transport, "summable", SUMMABLE, suite, before)
            found = Summation(part.bits, part.most, part)
        else:
            from fuaudit.secure.suites import Books  # cryptography, which no other use of this file needs

            part = asked(self.transport, "secured", A_TRANSPORT, suite, before, Books(), False)
            found = Summation(part.bits, part.suite.most, part)
        layout_of(found.bits, found.most)
        return found

    def _require_sums(self) -> None:
        if not offers(self.transport, "secured"):
            raise UsageError(
                f"{called(self.transport)} has no sums that a suite could make",
                'Use the transport "secure-sum", with the client stage "quantise" or "skellam-noise" in front.',
            )
        # without them nobody who audits messages could tell who was to be with whom, or that a buffer is missing
        if lacking := [method for method in ("buffers", "members") if not offers(self.transport, method)]:
            raise UsageError(
                f"{called(self.transport)} has no {lacking[0]}: which clients are summed together is not told",
                f"A transport with the method secured has {' and '.join(lacking)} too.",
            )
        if not self.casts_lots:
            raise UsageError(
                f"{called(self.transport)} casts no lots: an operator who chooses clients chooses who is with whom",
                "A transport with the method secured has draws = True, and puts clients together by context.shared.",
            )

    def buffers(self, places: int) -> list[tuple[int, int]]:
        """Of each buffer of so many participations how many are in it, and from how many rows on it opens.

        Empty where the transport says nothing of buffers.
        """
        if not offers(self.transport, "buffers"):
            return []
        found: list[tuple[int, int]] = asked(self.transport, "buffers", BUFFERS, places)
        return found

    def members(self, places: Sequence[int], lot: Labelled) -> list[tuple[int, ...]]:
        """Which clients, of those at the places of a round, its lot puts into each sum, of a transport that says it.

        Ascending, as terms name them: in which order a transport says them is no matter.
        """
        return [tuple(sorted(some)) for some in asked(self.transport, "members", MEMBERS, places, lot)]

    def seen_by(self, number: int, context: ExchangeContext) -> RoundContext:
        """The round as a client stage sees it; a Byzantine one draws for its own clients alone, and tells nothing."""
        stage: Any = self.client_stages.stages[number]
        if number in self.byzantine:
            return context.at(Part("client", number), stage, stage.clients).muted().apart()
        return context.at(Part("client", number), stage, None).apart()


def exchange_of(config: Config, received: bool = False) -> Exchange:
    """The exchange that a config names; ``received`` as in :class:`Exchange`."""
    kinds, solver = [stage_kind(stage, "client") for stage in config.client], build("solvers", config.solver)
    return Exchange(
        Chain(tuple(build_stage(stage) for stage in config.server)),
        Chain(tuple(build_stage(stage, "client") for stage in config.client)),
        build_stage(config.transport or CLEAR, "transport"),
        frozenset(part for part, kind in enumerate(kinds) if kind == "byzantine"),
        bool(says(solver, "private")),
        bool(says(solver, "draws")),
        received,
    )


def first_state(solver: Any, exchange: Exchange, shape: Any) -> State:
    """What solver, clients and server keep before the first round, each under its prefix; what a run holds of it.

    Raises:
        PluginError: what stands in front of the transport keeps what it does not name, or the other way round; or what
            is named as one row a client is no such table.
    """
    state, parts, server = asked(solver, "init", STATE, shape), exchange.client_stages, exchange.server.init(shape)
    clients = parts.init(shape)
    own, kept = [(solver, state)], [*_by_stage(parts, clients)]
    for part, its in kept + own * says(solver, "private"):
        _require_named(part, its, says(part, "per_client_state"))
    for part, its in [*own, *kept, *_by_stage(exchange.server, server)]:
        _require_rows(part, its, shape.clients)
        _require_stored(part, its)
    whole = under(prefix_of(solver), state) | under(CLIENT, clients) | under(SERVER, server)
    return {name: one for name, one in whole.items() if not (exchange.received and owner_of(name) == CLIENT)}


def _by_stage(chain: Chain, state: State) -> list[tuple[Any, State]]:
    return [(stage, stripped(f"{number}.", state)) for number, stage in enumerate(chain.stages)]


def _require_named(part: object, state: State, named: frozenset[str]) -> None:
    if strange := sorted(state.keys() ^ named):
        what = "keeps what it does not name" if strange[0] in state else "lacks what it names"
        told = f"{called(part)} {what} in per_client_state: {strange[0]!r}"
        raise PluginError(told, "All that it keeps is what its clients keep: name it there, and make it in init.")


def _require_rows(part: object, state: State, clients: int) -> None:
    """PluginError unless what has one row a client is a table ``(M, k)``: an erased client's row is cut from it."""
    for name in sorted(says(part, "per_client_state")):
        form = tuple(state[name].shape) if name in state else ()
        if len(form) != 2 or form[0] != clients:
            told = f"{called(part)} names {name!r} in per_client_state, and keeps {form} there: that is no row a client"
            raise PluginError(told, f"With {clients} clients it is ({clients}, k); one number a client is (M, 1).")


def _require_stored(part: object, state: State) -> None:
    """PluginError where a run has no form for the numbers that a part keeps."""
    for name, tensor in sorted(state.items()):
        kind = "" if isinstance(tensor, Outline) else str(tensor.dtype)
        if kind in ("torch.bfloat16", "torch.complex64", "torch.complex128"):
            raise PluginError(f"{called(part)} keeps {name!r} as {kind}, and a run cannot hold it", "Keep float32.")
