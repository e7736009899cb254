"""Small federations with requests, on which exactness is proved: like a run, up to a bound, or from a fixed list.

In all but the fixed list something is left to choose: after the requests at least two clients, and after requests
for samples a client with at least two samples. A rewriter can be wrong only where there is a choice. Cohorts
of as many distinct clients as are left have none; :mod:`fuaudit.proofs.variation` tells them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, combinations, combinations_with_replacement, product
from math import prod
from typing import Any, NamedTuple, Protocol

from fuaudit.declared import says
from fuaudit.draws import END, Position
from fuaudit.errors import FuauditError, UsageError
from fuaudit.plans import Law, Population, Request, UniformLaw
from fuaudit.plans.availability import require_room
from fuaudit.plans.strange_laws import places_of
from fuaudit.proofs.variation import varying_places
from fuaudit.text import counted

LONGEST = 3
"""Streams of more requests are too large to enumerate; the latest ones stand for them."""

MOST_CLIENTS, MOST_OWNERS, MOST_SAMPLES = 2, 2, 3
"""What a request of a small federation names at most; of two owners three samples, two and one."""

LARGEST_SWEEP = 5
"""The highest bound of a sweep: see :class:`AllToys`."""

PLACES = ("lowest", "middle", "highest")
"""Which ids are requested, among those of clients and of an owner's samples."""


class Toy(NamedTuple):
    """A small federation, requests carried out in order, and for each the first position not yet executed then."""

    law: Law
    population: Population
    requests: tuple[Request, ...]
    not_before: tuple[Position, ...]

    @property
    def retained(self) -> Population:
        """What is left after the requests."""
        return reduce(Population.without, self.requests, self.population)

    def __str__(self) -> str:
        sizes = "+".join(str(len(self.population.samples[c])) for c in self.population.clients)
        law: Any = self.law
        asked = "; ".join(
            f"{request}" if moment == END else f"{request} when round {moment.round}, step {moment.step} came next"
            for request, moment in zip(self.requests, self.not_before, strict=True)
        )
        drawn = (
            f"{counted(law.rounds, 'round')}, cohort {law.cohort_size}, "
            f"{counted(law.steps, 'step')}, batch {law.batch_size}"
            if type(law) is UniformLaw
            else f"{law}"
        )
        return f"{len(self.population.clients)} clients with {sizes} samples, {drawn}; forget {asked}"


def federation(sizes: tuple[int, ...]) -> Population:
    """Clients 0, 1, ... with so many samples each, numbered through."""
    ends = zip(sizes, accumulate(sizes), strict=True)
    return Population({c: tuple(range(end - size, end)) for c, (size, end) in enumerate(ends)})


@dataclass(frozen=True)
class Shape:
    """What a request names, up to the names: so many clients, and of each of some owners so many samples.

    ``moment`` is None where training was over when it came; else it came while so many rounds were executed.
    """

    clients: int
    samples: tuple[int, ...]
    moment: int | None = None

    @classmethod
    def of(cls, request: Request, population: Population | None = None) -> Shape:
        """That of a request, at most as large as the caps; without a population its samples have one owner."""
        owner = population.owner if population else {}
        owned: dict[int, int] = {}
        for sample in request.samples:
            whose = owner.get(sample, -1)
            owned[whose] = owned.get(whose, 0) + 1
        counts = sorted(owned.values(), reverse=True)[:MOST_OWNERS]
        if len(counts) == 1:
            counts = [min(counts[0], MOST_SAMPLES)]
        elif counts:
            counts = [min(counts[0], MOST_SAMPLES - 1), 1]
        return cls(min(len(request.clients), MOST_CLIENTS), tuple(counts))

    @classmethod
    def of_kind(cls, kind: str) -> Shape:
        """The smallest one of a kind of request."""
        return cls(int(kind != "sample"), () if kind == "client" else (1,))

    @property
    def kind(self) -> str:
        """The kind of such a request; see :attr:`fuaudit.plans.Request.kind`."""
        return "mixed" if self.clients and self.samples else "client" if self.clients else "sample"

    def __str__(self) -> str:
        words = [counted(self.clients, "client")] if self.clients else []
        if self.samples:
            count, owners = sum(self.samples), len(self.samples)
            words.append(counted(count, "sample") + (f" of {owners} clients" if owners > 1 else ""))
        during = "" if self.moment is None else f" {during_training(self.moment)}"
        return " and ".join(words) + during


def during_training(executed: int) -> str:
    """In words: when a request came, by the rounds executed until then."""
    return f"during training, after {counted(executed, 'round')}"


