"""The plan of a run: its requests, its populations, its keys, and the draws that follow from them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from fuaudit.commitments.contents import Contents, Signatories
from fuaudit.commitments.keys import Keys, commitment, contexts, first_context, next_context, promised
from fuaudit.commitments.view import View
from fuaudit.declared import says
from fuaudit.draws import END, Draws, Leaves, Position, Recorded, Seeded, Stream
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import sha256
from fuaudit.plans import Plan, Population, Request
from fuaudit.plans.plan import Segments
from fuaudit.plans.population import require_named_once
from fuaudit.runs.encoding import involvement_of, population_of, read_segments, recorded_of
from fuaudit.runs.layout import CONFIG, CONTENTS, INVOLVEMENT, KEYS, PARTITION, PLAN, RECORDED, VIEW
from fuaudit.runs.stored import Stored
from fuaudit.text import counted


@dataclass(frozen=True)
class WithPlan(Stored):
    """A run that tells who was there, who was to be forgotten, and what was drawn."""

    @property
    def _plan_table(self) -> dict[str, Any]:
        table: dict[str, Any] = self.document(PLAN)
        return table

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests carried out up to this run, in order."""
        rows = [Request(tuple(r["clients"]), tuple(r["samples"])) for r in self._plan_table["requests"]]
        if any(row != Request.of(row.clients, row.samples) for row in rows):
            raise EvidenceError(f"{self.path / PLAN} holds no requests: ids are not sorted, or occur twice")
        return tuple(rows)

    @property
    def request(self) -> Request:
        """The last request; UsageError for a training run."""
        if not self.is_child:
            raise UsageError(f"{self.path} is a training run: it carries out no request")
        return self.requests[-1]

    @cached_property
    def _partition(self) -> tuple[Population, frozenset[int]]:
        path = self.path / PARTITION
        population, unknown = population_of(self.arrays(PARTITION), path)
        erased = {client for request in self.requests for client in request.clients}
        if any(unknown.intersection(ids) for client, ids in population.samples.items() if client not in erased):
            raise EvidenceError(f"{path} lacks ids of clients that were never erased")
        return population, unknown

    @property
    def original(self) -> Population:
        """The population that training started from; see :attr:`stand_ins`."""
        return self._partition[0]

    @property
    def stand_ins(self) -> frozenset[int]:
        """Ids in the place of those that a prune took out of the partition: the smallest that nobody has."""
        return self._partition[1]

    @property
    def owner(self) -> dict[int, int]:
        """Row -> client when training started, without the rows that a prune took out of the partition."""
        return {row: client for row, client in self.original.owner.items() if row not in self.stand_ins}

    @cached_property
    def populations(self) -> tuple[Population, ...]:
        """The population that training started from, and those after every request."""
        return tuple(accumulate(self.requests, Population.without, initial=self.original))

    @property
    def before(self) -> Population:
        """The population before the last request; after a prune :attr:`stand_ins` are what an erased client had."""
        return self.populations[-2]

    @cached_property
    def rows(self) -> int:
        """How many training rows there were at least: ids below it are rows, at hand or erased."""
        return max(self.original.owner, default=-1) + 1

    @cached_property
    def leaves(self) -> Leaves:
        """Which leaf of the tree of seeds serves which draw."""
        law = self.law
        return Leaves(self.original.clients, law.rounds, law.steps)

    @cached_property
    def keys(self) -> Keys:
        """``keys.json``. EvidenceError when it is not one, or its tree has not the size that the run needs."""
        keys = Keys.of_table(self.document(KEYS), self.path / KEYS)
        room = self.config.run.requests
        needed = self.leaves.size * (room + 1) + self.exchange.has_secrets
        if keys.seeds.size != needed:
            raise EvidenceError(
                f"{self.path / KEYS} has a tree of {keys.seeds.size:,} seeds; {room} requests need {needed:,}"
            )
        if len(self.requests) > room:
            raise EvidenceError(f"{self.path} has {len(self.requests)} requests, its commitment has room for {room}")
        return keys

    @cached_property
    def contents(self) -> Contents:
        """The leaves of what clients' rows hold, which the commitment covers.

        Raises:
            EvidenceError: the tensors do not fit together, or such a run has others.
        """
        path = self.path / CONTENTS
        contents = Contents.of_tensors(self.arrays(CONTENTS), path)
        if self.exchange.signs and contents.identities is None:
            raise EvidenceError(
                f"{path} has no identities of clients, and behind sums a run has some: it is of a state of fuaudit "
                "from before they were committed to, or they were taken out",
                "Nobody can add them to a commitment: train the run anew.",
            )
        has = contents.identities is not None, contents.lots is not None
        if has != (self.exchange.signs, self.exchange.casts_lots):
            raise EvidenceError(f"{path} has identities or lots that such a run has not, or lacks lots")
        return contents

    @cached_property
    def view(self) -> View:
        """What opens the commitment to whoever has a sealed view.

        Raises:
            EvidenceError: the file is missing or wrong, or does not tell of as many requests as the plan.
        """
        path, exchange = self.path / VIEW, self.exchange
        told = exchange.signs, exchange.casts_lots, exchange.has_secrets
        view = View.of_table(self.document(VIEW), *told, path)
        if len(view.contexts) != len(self.requests):
            raise EvidenceError(f"{path} tells of {counted(len(view.contexts), 'request')}, and {PLAN} of others")
        return view

    @property
    def committed(self) -> dict[str, str]:
        """All that the commitment covers but the contents."""
        entry = self.files.get(CONFIG)  # one that is still growing lists no files
        config = entry["sha256"] if entry else sha256(self.read(CONFIG))
        if self.sealed:
            own = {"partition": self.view.partition, "seeds": self.view.seeds}
            return {**own, "config": config, "beacon": promised(self.beacon)}
        return self.keys.committed(config, promised(self.beacon))

    @property
    def _root(self) -> str:
        """The root of the contents."""
        return self.view.root if self.sealed else self.contents.root

    @cached_property
    def commitment(self) -> str:
        """The commitment of the lineage, computed from what the run holds."""
        return commitment(**self.committed, contents=self._root)

    def commitment_for(self, beacon: str) -> str:
        """The commitment of a run like this one, of which it says something else of the beacon."""
        return commitment(**{**self.committed, "beacon": beacon}, contents=self._root)

    @cached_property
    def signatories(self) -> Signatories:
        """Who signs in rounds, by what was committed to: also of a sealed view."""
        return self.view.signatories if self.sealed else self.contents.signatories

    @property
    def members(self) -> tuple[int, ...]:
        """The clients that no request so far names, ascending: also of a sealed view."""
        if not self.sealed:
            return self.populations[-1].clients
        gone = {client for request in self.requests for client in request.clients}
        return tuple(client for client in self.view.clients if client not in gone)

    @property
    def emptied(self) -> frozenset[int]:
        """Those of :attr:`members` without samples; of a sealed view who had none when training started."""
        if self.sealed:
            return frozenset(self.view.empty).intersection(self.members)
        return frozenset(client for client, samples in self.populations[-1].samples.items() if not samples)

    @property
    def places(self) -> int:
        """The most participations that a round of those who are left can have: also of a sealed view."""
        left = Population(dict.fromkeys(self.members, ())) if self.sealed else self.populations[-1].of_laws
        return self.law.places(left)

    @cached_property
    def contexts(self) -> tuple[str, ...]:
        """What draws of training, and of every request so far, depend on besides the tree of seeds.

        In a sealed view those of requests are as told: they are hashes over places of samples, which it does not hold.
        """
        first = first_context(self.beacon)
        return (first, *self.view.contexts) if self.sealed else contexts(first, self.requests, self.original)

    @cached_property
    def segments(self) -> Plan:
        """The plan as far as its segments tell, also of a sealed view: from it nothing can be drawn."""
        if not self.sealed:
            return self.plan
        count = len(self.requests) + 1
        nobody = Population(dict.fromkeys(self.view.clients, ()))
        try:
            return Plan(self.law, (nobody,) * count, (), read_streams(self, count, count))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise EvidenceError(f"{self.path / PLAN} is not a plan: {error!r}") from None

    @cached_property
    def sources(self) -> tuple[Seeded, ...]:
        """The draws of training and of every request so far."""
        seeds = self.keys.seeds
        return tuple(
            Seeded(seeds, self.leaves, generation, context) for generation, context in enumerate(self.contexts)
        )

    def fresh(self, request: Request) -> Seeded:
        """The draws for one more request.

        Raises:
            UsageError: the commitment has no room for one more, or it names samples of a client whom it names.
        """
        require_named_once(request, self.original)
        last, room = self.sources[-1], self.config.run.requests
        if last.generation >= room:
            raise UsageError(
                f"the commitment of {self.path} has room for {counted(room, 'request')}, and that is used up",
                "Train anew, with requests = N in the table [run] as large as may be needed.",
            )
        context = next_context(last.context, request, self.original)
        return Seeded(last.seeds, self.leaves, last.generation + 1, context)

    @cached_property
    def plan(self) -> Plan:
        """The plan, from its segments and keys; EvidenceError when they do not fit together."""
        try:
            plan = read_plan(self)
            _require_present(plan)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, UsageError) as error:
            raise EvidenceError(f"{self.path / PLAN} is not a plan: {error!r}") from None
        return plan

    @property
    def next_position(self) -> Position:
        """The first position that was not executed; ``END`` when training was over."""
        return Position(self.rounds_executed + 1, 0) if self.rounds_executed < self.plan.law.rounds else END


