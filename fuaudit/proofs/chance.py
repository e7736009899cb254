"""Small federations drawn by the key of an audit: sizes, ids, whose data is requested, and who was asked for before.

A list holds what its authors thought of. Batches of two clients that depend on each other where these have different
sizes, or requests of which a later one names whom an earlier one touched, stand in no short list. Here chance brings
them about, and nobody who writes a method can know which of them will be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import prod

from fuaudit.draws import END, Address, Keyed, Position, Purpose
from fuaudit.errors import FuauditError
from fuaudit.plans import Law, Population, Request
from fuaudit.plans.availability import require_room
from fuaudit.proofs.toys import Shape, Toy, federation, leaves_choice, numbers_of

MOST_LEFT, MOST_SPARE = 4, 3
"""So many clients are left at most; an owner has so many samples more than a batch at most."""

Below = Callable[[int], int]
"""A number from 0, below a bound, each as likely."""


def drawn_toys(law: Law, shapes: Sequence[Shape], key: Keyed, tries: int) -> Iterator[Toy]:
    """Federations under small laws like a given one, for a stream of requests of some shapes.

    By turns of three they are for cohorts (several clients with one sample each), for batches (as few rounds as there
    can be, and owners who differ), and for anything: one with room for everything would be too large to be walked.
    What leaves nothing to choose, does not fit its law, or came before, is left out: there are fewer than ``tries``.
    """
    laws = [small for small in law.smaller() if all(s.moment is None or s.moment < small.rounds for s in shapes)]
    if not laws:
        return
    few_rounds, few_steps = min(small.rounds for small in laws), min(small.steps * small.slots for small in laws)
    for_batches = [small for small in laws if small.rounds == few_rounds]
    for_cohorts = [small for small in laws if small.steps * small.slots == few_steps]
    moments = tuple(END if shape.moment is None else Position(shape.moment + 1, 0) for shape in shapes)
    gone, seen = sum(shape.clients for shape in shapes), set[Toy]()
    for number in range(tries):
        below, turn = _numbers(key, number), number % 3
        able = sorted((for_cohorts, for_batches, laws)[turn], key=lambda small: prod(numbers_of(small)))
        small = able[min(below(len(able)), below(len(able)))]
        clients = 2 + below((MOST_LEFT, 2, MOST_LEFT - 1)[turn]) + gone
        spare = (1, small.slots + MOST_SPARE, small.slots + 2)[turn]
        sizes = [1 + below(spare) for _ in range(clients)]
        try:
            toy = _toy(small, sizes, shapes, moments, below)
        except FuauditError:
            continue
        if toy not in seen and leaves_choice(toy.population, toy.requests):
            seen.add(toy)
            yield toy


def _toy(law: Law, sizes: list[int], shapes: Sequence[Shape], moments: tuple[Position, ...], below: Below) -> Toy:
    """One federation. FuauditError where requests of these shapes do not fit it, or its law does not."""
    for shape in shapes:  # so that there is something to take away
        for wanted in shape.samples:
            sizes[below(len(sizes))] += wanted
    population = federation(tuple(sizes))
    require_room(law, population)
    return Toy(law, population, _requests(shapes, population, below), moments)


def _numbers(key: Keyed, number: int) -> Below:
    """The numbers behind one federation, one after another."""
    at, index = Address(Purpose.AUDIT, number), count()
    return lambda bound: key.integer(at, next(index), bound)


def _requests(shapes: Sequence[Shape], population: Population, below: Below) -> tuple[Request, ...]:
    """Requests of some shapes, one after another. FuauditError where too few are left."""
    left, touched, requests = population, set[int](), list[Request]()
    for shape in shapes:
        clients = _some(list(left.clients), shape.clients, touched, below)
        others = [client for client in left.clients if client not in clients]
        samples = list[int]()
        for wanted in shape.samples:
            able = [client for client in others if len(left.samples[client]) >= wanted]
            owner = _some(able, 1, touched, below)[0]
            others.remove(owner)
            touched.add(owner)
            samples += _some(list(left.samples[owner]), wanted, set(), below)
        requests.append(Request.of(clients, samples))
        left = left.without(requests[-1])
    return tuple(requests)


def _some(among: list[int], wanted: int, touched: set[int], below: Below) -> list[int]:
    """Some of a list; in half of all cases of those whom an earlier request touched, as far as there are such."""
    chosen = list[int]()
    for _ in range(wanted):
        again = [one for one in among if one in touched and one not in chosen]
        able = again if again and below(2) else [one for one in among if one not in chosen]
        if not able:
            raise FuauditError("too few are left")
        chosen.append(able[below(len(able))])
    return chosen
