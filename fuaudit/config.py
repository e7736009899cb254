"""Configs: what to train, as TOML. Checked as a whole before anything is drawn; the resolved copy goes into the run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard

from fuaudit import registry
from fuaudit.budgets.target import Target
from fuaudit.declared import is_agreement, must_say, says
from fuaudit.errors import UsageError, nearest, nearest_beside
from fuaudit.options import option_values, options
from fuaudit.reading import require_regular

Table = dict[str, Any]

Named = tuple[Table, Any]
"""What a config names: a table with every default written out, and the plugin."""

LONGEST = 2**20
"""Bytes of a TOML file."""

MOST_STAGES = 16
"""Stages of a chain: nothing regenerates a config, and a chain without end has room for anything."""

DEEPEST = 64
"""Levels of a TOML file; what follows a value down, such as ``repr``, ends at some depth."""


def parse_toml(text: str) -> Table:
    """The table that a text in TOML holds.

    Raises:
        ValueError: it is no TOML, nested too deeply, or has a whole number of more than 64 bits.
    """
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    values: list[object] = [table]
    for _ in range(DEEPEST):
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
            raise ValueError("it has a whole number of more than 64 bits")
        inner = [value.values() if isinstance(value, dict) else value for value in values if _holds(value)]
        values = [value for held in inner for value in held]
    if values:
        raise ValueError("it is nested too deeply")
    return table


def _holds(value: object) -> TypeGuard[Table | list[object]]:
    """Whether a value of TOML has values inside."""
    return isinstance(value, dict | list)


def read_toml(path: Path, what: str, hint: str) -> Table:
    """The table that a TOML file holds.

    Args:
        what: what the file is to the user, for messages.
        hint: what to do where there is no such file.

    Raises:
        UsageError: it is missing, cannot be read, or is no TOML.
    """
    require_regular(path, LONGEST)
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"there is no {what} {path}", hint) from None
    except OSError as error:
        raise UsageError(f"the {what} {path} cannot be read: {error.strerror or error}", hint) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not TOML: byte {error.start} is no UTF-8", "Save it as text in UTF-8.") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


@dataclass(frozen=True)
class RunOptions:
    """The table ``[run]``: how to compute and what to keep. None of it changes which draws are made.

    The run records which engine and device were chosen for ``auto``, and its audits use the same.

    Attributes:
        checkpoint_every: after so many rounds model and state are stored, and after the last one.
        engine: what computes the rounds; "reference" and "threads" give equal bits, "grouped" takes small CNNs alone.
        device: where they are computed.
        dtype: of models, and of what they read.
        requests: how many requests, one after another, the commitment has room for.
    """

    checkpoint_every: int = 5
    engine: Literal["auto", "reference", "threads", "batched", "grouped", "compiled"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "float64"] = "float32"
    requests: int = 32

    def __post_init__(self) -> None:
        if self.checkpoint_every < 1:
            raise UsageError(f"checkpoint_every must be at least 1, not {self.checkpoint_every}")
        if self.requests < 1:
            raise UsageError(f"requests must be at least 1, not {self.requests}")


@dataclass(frozen=True)
class Config:
    """A resolved config. Every table but ``run`` names a plugin by ``use`` and gives its options.

    Attributes:
        data: the data set.
        partition: how its rows are dealt to clients.
        adversary: who turns rows of named clients, after they were dealt and before anything is committed to, a list of
            tables; left out, nobody.
        model: the model.
        learner: who takes part in which round, and with which step sizes.
        solver: how clients take their steps; left out, the learner's own.
        client: the chain of client stages, a list of tables; left out, the learner's own, mostly none.
        transport: how rows come to the server; left out, each as it is.
        server: the chain of stages, a list of tables; left out, the learner's own.
        scaling: what is done to inputs: "none", or "standardise", which subtracts the mean of all training inputs and
            divides by their standard deviation.
        run: how to compute and what to keep.
        unlearner: names, before training, the method for requests to come; left out, it stays open.
        budget: the epsilon that the rounds of a run keep to; left out, none is promised.
    """

    data: Table
    partition: Table
    model: Table
    learner: Table
    solver: Table
    server: tuple[Table, ...]
    scaling: str = "none"
    run: RunOptions = field(default_factory=RunOptions)
    unlearner: Table | None = None
    client: tuple[Table, ...] = ()
    transport: Table | None = None
    budget: Target | None = None
    adversary: tuple[Table, ...] = ()

    def tables(self) -> Table:
        """As plain tables, for TOML; of what is left out nothing is written."""
        optional = {"client": self.client, "adversary": self.adversary}
        plain = {name: value for name, value in asdict(self).items() if value is not None and name not in optional}
        if self.budget:
            plain["budget"] = {name: value for name, value in plain["budget"].items() if value is not None}
        chains = {name: list(chain) for name, chain in optional.items() if chain}
        return plain | {"server": list(self.server)} | chains

    @property
    def plugins(self) -> list[tuple[str, str]]:
        """Kind and name of every plugin that makes a run, in the order in which a run lists them."""
        named = [(kind, self.tables()[table]["use"]) for table, kind in TABLES.items()]
        transport = [self.transport] if self.transport else []
        exchange = {"client": self.client, "transport": transport, "server": self.server}
        named += [("adversaries", table["use"]) for table in self.adversary]
        return named + [(stage_kind(stage, key), stage["use"]) for key, stages in exchange.items() for stage in stages]


TABLES = {"data": "datasets", "partition": "partitions", "model": "models", "learner": "learners", "solver": "solvers"}
"""The tables of a config that name one plugin, and their kinds."""

STAGE_KINDS = {
    "adversary": ("adversaries",),
    "client": ("client_stages", "byzantine"),
    "transport": ("transports",),
    "server": ("aggregators", "stages"),
}
"""The keys of an exchange, and that of adversaries, and the groups in which their tables are looked up."""

CLEAR = {"use": "clear"}
"""The transport of a config that names none."""


def resolve(table: Mapping[str, object], origin: str = "the config") -> Config:
    """A config from plain tables.

    Raises:
        UsageError: all that is wrong with names, options and types, in one message.
    """
    known = {*TABLES, *STAGE_KINDS, "scaling", "run", "unlearner", "budget"}
    problems = [f"{origin} has no table {name!r}. {nearest(name, known)}" for name in table if name not in known]
    named, run = _plugins(table, origin, problems), RunOptions()
    with _joining(problems, f"{origin}, [run]"):
        if not isinstance(given := table.get("run", {}), Mapping):
            raise UsageError(_no_table(given), "Write [run], and its options below.")
        run = RunOptions(**options(RunOptions, "how to compute", given))
    budget: Target | None = None
    with _joining(problems, f"{origin}, [budget]"):
        if not isinstance(given := table.get("budget", {}), Mapping):
            raise UsageError(_no_table(given), "Write [budget], and epsilon and delta below.")
        if "budget" in table:
            budget = Target(**options(Target, "a budget", given))
    learner = named["learner"][1] if "learner" in named else None
    adversaries = _chain(table, "adversary", (), origin, problems)
    client = _chain(table, "client", says(learner, "client"), origin, problems)
    server = _chain(table, "server", learner.server if learner else (), origin, problems)
    with _joining(problems, f"{origin}, [transport]"):
        named["transport"] = _stage(table.get("transport", CLEAR), "transport")
    # without a learner its own stages are not known, and nothing can be said of them
    if not problems:
        misfits = _misfits(client, named["transport"][1], server, named["solver"][1])
        problems += [f"{origin}: {misfit}" for misfit in misfits]
    with _joining(problems, f"{origin}, [unlearner]"):
        if "unlearner" in table:
            if not isinstance(table["unlearner"], Mapping):
                raise UsageError(_no_table(table["unlearner"]), 'It names a plugin: use = "...".')
            named["unlearner"] = _named("unlearners", table["unlearner"])
    scaling = table.get("scaling", "none")
    if not isinstance(scaling, str):
        problems.append(f'{origin}: scaling = {scaling!r} is no text such as "none"')
    if problems:
        raise UsageError("\n".join(problems))
    chosen: dict[str, Any] = {name: whole for name, (whole, _) in named.items()}
    if chosen["transport"] == CLEAR:
        del chosen["transport"]
    chains = {"adversary": adversaries, "client": client, "server": server}
    chosen |= {key: tuple(whole for whole, _ in chain) for key, chain in chains.items()}
    return Config(**chosen, scaling=str(scaling), run=run, budget=budget)


@contextmanager
def _joining(problems: list[str], where: str) -> Iterator[None]:
    """What is wrong within it joins the problems, with the file and the table: all are said together."""
    try:
        yield
    except UsageError as error:
        problems.append(f"{where}: {error}")


def _no_table(found: object) -> str:
    """What is wrong where something else stands in the place of a table."""
    return f"it must be one table, not {_found(found)}"


def _found(value: object) -> str:
    """A value that stands in a wrong place, in the words of TOML."""
    if isinstance(value, Mapping):
        return "one table"
    is_tables = isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
    return "a list of tables, [[...]]" if is_tables else repr(value)


def _named(kind: str, table: Mapping[str, Any]) -> Named:
    plugin = registry.build(kind, table)
    return _complete(plugin, dict(table)), plugin


def _stage(table: Any, key: str) -> Named:
    return _named(stage_kind(table, key), table)


def _plugins(table: Mapping[str, object], origin: str, problems: list[str]) -> dict[str, Named]:
    """The plugins of :data:`TABLES`; a solver that is left out is the learner's own. Adds to the problems."""
    found: dict[str, Named] = {}
    for name, kind in TABLES.items():
        given = table.get(name)
        if name == "solver" and name not in table:
            if "learner" not in found:
                continue  # the learner, which has a default, is wrong already
            given = found["learner"][1].solver
        if name not in table and given is None:
            problems.append(f'{origin} needs the table [{name}]\n  It names a plugin: use = "...".')
            continue
        with _joining(problems, f"{origin}, [{name}]"):
            if not isinstance(given, Mapping):
                raise UsageError(_no_table(given), 'It names a plugin: use = "...".')
            found[name] = _named(kind, given)
    return found