def _require_present(plan: Plan) -> None:
    """Raises ValueError where a round names a client of a population that its batches are not drawn over.

    Only where the two streams are drawn over different populations can that be. A stream changes only in rounds in
    which a segment starts, and what lies between two of those is judged once: a config may name any number of rounds.
    """
    starts = {segment.start.round for name in (Stream.COHORTS, Stream.BATCHES) for segment in plan.streams[name]}
    after = plan.law.rounds + 1
    bounds = sorted(
        {
            1,
            after,
            *(round_number for start in starts for round_number in (start, start + 1) if 1 <= round_number < after),
        }
    )
    for first, end in pairwise(bounds):
        begin, last = Position(first, 0), Position(first, plan.law.steps)
        batches = _versions(plan.streams[Stream.BATCHES], begin, last)
        if batches <= _versions(plan.streams[Stream.COHORTS], begin, begin):
            continue
        for round_number in range(first, end):
            named = set(plan.cohort(round_number))
            if any(not named <= plan.populations[version].samples.keys() for version in batches):
                raise ValueError(f"round {round_number} draws batches of a client that is gone by then")


def _versions(segments: Segments, first: Position, last: Position) -> set[int]:
    """The populations that a stream is drawn over from one position to another, both included."""
    begin, end = (bisect_right(segments, at, key=lambda segment: segment.start) for at in (first, last))
    return {segment.version for segment in segments[begin - 1 : end]}


