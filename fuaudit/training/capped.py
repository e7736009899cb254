"""The cap of a config: its table ``[budget]`` against the rounds that its law has, before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fuaudit.budgets.target import ExceededError, Target
from fuaudit.declared import says
from fuaudit.errors import UsageError
from fuaudit.plans import Law, Population
from fuaudit.plans.strange_laws import places_of
from fuaudit.registry import called
from fuaudit.training.exchange import Exchange
from fuaudit.training.releases import SCALED, in_the_way, released_by

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
        ExceededError: the rounds exceed the budget, or no account holds of what the config releases.
        UsageError: there cannot be such a round, or no library that composes at a delta.
        PluginError: a stage answers with something that is no mechanism.
    """
    from fuaudit.budgets.cap import capped as account

    number = charged(exchange)
    stage: Any = exchange.client_stages.stages[number]
    told = released_by(stage, dimension)
    if why := in_the_way(exchange, solver, scaling, number, dimension):
        hint = 'Say scaling = "none".' if why == SCALED else ""
        raise ExceededError(f"[budget] cannot account for {called(stage)}: {why}", hint)
    times = most_at_once(law, [population])
    try:
        return account(target, told.mechanism, told.parameters, law.rounds, times)
    except UsageError as error:
        raise type(error)(f"[budget]: {error.args[0]}", error.hint) from None


def most_at_once(law: Law, populations: Iterable[Population]) -> int:
    """How often one client can take part in a round at most, over any of some populations."""
    if not says(law, "replacement"):
        return 1
    return max(places_of(law, population.of_laws) for population in populations)


def charged(exchange: Exchange) -> int:
    """Which client stage, counted from 0, is the one under which honest clients of a round release something.

    Raises:
        ExceededError: there is none, or several.
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
    return releasing[0]
