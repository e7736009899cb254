"""The cap of a config: its table ``[budget]`` against the rounds that its law has, before anything is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuaudit.budgets.target import ExceededError, Target
from fuaudit.declared import is_agreement, offers, says
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Law, Population
from fuaudit.registry import blaming, called, is_strange
from fuaudit.training.events import Released, require_event
from fuaudit.training.exchange import Exchange
from fuaudit.training.rounds import OutlineShape

if TYPE_CHECKING:
    from fuaudit.budgets.mechanisms import Account


def capped(
    target: Target,
    exchange: Exchange,
    solver: Any,
    law: Law,
    population: Population,
    dimension: int,
    scaling: str = "none",
) -> Account:
    """The account of all rounds of a config whose budget is this one, of so many coordinates.

    Every round is charged to every client, and in each the most participations that one client can have in it.

    Raises:
        ExceededError: the rounds exceed the budget, or nothing in the config is under a mechanism that it accounts for.
        UsageError: there cannot be such a round, or no library that composes at a delta.
        PluginError: a stage answers with something that is no mechanism.
    """
    from fuaudit.budgets.cap import capped as account

    told = mechanism_of(exchange, dimension)
    if told.mechanism == "gaussian" and (beside := beside_rows(solver)):
        raise ExceededError(f"[budget] cannot account for noise on rows: {beside}")
    if told.mechanism == "gaussian" and scaling != "none":
        raise ExceededError(f"[budget] cannot account for noise where {SCALED}", 'Say scaling = "none".')
    times = law.places(population.of_laws) if says(law, "replacement") else 1
    try:
        return account(target, told.mechanism, told.parameters, law.rounds, times)
    except UsageError as error:
        raise type(error)(f"[budget]: {error.args[0]}", error.hint) from None


SCALED = "rows are scaled by constants of all rows: each row bears on all others, and nothing limits how much"


def charged_stage(exchange: Exchange) -> int:
    """Which client stage, counted from 0, is the one under which honest clients of a round release something.

    Raises:
        ExceededError: there is none, or several; or it works on coordinates of which an agreement left fewer, so that
            its figures differ from round to round.
    """
    stages: tuple[Any, ...] = exchange.client_stages.stages
    honest = [number for number in range(len(stages)) if number not in exchange.byzantine]
    releasing = [number for number in honest if says(stages[number], "releases") is not None]
    if len(releasing) != 1:
        raise ExceededError(
            f"[budget] accounts for one mechanism, and {len(releasing) or 'no'} [[client]] stages say what they "
            "release under",
            "Of fuaudit's own there are consensus and gaussian-noise. Leave [budget] out where nothing is limited.",
        )
    first = releasing[0]
    stage = stages[first]
    if any(is_agreement(stages[number]) for number in honest if number < first):
        raise ExceededError(f"[budget] cannot account for {called(stage)} behind another agreement")
    if way := past(exchange, first):
        raise ExceededError(f"[budget] cannot account for {called(stage)}: {way}")
    return first


def mechanism_of(exchange: Exchange, dimension: int) -> Released:
    """The mechanism of that stage, of so many coordinates.

    Raises:
        ExceededError: as :func:`charged_stage`.
        PluginError: the stage answers with something that is no mechanism.
    """
    stage: Any = exchange.client_stages.stages[charged_stage(exchange)]
    with blaming(stage, "releases"):
        told = stage.releases(dimension)
    require_event(told)
    if not isinstance(told, Released):
        raise PluginError(f"{called(stage)}, releases, must answer with Released, not {told!r}")
    return told


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