def read_plan(run: WithPlan) -> Plan:
    """The plan of a run: law from the config, populations from partition and requests, sources from seeds."""
    recorded = recorded_of(run.arrays(RECORDED)) if run.has(RECORDED) else {}
    if not recorded.keys() <= set(range(1, len(run.sources))):
        raise ValueError("draws are recorded of training, or of a request that there is not")
    sources: tuple[Draws, ...] = tuple(
        Recorded(recorded[number]) if number in recorded else source for number, source in enumerate(run.sources)
    )
    streams = read_streams(run, len(sources), len(run.populations))
    return Plan(
        run.law,
        _drawn_over(run),
        sources,
        streams,
        index=involvement_of(run.arrays(INVOLVEMENT)) if run.has(INVOLVEMENT) else None,
    )


def read_streams(run: WithPlan, sources: int, versions: int) -> dict[Stream, Segments]:
    """The segments of a run's streams, of so many sources and populations; ValueError where they are none."""
    table = run.document(PLAN)["streams"]
    if set(table) != set(Stream) or len(table[Stream.INITIAL]) != 1:
        raise ValueError(f"streams are not {', '.join(Stream)}, with one initial segment")
    return {stream: read_segments(table[stream], sources, versions) for stream in Stream}


def _drawn_over(run: WithPlan) -> tuple[Population, ...]:
    """The populations that rounds are drawn over.

    Under a law with draws that last all rounds those of erased clients are gone after a prune. Such a client is in no
    round that was kept, and nobody else's draws depend on it, so all populations are taken without it.
    """
    if not says(run.law, "lasting"):
        return run.populations
    seeds, leaves = run.keys.seeds, run.leaves
    gone = {
        client
        for number, request in enumerate(run.requests, 1)
        for client in request.clients
        if not any(seeds.holds(leaves.client(generation, client)) for generation in range(number))
    }
    if not gone:
        return run.populations
    return tuple(
        Population({client: ids for client, ids in population.samples.items() if client not in gone})
        for population in run.populations
    )
