"""A case: the run under audit, with everything an audit may look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Population, Request
from fuaudit.plans.schedule import Schedule, expand_many
from fuaudit.progress import Progress, silent
from fuaudit.runs.products import Checkpoints, products
from fuaudit.runs.prune import Tombstone
from fuaudit.runs.run import Run
from fuaudit.runs.writer import versions
from fuaudit.training.execute import Moment, beginning, execute
from fuaudit.training.setup import Setup, setup
from fuaudit.unlearning.protocol import is_editor


@dataclass(frozen=True)
class Case:
    """What is known about a run under audit.

    Attributes:
        run: the run; its integrity is already checked.
        parent: the run that it was made from, or what a prune left of it; None when it is not at hand.
        dataset: the rows at hand, None when the data cannot be read.
        key: draws of the audit itself.
        commitment: the commitment that an auditor holds from outside, if any.
        budget: the most training runs that may be executed; None for what the spec says.
    """

    run: Run
    parent: Run | Tombstone | None
    dataset: Dataset | None
    key: Keyed
    commitment: str | None = None
    budget: int | None = None
    progress: Progress = silent

    @property
    def request(self) -> Request | None:
        """What the run had to forget last; None for a training run."""
        return self.run.request if self.run.is_child else None

    @cached_property
    def unlearner(self) -> Any:
        """The installed unlearner that the run names, with its recorded options."""
        recorded = self.run.info["unlearner"]
        return registry.build("unlearners", {"use": recorded["use"], **recorded["options"]})

    @property
    def edited(self) -> bool:
        """Whether the model was made by an editor, so that no plan makes it."""
        return "edited_by" in self.run.info

    @property
    def is_editor(self) -> bool:
        """Whether the last unlearner was an editor."""
        return self.run.is_child and is_editor(self.unlearner)

    @cached_property
    def ready(self) -> Setup:
        """The run's config on this machine, with the engine that the run used. UsageError without data."""
        if self.dataset is None:
            raise UsageError("the data is not at hand", "Give --data ROOT.")
        return setup(self.run.config, None, self.dataset)

    @cached_property
    def before(self) -> Population:
        """The population before the last request; see :meth:`fuaudit.runs.run.Run.before`."""
        return self.run.before(self.ready.dataset.size)

    @property
    def erased_rows(self) -> frozenset[int]:
        """The sample ids that the last request took away."""
        if self.request is None or self.run.pruned:
            return frozenset(self.request.samples) if self.request else frozenset()
        owned = {s for c in self.request.clients for s in self.run.plan.populations[-2].samples.get(c, ())}
        return frozenset(owned | set(self.request.samples))

    @property
    def same_platform(self) -> bool:
        """Whether this machine computes with the same versions as the run, so that bits must agree."""
        ours = versions()
        recorded = self.run.info["versions"]
        return all(ours[name] == recorded.get(name) for name in ("torch", "numpy", "platform"))

    @cached_property
    def schedule(self) -> Schedule:
        """The run's plan, expanded, up to its last executed round."""
        whole = expand_many([self.run.plan])
        return Schedule(whole.cohorts[:, : self.run.executed], whole.batches[:, : self.run.executed])

    @cached_property
    def replayed(self) -> Checkpoints:
        """The models that the plan makes of the retained data, from scratch, at the rounds the run has stored."""
        ready, plan = self.ready, self.run.plan
        retained = plan.retained
        start = self._beginning()
        stored = {0: (start.vectors[0].cpu(), {k: v[0].cpu() for k, v in start.state.items()})}
        wanted = set(range(0, self.run.executed + 1, self.run.config.run.checkpoint_every)) | {self.run.executed}
        for round, moment in execute(
            ready.learning, ready.ground(retained), retained, self.schedule, start, ready.engine
        ):
            if round in wanted:
                stored[round] = (moment.vectors[0].cpu(), {k: v[0].cpu() for k, v in moment.state.items()})
            self.progress("replaying rounds", round, self.run.executed)
        return stored

    def _beginning(self) -> Moment:
        """The initial moment; from the record where the key of the initial draw was destroyed."""
        ready, plan = self.ready, self.run.plan
        dimension = ready.learning.layout.dimension
        if isinstance(plan.sources[plan.initial.source], Keyed):
            return beginning(ready.learning, plan.initial_uniform(dimension)[None], ready.device)
        vector, state = self.run.checkpoint(0)
        return Moment(vector[None].to(ready.device), {k: v[None].to(ready.device) for k, v in state.items()})

    @cached_property
    def regenerated(self) -> dict[str, bytes]:
        """Every file that follows from the retained data and the plan, computed from scratch."""
        return products(self.ready, self.run.plan.retained, self.schedule, self.replayed)
