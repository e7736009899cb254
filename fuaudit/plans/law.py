"""Laws of plans: how cohorts and batches are drawn from a population.

A law is a frozen value. It may look at sizes and at earlier draws, never at models or data. Whether a
rewriter may *keep* a draw depends on the law: keeping is exact where the law is closed under conditioning
("a uniform draw that does not contain the target is a uniform draw over the rest"), so every rewriter names
the laws it is exact for by their ``name``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, Protocol

from fuaudit.draws import Address, Draws, Purpose
from fuaudit.draws.address import LARGEST
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans.population import Population


class PlanDraws(Draws, Protocol):
    """What a law draws from: every draw comes from the key, and over the population, in force at its address.

    It has the methods of :class:`~fuaudit.draws.Draws`, ``sequence``, ``subset``, ``weighted``, ``independent``,
    ``permutation`` and ``uniform``, and :meth:`population`. A cohort is drawn at ``Address(Purpose.COHORT, round)``, a
    batch at ``Address(Purpose.BATCH, round, step, client, occurrence)``, what is left of one that is cut at the same
    address with ``Purpose.CUT``, an order of samples that several steps go through at ``Address(Purpose.PERMUTATION,
    round, step, client, occurrence)`` of the first of them. The law leaves ``version`` at 0; the plan fills it in.
    """

    def population(self, at: Address) -> Population:
        """The population in force at an address."""
        ...


class Law(Protocol):
    """How every round of a run is drawn. ``rounds`` is R, ``steps`` is E; positions as in fuaudit.draws.

    ``slots`` is the most samples that a batch can hold: arrays of batches always have so many places, because bits
    of products may depend on shapes.

    ``name`` identifies the family of the law, for rewriters that are exact for some families only. A draw that
    several rounds depend on has an address of its own, at the position where it is first needed, so that it is
    kept or drawn anew as one.

    A law that ``cuts`` batches which came out too large has one method more, ``included``, with the arguments of
    ``batch``: the samples that were included before the cut, sorted.

    What else a law declares, ``replacement``, ``lasting``, ``first_round_involves``, ``cohort_size``, ``cuts`` and
    ``divisor``, is in :data:`fuaudit.declared.WORDS`; the law of a learner may leave it out.
    """

    @property
    def rounds(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def name(self) -> str: ...

    def places(self, population: Population) -> int:
        """The most participations that a round can have."""
        ...

    def smaller(self) -> Iterable[Law]:
        """Small laws of the same family, for enumeration; none where the family has no small form.

        Those of a run with three rounds, steps or samples in a batch, or more, must reach three: see
        ``fuaudit.proofs.coverage.FLOOR``.
        """
        ...

    def cohort(self, draws: PlanDraws, round_number: int) -> tuple[int, ...]:
        """The clients of a round, in drawn order, with repetitions."""
        ...

    def batch(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """The samples of one participation in one step: a set, sorted."""
        ...

    def drawn_at(self, step: int) -> int:
        """The step at which the draw behind the batch of a step is made: itself, or an earlier one. 0 for 0."""
        ...


def require_whole(value: object, name: str, least: int) -> None:
    """Raises UsageError where an option of a law is no whole number from ``least`` on that an address can have."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < LARGEST:
        raise UsageError(f"{name} must be a whole number from {least} to 2**31 - 1, not {value!r}")


def samples_of(draws: PlanDraws, at: Address) -> tuple[int, ...]:
    """The samples of the client of an address, in force there; PluginError when the client is gone by then."""
    return owned_samples(draws.population(at), at.client)


def owned_samples(population: Population, client: int) -> tuple[int, ...]:
    """The samples of a client of a population; PluginError when it is gone."""
    samples = population.samples.get(client)
    if samples is None:
        raise PluginError(
            f"the plan draws a batch of client {client} over a population without it",
            "Where that client is in a cohort, erase from the cohort on: Position(round, 0), not inside the round.",
        )
    return samples


@dataclass(frozen=True)
class _BatchesOfFixedSize:
    """Batches: uniform sets of min(b, n_k) samples, fresh in every step, for training and retraining alike."""

    rounds: int
    cohort_size: int
    steps: int
    batch_size: int
    lasting: ClassVar[bool] = False
    first_round_involves: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for name in ("rounds", "cohort_size", "steps", "batch_size"):
            # as configs call it: learners have cohort and batch where laws have sizes
            require_whole(getattr(self, name), name.removesuffix("_size"), 1)

    @property
    def slots(self) -> int:
        """See :class:`Law`."""
        return self.batch_size

    @property
    def replacement(self) -> bool:
        """See :class:`Law`."""
        return False

    def places(self, population: Population) -> int:
        """See :class:`Law`: min(K, M) distinct clients of M."""
        return min(self.cohort_size, len(population.clients))

    def batch(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """See :class:`Law`."""
        at = Address(Purpose.BATCH, round_number, step, client, occurrence)
        samples = samples_of(draws, at)
        return draws.subset(at, samples, min(self.batch_size, len(samples)))

    def drawn_at(self, step: int) -> int:
        """Every batch is a draw of its own."""
        return step


@dataclass(frozen=True)
class UniformLaw(_BatchesOfFixedSize):
    """K clients a round, uniform: with replacement (FATS, Algorithm 1) or min(K, M) distinct ones (FedAvg)."""

    replacement: bool = True

    @property
    def name(self) -> str:
        """See :class:`Law`."""
        return "uniform with replacement" if self.replacement else "uniform without replacement"

    def places(self, population: Population) -> int:
        """See :class:`Law`: K, or min(K, M) distinct ones."""
        return self.cohort_size if self.replacement else super().places(population)

    def smaller(self) -> Iterator[UniformLaw]:
        """Laws with every parameter from 1 up to its own, at most 3."""
        sizes = (self.rounds, self.cohort_size, self.steps, self.batch_size)
        for rounds, cohort, steps, batch in product(*(range(1, min(size, 3) + 1) for size in sizes)):
            yield replace(self, rounds=rounds, cohort_size=cohort, steps=steps, batch_size=batch)

    def cohort(self, draws: PlanDraws, round_number: int) -> tuple[int, ...]:
        """See :class:`Law`."""
        at = Address(Purpose.COHORT, round_number)
        clients = draws.population(at).clients
        if self.replacement:
            return draws.sequence(at, clients, self.cohort_size)
        return draws.subset(at, clients, min(self.cohort_size, len(clients)))


@dataclass(frozen=True)
class WeightedLaw(_BatchesOfFixedSize):
    """K distinct clients, one after another, each proportional to its weight among those left.

    Not closed under conditioning: with weights 1, 2, 3, 4 and two clients drawn, keeping the cohorts without
    the client of weight 1 is at total variation 13/1890 from drawing among the rest.
    """

    weights: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """See :class:`Law`."""
        return "weighted without replacement"

    def smaller(self) -> tuple[Law, ...]:
        """None: weights belong to clients, and small federations have clients of their own."""
        return ()

    def cohort(self, draws: PlanDraws, round_number: int) -> tuple[int, ...]:
        """See :class:`Law`."""
        at = Address(Purpose.COHORT, round_number)
        weight, clients = dict(self.weights), draws.population(at).clients
        return draws.weighted(at, clients, [weight[c] for c in clients], min(self.cohort_size, len(clients)))
