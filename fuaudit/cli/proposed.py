"""Commands that come next, with all that they need to show what they can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fuaudit.config import Config
from fuaudit.text import command


def to_forget(
    run: Path, name: str, method: str, commitment: str, data: Path | None, beacon: str | None = None
) -> list[str]:
    """How a client is forgotten by a method, how that is verified, and how a report is written of it."""
    forget = command("unlearn", run, **{"with": method}, client=name, data=data)
    return [forget, *to_verify(Path(f"{run}-{method}"), commitment, data, (name,), beacon=beacon)]


def to_verify(
    child: Path,
    commitment: str,
    data: Path | None,
    clients: tuple[str, ...],
    samples: tuple[str, ...] = (),
    parent: Path | None = None,
    beacon: str | None = None,
) -> list[str]:
    """How it is verified that some were forgotten, and how a report is written of it."""
    given = {"data": data, "parent": elsewhere(child, parent), "commitment": commitment, "beacon": beacon}
    whom = {"client": tuple(dict.fromkeys(clients)), "sample": tuple(dict.fromkeys(samples))}
    return [
        command("verify", child, **given, **whom),
        command("report", child),
    ]


def run_of(config: Path) -> Path | None:
    """Where the run of an imported folder goes, whose config is called as all such are; else None, for the default."""
    from fuaudit.runs.layout import CONFIG

    return Path("runs") / config.resolve().parent.name if config.name == CONFIG else None


def elsewhere(child: Path, parent: Path | None) -> Path | None:
    """The parent where it does not lie beside its child, so that it has to be given; else None."""
    return None if parent is None or parent.resolve().parent == child.resolve().parent else parent


def after_training(run: Any, data: Path | None) -> list[str]:
    """What comes after training: sums of a suite are verified, and the first client of the run is forgotten.

    Where no request can be carried out on the run none is proposed.
    """
    forget = to_unlearn(run, data)
    return [*to_verify_sums(run, data), *(forget or [command("report", run.path)])]


def to_unlearn(run: Any, data: Path | None) -> list[str]:
    """See :func:`to_forget`; for the first client of a run. Empty where no request can be carried out on it."""
    from fuaudit.runs.ledger import suite_of

    if suite_of(run.ledger) is not None:
        from fuaudit.workflow.secured import never_unlearned

        if never_unlearned(run):
            return []
    first = run.plan.retained.clients[0]
    return to_forget(run.path, run.name(first), method_for(run.config), run.commitment or "HEX", data, run.beacon)


def to_verify_sums(run: Any, data: Path | None, parent: Path | None = None) -> list[str]:
    """How the messages are verified of a run whose sums a suite made; else nothing."""
    from fuaudit.runs.ledger import suite_of

    if suite_of(run.ledger) is None:
        return []
    given: dict[str, Any] = {"spec": "secure-aggregation", "data": data, "parent": elsewhere(run.path, parent)}
    given |= {"commitment": run.commitment or "HEX", "beacon": run.beacon}
    return [command("verify", run.path, **given, **{"ledger-head": run.ledger.head})]


def to_verify_view(view: Any) -> list[str]:
    """How whoever is given a sealed view verifies it: with what he received before training, and a list of parties.

    Empty where no suite made sums, or a prune removed the messages: these are all that can be shown of a view.
    """
    from fuaudit.runs.ledger import suite_of

    if suite_of(view.ledger) is None or view.pruned:
        return []
    given = {"commitment": view.commitment, "beacon": view.beacon, "ledger-head": view.ledger.head, "roster": "FILE"}
    return [command("verify", view.path, spec="sealed-view", **given)]


def method_for(config: Config) -> str:
    """The unlearner that a config promises; else one that suits what it trains."""
    if config.unlearner is not None:
        return str(config.unlearner["use"])
    return "fats" if config.learner["use"] == "fats" and config.scaling == "none" else "retrain"
