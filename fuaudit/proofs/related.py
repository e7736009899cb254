"""Small federations in which clients differ, and in which a request names whom an earlier one touched, or did not.

What the federations of :func:`fuaudit.proofs.toys.frames` have no room for, each in the smallest form: two clients of
unequal sizes whose batches both vary; three clients whose batches vary; two samples more than a batch of two, so that
sets can differ in both (of one sample more, any run of neighbours is a uniform set); two clients more than a cohort of
two; an erased client who had a choice of batches herself; a later request for samples of another owner; a client who
leaves after samples of hers did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from operator import sub
from typing import NamedTuple

from fuaudit.draws import END, Position
from fuaudit.errors import FuauditError
from fuaudit.plans import Law, Population, Request
from fuaudit.plans.availability import require_room
from fuaudit.proofs.toys import Shape, Toy, leaves_choice, numbers_of


class Relation(NamedTuple):
    """Who is left, with so many samples, and whom requests name.

    Attributes:
        left: sizes when all requests are carried out.
        gone: the size of an erased client when she leaves.
        others: whether each request for samples names other owners than the one before.
        hers: whether requests for samples name clients who leave later on, as far as there are such.
    """

    left: tuple[int, ...]
    gone: int
    others: bool
    hers: bool


def related_toys(law: Law, shapes: Sequence[Shape]) -> Iterator[Toy]:
    """Federations for a stream of requests of some shapes, under small laws like a given one, the smallest first.

    Of rounds, places and steps one at most is two, counted from the smallest that there is with batches of one, and
    with batches of two. A law that has no room for a federation, such as permuted epochs, goes without it.
    """
    laws = [small for small in law.smaller() if all(s.moment is None or s.moment < small.rounds for s in shapes)]
    moments = tuple(END if shape.moment is None else Position(shape.moment + 1, 0) for shape in shapes)

    few = [small for batch in (1, 2) for small in _few([one for one in laws if one.slots == batch])]
    for small in sorted(few, key=lambda one: prod(numbers_of(one))):
        for relation, highest in product(_relations(shapes, small), (False, True)):
            try:
                population, requests = _related(relation, shapes, highest=highest)
                require_room(small, population)
                if leaves_choice(population, requests):
                    yield Toy(small, population, requests, moments)
            except FuauditError:
                continue


def _few(laws: Sequence[Law]) -> list[Law]:
    """Of laws with batches of one size those with the smallest numbers there are, but for one that is the next."""
    least = [min(numbers) for numbers in zip(*map(numbers_of, laws), strict=True)]
    return [small for small in laws if sum(map(sub, numbers_of(small), least)) < 2]


def _relations(shapes: Sequence[Shape], law: Law) -> Iterator[Relation]:
    """What is asked for under one law, the smallest first."""
    _, places, _, batch = numbers_of(law)
    sampled = [bool(shape.samples) for shape in shapes]
    leaves_later = any(shape.clients and any(sampled[:number]) for number, shape in enumerate(shapes))
    sizes = [(2, 3), (2, 2), (2, 2, 2)] if batch == 1 else [(batch + 2, 1)]
    sizes += [(1,) * (places + 2)] * (batch == 1 and places > 1)
    yield from (
        Relation(*one)
        for one in product(
            sizes,
            (1, 2)[: 1 + any(shape.clients for shape in shapes)],
            (False, True)[: 1 + (sum(sampled) > 1)],
            (False, True)[: 1 + leaves_later],
        )
    )


def _related(relation: Relation, shapes: Sequence[Shape], *, highest: bool) -> tuple[Population, tuple[Request, ...]]:
    """A federation and requests of some shapes. FuauditError where a request needs more owners than are left.

    Those who leave, and samples that are taken, have the lowest ids, or the highest.
    """
    leaving = list(range(sum(shape.clients for shape in shapes)))
    staying = [len(leaving) + number for number in range(len(relation.left))]
    sizes = [relation.gone] * len(leaving) + [*relation.left]
    taken, requests, turn = [0] * len(sizes), list[tuple[list[int], list[tuple[int, int]]]](), 0
    for shape in shapes:
        erased, leaving = leaving[: shape.clients], leaving[shape.clients :]
        able = leaving if relation.hers and len(leaving) >= len(shape.samples) else staying
        if len(able) < len(shape.samples):
            raise FuauditError("too few owners are left")
        samples = list[tuple[int, int]]()
        for number, count in enumerate(shape.samples):
            owner = able[(turn + number) % len(able)]
            samples += [(owner, taken[owner] + place) for place in range(count)]
            taken[owner] += count
        turn += relation.others and bool(shape.samples)
        requests.append((erased, samples))
    return _numbered([size + more for size, more in zip(sizes, taken, strict=True)], requests, highest)


def _numbered(
    sizes: Sequence[int], asked: Sequence[tuple[list[int], list[tuple[int, int]]]], highest: bool
) -> tuple[Population, tuple[Request, ...]]:
    """Ids given out: ``asked`` has clients by their places, and samples by client and place."""
    order = [*range(len(sizes))][:: -1 if highest else 1]
    client = {place: number for number, place in enumerate(order)}
    first: dict[int, int] = {
        place: sum([sizes[other] for other in order[:number]]) for number, place in enumerate(order)
    }

    def sample(place: int, number: int) -> int:
        return first[place] + (sizes[place] - 1 - number if highest else number)

    held = {client[place]: tuple(range(first[place], first[place] + sizes[place])) for place in order}
    requests = (Request.of((client[c] for c in erased), (sample(*one) for one in samples)) for erased, samples in asked)
    return Population(held), tuple(requests)
