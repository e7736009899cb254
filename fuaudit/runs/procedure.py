"""A round in words: its parts in order, each with the options that its config gives it."""

from __future__ import annotations

import json

from fuaudit.config import CLEAR, Config, Table


def parts_of(config: Config) -> list[Table]:
    """The parts of a round in their order: solver, client stages, transport, server stages."""
    return [config.solver, *config.client, config.transport or CLEAR, *config.server]


def in_words(config: Config) -> str:
    """The same, as "sgd -> clear -> trimmed-mean (trim 2)"."""
    return " -> ".join(map(_called, parts_of(config)))


def _called(table: Table) -> str:
    given = [f"{name} {_value(value)}" for name, value in table.items() if name != "use" and value is not None]
    return str(table["use"]) + f" ({', '.join(given)})" * bool(given)


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
