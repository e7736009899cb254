"""All outcomes of all draws, with exact weights: the oracle behind every proof of exactness.

A procedure that takes its randomness from an :class:`Enumeration` is run once for every path through its
tree of draws. Branching is lazy: a draw that the procedure never looks at is not branched. The numbers of an initial
model are enumerated as one bit, which stands for any set of initial models of probability 1/2. Other draws that cannot
be enumerated (continuous ones) are symbolic tokens: two tokens are equal iff they are the same draw.

A procedure may come in parts (:class:`Then`). Paths that part in a later one have the earlier ones in common, and these
are run once for all of them. The paths, their order, their weights and their number are those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, permutations, product
from math import comb, inf, perm, prod
from typing import Any, NamedTuple, TypeVar

from fuaudit.draws.address import Address, Purpose
from fuaudit.draws.asked import for_independent, for_permutation, for_sequence, for_subset, for_weighted
from fuaudit.draws.keyed import Keyed
from fuaudit.draws.protocol import Draws
from fuaudit.errors import BudgetError, KeyReuseError

Result = TypeVar("Result")
Distinct = TypeVar("Distinct", bound=Hashable)
Outcomes = Sequence[tuple[tuple[int, ...], Fraction]]


@dataclass(frozen=True)
class Token:
    """A continuous draw, known only by its name: fresh, and equal to itself alone."""

    key: str
    at: Address


class Then(NamedTuple):
    """What a part of a procedure gives that is not the last one: the next part.

    A part may depend on nothing but what earlier parts gave it, and the draws that it asks for.
    """

    part: Callable[[Enumeration], Any]


class Ends(NamedTuple):
    """What a last part can give instead of its result: that of every path from there on, in their order.

    Each has the probability of the draws from there on, as numerator and denominator. None of these is on the tape.
    """

    ends: Iterable[tuple[Any, tuple[int, int]]]


class Heard(NamedTuple):
    """One draw that was asked for: under which key, at which address, what, out of which outcomes, and its answer."""

    key: str
    at: Address
    question: Hashable
    outcomes: Callable[[], Outcomes]
    answer: tuple[int, ...]


LISTED = 2**22
"""The most outcomes of one draw: they are listed before one of them is taken."""

BIT: Outcomes = [((0,), Fraction(1, 2)), ((1,), Fraction(1, 2))]
"""The outcomes of an initial draw."""

_kept = lru_cache(maxsize=1024)
"""The same few questions are asked on every path."""


def _require_few(outcomes: int) -> None:
    if outcomes > LISTED:
        raise BudgetError(f"a draw has more than {LISTED:,} outcomes", "Choose a smaller federation.")


def _ways(count: Callable[[int, int], int], size: int, chosen: int) -> int:
    """How many outcomes a draw has; of larger ones at least so many, for nobody waits for their number."""
    return max(count(min(size, 64), min(chosen, 32)), size if chosen else 1)


@_kept
def _sequences(population: tuple[int, ...], count: int) -> Outcomes:
    _require_few(len(population) ** min(count, 64))
    weight = Fraction(1, len(population) ** count)
    return [(outcome, weight) for outcome in product(population, repeat=count)]


@_kept
def _subsets(population: tuple[int, ...], count: int) -> Outcomes:
    _require_few(_ways(comb, len(population), min(count, len(population) - count)))
    outcomes = list(combinations(population, count))
    weight = Fraction(1, len(outcomes))
    return [(outcome, weight) for outcome in outcomes]


@_kept
def _weighted(population: tuple[int, ...], weights: tuple[int, ...], count: int) -> Outcomes:
    _require_few(_ways(perm, len(population), count))
    weight = dict(zip(population, weights, strict=True))
    total = sum(weights)
    outcomes = []
    for drawn in permutations([member for member in population if weight[member]], count):
        left, probability = total, Fraction(1)
        for member in drawn:
            probability *= Fraction(weight[member], left)
            left -= weight[member]
        outcomes.append((drawn, probability))
    return outcomes


@_kept
def _independent(population: tuple[int, ...], probability: Fraction) -> Outcomes:
    _require_few(2 ** min(len(population), 64))
    outcomes = []
    for count in range(len(population) + 1):
        weight = probability**count * (1 - probability) ** (len(population) - count)
        outcomes += [(outcome, weight) for outcome in combinations(population, count) if weight]
    return outcomes


class Enumeration:
    """One path through the tree of draws: choices on the tape are replayed, later draws take their first outcome.

    Attributes:
        alone: whether no other path follows, so that a procedure gains nothing by coming in parts.

    Raises:
        KeyReuseError: one key and address are asked for draws over different populations.
    """

    def __init__(self, tape: list[tuple[int, Outcomes]], alone: bool = False) -> None:
        self.tape, self.alone = tape, alone
        self._asked: dict[tuple[str, Address], tuple[Hashable, tuple[int, ...]]] = {}
        self._broken: KeyReuseError | BudgetError | None = None
        self._heard: list[Heard] | None = None

    @property
    def drawn(self) -> int:
        """How many draws were made on this path: a draw that is asked for again is none."""
        return len(self._asked)

    def back_to(self, drawn: int) -> None:
        """Forget all draws but the first ones, so many: the path goes on from there."""
        while len(self._asked) > drawn:
            self._asked.popitem()

    def hear(self, ask: Callable[[], Result]) -> tuple[Result, list[Heard]]:
        """What is asked gives, and all draws that it asked for, in order."""
        outer, self._heard = self._heard, (heard := list[Heard]())
        try:
            return ask(), heard
        finally:
            self._heard = outer
            if outer is not None:
                outer += heard

    def whole(self, procedure: Callable[[Enumeration], Any]) -> Any:
        """What a procedure gives on this path, all parts of it."""
        found = self.result(procedure)
        while type(found) is Then:
            found = self.result(found.part)
        return found

    def result(self, procedure: Callable[[Enumeration], Result]) -> Result:
        """What the procedure, or one part of it, gives on this path.

        Raises:
            KeyReuseError, BudgetError: a key was used again, or one draw has too many outcomes to be listed, whoever
                caught it. In a run nothing is raised there. Who could catch it in a proof would know where he is.
        """
        found = procedure(self)
        if self._broken is not None:
            raise self._broken
        return found

    def source(self, key: str) -> _Source:
        """The draws under one symbolic key. Sources with the same name are the same source."""
        return _Source(self, key)

    def told(self, round_number: int) -> list[tuple[str, Address, Hashable, tuple[int, ...]]]:
        """The draws of a round that were asked for on this path: keys, addresses, questions and answers."""
        return [(key, at, *known) for (key, at), known in self._asked.items() if at.round == round_number]

    def looked_at(self, purpose: Purpose) -> bool:
        """Whether any draw of a purpose was asked for on this path."""
        return any(at.purpose == purpose for _, at in self._asked)

    def members(self, population: Sequence[int]) -> tuple[int, ...]:
        """What is drawn from, in a tuple. BudgetError where they are too many to be listed."""
        try:
            _require_few(len(population))
        except BudgetError as error:
            self._broken = error
            raise
        return tuple(population)

    def draw(self, key: str, at: Address, question: Hashable, outcomes: Callable[[], Outcomes]) -> tuple[int, ...]:
        """The outcome of one draw on this path; branches when the draw is new on it."""
        known = self._asked.get((key, at))
        if known is None:
            place = len(self._asked)
            if place == len(self.tape):
                try:
                    self.tape.append((0, outcomes()))
                except BudgetError as error:
                    self._broken = error
                    raise
            choice, options = self.tape[place]
            known = self._asked[key, at] = question, options[choice][0]
        elif known[0] != question:
            self._broken = KeyReuseError(
                f"key {key!r} was asked twice at {at}, over different populations",
                "Both answers would come from one random number. Use the fresh key, or a new population version.",
            )
            raise self._broken
        if self._heard is not None:
            self._heard.append(Heard(key, at, question, outcomes, known[1]))
        return known[1]


@dataclass(frozen=True)
class _Source(Draws):
    """The draws of one key within an enumeration."""

    enumeration: Enumeration
    key: str

    def sequence(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        members = self.enumeration.members(for_sequence(population, count))
        return self.enumeration.draw(self.key, at, ("sequence", members, count), lambda: _sequences(members, count))

    def subset(self, at: Address, population: Sequence[int], count: int) -> tuple[int, ...]:
        members = self.enumeration.members(for_subset(population, count))
        return self.enumeration.draw(self.key, at, ("subset", members, count), lambda: _subsets(members, count))

    def weighted(self, at: Address, population: Sequence[int], weights: Sequence[int], count: int) -> tuple[int, ...]:
        among, sizes = for_weighted(population, weights, count)
        members = self.enumeration.members(among)
        return self.enumeration.draw(
            self.key,
            at,
            ("weighted", members, sizes, count),
            lambda: _weighted(members, sizes, count),
        )

    def independent(self, at: Address, population: Sequence[int], probability: Fraction) -> tuple[int, ...]:
        among, _ = for_independent(population, probability)
        members = self.enumeration.members(among)
        question = ("independent", members, probability)
        return self.enumeration.draw(self.key, at, question, lambda: _independent(members, probability))

    def permutation(self, at: Address, population: Sequence[int]) -> tuple[int, ...]:
        members = self.enumeration.members(for_permutation(population))
        return self.enumeration.draw(
            self.key,
            at,
            ("permutation", members),
            lambda: _weighted(members, (1,) * len(members), len(members)),
        )

    def uniform(self, at: Address, count: int) -> Token | tuple[int, ...]:
        if at.purpose == Purpose.INIT:
            return self.enumeration.draw(self.key, at, "uniform", lambda: BIT)
        return Token(self.key, at)


def _advance(tape: list[tuple[int, Outcomes]]) -> bool:
    """Turn the tape to the next path, deepest draw first; False when all paths were walked."""
    while tape:
        choice, outcomes = tape.pop()
        if choice + 1 < len(outcomes):
            tape.append((choice + 1, outcomes))
            return True
    return False


def paths(procedure: Callable[[Enumeration], Any], budget: int) -> Iterator[tuple[Any, Fraction]]:
    """Run ``procedure`` on every path: yields its result and the exact probability of the path.

    Raises:
        BudgetError: there are more than ``budget`` paths (leaves).
    """
    return ((found, Fraction(*weight)) for found, weight in walk(procedure, budget))


def walk(procedure: Callable[[Enumeration], Any], budget: int) -> Iterator[tuple[Any, tuple[int, int]]]:
    """:func:`paths`, with probabilities as numerators and denominators, which may have divisors in common."""
    tape: list[tuple[int, Outcomes]] = []
    weights = [(1, 1)]  # weights[i] is the probability of the first i choices on the tape
    parts = [(procedure, 0)]  # parts of this path, each with the number of draws that were made before it
    draws, leaves = Enumeration(tape), 0
    while True:
        _require_within(budget, leaves)
        found = draws.result(parts[-1][0])
        while type(found) is Then:
            parts.append((found.part, draws.drawn))
            found = draws.result(found.part)
        for choice, outcomes in tape[len(weights) - 1 :]:
            (over, under), chance = weights[-1], outcomes[choice][1]
            weights.append((over * chance.numerator, under * chance.denominator))
        over, under = weights[-1]
        for result, (more, of) in found.ends if type(found) is Ends else ((found, (1, 1)),):
            _require_within(budget, leaves)
            leaves += 1
            yield result, (over * more, under * of)
        if not _advance(tape):
            return
        del weights[len(tape) :]
        while parts[-1][1] >= len(tape):  # it comes behind the draw that is made otherwise
            parts.pop()
        if len(parts) > 1:
            draws.back_to(parts[-1][1])
        else:
            draws = Enumeration(tape)


def _require_within(budget: int, leaves: int) -> None:
    if leaves >= budget:
        raise BudgetError(
            f"the enumeration has more than {budget:,} leaves",
            "Choose a smaller federation, or raise the budget of leaves.",
        )


def enumerate_law(procedure: Callable[[Enumeration], Any], budget: int = 1_000_000) -> dict[Any, Fraction]:
    """The exact law of the result of ``procedure``: result -> probability, summing to 1.

    Raises:
        BudgetError: more than ``budget`` leaves.
        KeyReuseError: the procedure uses one key and address for two populations.
    """
    return counted_law(procedure, budget)[0]


def counted_law(procedure: Callable[[Enumeration], Any], budget: int) -> tuple[dict[Any, Fraction], int]:
    """:func:`enumerate_law`, and how many paths were walked."""
    # numerators by denominator: adding integers is many times cheaper than adding fractions
    sums: dict[Any, dict[int, int]] = {}
    leaves = 0
    for result, (over, under) in walk(procedure, budget):
        leaves += 1
        parts = sums.setdefault(result, {})
        parts[under] = parts.get(under, 0) + over
    return {result: _sum(parts) for result, parts in sums.items()}, leaves


def _sum(parts: dict[int, int]) -> Fraction:
    """The sum of fractions, from their numerators by denominator; most have one."""
    first, *others = parts.items()
    total = _fraction(first[1], first[0])
    return sum((_fraction(over, under) for under, over in others), start=total) if others else total


_fraction = lru_cache(maxsize=4096)(Fraction)


def estimate_leaves(procedure: Callable[[Enumeration], object], probes: int = 32, most: float = inf) -> float:
    """An estimate of the number of leaves, before walking them; once it is sure to be above ``most``, it stops there.

    Knuth, "Estimating the efficiency of backtrack programs" (Math. Comp. 1975): along a path of uniform random
    choices the product of the branching degrees has the number of leaves as its mean. The probes are drawn
    from a fixed key, so the estimate is reproducible.
    """
    total = 0.0
    for probe in range(probes):
        total += probed(procedure, probe)
        if total > most * probes:
            break
    return total / probes


def probed(procedure: Callable[[Enumeration], object], probe: int) -> int:
    """The product of the branching degrees along one path of random choices, that of this number from 0."""
    tape = _ProbingTape(probe)
    Enumeration(tape, alone=True).whole(procedure)
    return prod(len(outcomes) for _, outcomes in tape)


_PROBES = Keyed(b"fuaudit: probes of tree size  v1")


@lru_cache(maxsize=1 << 16)
def _choice(probe: int, place: int, outcomes: int) -> int:
    """What a probe chooses at a place on its tape: the same whoever asks."""
    return _PROBES.integer(Address(Purpose.AUDIT, round=probe), place, outcomes)


class _ProbingTape(list[tuple[int, Outcomes]]):
    """A tape whose new draws take a random outcome instead of the first one."""

    def __init__(self, probe: int) -> None:
        super().__init__()
        self._probe = probe

    def append(self, item: tuple[int, Outcomes]) -> None:
        super().append((_choice(self._probe, len(self), len(item[1])), item[1]))
