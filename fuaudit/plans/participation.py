"""Who took part in expanded plans: when each was first involved, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fuaudit.draws import Position
from fuaudit.plans.expanded import NONE, Ids, Rounds
from fuaudit.plans.population import Request


@dataclass(frozen=True)
class Involvement:
    """First involvement of every client and sample, for look-ups in constant time.

    ``clients`` maps a client id to the first round whose cohort holds it; ``samples`` a sample id to the
    first position for whose batch it was drawn, also where it was cut from it. What is missing was never drawn.
    """

    clients: dict[int, int]
    samples: dict[int, Position]

    @classmethod
    def of(cls, schedule: Rounds) -> Involvement:
        """The index of the first run of a schedule."""
        clients, samples = np.empty((0, 2), dtype=np.int64), np.empty((0, 2), dtype=np.int64)
        for number in range(1, schedule.rounds + 1):
            drawn_round = schedule.round(number)
            clients = _with_first(clients, drawn_round.cohorts[0, None], number)
            # steps are the first axis: all places of a step are drawn at one position
            parts = [part[0].swapaxes(0, 1) for part in (drawn_round.batches, drawn_round.cut) if part is not None]
            steps = len(parts[0])
            samples = _with_first(samples, np.concatenate([p.reshape(steps, -1) for p in parts], axis=1), number)
        rounds = {client: int(at[0]) for client, at in _found(clients)}
        return cls(rounds, {sample: Position(int(at[0]), int(at[1]) + 1) for sample, at in _found(samples)})

    def first(self, request: Request) -> Position | None:
        """The first position whose draw holds something requested, or None: one look-up an id."""
        found = [Position(self.clients[c], 0) for c in request.clients if c in self.clients]
        found += [self.samples[s] for s in request.samples if s in self.samples]
        return min(found, default=None)


def _with_first(known: Ids, drawn: Ids, round_number: int) -> Ids:
    """The first round, and row of that round, of every id, ``(most + 1, 2)``; round 0 is for what was never drawn.

    ``drawn (E, m)`` holds the ids of a round; an id's row is the first that holds it. ``known`` is of rounds before.
    """
    ids, places = np.unique(drawn, return_index=True)
    there = ids != NONE
    ids, rows = ids[there], places[there] // max(1, drawn.shape[1])
    result = np.pad(known, [(0, max(0, int(ids.max(initial=-1)) + 1 - len(known))), (0, 0)])
    new = result[ids, 0] == 0
    result[ids[new], 0], result[ids[new], 1] = round_number, rows[new]
    return result


def _found(first: Ids) -> Iterator[tuple[int, Ids]]:
    """What was drawn, with its round and row."""
    (ids,) = np.nonzero(first[:, 0])
    return zip(ids.tolist(), first[ids], strict=True)


@dataclass(frozen=True)
class Participations:
    """Who took part in each round of one run, in drawn order, and how many steps each took.

    ``cohorts`` and ``steps`` have one entry a round, of the same length. A client that was drawn twice is named twice.
    """

    cohorts: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(schedule: Rounds) -> Participations:
        """Those of the first run of some expanded plans."""
        cohorts, steps = [], []
        for number in range(1, schedule.rounds + 1):
            drawn_round = schedule.round(number)
            present = drawn_round.cohorts[0] != NONE
            cohorts.append(tuple(drawn_round.cohorts[0][present].tolist()))
            steps.append(tuple((drawn_round.batches[0][present] != NONE).any(axis=-1).sum(axis=-1).tolist()))
        return Participations(tuple(cohorts), tuple(steps))

    def longest_gaps(self, clients: tuple[int, ...]) -> dict[int, int]:
        """The largest number of rounds from one participation of every client to its next: client -> gap.

        Gaps begin before the first round and end after the last. So a client that never takes part in R rounds has
        the gap R + 1, and one that always does has the gap 1.
        """
        last = dict.fromkeys(clients, 0)
        longest = dict.fromkeys(clients, 0)
        for round_number, cohort in enumerate([*self.cohorts, clients], 1):
            for client in longest.keys() & set(cohort):
                longest[client] = max(longest[client], round_number - last[client])
                last[client] = round_number
        return longest
