"""What is known of a run's secure sums without its transcript: from what was committed to, plan, config and ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

import numpy as np
from torch import Tensor

from fuaudit.commitments.identities import PARTIES
from fuaudit.commitments.lots import context_of
from fuaudit.declared import offers
from fuaudit.draws import START, Position, Purpose, Stream
from fuaudit.draws.address import STREAM_OF
from fuaudit.draws.chains import lot_key
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import AvailabilityLaw, Law, UniformLaw, WeightedLaw
from fuaudit.plans.availability import BoundedRoundRobin, StaticProbability, TimeVaryingWeights
from fuaudit.plans.stage_draws import Generation, Part, PlannedDraws, generation_of, not_drawn_anew
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.registry import build
from fuaudit.runs.layout import CHECKPOINT, of_round
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.roster import committed_keys
from fuaudit.runs.run import Run
from fuaudit.runs.sums import buffers_of
from fuaudit.runs.untrained import hiding_nobody, untrained
from fuaudit.secure.exposure import Buffer, buffers_under
from fuaudit.secure.names import has_key_holder
from fuaudit.secure.recheck.known import Known
from fuaudit.secure.recheck.shown import Checked, Wrong
from fuaudit.secure.terms import coordinates_digest
from fuaudit.text import counted
from fuaudit.training.asking import asked
from fuaudit.training.exchange import A_FAILURE, Exchange, first_state
from fuaudit.training.publishing import require_unpublished
from fuaudit.training.rounds import StateShape
from fuaudit.training.stages import rows_left

TRANSPORT = "transport"
FOR_NOTHING = "sums were opened, and the round fails with so few: an honest server opens none then"

Columns = Callable[[int], tuple[int, str] | None]
"""Round -> how many columns are summed, and their digest; None where nothing is summed."""


def told_rounds(run: Run) -> list[dict[str, Any]]:
    """The lines of the ledger of the rounds that a run executed itself."""
    return run.ledger.of_kind("round")


def tells_buffers(run: Run) -> bool:
    """Whether the lots of a run tell which clients each buffer is of, to whoever has its messages.

    Clients have to cast lots, and it has to be known in which order they stood at the places of a round. In a sealed
    view that follows from the law, or from nothing.
    """
    return bool(run.signatories.ends) and (not run.sealed or draws_in_order(run.law))


def known_of(run: Run) -> Known:
    """What a checker of the transcript knows of a run whose ledger names a suite.

    Raises:
        UsageError: the transport of its config has no sums that a suite could make.
    """
    suite, keys = str(suite_of(run.ledger)), committed_keys(run)
    sums = run.exchange.summation(suite)
    clients = {client: keys[client] for client in run.members}  # in its own rounds nobody else has a part
    witness, holder = (keys[party] if has_key_holder(suite) else "" for party in PARTIES)
    generation, ends, cohort = len(run.requests), run.signatories.ends, cohort_of(run)
    return Known(
        suite,
        run.rounds_executed,
        sums.bits,
        sums.most,
        clients,
        witness,
        holder,
        heads={event["round"]: event["transcript"] for event in told_rounds(run)},
        context=context_of(run.commitment, run.contexts[generation]),
        ends=ends,
        earlier=generation * run.law.rounds,
        cohort=lambda number: tuple(sorted({*cohort(number)})),
        buffers=_buffers(run, cohort) if tells_buffers(run) else None,
        sizes=_sizes(run, suite, cohort) if ends or not run.sealed else None,
        columns=all_columns(run),
        agrees=run.exchange.agrees,
    )


def left_alone(run: Run, checked: Checked) -> list[tuple[int, tuple[int, ...]]]:
    """Rounds of which one sum alone was opened, and the clients of it: two of them have samples.

    Whatever the rule, the model tells this sum, and each of the two has her own row.
    """
    executed = [event["round"] for event in told_rounds(run)]
    alone = [(number, opened[0].members) for number in executed if len(opened := checked.opened_of(number)) == 1]
    return [(number, members) for number, members in alone if len({*members} - hiding_nobody(run, number)) <= 2]


def noise_alone(run: Run, checked: Checked) -> list[tuple[int, tuple[int, ...]]]:
    """Rounds and clients of sums that were opened, in which one client at most has data: other rows are noise alone.

    Where noise does not count, such a sum is wrong: see :func:`wrong_opened`.
    """
    rounds = {event["round"]: hiding_nobody(run, event["round"]) for event in told_rounds(run)}
    return [
        (number, one.members)
        for (number, _), one in sorted(checked.opened.items())
        if len({*one.members} - rounds.get(number, frozenset())) < 2
    ]


def wrong_opened(run: Run, checked: Checked) -> Iterator[Wrong]:
    """Sums that were opened though at most one of their clients trains: such a sum is her row.

    Also those that a transport discards, for more of its clients have to train. The plan tells who does; of a sealed
    view nobody knows who does not.
    """
    transport = run.exchange.transport
    for (number, buffer), one in sorted(checked.opened.items()):
        trained = len({*one.members} - untrained(run, number))
        if trained == len(one.members):
            continue
        if trained < 2 or not rows_left(transport, 1, len(one.members), trained):
            told = f"of clients {one.members} {trained} have samples in this round: an honest server opens no such sum"
            yield Wrong("sum", told, number, buffer)


def wrong_silence(known: Known, checked: Checked) -> Iterator[Wrong]:
    """Sums without a client of their buffer, though a ledger has no word for who was silent.

    The parties of a training all answer, or it ends. So the server of another one left her out, and the fewer are in a
    sum the more it tells. It is not asked where nobody knows how large buffers are.
    """
    for (number, buffer), one in sorted(checked.opened.items()):
        sizes = known.sizes(number) if known.sizes else ()
        if buffer < len(sizes) and len(one.members) < (size := sizes[buffer].size):
            told = f"a sum of clients {one.members} was opened, of a buffer of {size}: all answer, or a training ends"
            yield Wrong("sum", told, number, buffer)


def wrong_draws(run: Run) -> Iterator[Wrong]:
    """Own rounds that draw with keys from before the last request, and draws of one request over clients of another.

    Clients draw noise with these keys. A child that draws what its parent drew has its parent's noise, and the
    difference of their sums has none; and messages of the parent would be its own.
    """
    newest = len(run.requests)
    for number in not_drawn_anew(run.segments, (event["round"] for event in told_rounds(run)), newest):
        yield Wrong("draws", f"the plan draws this round with other keys than those of request {newest}", number)
    if run.segments.mixes_generations:
        yield Wrong("draws", "the plan uses draws of one request over the population of another")


Cohorts = Callable[[int], Sequence[int]]
"""Round -> its clients, in the order of their places."""


def cohort_of(run: Run) -> Cohorts:
    """The clients of rounds, by the plan. A sealed view has no seeds: there those who contributed to a lot, ascending.

    Whether more of them were drawn is known then of laws alone whose numbers follow from no seed, see
    :func:`wrong_cohorts`.
    Otherwise neither that is known, nor whether a round was left out in which no model was made.
    """
    if not run.sealed:
        return run.plan.cohort
    return lambda number: run.chain.senders(number, "lot")


def draws_in_order(law: Law) -> bool:
    """Whether a law is known to draw the distinct clients of a round ascending, so that who they are tells places."""
    if is_foreign(law):
        return False
    return type(law) is AvailabilityLaw or (type(law) is UniformLaw and not law.replacement)


def all_columns(run: Run) -> Columns | None:
    """That of rounds in which every parameter is summed; None where clients agree on some, as only replay shows."""
    if run.exchange.agrees:
        return None
    dimension = len(run.arrays(of_round(CHECKPOINT, run.checkpoints[-1]))["vector"])
    whole = dimension, coordinates_digest(np.arange(dimension))
    return lambda number: whole


def _buffers(run: Run, cohort: Cohorts) -> Callable[[int, Mapping[int, bytes]], list[tuple[int, ...]]]:
    """Who is with whom, by what clients contributed to a round's lot: no secret is needed."""

    def buffers(number: int, contributions: Mapping[int, bytes]) -> list[tuple[int, ...]]:
        context = run.contexts[generation_of(run.segments, number)]
        key = lot_key(run.commitment, context, number, contributions)
        generations = [Generation(_nobodys, b"", lambda _, clients: key) for _ in run.contexts]
        draws = PlannedDraws(run.segments, tuple(generations))
        lot = draws.lot(number, Part("transport"), sorted(contributions))
        return run.exchange.members(cohort(number), lot)

    return buffers


