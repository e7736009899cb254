"""The cap of a config: its table ``[budget]`` against the rounds that its law has, before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fuaudit.budgets.target import ExceededError, Target
from fuaudit.declared import says
from fuaudit.errors import UsageError
from fuaudit.plans import Law, Population
from fuaudit.plans.batch_laws import batches_of
from fuaudit.plans.stage_draws import OF_SOLVER, Part
from fuaudit.plans.strange_laws import places_of
from fuaudit.registry import called
from fuaudit.text import counted
from fuaudit.training.exchange import Exchange
from fuaudit.training.releases import SCALED, in_the_way, part_at, released_by

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

    part = charged(exchange, solver)
    stage = part_at(exchange, solver, part)
    told = released_by(stage, dimension)
    if why := in_the_way(exchange, solver, scaling, part, dimension):
        refused = f"[budget] cannot account for {called(stage)}: {why}"
        if why == SCALED:  # such runs were trained before: nobody knows what they spent, and they are no fault
            raise UsageError(refused, 'Say scaling = "none".')
        raise ExceededError(refused)
    times = most_at_once(law, [population])
    batches = batches_of(law, population) if told.mechanism == "dpsgd" else None
    try:
        return account(target, told.mechanism, told.parameters, law.rounds, times, batches)
    except UsageError as error:
        raise type(error)(f"[budget]: {error.args[0]}", error.hint) from None


def most_at_once(law: Law, populations: Iterable[Population]) -> int:
    """How often one client can take part in a round at most, over any of some populations."""
    if not says(law, "replacement"):
        return 1
    return max(places_of(law, population.of_laws) for population in populations)


def charged(exchange: Exchange, solver: Any) -> Part:
    """Where the one part stands under which honest clients of a round release something: the solver, or a stage.

    Raises:
        ExceededError: there is none, or several.
    """
    stages: tuple[Any, ...] = exchange.client_stages.stages
    honest = [number for number in range(len(stages)) if number not in exchange.byzantine]
    releasing = [number for number in honest if says(stages[number], "releases") is not None]
    if says(solver, "draws"):
        if releasing:
            raise ExceededError(
                f"[budget] accounts for one mechanism, and {called(solver)} releases under one, as "
                f"{counted(len(releasing), '[[client]] stage')} besides"
            )
        return OF_SOLVER
    if len(releasing) != 1:
        raise ExceededError(
            f"[budget] accounts for one mechanism, and {len(releasing) or 'no'} [[client]] stages say what they "
            "release under",
            "Of fuaudit's own there are consensus, gaussian-noise and skellam-noise, and the solver dpsgd. Leave "
            "[budget] out where nothing is limited.",
        )
    return Part("client", releasing[0])
