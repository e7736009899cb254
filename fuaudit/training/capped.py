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

if TYPE_CHECKING:
    from fuaudit.budgets.conspar.account import ConSparAccount


def capped(target: Target, exchange: Exchange, law: Law, population: Population, dimension: int) -> ConSparAccount:
    """The account of all rounds of a config whose budget is this one, of so many coordinates.

    Every round is charged to every client, and in each the most participations that one client can have in it.

    Raises:
        ExceededError: the rounds exceed the budget, or nothing in the config is under a mechanism that it accounts for.
        UsageError: there cannot be such a round, or no library that composes at a delta.
        PluginError: a stage answers with something that is no mechanism.
    """
    from fuaudit.budgets.cap import capped as account

    told = mechanism_of(exchange, dimension)
    times = law.places(population) if says(law, "replacement") else 1
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
            "Of fuaudit's own there is consensus. Leave [budget] out where nothing limits what is told.",
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
