"""What solvers and client stages say that they release under, and why an account of one fails by config and exchange.

Caps of configs and accounts of runs ask the same list, :func:`in_the_way`. What is of another package a cap takes at
its word, and says so; an account does not (:func:`no_word`, :func:`outside_parts`). Reasons that need a run, or several
of them, stand with accounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fuaudit.config import Config, stage_kind
from fuaudit.declared import is_agreement, offers, says
from fuaudit.errors import FuauditError, PluginError
from fuaudit.plans.stage_draws import OF_SOLVER, Part
from fuaudit.registry import blaming, called, find, is_strange, singular
from fuaudit.training.events import Released, require_event
from fuaudit.training.exchange import Exchange
from fuaudit.training.rounds import OutlineShape

BEHIND = "it stands behind an agreement on coordinates, which was made of rows as they were before it"
SCALED = "rows are scaled by constants of all rows: each row bears on all others, and nothing limits how much"
GIVEN = "is given rows of all clients as they were before it, and may send one as that of many"
ONE_ON_ANOTHER = "is given rows one after another, and may let one bear on what is made of others"
PUT_BACK = "the one is given rows as they were, the other acts behind the clients' rows, and may put back what was kept"
NO_WORD = "nothing compares what it lets out with what it tells"

NOISY_ROWS = frozenset({"gaussian", "skellam"})
"""Mechanisms of client stages under which all of a row has noise."""
NOISY = NOISY_ROWS | {"dpsgd"}
"""Mechanisms under which all that a client sends has noise."""

Named = tuple[str, str]
"""Kind and name of a plugin."""


def released_by(part: Any, columns: int) -> Released:
    """The mechanism of a client stage, or of a solver that draws, over so many columns.

    Raises:
        PluginError: it answers with something that is no mechanism.
    """
    with blaming(part, "releases"):
        told = part.releases(columns)
    require_event(told)
    if not isinstance(told, Released):
        raise PluginError(f"{called(part)}, releases, must answer with Released, not {told!r}")
    return told


def require_releases(exchange: Exchange, columns: int) -> None:
    """Ask the client stages what they will release, of so many columns, before anything is drawn.

    Those behind an agreement are not asked: nobody knows how many columns there will be.

    Raises:
        UsageError: a stage cannot treat rows of so many columns.
        PluginError: as :func:`released_by`.
    """
    for stage in exchange.client_stages.stages:
        if is_agreement(stage):
            return
        if says(stage, "releases"):
            released_by(stage, columns)


def part_at(exchange: Exchange, solver: Any, part: Part) -> Any:
    """The solver, or a client stage."""
    return solver if part == OF_SOLVER else exchange.client_stages.stages[part.number]


def in_the_way(exchange: Exchange, solver: Any, scaling: str, part: Part, columns: int) -> str:
    """Why no account holds of what the solver, or a client stage, says that it releases; empty for nothing.

    Raises:
        PluginError: as :func:`released_by`.
    """
    # client stages get what the solver lets out, so none of them can let out what it had
    if part != OF_SOLVER:
        if any(map(is_agreement, exchange.client_stages.stages[: part.number])):
            return BEHIND
        if way := past(exchange, part.number):
            return way
    stage = part_at(exchange, solver, part)
    told = released_by(stage, columns).mechanism if says(stage, "releases") else ""
    if told in NOISY_ROWS and (beside := beside_rows(solver)):
        return beside
    return SCALED if told in NOISY and scaling != "none" else ""


def no_word(part: Part, name: str) -> str:
    """Why the word of a part is not taken by itself; empty for one of fuaudit's own, which tests look at."""
    kind, what = ("solvers", "solver") if part == OF_SOLVER else ("client_stages", "stage")
    return "" if _is_own(kind, name) else f"the {what} {name!r} is not fuaudit's own, and {NO_WORD}"


