"""Who can be drawn: clients and their samples under stable ids, and what a request takes away from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fuaudit.errors import UsageError


@dataclass(frozen=True)
class Request:
    """What must be forgotten: whole clients, single samples, or both. Ids are stable and sorted."""

    clients: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()

    @classmethod
    def of(cls, clients: Iterable[int] = (), samples: Iterable[int] = ()) -> Request:
        """A request in canonical form: sorted, without repetitions."""
        return cls(tuple(sorted(set(clients))), tuple(sorted(set(samples))))

    def __or__(self, other: Request) -> Request:
        return Request.of(self.clients + other.clients, self.samples + other.samples)

    @property
    def kind(self) -> str:
        """``client``, ``sample`` or ``mixed``."""
        return "mixed" if self.clients and self.samples else "client" if self.clients else "sample"

    @property
    def kinds(self) -> frozenset[str]:
        """What it names any of: "clients", "samples" or both."""
        return frozenset(kind for kind, named in (("clients", self.clients), ("samples", self.samples)) if named)

    def __str__(self) -> str:
        parts = [f"client {', '.join(map(str, self.clients))}"] if self.clients else []
        parts += [f"sample {', '.join(map(str, self.samples))}"] if self.samples else []
        return " and ".join(parts) or "nothing"


def require_request(request: object) -> None:
    """Raises UsageError where something else than a :class:`Request` was given as one, with the way to make one."""
    if not isinstance(request, Request):
        raise UsageError(
            f"request is of type {type(request).__name__}, not a Request",
            "Make one: fuaudit.request_of(run, clients=[...], samples=[(client, index)]), by names or ids.",
        )


ABSENT = -1
"""The size of a client outside a population; an emptied client inside has size 0."""


@dataclass(frozen=True, eq=False)
class Table:
    """A population in arrays. The samples of client c are ``samples[offsets[c] : offsets[c] + sizes[c]]``.

    ``clients (M,)`` ascend; ``sizes`` and ``offsets`` have one entry for each number up to the largest client, and the
    size of a number that is no client is ``ABSENT``; ``samples (N,)``.
    """

    clients: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    samples: NDArray[np.int64]


@dataclass(frozen=True)
class Population:
    """Client id -> ids of its samples, each sample with one owner.

    An emptied client stays (removing it would change the law of the cohorts); an erased client goes.
    """

    samples: Mapping[int, tuple[int, ...]]

    def __hash__(self) -> int:
        return hash(frozenset(self.samples.items()))

    @cached_property
    def clients(self) -> tuple[int, ...]:
        """The ids of the clients, sorted ``(M,)``."""
        return tuple(sorted(self.samples))

    @cached_property
    def owner(self) -> Mapping[int, int]:
        """Sample id -> id of its client."""
        return {sample: client for client, samples in self.samples.items() for sample in samples}

    @cached_property
    def rank(self) -> Mapping[int, int]:
        """Client id -> its place among :attr:`clients`, from 0."""
        return {client: place for place, client in enumerate(self.clients)}

    @cached_property
    def table(self) -> Table:
        """The same in arrays; made once."""
        clients = np.array(self.clients, dtype=np.int64)
        hands = [self.samples[client] for client in self.clients]
        lengths = np.array(list(map(len, hands)), dtype=np.int64)
        sizes = np.full(self.clients[-1] + 1, ABSENT, dtype=np.int64)
        offsets = np.zeros_like(sizes)
        sizes[clients], offsets[clients] = lengths, np.cumsum(lengths) - lengths
        return Table(clients, sizes, offsets, np.fromiter(chain.from_iterable(hands), dtype=np.int64))

    @cached_property
    def size(self) -> int:
        """The number of samples of all clients."""
        return sum(map(len, self.samples.values()))

    @cached_property
    def _retained(self) -> dict[Request, Population]:
        """What :meth:`without` has answered. Plans of one federation share one object, which is quick to compare."""
        return {}

    @property
    def twin(self) -> Population:
        """An equal population, new each time, for one call of one plugin. What it writes there, nobody else reads."""
        return Population(dict(self.samples))

    @property
    def empty(self) -> int:
        """How many clients have no samples left."""
        return sum(not samples for samples in self.samples.values())

    @cached_property
    def of_laws(self) -> Population:
        """The twin over which laws of strangers draw. No rewriter ever holds it."""
        return self.twin

    def foresee(self, request: Request, left: Population) -> None:
        """Answer a request with ``left`` from now on. It must equal what :meth:`without` would make."""
        self._retained[Request(request.clients, request.samples)] = left

    def without(self, request: Request) -> Population:
        """The retained population; the same object whenever the same request is asked again.

        Raises:
            UsageError: the request names an unknown client or sample, asks for nothing, or leaves nobody.
        """
        if request in self._retained:
            return self._retained[request]
        unknown_clients = [client for client in request.clients if client not in self.samples]
        unknown_samples = [sample for sample in request.samples if sample not in self.owner]
        if unknown_clients or unknown_samples:
            missing = Request(tuple(unknown_clients), tuple(unknown_samples))
            raise UsageError(
                f"this federation has no {missing}",
                f"It has {len(self.clients)} clients and {self.size} samples; erased ones cannot be erased again.",
            )
        if not request.clients and not request.samples:
            raise UsageError("the request names nothing to forget", "Name at least one client or sample.")
        erased_clients, erased = set(request.clients), set(request.samples)
        touched = {self.owner[sample] for sample in erased}
        retained = {
            client: tuple(s for s in samples if s not in erased) if client in touched else samples
            for client, samples in self.samples.items()
            if client not in erased_clients
        }
        if not any(retained.values()):
            raise UsageError("nothing would be left to train on", "Retire the model instead of unlearning.")
        self._retained[request] = Population(retained)
        return self._retained[request]


def named_twice(request: Request, population: Population) -> tuple[int, ...]:
    """The samples that a request names although it names their clients: the wish is the same without them."""
    clients = set(request.clients)
    return tuple(sample for sample in request.samples if population.owner.get(sample) in clients)


def require_named_once(request: Request, population: Population) -> None:
    """Raises UsageError where a request names samples of a client whom it names."""
    if twice := named_twice(request, population):
        client = population.owner[twice[0]]
        raise UsageError(
            f"the request names client {client}, and sample {twice[0]} of hers besides: with her all her samples go",
            "Leave the samples of clients out that are named themselves.",
        )
