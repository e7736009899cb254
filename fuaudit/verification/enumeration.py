"""Level 4: proof on small federations shaped like the run that the rewritten plan has the law of retraining."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import combinations_with_replacement, groupby, product
from math import comb, prod
from typing import Any, Protocol

from fuaudit.draws import END, Draws, Position
from fuaudit.errors import BudgetError, FuauditError, UsageError
from fuaudit.plans import Law, Plan, Population, Request, UniformLaw
from fuaudit.plans.proof import Exactness, estimated_leaves, exactness
from fuaudit.verification.case import Case
from fuaudit.verification.finding import NO_REQUEST, NON_ADAPTIVE, Finding, Subject, Verdict

LONGEST = 3
"""Streams of more requests are too large to enumerate; the latest ones stand for them."""

SHOWS_NOT = (
    "It does not cover federations of other sizes by itself, requests that depend on the draws, bookkeeping "
    "(segments, keys, ledger), timing, or the pair of old and new model."
)


@dataclass(frozen=True)
class Toy:
    """One small federation with its requests."""

    law: Law
    population: Population
    requests: tuple[Request, ...]

    def __str__(self) -> str:
        sizes = "+".join(str(len(self.population.samples[c])) for c in self.population.clients)
        law: Any = self.law
        asked = "; ".join(map(str, self.requests))
        drawn = (
            f"{law.rounds} rounds, cohort {law.cohort_size}, {law.steps} steps, batch {law.batch_size}"
            if isinstance(law, UniformLaw)
            else f"{law}"
        )
        return f"{len(self.population.clients)} clients with {sizes} samples, {drawn}; forget {asked}"


def federation(sizes: tuple[int, ...]) -> Population:
    """Clients 0, 1, ... with so many samples each, numbered through."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return Population({c: tuple(range(end - size, end)) for c, (size, end) in enumerate(zip(sizes, ends, strict=True))})


@dataclass(frozen=True)
class Succession:
    """A rewriter made of several: each carries out the request of its place, the last one all that follow."""

    steps: tuple[Any, ...]

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, executed: Position) -> Plan:
        """What the unlearner of this request's place makes of the plan."""
        step = min(len(plan.populations) - 1, len(self.steps) - 1)
        rewritten: Plan = self.steps[step].rewrite(plan, request, fresh, executed)
        return rewritten


def requests_in_turn(kinds: tuple[str, ...], population: Population) -> tuple[Request, ...]:
    """Requests of given kinds one after another: samples from the first ids on, clients from the last one back."""
    samples = [s for c in population.clients for s in population.samples[c]]
    return tuple(
        Request.of(
            clients=[population.clients[-1 - place]] if kind != "sample" else [],
            samples=[samples[place]] if kind != "client" else [],
        )
        for place, kind in enumerate(kinds)
    )


def requests_of(kind: str, population: Population, number: int) -> tuple[Request, ...]:
    """``number`` requests of a kind, one after another: ``client`` 0, 1, ...; samples 0, 1, ...; or both at once."""
    samples = [s for c in population.clients for s in population.samples[c]]
    last = population.clients[-1]
    if kind == "client":
        return tuple(Request.of(clients=[population.clients[i]]) for i in range(number))
    if kind == "sample":
        return tuple(Request.of(samples=[samples[i]]) for i in range(number))
    return tuple(Request.of(clients=[last - i], samples=[samples[i]]) for i in range(number))


def toys_like(law: Law, kinds: tuple[str, ...], at_most: int = 3) -> Iterator[Toy]:
    """Small federations with every parameter from 1 up to that of the run, at most ``at_most``, smallest first.

    ``kinds`` are those of the requests, in order.

    A law that is not uniform says by ``smaller()`` what small laws are like it; without that, it has no toys.
    """
    small = [
        (law_like, population)
        for law_like in law.smaller()
        for population in map(federation, ((2, 2), (3, 1), (2, 1, 1), (3, 3), (2, 2, 2)))
        if len(population.clients) <= at_most
    ]
    for toy, population in sorted(small, key=_size_of_toy):
        try:
            same = len(set(kinds)) == 1
            requests = requests_of(kinds[0], population, len(kinds)) if same else requests_in_turn(kinds, population)
            reduce(Population.without, requests, population)
        except (FuauditError, IndexError):
            continue
        yield Toy(toy, population, requests)