def _chain(
    table: Mapping[str, object], key: str, own: Iterable[Table], origin: str, problems: list[str]
) -> list[Named]:
    """The chain under a key, the learner's own where the config has none; adds to the problems."""
    given = table.get(key, [])
    if given == []:
        given = list(own)
    if not isinstance(given, list):
        problems.append(f"{origin}: {key} must be a list of tables, [[{key}]], not {_found(given)}")
        return []
    if len(given) > MOST_STAGES:
        problems.append(f"{origin}: [[{key}]] has {len(given)} stages; a chain has at most {MOST_STAGES}")
        return []
    found: list[Named] = []
    for number, stage in enumerate(given, 1):
        with _joining(problems, f"{origin}, [[{key}]]{f' {number}' if len(given) > 1 else ''}"):
            found.append(_stage(stage, key))
    return found


def _misfits(client: list[Named], transport: object, server: list[Named], solver: object) -> list[str]:
    """What is wrong with an exchange of known stages, as far as their names and what they declare tell."""
    first = next((at for at, (table, _) in enumerate(server) if stage_kind(table) == "aggregators"), None)
    if first is None:
        known = ", ".join(sorted(registry.entries("aggregators")))
        return [f"server has no aggregator, so it leaves a row for every participant. Known: {known}."]
    early = [table["use"] for table, stage in server[:first] if says(stage, "after_aggregation")]
    if early:
        wrong, aggregator = early[0], server[first][0]["use"]
        return [
            f"{wrong!r} takes one row, but before {aggregator!r} there is one for every participant. "
            f'Write [[server]] use = "{aggregator}" first, then [[server]] use = "{wrong}".'
        ]
    chains = [
        *_after_agreement(client, server),
        *_behind(transport, server, solver),
        *_after_aggregator(server[first:]),
    ]
    return [*_before(client, solver), *chains]


