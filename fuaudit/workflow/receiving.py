"""Which configs can have rounds that come in messages: those of which a record holds all that is sent."""

from __future__ import annotations

from dataclasses import replace

import torch

from fuaudit.errors import UsageError
from fuaudit.plans import Population
from fuaudit.training.rounds import SOLVER, owner_of
from fuaudit.training.setup import Setup


def receiving(ready: Setup) -> Setup:
    """A setup whose rounds come in messages; UsageError for a config of which a record cannot hold all that is sent."""
    procedure = replace(ready.procedure, exchange=replace(ready.procedure.exchange, received=True))
    if ready.config.budget is not None:
        raise UsageError(
            "rounds that come in messages keep to no budget: nothing here shows what clients let out",
            "Leave [budget] out; what clients do for their privacy they have to account for themselves.",
        )
    memory = procedure.initial_memory(1, ready.device)
    if kept := sorted(name for name in memory if owner_of(name) == SOLVER):
        raise UsageError(
            f"the solver {ready.config.solver['use']!r} has the server keep {kept[0].removeprefix(SOLVER)!r}, made of "
            "what clients send beside their update",
            "A record has room for updates alone: take another solver.",
        )
    return replace(ready, procedure=procedure)


def size_of_records(ready: Setup, population: Population) -> int:
    """About how many bytes records take at most."""
    law, element = ready.learner.law, torch.empty(0, dtype=ready.procedure.dtype).element_size()
    return int(law.rounds * law.places(population.of_laws) * ready.procedure.layout.dimension * element)
