"""The parts of a round by its config: as the ledger names them, and in words with the options that they are given."""

from __future__ import annotations

import json

from fuaudit.config import CLEAR, Config, Table, stage_kind


def parts_of(config: Config) -> list[Table]:
    """The parts of a round in their order: solver, client stages, transport, server stages."""
    return [config.solver, *config.client, config.transport or CLEAR, *config.server]


def named_parts(config: Config) -> dict[str, tuple[str, str]]:
    """Kind and name of the plugin of each part of a round, by the name that the ledger gives the part."""
    chains = {"client": config.client, "server": config.server}
    return {
        "solver": ("solvers", config.solver["use"]),
        "transport": ("transports", (config.transport or CLEAR)["use"]),
        **{
            f"{key}.{number}": (stage_kind(table, key), table["use"])
            for key, tables in chains.items()
            for number, table in enumerate(tables)
        },
    }


def in_words(config: Config) -> str:
    """The same, as "sgd -> clear -> trimmed-mean (trim 2)"."""
    return " -> ".join(map(_called, parts_of(config)))


def _called(table: Table) -> str:
    given = [f"{name} {_value(value)}" for name, value in table.items() if name != "use" and value is not None]
    return str(table["use"]) + f" ({', '.join(given)})" * bool(given)


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
