"""What a config asks of its federation. Training asks before the first draw, and whoever opens a run asks once more.

A config is committed to, and nothing regenerates it. What training would refuse could be a place to write in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuaudit.config import Config
from fuaudit.data.adversaries import require_adversaries, require_named
from fuaudit.data.partition import require_clients
from fuaudit.declared import offers, says
from fuaudit.errors import UsageError
from fuaudit.plans import Population
from fuaudit.plans.availability import require_room
from fuaudit.plans.expanded import require_feasible
from fuaudit.registry import build, called
from fuaudit.training.asking import Kind, asked
from fuaudit.training.rounds import CLIENT, SERVER, owner_of, prefix_of
from fuaudit.training.stages import borne, least_rows, published, rows_left

if TYPE_CHECKING:
    from fuaudit.plans import Law
    from fuaudit.training.exchange import Exchange

NOTHING = Kind("nothing", lambda answer: answer is None)

MANY = 64
"""Up to so many rows a rule is asked of every number of them what it bears; of more, of the most alone."""


def require_federation(config: Config, exchange: Exchange, solver: Any, law: Law, population: Population) -> None:
    """Check a config against the federation that training starts from.

    Raises:
        UsageError: the partition deals to other clients, the law does not fit, adversaries or Byzantine clients are not
            named as they have to be, or every round would fail: a transport could deliver nothing, or too few rows.
        PluginError: an adversary or a Byzantine stage does not say whom it stands for; a rule says of so many rows
            that it bears more, or no number.
    """
    require_clients(build("partitions", config.partition), population.clients)
    require_room(law, population)
    require_feasible(law, population)
    require_fitting_parts(config, exchange, solver, law, population.clients)
    _require_enough(exchange, law.places(population.of_laws), sum(map(bool, population.samples.values())))


def require_fitting_parts(config: Config, exchange: Exchange, solver: Any, law: Law, clients: tuple[int, ...]) -> None:
    """The part of :func:`require_federation` that hangs on who the clients are, and on nobody's samples.

    Raises:
        UsageError: the partition deals to others, parts do not fit each other, or who misbehaves is not named as it has
            to be.
        PluginError: an adversary or a Byzantine stage does not say whom it stands for.
    """
    require_clients(build("partitions", config.partition), clients)
    _require_one_row_each(exchange, solver, law)
    _require_whole_rows(exchange)
    require_adversaries(config.adversary, clients)
    for part in sorted(exchange.byzantine):
        require_named("client", config.client[part]["use"], exchange.client_stages.stages[part], clients)


def _require_enough(exchange: Exchange, places: int, filled: int) -> None:
    """Raises UsageError where every round of so many participations at most, so many clients with samples, fails.

    PluginError where what a rule bears of so many rows, or fewer, is no number of them, or what it publishes no word.
    """
    transport, server, trained = exchange.transport, exchange.server, min(places, filled)
    if offers(transport, "require_places"):
        asked(transport, "require_places", NOTHING, places, trained)
    rows = rows_left(transport, places if transport.shows == "rows" else trained // 2, places, trained)
    for stage in server.stages[: server.aggregating]:
        if rows < (needed := least_rows(stage)):
            raise UsageError(
                f"every round of {places} would fail: the {called(stage)} needs at least {needed} rows, "
                f"and gets {rows} at most",
                "Let more clients take part, or let the rule leave out or fear fewer rows.",
            )
        for count in {*range(1, min(rows, MANY) + 1), rows}:
            borne(stage, count, otherwise=0)  # asked now, for reports of the run and of its children ask it
            published(stage, max(2, needed, count))  # asked also where no sum is small enough for it to matter
        rows = rows_left(stage, rows, rows)


def per_client_state(solver: Any, exchange: Exchange) -> frozenset[str]:
    """The names in a state under which one row a client is kept."""
    chains = {CLIENT: exchange.client_stages, SERVER: exchange.server}
    parts: dict[str, Any] = {prefix_of(solver): solver, **chains}
    return frozenset(prefix + name for prefix, part in parts.items() for name in part.per_client_state)


def _require_whole_rows(exchange: Exchange) -> None:
    """Raises UsageError where a client remembers what was not sent, and more than its row is sent of a coordinate.

    A sparse transport sends x / p with probability p. What is left of x, (1 - 1 / p) x, grows from round to round.
    """
    stages = exchange.client_stages.stages
    remembering = [stage for stage in stages if offers(stage, "settle") and not says(stage, "answered")]
    if remembering and says(exchange.transport, "sparse"):
        raise UsageError(
            f"the {called(remembering[0])} remembers what was not sent, and the {called(exchange.transport)} sends "
            "more than that of a coordinate, so the memory grows without bound",
            "Leave the stage out: what is sent is right on average without it. Or take another transport.",
        )


def _require_one_row_each(exchange: Exchange, solver: Any, law: Law) -> None:
    """Raises UsageError when a law may draw a client twice in one round, and a memory has one row for each client.

    So it does where a transport shows sums: one of two participations would be of one client.
    """
    if not says(law, "replacement"):
        return
    transport, hint = exchange.transport, "Use a law that draws clients without replacement."
    if transport.shows == "sums":
        shown = f"so a sum of the {called(transport)} could be of one client"
        raise UsageError(f"the law {law.name!r} can draw a client twice in one round, {shown}", hint)
    if kept := per_client_state(solver, exchange):
        owners = ((owner_of(name).rstrip("."), name.rsplit(".", 1)[-1]) for name in sorted(kept))
        memories = " and ".join(f"the {owner}'s memory {name!r}" for owner, name in owners)
        raise UsageError(
            f"the law {law.name!r} can draw a client twice in one round, but {memories} has one row for each client",
            hint,
        )
