"""What a round is, to a solver and to a stage: who takes part, from which model, with which step size.

State is explicit. A mapping of named tensors goes in, another comes out, and it is recorded with the round. A tensor
that keeps one row a client (an error feedback, a control variate) has the clients on its first axis, in the order of
their ids. Its owner names it in ``per_client_state``. When a client is erased, its row is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from fuaudit.declared import must_say, says
from fuaudit.errors import PluginError, UsageError
from fuaudit.training.events import Event, Told, require_event

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fuaudit.draws import Labelled
    from fuaudit.plans.stage_draws import Part, StageDraws

State: TypeAlias = dict[str, "Tensor"]

SOLVER, CLIENT, SERVER = "solver.", "client.", "server."
"""Prefixes of names in a state. The server is never given what is under ``CLIENT``."""


def owner_of(name: str) -> str:
    """The prefix of a name in a state, which says whose it is; empty for a name that no state has."""
    return next((prefix for prefix in (SOLVER, CLIENT, SERVER) if name.startswith(prefix)), "")


def prefix_of(solver: object) -> str:
    """The prefix of what a solver keeps: the clients' own where it is ``private``."""
    return CLIENT + SOLVER if says(solver, "private") else SOLVER


@dataclass(frozen=True)
class StateShape:
    """What the shapes of a state may depend on: the model's ``dimension``, and the number of retained ``clients``."""

    dimension: int
    clients: int
    dtype: torch.dtype
    device: torch.device

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of the model's type."""
        import torch

        return torch.zeros(shape, dtype=self.dtype, device=self.device)


@dataclass(frozen=True, eq=False)
class Outline:
    """A tensor of which only kind and shape are known. Nothing can be computed with it."""

    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class OutlineShape:
    """In the place of a :class:`StateShape` where only the form of a state is asked: no torch is needed."""

    dimension: int
    clients: int
    kind: str

    def zeros(self, *shape: int) -> Outline:
        """The outline of zeros of the model's type; TypeError for what can be no shape."""
        if not all(type(extent) is int and extent >= 0 for extent in shape):
            raise TypeError(f"{shape} is no shape")
        return Outline(self.kind, shape)


