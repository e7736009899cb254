"""The contract of Byzantine stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import offers, says
from fuaudit.testing.agreements import require_proposals
from fuaudit.testing.client_stages import require_rows, round_of
from fuaudit.testing.contexts import DIMENSION, SIZES, Step, strange
from fuaudit.testing.problems import Problems
from fuaudit.testing.trials import DTYPES, Trial, initial, trials
from fuaudit.training.rounds import RoundContext, State


def check_byzantine(stage: Any) -> None:
    """Check that a stage of Byzantine clients keeps its contract. It must name some of clients 0 to 5.

    Over rounds with the state carried on, in float32 and float64: as many rows and columns as it gets, dtype kept, the
    same when repeated, inputs and old state left alone (else rows of honest clients would change), a state of constant
    form with one row a client. Only draws of the clients that it names, and only where it declares them; how many
    clients and samples there are has no effect where that is not declared. It tells nothing. What its clients send may
    be infinite.
    Where it has ``proposals``: a list like ``found``, of columns that there are. Nothing that it does not name in
    ``sees`` has an effect on what a client sends or proposes. No global generator is touched.

    Raises:
        AssertionError: the list of all that is wrong.
    """
    problems = Problems(stage, "byzantine")
    clients = stage.clients if "clients" in {option.name for option in fields(stage)} else None
    if not isinstance(clients, tuple) or not all(type(client) is int and client >= 0 for client in clients):
        problems.require(False, "it must name its clients by their ids in an option, clients: tuple[int, ...]")
    elif not {*clients} & {*range(len(SIZES))}:
        problems.require(False, "here it must name some of clients 0 to 5")
    problems.conclude()
    for dtype in DTYPES:
        with problems.during(f"rounds of {dtype}"):
            require_rows(stage, initial(stage, dtype), problems)
            for trial in trials(stage, _step(stage), 4, dtype, problems, own=clients, tells=False):
                if offers(stage, "proposals"):
                    _check_proposals(stage, trial, problems)
                _check_sees(stage, trial, problems)
    problems.conclude()


def _step(stage: Any) -> Step:
    """What is taken of its rows: those of its clients, where they are finite."""
    whole = round_of(stage)

    def step(updates: Tensor, context: RoundContext, state: State) -> tuple[State, State]:
        made, new = whole(updates, context, state)
        theirs = context.cohort.named(stage.clients).unsqueeze(-1)
        return {"rows": torch.where(theirs, made["rows"], updates).nan_to_num()}, new

    return step


SEEN: dict[str, Callable[[Tensor, int, Tensor], Tensor]] = {
    "own": lambda theirs, place, places: places == place,
    "theirs": lambda theirs, place, places: theirs,
    "all": lambda theirs, place, places: places >= 0,
}
"""Which rows ``(n,)`` a client at a place may look at, of those that are ``theirs``."""


def _check_sees(stage: Any, trial: Trial, problems: Problems) -> None:
    """With other rows and proposals where it does not look, each of its clients sends and proposes the same."""
    sees = says(stage, "sees")
    problems.require(sees in SEEN, f"it sees {sees!r}: say {', '.join(SEEN)}")
    theirs = trial.context.cohort.named(stage.clients)
    for place in theirs.nonzero()[:, 0].tolist() if sees in SEEN else ():
        looked = SEEN[sees](theirs, place, torch.arange(len(theirs)))
        others = strange(trial.updates, place + trial.context.number)
        updates = torch.where(looked.unsqueeze(1), trial.updates, others)
        pairs = [_sent(stage, one, trial, place) for one in (trial.updates, updates)]
        problems.require(
            all(map(torch.equal, *pairs)), f"it looks at rows or proposals that are not {sees}: declare sees"
        )


def _sent(stage: Any, updates: Tensor, trial: Trial, place: int) -> list[Tensor]:
    """What the client at a place sends of some updates, and proposes where everybody would its first two columns."""
    sent = [stage.apply(updates, trial.context, trial.state)[0][place].nan_to_num()]
    if offers(stage, "proposals"):
        found = [row.argsort()[:2] for row in updates]
        sent.append(stage.proposals(found, updates, trial.context)[place])
    return sent


def _check_proposals(stage: Any, trial: Trial, problems: Problems) -> None:
    found = [row.argsort()[:2] for row in trial.updates]
    given = [one.clone() for one in found]
    updates = trial.updates.clone()
    said = stage.proposals(found, updates, trial.context)
    problems.require(torch.equal(updates, trial.updates), "it changes the updates that it was given, in place")
    require_proposals(said, len(found), DIMENSION, problems)
    again = stage.proposals(found, trial.updates, trial.context)
    problems.require(all(map(torch.equal, said, again)), "it proposes otherwise when repeated")
    problems.require(all(map(torch.equal, given, found)), "it changes the proposals that it was given, in place")