class Frame(NamedTuple):
    """A federation before ids are given out: sizes of owners, of who is erased, and of the rest."""

    owners: tuple[int, ...]
    erased: tuple[int, ...]
    rest: tuple[int, ...]


def frames(shapes: Sequence[Shape], batch: int, steps: int = 2, wide: int = 0) -> Iterator[Frame]:
    """Federations for a stream of requests under batches of a size, the most telling first.

    Owners keep ``batch`` samples, where every batch that is left is all of them, or one more, where there is a choice.
    Clients alone are also asked for where nobody has a second sample: that leaves room for rounds and places.
    """
    yield from telling_frames(shapes, batch, steps, wide)
    taken, gone = [sum(column) for column in _columns(shapes)], sum(shape.clients for shape in shapes)
    spare = 2 - min(len(taken), 2)  # so many others make two clients that are left
    for left, more, others in ((0, 1, (2,)), (1, 0, (2,)), (0, 1, (2, 1)), (1, 0, (1, 1, 1))):
        rest = tuple(size + batch - 1 if size > 1 else size for size in others)
        rest += (1,) * (spare - len(rest))
        owners = tuple(count + (batch + left if not place else 1) for place, count in enumerate(taken))
        yield Frame(owners, (more + batch,) * min(gone, 1) + (1,) * (gone - 1), rest)


def telling_frames(shapes: Sequence[Shape], batch: int, steps: int, wide: int) -> Iterator[Frame]:
    """The smallest ones in which a cohort and one client's batches can vary; then, in which those of two clients can.

    Where ``wide`` clients must be left for a cohort to vary, that is both by itself and at once: see
    :func:`clients_to_vary`. Without a second step, and with batches of one, cohorts vary alone: there are more of them.
    """
    taken = [sum(column) for column in _columns(shapes)]
    gone = (1,) * sum(shape.clients for shape in shapes)
    two = batch + 1
    if taken:
        left = max(wide, 2) - len(taken)
        whole = tuple(count + (1 if place else batch) for place, count in enumerate(taken))
        yield Frame(whole, gone, (two, *(1,) * (left - 1)))
        if batch == steps == 1:  # a client more
            yield Frame(whole, gone, (two, *(1,) * left))
        owners = (taken[0] + two, *whole[1:])
        for clients in dict.fromkeys((2, max(wide, 2))):
            both = (*owners[:1], *(count + two for count in taken[1:2]), *owners[2:])
            yield Frame(both, gone, ((two,) * (len(taken) < 2) + (1,) * clients)[: clients - len(taken)])
        return
    if batch == steps == 1:
        yield Frame((), gone, (1,) * max(wide, 2))
    yield Frame((), gone, (two,) + (1,) * (max(wide, 2) - 1))
    for clients in dict.fromkeys((2, max(wide, 2))):
        yield Frame((), gone, (two, two) + (1,) * (clients - 2))


def _columns(shapes: Sequence[Shape]) -> Iterator[tuple[int, ...]]:
    """How many samples each request takes of the first owner, of the second, and so on."""
    for owner in range(max((len(shape.samples) for shape in shapes), default=0)):
        yield tuple(shape.samples[owner] if owner < len(shape.samples) else 0 for shape in shapes)


