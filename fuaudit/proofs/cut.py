"""Small federations whose batches are cut at the rate of the run: several rounds, steps and places in few outcomes.

At its own rate each sample doubles what can come out of a batch, so in the lists of :mod:`fuaudit.proofs.toys` laws of
two rounds or steps are walked with rate 1, where all samples are included and nobody can be wrong in who was. Here one
owner has just so many samples that a batch of hers can be cut, and there is nobody else, or one with a single sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from fuaudit.draws import END, Position
from fuaudit.errors import FuauditError
from fuaudit.plans import AvailabilityLaw, Law
from fuaudit.plans.availability import PoissonBatches
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.proofs.toys import PLACES, Frame, Shape, Toy, placed
from fuaudit.text import counted

LARGEST = 2
"""Rounds, steps and places of a batch go up to it, and two of them at once."""


def rate_of(law: Law) -> Fraction:
    """The chance by which a law of fuaudit's includes a sample in a batch; 1 where it draws otherwise."""
    if type(law) is AvailabilityLaw and type(law.batches) is PoissonBatches and not is_foreign(law):
        return law.batches.rate
    return Fraction(1)


def cut_toys(law: Law, shapes: Sequence[Shape]) -> Iterator[Toy]:
    """Federations for a stream of requests of some shapes, the smallest first; none where no samples are asked for."""
    rate = rate_of(law)
    if rate == 1 or not any(shape.samples for shape in shapes):
        return
    moments = tuple(END if shape.moment is None else Position(shape.moment + 1, 0) for shape in shapes)

    def size(one: Law) -> int:
        return one.rounds * one.steps * one.slots

    few = [
        small
        for small in law.smaller()
        if rate_of(small) == rate
        and max(numbers := (small.rounds, small.steps, small.slots)) <= LARGEST
        and sum(number > 1 for number in numbers) <= 2
        and all(shape.moment is None or shape.moment < small.rounds for shape in shapes)
    ]
    owners = max(len(shape.samples) for shape in shapes)
    taken = [sum(shape.samples[at] for shape in shapes if at < len(shape.samples)) for at in range(owners)]
    gone = (1,) * sum(shape.clients for shape in shapes)
    for small in sorted(few, key=size):
        for rest in ((), (1,))[: 1 if size(small) > LARGEST else 2]:
            frame = Frame(tuple(count + (small.slots if not at else 1) for at, count in enumerate(taken)), gone, rest)
            for place in PLACES[:: 2 if rest else 3]:
                try:
                    yield Toy(small, *placed(frame, shapes, place), moments)
                except FuauditError:
                    continue


def at_own_rate(law: Law, proved: Iterable[Toy]) -> tuple[str, ...]:
    """In sentences: how far federations go in which batches have the rate of the run; none where all have."""
    rate = rate_of(law)
    asked = [toy for toy in proved if any(request.samples for request in toy.requests)]
    own = [toy.law for toy in asked if rate_of(toy.law) == rate]
    if rate == 1 or not asked:
        return ()
    others = "In all others every sample is included, with rate 1."
    if not own:
        return "In none have batches the rate of the run.", others
    most = [max(column) for column in zip(*((one.rounds, one.steps, one.slots) for one in own), strict=True)]
    far = f"{counted(most[0], 'round')}, {counted(most[1], 'step')}, batches of {most[2]}"
    return f"In {len(own):,} of those for samples batches have the rate of the run (at most {far}).", others
