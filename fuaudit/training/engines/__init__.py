"""Engines: five ways to run local SGD along given batches, which replay one plan to the same result."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

from fuaudit.errors import UsageError, nearest
from fuaudit.models.layout import linear_stack
from fuaudit.training.engines.batched import Batched
from fuaudit.training.engines.compiled import Compiled
from fuaudit.training.engines.grouped import Grouped, is_faster, require_suited
from fuaudit.training.engines.protocol import ClientProblem, Engine
from fuaudit.training.engines.reference import Reference
from fuaudit.training.engines.threads import Threads

ENGINES: dict[str, Callable[[int], Engine]] = {
    "reference": lambda workers: Reference(),
    "threads": Threads,
    "batched": Batched,
    "grouped": Grouped,
    "compiled": Compiled,
}
"""By the name under which a run records its engine."""


def engine(name: str, workers: int | None = None) -> Engine:
    """An engine by name; ``workers`` defaults to the processors at hand. UsageError for an unknown name."""
    if name not in ENGINES:
        raise UsageError(f"there is no engine called {name!r}", nearest(name, ENGINES))
    return ENGINES[name](workers or processors())


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_computed(name: str, module: nn.Module) -> None:
    """Raises UsageError where an engine, by its name, cannot compute a module."""
    if name == "grouped":
        require_suited(module)


def suggested(module: nn.Module, device: torch.device, dtype: torch.dtype, many: bool) -> str:
    """The engine of ``auto``, or that of ``many`` runs executed together, whose bits need not be those of a run.

    On a CPU one run has ``threads``, for the bits of the reference. Many have what measurements favour: ``batched`` for
    linear layers, ``grouped`` for small convolutions in a line, and ``threads`` for all else. A GPU has ``batched``.
    """
    if device.type != "cpu" or (many and linear_stack(module)):
        return "batched"
    return "grouped" if many and is_faster(module, dtype) else "threads"


__all__ = ["ENGINES", "ClientProblem", "Engine", "engine", "suggested"]