def placed(frame: Frame, shapes: Sequence[Shape], place: str) -> tuple[Population, tuple[Request, ...]]:
    """A federation and requests with ids given out: those requested are the lowest, the middle or the highest ones."""
    roles = [("owner", number, size) for number, size in enumerate(frame.owners)]
    erased_roles = [("erased", number, size) for number, size in enumerate(frame.erased)]
    rest = [("rest", number, size) for number, size in enumerate(frame.rest)]
    roles = [*roles, *rest, *erased_roles] if roles else [*erased_roles, *rest]
    if place == "highest":
        roles.reverse()
    elif place == "middle":
        roles = [*roles[-1:], *roles[:-1]]
    population = federation(tuple(size for *_, size in roles))
    ids_of = {(role, number): c for c, (role, number, _) in enumerate(roles)}
    owners = [ids_of["owner", number] for number in range(len(frame.owners))]
    erased = [ids_of["erased", number] for number in range(len(frame.erased))]
    ids = []
    for owner, taken in zip(owners, map(sum, _columns(shapes)), strict=True):
        own = list(population.samples[owner])
        start = {"lowest": 0, "middle": (len(own) - taken + 1) // 2, "highest": len(own) - taken}[place]
        ids.append(own[start : start + taken])
        if place == "highest":
            ids[-1].reverse()
    requests = []
    for shape in shapes:
        clients, erased = erased[: shape.clients], erased[shape.clients :]
        samples = [ids[owner].pop(0) for owner, count in enumerate(shape.samples) for _ in range(count)]
        requests.append(Request.of(clients, samples))
    return population, tuple(requests)


def stream_of(shapes: Sequence[Shape], population: Population) -> tuple[Request, ...]:
    """Requests of some shapes, one after another: samples from the first ids on, clients from the last one back.

    Raises:
        UsageError: too little is left for another draw to come out differently: see :func:`leaves_choice`.
    """
    clients, samples = list(population.clients), [s for c in population.clients for s in population.samples[c]]
    requests = []
    try:
        for shape in shapes:
            gone = [clients.pop() for _ in range(shape.clients)]
            requests.append(Request.of(gone, [samples.pop(0) for _ in range(sum(shape.samples))]))
        enough = leaves_choice(population, requests)
    except (FuauditError, IndexError):
        enough = False
    if not enough:
        raise UsageError(
            f"{counted(len(shapes), 'request')} for {shapes[0]} would leave nothing to choose of "
            f"{counted(len(population.clients), 'client')} with {counted(population.size, 'sample')}",
            "Two clients must be left, and after requests for samples one with two: raise --clients or --samples.",
        )
    return tuple(requests)


def leaves_choice(population: Population, requests: Sequence[Request]) -> bool:
    """Whether at least two clients are left, and after requests for samples one with at least two samples."""
    left = reduce(Population.without, requests, population)
    sizes = [len(samples) for samples in left.samples.values()]
    return len(sizes) > 1 and (max(sizes) > 1 or not any(request.samples for request in requests))


def toys_like(law: Law, shapes: Sequence[Shape]) -> Iterator[Toy]:
    """Small federations for a stream of requests of some shapes, the most telling first.

    First come laws in which one number is as large as small ones get, over the smallest federation, and all pairs:
    laws in which two numbers are 2, over all federations of :func:`telling_frames`. Where there is no such law for two
    numbers, the smallest one in which both are above 1 stands for it. Then come the laws in which one
    number is as large as small ones get and all others are 1, then those in which two are above 1, and so on: each by
    the product of its numbers. Numbers are counted from the smallest that there is: during training there are two
    rounds at least, or three, and under some laws everybody may be in a round. Each law comes over several federations,
    with the lowest, the middle and the highest ids requested.

    A law says by ``smaller()`` what small laws are like it; without that, it has no toys.
    """
    laws = [small for small in law.smaller() if all(s.moment is None or s.moment < small.rounds for s in shapes)]
    columns = list(zip(*map(numbers_of, laws), strict=True))
    least, most = [*map(min, columns)], [max(column) - min(column) + 1 for column in columns]
    numbers = {s: tuple(n - few + 1 for n, few in zip(numbers_of(s), least, strict=True)) for s in laws}

    def telling(small: Law) -> tuple[Any, ...]:
        own = numbers[small]
        above = [at for at, number in enumerate(own) if number > 1]
        return len(above), len(above) == 1 and own[above[0]] < most[above[0]], prod(own), own

    in_front = _smallest_of_pairs(numbers.values())
    asked = []
    for small in sorted(laws, key=telling):
        above, short, *_ = telling(small)
        room = says(small, "cohort_size") - sum(shape.clients for shape in shapes)  # training starts with a cohort
        wide = max(clients_to_vary(small), room if room > 2 else 0)
        first = [*telling_frames(shapes, small.slots, small.steps, wide)]
        if numbers[small] not in in_front and (above > 2 or max(numbers[small]) > 2):
            first = first[: above == 1 and not short]
        for frame in frames(shapes, small.slots, small.steps, wide):
            rank = (False, above, prod(numbers[small]), first.index(frame)) if frame in first else (True,)
            asked.append((small, frame, rank))
    not_before, seen = tuple(END if s.moment is None else Position(s.moment + 1, 0) for s in shapes), set()
    for (small, frame, _), place in product(sorted(asked, key=lambda one: one[2]), PLACES):
        population, requests = placed(frame, shapes, place)
        key = id(small), tuple(population.samples.items()), requests
        if key in seen:
            continue
        seen.add(key)
        try:
            if leaves_choice(population, requests):
                require_room(small, population)
                yield Toy(small, population, requests, not_before)
        except FuauditError:
            continue


def _smallest_of_pairs(numbers: Iterable[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """For every two places the smallest numbers that are above 1 at both: under some laws others cannot be 1 then."""
    every = sorted(set(numbers), key=lambda own: (prod(own), own))
    pairs = combinations(range(len(every[0])), 2) if every else ()
    smallest = (next((own for own in every if own[one] > 1 < own[other]), None) for one, other in pairs)
    return {own for own in smallest if own}


def numbers_of(law: Law) -> tuple[int, ...]:
    """Rounds, places among three clients, steps, and samples in a batch."""
    return law.rounds, places_of(law, federation((1, 1, 1))), law.steps, law.slots


def clients_to_vary(law: Law) -> int:
    """How many clients must be left for a cohort of two places or more to vary; 0 where two are enough, or none.

    Three distinct clients vary among four, and whoever is available of two is one that varies, or both. Half of the
    clients are two of four.
    """
    places = min(2, places_of(law, federation((1, 1, 1, 1))))
    enough = (left for left in (2, 3, 4) if varying_places(law, federation((1,) * left)) >= places)
    least = next(enough, 2)
    return least if least > 2 else 0


def trials(make_law: Callable[[int, int, int, int], Law]) -> Iterator[Toy]:
    """The fixed list of the contract suite, by ``make_law(rounds, cohort, steps, batch)``.

    Ragged sizes, an emptied client, streams of two and of three, mixed requests, two clients, samples of two owners,
    requests during training.
    """

    def trial(sizes: tuple[int, ...], law: tuple[int, int, int, int], *asked: Request, at: Position = END) -> Toy:
        return Toy(make_law(*law), federation(sizes), asked, (END,) * (len(asked) - 1) + (at,))

    def sample(*ids: int) -> Request:
        return Request.of(samples=ids)

    def client(*ids: int) -> Request:
        return Request.of(clients=ids)

    yield trial((2, 2), (1, 1, 1, 1), sample(0))
    yield trial((2, 2), (1, 1, 1, 1), client(0))
    yield trial((3, 2), (2, 1, 1, 1), sample(0))
    yield trial((2, 2, 1), (2, 1, 1, 1), client(1))
    yield trial((3, 1), (1, 2, 1, 2), sample(1))
    yield trial((3, 2), (1, 1, 2, 1), sample(0))
    yield trial((2, 1, 1), (1, 2, 1, 1), client(2))
    yield trial((1, 2), (1, 2, 1, 1), sample(0))
    yield trial((3, 2), (1, 1, 2, 1), sample(0), sample(1))
    yield trial((2, 1, 2), (1, 1, 1, 1), client(0), sample(3))
    yield trial((3, 2, 1), (1, 1, 1, 2), sample(0, 1) | client(2))
    yield trial((1, 1, 1), (2, 1, 1, 1), client(0, 1))
    yield trial((2, 2, 1), (2, 1, 1, 1), sample(0, 2))
    yield trial((2, 1, 1), (2, 1, 1, 1), sample(0) | client(1))
    yield trial((3, 1, 1), (1, 1, 1, 1), sample(0), client(1), sample(1))
    yield trial((3, 2), (2, 1, 1, 1), sample(0), at=Position(2, 0))
    yield trial((3, 2), (1, 1, 2, 1), sample(0), at=Position(1, 2))
    yield trial((1, 2, 1), (2, 1, 1, 1), client(0), at=Position(2, 1))
    yield trial((2, 1), (2, 1, 2, 1), sample(0), at=Position(2, 2))


def further_trials(make_law: Callable[[int, int, int, int], Law]) -> Iterator[Toy]:
    """Those of the contract suite in which two numbers of the law are above 1, rounds are three, or samples two.

    And those in which more is asked at once than of the smallest: three clients or samples, or two with more steps,
    places or rounds, or during training; a second request likewise.
    """

    def trial(sizes: tuple[int, ...], law: tuple[int, int, int, int], *asked: Request, at: Position = END) -> Toy:
        return Toy(make_law(*law), federation(sizes), asked, (END,) * (len(asked) - 1) + (at,))

    yield trial((1, 1, 1), (2, 2, 1, 1), Request.of(clients=[0]))
    yield trial((2, 1, 1), (2, 2, 1, 1), Request.of(samples=[0]))
    yield trial((2, 1), (2, 1, 2, 1), Request.of(samples=[1]))
    yield trial((2, 1, 1), (2, 1, 2, 1), Request.of(clients=[2]))
    yield trial((2, 1), (1, 2, 2, 1), Request.of(samples=[1]))
    yield trial((3, 1), (1, 1, 2, 2), Request.of(samples=[0]))
    yield trial((3, 1), (2, 1, 1, 2), Request.of(samples=[2]))
    yield trial((1, 2, 1), (2, 1, 1, 2), Request.of(clients=[0]))
    yield trial((2, 2), (3, 1, 1, 1), Request.of(samples=[3]))
    yield trial((1, 1, 1), (3, 1, 1, 1), Request.of(clients=[0]))
    yield trial((3, 2), (1, 1, 1, 1), Request.of(samples=[0, 1]))
    yield trial((2, 2), (2, 1, 1, 1), Request.of(samples=[0]), Request.of(samples=[2]))
    yield trial((4, 2), (1, 1, 1, 1), Request.of(samples=[0, 1, 2]))
    yield trial((3, 2), (1, 1, 2, 1), Request.of(samples=[0, 1]))
    yield trial((1, 1, 1, 1, 1), (2, 1, 1, 1), Request.of(clients=[0, 1, 2]))
    yield trial((1, 1, 1, 1), (2, 1, 1, 1), Request.of(clients=[0]), Request.of(clients=[1]))
    yield trial((3, 2), (2, 1, 1, 1), Request.of(samples=[0, 1]), at=Position(2, 0))
    yield trial((3, 1), (1, 2, 1, 1), Request.of(samples=[0]), Request.of(samples=[1]))
    yield trial((3, 2, 1), (2, 1, 1, 1), Request.of(clients=[2], samples=[0]), at=Position(2, 0))
    yield trial((1, 1, 1, 1), (2, 2, 1, 1), Request.of(clients=[0, 1]))
    yield trial((1, 2, 2), (1, 2, 1, 1), Request.of(clients=[0]))


class Toys(Protocol):
    """Federations in some order, and how many."""

    def __iter__(self) -> Iterator[Toy]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class AllToys:
    """Every federation of which at most ``bound`` clients are left, with at most ``bound`` samples each.

    Rounds, cohort, steps and batch go from 1 to ``bound`` as well. Sizes that are left are non-increasing, so that
    relabelled federations occur once; what is requested has the lowest ids, or the highest. Smallest first; made as
    they are asked for.

    Raises:
        UsageError: the bound is 1, where nothing is left to choose, or above ``LARGEST_SWEEP``. A sweep looks at each,
            if only to say that it is too large.
    """

    bound: int
    replacement: bool
    kinds: tuple[str, ...] = ("client", "sample")

    def __post_init__(self) -> None:
        if self.bound < 2:
            raise UsageError("a sweep goes up to 2 at least: with 1 client left there is nothing to choose")
        if self.bound > LARGEST_SWEEP:
            most = len(AllToys(LARGEST_SWEEP, self.replacement, self.kinds))
            raise UsageError(
                f"a sweep goes up to {LARGEST_SWEEP} at most, not {self.bound}: it looks at each of {most:,} "
                f"federations then, for hours, and up to {LARGEST_SWEEP + 1} there are about eight times as many",
                "Prove single larger federations, by --clients, --rounds and so on.",
            )

    def __iter__(self) -> Iterator[Toy]:
        asked = sorted(self._asked(), key=lambda toy: toy[0].size)
        for rounds, cohort, steps, batch in sorted(product(range(1, self.bound + 1), repeat=4), key=prod):
            law = UniformLaw(rounds, cohort, steps, batch, self.replacement)
            for population, requests in asked:
                if batch <= _largest(population):  # of larger batches a law is the same
                    yield Toy(law, population, requests, (END,))

    def __len__(self) -> int:
        return sum(self.bound**3 * min(_largest(population), self.bound) for population, _ in self._asked())

    def _asked(self) -> Iterator[tuple[Population, tuple[Request, ...]]]:
        """Federations with their requests, without a law."""
        every = range(self.bound, 0, -1)
        left = [s for clients in range(2, self.bound + 1) for s in combinations_with_replacement(every, clients)]
        for sizes, kind in product(left, self.kinds):
            if kind != "client" and max(sizes) == 1:
                continue
            owners = sorted(set(sizes)) if kind != "client" else [None]
            erased = [(size,) for size in every] if kind != "sample" else [()]
            for own, gone in product(owners, erased):
                rest = list(sizes)
                if own is not None:
                    rest.remove(own)
                frame = Frame(() if own is None else (own + 1,), gone, tuple(rest))
                shape = Shape.of_kind(kind)
                yield from (placed(frame, [shape], place) for place in ("lowest", "highest"))


def _largest(population: Population) -> int:
    return max(map(len, population.samples.values()))
