"""Commands that come next, with all that they need to show what they can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fuaudit.config import Config
from fuaudit.text import command


def to_forget(run: Path, name: str, method: str, commitment: str, data: Path | None) -> list[str]:
    """How a client is forgotten by a method, how that is verified, and how a report is written of it."""
    child = f"{run}-{method}"
    return [
        command("unlearn", run, **{"with": method}, client=name, data=data),
        command("verify", child, data=data, commitment=commitment, client=name),
        command("report", child),
    ]


def after_training(run: Any, data: Path | None) -> list[str]:
    """See :func:`to_forget`; for the first client of a run."""
    first = run.plan.retained.clients[0]
    return to_forget(run.path, run.name(first), method_for(run.config), run.commitment or "HEX", data)


def method_for(config: Config) -> str:
    """The unlearner that a config promises; else one that suits what it trains."""
    if config.unlearner is not None:
        return str(config.unlearner["use"])
    return "fats" if config.learner["use"] == "fats" and config.scaling == "none" else "retrain"