def _after_aggregator(server: list[Named]) -> list[str]:
    """What stands behind an aggregator, the first of these, and needs the rows of several."""
    (first, _), *behind = server
    return [
        f"{table['use']!r} needs a row for every participant, but {first['use']!r} before it leaves one. Leave one of "
        "them out: a chain has one aggregator, and what needs several rows stands in front of it."
        for table, stage in behind
        if stage_kind(table) == "aggregators" or says(stage, "merges") or _needs_several(stage)
    ]


def _needs_several(stage: object) -> bool:
    """Whether a stage says that it needs two rows or more; whoever says no number is told so elsewhere."""
    least = says(stage, "least_rows")
    return type(least) is int and least > 1


def _shown(solver: Any) -> bool:
    """Whether a solver keeps rows of clients that the server has."""
    return bool(solver.per_client_state) and not says(solver, "private")


def _before(client: list[Named], solver: object) -> list[str]:
    """What stands behind a solver that keeps rows of clients: the server has them as they were before it."""
    return [
        f"the {registry.called(solver)} keeps rows of clients as they are before {table['use']!r}, and the server "
        "sees them. Use a solver that keeps none, such as sgd."
        for table, _ in client
        if _shown(solver) and stage_kind(table, "client") == "client_stages"
    ]


def _after_agreement(client: list[Named], server: list[Named]) -> list[str]:
    """What keeps whole rows of clients where an agreement has left shorter ones."""
    stages = [*client, *server]
    agreed = next((at for at, (_, stage) in enumerate(client) if is_agreement(stage)), len(stages))
    return [
        f"after an agreement rows are shorter than the model, but {table['use']!r} keeps whole ones of clients: put it "
        "before the agreement, if it is a client stage"
        for table, stage in stages[agreed + 1 :]
        if says(stage, "per_client_state")
    ]


