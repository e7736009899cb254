"""Adversaries: clients who turn their own data. They do so after it was dealt, and before anything is committed to.

Everything else sees the turned rows alone: training, commitment, receipts, erasure and audits. Whoever reads the data
of a run turns it again, by the config and by who had which row. An adversary is therefore given one row at a time: what
it makes of a row must be the same whichever others are at hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from fuaudit.data.dataset import Dataset, is_out_of_range
from fuaudit.declared import must_say
from fuaudit.errors import PluginError, UsageError
from fuaudit.registry import blaming, build
from fuaudit.text import span

if TYPE_CHECKING:
    from torch import Tensor

Table = Mapping[str, Any]


class Adversary(Protocol):
    """A registered adversary: a frozen dataclass with an option ``clients: tuple[int, ...]``, whose rows it turns."""

    @property
    def clients(self) -> tuple[int, ...]:
        """The ids of its clients."""
        ...

    def turn(self, inputs: Tensor, target: int, classes: int) -> tuple[Tensor, int]:
        """What becomes of one training row of its clients: inputs ``(*shape)`` and target, in [0, classes).

        Shape and dtype stay. It depends on nothing but what is given, so that every reader makes the same of a row.
        """
        ...


def turned(dataset: Dataset, adversaries: Sequence[Table], owner: Mapping[int, int]) -> Dataset:
    """The dataset with the rows of adversaries as they turn them, one adversary after the other.

    Args:
        adversaries: the tables ``[[adversary]]`` of a config.
        owner: row -> client, before any request, as far as it is known. Rows of nobody stay as they are.

    Raises:
        UsageError: the rows are turned already.
        PluginError: an adversary names no clients, raised, or returned something that is no row.
    """
    if not adversaries:
        return dataset
    if dataset.dealt_by is not None:
        raise UsageError(
            "the rows given were turned by adversaries before",
            "Give them as the data set has them: whoever reads the data of a run turns it.",
        )
    found = replace(dataset, inputs=dataset.inputs.clone(), targets=dataset.targets.clone(), dealt_by=dataset.targets)
    at_hand = [row for row in sorted(owner) if row < dataset.size and row not in dataset.absent]
    for table in adversaries:
        adversary = build("adversaries", table)
        named = clients_of(adversary, table["use"])
        _turn(adversary, table["use"], [row for row in at_hand if owner[row] in named], found)
    return found


ASKED_AGAIN = 256
"""At most so many rows of adversaries are turned once more before a training."""


def require_steady(
    dataset: Dataset, made: Dataset, adversaries: Sequence[Table], owner: Mapping[int, int], rows: int = ASKED_AGAIN
) -> None:
    """Turn some rows once more, the last one first and without the others, and compare them with what was made.

    What another process makes of a row, or another day, it cannot show.

    Args:
        dataset: the rows as they were dealt.
        made: the rows as they were :func:`turned`.

    Raises:
        PluginError: other rows came out. No audit could ever have the rows that were committed to.
    """
    named = {client for table in adversaries for client in clients_of(build("adversaries", table), table["use"])}
    theirs = [row for row in sorted(owner) if owner[row] in named and row not in dataset.absent]
    some = theirs[:: -max(1, -(-len(theirs) // rows))]
    alone = replace(dataset, inputs=dataset.inputs[some], targets=dataset.targets[some], absent=frozenset())
    again = turned(alone, adversaries, {place: owner[row] for place, row in enumerate(some)})
    same = (again.inputs == made.inputs[some]).flatten(1).all(dim=1) & (again.targets == made.targets[some])
    if not bool(same.all()):
        row = some[int((~same).nonzero()[0])]
        raise PluginError(
            f"{_naming(adversaries, {owner[row]})} made another row of row {row} when it was asked again",
            "What becomes of a row must follow from this row and the options alone, with no chance and no memory, so "
            "that audits can make it again.",
        )


def suspected(adversaries: Sequence[Table], clients: Collection[int]) -> list[str]:
    """A sentence where all clients whose rows are other ones are those of adversaries; none else."""
    named = {client for table in adversaries for client in table.get("clients", ())}
    if not clients or not named.issuperset(clients):
        return []
    told = (
        f"All of these rows are turned by {_naming(adversaries, clients)}: maybe it makes another row here than then."
    )
    return [told]


def _naming(adversaries: Sequence[Table], clients: Collection[int]) -> str:
    """The adversaries of some clients, in words; of all, where their tables do not name clients."""
    theirs = [table for table in adversaries if not {*clients}.isdisjoint(table.get("clients", clients))]
    names = dict.fromkeys(repr(table["use"]) for table in theirs)
    return f"the {'adversary' if len(names) == 1 else 'adversaries'} {' and '.join(names)}"


def _turn(adversary: Adversary, name: str, rows: Iterable[int], found: Dataset) -> None:
    """Replaces rows of a dataset by what an adversary makes of them."""
    for row in rows:
        with blaming(adversary, f"turning row {row}"):
            made = adversary.turn(found.inputs[row].clone(), int(found.targets[row]), found.classes)
        if problem := problem_of(made, found):
            raise PluginError(f"the adversary {name!r} made of row {row} {problem}")
        inputs, target = made
        found.inputs[row], found.targets[row] = inputs.detach(), target  # whoever turns by gradients leaves some behind


def problem_of(made: object, dataset: Dataset) -> str:
    """What is wrong with what an adversary made of a row; "" for nothing."""
    import torch

    if type(made) is not tuple or len(made) != 2:
        return f"{type(made).__name__}, not inputs and a target"
    inputs, target = made
    if type(inputs) is not torch.Tensor or (inputs.shape, inputs.dtype) != (dataset.shape, dataset.inputs.dtype):
        return f"inputs that are not {dataset.inputs.dtype} of shape {dataset.shape}"
    if bool(is_out_of_range(inputs.unsqueeze(0))):
        return "inputs that are NaN, infinite, below 0 (integers) or the mark of erased rows"
    if type(target) is not int or not 0 <= target < dataset.classes:
        return f"the target {target!r}, not a whole number from 0 to {dataset.classes - 1}"
    return ""


def clients_of(part: object, name: str) -> frozenset[int]:
    """The clients that an adversary, or a stage of Byzantine clients, names.

    Raises:
        PluginError: it names none by their ids.
    """
    named = must_say(part, "clients")
    if not isinstance(named, tuple | list) or any(type(client) is not int for client in named):
        raise PluginError(f"{name!r} must name the clients that it stands for: clients (ids)")
    return frozenset(named)


def require_adversaries(adversaries: Sequence[Table], clients: Sequence[int]) -> None:
    """:func:`require_named` of all tables ``[[adversary]]`` of a config."""
    for table in adversaries:
        require_named("adversary", table["use"], build("adversaries", table), clients)


def require_named(key: str, name: str, part: object, clients: Sequence[int]) -> None:
    """Check whom a table under a key of a config names.

    Raises:
        UsageError: clients that a federation does not have, or not each once and in ascending order. A list with
            repetitions would hold any text: what a part does depends on who is named alone.
    """
    named = clients_of(part, name)
    if strangers := sorted(named.difference(clients)):
        raise UsageError(
            f"[[{key}]] use = {name!r} names client {strangers[0]}, but the federation has no such client",
            f"Clients are {span(sorted(clients))}.",
        )
    if [*must_say(part, "clients")] != sorted(named):
        raise UsageError(
            f"[[{key}]] use = {name!r} must name each client once, in ascending order",
            "Sort the list clients, and name nobody twice.",
        )


def in_words(adversaries: Sequence[Table]) -> list[str]:
    """Each adversary of a config with its clients, by ids: "label-flip (clients 3, 7)"."""
    return [f"{table['use']} ({_clients(table.get('clients'))})" for table in adversaries]


def _clients(named: object) -> str:
    """Ids in words; of what an adversary names otherwise than by an option nothing is known here."""
    if not isinstance(named, list | tuple):
        return "clients that it names itself"
    return f"client {named[0]}" if len(named) == 1 else f"clients {span(sorted(named))}"
