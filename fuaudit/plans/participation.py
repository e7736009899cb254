"""Who took part in expanded plans: when each was first involved, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from fuaudit.draws import Position
from fuaudit.plans.expanded import NONE, Rounds
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
        clients: dict[int, int] = {}
        samples: dict[int, Position] = {}
        for number in range(1, schedule.rounds + 1):
            drawn_round = schedule.round(number)
            for client in drawn_round.cohorts[0].tolist():
                if client != NONE:
                    clients.setdefault(client, number)
            # steps are the second axis: all places of a step are drawn at one position
            for found in (drawn_round.batches, drawn_round.cut):
                for e, drawn in enumerate([] if found is None else found[0].transpose(1, 0, 2)):
                    for sample in drawn.reshape(-1).tolist():
                        if sample != NONE:
                            at = Position(number, e + 1)
                            samples[sample] = min(samples.get(sample, at), at)
        return cls(clients, samples)

    def first(self, request: Request) -> Position | None:
        """The first position whose draw holds something requested, or None: one look-up an id."""
        found = [Position(self.clients[c], 0) for c in request.clients if c in self.clients]
        found += [self.samples[s] for s in request.samples if s in self.samples]
        return min(found, default=None)


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