def _sizes(run: Run, suite: str, cohort: Cohorts) -> Callable[[int], tuple[Buffer, ...]]:
    """How large buffers are, and from how many rows on they open, by how many take part: no secret is needed."""

    @cache
    def sizes(number: int) -> tuple[Buffer, ...]:
        places = len(cohort(number))
        return buffers_under(suite, run.exchange.buffers(places)) if places else ()

    return sizes


def _nobodys(client: int) -> NoReturn:
    raise EvidenceError(f"what client {client} draws is not asked here")


def wrong_beginning(run: Run) -> Iterator[Wrong]:
    """A memory before the first round that is not the one with which the parts of the config begin.

    The model follows from seeds then, and the memory from none.
    """
    if not any(event["round"] == 1 for event in told_rounds(run)):
        return
    vector, stored = run.checkpoint(0)
    shape = StateShape(len(vector), len(run.members), vector.dtype, vector.device)
    due = first_state(build("solvers", run.config.solver), run.exchange, shape)
    for name, tensor in sorted(stored.items()):
        if name not in due or not _has_bits(tensor, due[name]):
            sentence = f"{name!r}, which is remembered before round 1, is not what its part begins with"
            yield Wrong("beginning", sentence, 0)


def _has_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal in kind, shape and every bit."""
    one, other = one.contiguous(), other.contiguous()
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.numpy().tobytes() == other.numpy().tobytes()


def wrong_rule(run: Run) -> Iterator[Wrong]:
    """A rule of the server that training refuses: it may publish a sum of two, of which each has the other's row.

    Clients without samples hide nobody. Of a sealed view those are unknown whose samples were erased one by one.
    """
    try:
        require_unpublished(run.exchange, buffers_of(run), str(suite_of(run.ledger)), run.law, len(run.emptied))
    except UsageError as error:
        yield Wrong("rule", str(error.args[0]))


def wrong_cohorts(run: Run, ancestors: Sequence[Run] = ()) -> Iterator[Wrong]:
    """Rounds of a sealed view to whose lot other clients contributed, or another number of them, than its law can draw.

    Of laws alone of which that is known without seeds. The population is that of the plan's segment; of a cohort that
    was kept nobody was erased since, or it would have been drawn anew. ``ancestors``: those at hand.
    """
    if not (run.sealed and run.signatories.ends):
        return
    cohort, streams = cohort_of(run), run.segments
    for event in told_rounds(run):
        number = event["round"]
        version = streams.segment(Stream.COHORTS, Position(number, 0)).version
        gone = {client for request in run.requests[:version] for client in request.clients}
        due = drawn_clients(run.law, number, len({*run.view.clients} - gone))
        if due is not None and (came := len({*cohort(number)})) != due:
            sentence = f"{counted(came, 'client')} contributed to the lot, and the config draws {due} in this round"
            yield Wrong("lot", sentence, number)
    yield from _wrong_periods(run, ancestors)


def _wrong_periods(run: Run, ancestors: Sequence[Run]) -> Iterator[Wrong]:
    """Clients whose rounds are those of no period that the law of a sealed view can draw for them.

    A period is one draw for all rounds, so those that a run executed itself have one. So have those of its ancestors,
    where the draw was kept.
    """
    law = run.law
    if not (type(law) is AvailabilityLaw and type(law.availability) is BoundedRoundRobin):
        return
    stream = STREAM_OF[Purpose.AVAILABILITY]
    origin = run.segments.segment(stream, START).origin
    alike = [run, *(one for one in ancestors if one.segments.segment(stream, START).origin == origin)]
    came = [
        (event["round"], {*cohort_of(one)(event["round"])})
        for one in alike
        for event in told_rounds(one)
        if not (law.first_all and event["round"] == 1)
    ]
    for client in run.members:
        there = [(number, client in clients) for number, clients in came]
        if not law.availability.allows(there):
            rounds = ", ".join(str(number) for number, is_there in there if is_there) or "no round"
            away = ", ".join(str(number) for number, is_there in there if not is_there) or "no round"
            sentence = f"client {client} was there in {rounds}, and away in {away}: no period of the config has that"
            yield Wrong("lot", sentence)


def drawn_clients(law: Law, number: int, clients: int) -> int | None:
    """How many distinct clients a law draws for a round of so many, where that follows from no seed."""
    if type(law) is WeightedLaw or (type(law) is UniformLaw and not law.replacement):
        return min(law.cohort_size, clients)
    if type(law) is not AvailabilityLaw:
        return None
    if number == 1 and law.first_all:
        return clients
    who = law.availability
    if type(who) is TimeVaryingWeights:
        return who.most(clients)
    always = type(who) is StaticProbability and who.probability == 1
    if always or (type(who) is BoundedRoundRobin and (who.tau_max < 2 or (number == 1 and who.phase == "aligned"))):
        return clients
    return None


def wrong_counts(run: Run, checked: Checked) -> Iterator[Wrong]:
    """Rounds of which the transcript opened another number of sums than the ledger tells, and buffers that it did not.

    A training does not go on behind a buffer that it asked for and that was not opened: the parties answer once.
    Where a sum of a round was not made again, nobody knows how many it has.
    """
    executed = {event["round"] for event in told_rounds(run)}
    for at in checked.discarded:
        if at[0] in executed:
            yield Wrong("sum", "a buffer was tried and not opened, and the training went on: an honest one ends", *at)
    for event in told_rounds(run):
        number, opened = event["round"], len(checked.opened_of(event["round"]))
        told = _summed(event.get("told", ()))
        if opened != told and checked.is_made(number):
            yield Wrong("sum", f"{opened} sums were opened, and the ledger tells of {told}", number)


def wrong_failures(run: Run, checked: Checked) -> Iterator[Wrong]:
    """Rounds of which sums were opened, and which fail with so few: the next ones are of the same clients.

    For the rule there are too few, or half of them may be bad; of the clients that are feared those are found whose
    buffers the ledger suspects. Neither rows nor seeds are needed for that.
    """
    for event in told_rounds(run):
        number, opened = event["round"], len(checked.opened_of(event["round"]))
        suspects = sum((one["kind"], one["part"]) == ("suspected", TRANSPORT) for one in event.get("told", ()))
        if opened and checked.is_made(number) and must_fail(run.exchange, opened, suspects):
            yield Wrong("sum", FOR_NOTHING, number)


def must_fail(exchange: Exchange, counted: int, suspects: int) -> bool:
    """Whether a round fails in which so many buffers count, and so many others have a suspect in them."""
    transport = exchange.transport
    some = offers(transport, "fails") and asked(transport, "fails", A_FAILURE, counted, suspects)
    return some or not exchange.server.enough(counted)


def _summed(told: Sequence[Mapping[str, Any]]) -> int:
    """How many sums were opened, as a line of the ledger tells."""
    return sum(len(one["rows"]) - one["discarded"] for one in told if one["kind"] == "summed" and not one["failed"])
