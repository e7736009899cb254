"""Numbers read off plans: what level 5 compares with the law of retraining.

All of them are functions of the retained history alone. So their laws under exactness are known, whoever wrote the
rewriter. Where a plan was cut is no such function, and exactness says nothing about it.

:func:`of_history` reads one plan drawn in full, and is the specification. :func:`score` reads many plans at once, and
draws only what the numbers need. A test compares the two, number for number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.declared import says
from fuaudit.errors import UsageError
from fuaudit.plans import Population, Request, UniformLaw, exact_laws
from fuaudit.plans.exact_laws import Categories, Number, counting, quarters
from fuaudit.plans.expanded import NONE
from fuaudit.plans.stacked import PLACES, Stack, isin

Ids = NDArray[np.int64]
NOTHING = -1
"""No sample is looked at: the client has none left."""

NUMBERS = ("target", "participations", "first round", "repeats", "memberships")
"""The columns of :func:`score`."""


@dataclass(frozen=True)
class Probe:
    """Where to look: at the erased ``target``, and at one retained ``client`` and one ``sample`` of it.

    They are fixed by the request alone, before anything is drawn: see :meth:`of`.
    """

    target: Request
    client: int
    sample: int

    @classmethod
    def of(cls, population: Population, request: Request, earlier: Request | None = None) -> Probe:
        """The retained client and sample next to what is erased, where a slip of one id would show.

        - The client is the owner of the first erased sample, if it is retained: its participations betray a cohort
          that was drawn anew. Else it is the client after the first erased one.
        - The sample of such an owner is the one after the first erased sample. Else it is the client's first.

        Args:
            population: before the request.
            request: the last one.
            earlier: what earlier requests have erased; part of the target.
        """
        retained = population.without(request)
        owners = [population.owner[s] for s in request.samples if population.owner[s] in retained.samples]
        erased = (
            owners[0] if owners else request.clients[0] if request.clients else population.owner[request.samples[0]]
        )
        client = erased if owners else _after(retained.clients, erased)
        left = retained.samples[client]
        sample = _after(left, request.samples[0]) if owners and left else left[0] if left else NOTHING
        return cls(request | earlier if earlier else request, client, sample)


def _after(ids: Sequence[int], erased: int) -> int:
    """The first id above ``erased``, the smallest one if there is none."""
    return next((i for i in ids if i > erased), ids[0])


def of_history(history: Any, probe: Probe) -> tuple[int, ...]:
    """The numbers :data:`NUMBERS` of one history (``Plan.history``): the specification of :func:`score`."""
    clients, samples = set(probe.target.clients), set(probe.target.samples)
    target = sum(client in clients for cohort, _ in history for client in cohort) + sum(
        not samples.isdisjoint(batch) for _, places in history for steps in places for batch in steps
    )
    rounds = [number for number, (cohort, _) in enumerate(history) if probe.client in cohort]
    return (
        target,
        sum(cohort.count(probe.client) for cohort, _ in history),
        rounds[0] if rounds else len(history),
        sum(len(set(cohort)) < len(cohort) for cohort, _ in history),
        sum(probe.sample in batch for _, places in history for steps in places for batch in steps),
    )


def score(stack: Stack, probe: Probe, cohorts: Ids | None = None) -> Ids:
    """The numbers of every plan of a stack, ``(n, 5)`` in the order of :data:`NUMBERS`.

    ``target`` counts participations of erased clients and batches with erased samples: anything but 0 is a
    violation. ``first round`` counts from 0, and is R for a client that is never drawn. Only the cohorts, and the
    batches of the focus client and of the owners of erased samples, are drawn; ``cohorts (n, R, K)`` saves
    drawing those again.
    """
    rounds, erased = stack.law.rounds, probe.target
    owners = {p.owner[s] for s in erased.samples for p in stack.populations if s in p.owner}
    owners |= {probe.client} if probe.sample != NOTHING else set()
    found = np.zeros((len(stack.plans), len(NUMBERS)), dtype=np.int64)
    target, participations, first, again, members = found.T  # views: what is added up there is found
    first[:] = rounds
    for some in stack.blocks(PLACES):
        here = stack.cohorts(some) if cohorts is None else cohorts[:, some.start - 1 : some.stop - 1]
        mine = here == probe.client
        run, column = np.nonzero(mine.any(axis=2))
        np.minimum.at(first, run, column + some.start - 1)
        participations += mine.sum(axis=(1, 2))
        again += _repeated(here)
        if erased.clients:
            target += isin(here, erased.clients).sum(axis=(1, 2))
        for run, _, drawn in stack.batches_of_owners(here, sorted(owners), some.start):
            np.add.at(target, run, isin(drawn, erased.samples).any(axis=2).sum(axis=1))
            if probe.sample != NOTHING:  # padding is no sample
                np.add.at(members, run, (drawn == probe.sample).any(axis=2).sum(axis=1))
    return found


def _repeated(cohorts: Ids) -> Ids:
    """In how many rounds some client is named twice, ``(n,)``."""
    ordered = np.sort(cohorts, axis=2)
    same = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] != NONE)
    return np.asarray(same.any(axis=2).sum(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Statistic:
    """A column of :func:`score` in categories, and the known law ``(k,)`` of these on the retained data.

    ``suspects`` holds the laws ``(k,)`` that faults known beforehand would give them, by the fault.
    """

    name: str
    column: int
    categories: Categories
    law: tuple[Number, ...]
    suspects: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)

    @property
    def believed(self) -> tuple[tuple[Number, ...], ...]:
        """The laws that bets are placed on: of every suspect at the rates 1/2 and 1."""
        return tuple(law for whole in self.suspects.values() for law in (self._halfway(whole), whole))

    def _halfway(self, whole: tuple[Number, ...]) -> tuple[Number, ...]:
        return tuple((a + b) / 2 for a, b in zip(self.law, whole, strict=True))

    def of(self, numbers: Ids) -> Ids:
        """The categories ``(n,)`` of scores ``(n, 5)``."""
        return np.searchsorted(np.array(self.categories.edges), numbers[:, self.column], side="right")


def statistics(law: UniformLaw, retained: Population, probe: Probe, one: Number = 1.0) -> tuple[Statistic, ...]:
    """The pre-registered statistics with their laws; those with one category, which cannot tell, are left out.

    Raises:
        UsageError: none can tell anything.
    """
    clients, places = len(retained.clients), law.places(retained.of_laws)
    taking = places * law.rounds
    mean = taking / clients
    distinct = prod(max(clients - i, 0) / clients for i in range(places)) if says(law, "replacement") else 1.0
    member = mean * law.steps * exact_laws.share(law, retained, probe.client, 1.0)
    found = []
    for name, probabilities, expected, largest in (
        ("participations", partial(exact_laws.participations, law, retained), mean, taking),
        ("repeats", partial(exact_laws.repeats, law, retained), law.rounds * (1 - distinct), law.rounds),
        ("memberships", partial(exact_laws.memberships, law, retained, probe.client), member, taking * law.steps),
    ):
        if name == "memberships" and probe.sample == NOTHING:
            continue
        categories = counting(probabilities, expected, largest)
        merged = categories.merge(probabilities(max(categories.edges, default=1), one))
        found.append(Statistic(name, NUMBERS.index(name), categories, merged))
    blocks = quarters(law.rounds)
    found.append(Statistic("first round", 2, blocks, blocks.merge(exact_laws.first_round(law, retained, one))))
    telling = tuple(s for s in found if sum(p > 0 for p in s.law) > 1)
    if not telling:
        raise UsageError("no statistic can tell anything: the retained federation leaves nothing to chance")
    return telling
