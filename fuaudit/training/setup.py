"""What a config needs to be executed: data, learner, procedure, engine, device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fuaudit import registry
from fuaudit.config import Config
from fuaudit.data.adversaries import turned
from fuaudit.data.dataset import SCALINGS, Dataset, padded, require_rows, require_sound, retained_rows
from fuaudit.declared import says
from fuaudit.errors import PluginError, UsageError, nearest
from fuaudit.models import Embedding
from fuaudit.models.layout import require_reading
from fuaudit.plans import Population, Request
from fuaudit.plans.strange_laws import is_foreign
from fuaudit.plans.tried_laws import require_own_name
from fuaudit.training.engines import Engine, engine, require_computed, suggested
from fuaudit.training.engines.protocol import ClientProblem
from fuaudit.training.exchange import exchange_of
from fuaudit.training.execute import Procedure, StepSizes, client_problem, require_normal


@dataclass(frozen=True)
class Setup:
    """A config made executable on this machine. ``dataset`` holds all rows that are at hand.

    They are as they were read until they are :meth:`turned`.
    """

    config: Config
    dataset: Dataset
    learner: Any
    procedure: Procedure
    engine: Engine
    device: torch.device

    @property
    def engine_of_many(self) -> str:
        """The name of the engine for many runs at once that an audit makes itself, whatever the run's own is."""
        return suggested(self.procedure.module, self.device, self.procedure.dtype, many=True)

    def cpu_module(self) -> nn.Module:
        """A copy of the model's template on the CPU, for measuring."""
        return copy.deepcopy(self.procedure.module).to(device="cpu", dtype=self.procedure.dtype)

    def turned(self, owner: Mapping[int, int]) -> Setup:
        """The same with the rows of its config's adversaries as they turn them; see :func:`turned`."""
        return replace(self, dataset=turned(self.dataset, self.config.adversary, owner))

    def client_problem(self, population: Population) -> ClientProblem:
        """What engines train on over a population: every other row is overwritten, so it cannot be read."""
        return client_problem(self.procedure, retained_rows(self.dataset, population), population, self.device)


