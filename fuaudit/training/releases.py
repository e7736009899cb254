"""What client stages say that they release under, and every reason why an account of it does not hold.

Caps of configs and accounts of runs ask the same list. They differ in one reason: an account takes no word of a stage
that is not fuaudit's own, and a cap takes it and says so.
"""

from __future__ import annotations

from typing import Any

from fuaudit.declared import is_agreement, offers, says
from fuaudit.errors import FuauditError, PluginError
from fuaudit.registry import blaming, called, find, is_strange
from fuaudit.training.events import Released, require_event
from fuaudit.training.exchange import Exchange
from fuaudit.training.rounds import OutlineShape

BEHIND = "it stands behind an agreement on coordinates, which was made of rows as they were before it"
SCALED = "rows are scaled by constants of all rows: each row bears on all others, and nothing limits how much"
NO_WORD = "nothing compares what it lets out with what it tells"


def released_by(part: Any, columns: int) -> Released:
    """The mechanism of a client stage, over so many columns.

    Raises:
        PluginError: it answers with something that is no mechanism.
    """
    with blaming(part, "releases"):
        told = part.releases(columns)
    require_event(told)
    if not isinstance(told, Released):
        raise PluginError(f"{called(part)}, releases, must answer with Released, not {told!r}")
    return told


def in_the_way(exchange: Exchange, solver: Any, scaling: str, number: int, columns: int) -> str:
    """Why no account holds of what a client stage, counted from 0, says that it releases; empty for nothing.

    Raises:
        PluginError: as :func:`released_by`.
    """
    stages: tuple[Any, ...] = exchange.client_stages.stages
    if any(map(is_agreement, stages[:number])):
        return BEHIND
    if way := past(exchange, number):
        return way
    if says(stages[number], "releases") and released_by(stages[number], columns).mechanism == "gaussian":
        return beside_rows(solver) or (SCALED if scaling != "none" else "")
    return ""


def no_word(name: str) -> str:
    """Why the word of a client stage is not taken by itself; empty for one of fuaudit's own, which tests look at."""
    try:
        own = find("client_stages", name).own
    except FuauditError:
        own = False
    return "" if own else f"the stage {name!r} is not fuaudit's own, and {NO_WORD}"


def byzantine(exchange: Exchange) -> tuple[int, ...]:
    """The clients who send what they like in some stage, ascending: what limits others need not limit them."""
    stages: tuple[Any, ...] = exchange.client_stages.stages
    return tuple(sorted({client for at in exchange.byzantine for client in stages[at].clients}))


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