def _size_of_toy(toy: tuple[Any, Population]) -> tuple[object, ...]:
    law, population = toy
    sizes = tuple(len(population.samples[client]) for client in population.clients)
    numbers = (law.rounds, law.places(population), law.steps, law.slots)
    return prod(numbers), len(sizes), sum(sizes), numbers, sizes


class Toys(Protocol):
    """Federations in some order, and how many."""

    def __iter__(self) -> Iterator[Toy]: ...
    def __len__(self) -> int: ...


LARGEST_SWEEP = 5
"""The highest bound of a sweep: see :class:`AllToys`."""


@dataclass(frozen=True)
class AllToys:
    """Every federation with all parameters from 1 to ``bound``, for one client and for one sample; smallest first.

    Clients come with ``bound`` samples, or fewer: sizes are non-increasing, so that relabelled ones occur once.
    They are made as they are asked for.

    Raises:
        UsageError: the bound is above ``LARGEST_SWEEP``. A sweep looks at each, if only to say that it is too large.
    """

    bound: int
    replacement: bool

    def __post_init__(self) -> None:
        if self.bound > LARGEST_SWEEP:
            most = len(AllToys(LARGEST_SWEEP, self.replacement))
            raise UsageError(
                f"a sweep goes up to {LARGEST_SWEEP} at most, not {self.bound}: it looks at each of {most} federations "
                f"then, for hours, and up to {LARGEST_SWEEP + 1} there are about eight times as many",
                "Prove single larger federations, by --clients, --rounds and so on.",
            )

    def __iter__(self) -> Iterator[Toy]:
        every = range(1, self.bound + 1)
        sizes = [s for clients in every for s in combinations_with_replacement(reversed(every), clients)]
        populations = [(population, max(s)) for s, population in zip(sizes, map(federation, sizes), strict=True)]
        populations.sort(key=lambda pair: pair[0].size)
        laws = sorted(product(every, repeat=4), key=prod)
        for (_, alike), (_, members) in product(
            [(work, list(group)) for work, group in groupby(laws, prod)],
            [(size, list(group)) for size, group in groupby(populations, lambda pair: pair[0].size)],
        ):
            for (population, largest), (rounds, cohort, steps, batch) in product(members, alike):
                if batch <= largest:  # of larger batches a law is the same
                    law = UniformLaw(rounds, cohort, steps, batch, self.replacement)
                    yield from (Toy(law, population, requests_of(kind, population, 1)) for kind in _kinds(population))

    def __len__(self) -> int:
        every = range(1, self.bound + 1)
        # so many multisets of sizes have this number of clients and this largest size
        populations = {(c, m): comb(m + c - 2, c - 1) for c, m in product(every, every)}
        return sum(
            count * self.bound**3 * largest * ((clients > 1) + (clients > 1 or largest > 1))
            for (clients, largest), count in populations.items()
        )


def _kinds(population: Population) -> tuple[str, ...]:
    """The kinds of request that leave something of a population."""
    left = {"client": len(population.clients) - 1, "sample": population.size - 1}
    return tuple(kind for kind, many in left.items() if many)


@dataclass(frozen=True)
class Sweep:
    """What a sweep over small federations gave."""

    proved: tuple[Toy, ...]
    refuted: tuple[tuple[Toy, Exactness], ...]
    too_large: int
    leaves: int

    def __add__(self, other: Sweep) -> Sweep:
        return Sweep(
            self.proved + other.proved,
            self.refuted + other.refuted,
            self.too_large + other.too_large,
            self.leaves + other.leaves,
        )

    @property
    def smallest(self) -> tuple[Toy, Exactness] | None:
        """The first refutation; sweeps go from small to large."""
        return self.refuted[0] if self.refuted else None