def device_of(name: str) -> torch.device:
    """A device; ``auto`` takes the GPU if there is one. UsageError for one that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"the device {name!r} is not available: {str(error).splitlines()[0]}") from None
    return device


def load_dataset(config: Config, data: Path | str | Dataset | None) -> Dataset:
    """The dataset of a config, from a folder where it needs one; or the rows themselves, where they are given.

    Raises:
        UsageError: it cannot be read, a folder was given and it reads none, or it is not sound
            (:func:`fuaudit.data.dataset.require_sound`).
        PluginError: the plugin raised, or returned something that is no dataset.
    """
    if data is not None and not isinstance(data, Path | str):
        require_rows(data)
        require_sound(data)
        return data
    plugin = registry.build("datasets", config.data)
    if data is not None and not says(plugin, "reads_folder"):
        # whoever gives one would take what was computed for a result of the rows in it
        raise UsageError(
            f"the dataset {config.data['use']!r} reads no folder, and {data} was given",
            "Leave out --data and --erased, or name in [data] a dataset that reads one.",
        )
    with registry.blaming(plugin, "load"):
        dataset = plugin.load(None if data is None else Path(data))
    if not isinstance(dataset, Dataset):
        raise PluginError(f"dataset {config.data['use']!r} returned {type(dataset).__name__}, not a Dataset")
    require_sound(dataset)
    return dataset


def build_module(config: Config, dataset: Dataset) -> nn.Module:
    """The model as a template. Layers fill their parameters from torch's global generator: it is put back.

    Raises:
        UsageError: the model cannot read the inputs of the dataset.
        PluginError: the recipe raised, or built no module.
    """
    recipe = registry.build("models", config.model)
    with registry.blaming(recipe, "build"), torch.random.fork_rng(devices=[]):
        module = recipe.build(dataset.shape, dataset.classes)
    if not isinstance(module, nn.Module):
        raise PluginError(f"model {config.model['use']!r} built {type(module).__name__}, not a module")
    require_reading(module, dataset.inputs)
    _require_tokens(module, dataset)
    return module


def _require_tokens(module: nn.Module, dataset: Dataset) -> None:
    """Raises UsageError when a model with an embedding gets tokens that no embedding of it has."""
    known = max((m.num_embeddings for m in module.modules() if isinstance(m, Embedding)), default=None)
    if known is None:
        return
    present = torch.ones(dataset.size, dtype=torch.bool)
    present[sorted(dataset.absent)] = False
    highest = [inputs.flatten(1).amax(1) for inputs in (dataset.inputs, dataset.test_inputs)]
    token = max(int(highest[0][present].max()), int(highest[1].max()))
    if token >= known:
        raise UsageError(
            f"the inputs hold the token {token}; the model knows 0 to {known - 1}",
            "Give the model as many tokens as there are, as in: tokens = N for the model lstm.",
        )


COUNTS = frozenset({"clients", "samples"})
"""What a round can depend on beyond the batches of its participants."""


def depends_on(config: Config) -> frozenset[str]:
    """What rounds under a config depend on beyond the batches of their participants: part of :data:`COUNTS`.

    Raises:
        PluginError: a solver or a stage declares something else in ``depends_on``.
    """
    return frozenset[str]().union(*(kinds for _, kinds in _dependences(config)))


def _dependences(config: Config) -> Iterator[tuple[str, frozenset[str]]]:
    """What makes rounds depend on counts, in words, and on which: part of :data:`COUNTS`, each."""
    if config.scaling != "none":
        yield f"scaling {config.scaling!r}", COUNTS
    for plugin in (registry.build("solvers", config.solver), *exchange_of(config).parts):
        declared: object = says(plugin, "depends_on")
        if not isinstance(declared, frozenset) or not declared <= COUNTS:
            raise PluginError(
                f"{registry.called(plugin)} declares depends_on as {declared!r}",
                f"It must be a frozenset of {' and '.join(map(repr, sorted(COUNTS)))}.",
            )
        yield f"the {registry.called(plugin)}", declared
    if _may_recount(config):
        yield "who counts in a sum under a law of another package, whose batches can be empty,", frozenset({"samples"})


def _may_recount(config: Config) -> bool:
    """Whether a request can change who counts in sums of rounds that are kept.

    It can where steps have noise and a stranger's law draws an empty batch of a client with samples: such a client
    counts, until it has none. See :attr:`fuaudit.training.rounds.Cohort.trained`.
    """
    law = registry.build("learners", config.learner).law
    noisy = says(registry.build("solvers", config.solver), "draws") and not says(law, "divisor")
    return bool(noisy) and exchange_of(config).transport.shows == "sums" and is_foreign(law)


def depended_on(config: Config, request: Request) -> str:
    """What rounds under a config depend on that a request changes, drawn or not: "all clients", for example, or "".

    Raises:
        PluginError: as :func:`depends_on`.
    """
    return " and ".join(f"all {kind}" for kind in sorted(request.kinds & depends_on(config)))


def depending(config: Config, request: Request) -> str:
    """What of a config makes its rounds depend on what a request changes: each part, and on which; "" for nothing.

    Raises:
        PluginError: as :func:`depends_on`.
    """
    found = [(who, sorted(request.kinds & kinds)) for who, kinds in _dependences(config)]
    return "; ".join(f"{who} depends on how many {' and '.join(kinds)} there are" for who, kinds in found if kinds)


def setup(config: Config, data: Path | str | Dataset | None = None, rows: int = 0) -> Setup:
    """Build everything a config names. Its ``config`` says which engine and device ``auto`` has become.

    A run records that config, so its audits compute on the same engine and kind of device. ``rows`` is how many
    training rows a run knows; those that the dataset lacks are absent.
    """
    dataset = padded(load_dataset(config, data), rows)
    if config.scaling not in SCALINGS:
        raise UsageError(f"scaling = {config.scaling!r} is not known", nearest(config.scaling, SCALINGS))
    device = device_of(config.run.device)
    module = build_module(config, dataset)
    learner = registry.build("learners", config.learner)
    require_own_name(learner.law)
    solver = registry.build("solvers", config.solver)
    step_sizes = StepSizes(learner.step_size, learner.decay)
    dtype = getattr(torch, config.run.dtype)
    require_normal(step_sizes, learner.law.rounds, dtype)
    procedure = Procedure(
        module, exchange_of(config), step_sizes, solver, config.scaling, dtype, says(learner.law, "divisor")
    )
    name = suggested(module, device, dtype, many=False) if config.run.engine == "auto" else config.run.engine
    require_computed(name, module)  # refused here, and not in the first round
    chosen = replace(config, run=replace(config.run, engine=name, device=device.type))  # type: ignore[arg-type]
    return Setup(chosen, dataset, learner, procedure, engine(name), device)