ARRAYS = ("clients", "rows", "sizes", "steps", "present")
"""What a cohort says of each place."""


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round. Arrays are int64 or bool, ``(*s, n)``; ``s`` counts stacked runs.

    Attributes:
        clients: client ids, -1 at unused places.
        rows: the place of each client among the retained ones, in the order of ids; -1 at unused places, and for a
            client that is not among them (a plan that still draws an erased one can be executed, to be refuted).
        sizes: how many samples each of them has, over the retained data.
        steps: how many steps each of them takes: its batches that are not empty.
        present: which places are used.
        members: how many clients the retained population has.
        total: how many samples they have together.
        empties: whether steps have noise, and batches of clients with samples can be empty (Poisson batches).
    """

    clients: Tensor
    rows: Tensor
    sizes: Tensor
    steps: Tensor
    present: Tensor
    members: int
    total: int
    empties: bool = False

    @property
    def trained(self) -> Tensor:
        """Which places stand for a client that has samples and took a step, bool ``(*s, n)``.

        The rows of all others tell nothing of data, so they hide nobody. Who is empty is public. Where steps have noise
        everybody takes them, with samples or without. Where ``empties`` everybody counts, too: whose batch was empty
        must not show, and a request must not change who counts in a round that is kept. A row there is noise at least.
        """
        taken = self.steps > 0
        return taken if self.empties else taken & (self.sizes > 0)

    def named(self, clients: Iterable[int]) -> Tensor:
        """At which places some clients stand, bool ``(*s, n)``."""
        import torch

        return torch.isin(self.clients, self.clients.new_tensor([*clients]))

    def counted(self, rows: int) -> Cohort:
        """What is known of a cohort behind sums: how many rows there are, and of nobody who is in them.

        Ids are -1, and sizes and steps 0, of every row.
        """
        nobody = self.clients.new_full((rows,), -1)
        return Cohort(nobody, nobody, nobody + 1, nobody + 1, nobody < 0, self.members, self.total)

    def among(self, places: Tensor) -> Cohort:
        """The cohort at some places ``(n,)`` of one run."""
        return self[places]

    def __getitem__(self, run: int | Tensor) -> Cohort:
        return replace(self, **{name: getattr(self, name)[run] for name in ARRAYS})


def telling(told: Told | None, part: str = "") -> Callable[[Event], None]:
    """What puts events of a part into a list; None where many runs are treated at once, and none are kept."""

    def tell(event: Event) -> None:
        require_event(event)
        if told is not None:
            told.append((part, deepcopy(event)))

    return tell


_unkept = telling(None)


def mute(event: Event) -> None:
    """Tells nothing. PluginError: whoever gets it sees rows before clients clip or noise them, or those of others."""
    raise PluginError("solvers and Byzantine clients tell nothing of a round", "Tell it by a client stage.")


def _undeclared(row: int = 0) -> Labelled:
    raise PluginError("a stage draws, and did not declare it", "Declare: draws = True.")


def _nobodys(row: int) -> Labelled:
    raise PluginError("a stage asked for what a client draws whose stage it is not", "Use shared draws there.")


def _any_number(rows: int) -> bool:
    return True


@dataclass(frozen=True)
class RoundContext:
    """One round, as a solver or a stage sees it. What it may draw it draws by functions: it is given no key, no plan.

    Attributes:
        number: of the round, from 1.
        cohort: who takes part.
        vectors: the models sent out, ``(*s, d)``.
        step_size: of the clients' steps in this round.
        coordinates: of the columns, ``(c,)``, once the round has agreed on some; None for all.
        tell: puts an event into the round's line of the ledger, the one effect that a stage has. PluginError for what
            is no event, or has parameters that are no plain numbers and words.
        own: what the client draws whose row of updates ``(n, c)`` has a number; nobody else can make these numbers.
        together: what all draw who take part in the exchange; :attr:`shared` asks it.
        accepted: for a transport: which rows of the round were not rejected before it, bool ``(n,)``. Its cohort and
            its rows are of these alone. None for all.
        enough: for a transport: whether the server's rule takes so many rows. With another number the round fails, so
            behind sums none is opened: over a model that stays they would be opened again, of other clients.
    """

    number: int
    cohort: Cohort
    vectors: Tensor
    step_size: float
    coordinates: Tensor | None = None
    tell: Callable[[Event], None] = _unkept
    own: Callable[[int], Labelled] = _undeclared
    together: Callable[[], Labelled] = _undeclared
    accepted: Tensor | None = None
    enough: Callable[[int], bool] = _any_number

    @property
    def shared(self) -> Labelled:
        """What all who take part in the exchange draw together."""
        return self.together()

    @property
    def columns(self) -> int:
        """How many columns there are: those that were agreed on, or all of the model."""
        return self.vectors.shape[-1] if self.coordinates is None else len(self.coordinates)

    def on_all(self, rows: Tensor) -> Tensor:
        """Rows ``(*s, n, c)`` on all d coordinates of the model: zero where nothing was sent."""
        if self.coordinates is None:
            return rows
        whole = rows.new_zeros(*rows.shape[:-1], self.vectors.shape[-1])
        return whole.index_copy_(-1, self.coordinates, rows)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that a part could write into."""
        agreed = {} if self.coordinates is None else {"coordinates": self.coordinates}
        return {"vectors": self.vectors, **agreed, **{name: getattr(self.cohort, name) for name in ARRAYS}}

    def apart(self) -> Self:
        """The round with tensors of its own: who writes into them changes nobody else's."""
        mine: dict[str, Any] = {name: tensor.clone() for name, tensor in self.tensors.items()}
        places = {name: mine.pop(name) for name in ARRAYS}
        return replace(self, cohort=replace(self.cohort, **places), **mine)

    def muted(self) -> RoundContext:
        """The round of which nothing is told."""
        return replace(self, tell=mute)

    def without_own(self) -> RoundContext:
        """The round where nobody's own draws can be made."""
        return replace(self, own=_undeclared if self.own is _undeclared else _nobodys)


