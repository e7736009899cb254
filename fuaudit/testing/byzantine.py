"""The contract of Byzantine stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fuaudit.declared import offers, says
from fuaudit.testing.agreements import require_whole
from fuaudit.testing.client_stages import require_rows, round_of
from fuaudit.testing.contexts import SIZES, Step, strange
from fuaudit.testing.problems import Problems
from fuaudit.testing.trials import DTYPES, Trial, initial, trials
from fuaudit.training.rounds import RoundContext, State
from fuaudit.training.stages import Mean


def check_byzantine(stage: Any) -> None:
    """Check that a stage of Byzantine clients keeps its contract. It must name some of clients 0 to 5.

    Over rounds with the state carried on, in float32 and float64: as many rows and columns as it gets, dtype kept, the
    same when repeated, inputs and old state left alone (else rows of honest clients would change), a state of constant
    form with one row a client. Only draws of the clients that it names, and only where it declares them; how many
    clients and samples there are has no effect where that is not declared. It tells nothing. What its clients send may
    be infinite.
    Where it has ``proposals``: a list like ``found``, int64; its clients may propose columns that there are not.
    Nothing that it does not name in ``sees`` has an effect on what a client sends, proposes or keeps, in ``apply`` or
    in ``settle``: rows, proposals, what was sent of others, and their memories. The server's answer counts as nobody's.
    No global generator is touched.

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
"""Which rows ``(n,)`` a client at a place may look at, of those that are ``theirs``; and so of memories, by client."""


def _check_sees(stage: Any, trial: Trial, problems: Problems) -> None:
    """With others' rows, proposals and memories changed, each of its clients sends, proposes and keeps the same."""
    sees = says(stage, "sees")
    problems.require(sees in SEEN, f"it sees {sees!r}: say {', '.join(SEEN)}")
    cohort, members = trial.context.cohort, torch.arange(len(SIZES))
    theirs, named = cohort.named(stage.clients), torch.isin(members, torch.tensor(stage.clients))
    for place in theirs.nonzero()[:, 0].tolist() if sees in SEEN else ():
        client = int(cohort.clients[place])
        looked = SEEN[sees](theirs, place, torch.arange(len(theirs)))
        # a memory is somebody's as a row is: what is kept of others today would be sent tomorrow
        known = SEEN[sees](named, client, members)
        others = _changed(looked, trial.updates, strange(trial.updates, place + trial.context.number))
        memories = {name: _changed(known, table, table + 1) for name, table in trial.state.items()}
        sent = _changed(looked, trial.made["rows"], strange(trial.made["rows"], place))
        given = ((trial.updates, trial.state, trial.made["rows"]), (others, memories, sent))
        pairs = [_of_client(stage, *one, trial, place, client) for one in given]
        problems.require(
            all(map(torch.equal, *pairs)),
            f"it looks at rows, proposals or memories that are not {sees}: declare sees. What it keeps counts, too, in "
            "apply or in settle",
        )


def _changed(looked: Tensor, table: Tensor, others: Tensor) -> Tensor:
    """A table ``(n, d)`` with other rows where it is not looked at, ``(n,)``."""
    return torch.where(looked.unsqueeze(1), table, others)


def _of_client(
    stage: Any, updates: Tensor, state: State, sent: Tensor, trial: Trial, place: int, client: int
) -> list[Tensor]:
    """What the client at a place sends, and keeps after the round; and proposes where others would two columns each.

    The server's answer is nobody's row: who gets models can tell it, so it is the same for all.
    """
    rows, new = stage.apply(updates, trial.context, state)
    found = [rows[place].nan_to_num()]
    if offers(stage, "proposals"):
        proposed = [row.argsort()[:2] for row in updates]
        found.append(stage.proposals(proposed, updates, trial.context)[place])
    if offers(stage, "settle"):
        answer = Mean().apply(trial.made["rows"], trial.context, {})[0]
        new = stage.settle(sent.clone(), answer, trial.context, new)
    return found + [new[name][client] for name in sorted(new)]


def _check_proposals(stage: Any, trial: Trial, problems: Problems) -> None:
    found = [row.argsort()[:2] for row in trial.updates]
    given = [one.clone() for one in found]
    updates = trial.updates.clone()
    said = stage.proposals(found, updates, trial.context)
    problems.require(torch.equal(updates, trial.updates), "it changes the updates that it was given, in place")
    require_whole(said, len(found), problems)
    again = stage.proposals(found, trial.updates, trial.context)
    problems.require(all(map(torch.equal, said, again)), "it proposes otherwise when repeated")
    problems.require(all(map(torch.equal, given, found)), "it changes the proposals that it was given, in place")
