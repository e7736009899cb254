"""Laws under which clients drop out: a round's cohort is whoever is available in it.

Scenarios of Sun, Mao, Zhang: "MimiC: Combating Client Dropouts in Federated Learning by Mimicking Central Updates"
(arXiv 2306.12212), section 7.1. A law here has two halves, *who is available* and *which batches a participant reads*.
Its name names both, because whether a rewriter may keep draws can depend on either.

Availability that is independent from client to client is closed under conditioning: whatever is known of an erased
client says nothing about the others, so their draws may be kept. Weights drawn anew in every round are the same for
all clients in law, so without being looked at they amount to a uniform cohort; what changes with the population is
only how many clients P N are. All of this is proved by enumeration in tests/test_dropouts_laws.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import expm1, fsum, log1p
from typing import ClassVar, Protocol

from fuaudit.declared import says
from fuaudit.draws import Address, Purpose
from fuaudit.errors import UsageError
from fuaudit.plans.binomial import above
from fuaudit.plans.law import Law, PlanDraws, UniformLaw, WeightedLaw, require_whole, samples_of
from fuaudit.plans.population import Population
from fuaudit.plans.strange_laws import is_foreign


class Availability(Protocol):
    """Who is available. ``clients`` are those of the population in force in the round, sorted."""

    @property
    def name(self) -> str: ...

    def cohort(self, draws: PlanDraws, round_number: int, clients: tuple[int, ...]) -> tuple[int, ...]:
        """The clients that are available in a round (from 1), sorted; there may be none."""
        ...

    def most(self, clients: int) -> int:
        """The most of so many clients that can be available in a round."""
        ...

    def smaller(self) -> Iterator[Availability]:
        """The same law with every parameter from its least up to its own, small enough to enumerate."""
        ...


class Batches(Protocol):
    """Which samples a participation reads: ``steps`` batches of at most ``slots`` samples."""

    @property
    def name(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def slots(self) -> int: ...

    def drawn_at(self, step: int) -> int:
        """The step at which the draw behind the batch of a step is made."""
        ...

    def batch(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """The samples of one participation in one step, sorted."""
        ...

    def smaller(self) -> Iterator[Batches]:
        """See :meth:`Availability.smaller`."""
        ...


def _require_share(value: Fraction, name: str) -> None:
    if not 0 < value <= 1:
        raise UsageError(f"{name} must be above 0 and at most 1, not {value}")
    if value.denominator > 2**64:
        raise UsageError(
            f"{name} has too many digits: as a fraction its denominator is {value.denominator}, 2**64 is the most",
            "Write it with at most 19 decimal places.",
        )


@dataclass(frozen=True)
class BoundedRoundRobin:
    """Client i is available every tau_i-th round, tau_i uniform in 0, ..., ``tau_max``; 0 and 1 mean always.

    tau_i is one draw for the whole run: its address is that of the client at ``START``, so it is kept, or drawn
    anew, as one. ``phase`` "aligned" counts all clients from the first round, in which then everybody is available
    (the published code); with "drawn" the first round of client i is uniform in 1, ..., tau_i, a second draw.
    """

    tau_max: int
    phase: str = "aligned"

    def __post_init__(self) -> None:
        require_whole(self.tau_max, "tau_max", 0)
        if self.phase not in ("aligned", "drawn"):
            raise UsageError(f'phase must be "aligned" or "drawn", not {self.phase!r}')

    @property
    def name(self) -> str:
        """See :class:`Availability`."""
        return "bounded round-robin"

    def cohort(self, draws: PlanDraws, round_number: int, clients: tuple[int, ...]) -> tuple[int, ...]:
        """See :class:`Availability`."""
        return tuple(client for client in clients if self._available(draws, round_number, client))

    def _available(self, draws: PlanDraws, round_number: int, client: int) -> bool:
        at = Address(Purpose.AVAILABILITY, client=client)
        (tau,) = draws.sequence(at, range(self.tau_max + 1), 1)
        if tau < 2:
            return True
        phase = 0
        if self.phase == "drawn":
            (phase,) = draws.sequence(at._replace(occurrence=1), range(tau), 1)
        return (round_number - 1) % tau == phase

    def most(self, clients: int) -> int:
        """See :class:`Availability`: all may be there."""
        return clients

    def allows(self, there: Sequence[tuple[int, bool]]) -> bool:
        """Whether some tau has a client there, or away, in rounds as told: a number, and whether she was there."""
        return any(
            all(came == (tau < 2 or (number - 1) % tau == phase) for number, came in there)
            for tau in range(self.tau_max + 1)
            for phase in (range(max(1, tau)) if self.phase == "drawn" else [0])
        )

    def smaller(self) -> Iterator[BoundedRoundRobin]:
        """See :class:`Availability`."""
        return (replace(self, tau_max=tau) for tau in range(min(self.tau_max, 1), min(self.tau_max, 2) + 1))


@dataclass(frozen=True)
class StaticProbability:
    """Every client is available in every round with the same ``probability``, independently."""

    probability: Fraction

    def __post_init__(self) -> None:
        _require_share(self.probability, "probability")

    @property
    def name(self) -> str:
        """See :class:`Availability`."""
        return "static availability"

    def cohort(self, draws: PlanDraws, round_number: int, clients: tuple[int, ...]) -> tuple[int, ...]:
        """See :class:`Availability`."""
        if self.probability == 1:
            return clients
        yes, all_ = self.probability.as_integer_ratio()
        return tuple(
            client
            for client in clients
            if draws.weighted(Address(Purpose.AVAILABILITY, round_number, client=client), (0, 1), (all_ - yes, yes), 1)[
                0
            ]
        )

    def most(self, clients: int) -> int:
        """See :class:`Availability`: all may be there."""
        return clients

    def smaller(self) -> Iterator[StaticProbability]:
        """See :class:`Availability`: itself, for its parameter is a number and not a size."""
        return iter((self,))


@dataclass(frozen=True)
class TimeVaryingWeights:
    """In every round each client has a weight, uniform in 1, ..., ``largest``, and some clients are drawn by them.

    One after another, without replacement, each proportional to its weight among those left: ``number`` of them, or
    a ``share`` P of the N clients, max(1, floor(P N)).

    The weights of a round are independent and of one law, so the cohort, whose weights nobody sees, is a uniform
    set. A fixed number is therefore closed under conditioning. A share is not: it may give another number of
    clients when one is erased, in every round.
    """

    number: int | None = None
    share: Fraction | None = None
    largest: int = 10

    def __post_init__(self) -> None:
        require_whole(self.largest, "largest", 1)
        if (self.number is None) == (self.share is None):
            raise UsageError("time-varying weights draw either a number of clients or a share of them")
        if self.number is not None:
            require_whole(self.number, "number", 1)
        if self.share is not None:
            _require_share(self.share, "share")

    @property
    def name(self) -> str:
        """See :class:`Availability`."""
        return f"time-varying weights for a {'number' if self.share is None else 'share'} of clients"

    def cohort(self, draws: PlanDraws, round_number: int, clients: tuple[int, ...]) -> tuple[int, ...]:
        """See :class:`Availability`."""
        levels = range(1, self.largest + 1)
        weights = [draws.sequence(Address(Purpose.AVAILABILITY, round_number, client=c), levels, 1)[0] for c in clients]
        return tuple(
            sorted(draws.weighted(Address(Purpose.COHORT, round_number), clients, weights, self.most(len(clients))))
        )

    def most(self, clients: int) -> int:
        """See :class:`Availability`: so many are in every round."""
        wanted = self.number if self.share is None else max(1, int(self.share * clients))
        assert wanted is not None
        return min(wanted, clients)

    def smaller(self) -> Iterator[TimeVaryingWeights]:
        """See :class:`Availability`."""
        weights = range(1, min(self.largest, 2) + 1)
        if self.share is not None:  # two thirds as well: three clients show what a share does when one of them goes
            shares = dict.fromkeys((Fraction(2, 3), self.share))
            return (replace(self, share=share, largest=w) for share, w in product(shares, weights))
        assert self.number is not None
        return (replace(self, number=k, largest=w) for k, w in product(range(1, min(self.number, 2) + 1), weights))


@dataclass(frozen=True)
class FreshBatches:
    """Uniform sets of min(``size``, n_k) samples, fresh in each of ``steps`` steps."""

    steps: int
    size: int

    def __post_init__(self) -> None:
        require_whole(self.steps, "steps", 1)
        require_whole(self.size, "batch", 1)

    @property
    def name(self) -> str:
        """See :class:`Batches`."""
        return "fresh batches"

    @property
    def slots(self) -> int:
        """See :class:`Batches`."""
        return self.size

    def drawn_at(self, step: int) -> int:
        """See :class:`Batches`."""
        return step

    def batch(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """See :class:`Batches`."""
        at = Address(Purpose.BATCH, round_number, step, client, occurrence)
        samples = samples_of(draws, at)
        return draws.subset(at, samples, min(self.size, len(samples)))

    def smaller(self) -> Iterator[FreshBatches]:
        """See :class:`Batches`."""
        sizes = product(range(1, min(self.steps, 2) + 1), range(1, min(self.size, 3) + 1))
        return (FreshBatches(steps, size) for steps, size in sizes)


@dataclass(frozen=True)
class PoissonBatches:
    """Each sample is included in each of ``steps`` batches by itself, with the probability ``rate``.

    Arrays of batches have ``size`` places. Where more samples are included, a uniform set of ``size`` of them is left:
    the batch is cut. What is left of a cut batch depends on how many were included, so a batch may be kept only where
    nothing requested was *included* (:meth:`included`). Of three samples with rate 1/2 and one place, keeping by what
    is left is at total variation 5/96 from retraining.

    Gradients of a batch are added up and divided by ``divisor``, whatever its length is: the expected length of a
    client's batch would change with each sample that is erased, and so would rounds that are kept.
    """

    steps: int
    rate: Fraction
    size: int
    divisor: int

    def __post_init__(self) -> None:
        require_whole(self.steps, "steps", 1)
        _require_share(self.rate, "rate")
        require_whole(self.size, "largest_batch", 1)
        require_whole(self.divisor, "batch", 1)

    @property
    def name(self) -> str:
        """See :class:`Batches`."""
        return "Poisson batches"

    @property
    def slots(self) -> int:
        """See :class:`Batches`."""
        return self.size

    def drawn_at(self, step: int) -> int:
        """See :class:`Batches`."""
        return step

    def included(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """The samples that were included, sorted, before any cut."""
        at = Address(Purpose.BATCH, round_number, step, client, occurrence)
        return draws.independent(at, samples_of(draws, at), self.rate)

    def batch(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """See :class:`Batches`."""
        included = self.included(draws, round_number, step, client, occurrence)
        if len(included) <= self.size:
            return included
        return draws.subset(Address(Purpose.CUT, round_number, step, client, occurrence), included, self.size)

    def chance_of_cut(self, samples: int) -> float:
        """The probability that one batch of a client with so many samples is cut, rounded up by 1e-15 of it at most."""
        return above(samples, self.rate, self.size)

    def smaller(self) -> Iterator[PoissonBatches]:
        """See :class:`Batches`; with its own rate, and with rate 1.

        Each sample doubles what can come out of a batch, so with its own rate few rounds and clients can be walked.
        With rate 1 a batch is a uniform set that names everything, as soon as it is drawn.
        """
        sizes = product(range(1, min(self.steps, 2) + 1), range(1, min(self.size, 3) + 1))
        rates = dict.fromkeys((self.rate, Fraction(1)))
        return (replace(self, steps=steps, size=size, rate=rate) for (steps, size), rate in product(sizes, rates))


@dataclass(frozen=True)
class PermutedEpochs:
    """``epochs`` passes over a client's samples, each in a uniform order cut into batches of ``size``.

    Every epoch has room for ceil(``largest`` / ``size``) batches, ``largest`` being the most samples that a client
    may have, so that a law has one number of steps for all; a client with n samples has ceil(n / size) batches that
    are not empty, the last of them smaller. The order of an epoch is one draw, made at its first step.
    """

    epochs: int
    size: int
    largest: int

    def __post_init__(self) -> None:
        require_whole(self.epochs, "epochs", 1)
        require_whole(self.size, "batch", 1)
        require_whole(self.largest, "largest_client", 1)

    @property
    def name(self) -> str:
        """See :class:`Batches`."""
        return "permuted epochs"

    @property
    def _an_epoch(self) -> int:
        return -(-self.largest // self.size)

    @property
    def steps(self) -> int:
        """See :class:`Batches`."""
        return self.epochs * self._an_epoch

    @property
    def slots(self) -> int:
        """See :class:`Batches`."""
        return self.size

    def drawn_at(self, step: int) -> int:
        """See :class:`Batches`."""
        return step - (step - 1) % self._an_epoch if step else 0

    def batch(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """See :class:`Batches`.

        Raises:
            UsageError: the client has more than ``largest`` samples.
        """
        first = self.drawn_at(step)
        at = Address(Purpose.PERMUTATION, round_number, first, client, occurrence)
        samples = samples_of(draws, at)
        self.require_room(client, len(samples))
        start = (step - first) * self.size
        if start >= len(samples):
            return ()
        return tuple(sorted(draws.permutation(at, samples)[start : start + self.size]))

    def require_room(self, client: int, samples: int) -> None:
        """Raises UsageError when a client has more than ``largest`` samples."""
        if samples > self.largest:
            raise UsageError(
                f"client {client} has {samples} samples, the law has room for {self.largest}",
                f"Set largest_client to {samples} or more.",
            )

    def smaller(self) -> Iterator[PermutedEpochs]:
        """See :class:`Batches`; with room for three to five samples a client: of five an erased three leave two."""
        sizes = product(range(1, min(self.epochs, 2) + 1), range(1, min(self.size, 3) + 1), (3, 4, 5))
        return (PermutedEpochs(epochs, size, largest) for epochs, size, largest in sizes)


@dataclass(frozen=True)
class AvailabilityLaw:
    """Rounds whose cohort is whoever is available, sorted; nobody takes part twice.

    With ``first_all`` everybody takes part in the first round, as the convergence theory of MIFA and MimiC asks.
    Implements :class:`fuaudit.plans.Law`.
    """

    rounds: int
    availability: Availability
    batches: Batches
    first_all: bool = True
    replacement: ClassVar[bool] = False
    cohort_size: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require_whole(self.rounds, "rounds", 1)

    @property
    def steps(self) -> int:
        """See :class:`fuaudit.plans.Law`."""
        return self.batches.steps

    @property
    def slots(self) -> int:
        """See :class:`fuaudit.plans.Law`."""
        return self.batches.slots

    @property
    def name(self) -> str:
        """Both halves, for example "static availability, fresh batches"."""
        return f"{self.availability.name}, {self.batches.name}"

    @property
    def cuts(self) -> bool:
        """See :class:`fuaudit.plans.Law`."""
        return isinstance(self.batches, PoissonBatches)

    @property
    def divisor(self) -> int:
        """See :class:`fuaudit.plans.Law`."""
        return self.batches.divisor if isinstance(self.batches, PoissonBatches) else 0

    @property
    def lasting(self) -> bool:
        """See :class:`fuaudit.plans.Law`: periods."""
        return isinstance(self.availability, BoundedRoundRobin)

    @property
    def first_round_involves(self) -> frozenset[str]:
        """See :class:`fuaudit.plans.Law`."""
        aligned = isinstance(self.availability, BoundedRoundRobin) and self.availability.phase == "aligned"
        if not (self.first_all or aligned):
            return frozenset()
        return frozenset({"clients", "samples"} if isinstance(self.batches, PermutedEpochs) else {"clients"})

    def places(self, population: Population) -> int:
        """See :class:`fuaudit.plans.Law`."""
        clients = len(population.clients)
        return clients if self.first_all else self.availability.most(clients)

    def cohort(self, draws: PlanDraws, round_number: int) -> tuple[int, ...]:
        """See :class:`fuaudit.plans.Law`."""
        clients = draws.population(Address(Purpose.COHORT, round_number)).clients
        return (
            clients if self.first_all and round_number == 1 else self.availability.cohort(draws, round_number, clients)
        )

    def batch(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """See :class:`fuaudit.plans.Law`."""
        return self.batches.batch(draws, round_number, step, client, occurrence)

    def included(self, draws: PlanDraws, round_number: int, step: int, client: int, occurrence: int) -> tuple[int, ...]:
        """See :class:`fuaudit.plans.Law`."""
        drawn = self.batches.included if isinstance(self.batches, PoissonBatches) else self.batches.batch
        return drawn(draws, round_number, step, client, occurrence)

    def drawn_at(self, step: int) -> int:
        """See :class:`fuaudit.plans.Law`."""
        return self.batches.drawn_at(step)

    def smaller(self) -> Iterator[Law]:
        """Laws of the same name with every size from its least up to its own, small enough to enumerate."""
        for rounds in range(1, min(self.rounds, 3) + 1):
            for availability, batches in product(self.availability.smaller(), self.batches.smaller()):
                yield replace(self, rounds=rounds, availability=availability, batches=batches)


def require_room(law: Law, population: Population) -> None:
    """Check that a law fits the federation that is to be trained; erasures may make it smaller later on.

    Raises:
        UsageError: the largest client has more samples than the law has room for; the law draws more clients than
            there are, or batches larger than all data.
    """
    if isinstance(law, AvailabilityLaw) and isinstance(law.batches, PermutedEpochs):
        samples, client = max((len(samples), client) for client, samples in population.samples.items())
        law.batches.require_room(client, samples)
    wanted = says(law, "cohort_size")
    if wanted > len(population.clients):
        raise UsageError(
            f"the learner draws {wanted} clients a round, and the federation has {len(population.clients)}",
            "Set cohort to at most the number of clients.",
        )
    if law.slots > population.size:
        raise UsageError(
            f"the learner draws batches of {law.slots} samples, and all clients together have {population.size}",
            f"Set {'largest_batch' if says(law, 'divisor') else 'batch'} to at most the samples of a client: a larger "
            "batch is all of them in any case.",
        )


@dataclass(frozen=True)
class Cuts:
    """How likely batches of a run are cut, at most: rounded up, as if everybody took part in all rounds.

    Attributes:
        any_batch: the chance that any batch is.
        any_of_one: the same of the batches of one client, the one with most samples, and one sample more.
    """

    any_batch: float
    any_of_one: float


def chance_of_cuts(law: Law, population: Population) -> Cuts | None:
    """The chance that batches of a run are cut; None under a law that cuts none, or whose chances are not known.

    Known are those of fuaudit's own law, by its exact classes: another one may include samples as it likes.

    Args:
        population: the largest one that batches are drawn over (:attr:`fuaudit.plans.Plan.widest`).
    """
    if type(law) is not AvailabilityLaw or type(law.batches) is not PoissonBatches or is_foreign(law):
        return None
    batches, sizes = law.batches, [len(samples) for samples in population.samples.values()]
    of_size = {size: batches.chance_of_cut(size) for size in {*sizes, max(sizes) + 1}}
    drawn = law.rounds * law.steps
    return Cuts(_any([of_size[size] for size in sizes], drawn), _any([of_size[max(sizes) + 1]], drawn))


def _any(chances: list[float], times: int) -> float:
    """That any of some independent events comes about in so many trials of each, rounded up."""
    if not any(chances):
        return 0.0
    if max(chances) >= 1:
        return 1.0
    return min(1.0, -expm1(times * fsum(log1p(-chance) for chance in chances)) * (1 + 1e-12))


def always_draws(law: Law) -> bool:
    """Whether every participation of a client with samples surely reads one of them in its round, under this law.

    Known of fuaudit's own laws, by their exact classes: all but Poisson batches, any of which can be empty.
    """
    if is_foreign(law):
        return False
    if type(law) is AvailabilityLaw:
        return type(law.batches) in (FreshBatches, PermutedEpochs)
    return type(law) in (UniformLaw, WeightedLaw)


INDEPENDENT = ("bounded round-robin", "static availability")
"""Names of the halves under which clients are available independently of each other."""

CLOSED = tuple(
    f"{who}, {what}"
    for who in (*INDEPENDENT, "time-varying weights for a number of clients")
    for what in ("fresh batches", "permuted epochs", "Poisson batches")
)
"""Names of the laws that are closed under conditioning: a draw without the target may be kept."""