@dataclass(frozen=True)
class ExchangeContext(RoundContext):
    """One round as the exchange leads it. No part gets it: each sees the round by :meth:`at`.

    Attributes:
        draws: of the stages, one a run; empty where none draws.
        told: the events of the round, each with the part that told it; None where none are kept.
    """

    draws: tuple[StageDraws, ...] = ()
    told: Told | None = None

    def __getitem__(self, run: int | Tensor) -> ExchangeContext:
        chosen = self.draws and tuple(self.draws[i] for i in ([run] if isinstance(run, int) else run.tolist()))
        return replace(self, cohort=self.cohort[run], vectors=self.vectors[run], draws=chosen)

    def bare(self, part: str = "") -> RoundContext:
        """The round without draws: as a solver sees it, and whoever declares none."""
        tell = telling(self.told, part)
        return RoundContext(self.number, self.cohort, self.vectors, self.step_size, self.coordinates, tell)

    def at(self, part: Part, stage: object, clients: Collection[int] | None = ()) -> RoundContext:
        """The round as a part of the exchange sees it: with its own draws if it says that it draws, and no others.

        ``clients``: whose own draws it can make, None for those of all rows; transport and server make nobody's.
        """
        bare = self.bare(str(part))
        if not self.draws or not says(stage, "draws"):
            return bare
        (draws,), number, places = self.draws, self.number, self.cohort.clients.tolist()

        def own(row: int) -> Labelled:
            if row >= len(places):
                told = f"own takes the number of a row, 0 to {len(places) - 1}, and not the id of a client: {row}"
                raise PluginError(told, "Count the rows: range(len(updates)).")
            client = places[row]
            if clients is not None and client not in clients:
                return _nobodys(row)
            return draws.own(number, part, client, places[:row].count(client))

        def together() -> Labelled:
            if part.chain == "transport" and must_say(stage, "shows") == "sums":
                return draws.lot(number, part, sorted(set(places)))
            return draws.shared(number, part)

        return replace(bare, own=own, together=together)


def rows_of(table: Tensor, cohort: Cohort) -> Tensor:
    """The rows of a cohort's clients in a table of all clients: ``(*s, M, d)`` to ``(*s, n, d)``.

    Places without a row get some client's.
    """
    index = cohort.rows.clamp(min=0).unsqueeze(-1).expand(*cohort.rows.shape, table.shape[-1])
    return table.gather(-2, index)


def with_rows(table: Tensor, cohort: Cohort, rows: Tensor) -> Tensor:
    """A copy of a table ``(*s, M, d)`` in which a cohort's clients have new rows ``(*s, n, d)``.

    Raises:
        UsageError: a client takes part twice in the round, so that two rows compete for its place.
    """
    import torch

    members = table.shape[-2]
    written = (cohort.present & (cohort.rows >= 0)).reshape(-1, cohort.present.shape[-1])
    runs = torch.arange(len(written), device=written.device).unsqueeze(1)
    places = (cohort.rows.reshape(written.shape) + members * runs)[written]
    if len(places.unique()) != len(places):
        raise UsageError(
            "a client takes part twice in one round, but a memory has one row for each client",
            "Use a law that draws clients without replacement.",
        )
    result = table.clone(memory_format=torch.contiguous_format)
    result.view(-1, table.shape[-1])[places] = rows.reshape(-1, table.shape[-1])[written.reshape(-1)]
    return result


def stripped(prefix: str, state: State) -> State:
    """The tensors under a prefix, by the names that their owner gave them."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def under(prefix: str, state: State) -> State:
    """The inverse of :func:`stripped`."""
    return {prefix + name: tensor for name, tensor in state.items()}


def inherited(state: State, per_client_state: Set[str], before: Sequence[int], after: Collection[int]) -> State:
    """A state over fewer clients: of tensors with a row a client, ``(*s, M, d)``, only the rows of who is left."""
    left = {*after}
    kept = [place for place, client in enumerate(before) if client in left]
    if len(kept) == len(before):
        return state
    return state | {name: state[name][..., kept, :] for name in per_client_state & state.keys()}
