"""The cap: whether rounds that were not yet executed keep to a target.

It is decided before anything is drawn. Who stops in the middle, when an account runs out, chooses by what was seen
which draws are made, and the figures of an account do not hold for such a choice.
"""

from __future__ import annotations

from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.budgets.dpsgd.clients import Batches
from fuaudit.budgets.mechanisms import Account, Mechanism, Parameters, account_for, mechanism_of, rounds_within
from fuaudit.budgets.statement import epsilon_at
from fuaudit.budgets.target import ExceededError, Target
from fuaudit.errors import UsageError
from fuaudit.text import counted, in_full


def capped(
    target: Target,
    mechanism: str,
    parameters: Parameters,
    rounds: int,
    times: int = 1,
    batches: Batches | None = None,
) -> Account:
    """The account of rounds in which one client takes part up to so many ``times`` each, with such batches.

    Raises:
        ExceededError: it exceeds the target, or nobody accounts for such a mechanism.
        UsageError: there cannot be such a round, or no library that composes at a delta.
    """
    if batches is not None and target.towards is None:
        batches = batches.known()
    one = mechanism_of(mechanism, parameters, target.differ, batches)
    found = account_for(one, rounds * times, target.delta, coarse=True)
    if found.total > target.epsilon:
        raise ExceededError(_too_many(found, target, times), _hint(one, target, found, times))
    return found


def _too_many(found: Account, target: Target, times: int) -> str:
    several = f", in each of which a client takes part up to {counted(times, 'time')}," if times > 1 else ""
    total = epsilon_at(found.total, target.delta)
    rounds = f"{counted(found.rounds // times, 'round')}{several} {'has' if found.rounds == times else 'have'}"
    return f"{rounds} {total}, and the target is {in_full(target.epsilon)}"


def _hint(one: Mechanism, target: Target, found: Account, times: int) -> str:
    try:
        most = rounds_within(one, target, found.rounds) // times
    except UsageError:
        most = 0
    if most:
        return f"At most {most:,} rounds keep to it."
    larger = "alpha" if isinstance(one, ConSpar) else "noise"
    return found.note or f"Not even one round keeps to it: take a larger {larger}, or a larger target."