def outside_parts(config: Config, exchange: Exchange, part: Part) -> str:
    """Why parts of other packages around the solver, or a client stage, leave no account of it; empty for nothing.

    What they are given decides. Whoever is given the rows of all clients in front of the noise may send one row as
    that of many, each with noise of its own. So may a model, or an adversary: it is given one client after another,
    and one row after another, and can put what it was given before into the rest. Whoever reads or deals rows may keep
    them, and a part behind the noise may put them back. One behind it alone is given nothing but what has noise.
    """
    if all_rows := _of_others(_given_all_rows(config, exchange, part)):
        return f"{all_rows[0]} is not fuaudit's own, {GIVEN}"
    if before := _of_others(_in_front_of_updates(config)):
        return f"{before[0]} is not fuaudit's own, {ONE_ON_ANOTHER}"
    if (keeping := _of_others(_given_some_rows(config))) and (behind := _of_others(_behind(config, part))):
        return f"{keeping[0]} and {behind[0]} are not fuaudit's own: {PUT_BACK}"
    return ""


def _given_all_rows(config: Config, exchange: Exchange, part: Part) -> list[Named]:
    """What treats the rows of a round in front of a part, and who proposes in it where it is an agreement.

    In front of a solver there is nothing: its noise is in the steps.
    """
    if part == OF_SOLVER:
        return []
    stages: tuple[Any, ...] = exchange.client_stages.stages
    number = part.number
    later = range(number + 1, len(stages)) if is_agreement(stages[number]) else ()
    at = [*range(number), *(one for one in later if offers(stages[one], "proposals"))]
    return [("solvers", config.solver["use"]), *_parts("client", [config.client[one] for one in at])]


def _in_front_of_updates(config: Config) -> list[Named]:
    """What treats rows before a gradient, or an update, is clipped."""
    return [("models", config.model["use"]), *_parts("adversary", config.adversary)]


def _given_some_rows(config: Config) -> list[Named]:
    """What is given rows otherwise: as they are read and dealt."""
    return [("datasets", config.data["use"]), ("partitions", config.partition["use"])]


def _behind(config: Config, part: Part) -> list[Named]:
    """What is given rows as the solver, or a client stage, left them."""
    transport = _parts("transport", [config.transport] if config.transport else [])
    later = config.client if part == OF_SOLVER else config.client[part.number + 1 :]
    return [*_parts("client", later), *transport, *_parts("server", config.server)]


def _parts(key: str, tables: Iterable[Mapping[str, Any]]) -> list[Named]:
    """Kind and name of each of some tables of an exchange."""
    return [(stage_kind(table, key), table["use"]) for table in tables]


def _of_others(parts: Iterable[Named]) -> list[str]:
    """Those of some parts, by kind and name, that are of other packages, in words."""
    return [f"the {singular(kind)} {name!r}" for kind, name in parts if not _is_own(kind, name)]


def _is_own(kind: str, name: str) -> bool:
    """Whether a part is fuaudit's own; one that is not installed is not."""
    try:
        return find(kind, name).own
    except FuauditError:
        return False


def past(exchange: Exchange, number: int) -> str:
    """How rows of others can leave past a client stage, sent on by Byzantine clients, in words; empty for not."""
    stages: tuple[Any, ...] = exchange.client_stages.stages
    for at in sorted(exchange.byzantine):
        # proposals of fuaudit's own attacks follow from those of others, which are released
        proposing = is_agreement(stages[number]) and offers(stages[at], "proposals") and is_strange(stages[at])
        if says(stages[at], "sees") != "own" and (at < number or proposing):
            return f"{called(stages[at])} sees rows of others as they were before it, and may send them on"
    return ""


def beside_rows(solver: Any) -> str:
    """What a solver lets the server have beside the rows that client stages treat, in words; empty for nothing."""
    if says(solver, "uploads") > 1:
        return f"{called(solver)} sends more vectors, and client stages treat one"
    try:
        remembers = not says(solver, "private") and bool(solver.init(OutlineShape(1, 1, "float32")))
    except Exception:  # it needs more than an outline
        remembers = True
    if remembers:
        return f"what {called(solver)} remembers is the server's, and is made of rows as they were before client stages"
    return ""
