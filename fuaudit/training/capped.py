"""The cap of a config: its table ``[budget]`` against the rounds that its law has, before anything is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuaudit.budgets.target import ExceededError, Target
from fuaudit.declared import is_agreement, says
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Law, Population
from fuaudit.registry import blaming, called
from fuaudit.training.events import Released, require_event
from fuaudit.training.exchange import Exchange
from fuaudit.training.rounds import OutlineShape

if TYPE_CHECKING:
    from fuaudit.budgets.mechanisms import Account


def capped(
    target: Target, exchange: Exchange, solver: Any, law: Law, population: Population, dimension: int
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
    times = law.places(population.of_laws) if says(law, "replacement") else 1
    try:
        return account(target, told.mechanism, told.parameters, law.rounds, times)
    except UsageError as error:
        raise type(error)(f"[budget]: {error.args[0]}", error.hint) from None


def mechanism_of(exchange: Exchange, dimension: int) -> Released:
    """The one mechanism under which honest clients of a round release something, of so many coordinates.

    Raises:
        ExceededError: there is none, or several; or it works on coordinates of which an agreement left fewer, so that
            its figures differ from round to round.
        PluginError: a stage answers with something that is no mechanism.
    """
    stages: list[Any] = [
        stage for number, stage in enumerate(exchange.client_stages.stages) if number not in exchange.byzantine
    ]
    releasing = [number for number, stage in enumerate(stages) if says(stage, "releases") is not None]
    if len(releasing) != 1:
        raise ExceededError(
            f"[budget] accounts for one mechanism, and {len(releasing) or 'no'} [[client]] stages say what they "
            "release under",
            "Of fuaudit's own there are consensus and gaussian-noise. Leave [budget] out where nothing is limited.",
        )
    first = releasing[0]
    if any(map(is_agreement, stages[:first])):
        raise ExceededError(f"[budget] cannot account for {called(stages[first])} behind another agreement")
    stage = stages[first]
    with blaming(stage, "releases"):
        told = stage.releases(dimension)
    require_event(told)
    if not isinstance(told, Released):
        raise PluginError(f"{called(stage)}, releases, must answer with Released, not {told!r}")
    return told


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