def _behind(transport: Any, server: list[Named], solver: Any) -> list[str]:
    """What cannot stand behind a transport."""
    if must_say(transport, "shows") not in ("rows", "sums"):
        return [f"the {registry.called(transport)} must say in shows whether the server sees 'rows' or 'sums'"]
    sums = transport.shows == "sums"
    merged = next((at for at, (_, stage) in enumerate(server, 1) if says(stage, "merges")), len(server))
    # who looks at one client's row cannot work on sums, and what it keeps would tell what was hidden
    looking = [f"the {registry.called(solver)} keeps one a client"] * bool(sums and _shown(solver))
    for table, stage in server if sums else server[merged:]:
        looking += [f"{table['use']!r} keeps one a client"] * bool(stage.per_client_state)
        # how many clients there are in all is public, and who stands where is not told behind sums
        asking = f"{table['use']!r} asks how many samples are behind it ('mean' does not)"
        looking += [asking] * ("samples" in says(stage, "depends_on"))
    return [f"behind sums nobody sees a client's row, but {why}" for why in looking]


def _complete(plugin: Any, table: Table) -> Table:
    """The table with every default written out, so that a later version's defaults cannot change a run."""
    values = {name: value for name, value in option_values(plugin).items() if value is not None}
    return {"use": table["use"], **values}


def stage_kind(table: object, key: str = "server") -> str:
    """In which group a stage under a key of a config is registered; UsageError when in none."""
    name, kinds = table.get("use") if isinstance(table, Mapping) else None, STAGE_KINDS[key]
    if not isinstance(name, str):
        raise UsageError(f'{_written(key)} must be a table with use = "...", not {_found(table)}', "It names a plugin.")
    for kind in kinds:
        if name in registry.entries(kind):
            return kind
    for other, others in STAGE_KINDS.items():
        if there := next((registry.entries(kind)[name] for kind in others if name in registry.entries(kind)), None):
            raise UsageError(f"{there.words} does not belong under {_written(key)}", f"Write {_written(other)}.")
    known = {name for kind in kinds for name in registry.entries(kind)}
    called = " or ".join(map(registry.singular, kinds))
    raise registry.missing(called, name, known)


def _written(key: str) -> str:
    """One of these keys, as a config has it."""
    return f"[{key}]" if key == "transport" else f"[[{key}]]"


def build_stage(table: object, key: str = "server") -> Any:
    """A stage under a key of a config."""
    return registry.build(stage_kind(table, key), table)  # type: ignore[arg-type]


def read_config(path: Path) -> Config:
    """A config from a TOML file. UsageError when it is missing, cannot be read, no TOML, or wrong."""
    near = nearest_beside(path, lambda item: item.suffix == ".toml")
    return resolve(read_toml(path, "config", near or "Examples are in examples/."), str(path))