def sweep(unlearner: Any, toys: Toys, leaves: int, progress: Any = None, moment: Position = END) -> Sweep:
    """Prove or refute exactness on each federation whose estimated leaves fit into what is left of the budget.

    Requests come when everything before ``moment`` is executed; by default, when training is over.

    Raises:
        PluginError, KeyReuseError: the unlearner failed on one of them.
    """
    proved, refuted, too_large, left = [], [], 0, leaves
    for number, toy in enumerate(toys, 1):
        try:
            if left < 1 or estimated_leaves(unlearner, toy.law, toy.population, toy.requests) > left:
                raise BudgetError("too large for what is left")
            result = exactness(unlearner, toy.law, toy.population, toy.requests, [moment] * len(toy.requests), left)
            left -= result.leaves
        except BudgetError:
            too_large += 1
            continue
        finally:
            if progress:
                progress("small federations", number, len(toys))
        if result.exact:
            proved.append(toy)
        else:
            refuted.append((toy, result))
    return Sweep(tuple(proved), tuple(refuted), too_large, leaves - left)


@dataclass(frozen=True)
class Enumeration:
    """Sweeps small federations with the kinds of request of the run, within a budget of ``leaves``."""

    leaves: int = 50_000

    def examine(self, case: Case) -> Finding:
        """PASS when all federations within the budget are proved; FAIL with the smallest witness when one is not."""
        if case.request is None or case.is_editor:
            reason = NO_REQUEST if case.request is None else "An editor has no plan whose law could be compared."
            return Finding("enumeration", Subject.ALGORITHM, Verdict.NOT_APPLICABLE, reason, SHOWS_NOT)
        law = case.run.plan.law
        name = " then ".join(case.step_names)
        steps = case.steps
        alone = dict.fromkeys(steps)  # every method of the lineage with its kind of request, once
        tasks = [(unlearner, (kind,) * number) for unlearner, kind in alone for number in (1, 2)]
        if len(steps) > 1:
            latest = steps[-LONGEST:]
            tasks.append((Succession(tuple(u for u, _ in latest)), tuple(k for _, k in latest)))
        share = self.leaves // (len(tasks) + case.stopped)
        found = Sweep((), (), 0, 0)
        for unlearner, kinds in tasks:
            found += sweep(unlearner, list(toys_like(law, kinds)), share, case.progress)
        if case.stopped:  # the request came during training: then as here, after the first of two rounds
            toys = [toy for toy in toys_like(law, (steps[-1][1],)) if toy.law.rounds > 1]
            found += sweep(steps[-1][0], toys, share, case.progress, Position(2, 0))
        statistic: dict[str, Any] = {
            "proved": len(found.proved),
            "refuted": len(found.refuted),
            "too_large": found.too_large,
            "leaves": found.leaves,
            "law": law.name,
        }
        assumptions = (NON_ADAPTIVE,)
        if found.smallest:
            toy, result = found.smallest
            witness = result.witness
            assert witness is not None
            statistic |= {"total_variation": str(result.total_variation)}
            return Finding(
                "enumeration",
                Subject.ALGORITHM,
                Verdict.FAIL,
                f"{name} is not exact: on a small federation the law is {result.total_variation} away from retraining.",
                SHOWS_NOT,
                statistic,
                assumptions=assumptions,
                details=(
                    f"smallest federation: {toy}",
                    f"witness: the history {witness.history} has probability {witness.unlearned} after unlearning "
                    f"and {witness.retrained} after retraining",
                ),
            )
        if not found.proved:
            return Finding(
                "enumeration",
                Subject.ALGORITHM,
                Verdict.INCONCLUSIVE,
                f"No small federation of the law {law.name!r} could be enumerated.",
                SHOWS_NOT,
                statistic,
                assumptions=assumptions,
            )
        return Finding(
            "enumeration",
            Subject.ALGORITHM,
            Verdict.PASS,
            f"On {len(found.proved)} small federations the plan has exactly the law of retraining (total variation 0).",
            SHOWS_NOT,
            statistic | {"total_variation": "0"},
            assumptions=assumptions,
            details=tuple(f"proved: {toy}" for toy in found.proved),
        )
