"""Memory: what a round cannot do without is compared with what the machine has, before anything is drawn or written.

Counted is what certainly is there at once: all that solver, clients and server keep, before and after a round, and the
updates of a round. Copies that a stage makes come on top of it. Asked is how much memory the machine has, not how much
of it is free, which changes while training goes on.
"""

from __future__ import annotations

import os
from contextlib import suppress

import torch

from fuaudit.errors import UsageError
from fuaudit.plans import Population
from fuaudit.registry import called
from fuaudit.text import amount
from fuaudit.training.execute import Procedure
from fuaudit.training.rounds import CLIENT, SERVER, prefix_of
from fuaudit.training.setup import Setup


def memory_of(device: torch.device) -> int | None:
    """How many bytes of memory a device has; None where the operating system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def require_memory(ready: Setup, population: Population) -> None:
    """Check that the device of a training has the memory for what is kept from round to round.

    A plugin that can make its state only on a device is not asked.

    Raises:
        UsageError: it has less; the message says how much is needed, and for what.
    """
    has = memory_of(ready.device)
    try:
        state = ready.procedure.initial_memory(len(population.clients), torch.device("meta"))
    except Exception:
        return  # training asks again, and says what is wrong
    places = ready.learner.law.places(population.of_laws)
    dimension, dtype = ready.procedure.layout.dimension, ready.procedure.dtype
    updates = torch.empty(places, dimension, dtype=dtype, device="meta")
    keepers = _keepers(ready.procedure)
    parts = [(f"the updates of a round, {places} x {dimension:,}", updates.nbytes)]
    for name, tensor in state.items():
        keeper = max((prefix for prefix in keepers if name.startswith(prefix)), key=len)
        shape = " x ".join(f"{extent:,}" for extent in tensor.shape)
        what = f"{name.removeprefix(keeper)} of the {keepers[keeper]}, {shape}, before and after a round"
        parts.append((what, 2 * tensor.nbytes))
    needed = sum(size for _, size in parts)
    if has is None or needed <= has:
        return
    told = "; ".join(f"{amount(size)} for {what}" for what, size in sorted(parts, key=lambda part: -part[1])[:4])
    raise UsageError(
        f"training needs at least {amount(needed)} of memory, and this machine has {amount(has)}: {told}",
        "Take fewer clients or a smaller model, leave out what keeps a row a client, or train on a larger machine.",
    )


def _keepers(procedure: Procedure) -> dict[str, str]:
    """Prefix of names in a state -> whose they are, in words."""
    chains = {CLIENT: procedure.exchange.client_stages.stages, SERVER: procedure.exchange.server.stages}
    stages = {f"{side}{number}.": called(stage) for side, chain in chains.items() for number, stage in enumerate(chain)}
    return stages | {prefix_of(procedure.solver): called(procedure.solver)}
