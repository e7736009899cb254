"""What a round is, to a solver and to a stage: who takes part, from which model, with which step size.

State is explicit. A mapping of named tensors goes in, another comes out, and it is recorded with the round. A tensor
that keeps one row a client (an error feedback, a control variate) has the clients on its first axis, in the order of
their ids. Its owner names it in ``per_client_state``. When a client is erased, its row is removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from fuaudit.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

State: TypeAlias = dict[str, "Tensor"]


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
    """

    clients: Tensor
    rows: Tensor
    sizes: Tensor
    steps: Tensor
    present: Tensor
    members: int
    total: int

    def __getitem__(self, run: int | Tensor) -> Cohort:
        return Cohort(
            self.clients[run],
            self.rows[run],
            self.sizes[run],
            self.steps[run],
            self.present[run],
            self.members,
            self.total,
        )


@dataclass(frozen=True)
class RoundContext:
    """One round, as a solver or a stage sees it.

    Attributes:
        number: of the round, from 1.
        cohort: who takes part.
        vectors: the models sent out, ``(*s, d)``.
        step_size: of the clients' steps in this round.
    """

    number: int
    cohort: Cohort
    vectors: Tensor
    step_size: float

    def __getitem__(self, run: int | Tensor) -> RoundContext:
        return RoundContext(self.number, self.cohort[run], self.vectors[run], self.step_size)


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


def part(state: State, prefix: str) -> State:
    """The tensors under a prefix, by the names that their owner gave them."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def under(prefix: str, state: State) -> State:
    """The inverse of :func:`part`."""
    return {prefix + name: tensor for name, tensor in state.items()}


def inherited(state: State, per_client_state: Iterable[str], kept: Tensor) -> State:
    """A state over fewer clients: of tensors with a row a client, ``(*s, M, d)``, only the rows ``kept (M',)``."""
    fewer = frozenset(per_client_state)
    return {name: tensor.index_select(-2, kept) if name in fewer else tensor for name, tensor in state.items()}
