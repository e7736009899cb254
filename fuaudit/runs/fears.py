"""Fears: where the config of a run names more attackers than its transport or its rule of the server reckons with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuaudit.data.adversaries import clients_of
from fuaudit.registry import build, called
from fuaudit.runs.run import Run
from fuaudit.runs.sums import buffers_of
from fuaudit.text import counted, span
from fuaudit.training.stages import Mean

FEARED = "byzantine", "trim"
"""Options of a part that say how many bad rows it reckons with, where they are whole numbers."""


def fears_of(run: Run) -> list[str]:
    """What a config may mean, and nobody would guess of its results: a sentence each, in the order of the parts.

    Attackers are the clients of Byzantine stages and of adversaries that are left. Each of them can spoil a row, or the
    sum that it is in.
    """
    return [*_unfeared(run), *_alone(run)]


def _unfeared(run: Run) -> Iterator[str]:
    exchange = run.exchange
    turned = [clients_of(build("adversaries", table), table["use"]) for table in run.config.adversary]
    attackers = sorted(exchange.deviating.union(*turned).intersection(run.members))
    parts: list[Any] = [exchange.transport, *exchange.server.stages]
    feared = [(part, number) for part in parts for number in _feared(part)]
    if fewer := [f"the {called(part)} fears {number}" for part, number in feared if number < len(attackers)]:
        named = f"the config names {counted(len(attackers), 'attacker')} (ids {span(attackers)})"
        yield f"{named}, and {' and '.join(fewer)}: no guarantee is about so many"


def _feared(part: object) -> Iterator[int]:
    """How many bad rows a part says that it reckons with; nothing where it says none, or a share of what comes."""
    for name in FEARED:
        number = getattr(part, name, None)
        if type(number) is int:
            yield number


def _alone(run: Run) -> Iterator[str]:
    """A rule that is never given more than one sum has nothing to choose from."""
    buffers = buffers_of(run) if run.exchange.transport.shows == "sums" else ()
    server = run.exchange.server
    rule = server.stages[server.aggregating - 1]
    if len(buffers) == 1 and type(rule) is not Mean:
        yield f"all of a round are in one sum, so the {called(rule)} gets one row, and leaves out nobody"
