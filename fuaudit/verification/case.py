"""A case: the run under audit, with everything an audit may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fuaudit import registry
from fuaudit.commitments.contents import Differences
from fuaudit.data.dataset import Dataset
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Plan, Population, Request
from fuaudit.plans.schedule import LazySchedule, Rounds
from fuaudit.progress import Progress, silent
from fuaudit.runs.derived_files import Checkpoints, derived_files
from fuaudit.runs.layout import stored_rounds
from fuaudit.runs.platforms import Platform, made
from fuaudit.runs.prune import Tombstone, parent_of
from fuaudit.runs.receipts import Receipt
from fuaudit.runs.run import Run
from fuaudit.runs.writer import plugins_of, versions
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import Setup, setup
from fuaudit.unlearning.protocol import is_editor
from fuaudit.verification.athand import AtHand, at_hand
from fuaudit.verification.counterfactual import Counterfactuals, counterfactuals
from fuaudit.verification.served import Served
from fuaudit.workers import IN_PROCESS, Executor

EQUAL_BITS = (
    "Where versions, processor, plugins and the canary of two platforms are equal, both make equal bits of this run."
)
"""What a FAIL assumes that rests on bits of models."""


@dataclass(frozen=True)
class Case:
    """What is known about a run under audit.

    Attributes:
        run: the run; its integrity is already checked.
        parent: the run that it was made from, or what a prune left of it; None when it is not at hand.
        dataset: the rows at hand, None when the data cannot be read.
        key: draws of the audit itself.
        commitment: the commitment that an auditor holds from outside, if any.
        expected: the request that the auditor has in hand, if any.
        budget: the most training runs that may be executed; None for what the spec says.
        spot_check: how many stretches of rounds to replay instead of all; None for what the spec says.
        executor: what computes repeated sampling.
        cache: the folder in which finished parts of it are kept, if any.
        beacon: what the auditor knows to have been published after the commitment, if anything.
        earlier: the findings of a verification from before a prune, if the auditor has them.
        earlier_sha256: of the file that holds them.
        until_decided: whether repeated sampling stops, or goes on, as its own result asks.
        served: the model in use, if the auditor has it.
        receipts: those of clients.
    """

    run: Run
    parent: Run | Tombstone | None
    dataset: Dataset | None
    key: Keyed
    commitment: str | None = None
    expected: Request | None = None
    budget: int | None = None
    progress: Progress = silent
    spot_check: int | None = None
    executor: Executor = IN_PROCESS
    cache: Path | None = None
    until_decided: bool = False
    served: Served | None = None
    receipts: tuple[Receipt, ...] = ()
    beacon: str | None = None
    earlier: Mapping[str, Any] | None = None
    earlier_sha256: str = ""

    @property
    def request(self) -> Request | None:
        """What the run had to forget last; None for a training run."""
        return self.run.request if self.run.is_child else None

    @cached_property
    def unlearner(self) -> Any:
        """The installed unlearner that the run names, with its recorded options."""
        return self.run.unlearner

    @property
    def is_editor(self) -> bool:
        """Whether the last unlearner edits models, so that no plan makes this one.

        Decided by the installed plugin. A rewriter that went on from an edited model makes models that its plan
        does not make, which replay shows.
        """
        return self.run.is_child and is_editor(self.unlearner)

    @cached_property
    def ancestors(self) -> tuple[Run | Tombstone, ...]:
        """The parent, its parent, and so on, as far as they are at hand."""
        found: list[Run | Tombstone] = []
        above = self.parent
        while above is not None:
            found.append(above)
            above = parent_of(above)
        return tuple(found)

    @cached_property
    def steps(self) -> tuple[tuple[Any, str], ...]:
        """The unlearners of the lineage at hand with the kinds of their requests, oldest first."""
        return tuple((run.unlearner, run.request.kind) for run in self.runs)

    @property
    def stopped(self) -> bool:
        """Whether the request came during training, as far as the parent tells."""
        return self.parent is not None and self.parent.rounds_executed < self.run.plan.law.rounds

    @property
    def step_names(self) -> list[str]:
        """Their registered names."""
        return [repr(run.info["unlearner"]["use"]) for run in self.runs]

    @property
    def runs(self) -> list[Run]:
        """The runs of the lineage at hand that unlearning wrote, oldest first."""
        return [run for run in (*self.ancestors[::-1], self.run) if isinstance(run, Run) and run.is_child]

    @property
    def complete_lineage(self) -> bool:
        """Whether every ancestor up to the training run is at hand, pruned or not."""
        oldest = self.ancestors[-1] if self.ancestors else self.run
        return not oldest.is_child

    @cached_property
    def ready(self) -> Setup:
        """The run's config on this machine, with the engine that the run used. UsageError without data."""
        if self.dataset is None:
            raise UsageError("the data is not at hand", "Give --data ROOT.")
        return setup(self.run.config, None, self.dataset)

    @property
    def before(self) -> Population:
        """The population before the last request; see :meth:`fuaudit.runs.run.Run.before`."""
        return self.run.before

    @property
    def erased_rows(self) -> frozenset[int]:
        """The sample ids that the last request took away, as far as they are known."""
        if self.request is None:
            return frozenset()
        owned = {s for c in self.request.clients for s in self.before.samples[c]}
        return frozenset(owned.union(self.request.samples) - self.run.stand_ins)

    @cached_property
    def at_hand(self) -> AtHand:
        """What lies under the ids of erased rows. UsageError without data."""
        if self.dataset is None:
            raise UsageError("the data is not at hand", "Give --data ROOT.")
        return at_hand(self.run, self.ancestors, self.receipts, self.dataset)

    @property
    def unopened(self) -> tuple[str, ...]:
        """What it assumes to compute with the rows that the last request took away; empty where all open leaves."""
        here = self.at_hand
        rows = self.erased_rows.intersection((*here.other, *here.unknown))
        if not rows:
            return ()
        return (f"{len(rows)} erased rows at hand are the ones that were trained on: the commitment does not show it.",)

    @cached_property
    def _here(self) -> Platform:
        """What audits here. UsageError without data, which says what the run's arithmetic looks like."""
        return Platform.here(self.ready, 0)

    def elsewhere(self, run: Run, until: int | None = None, after: int = 0) -> tuple[str, ...]:
        """What says that models of a run of this lineage were made on another platform; empty where bits must agree.

        By default of all that it stores and measures, else of the rounds ``after`` + 1 to ``until``. All platforms
        that made them, those of ancestors whose rounds the run keeps included, must have the versions, plugins and
        canary of this machine. UsageError without data.
        """
        found = made(run.ledger, run.rounds_executed + 1 if until is None else until, after)
        unlike = [(platform.since, platform.unlike(self._here)) for platform in found]
        return tuple(
            f"what {run.path.name} stores from round {since} on was made on another platform: other {names}"
            for since, names in unlike
            if names
        )

    @property
    def same_platform(self) -> bool:
        """Whether this machine computes as all those that made models of the run, so that bits must agree."""
        return not self.elsewhere(self.run)

    @cached_property
    def differences(self) -> Differences:
        """Where the rows at hand are not those that the run committed to. UsageError without data."""
        if self.dataset is None:
            raise UsageError("the data is not at hand", "Give --data ROOT.")
        return self.run.differences(self.dataset)

    @property
    def same_reader(self) -> bool:
        """Whether rows are read here as for the run and its ancestors: by the same reader, libraries and system.

        Training committed to the rows, and it may have read them elsewhere than who went on with it. Which path the
        arithmetic takes does not bear on what is read.
        """
        ours, config = versions(), self.run.config
        readers = [row for row in plugins_of(config) if row["kind"] == "datasets"]
        return all(
            readers == [row for row in run.info["plugins"] if row["kind"] == "datasets"]
            and all(ours[name] == run.info["versions"].get(name) for name in ("torch", "numpy", "platform"))
            for run in (self.run, *self.ancestors)
        )

    @cached_property
    def schedule(self) -> Rounds:
        """The run's plan, up to its last executed round."""
        return LazySchedule([self.run.plan], self.run.rounds_executed)

    @property
    def stored_rounds(self) -> tuple[int, ...]:
        """The rounds after which a run of this config stores its model, ascending; 0 is before the first."""
        return stored_rounds(self.run.config.run.checkpoint_every, self.run.rounds_executed)

    @cached_property
    def replayed(self) -> Checkpoints:
        """The models that the plan makes of the retained data, from scratch, at the rounds the run has stored."""
        return self.models(self.run.plan, self.run.plan.retained, self.schedule)

    @cached_property
    def counterfactuals(self) -> Counterfactuals:
        """What the models would be with erased data left in; see :mod:`fuaudit.verification.counterfactual`."""
        return counterfactuals(self.run, self.ancestors, self.complete_lineage, self.ready.dataset, self.models)

    def models(self, plan: Plan, population: Population, schedule: Rounds) -> Checkpoints:
        """Models and states at the stored rounds: a schedule executed over a population from a plan's initial model.

        The initial model comes from the key of the initial draw, never from a model that a run holds.
        """
        ready = self.ready
        start = initial_state(ready.procedure, [plan], population, ready.device)
        retained = self.run.plan.retained
        stored = {0: start.without(ready.procedure, population, retained).of(0)}
        for round_number, round_state in execute(
            ready.procedure, ready.client_problem(population), population, schedule, start, ready.engine
        ):
            if round_number in self.stored_rounds:
                stored[round_number] = round_state.without(ready.procedure, population, retained).of(0)
            self.progress("replaying rounds", round_number, self.run.rounds_executed)
        return stored

    @cached_property
    def regenerated(self) -> dict[str, bytes]:
        """Every file that follows from the retained data and the plan, computed from scratch."""
        return derived_files(self.ready, self.run.plan.retained, self.schedule, self.replayed)


def drawn_plan(run: Run) -> Plan:
    """The plan of a run without its recorded index: an audit reads draws, not what a run says of them."""
    return replace(run.plan, index=None)


def made_by_another(run: Run | Tombstone) -> str:
    """In words that a run was made by another distribution or version than is installed here; "" where it was not."""
    if not run.is_child:
        return ""
    recorded = run.info["unlearner"]
    try:
        installed = registry.find("unlearners", recorded["use"])
    except UsageError:
        return f"{run.path.name} was made by {recorded['use']!r}, which is not installed"
    if (recorded.get("distribution"), recorded.get("version")) == (installed.distribution, installed.version):
        return ""
    return (
        f"{run.path.name} was made by {recorded.get('distribution')} {recorded.get('version')}, "
        f"installed is {installed.distribution} {installed.version}"
    )
