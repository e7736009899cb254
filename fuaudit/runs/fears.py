"""Fears: where more rows of a round may be bad than its transport, or its rule of the server, has a guarantee for."""

from __future__ import annotations

from collections.abc import Iterator

from fuaudit.data.adversaries import clients_of
from fuaudit.declared import says
from fuaudit.registry import build, called
from fuaudit.runs.run import Run
from fuaudit.runs.sums import buffers_of
from fuaudit.text import counted, span
from fuaudit.training.stages import Mean, borne, rows_left


def fears_of(run: Run) -> list[str]:
    """What a config may mean, and nobody would guess of its results: a sentence each, in the order of the parts.

    Attackers are the clients of Byzantine stages and of adversaries that are left. Each of them can spoil a row, or the
    sum that it is in. An erasure leaves fewer rows, and as many attackers: so a child is asked by who is left.
    """
    return [*_unfeared(run), *_alone(run)]


def _unfeared(run: Run) -> Iterator[str]:
    exchange, transport = run.exchange, run.exchange.transport
    turned = [clients_of(build("adversaries", table), table["use"]) for table in run.config.adversary]
    attackers = sorted(exchange.deviating.union(*turned).intersection(run.members))
    reckoned = int(says(transport, "byzantine"))
    if transport.shows == "sums" and reckoned < len(attackers):
        named = f"the config names {counted(len(attackers), 'attacker')} (ids {span(attackers)})"
        yield f"{named}, and the {called(transport)} fears {reckoned}: no guarantee is about so many"
    bad, rows = max(reckoned, len(attackers)), _rows(run)
    for stage in exchange.server.stages[: exchange.server.aggregating]:
        most = borne(stage, rows, otherwise=bad)
        if most < min(bad, rows):
            yield (
                f"of {counted(rows, 'row')} of a round {min(bad, rows)} may be bad, and the {called(stage)} bears "
                f"{most}: no guarantee is about so many"
            )
        rows = rows_left(stage, rows, rows)


def _rows(run: Run) -> int:
    """How many rows come to the server at most, of the clients that are left."""
    trained = max(0, run.places - len(run.emptied))
    return rows_left(run.exchange.transport, run.places, run.places, trained)


def _alone(run: Run) -> Iterator[str]:
    """A rule that is never given more than one sum has nothing to choose from."""
    buffers = buffers_of(run) if run.exchange.transport.shows == "sums" else ()
    server = run.exchange.server
    rule = server.stages[server.aggregating - 1]
    if len(buffers) == 1 and type(rule) is not Mean:
        yield f"all of a round are in one sum, so the {called(rule)} gets one row, and can compare it with none"
